"""Beyond the paper: why 20 digits fail: they leave no padding in a layout with room for 20."""

from typing import Any

import numpy as np

from lengthwise.paper.artefact import Artefact, Claim, Grid, accuracy_grid, artefact
from lengthwise.paper.drawing import BLUE, POSITION, RED, finish, line, panels, percent
from lengthwise.paper.experiments import addition, roomy_addition
from lengthwise.paper.published import table
from lengthwise.paper.results import Record, Results, final_digits
from lengthwise.paper.scales import SMOKE_LENGTHS, Overrides, ScaleName
from lengthwise.paper.verdicts import greater, less

FULL = 20  # digits, n_test of the paper's sums
PAPER, ROOMY = "n_test 20", "n_test 25"
LENGTHS = (5, 10, 15, 18, 19, FULL)
EDGE = 2  # symbols at the end of the answer of a sum that fills its layout


def published_falls() -> tuple[int, int]:
    """Published rows that solve 80 % five digits before n_test, and those that halve at n_test."""
    names = ("addition", "modular-addition", "modular-multiplication-full", "elementwise")
    ends = [row[-2:] for name in names for row in table(name).rows.values()]
    solved = [(before, full) for before, full in ends if before >= 80]
    return len(solved), sum(full < before / 2 for before, full in solved)


def edge_digits(record: Record) -> float | None:
    """The accuracy of the last symbols of an answer."""
    digits = final_digits(record, FULL)
    return None if digits is None else float(np.mean(digits[-EDGE:]))


def inner_digits(record: Record) -> float | None:
    """The accuracy of the symbols between the first and the last ones."""
    digits = final_digits(record, FULL)
    return None if digits is None else float(np.mean(digits[1:-EDGE]))


@artefact("beyond-room", "Beyond the paper", "Addition: sums that fill their layout")
class BeyondRoom(Artefact):
    claims = (
        Claim(
            "in a layout with room for 20 digits, sums of 20 digits fail at their end: the last"
            " two symbols of the answer are worse than those between",
            lambda results: less(
                results.measure(PAPER, edge_digits, "last two symbols"),
                results.measure(PAPER, inner_digits, "symbols between"),
            ),
        ),
        Claim(
            "with room for 25 digits, the same models solve more sums of 20 digits",
            lambda results: greater(results.accuracy(ROOMY, FULL), results.accuracy(PAPER, FULL)),
        ),
    )
    notes = (
        "n_test is 20 in the paper, so an operand of 20 digits has no padding behind it. Training"
        " always shows padding there: a digit is never followed by the operator, and the token of"
        " the operator never holds a digit of the answer. Nothing else differs between the two"
        " conditions; both are trained on 1 to 5 digits.",
        "The paper's own tables show the same edge: of {} rows with at least 80 % five digits"
        " before n_test, {} lose more than half of it at n_test. Sums modulo 1000 with"
        " relative-key have 100 % at 15 digits and 15.2 % at 20.".format(*published_falls()),
        "An answer has 21 symbols. The last is padding where the sum has 20 digits.",
        "One trial with room for 25 digits (seed 100) was looked at before this was written.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {PAPER: addition(scale, "RPE_k", size="B"), ROOMY: roomy_addition(scale)}

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = SMOKE_LENGTHS if results.scale == "smoke" else LENGTHS
        labels = list(self.conditions(results.scale))
        return {"Exact match (%) by number of digits": accuracy_grid(results, labels, lengths)}

    def draw(self, results: Results, figure: Any) -> None:
        axes = panels(figure, "by number of digits", f"each digit of {FULL}-digit sums")
        for label, colour in ((PAPER, RED), (ROOMY, BLUE)):
            records = list(results.of(label).values())
            tested = sorted({a["length"] for record in records for a in record["evaluation"]})
            line(axes[0], {n: results.exact_match(label, n) for n in tested}, label, colour)
            digits = [found for r in records if (found := final_digits(r, FULL)) is not None]
            by_position = dict(enumerate(zip(*digits, strict=True), start=1))
            line(axes[1], by_position, label, colour)
        axes[0].set(xlabel="digits")
        percent(axes[0])
        axes[1].set(xlabel=POSITION)
        percent(axes[1], "accuracy of the digit (%)")
        for axis in axes:
            axis.locator_params(axis="x", integer=True)
        finish(figure)
