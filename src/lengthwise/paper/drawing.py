"""How figures are drawn: the mean over seeds, a band from the worst to the best, one legend."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lengthwise.evaluation.analysis import over_seeds
from lengthwise.evaluation.drawing import (
    COLOURS,
    EXACT_MATCH,
    EXAMPLES,
    count_examples,
    line,
    percent,
)
from lengthwise.paper.learning import DigitCurves
from lengthwise.paper.results import Results

__all__ = ["COLOURS", "EXACT_MATCH", "EXAMPLES", "count_examples", "line", "percent"]
BLUE, ORANGE, RED, GREEN, *_ = COLOURS
POSITION = "position in the answer (1: the largest power of ten)"


def panels(figure: Any, *titles: str, columns: int = 2) -> list[Any]:
    """An axis for each panel, row by row, lettered as in the paper."""
    rows = -(-len(titles) // columns)
    figure.set_size_inches(4 * columns + 1, 3.3 * rows + 0.9)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes[len(titles) :]:
        axis.remove()
    for axis, letter, title in zip(axes, "abcdef", titles, strict=False):
        axis.set_title(f"({letter}) {title}", loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    return axes[: len(titles)]


def bars(
    axis: Any,
    points: Mapping[Any, Sequence[float]],
    label: str,
    colour: str,
    factor: float = 100,
) -> None:
    """The mean over seeds, with a whisker from the worst to the best where there are several."""
    seeds = {x: over_seeds(values) for x, values in points.items() if len(values)}
    if not seeds:
        return
    x, found = list(seeds), list(seeds.values())
    means = np.array([factor * s.mean for s in found])
    axis.bar(x, means, color=colour, label=label)
    ends = np.array([[factor * s.worst, factor * s.best] for s in found]).T
    if any(s.n > 1 for s in found):
        spread = np.abs(ends - means)
        axis.errorbar(x, means, spread, fmt="none", ecolor="0.2", capsize=2, lw=1)


def learning_curve(
    axis: Any, results: Results, run: str, length: int, label: str, colour: str
) -> None:
    """Exact match at a length while a condition was trained."""
    examples, seeds = results.curve(run, length)
    shortest = min(map(len, seeds), default=0)
    columns = zip(*(seed[:shortest] for seed in seeds), strict=True)
    line(axis, dict(zip(examples, columns, strict=False)), label, colour)
    count_examples(axis)


def draw_digits(axis: Any, curves: DigitCurves, most: int) -> None:
    """A line for each digit of the answer; `most` is the last that has a colour."""
    import matplotlib

    examples, digits = curves
    for digit, points in enumerate(np.transpose(digits, (2, 1, 0)), start=1):
        is_named = most <= 12 or digit in (1, most) or digit % 5 == 0
        colour = matplotlib.colormaps["viridis"](0.92 * (digit - 1) / max(1, most - 1))
        by_examples = dict(zip(examples, points.tolist(), strict=True))
        line(axis, by_examples, f"{digit}" if is_named else "", colour)
    count_examples(axis)
    percent(axis, "accuracy of the digit (%)")


def level(axis: Any, value: float, label: str = "") -> None:
    """A dotted line to compare with, if there is anything to compare."""
    if axis.has_data():
        axis.axhline(value, color="0.6", linestyle=":", label=label)


def ticks(axis: Any, values: Sequence[float]) -> None:
    """Exactly these values on a logarithmic x axis."""
    axis.set_xscale("log")
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.minorticks_off()


def say(axis: Any, text: str) -> None:
    """A text in a panel without data; the first one stays."""
    if not axis.texts:
        axis.tick_params(bottom=False, left=False, labelbottom=False, labelleft=False)
        axis.text(0.5, 0.5, text, transform=axis.transAxes, ha="center", va="center", color="0.5")


def finish(figure: Any, title: str | None = None, keep: Sequence[Any] = ()) -> None:
    """One legend for all panels but those in `keep`, which have their own; mark empty panels."""
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        if not axis.has_data():
            say(axis, "no runs")
        found = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        if axis not in keep:
            handles = {**found, **handles}
        elif found:
            axis.legend(frameon=False, fontsize=8)
    if handles:
        inches = 0.6 + 0.08 * max(map(len, handles))  # of one label
        most = len(handles) if len(handles) <= 12 else 10
        columns = min(most, max(1, int(figure.get_figwidth() / inches)))
        figure.legend(
            list(handles.values()),
            list(handles),
            title=title,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
            fontsize=9,
        )
