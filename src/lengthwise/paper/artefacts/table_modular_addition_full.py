"""Appendix A.1: modular addition for four moduli, three position embeddings and two sizes."""

from itertools import product

from lengthwise.paper.artefact import Claim, Grid, Table, artefact
from lengthwise.paper.artefacts.table_modular_addition import POWERS_OF_TEN, grids_by_order
from lengthwise.paper.experiments import ORDERS, modular_addition
from lengthwise.paper.published import table
from lengthwise.paper.results import Results
from lengthwise.paper.scales import EMBEDDINGS, Overrides, ScaleName
from lengthwise.paper.verdicts import Judgement, all_of, any_of, at_least, at_most, less

OTHER_MODULI = (128, 101)
MODULI = (*POWERS_OF_TEN, *OTHER_MODULI)


def not_learned(results: Results, size: str, order: str) -> Judgement:
    """Less than half right in domain, with every embedding."""
    return all_of(
        less(results.in_domain(f"c={c} {pe} {size}, {order}"), 0.5)
        for c, pe in product(OTHER_MODULI, EMBEDDINGS)
    )


def larger(results: Results, order: str) -> list[Judgement]:
    """Whether Large models are at most 5 points better than Base ones in domain."""
    sizes = {
        (c, pe): [results.in_domain(f"c={c} {pe} {size}, {order}") for size in "LB"]
        for c, pe in product(OTHER_MODULI, EMBEDDINGS)
    }
    return [
        at_most(large, base.map(lambda share: share + 0.05, f"{base.name} and 5 points"))
        for large, base in sizes.values()
    ]


def claims_for(order: str) -> list[Claim]:
    """The text's claims, for one order of digits."""
    return [
        Claim(
            "models extrapolate when the modulus is a power of 10 (some Base model has at least"
            f" half right at 10 digits); {order}",
            lambda results: all_of(
                any_of(
                    at_least(results.accuracy(f"c={c} {pe} B, {order}", 10), 0.5)
                    for pe in EMBEDDINGS
                )
                for c in POWERS_OF_TEN
            ),
        ),
        Claim(
            "c = 128 and 101: no Base model learns 5-digit modular addition in domain (less than"
            f" half right); {order}",
            lambda results: not_learned(results, "B", order),
        ),
        Claim(
            "c = 128 and 101: larger models bring no improvement in domain (at most 5 points over"
            f" Base), they don't learn it either; {order}",
            lambda results: all_of([not_learned(results, "L", order), *larger(results, order)]),
        ),
    ]


@artefact(
    "table-modular-addition-full",
    "A.1, full modular addition",
    "Modular addition, c = 100, 1000, 128 and 101",
)
class TableModularAdditionFull(Table):
    lengths = table("modular-addition").lengths
    claims = tuple(claim for order in ORDERS for claim in claims_for(order))
    notes = (
        "The printed table repeats that of modular multiplication digit for digit, columns"
        " included. Its 99.1 % in domain for c = 101 contradicts the text (no model learns modular"
        " addition with c = 101 or 128), and its rows for c = 100 and 1000 contradict Table 2a. No"
        " number counts as published here, and the lengths are those of Table 2a, whose complete"
        " version it is.",
        "The text's larger architectures have up to 14 layers and 1280 dimensions. The table's are"
        " Base and Large.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            f"c={c} {pe} {size}, {order}": modular_addition(scale, c, pe, size, order)
            for order, c, pe, size in product(ORDERS, MODULI, EMBEDDINGS, "BL")
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        return grids_by_order(self, results)
