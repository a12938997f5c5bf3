"""Table 2a: modular addition with moduli that are powers of ten, by position embedding."""

from lengthwise.paper.artefact import MARGIN, Claim, Results, ScaleName, Setting, Table, artefact, every
from lengthwise.paper.scales import EMBEDDINGS, RELATIVE, budget, model, setting
from lengthwise.paper.table_addition import TableAddition, addition

EASY = (100, 1000)  # only the last digits of the operands matter
ORDER_NOTE = "At smoke and cpu scale the least significant digit is written first: §4, two orders of digits, says why."


def third(results: Results) -> int:
    """Well beyond the trained length: 10 digits at paper scale."""
    return TableModularAddition.lengths[results.scale][2]


@artefact("table-modular-addition", "§4, Table 2a", "Modular addition, c = 100 and 1000")
class TableModularAddition(Table):
    lengths = {"smoke": (5, 6, 7, 8, 8), "cpu": (5, 6, 7, 8, 10), "paper": (5, 6, 10, 15, 20)}
    published = {
        "c=100 APE": (100, 99.5, 73.3, 43.4, 21.3),
        "c=100 RPE_k": (100, 100, 86.9, 36.0, 3.4),
        "c=100 RPE_k,q": (100, 100, 100, 99.4, 84.5),
        "c=1000 APE": (100, 90.8, 79.3, 51.8, 14.1),
        "c=1000 RPE_k": (100, 100, 100, 100, 15.2),
        "c=1000 RPE_k,q": (100, 100, 100, 100, 9.8),
        # What the text compares with: the same models in Table 1; 100 % in domain is what its text says.
        **{f"no modulus {pe}": (100, *TableAddition.published[f"UTransformer {pe} B"]) for pe in EMBEDDINGS},
    }
    claims = (
        Claim(
            "models with relative embeddings generalise (at least half right at the third length), for both moduli",
            lambda results: every(lambda c, pe: results.beyond(f"c={c} {pe}", third(results)) >= 0.5, EASY, RELATIVE),
        ),
        Claim(
            "models with relative embeddings extrapolate better than in plain addition (at the third length)",
            lambda results: every(
                lambda c, pe: (
                    results.beyond(f"c={c} {pe}", third(results))
                    > results.beyond(f"no modulus {pe}", third(results)) + MARGIN
                ),
                EASY,
                RELATIVE,
            ),
        ),
        Claim(
            "models with absolute embeddings generalise too (at least half right at the third length), for both moduli",
            lambda results: every(lambda c: results.beyond(f"c={c} APE", third(results)) >= 0.5, EASY),
        ),
    )
    notes = (
        "The text has relative embeddings ahead; the published RPE_k row for c = 100 is below APE at 15 and 20 digits,"
        " and RPE_k,q for c = 1000 is below APE at 20.",
        ORDER_NOTE,
        "The rows without a modulus are the models of Table 1 (UTransformer, Base), with which the text compares.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        digits = self.lengths[scale][-1]
        return {
            **{f"c={c} {pe}": modular(scale, "addition", c, pe, "B", digits) for c in EASY for pe in EMBEDDINGS},
            **{f"no modulus {pe}": addition(scale, "UTransformer", pe, "B") | order(scale) for pe in EMBEDDINGS},
        }


def order(scale: ScaleName) -> Setting:
    """Which digit is written first, see digit_order.py."""
    return {} if scale == "paper" else {"layout.order": "least-significant-first"}


def modular(scale: ScaleName, operation: str, modulus: int, embedding: str, size: str, digits: int) -> Setting:
    """A run of modular addition or multiplication in a layout of so many digits, which other artefacts share."""
    task = {"task.kind": f"modular-{operation}", "task.modulus": modulus, "data.test_digits": digits}
    return setting(scale, task, order(scale), model(scale, "UTransformer", size, embedding), budget(scale, 3000))
