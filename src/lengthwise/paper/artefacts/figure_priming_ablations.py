"""Figure 4: how many primed examples it takes, by train set size and by length; and curricula."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lengthwise.evaluation.analysis import Estimate, Transform, fit, smallest_sufficient
from lengthwise.paper.artefact import Artefact, Claim, Grid, Headline, artefact
from lengthwise.paper.drawing import (
    BLUE,
    GREEN,
    RED,
    finish,
    learning_curve,
    level,
    line,
    panels,
    percent,
    say,
    ticks,
)
from lengthwise.paper.experiments import (
    BY_ONE_DIGIT,
    LEVEL,
    LONG,
    PRIMED,
    PRODUCTS_NOTE,
    UNPRIMED,
    long_length,
    products,
)
from lengthwise.paper.learning import mean_over_training
from lengthwise.paper.published import statement, statements
from lengthwise.paper.results import Cell, Record, Results, final_accuracy
from lengthwise.paper.scales import (
    SMOKE_DIGITS,
    TRAIN_DIGITS,
    TRAIN_SIZE,
    Overrides,
    ScaleName,
)
from lengthwise.paper.verdicts import (
    Judgement,
    Measurement,
    all_of,
    at_least,
    at_most,
    greater,
)
from lengthwise.problems.priming import Priming, curriculum, one_length

TOO_FEW = int(statement("fewest primed examples that help"))
PUBLISHED = statements("priming needed by train set size")
PUBLISHED_BY_LENGTH = statements("priming needed by length")
COUNTS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (5, 50),
    "cpu": (10, 25, 50, 100),
    "paper": (5, 10, 15, 20, 25, 30, 40, 50, 70, 75, 100, 150),
}
# Where the sample needed is looked for. All sizes, and all lengths, are judged by the same samples,
# so that the choice favours no answer. Those of 35 digits and 5000 examples are among COUNTS.
BY_SIZE: dict[ScaleName, dict[int, tuple[int, ...]]] = {
    "smoke": dict.fromkeys((1000, TRAIN_SIZE, 20_000), (5,)),
    "cpu": dict.fromkeys((1000, TRAIN_SIZE, 20_000), (10, 25, 50, 100)),
    "paper": dict.fromkeys((1000, TRAIN_SIZE, 10_000, 100_000), (10, 30, 50, 70, 100, 150)),
}
BY_LENGTH: dict[ScaleName, dict[int, tuple[int, ...]]] = {
    "smoke": dict.fromkeys((6, SMOKE_DIGITS), (5,)),
    "cpu": dict.fromkeys((6, 10, 20, LONG), (10, 25, 50)),
    "paper": dict.fromkeys((6, 10, 15, 20, 25, 30, LONG), (5, 10, 20, 30, 50)),
}
TWO_LONGEST = "curriculum of the two longest lengths"


def label(count: int, length: int, size: int = TRAIN_SIZE) -> str:
    return f"{count} of {length} digits, N_train {size}"


def by_count(scale: ScaleName) -> dict[int, str]:
    """The runs of panel (a), by the number of primed examples."""
    long = long_length(scale)
    return {0: UNPRIMED, **{count: label(count, long) for count in COUNTS[scale]}}


def by_size(scale: ScaleName) -> dict[int, dict[int, str]]:
    """The runs of panel (b), by train set size and number of primed examples."""
    long = long_length(scale)
    return {size: {n: label(n, long, size) for n in ns} for size, ns in BY_SIZE[scale].items()}


def by_length(scale: ScaleName) -> dict[int, dict[int, str]]:
    """The runs of panel (c), by extrapolation length and number of primed examples."""
    return {
        length: {0: UNPRIMED, **{n: label(n, length) for n in counts}}
        for length, counts in BY_LENGTH[scale].items()
    }


def other_curricula(scale: ScaleName) -> dict[str, Priming]:
    """Ways to split the primed examples between lengths, besides the two longest."""
    long = long_length(scale)
    lengths = {
        f"all lengths from {TRAIN_DIGITS + 1} to {long}": range(TRAIN_DIGITS + 1, long + 1),
        f"{TRAIN_DIGITS + 1} and {long} digits": (TRAIN_DIGITS + 1, long),
        f"{TRAIN_DIGITS + 1}, {(TRAIN_DIGITS + long) // 2} and {long} digits": (
            TRAIN_DIGITS + 1,
            (TRAIN_DIGITS + long) // 2,
            long,
        ),
    }
    return {
        f"curriculum of {name}": curriculum(list(chosen), PRIMED)
        for name, chosen in lengths.items()
    }


def sample_needed(shares: Mapping[int, list[float]]) -> Estimate | None:
    """The primed examples needed for the level, from accuracies by the number of examples.

    None where a count has no runs, where the level isn't reached, and where the smallest sample
    already reaches it: between none and that sample nothing was tested. None may suffice, too: 0.
    """
    if not all(shares.values()):
        return None
    needed = smallest_sufficient(shares, LEVEL)
    smallest = min(count for count in shares if count)
    return needed if needed and (needed.value > smallest or needed.value == 0) else None


def needed_over_seeds(
    results: Results, cases: Mapping[int, Mapping[int, str]], lengths: Mapping[int, int]
) -> dict[int, Estimate]:
    """The sample needed by size or length, with its interval over seeds, where there is one."""
    found = {
        case: sample_needed({n: results.exact_match(run, lengths[case]) for n, run in runs.items()})
        for case, runs in cases.items()
    }
    return {case: needed for case, needed in found.items() if needed}


def needed_by_size(results: Results) -> dict[int, Estimate]:
    cases = by_size(results.scale)
    return needed_over_seeds(results, cases, dict.fromkeys(cases, long_length(results.scale)))


def describe_samples(needed: Mapping[int, float]) -> str:
    """The sample needed by size or length.

    >>> describe_samples({1000: 30, 10000: 70})
    '30 examples for 1000, 70 examples for 10000'
    """
    return ", ".join(f"{count:.0f} examples for {n}" for n, count in needed.items())


def needed_by_length(results: Results) -> dict[int, Estimate]:
    cases = by_length(results.scale)
    return needed_over_seeds(results, cases, {length: length for length in cases})


def needed_of_seed(
    records: Mapping[str, Record], runs: Mapping[int, str], length: int
) -> float | None:
    """The sample needed by one seed; None where it doesn't cross the level between samples."""
    shares = {n: [final_accuracy(records[run], length) or 0.0] for n, run in runs.items()}
    needed = sample_needed(shares)
    return None if needed is None else needed.value


