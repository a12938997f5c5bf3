"""Figure 10: the accuracy of each digit on training examples, by priming rate."""

from typing import Any

from lengthwise.paper.artefact import Artefact, Results, ScaleName, Setting, artefact
from lengthwise.paper.drawing import finish, panels
from lengthwise.paper.figure_digit_curves import POSITION, draw_digits, on_training
from lengthwise.paper.figure_finetuning_priming import SECOND, SHORT, SMALL_PRODUCTS, primed, with_priming

COUNTS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (5, 50),
    "cpu": (5, 10, 25, 50, 100),
    "paper": (5, 10, 15, 20, 50),
}


@artefact("figure-digits-training", "A.4, Figure 10", "Multiplication: each digit on training examples, by priming")
class FigureDigitsTraining(Artefact):
    notes = (
        "Neither the caption nor the text says more than the title. The numbers of primed examples (5, 10, 15, 20,"
        " 50) come from the labels of the panels in the paper's source; at cpu scale they are those of Figure 4a.",
        "Training examples are those of usual length. Where their lengths are uniform (smoke, cpu), the last positions"
        " are mostly padding, which is learned at once.",
        SMALL_PRODUCTS,
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {with_priming(count): primed(scale, count) for count in COUNTS[scale]}

    def draw(self, results: Results, figure: Any) -> None:
        digits = SHORT + SECOND[results.scale]
        axes = panels(figure, *(f"{count} primed examples" for count in COUNTS[results.scale]), columns=3)
        for axis, count in zip(axes, COUNTS[results.scale], strict=True):
            draw_digits(axis, on_training(results, with_priming(count), digits), digits)
        finish(figure, POSITION)
