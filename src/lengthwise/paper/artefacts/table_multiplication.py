"""Table 3: multiplication by numbers of 1, 2 and 3 digits, by position embedding."""

from itertools import product

from lengthwise.paper.artefact import Claim, Table, artefact
from lengthwise.paper.experiments import products
from lengthwise.paper.published import statement, table
from lengthwise.paper.scales import EMBEDDINGS, RELATIVE, Overrides, ScaleName
from lengthwise.paper.verdicts import all_of, at_least, at_most, greater

PUBLISHED = table("multiplication")
SECOND_OPERANDS = {1: "1-digit", 2: "2-digits", 3: "3-digits"}
SHORTER = ("1-digit", "2-digits")


@artefact("table-multiplication", "§5, Table 3", "Multiplication by 1, 2 and 3 digits")
class TableMultiplication(Table):
    lengths = PUBLISHED.lengths
    published = PUBLISHED.rows
    claims = (
        Claim(
            f"all models achieve close to {statement('in-domain multiplication'):g} % in domain (at"
            " least 95 %)",
            lambda results: all_of(
                at_least(results.in_domain(label), 0.95) for label in PUBLISHED.rows
            ),
        ),
        Claim(
            "multiplication by 3 digits doesn't generalise with any embedding (at most 5 % at 6"
            " digits)",
            lambda results: all_of(
                at_most(results.accuracy(f"3-digits {pe}", 6), 0.05) for pe in EMBEDDINGS
            ),
        ),
        Claim(
            "by 1 and 2 digits, relative embeddings generalise to 6 digits, and only a little: they"
            " beat absolute ones and are at most half right",
            lambda results: all_of(
                part
                for by, pe in product(SHORTER, RELATIVE)
                for part in (
                    greater(results.accuracy(f"{by} {pe}", 6), results.accuracy(f"{by} APE", 6)),
                    at_most(results.accuracy(f"{by} {pe}", 6), 0.5),
                )
            ),
        ),
        Claim(
            "by 1 and 2 digits, relative embeddings fail beyond 6 digits (at most 5 % at 7)",
            lambda results: all_of(
                at_most(results.accuracy(f"{by} {pe}", 7), 0.05)
                for by, pe in product(SHORTER, RELATIVE)
            ),
        ),
    )
    notes = (
        "At smoke and cpu scale the layout is compact: the second operand takes no more tokens"
        " than it needs. At paper scale both operands are 35 wide, as in the text.",
        "At cpu scale, products by 2 and 3 digits have a recipe of their own.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            f"{by} {embedding}": products(scale, digits, embedding)
            for (digits, by), embedding in product(SECOND_OPERANDS.items(), EMBEDDINGS)
        }
