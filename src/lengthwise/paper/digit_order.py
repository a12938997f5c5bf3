"""Two orders of digits in modular arithmetic (§4): only with the least significant first do models generalise."""

from itertools import product
from typing import Any

from lengthwise.paper.artefact import TRAINED, Claim, Results, ScaleName, Setting, Table, artefact
from lengthwise.paper.drawing import COLOURS, finish, line, panels, percent
from lengthwise.paper.scales import EMBEDDINGS
from lengthwise.paper.table_modular_addition import TableModularAddition, third
from lengthwise.paper.table_modular_multiplication import TableModularMultiplication

TABLES: dict[str, Table] = {"sums": TableModularAddition(), "products": TableModularMultiplication()}
ORDERS = {"most": "most-significant-first", "least": "least-significant-first"}
STYLES = {"least": "-", "most": "--"}


def label(what: str, embedding: str, first: str) -> str:
    return f"{what}, {embedding}, {first} significant first"


def order_decides(what: str) -> Claim:
    def holds(results: Results) -> bool:
        most, least = (label(what, "APE", first) for first in ORDERS)
        return results.beyond(most, 6) <= 0.1 and results.beyond(least, third(results)) >= 0.5

    return Claim(
        f"models with absolute embeddings generalise in {what} modulo 100 if the least significant digit is written"
        " first (at least half right at the third length), and not if the most significant is (at most 10 % at 6)",
        holds,
    )


@artefact("digit-order", "§4, two readings", "Modulo 100: which digit is written first")
class DigitOrder(Table):
    lengths = TableModularAddition.lengths
    published = {label(what, pe, first): (None,) * 5 for what in TABLES for pe in EMBEDDINGS for first in ORDERS}
    claims = tuple(order_decides(what) for what in TABLES)
    notes = (
        "Section 2 writes the most significant digit first and padding last. So the last digits of a number, which"
        " alone matter modulo 100, have other places for every length, and those of 6 digits have places where an"
        " absolute embedding has never seen a digit. Yet Table 2a has 99.5 % at 6 (c = 100, APE), and 21.3 % at 20."
        " With the least significant digit first, they always have the same places, and more digits only disturb.",
        "The paper doesn't compare the two. At smoke and cpu scale, Table 2 is run with the least significant digit"
        " first; at paper scale as the text has it.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {
            label(what, pe, first): {**table.settings(scale)[f"c=100 {pe}"], "layout.order": order}
            for what, table in TABLES.items()
            for pe in EMBEDDINGS
            for first, order in ORDERS.items()
        }

    def draw(self, results: Results, figure: Any) -> None:
        for axis, what in zip(panels(figure, *(f"{what} modulo 100" for what in TABLES)), TABLES, strict=True):
            for (pe, colour), (first, style) in product(zip(EMBEDDINGS, COLOURS, strict=False), STYLES.items()):
                run = label(what, pe, first)
                points = {n: results.exact_match(run, n) for n in range(TRAINED, self.lengths[results.scale][-1] + 1)}
                line(axis, points, f"{pe}, {first} significant first", colour, style=style)
            axis.set_xlabel("digits")
            percent(axis)
        finish(figure)
