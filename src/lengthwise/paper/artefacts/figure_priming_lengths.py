"""Figure 5: primed with the longest length only, with all lengths, and with even lengths only."""

from typing import Any

import numpy as np

from lengthwise.paper.artefact import (
    Artefact,
    Claim,
    Grid,
    Headline,
    accuracy_grid,
    artefact,
)
from lengthwise.paper.drawing import BLUE, ORANGE, bars, finish, panels, percent
from lengthwise.paper.experiments import (
    BY_ONE_DIGIT,
    LONG,
    PRIMED,
    PRODUCTS_NOTE,
    long_length,
    products,
)
from lengthwise.paper.published import statement, within_a_point
from lengthwise.paper.results import Results
from lengthwise.paper.scales import TRAIN_DIGITS, TRAIN_SIZE, Overrides, ScaleName, with_budget
from lengthwise.paper.verdicts import Measurement, all_of, at_least, at_most, greater
from lengthwise.problems.priming import Priming, all_lengths, even_lengths, one_length

ONE, ALL, EVEN = "the longest length only", "all lengths", "even lengths only"
ALONE = "all lengths, without shorter examples"
MANY = int(statement("primed examples of all lengths"))
PUBLISHED = statement("primed with all lengths")
LEVEL = within_a_point(PUBLISHED)
BETWEEN = range(TRAIN_DIGITS + 1, LONG)  # lengths beyond training, without the longest
EVEN_LENGTHS, ODD_LENGTHS = ([n for n in (*BETWEEN, LONG) if n % 2 == odd] for odd in (0, 1))


def primings(scale: ScaleName) -> dict[str, Priming]:
    long = long_length(scale)
    return {
        ONE: one_length(long, PRIMED),
        ALL: all_lengths(TRAIN_DIGITS + 1, long, MANY),
        EVEN: even_lengths(TRAIN_DIGITS + 1, long, MANY),
    }


def alone(scale: ScaleName) -> Overrides:
    """The primed examples of all lengths without the rest, trained on as many examples.

    One example of up to 5 digits is left: a training set needs one that isn't primed.
    """
    keys = products(scale, priming=primings(scale)[ALL], train_size=MANY + 1)
    if scale == "smoke":
        return keys
    return with_budget(keys, {"training.examples": int(keys["training.epochs"] * TRAIN_SIZE)})


def worst_length(results: Results, label: str) -> Measurement:
    """The accuracy at the length beyond training that is worst on average over seeds."""
    means = {n: np.mean(results.exact_match(label, n) or [0.0]) for n in (*BETWEEN, LONG)}
    return results.accuracy(label, min(means, key=means.__getitem__))


@artefact("figure-priming-lengths", "§5, Figure 5", "Multiplication: priming for all lengths")
class FigurePrimingLengths(Artefact):
    difference = BY_ONE_DIGIT
    notes = (
        "The distribution of priming lengths is only a picture in the paper. Here it grows"
        " linearly with the length.",
        "The paper doesn't say how many examples of even lengths are primed: 500, as for all"
        " lengths.",
        "The introduction says that 500 examples “along” would be far from sufficient, which is"
        " read as “alone”. The paper shows no such run. Here it has the budget of the others, and"
        f" one example of up to {TRAIN_DIGITS} digits.",
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
            f"primed with all lengths, accuracy is over {PUBLISHED:g} % at every length, within a"
            f" point (over {100 * LEVEL:g} % at the length that is worst on average over seeds)",
            lambda results: greater(worst_length(results, ALL), LEVEL),
            Headline(
                f"{MANY} primed examples carry products to every length from 6 to 35",
                [6, 10, 20, LONG],
                [ALL],
                f"over {PUBLISHED:g} %",
            ),
        ),
        Claim(
            f"the same {MANY} examples alone don't suffice (at most half right on average over 6 to"
            " 35 digits)",
            lambda results: at_most(
                results.mean_accuracy(ALONE, (*BETWEEN, LONG), "6 to 35 digits", gated=False), 0.5
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
        primed = {label: products(scale, priming=p) for label, p in primings(scale).items()}
        return {**primed, ALONE: alone(scale)}

    def grids(self, results: Results) -> dict[str, Grid]:
        long = long_length(results.scale)
        shown = (5, 6, 7, 8, 10, 15, 20, 25, 30, 33, 34, 35)
        lengths = [n for n in shown if n <= long]
        grid = accuracy_grid(results, list(self.conditions(results.scale)), lengths)
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
