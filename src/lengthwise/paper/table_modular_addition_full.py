"""Appendix A.1: modular addition for four moduli, three position embeddings and two sizes."""

from lengthwise.paper.artefact import Claim, Results, ScaleName, Setting, Table, artefact, every, some
from lengthwise.paper.scales import EMBEDDINGS
from lengthwise.paper.table_modular_addition import EASY, ORDER_NOTE, modular

HARD = (128, 101)


def extrapolates(results: Results, run: str) -> bool:
    return results.beyond(run, TableModularAdditionFull.lengths[results.scale][1]) >= 0.5


def hard_is_not_learnt(results: Results, size: str) -> bool:
    """Less than half right in domain, with every embedding."""
    return every(lambda c, pe: results.mean(f"c={c} {pe} {size}", 5) < 0.5, HARD, EMBEDDINGS)


@artefact("table-modular-addition-full", "A.1, full modular addition", "Modular addition, c = 100, 1000, 128 and 101")
class TableModularAdditionFull(Table):
    lengths = {"smoke": (5, 6, 7, 8, 8), "cpu": (5, 6, 7, 8, 10), "paper": (5, 10, 20, 30, 35)}
    published = {f"c={c} {pe} {size}": (None,) * 5 for c in EASY + HARD for pe in EMBEDDINGS for size in "BL"}
    claims = (
        Claim(
            "models manage to extrapolate when the modulus is a power of 10"
            " (some Base model has at least half right at the second length)",
            lambda results: every(lambda c: some(lambda pe: extrapolates(results, f"c={c} {pe} B"), EMBEDDINGS), EASY),
        ),
        Claim(
            "c = 128 and 101: no Base model learns 5-digit modular addition in domain (less than half right)",
            lambda results: hard_is_not_learnt(results, "B"),
        ),
        Claim(
            "c = 128 and 101: larger models bring no improvement, they don't learn it either",
            lambda results: hard_is_not_learnt(results, "L"),
        ),
    )
    notes = (
        "The printed table repeats that of modular multiplication digit for digit, columns included, and its 99.1 % in"
        " domain for c = 101 contradicts the text (no model learns modular addition with c = 101 or 128), as its"
        " rows for c = 100 and 1000 contradict Table 2a. So no number here counts as published.",
        ORDER_NOTE,
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        digits = self.lengths[scale][-1]
        return {
            f"c={c} {pe} {size}": modular(scale, "addition", c, pe, size, digits)
            for c in EASY + HARD
            for pe in EMBEDDINGS
            for size in "BL"
        }