def needs(
    results: Results, runs: Mapping[int, str], length: int, name: str, number: float
) -> Judgement:
    """Whether the sample needed is a published number, within a factor of two."""
    needed = results.measure_together(
        list(runs.values()),
        lambda records: needed_of_seed(records, runs, length),
        f"sample needed for {name}",
    )
    return all_of([at_least(needed, number / 2), at_most(needed, 2 * number)])


def law(
    results: Results, cases: Mapping[int, Mapping[int, str]], by_length: bool, transform: Transform
) -> dict[str, Measurement]:
    """The slope of the sample needed, and the advantage of a transform over the other, by seed."""
    runs = sorted({run for counts in cases.values() for run in counts.values()})
    long = long_length(results.scale)

    def points(records: Mapping[str, Record]) -> tuple[list[int], list[float]] | None:
        x, y = [], []
        for case, counts in cases.items():
            length = case if by_length else long
            needed = needed_of_seed(records, counts, length)
            if needed is None:
                return None
            x.append(case)
            y.append(needed)
        return x, y

    def slope(records: Mapping[str, Record]) -> float | None:
        found = points(records)
        return fit(*found, transform).slope.value if found else None

    def advantage(records: Mapping[str, Record]) -> float | None:
        found = points(records)
        pairs = [(x, y) for x, y in zip(*found, strict=True) if y > 0] if found else []
        if len(pairs) < 3:  # two points lie on any line
            return None
        x, y = map(list, zip(*pairs, strict=True))
        other: Transform = "linear" if transform == "log" else "log"
        return fit(x, y, other).residual - fit(x, y, transform).residual

    over = "length" if by_length else "train set size"
    name = f"sample needed by {over}"
    return {
        "slope": results.measure_together(runs, slope, f"slope of the {name}"),
        "advantage": results.measure_together(
            runs, advantage, f"residuals of the {name} saved by the {transform} fit"
        ),
    }


def size_law(results: Results) -> dict[str, Measurement]:
    return law(results, by_size(results.scale), by_length=False, transform="log")


def length_law(results: Results) -> dict[str, Measurement]:
    return law(results, by_length(results.scale), by_length=True, transform="linear")


