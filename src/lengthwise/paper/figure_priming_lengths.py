"""Figure 5: primed with the longest length only, with all lengths, and with even lengths only."""

from typing import Any

import numpy as np

from lengthwise.data import Priming, all_lengths, even_lengths, one_length
from lengthwise.paper.artefact import MARGIN, Artefact, Claim, Grid, Results, ScaleName, Setting, artefact
from lengthwise.paper.drawing import BLUE, ORANGE, bars, finish, panels, percent
from lengthwise.paper.figure_finetuning_priming import LONG, PRIMED, SHORT, SMALL_PRODUCTS, multiplication

ONE, ALL, EVEN = "the longest length only", "all lengths", "even lengths only"
MANY = 500


def primings(scale: ScaleName) -> dict[str, Priming]:
    long = LONG[scale]
    return {
        ONE: one_length(long, PRIMED),
        ALL: all_lengths(SHORT + 1, long, MANY),
        EVEN: even_lengths(SHORT + 1, long, MANY),
    }


def outside(scale: ScaleName) -> range:
    """The lengths out of domain."""
    return range(SHORT + 1, LONG[scale] + 1)


def means(results: Results, label: str, lengths: list[int] | range) -> list[float]:
    return [results.mean(label, n) for n in lengths]


def even_and_odd(results: Results) -> tuple[float, float]:
    """Mean accuracy over even and over odd lengths out of domain, primed with even ones."""
    halves = ([n for n in outside(results.scale) if n % 2 == odd] for odd in (0, 1))
    even, odd = (float(np.mean(means(results, EVEN, half))) for half in halves)
    return even, odd


@artefact("figure-priming-lengths", "§5, Figure 5", "Multiplication: priming for all lengths")
class FigurePrimingLengths(Artefact):
    notes = (
        "The distribution of priming lengths is only a picture in the paper; here it grows linearly with the length.",
        "How many examples of even lengths are primed isn't said: 500, as for all lengths.",
        SMALL_PRODUCTS,
    )
    claims = (
        Claim(
            "primed with the longest length only, no other is learned (at most 10 % on average over the others)",
            lambda results: (
                results.mean(ONE, LONG[results.scale]) > 0.1 + MARGIN
                and float(np.mean(means(results, ONE, outside(results.scale)[:-1]))) <= 0.1
            ),
        ),
        Claim(
            "primed with all lengths, accuracy is over 95 % at every length",
            lambda results: min(means(results, ALL, outside(results.scale))) > 0.95,
        ),
        Claim(
            "primed with all lengths, the worst length is better than when primed with the longest only",
            lambda results: (
                min(means(results, ALL, outside(results.scale)))
                > min(means(results, ONE, outside(results.scale))) + MARGIN
            ),
        ),
        Claim(
            "primed with even lengths only, even lengths are better than odd ones",
            lambda results: even_and_odd(results)[0] > even_and_odd(results)[1] + MARGIN,
        ),
        Claim(
            "primed with even lengths only, there is no overspill to odd ones (at most 10 % on average)",
            lambda results: even_and_odd(results)[0] > 0.1 + MARGIN and even_and_odd(results)[1] <= 0.1,
        ),
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {label: multiplication(scale, priming) for label, priming in primings(scale).items()}

    def grids(self, results: Results) -> dict[str, Grid]:
        long = LONG[results.scale]
        lengths = [n for n in (SHORT, *outside(results.scale)) if long <= 10 or n in (5, 6, 7) or n % 5 == 0 or n > 33]
        rows = {label: [(results.exact_match(label, n), None) for n in lengths] for label in primings(results.scale)}
        return {"Exact match (%) by number of digits, by what is primed": Grid([f"{n}" for n in lengths], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        known = primings(results.scale)
        axes = panels(
            figure, f"primed with {ONE}", f"primed with {ALL}", "priming lengths of (b)", f"primed with {EVEN}"
        )
        for axis, label in ((axes[0], ONE), (axes[1], ALL), (axes[3], EVEN)):
            seen = dict(known[label])
            accuracies = {n: results.exact_match(label, n) for n in (SHORT, *outside(results.scale))}
            kinds = {
                "trained on": ({SHORT}, "0.6"),
                "primed": (set(seen), BLUE),
                "never seen": (set(outside(results.scale)) - set(seen), ORANGE),
            }
            for kind, (lengths, colour) in kinds.items():
                bars(axis, {n: seeds for n, seeds in accuracies.items() if n in lengths}, kind, colour)
            percent(axis)
        bars(axes[2], {n: [count] for n, count in known[ALL]}, "primed", BLUE, factor=1)
        axes[2].set_ylabel("primed examples")
        for axis in axes:
            axis.set(xlabel="digits of the first operand", xlim=(SHORT - 0.7, LONG[results.scale] + 0.7))
            axis.locator_params(axis="x", integer=True)
        finish(figure)
