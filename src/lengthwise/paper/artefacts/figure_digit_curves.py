"""Figure 7: whether a model learns the digits of an answer one at a time or all at once."""

from typing import Any

from lengthwise.paper.artefact import Artefact, Claim, artefact
from lengthwise.paper.drawing import POSITION, draw_digits, finish, panels
from lengthwise.paper.experiments import (
    PRIMED,
    PRODUCTS_NOTE,
    SECOND,
    UNPRIMED,
    addition,
    primed_label,
    primed_products,
    products,
)
from lengthwise.paper.learning import digit_gap, lead_of_outer_digits, tested_digit_curves
from lengthwise.paper.results import Results
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import greater, less

ABSOLUTE, RELATIVE = "addition, APE", "addition, RPE_k"
WITH_PRIMING = primed_label(PRIMED)


@artefact("figure-digit-curves", "§6, Figure 7", "Learning curves digit by digit")
class FigureDigitCurves(Artefact):
    notes = (
        "The caption says training accuracy, and the text speaks of 5-digit problems. Accuracy is"
        " on fresh problems of exactly 5 digits: on training examples, most of which are shorter"
        " where lengths are uniform, the last positions are mostly padding. Figure 10 shows"
        " training examples.",
        "Digits are numbered from the left. 6 is the units of a sum only if the sum has six digits;"
        " otherwise it is padding.",
        "The text refers to Figure 7a twice, for absolute and for relative embeddings; the second"
        " is read as 7b.",
        "The text has unprimed 5 × 3 multiplication learned over 1000 epochs (5 million examples)"
        " here, and after a few hundred thousand examples in §5.2, with priming.",
        "How far apart a model learns digits is the largest difference between their accuracies at"
        " one time, without the first and the last digit.",
        PRODUCTS_NOTE,
    )
    claims = (
        Claim(
            "in sums, relative-key models learn the inner digits closer together than absolute"
            " ones",
            lambda results: less(digit_gap(results, RELATIVE), digit_gap(results, ABSOLUTE)),
        ),
        Claim(
            "relative-key models learn the first and the last digit of sums before the others",
            lambda results: greater(lead_of_outer_digits(results, RELATIVE), 0),
        ),
        Claim(
            "in products (at cpu scale by one digit, not three), digits are learned closer together"
            " with priming than without",
            lambda results: less(digit_gap(results, WITH_PRIMING), digit_gap(results, UNPRIMED)),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            ABSOLUTE: addition(scale, "APE"),
            RELATIVE: addition(scale, "RPE_k"),
            UNPRIMED: products(scale),
            WITH_PRIMING: primed_products(scale, PRIMED),
        }

    def draw(self, results: Results, figure: Any) -> None:
        titles = (
            "addition, absolute",
            "addition, relative-key",
            "multiplication, not primed",
            f"multiplication, {PRIMED} primed",
        )
        conditions = self.conditions(results.scale)
        for axis, run in zip(panels(figure, *titles), conditions, strict=True):
            curves = tested_digit_curves(results, run, TRAIN_DIGITS)
            draw_digits(axis, curves, TRAIN_DIGITS + SECOND[results.scale])
        finish(figure, POSITION)
