"""Figure 3b with the paper's own second operands: 5 × 3 primed with 50 products of 35 × 3."""

from typing import Any

from lengthwise.paper.artefact import Artefact, Claim, Grid, Headline, accuracy_grid, artefact
from lengthwise.paper.drawing import BLUE, RED, finish, learning_curve, panels, percent
from lengthwise.paper.experiments import LONG, PRIMED, long_length, products
from lengthwise.paper.published import statement
from lengthwise.paper.results import Results
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import at_least, at_most
from lengthwise.problems.priming import one_length

WITHOUT, WITH_PRIMING = "by 3 digits, not primed", f"by 3 digits, primed with {PRIMED}"


@artefact("figure-priming-by-three", "§5, Figure 3b, by 3 digits", "Multiplication 35 × 3: priming")
class FigurePrimingByThree(Artefact):
    notes = (
        "At cpu scale the other figures about priming have products by one digit. These have"
        " three, as in the paper, in one answer and without intermediate rows. At paper scale the"
        " runs are those of Figure 3.",
    )
    claims = (
        Claim(
            "products of 5 × 3 digits are learned in domain (at least 90 %, with priming)",
            lambda results: at_least(results.in_domain(WITH_PRIMING), 0.9),
        ),
        Claim(
            "50 primed examples carry products from 5 × 3 to 35 × 3 digits (at least 90 %)",
            lambda results: at_least(results.accuracy(WITH_PRIMING, LONG), 0.9),
            Headline(
                "50 primed examples carry products from 5 × 3 digits to 35 × 3",
                [LONG],
                [WITH_PRIMING],
                f"close to {statement('primed multiplication'):g} %",
            ),
        ),
        Claim(
            "without priming, 35 × 3 isn't learned (at most 5 %)",
            lambda results: at_most(results.accuracy(WITHOUT, LONG), 0.05),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        priming = one_length(long_length(scale), PRIMED)
        return {
            WITHOUT: products(scale, 3),
            WITH_PRIMING: products(scale, 3, priming=priming),
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = [n for n in (5, 6, 10, 20, 34, 35) if n <= long_length(results.scale)]
        conditions = list(self.conditions(results.scale))
        return {"Exact match (%) by number of digits": accuracy_grid(results, conditions, lengths)}

    def draw(self, results: Results, figure: Any) -> None:
        titles = {"not primed": WITHOUT, f"primed with {PRIMED}": WITH_PRIMING}
        for axis, run in zip(panels(figure, *titles), titles.values(), strict=True):
            for length, colour in ((TRAIN_DIGITS, BLUE), (long_length(results.scale), RED)):
                learning_curve(axis, results, run, length, f"{length} × 3 digits", colour)
            percent(axis)
        finish(figure)
