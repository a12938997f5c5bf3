"""Two orders of digits modulo 100 (§4): which one lets absolute embeddings generalise?"""

from itertools import product
from typing import Any

from lengthwise.paper.artefact import Claim, Table, artefact
from lengthwise.paper.drawing import COLOURS, finish, line, panels, percent
from lengthwise.paper.experiments import ORDERS, modular_addition, modular_multiplication, room
from lengthwise.paper.results import Results
from lengthwise.paper.scales import EMBEDDINGS, TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import Judgement, all_of, at_least, at_most

OPERATIONS = {"sums": (modular_addition, 20), "products": (modular_multiplication, 35)}
MOST_FIRST, LEAST_FIRST = ORDERS
STYLES = {LEAST_FIRST: "-", MOST_FIRST: "--"}


def label(operation: str, embedding: str, order: str) -> str:
    return f"{operation}, {embedding}, {order}"


def order_decides(operation: str) -> Claim:
    def judge(results: Results) -> Judgement:
        least, most = (label(operation, "APE", order) for order in (LEAST_FIRST, MOST_FIRST))
        generalises = at_least(results.accuracy(least, 10), 0.5)
        return all_of([generalises, at_most(results.accuracy(most, 10), 0.1)])

    return Claim(
        f"models with absolute embeddings generalise in {operation} modulo 100 with the least"
        " significant digit first (at least half right at 10 digits), and not with the most"
        " significant first (at most 10 %)",
        judge,
    )


@artefact("digit-order", "§4, two orders of digits", "Modulo 100: which digit is written first")
class DigitOrder(Table):
    lengths = (5, 6, 10, 15, 20)
    claims = tuple(map(order_decides, OPERATIONS))
    notes = (
        "Section 2 writes the most significant digit first and padding last. So the last digits of"
        " a number, which alone matter modulo 100, stand elsewhere for every length, and the last"
        " of 6 stands where an absolute embedding has never seen a digit. Yet Table 2a has 99.5 %"
        " at 6 (c = 100, APE), and less and less up to 21.3 % at 20. With the least significant"
        " digit first (or padding first, which isn't tried here), the digits that matter always"
        " have the same places, and more digits only disturb.",
        "The paper has one order and doesn't compare, so nothing here is published.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            label(operation, pe, order): experiment(scale, 100, pe, "B", order)
            for (operation, (experiment, _)), pe, order in product(
                OPERATIONS.items(), EMBEDDINGS, ORDERS
            )
        }

    def draw(self, results: Results, figure: Any) -> None:
        axes = panels(figure, *(f"{operation} modulo 100" for operation in OPERATIONS))
        for axis, (operation, (_, digits)) in zip(axes, OPERATIONS.items(), strict=True):
            lengths = range(TRAIN_DIGITS, room(results.scale, digits) + 1)
            colours = zip(EMBEDDINGS, COLOURS, strict=False)
            for (pe, colour), (order, style) in product(colours, STYLES.items()):
                run = label(operation, pe, order)
                points = {n: results.exact_match(run, n) for n in lengths}
                line(axis, points, f"{pe}, {order}", colour, style=style)
            axis.set_xlabel("digits")
            percent(axis)
        finish(figure)
