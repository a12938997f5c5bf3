"""The three scales, and every recipe of the cpu scale.

`smoke` proves that a path runs, in seconds. `cpu` has the paper's lengths and small models. `paper`
is as published, for GPUs. Everything that is tuned for the cpu scale stands in `RECIPES`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lengthwise.base import UsageError, nearest

ScaleName = Literal["smoke", "cpu", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "cpu", "paper")
Overrides = dict[str, Any]  # dotted keys of an experiment, such as {"model.width": 64}
RecipeName = Literal[
    "sums",
    "products",
    "products-by-three",
    "products-in-two-layouts",
    "modular",
    "modular-products",
    "elementwise",
    "survey",
]

# The paper's words for encoders, position embeddings and sizes.
ENCODERS = {"Transformer": "transformer", "UTransformer": "universal-transformer"}
EMBEDDINGS = {"APE": "absolute", "RPE_k": "relative-key", "RPE_k,q": "relative-key-query"}
RELATIVE = ("RPE_k", "RPE_k,q")
SIZES = {"B": "base", "S": "standard", "L": "large"}

TRAIN_DIGITS = 5  # in every artefact
TRAIN_SIZE = 5000  # N_train, unless an artefact says otherwise
SMOKE_DIGITS = 8  # n_test at smoke scale
SMOKE_LENGTHS = (TRAIN_DIGITS, TRAIN_DIGITS + 1, SMOKE_DIGITS)

# The paper's ranges of learning rate and weight decay (§2.2).
LEARNING_RATES = (1e-4, 3e-5, 1e-5)
WEIGHT_DECAYS = (1e-2, 1e-3, 1e-4, 1e-5)


@dataclass(frozen=True)
class Recipe:
    """How one family of problems is trained at cpu scale."""

    examples: int  # the budget of one run
    base: Overrides  # of the sizes Base and Standard
    large: Overrides  # on top, for the size Large
    fine_tuning_examples: int = 0

    def overrides(self, size: str) -> Overrides:
        """The keys for a size, without the budget."""
        return {**self.base, **(self.large if size == "L" else {})}


SMALL: Overrides = {
    "model.layers": 4,
    "model.width": 128,
    "model.heads": 8,
    "model.activation": "relu",
    "training.batch_size": 32,
}
ADAMW: Overrides = {"training.optimizer": "adamw", "training.learning_rate": 1e-3}
MUON: Overrides = {"training.optimizer": "muon", "training.learning_rate": 4e-3}
LARGE: Overrides = {"model.layers": 6, "model.width": 160}
LARGE_ADAMW: Overrides = {**LARGE, "training.learning_rate": 5e-4}
# Optimiser, learning rate and depth were chosen by how well models that are trained on 3 digits
# add 5 (docs/notebook.md, 2026-11-19): the trained length itself is learned with all of them.
SUMS = Recipe(160_000, {**SMALL, **MUON}, LARGE)
# AdamW is slow to learn products in domain: after 3 million examples of 5 × 3 it had 13 % right,
# Muon 87 % (docs/notebook.md).
PRODUCTS = Recipe(
    960_000,
    {**SMALL, **MUON, "training.learning_rate": 1e-3, "layout": "compact"},
    LARGE,
    fine_tuning_examples=160_000,
)
MODULAR = Recipe(1_280_000, {**SMALL, **ADAMW, "task.constant_length": True}, LARGE_ADAMW)
RECIPES: Mapping[RecipeName, Recipe] = {
    "sums": SUMS,
    "products": PRODUCTS,
    "products-by-three": replace(
        PRODUCTS,
        examples=7_680_000,
        base={
            **PRODUCTS.base,
            "model.layers": 6,
            "model.feedforward_width": 1024,
            "training.batch_size": 64,
            "data.sampling": "uniform-length",
        },
    ),
    "products-in-two-layouts": replace(
        PRODUCTS,
        examples=1_440_000,
        base={
            **PRODUCTS.base,
            "model.layers": 6,
            "model.heads": 16,
            "model.feedforward_width": 1024,
            "training.learning_rate": 2e-3,
            "data.sampling": "uniform-length",
        },
    ),
    "modular": MODULAR,
    "modular-products": replace(
        MODULAR,
        base={
            **MODULAR.base,
            "layout": "compact",
            "data.sampling": "uniform-length",
            "training.learning_rate": 5e-4,
        },
    ),
    "elementwise": SUMS,
    "survey": Recipe(160_000, {**SMALL, **ADAMW, "model.heads": 4}, LARGE_ADAMW),
}
# Figure 2 tries these for every width and depth, and keeps the one that is best in domain.
CPU_LEARNING_RATES = (4e-3, 2e-3, 8e-3)

EVALUATION: Mapping[ScaleName, Overrides] = {
    "smoke": {
        "evaluation.every": 2,
        "evaluation.examples": 10,
        "evaluation.final_examples": 20,
    },
    "cpu": {
        "evaluation.every": 500,
        "evaluation.examples": 250,
        "evaluation.final_examples": 2000,
    },
    "paper": {
        "evaluation.every": 10_000,
        "evaluation.examples": 10_000,
        "evaluation.final_examples": 100_000,
    },
}
PAPER_TRAINING: Overrides = {
    "data.sampling": "uniform-integer",
    "training.epochs": 15_000,
    "training.batch_size": 32,
    "training.learning_rate": LEARNING_RATES[0],
    "training.weight_decay": WEIGHT_DECAYS[0],
    "training.betas": [0.9, 0.999],
    "training.warmup_steps": 0,
    "training.clip": None,
    "training.log_every": 1000,
    "training.checkpoint_every": 5000,
}


def check_scale(scale: str) -> ScaleName:
    """The scale of this name, or a UsageError."""
    for known in SCALES:
        if scale == known:
            return known
    raise UsageError(f"there is no scale '{scale}': {nearest(scale, SCALES)}")


def base_keys(
    scale: ScaleName,
    recipe: RecipeName,
    encoder: str = "UTransformer",
    size: str = "S",
    embedding: str = "RPE_k",
) -> Overrides:
    """Model, training and evaluation at a scale, by the paper's words.

    >>> base_keys("paper", "sums", "Transformer", "B")["model.preset"]
    'bert-base'
    """
    position = {"model.position": EMBEDDINGS[embedding]}
    if scale == "paper":
        family = {"Transformer": "bert", "UTransformer": "albert"}[encoder]
        preset = {"model.preset": f"{family}-{SIZES[size]}"}
        return {**EVALUATION[scale], **PAPER_TRAINING, **preset, **position}
    encoder_keys = {"model.encoder": ENCODERS[encoder], **position}
    if scale == "smoke":
        tiny: Overrides = {"model.preset": "tiny", "training.steps": 4}
        return {**EVALUATION[scale], **tiny, **encoder_keys}
    chosen = RECIPES[recipe]
    budget = {"training.examples": chosen.examples}
    return {**EVALUATION[scale], **chosen.overrides(size), **budget, **encoder_keys}


def with_budget(keys: Overrides, budget: Overrides) -> Overrides:
    """The keys with another budget."""
    budgets = ("training.steps", "training.epochs", "training.examples")
    return {**{key: value for key, value in keys.items() if key not in budgets}, **budget}


def variants(scale: ScaleName) -> list[Overrides]:
    """The hyperparameters that a condition is tried with: all pairs of the paper's ranges."""
    if scale != "paper":
        return [{}]
    return [
        {"training.learning_rate": rate, "training.weight_decay": decay}
        for rate in LEARNING_RATES
        for decay in WEIGHT_DECAYS
    ]


def describe_variant(variant: Overrides) -> str:
    """A variant in words.

    >>> describe_variant({"training.learning_rate": 1e-4, "training.weight_decay": 0.01})
    'learning rate 0.0001, weight decay 0.01'
    """
    words = {key.rpartition(".")[2].replace("_", " "): value for key, value in variant.items()}
    return ", ".join(f"{name} {value:g}" for name, value in words.items())
