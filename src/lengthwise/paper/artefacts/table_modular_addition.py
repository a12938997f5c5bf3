"""Table 2a: addition modulo powers of ten, by position embedding and order of digits."""

from itertools import product

from lengthwise.paper.artefact import Claim, Grid, Table, artefact
from lengthwise.paper.experiments import ORDERS, addition, modular_addition
from lengthwise.paper.published import statement, table, within_a_point
from lengthwise.paper.results import Results
from lengthwise.paper.scales import EMBEDDINGS, RELATIVE, Overrides, ScaleName
from lengthwise.paper.verdicts import all_of, at_least, greater

PUBLISHED = table("modular-addition")
POWERS_OF_TEN = (100, 1000)  # moduli with which only the last digits of the operands matter
ABSOLUTE = statement("modular addition with absolute embeddings at 10 digits")
SAME_MODEL = "UTransformer {} B"  # in Table 1, with which the text compares


def claims_for(order: str) -> list[Claim]:
    """The text's claims, for one order of digits."""

    def label(modulus: int, embedding: str) -> str:
        return f"c={modulus} {embedding}, {order}"

    return [
        Claim(
            "models with relative embeddings generalise (at least half right at 10 digits), for"
            f" both moduli; {order}",
            lambda results: all_of(
                at_least(results.accuracy(label(c, pe), 10), 0.5)
                for c, pe in product(POWERS_OF_TEN, RELATIVE)
            ),
        ),
        Claim(
            "models with relative embeddings extrapolate better than in plain addition (at 10"
            f" digits); {order}",
            lambda results: all_of(
                greater(
                    results.accuracy(label(c, pe), 10),
                    results.accuracy(f"no modulus {pe}, {order}", 10),
                )
                for c, pe in product(POWERS_OF_TEN, RELATIVE)
            ),
        ),
        Claim(
            "models with absolute embeddings generalise too (at least half right at 10 digits),"
            f" for both moduli; {order}",
            lambda results: all_of(
                at_least(results.accuracy(label(c, "APE"), 10), 0.5) for c in POWERS_OF_TEN
            ),
        ),
        Claim(
            f"models with absolute embeddings reach {ABSOLUTE:g} % at 10 digits for c = 100, within"
            f" a point (at least {100 * within_a_point(ABSOLUTE):g} %); {order}",
            lambda results: at_least(
                results.accuracy(label(100, "APE"), 10), within_a_point(ABSOLUTE)
            ),
        ),
    ]


@artefact("table-modular-addition", "§4, Table 2a", "Modular addition, c = 100 and 1000")
class TableModularAddition(Table):
    lengths = PUBLISHED.lengths
    published = {
        **{f"{row}, {o}": values for row, values in PUBLISHED.rows.items() for o in ORDERS},
        **{
            f"no modulus {pe}, {order}": (
                statement("in-domain addition"),
                *table("addition").rows[SAME_MODEL.format(pe)],
            )
            for pe in EMBEDDINGS
            for order in ORDERS
        },
    }
    claims = tuple(claim for order in ORDERS for claim in claims_for(order))
    notes = (
        "The text puts relative embeddings ahead. The published RPE_k row for c = 100 is below APE"
        " at 15 and 20 digits, and RPE_k,q for c = 1000 is below APE at 20.",
        "Both orders of digits are trained, because the published numbers fit the least significant"
        " digit first better: see §4, two orders of digits.",
        "The rows without a modulus are the models of Table 1 (UTransformer, Base), with which the"
        " text compares. At cpu scale the relative-key one solves 98 % of plain sums of 10 digits"
        " with the most significant digit first (70.6 % in the paper): under this ceiling a modular"
        " model can hardly be better.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            **{
                f"c={c} {pe}, {order}": modular_addition(scale, c, pe, "B", order)
                for order, c, pe in product(ORDERS, POWERS_OF_TEN, EMBEDDINGS)
            },
            **{
                f"no modulus {pe}, {order}": addition(scale, pe, "UTransformer", "B", order)
                for order, pe in product(ORDERS, EMBEDDINGS)
            },
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        return grids_by_order(self, results)


def grids_by_order(table: Table, results: Results, start: str = "") -> dict[str, Grid]:
    """A grid for each order of digits, with the conditions whose labels begin with `start`."""
    labels = [label for label in table.conditions(results.scale) if label.startswith(start)]
    return {
        f"Exact match (%) by number of digits, {order}": table.grid(
            results, [label for label in labels if label.endswith(order)]
        )
        for order in ORDERS
    }
