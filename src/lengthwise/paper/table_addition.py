"""Table 1: addition, by encoder, position embedding and size."""

from lengthwise.paper.artefact import (
    MARGIN,
    Claim,
    Grid,
    Results,
    ScaleName,
    Setting,
    Table,
    Undecided,
    artefact,
    every,
)
from lengthwise.paper.scales import EMBEDDINGS, ENCODERS, budget, model, setting

DIGITS: dict[ScaleName, int] = {"smoke": 8, "cpu": 10, "paper": 20}


def relative_generalises(results: Results, encoder: str) -> bool:
    """At both sizes, one digit more than trained."""
    return every(
        lambda size: results.mean(f"{encoder} RPE_k {size}", 6) > results.mean(f"{encoder} APE {size}", 6) + MARGIN,
        "BL",
    )


def absolute_fails(results: Results) -> bool:
    """Judged on the models that have learnt 5 digits: the others say nothing about generalisation."""
    runs = [f"{encoder} APE {size}" for encoder in ENCODERS for size in "BL"]
    at_six = {run: results.mean(run, 6) for run in runs}
    learnt = [run for run in runs if all(share >= 0.5 for share in results.exact_match(run, 5))]
    if not learnt:
        raise Undecided("no model with absolute embeddings that has learnt 5 digits")
    return all(at_six[run] <= 0.05 for run in learnt)


@artefact("table-addition", "§3, Table 1", "Addition: encoder, size and position embedding")
class TableAddition(Table):
    lengths = {"smoke": (6, 7, 8, 8), "cpu": (6, 7, 8, 10), "paper": (6, 10, 15, 20)}
    published = {
        "Transformer APE B": (1.8, 0, 0, 0),
        "Transformer APE L": (1.9, 0, 0, 0),
        "Transformer RPE_k B": (100, 99.9, 97.2, 21.3),
        "Transformer RPE_k L": (98.9, 74.6, 47.3, 0.4),
        "Transformer RPE_k,q B": (96.8, 81.1, 25.0, 1.1),
        "Transformer RPE_k,q L": (100, 99.6, 88.2, 19.2),
        "UTransformer APE B": (2.0, 0, 0, 0),
        "UTransformer APE L": (3.1, 0, 0, 0),
        "UTransformer RPE_k B": (92.1, 70.6, 31.2, 0.1),
        "UTransformer RPE_k L": (100, 99.9, 98.3, 18.2),
        "UTransformer RPE_k,q B": (99.7, 22.5, 0, 0),
        "UTransformer RPE_k,q L": (90.8, 58.0, 31.1, 1.4),
    }
    claims = (
        Claim(
            "Transformers with relative-key embeddings beat those with absolute ones at 6 digits",
            lambda results: relative_generalises(results, "Transformer"),
        ),
        Claim(
            "UTransformers with relative-key embeddings beat those with absolute ones at 6 digits",
            lambda results: relative_generalises(results, "UTransformer"),
        ),
        Claim(
            "models with absolute embeddings that have learnt 5 digits fail to generalise (at most 5 % at 6 digits)",
            absolute_fails,
        ),
        Claim(
            "accuracy drops for longer sequences: with relative-key embeddings, the longest tested is below 6 digits",
            lambda results: every(
                lambda encoder, size: (
                    results.mean(f"{encoder} RPE_k {size}", TableAddition.lengths[results.scale][-1])
                    < results.mean(f"{encoder} RPE_k {size}", 6) - MARGIN
                ),
                ENCODERS,
                "BL",
            ),
        ),
    )

    def grids(self, results: Results) -> dict[str, Grid]:
        rows = {label: [(results.exact_match(label, 5), 100.0)] for label in self.settings(results.scale)}
        in_domain = {"In domain, where the text says that all models achieve 100 %": Grid(["5"], rows)}
        return {**super().grids(results), **in_domain}

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {
            f"{encoder} {embedding} {size}": addition(scale, encoder, embedding, size)
            for encoder in ENCODERS
            for embedding in EMBEDDINGS
            for size in "BL"
        }


def addition(scale: ScaleName, encoder: str, embedding: str, size: str) -> Setting:
    """A run of addition, which other artefacts share."""
    task = {"task": "addition", "data.test_digits": DIGITS[scale]}
    lengths = {"evaluation.lengths": "5:7"} if scale != "paper" else {"evaluation.lengths": "5,6,10,15,20"}
    return setting(scale, task, lengths, model(scale, encoder, size, embedding), budget(scale, 3000))