def slope_over_counts(results: Results) -> Measurement:
    """The slope of the accuracy at 35 digits over the log of samples above the threshold."""
    runs = {count: label(count, LONG) for count in COUNTS[results.scale] if count > TOO_FEW}

    def slope(records: Mapping[str, Record]) -> float:
        shares = [final_accuracy(records[run], LONG) or 0.0 for run in runs.values()]
        return fit(list(runs), shares, "log").slope.value

    return results.measure_together(list(runs.values()), slope, "slope over the priming sample")


def failing_curricula(results: Results) -> Measurement:
    """The share of other curricula with which 35 digits are less than half right, seed by seed."""
    runs = list(other_curricula(results.scale))

    def share(records: Mapping[str, Record]) -> float:
        fails = [(final_accuracy(record, LONG) or 0.0) < 0.5 for record in records.values()]
        return sum(fails) / len(fails)

    return results.measure_together(runs, share, "share of curricula that fail")


@artefact("figure-priming-ablations", "§5, Figure 4", "Multiplication: how much priming it takes")
class FigurePrimingAblations(Artefact):
    difference = BY_ONE_DIGIT
    notes = (
        "The sample needed is interpolated between tested samples, after isotonic regression over"
        " them. It is shown once all samples of a train set size or length have runs. Between no"
        " example and the smallest sample nothing is interpolated.",
        "The abstract has “10 to 50” examples; the text says that fewer than 25 prevent"
        " generalisation.",
        "Every train set size has the same number of epochs, as in the paper, so that a primed"
        " example is seen equally often.",
        "The paper doesn't say whether n_test shrinks with the extrapolation length in (c). The"
        " layout stays that of 35 digits.",
        "The text says that most curricula fail, without naming them. Three are tried: all lengths"
        " from 6 to 35, 6 and 35, and 6, 20 and 35, each with 50 examples in equal parts.",
        PRODUCTS_NOTE,
    )
    claims = (
        Claim(
            f"fewer than {TOO_FEW} primed examples prevent generalisation (at most 5 % at 35"
            " digits)",
            lambda results: all_of(
                at_most(results.accuracy(run, LONG), 0.05)
                for count, run in by_count(results.scale).items()
                if 0 < count < TOO_FEW
            ),
        ),
        Claim(
            f"above {TOO_FEW} examples, accuracy at 35 digits rises with the priming sample",
            lambda results: greater(slope_over_counts(results), 0),
        ),
        Claim(
            "larger train sets need more primed examples",
            lambda results: greater(size_law(results)["slope"], 0),
        ),
        Claim(
            "the sample needed scales with the logarithm of the train set size (a better fit than"
            " the line)",
            lambda results: all_of(greater(part, 0) for part in size_law(results).values()),
            Headline(
                "The priming sample grows with the logarithm of the train set size",
                [LONG],
                [],
                describe_samples(PUBLISHED),
                lambda results: describe_samples(
                    {size: needed.value for size, needed in needed_by_size(results).items()}
                ),
            ),
        ),
        Claim(
            "the sample needed is as published, within a factor of two, for the train set sizes of"
            f" this scale among {describe_samples(PUBLISHED)}",
            lambda results: all_of(
                needs(results, runs, LONG, f"a train set of {size}", PUBLISHED[size])
                for size, runs in by_size(results.scale).items()
                if size in PUBLISHED
            ),
        ),
        Claim(
            "longer extrapolation needs more primed examples",
            lambda results: greater(length_law(results)["slope"], 0),
        ),
        Claim(
            "the sample needed scales linearly with the extrapolation length (a better fit than the"
            " logarithm)",
            lambda results: all_of(greater(part, 0) for part in length_law(results).values()),
        ),
        Claim(
            "the sample needed is as published, within a factor of two:"
            f" {describe_samples(PUBLISHED_BY_LENGTH)} digits",
            lambda results: all_of(
                needs(results, by_length(results.scale)[length], length, f"{length} digits", number)
                for length, number in PUBLISHED_BY_LENGTH.items()
            ),
        ),
        Claim(
            "a curriculum of the two longest lengths learns faster (higher accuracy on average over"
            " training)",
            lambda results: greater(
                mean_over_training(results, TWO_LONGEST, LONG),
                mean_over_training(results, label(PRIMED, LONG), LONG),
            ),
        ),
        Claim(
            "a curriculum of the two longest lengths ends with a higher accuracy at 35 digits",
            lambda results: greater(
                results.accuracy(TWO_LONGEST, LONG), results.accuracy(label(PRIMED, LONG), LONG)
            ),
        ),
        Claim(
            "most other curricula fail (less than half right at 35 digits)",
            lambda results: greater(failing_curricula(results), 0.5),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        long = long_length(scale)
        sized = {**BY_SIZE[scale], TRAIN_SIZE: COUNTS[scale]}
        return {
            UNPRIMED: products(scale),
            **{
                label(n, long, size): products(scale, priming=one_length(long, n), train_size=size)
                for size, counts in sized.items()
                for n in counts
            },
            **{
                label(n, length): products(scale, priming=one_length(length, n))
                for length, counts in BY_LENGTH[scale].items()
                for n in counts
            },
            TWO_LONGEST: products(scale, priming=curriculum([long - 1, long], PRIMED)),
            **{name: products(scale, priming=p) for name, p in other_curricula(scale).items()},
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        primed = {run: n for n, runs in by_length(results.scale).items() for run in runs.values()}
        long = long_length(results.scale)

        def row(run: str) -> list[Cell]:
            return [results.cell(run, n) for n in (TRAIN_DIGITS, primed.get(run, long))]

        rows = {run: row(run) for run in self.conditions(results.scale)}
        return {"Exact match (%)": Grid([f"{TRAIN_DIGITS} digits", "the primed length"], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        long = long_length(results.scale)
        titles = (
            "accuracy by priming sample",
            "sample needed by train set size",
            "sample needed by length",
            "curriculum",
        )
        axes = panels(figure, *titles)
        runs = by_count(results.scale)
        points = {n: results.exact_match(run, long) for n, run in runs.items()}
        line(axes[0], points, "", BLUE)
        level(axes[0], 100 * LEVEL)
        axes[0].set(xlabel=f"primed examples of {long} digits")
        self.draw_samples(results, axes[1], axes[2])
        name = f"{PRIMED} of {long} digits"
        learning_curve(axes[3], results, runs[PRIMED], long, name, BLUE)
        name = f"{PRIMED} of {long - 1} and {long} digits"
        learning_curve(axes[3], results, TWO_LONGEST, long, name, GREEN)
        for axis in (axes[0], axes[3]):
            percent(axis, f"exact match at {long} digits (%)")
        finish(figure, keep=axes[1:])

    def draw_samples(self, results: Results, by_size_axis: Any, by_length_axis: Any) -> None:
        """Panels (b) and (c): the sample needed."""
        sizes, lengths = needed_by_size(results), needed_by_length(results)
        draw_thresholds(by_size_axis, sizes, "log", "for each factor of ten")
        ticks(by_size_axis, list(by_size(results.scale)))
        draw_thresholds(by_length_axis, lengths, "linear", "for each digit")
        if results.scale == "paper":
            pairs = ((by_size_axis, PUBLISHED), (by_length_axis, PUBLISHED_BY_LENGTH))
            for axis, published in pairs:
                x, y = list(published), list(published.values())
                axis.plot(x, y, "D", color=RED, mfc="none", label="published")
        by_length_axis.set_xticks(list(by_length(results.scale)))
        by_size_axis.set_xlabel("train set size (N_train)")
        by_length_axis.set_xlabel("extrapolation length (digits)")
        for axis, needed in ((by_size_axis, sizes), (by_length_axis, lengths)):
            axis.set_ylabel(f"primed examples needed for {100 * LEVEL:.0f} %")
            if results.records and not needed:
                say(axis, "the level isn't crossed between\ntested samples, or runs are missing")


def draw_thresholds(
    axis: Any, needed: Mapping[int, Estimate], transform: Transform, unit: str
) -> None:
    """The sample needed with its 95 % interval, and the fit."""
    if not needed:
        return
    x, y = list(needed), [e.value for e in needed.values()]
    ends = [
        (e.value if e.low is None else e.low, e.value if e.high is None else e.high)
        for e in needed.values()
    ]
    pairs = zip(y, ends, strict=True)
    spread = np.abs([[value - low, high - value] for value, (low, high) in pairs]).T
    axis.errorbar(x, y, spread, fmt="o", color=BLUE, capsize=3, label="interpolated from the runs")
    if len(x) > 2:  # two points lie on any line
        found = fit(x, y, transform)
        error = "" if found.slope.error is None else f" ± {found.slope.error:.1f}"
        at = np.geomspace(x[0], x[-1])
        name = f"fit: {found.slope.value:.1f}{error} {unit}"
        axis.plot(at, found.predict(at), "--", color="0.4", label=name)
    axis.set_ylim(0, 1.25 * max(high for _, high in ends) or 1)
