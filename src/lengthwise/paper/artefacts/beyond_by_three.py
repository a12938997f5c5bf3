"""Beyond the paper: 5 × 3 learned in a small layout, then primed for 35 × 3 in a large one."""

from typing import Any

import numpy as np

from lengthwise.paper.artefact import Artefact, Claim, Grid, accuracy_grid, artefact
from lengthwise.paper.drawing import BLUE, GREEN, RED, finish, learning_curve, line, panels, percent
from lengthwise.paper.experiments import LONG, PRIMED, long_length, room, tested_lengths
from lengthwise.paper.results import Cell, Record, Results, final_digits
from lengthwise.paper.scales import (
    TRAIN_DIGITS,
    Overrides,
    ScaleName,
    base_keys,
    with_budget,
)
from lengthwise.paper.verdicts import Measurement, at_least, at_most
from lengthwise.problems.priming import Priming, one_length

SMALL_ROOM, CLIP = 8, 4  # digits of the small layout; tokens
EVEN = f"room for {SMALL_ROOM} digits, lengths drawn evenly"
FULL = f"room for {SMALL_ROOM} digits, then half of full length"
WITHOUT, WITH_PRIMING = f"room for {LONG}, not primed", f"room for {LONG}, primed with {PRIMED}"


def small_products(scale: ScaleName) -> Overrides:
    """Products of up to 5 × 3 digits in a layout of a dozen tokens."""
    layout = {"kind": "compact", "order": "least-significant-first"}
    seldom = {"evaluation.every": 2500, "evaluation.examples": 500} if scale == "cpu" else {}
    return {
        **base_keys(scale, "products-in-two-layouts"),
        "task.kind": "multiplication",
        "task.second_digits": 3,
        "layout": layout,
        "model.position.clip": CLIP,
        "data.test_digits": room(scale, SMALL_ROOM),
        "evaluation.lengths": tested_lengths(scale, 5, 6, 8),
        **seldom,
    }


def full_products(scale: ScaleName) -> Overrides:
    """The same model, trained further with more of the longest problems."""
    keys = {
        **small_products(scale),
        "data.mixture": {"full-length": 0.5},
        "start_from": EVEN,
    }
    return further(scale, keys, 720_000, 1e-3)


def large_products(scale: ScaleName, priming: Priming) -> Overrides:
    """The same model, trained further in the paper's layout."""
    keys = {
        **full_products(scale),
        "data.test_digits": long_length(scale),
        "data.priming": priming,
        "evaluation.lengths": tested_lengths(scale, 5, 6, 10, 20, 34, 35),
        "start_from": FULL,
    }
    if scale == "cpu":
        keys["evaluation.every"] = 1000
    return further(scale, keys, 224_000, 7e-4)


def further(scale: ScaleName, keys: Overrides, examples: int, rate: float) -> Overrides:
    """The keys with a stage's own budget and learning rate, at cpu scale."""
    if scale != "cpu":
        return keys
    return {**with_budget(keys, {"training.examples": examples}), "training.learning_rate": rate}


def column_accuracy(record: Record, length: int) -> float | None:
    """The accuracy of the digits of an answer in whose columns three products meet."""
    digits = final_digits(record, length)
    return None if digits is None else float(np.mean(digits[2:length]))


def column_cell(results: Results, run: str, length: int) -> Cell:
    shares = (column_accuracy(record, length) for record in results.of(run).values())
    return Cell(tuple(share for share in shares if share is not None))


def columns_at(results: Results, length: int) -> Measurement:
    """The accuracy of those digits in primed models."""
    return results.measure(
        WITH_PRIMING,
        lambda record: column_accuracy(record, length),
        f"digits of {length} × 3 with three products",
    )


@artefact(
    "beyond-by-three", "Beyond the paper", "Multiplication 35 × 3: a small layout, then a large one"
)
class BeyondByThree(Artefact):
    notes = (
        f"A layout with room for 35 × 3 digits has 39 tokens, of which 5 × 3 needs nine. So 5 × 3"
        f" is learned in a layout of {SMALL_ROOM + 4} tokens first. Then the model goes on in the"
        " layout of 39.",
        f"Distances beyond {CLIP} tokens share a vector, as in Shaw et al. (2018), so that the"
        " weights fit both layouts. Numbers are written from the least significant digit, so that"
        " digit i of the answer is read at digit i of the first operand. The answer is one, without"
        " intermediate rows.",
        "Each of the three stages has 5000 first operands of its own. With lengths drawn evenly,"
        " 5 × 3 is one in 15 problems. From the second stage on, half of the problems that are not"
        " primed have full length. The stages were chosen for the accuracy at 5 × 3, after longer"
        " lengths had been seen in a trial.",
    )
    claims = (
        Claim(
            "products of 5 × 3 digits are learned in domain, in a small layout (at least 90 %)",
            lambda results: at_least(results.in_domain(FULL), 0.9),
        ),
        Claim(
            f"{PRIMED} primed examples then carry them to 35 × 3 (at least 90 %)",
            lambda results: at_least(results.accuracy(WITH_PRIMING, LONG), 0.9),
        ),
        Claim(
            f"the rule of a column is the same at every length: digits with three products are"
            f" right as often in {LONG} × 3 as in {TRAIN_DIGITS} × 3, within five points",
            lambda results: at_least(
                columns_at(results, LONG).map(lambda share: share + 0.05),
                columns_at(results, TRAIN_DIGITS),
            ),
        ),
        Claim(
            "without priming, 35 × 3 isn't learned (at most 5 %)",
            lambda results: at_most(results.accuracy(WITHOUT, LONG), 0.05),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            EVEN: small_products(scale),
            FULL: full_products(scale),
            WITHOUT: large_products(scale, ()),
            WITH_PRIMING: large_products(scale, one_length(long_length(scale), PRIMED)),
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = [n for n in (5, 6, 8, 10, 20, 34, 35) if n <= long_length(results.scale)]
        conditions = list(self.conditions(results.scale))
        columns = {run: [column_cell(results, run, n) for n in lengths] for run in conditions}
        return {
            "Exact match (%) by number of digits": accuracy_grid(results, conditions, lengths),
            "Digits with three products that are right (%)": Grid(
                [f"{n}" for n in lengths], columns
            ),
        }

    def draw(self, results: Results, figure: Any) -> None:
        long = long_length(results.scale)
        titles = FULL, WITH_PRIMING, "exact match by length", "digits with three products"
        small, large, exact, columns = panels(figure, *titles)
        curves = {small: (FULL, [5, 6]), large: (WITH_PRIMING, [5, 20, 35])}
        for axis, (run, lengths) in curves.items():
            for n, colour in zip(lengths, (BLUE, GREEN, RED), strict=False):
                if n <= long:
                    learning_curve(axis, results, run, n, f"{n} × 3 digits", colour)
            percent(axis)
        for run, colour in ((WITHOUT, RED), (WITH_PRIMING, BLUE)):
            tested = range(TRAIN_DIGITS, long + 1)
            line(exact, {n: results.exact_match(run, n) for n in tested}, run, colour)
            cells = {n: column_cell(results, run, n) for n in tested}
            line(columns, {n: cell.shares for n, cell in cells.items()}, run, colour)
        for axis, label in ((exact, "exact match (%)"), (columns, "right (%)")):
            percent(axis, label)
            axis.set_xlabel("digits of the first operand")
        finish(figure, keep=[small, large, exact, columns])
