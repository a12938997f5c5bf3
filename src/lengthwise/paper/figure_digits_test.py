"""Figure 11: the accuracy of each digit on long test examples, by priming rate."""

from typing import Any

from lengthwise.paper.artefact import Artefact, Results, ScaleName, Setting, artefact
from lengthwise.paper.drawing import finish, panels
from lengthwise.paper.figure_digit_curves import POSITION, draw_digits, on_test
from lengthwise.paper.figure_finetuning_priming import LONG, SECOND, SMALL_PRODUCTS, primed, with_priming

COUNTS: dict[ScaleName, tuple[int, ...]] = {"smoke": (5, 50), "cpu": (5, 10, 25, 50), "paper": (5, 10, 20, 50)}


@artefact("figure-digits-test", "A.5, Figure 11", "Multiplication: each digit on long test examples, by priming")
class FigureDigitsTest(Artefact):
    notes = (
        "Neither the caption nor the text says more than the title; test examples are read as those of the long length."
        " The numbers of primed examples come from the labels of the panels in the paper's source.",
        "The appendix announces the order of digits for relative and absolute embeddings here; the panels name priming"
        " rates only, so all are relative-key.",
        SMALL_PRODUCTS,
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {with_priming(count): primed(scale, count) for count in COUNTS[scale]}

    def draw(self, results: Results, figure: Any) -> None:
        long = LONG[results.scale]
        axes = panels(figure, *(f"{count} primed examples" for count in COUNTS[results.scale]))
        for axis, count in zip(axes, COUNTS[results.scale], strict=True):
            draw_digits(axis, on_test(results, with_priming(count), long), long + SECOND[results.scale])
        finish(figure, POSITION)
