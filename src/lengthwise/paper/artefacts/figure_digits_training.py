"""Figure 10: the accuracy of each digit on training examples, by priming rate."""

from typing import Any

from lengthwise.paper.artefact import Artefact, artefact
from lengthwise.paper.drawing import POSITION, draw_digits, finish, panels
from lengthwise.paper.experiments import PRODUCTS_NOTE, SECOND, primed_label, primed_products
from lengthwise.paper.learning import training_digit_curves
from lengthwise.paper.results import Results
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName

COUNTS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (5, 50),
    "cpu": (10, 25, 50, 100),
    "paper": (5, 10, 15, 20, 50),
}


@artefact(
    "figure-digits-training",
    "A.4, Figure 10",
    "Multiplication: each digit on training examples, by priming",
)
class FigureDigitsTraining(Artefact):
    notes = (
        "Neither the caption nor the text says more than the title. The numbers of primed examples"
        " (5, 10, 15, 20, 50) come from the labels of the panels in the paper's source; at cpu"
        " scale they are those of Figure 4a.",
        "Training examples are the unprimed ones. Where their lengths are uniform (smoke, cpu),"
        " the last positions are mostly padding, which is learned at once.",
        PRODUCTS_NOTE,
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {primed_label(count): primed_products(scale, count) for count in COUNTS[scale]}

    def draw(self, results: Results, figure: Any) -> None:
        counts, digits = COUNTS[results.scale], TRAIN_DIGITS + SECOND[results.scale]
        axes = panels(figure, *(f"{count} primed examples" for count in counts), columns=3)
        for axis, count in zip(axes, counts, strict=True):
            draw_digits(axis, training_digit_curves(results, primed_label(count), digits), digits)
        finish(figure, POSITION)
