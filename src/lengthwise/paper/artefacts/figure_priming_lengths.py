"""Figure 5: primed with the longest length only, with all lengths, and with even lengths only."""

from typing import Any

from lengthwise.paper.artefact import (
    Artefact,
    Claim,
    Grid,
    Headline,
    accuracy_grid,
    artefact,
)
from lengthwise.paper.drawing import BLUE, ORANGE, bars, finish, panels, percent
from lengthwise.paper.experiments import LONG, PRIMED, PRODUCTS_NOTE, long_length, products
from lengthwise.paper.published import statement
from lengthwise.paper.results import Record, Results, final_accuracy
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import Measurement, all_of, at_least, at_most, greater
from lengthwise.problems.priming import Priming, all_lengths, even_lengths, one_length

ONE, ALL, EVEN = "the longest length only", "all lengths", "even lengths only"
MANY = int(statement("primed examples of all lengths"))
LEVEL = statement("primed with all lengths") / 100
BETWEEN = range(TRAIN_DIGITS + 1, LONG)  # lengths beyond training, without the longest
EVEN_LENGTHS, ODD_LENGTHS = ([n for n in (*BETWEEN, LONG) if n % 2 == odd] for odd in (0, 1))


def primings(scale: ScaleName) -> dict[str, Priming]:
    long = long_length(scale)
    return {
        ONE: one_length(long, PRIMED),
        ALL: all_lengths(TRAIN_DIGITS + 1, long, MANY),
        EVEN: even_lengths(TRAIN_DIGITS + 1, long, MANY),
    }


def worst_length(results: Results, label: str) -> Measurement:
    """The worst accuracy over all lengths beyond training."""

    def worst(record: Record) -> float:
        return min(final_accuracy(record, n) or 0.0 for n in (*BETWEEN, LONG))

    return results.measure(label, worst, f"{label}, the worst length")


@artefact("figure-priming-lengths", "§5, Figure 5", "Multiplication: priming for all lengths")
class FigurePrimingLengths(Artefact):
    notes = (
        "The distribution of priming lengths is only a picture in the paper. Here it grows"
        " linearly with the length.",
        "The paper doesn't say how many examples of even lengths are primed: 500, as for all"
        " lengths.",
        PRODUCTS_NOTE,
    )
    claims = (
        Claim(
            "primed with 35 digits only, no other length is learned (at most 10 % on average over"
            " the others, where 35 digits are learned)",
            lambda results: all_of(
                [
                    at_least(results.accuracy(ONE, LONG), 0.5),
                    at_most(results.mean_accuracy(ONE, BETWEEN, "6 to 34 digits"), 0.1),
                ]
            ),
        ),
        Claim(
            "primed with all lengths, accuracy is over 95 % at every length",
            lambda results: greater(worst_length(results, ALL), LEVEL),
            Headline(
                f"{MANY} primed examples carry products to every length from 6 to 35",
                [6, 10, 20, LONG],
                [ALL],
                f"over {100 * LEVEL:.0f} %",
            ),
        ),
        Claim(
            "primed with all lengths, the worst length is better than when primed with 35 digits"
            " only",
            lambda results: greater(worst_length(results, ALL), worst_length(results, ONE)),
        ),
        Claim(
            "primed with even lengths only, even lengths are better than odd ones",
            lambda results: greater(
                results.mean_accuracy(EVEN, EVEN_LENGTHS, "even lengths"),
                results.mean_accuracy(EVEN, ODD_LENGTHS, "odd lengths"),
            ),
        ),
        Claim(
            "primed with even lengths only, there is no overspill to odd ones (at most 10 % on"
            " average, where even lengths are learned)",
            lambda results: all_of(
                [
                    at_least(results.mean_accuracy(EVEN, EVEN_LENGTHS, "even lengths"), 0.5),
                    at_most(results.mean_accuracy(EVEN, ODD_LENGTHS, "odd lengths"), 0.1),
                ]
            ),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {label: products(scale, priming=p) for label, p in primings(scale).items()}

    def grids(self, results: Results) -> dict[str, Grid]:
        long = long_length(results.scale)
        shown = (5, 6, 7, 8, 10, 15, 20, 25, 30, 33, 34, 35)
        lengths = [n for n in shown if n <= long]
        grid = accuracy_grid(results, list(primings(results.scale)), lengths)
        return {"Exact match (%) by number of digits, by primed lengths": grid}

    def draw(self, results: Results, figure: Any) -> None:
        known, long = primings(results.scale), long_length(results.scale)
        beyond = range(TRAIN_DIGITS + 1, long + 1)
        titles = (
            f"primed with {ONE}",
            f"primed with {ALL}",
            "priming lengths of (b)",
            f"primed with {EVEN}",
        )
        axes = panels(figure, *titles)
        for axis, label in ((axes[0], ONE), (axes[1], ALL), (axes[3], EVEN)):
            seen = dict(known[label])
            accuracies = {n: results.exact_match(label, n) for n in (TRAIN_DIGITS, *beyond)}
            kinds = {
                "trained on": ({TRAIN_DIGITS}, "0.6"),
                "primed": (set(seen), BLUE),
                "never seen": (set(beyond) - set(seen), ORANGE),
            }
            for kind, (lengths, colour) in kinds.items():
                points = {n: seeds for n, seeds in accuracies.items() if n in lengths}
                bars(axis, points, kind, colour)
            percent(axis)
        bars(axes[2], {n: [count] for n, count in known[ALL]}, "primed", BLUE, factor=1)
        axes[2].set_ylabel("primed examples")
        for axis in axes:
            axis.set(xlabel="digits of the first operand", xlim=(TRAIN_DIGITS - 0.7, long + 0.7))
            axis.locator_params(axis="x", integer=True)
        finish(figure)
