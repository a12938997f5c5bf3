"""Table 1: addition, by encoder, position embedding and size."""

from collections.abc import Sequence
from itertools import product

from lengthwise.paper.artefact import Claim, Grid, Headline, Table, artefact
from lengthwise.paper.experiments import addition
from lengthwise.paper.published import statement, table, within_a_point
from lengthwise.paper.results import Results, final_accuracy
from lengthwise.paper.scales import (
    EMBEDDINGS,
    ENCODERS,
    RELATIVE,
    TRAIN_DIGITS,
    Overrides,
    ScaleName,
)
from lengthwise.paper.verdicts import (
    Judgement,
    Measurement,
    all_of,
    any_of,
    at_least,
    at_most,
    greater,
    less,
)

PUBLISHED = table("addition")
LONGER_ABSOLUTE = "absolute embeddings at longer lengths"
SOLVED = 0.9  # what counts as solving a length, where the paper names no level


def labels(embeddings: Sequence[str], encoders: Sequence[str] = tuple(ENCODERS)) -> list[str]:
    return [" ".join(parts) for parts in product(encoders, embeddings, "BL")]


def best_reaches(length: int) -> Claim:
    """The text's level, for the best of the relative embeddings."""
    published = statement(f"addition at {length} digits")
    level = within_a_point(published)
    return Claim(
        f"the best models with relative embeddings reach {published:g} % at {length} digits, within"
        f" a point (at least {100 * level:g} %)",
        lambda results: any_of(
            at_least(results.accuracy(label, length), level) for label in labels(RELATIVE)
        ),
    )


def solves(length: int) -> Claim:
    return Claim(
        f"models with relative embeddings, trained on 5 digits, solve {length} digits"
        f" (the best at least {100 * SOLVED:.0f} %)",
        lambda results: any_of(
            at_least(results.accuracy(label, length), SOLVED) for label in labels(RELATIVE)
        ),
        Headline(
            "Relative embeddings carry sums from 5 digits to 15",
            [length],
            labels(RELATIVE),
            f"{statement('addition at 15 digits'):g} %",
        ),
    )


def beats_absolute(encoder: str) -> Claim:
    def judge(results: Results) -> Judgement:
        return all_of(
            greater(
                results.accuracy(f"{encoder} RPE_k {size}", 6),
                results.accuracy(f"{encoder} APE {size}", 6),
            )
            for size in "BL"
        )

    return Claim(f"{encoder}s with relative-key embeddings beat absolute ones at 6 digits", judge)


def best_size(results: Results, encoder: str, embedding: str, length: int) -> Measurement:
    """The accuracy of the better size, seed by seed."""
    sizes = [f"{encoder} {embedding} {size}" for size in "BL"]
    return results.measure_together(
        sizes,
        lambda records: max(final_accuracy(record, length) or 0.0 for record in records.values()),
        f"{encoder} {embedding}, the better size, at {length} digits",
    )


@artefact("table-addition", "§3, Table 1", "Addition: encoder, size and position embedding")
class TableAddition(Table):
    lengths = PUBLISHED.lengths
    published = PUBLISHED.rows
    claims = (
        solves(15),
        *map(best_reaches, (10, 15, 20)),
        *map(beats_absolute, ENCODERS),
        Claim(
            "models with absolute embeddings fail (at most 5 % at 6 digits)",
            lambda results: all_of(
                at_most(results.accuracy(label, 6), 0.05) for label in labels(["APE"])
            ),
            Headline(
                "Absolute embeddings fail one digit beyond training",
                [6],
                labels(["APE"]),
                f"{statement('absolute embeddings at 6 digits'):g} %",
            ),
        ),
        Claim(
            f"models with absolute embeddings have {statement(LONGER_ABSOLUTE):g} % at all longer"
            " lengths, within a point (at most 1 % at 10, 15 and 20 digits)",
            lambda results: all_of(
                at_most(results.accuracy(label, n), statement(LONGER_ABSOLUTE) / 100 + 0.01)
                for label in labels(["APE"])
                for n in (10, 15, 20)
            ),
        ),
        Claim(
            "all models are perfect in domain (at least 99.5 %, which rounds to 100 %)",
            lambda results: all_of(
                at_least(results.in_domain(label), 0.995) for label in labels(list(EMBEDDINGS))
            ),
        ),
        Claim(
            "relative-key is the crucial variant: its better size beats that of relative-key-query"
            " at 15 digits, for both encoders",
            lambda results: all_of(
                greater(*(best_size(results, encoder, pe, 15) for pe in RELATIVE))
                for encoder in ENCODERS
            ),
        ),
        Claim(
            "accuracy drops for longer sequences: with relative-key embeddings, 20 digits are worse"
            " than 6",
            lambda results: all_of(
                less(results.accuracy(label, 20), results.accuracy(label, 6))
                for label in labels(["RPE_k"])
            ),
        ),
    )
    notes = (
        "The text calls relative-key crucial. Among the published rows, relative-key-query wins"
        " with the Large Transformer, and with the Base UTransformer at 6 digits (99.7 against"
        " 92.1). The claim compares the better size of each.",
        "Training problems are uniform over lengths at cpu scale, and uniform over integers at"
        " paper scale; the artefact `sampling` compares the two.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            f"{encoder} {embedding} {size}": addition(scale, embedding, encoder, size)
            for encoder, embedding, size in product(ENCODERS, EMBEDDINGS, "BL")
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        published = statement("in-domain addition") if results.scale != "smoke" else None
        rows = {
            label: [results.cell(label, TRAIN_DIGITS, published)]
            for label in self.conditions(results.scale)
        }
        in_domain = {"Exact match (%) in domain": Grid([f"{TRAIN_DIGITS}"], rows)}
        return {**super().grids(results), **in_domain}
