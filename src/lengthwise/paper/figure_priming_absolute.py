"""Figure 9: absolute embeddings can be primed, too, with ten times as many examples."""

from typing import Any

from lengthwise.data import one_length
from lengthwise.paper.artefact import MARGIN, Artefact, Claim, Grid, Results, ScaleName, Setting, artefact
from lengthwise.paper.drawing import BLUE, RED, finish, learning_curve, panels, percent
from lengthwise.paper.figure_digit_curves import POSITION, draw_digits, learned_together, on_test
from lengthwise.paper.figure_finetuning_priming import (
    LONG,
    SECOND,
    SHORT,
    SMALL_PRODUCTS,
    multiplication,
    short_comes_first,
)

UNPRIMED, PRIMED = "APE, not primed", "APE, primed with 500"


@artefact("figure-priming-absolute", "A.3, Figure 9", "Multiplication with absolute embeddings: priming")
class FigurePrimingAbsolute(Artefact):
    notes = (
        "ε = 10 % of the training set, 500 examples, is primed. Digit curves are on fresh problems of 5 digits, see"
        " Figure 7.",
        SMALL_PRODUCTS,
    )
    claims = (
        Claim(
            "priming makes absolute embeddings generalise to the long length",
            lambda results: (
                results.mean(PRIMED, LONG[results.scale]) > results.mean(UNPRIMED, LONG[results.scale]) + MARGIN
            ),
        ),
        Claim(
            "the primed model reaches 95 % at the long length",
            lambda results: results.mean(PRIMED, LONG[results.scale]) >= 0.95,
        ),
        Claim(
            "5 digits are learned first and the long length follows",
            lambda results: short_comes_first(results, PRIMED),
        ),
        Claim(
            "digits are learned each on its own without priming, and together with it",
            lambda results: learned_together(results, PRIMED, UNPRIMED),
        ),
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {
            UNPRIMED: multiplication(scale, embedding="APE"),
            PRIMED: multiplication(scale, one_length(LONG[scale], 500), embedding="APE"),
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        long = LONG[results.scale]
        columns = [f"{SHORT}", f"{long}" if results.scale == "paper" else f"{long} (published: {LONG['paper']})"]
        rows = {
            run: [(results.exact_match(run, SHORT), None), (results.exact_match(run, long), published)]
            for run, published in ((UNPRIMED, None), (PRIMED, 95))
        }
        return {"Exact match (%) by number of digits": Grid(columns, rows)}

    def draw(self, results: Results, figure: Any) -> None:
        axes = panels(figure, "primed: accuracy", "not primed: digits", "primed: digits", columns=3)
        for length, colour in ((SHORT, BLUE), (LONG[results.scale], RED)):
            learning_curve(axes[0], results, PRIMED, length, f"{length} digits", colour)
        percent(axes[0])
        for axis, run in zip(axes[1:], (UNPRIMED, PRIMED), strict=True):
            draw_digits(axis, on_test(results, run, SHORT), SHORT + SECOND[results.scale])
        finish(figure, POSITION, keep=axes[:1])
