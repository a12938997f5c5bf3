"""Beyond the paper: AdamW, which it uses, against Muon: how far sums and primed products go."""

from itertools import product

from lengthwise.paper.artefact import Artefact, Claim, Grid, accuracy_grid, artefact
from lengthwise.paper.experiments import PRIMED, addition, primed_products
from lengthwise.paper.results import Results
from lengthwise.paper.scales import ADAMW, MUON, SMOKE_LENGTHS, Overrides, ScaleName
from lengthwise.paper.verdicts import all_of, greater, less

OPTIMIZERS = {"AdamW": {**ADAMW, "training.learning_rate": 2e-3}, "Muon": MUON}
EMBEDDINGS = ("RPE_k", "APE")
LENGTHS = {"sums": (5, 6, 10, 15, 20), "products": (5, 10, 20, 34, 35)}


def sums(embedding: str, optimizer: str) -> str:
    return f"sums, {embedding}, {optimizer}"


def products(optimizer: str) -> str:
    return f"n × 1, primed with {PRIMED}, {optimizer}"


@artefact("beyond-optimizer", "Beyond the paper", "The optimiser: AdamW and Muon")
class BeyondOptimizer(Artefact):
    claims = (
        Claim(
            "relative embeddings beat absolute ones at 6 digits with either optimiser",
            lambda results: all_of(
                greater(
                    results.accuracy(sums("RPE_k", name), 6), results.accuracy(sums("APE", name), 6)
                )
                for name in OPTIMIZERS
            ),
        ),
        Claim(
            "Muon carries sums further than AdamW (15 digits)",
            lambda results: greater(
                *(results.accuracy(sums("RPE_k", name), 15) for name in ("Muon", "AdamW"))
            ),
        ),
        Claim(
            "with Muon, priming with 35 digits teaches 34 digits less than with AdamW",
            lambda results: less(
                *(results.accuracy(products(name), 34) for name in ("Muon", "AdamW"))
            ),
        ),
    )
    notes = (
        "The paper trains with AdamW. Muon replaces the update of every matrix in the layers by the"
        " nearest orthogonal matrix; embeddings, norms and biases keep AdamW. Each has the learning"
        " rate with which models that are trained on 3 digits add 5 best. All else is equal:"
        " budget, model, seeds.",
        "At cpu scale the paper's tables of sums and products are trained with Muon.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        added = {
            sums(embedding, name): {
                **addition(scale, embedding, size="B"),
                **keys,
            }
            for embedding, (name, keys) in product(EMBEDDINGS, OPTIMIZERS.items())
        }
        multiplied = {
            products(name): {**primed_products(scale, PRIMED), **keys}
            for name, keys in OPTIMIZERS.items()
        }
        return {**added, **multiplied}

    def grids(self, results: Results) -> dict[str, Grid]:
        labels = {
            "sums": [sums(embedding, name) for embedding, name in product(EMBEDDINGS, OPTIMIZERS)],
            "products": [products(name) for name in OPTIMIZERS],
        }
        return {
            f"Exact match (%) of {what} by number of digits": accuracy_grid(
                results, labels[what], SMOKE_LENGTHS if results.scale == "smoke" else lengths
            )
            for what, lengths in LENGTHS.items()
        }
