"""Figure 4: how many primed examples it takes, by train set size and by length; and a curriculum of two lengths."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lengthwise.analysis import Estimate, Transform, compare_fits, fit, smallest_sufficient
from lengthwise.data import curriculum, one_length
from lengthwise.paper.artefact import (
    MARGIN,
    Artefact,
    Claim,
    Grid,
    Missing,
    Results,
    ScaleName,
    Setting,
    Undecided,
    artefact,
)
from lengthwise.paper.drawing import BLUE, GREEN, RED, finish, learning_curve, level, line, panels, percent, say, ticks
from lengthwise.paper.figure_finetuning_priming import (
    BASE,
    LEVEL,
    LONG,
    N_TRAIN,
    PRIMED,
    SHORT,
    SMALL_PRODUCTS,
    multiplication,
)

COUNTS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (5, 50),
    "cpu": (5, 10, 25, 50, 100, 200),
    "paper": (5, 10, 15, 20, 25, 30, 40, 50, 75, 100),
}
# Where else the sample needed is looked for: the same samples in each of these, so that the choice favours no answer.
BY_SIZE: dict[ScaleName, dict[int, tuple[int, ...]]] = {
    "smoke": dict.fromkeys((1000, 20000), (5,)),
    "cpu": dict.fromkeys((1000, 20000), (10, 50, 250)),
    "paper": dict.fromkeys((1000, 10000, 100000), (10, 30, 50, 70, 100, 150)),
}
BY_LENGTH: dict[ScaleName, dict[int, tuple[int, ...]]] = {
    "smoke": dict.fromkeys((6,), (5,)),
    "cpu": dict.fromkeys((6, 8), (10, 50)),
    "paper": dict.fromkeys((6, 10, 15, 20, 25, 30), (5, 10, 20, 30, 50)),
}
PUBLISHED = {1000: 30, 10000: 70, 100000: 100}  # examples needed by train set size, in the text
CURRICULUM = "curriculum of two lengths"


def label(count: int, length: int, size: int = N_TRAIN) -> str:
    return f"{count} of {length} digits, N_train {size}"


def by_count(scale: ScaleName) -> dict[int, str]:
    """The runs of panel (a), by the number of primed examples."""
    return {0: BASE, **{count: label(count, LONG[scale]) for count in COUNTS[scale]}}


def by_size(scale: ScaleName) -> dict[int, dict[int, str]]:
    """The runs of panel (b), by train set size and number of primed examples."""
    runs = {size: {n: label(n, LONG[scale], size) for n in counts} for size, counts in BY_SIZE[scale].items()}
    return dict(sorted({**runs, N_TRAIN: by_count(scale)}.items()))


def by_length(scale: ScaleName) -> dict[int, dict[int, str]]:
    """The runs of panel (c), by extrapolation length and number of primed examples."""
    runs = {length: {0: BASE, **{n: label(n, length) for n in ns}} for length, ns in BY_LENGTH[scale].items()}
    return {**runs, LONG[scale]: by_count(scale)}


def sample_needed(results: Results, runs: Mapping[int, str], length: int) -> Estimate | None:
    """The primed examples needed for the level, from the runs that there are.

    None where the level isn't reached, and where the smallest sample tested, unless it is none, already reaches it.
    """
    found = {count: seeds for count, run in runs.items() if (seeds := results.exact_match(run, length))}
    needed = smallest_sufficient(found, LEVEL)
    return needed if needed and (needed.value > min(found) or needed.value == 0) else None


def needed_by_size(results: Results) -> dict[int, Estimate]:
    cases = {size: sample_needed(results, runs, LONG[results.scale]) for size, runs in by_size(results.scale).items()}
    return {size: needed for size, needed in cases.items() if needed}


def needed_by_length(results: Results) -> dict[int, Estimate]:
    cases = {length: sample_needed(results, runs, length) for length, runs in by_length(results.scale).items()}
    return {length: needed for length, needed in cases.items() if needed}


def complete(
    results: Results, needed: Mapping[int, Estimate], cases: Mapping[int, Mapping[int, str]]
) -> tuple[list[int], list[float]]:
    """Sizes or lengths with the sample needed at each."""
    for runs in cases.values():
        if missing := [run for run in runs.values() if not results.of(run)]:
            raise Missing(missing[0])
    if unknown := [case for case in cases if case not in needed]:
        raise Undecided(f"the level isn't crossed between the samples tested for {unknown[0]}")
    return list(needed), [estimate.value for estimate in needed.values()]


def best_fit(x: list[int], y: list[float]) -> Transform:
    """Of the cases that need priming at all: 0 is the least that there is, whatever the fit."""
    points = [point for point in zip(x, y, strict=True) if point[1] > 0]
    if len(points) < 3:
        raise Undecided("two points lie on any line")
    x, y = map(list, zip(*points, strict=True))
    return compare_fits(x, y)[0].transform


def sizes(results: Results) -> tuple[list[int], list[float]]:
    return complete(results, needed_by_size(results), by_size(results.scale))


def lengths(results: Results) -> tuple[list[int], list[float]]:
    return complete(results, needed_by_length(results), by_length(results.scale))


def rises(points: tuple[list[int], list[float]]) -> bool:
    return points[1][-1] > points[1][0] and fit(*points).slope.value > 0


def rises_with_count(results: Results) -> bool:
    """The slope over the logarithm of the count is above 0 with 95 % confidence."""
    counts = COUNTS[results.scale]
    slope = fit(counts, [results.mean(label(n, LONG[results.scale]), LONG[results.scale]) for n in counts], "log").slope
    return slope.low is not None and slope.low > 0


def average(results: Results, run: str) -> float:
    """The accuracy at the long length, averaged over training: higher for a model that learns faster."""
    _, seeds = results.curve(run, LONG[results.scale])
    if not seeds:
        raise Missing(run)
    return float(np.mean(seeds))


@artefact("figure-priming-ablations", "§5, Figure 4", "Multiplication: how much priming it takes")
class FigurePrimingAblations(Artefact):
    notes = (
        "The sample needed is interpolated between tested sizes, after isotonic regression over them.",
        "Published in the text: 30 examples for a train set of 10³, 70 for 10⁴, 100 for 10⁵; 50 for 35 digits, 10 for"
        " 6 digits. The abstract has “10 to 50” examples; the text says that fewer than 25 prevent generalisation.",
        "The paper trains for a number of epochs, so that larger train sets are trained on longer; at cpu scale every"
        " run has the same steps, and primed examples are seen the less often the larger the train set is.",
        "Whether n_test shrinks with the extrapolation length in (c) isn't said; the layout stays that of the longest.",
        "The text says that most curricula fail, without naming them; only the one of the two longest lengths is drawn,"
        " and only that one is run.",
        SMALL_PRODUCTS,
    )
    claims = (
        Claim(
            "a minimal priming sample is required: with the fewest tested, the long length isn't learned (at most 5 %)",
            lambda results: (
                results.mean(by_count(results.scale)[COUNTS[results.scale][0]], LONG[results.scale]) <= 0.05
            ),
        ),
        Claim("accuracy at the long length rises with the priming sample", rises_with_count),
        Claim("larger train sets need more primed examples", lambda results: rises(sizes(results))),
        Claim(
            "the sample needed scales with the logarithm of the train set size (a better fit than the line)",
            lambda results: rises(sizes(results)) and best_fit(*sizes(results)) == "log",
        ),
        Claim("longer extrapolation needs more primed examples", lambda results: rises(lengths(results))),
        Claim(
            "the sample needed scales linearly with the extrapolation length (a better fit than the logarithm)",
            lambda results: rises(lengths(results)) and best_fit(*lengths(results)) == "linear",
        ),
        Claim(
            "a curriculum of the two longest lengths learns faster (higher accuracy on average over training)",
            lambda results: (
                average(results, CURRICULUM) > average(results, label(PRIMED, LONG[results.scale])) + MARGIN
            ),
        ),
        Claim(
            "a curriculum of the two longest lengths ends with a higher accuracy",
            lambda results: (
                results.mean(CURRICULUM, LONG[results.scale])
                > results.mean(label(PRIMED, LONG[results.scale]), LONG[results.scale]) + MARGIN
            ),
        ),
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        long = LONG[scale]
        sized = {**BY_SIZE[scale], N_TRAIN: COUNTS[scale]}
        return {
            BASE: multiplication(scale),
            **{
                label(count, long, size): multiplication(scale, one_length(long, count), train_size=size)
                for size, counts in sized.items()
                for count in counts
            },
            **{
                label(count, length): multiplication(scale, one_length(length, count))
                for length, counts in BY_LENGTH[scale].items()
                for count in counts
            },
            CURRICULUM: multiplication(scale, curriculum([long - 1, long], PRIMED)),
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        measured = {run: length for length, runs in by_length(results.scale).items() for run in runs.values()}
        rows = {
            run: [
                (results.exact_match(run, SHORT), None),
                (results.exact_match(run, measured.get(run, LONG[results.scale])), None),
            ]
            for run in self.settings(results.scale)
        }
        return {"Exact match (%)": Grid([f"{SHORT} digits", "the primed length"], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        long = LONG[results.scale]
        needed = f"primed examples needed for {100 * LEVEL:.0f} %"
        axes = panels(
            figure,
            "accuracy by priming sample",
            "sample needed by train set size",
            "sample needed by length",
            "curriculum",
        )
        runs = by_count(results.scale)
        line(axes[0], {n: results.exact_match(run, long) for n, run in runs.items()}, "", BLUE)
        level(axes[0], 100 * LEVEL)
        axes[0].set(xlabel=f"primed examples of {long} digits")
        thresholds(axes[1], needed_by_size(results), "log", "for each factor of ten")
        ticks(axes[1], list(by_size(results.scale)))
        if results.scale == "paper":
            axes[1].plot(list(PUBLISHED), list(PUBLISHED.values()), "D", color=RED, mfc="none", label="published")
        axes[1].set(xlabel="train set size (N_train)", ylabel=needed)
        thresholds(axes[2], needed_by_length(results), "linear", "for each digit")
        axes[2].set_xticks(list(by_length(results.scale)))
        axes[2].set(xlabel="extrapolation length (digits)", ylabel=needed)
        for axis, needs in ((axes[1], needed_by_size(results)), (axes[2], needed_by_length(results))):
            if results.records and not needs:
                say(axis, "the level isn't crossed between tested samples")
        learning_curve(axes[3], results, runs[PRIMED], long, f"{PRIMED} of {long} digits", BLUE)
        learning_curve(axes[3], results, CURRICULUM, long, f"{PRIMED} of {long - 1} and {long} digits", GREEN)
        for axis in (axes[0], axes[3]):
            percent(axis, f"exact match at {long} digits (%)")
        finish(figure, keep=axes[1:])


def thresholds(axis: Any, needed: Mapping[int, Estimate], transform: Transform, unit: str) -> None:
    """The sample needed with its 95 % interval, and the fit."""
    if not needed:
        return
    x, y = list(needed), [e.value for e in needed.values()]
    ends = [(e.value if e.low is None else e.low, e.value if e.high is None else e.high) for e in needed.values()]
    spread = np.abs(np.transpose([[value - low, high - value] for value, (low, high) in zip(y, ends, strict=True)]))
    axis.errorbar(x, y, spread, fmt="o", color=BLUE, capsize=3, label="interpolated from the runs")
    if len(x) > 2:  # two points lie on any line
        found = fit(x, y, transform)
        error = "" if found.slope.error is None else f" ± {found.slope.error:.1f}"
        at = np.geomspace(x[0], x[-1])
        axis.plot(at, found.predict(at), "--", color="0.4", label=f"fit: {found.slope.value:.1f}{error} {unit}")
    axis.set_ylim(0, 1.25 * max(high for _, high in ends) or 1)
