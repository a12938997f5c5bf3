"""Three scales: smoke proves that the path runs, cpu shows the effects in minutes, paper is as published."""

from lengthwise.paper.artefact import ScaleName, Setting

ENCODERS = {"Transformer": "transformer", "UTransformer": "universal-transformer"}
EMBEDDINGS = {"APE": "absolute", "RPE_k": "relative-key", "RPE_k,q": "relative-key-query"}
RELATIVE = ("RPE_k", "RPE_k,q")

# The paper's ranges of learning rate and weight decay; at paper scale a setting is trained with every pair.
LEARNING_RATES = (1e-4, 3e-5, 1e-5)
WEIGHT_DECAYS = (1e-2, 1e-3, 1e-4, 1e-5)

COMMON: dict[ScaleName, Setting] = {
    "smoke": {
        "training.steps": 4,
        "evaluation.every": 2,
        "evaluation.examples": 10,
        "evaluation.final_examples": 20,
    },
    "cpu": {"evaluation.every": 250, "evaluation.examples": 250, "evaluation.final_examples": 2000},
    "paper": {
        "data.sampling": "uniform-integer",
        "training.epochs": 15000,
        "training.batch_size": 32,
        "training.learning_rate": LEARNING_RATES[0],
        "training.weight_decay": WEIGHT_DECAYS[0],
        "training.betas": [0.9, 0.999],
        "training.warmup_steps": 0,
        "training.clip": None,
        "training.log_every": 1000,
        "training.checkpoint_every": 5000,
        "evaluation.every": 10000,
        "evaluation.examples": 10000,
        "evaluation.final_examples": 100000,
    },
}
SIZES: dict[ScaleName, dict[str, Setting]] = {
    "smoke": {size: {"model.preset": "tiny"} for size in "BSL"},
    "cpu": {
        "B": {"model.layers": 4, "model.width": 128, "model.heads": 4},
        "S": {"model.layers": 4, "model.width": 128, "model.heads": 4},
        "L": {"model.layers": 6, "model.width": 192, "model.heads": 6},
    },
}
PAPER_SIZES = {"B": "base", "S": "standard", "L": "large"}


def model(scale: ScaleName, encoder: str = "UTransformer", size: str = "S", embedding: str = "RPE_k") -> Setting:
    """The settings of a model by the paper's words: encoder, size (B, S, L) and position embedding."""
    position: Setting = {"model.position": EMBEDDINGS[embedding]}
    if scale == "paper":
        family = {"Transformer": "bert", "UTransformer": "albert"}[encoder]
        return {"model.preset": f"{family}-{PAPER_SIZES[size]}", **position}
    if scale == "cpu" and embedding == "APE":  # at 2e-3 it doesn't learn 5 digits in the steps that there are
        position["training.learning_rate"] = 1e-3
    if scale == "cpu" and size == "L":  # nor does this size at the smaller ones' rates, with any embedding
        position["training.learning_rate"] = 5e-4
    return {**SIZES[scale][size], "model.encoder": ENCODERS[encoder], **position}


def setting(scale: ScaleName, *parts: Setting) -> Setting:
    """The scale's common settings with more on top."""
    merged = dict(COMMON[scale])
    for part in parts:
        if any(budget in part for budget in ("training.steps", "training.epochs", "training.examples")):
            merged = {k: v for k, v in merged.items() if k not in ("training.steps", "training.epochs")}
        merged |= part
    return merged


def variants(scale: ScaleName) -> list[Setting]:
    """What a setting is trained with: each pair of the paper's ranges, and at the smaller scales as it is."""
    if scale != "paper":
        return [{}]
    return [
        {"training.learning_rate": rate, "training.weight_decay": decay}
        for rate in LEARNING_RATES
        for decay in WEIGHT_DECAYS
    ]


def spelled(variant: Setting) -> str:
    """A variant in words.

    >>> spelled({"training.learning_rate": 1e-4, "training.weight_decay": 0.01})
    'learning rate 0.0001, weight decay 0.01'
    """
    return ", ".join(f"{key.rpartition('.')[2].replace('_', ' ')} {value:g}" for key, value in variant.items())


def budget(scale: ScaleName, cpu_steps: int) -> Setting:
    """So many steps at cpu scale; the other scales have one budget for all."""
    return {"training.steps": cpu_steps} if scale == "cpu" else {}
