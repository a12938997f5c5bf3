"""Figure 9: absolute embeddings can be primed, too, with ten times as many examples."""

from typing import Any

from lengthwise.paper.artefact import Artefact, Claim, Grid, artefact
from lengthwise.paper.drawing import (
    BLUE,
    POSITION,
    RED,
    draw_digits,
    finish,
    learning_curve,
    panels,
    percent,
)
from lengthwise.paper.experiments import (
    BY_ONE_DIGIT,
    LEVEL,
    LONG,
    PRIMED,
    PRODUCTS_NOTE,
    SECOND,
    long_length,
    primed_products,
    products,
)
from lengthwise.paper.learning import digit_gap, short_before_long, tested_digit_curves
from lengthwise.paper.published import statement, within_a_point
from lengthwise.paper.results import Results
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import all_of, at_least, greater, less

MANY = int(statement("priming rate of absolute embeddings")) * PRIMED
WITHOUT, WITH_FEW, WITH_MANY = (
    "APE, not primed",
    f"APE, primed with {PRIMED}",
    f"APE, primed with {MANY}",
)
RELATIVE = f"RPE_k, primed with {PRIMED}"
PUBLISHED = statement("absolute embeddings primed at 35 digits")


@artefact(
    "figure-priming-absolute", "A.3, Figure 9", "Multiplication with absolute embeddings: priming"
)
class FigurePrimingAbsolute(Artefact):
    difference = BY_ONE_DIGIT
    notes = (
        f"ε = 10 % of the training set, {MANY} examples, is primed. {PRIMED} are the 1 % that"
        " suffice for relative embeddings. Digit curves are on fresh problems of 5 digits, see"
        " Figure 7.",
        PRODUCTS_NOTE,
    )
    claims = (
        Claim(
            f"priming with {MANY} examples makes absolute embeddings generalise to 35 digits",
            lambda results: greater(
                results.accuracy(WITH_MANY, LONG), results.accuracy(WITHOUT, LONG)
            ),
        ),
        Claim(
            f"primed with {MANY} examples, absolute embeddings reach {PUBLISHED:g} % at 35 digits,"
            f" within a point (at least {100 * within_a_point(PUBLISHED):g} %)",
            lambda results: at_least(results.accuracy(WITH_MANY, LONG), within_a_point(PUBLISHED)),
        ),
        Claim(
            "absolute embeddings need ten times the priming: 35 digits are learned"
            f" ({100 * LEVEL:.0f} %) with {MANY} examples and not with {PRIMED}, which suffice for"
            " relative ones",
            lambda results: all_of(
                [
                    at_least(results.accuracy(WITH_MANY, LONG), LEVEL),
                    less(results.accuracy(WITH_FEW, LONG), LEVEL),
                    at_least(results.accuracy(RELATIVE, LONG), LEVEL),
                ]
            ),
        ),
        Claim(
            "5 digits are learned first and 35 digits follow",
            lambda results: greater(short_before_long(results, WITH_MANY, LONG), 0),
        ),
        Claim(
            "digits are learned closer together with priming than without",
            lambda results: less(digit_gap(results, WITH_MANY), digit_gap(results, WITHOUT)),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            WITHOUT: products(scale, embedding="APE"),
            WITH_FEW: primed_products(scale, PRIMED, "APE"),
            WITH_MANY: primed_products(scale, MANY, "APE"),
            RELATIVE: primed_products(scale, PRIMED),
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        long = long_length(results.scale)
        published = {WITH_MANY: PUBLISHED} if results.scale != "smoke" else {}
        rows = {
            run: [results.cell(run, TRAIN_DIGITS), results.cell(run, long, published.get(run))]
            for run in self.conditions(results.scale)
        }
        return {"Exact match (%) by number of digits": Grid([f"{TRAIN_DIGITS}", f"{long}"], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        titles = "primed: accuracy", "not primed: digits", "primed: digits"
        axes = panels(figure, *titles, columns=3)
        for length, colour in ((TRAIN_DIGITS, BLUE), (long_length(results.scale), RED)):
            learning_curve(axes[0], results, WITH_MANY, length, f"{length} digits", colour)
        percent(axes[0])
        for axis, run in zip(axes[1:], (WITHOUT, WITH_MANY), strict=True):
            curves = tested_digit_curves(results, run, TRAIN_DIGITS)
            draw_digits(axis, curves, TRAIN_DIGITS + SECOND[results.scale])
        finish(figure, POSITION, keep=axes[:1])
