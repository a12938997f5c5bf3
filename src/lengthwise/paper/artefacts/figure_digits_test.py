"""Figure 11: the accuracy of each digit on long test examples, by priming rate."""

from typing import Any

from lengthwise.paper.artefact import Artefact, artefact
from lengthwise.paper.drawing import POSITION, draw_digits, finish, panels
from lengthwise.paper.experiments import (
    PRODUCTS_NOTE,
    SECOND,
    long_length,
    primed_label,
    primed_products,
)
from lengthwise.paper.learning import tested_digit_curves
from lengthwise.paper.results import Results
from lengthwise.paper.scales import Overrides, ScaleName

COUNTS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (5, 50),
    "cpu": (10, 25, 50, 100),
    "paper": (5, 10, 20, 50),
}


@artefact(
    "figure-digits-test", "A.5, Figure 11", "Multiplication: each digit on long tests, by priming"
)
class FigureDigitsTest(Artefact):
    notes = (
        "Neither the caption nor the text says more than the title. Test examples are read as"
        " those of the long length. The numbers of primed examples come from the labels of the"
        " panels in the paper's source; at cpu scale they are those of Figure 4a.",
        "The appendix announces the order of digits for relative and absolute embeddings here. The"
        " panels name priming rates only, so all are relative-key.",
        PRODUCTS_NOTE,
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {primed_label(count): primed_products(scale, count) for count in COUNTS[scale]}

    def draw(self, results: Results, figure: Any) -> None:
        counts, long = COUNTS[results.scale], long_length(results.scale)
        axes = panels(figure, *(f"{count} primed examples" for count in counts))
        for axis, count in zip(axes, counts, strict=True):
            curves = tested_digit_curves(results, primed_label(count), long)
            draw_digits(axis, curves, long + SECOND[results.scale])
        finish(figure, POSITION)
