"""How accuracies are drawn: the mean over seeds, with a band from the worst to the best."""

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.evaluation.analysis import over_seeds

COLOURS = (
    "#0072B2",
    "#E69F00",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
)  # for colour-blind eyes
EXACT_MATCH = "exact match (%)"
EXAMPLES = "examples seen"


def line(
    axis: Any,
    points: Mapping[Any, Sequence[float]],
    label: str,
    colour: Any,
    marker: str = "o",
    style: str = "-",
    factor: float = 100,
    width: float = 1.5,
) -> None:
    """The mean over seeds, with a band from the worst to the best.

    `points` has one value for each seed; an x without any is left out.
    """
    seeds = {x: over_seeds(values) for x, values in points.items() if len(values)}
    if not seeds:
        return
    few = marker if len(seeds) <= 30 else ""
    x = list(seeds)
    means = [factor * s.mean for s in seeds.values()]
    axis.plot(x, means, style, color=colour, marker=few, ms=2.5 + width, lw=width, label=label)
    worst, best = ([factor * getattr(s, end) for s in seeds.values()] for end in ("worst", "best"))
    axis.fill_between(x, worst, best, color=colour, alpha=0.2, linewidth=0)


def count_examples(axis: Any) -> None:
    from matplotlib.ticker import EngFormatter

    axis.xaxis.set_major_formatter(EngFormatter(sep=""))  # 20k, 7.5M
    axis.locator_params(axis="x", nbins=6)
    axis.set_xlim(left=0)
    axis.set_xlabel(EXAMPLES)


def percent(axis: Any, name: str = EXACT_MATCH) -> None:
    axis.set(ylabel=name, ylim=(-3, 103))


def shade_trained(axis: Any, digits: int) -> None:
    """Mark the lengths of training on an axis of lengths, behind all that is drawn there."""
    left, right = axis.get_xlim()
    end = digits + 0.5 if left < digits + 0.5 else left
    axis.axvspan(left, end, color="0.93", zorder=0, linewidth=0)
    above = {"transform": axis.get_xaxis_transform(), "va": "bottom", "color": "0.45"}
    axis.text(left, 1.01, "trained", fontsize=8, **above)
    axis.set_xlim(left, right)
