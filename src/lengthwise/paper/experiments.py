"""The experiments that artefacts share, as functions that return an experiment's keys."""

from lengthwise.paper.published import statement
from lengthwise.paper.scales import (
    RECIPES,
    SMOKE_DIGITS,
    SMOKE_LENGTHS,
    TRAIN_DIGITS,
    TRAIN_SIZE,
    Overrides,
    RecipeName,
    ScaleName,
    base_keys,
    with_budget,
)
from lengthwise.problems.priming import Priming, one_length

LONG = 35  # digits, n_test of products
PRIMED = int(statement("primed examples"))
LEVEL = statement("accuracy that counts as learned") / 100
ORDERS = {
    "most significant first": "most-significant-first",
    "least significant first": "least-significant-first",
}
# Digits of the second operand in the figures about priming.
SECOND: dict[ScaleName, int] = {"smoke": 1, "cpu": 1, "paper": 3}
UNPRIMED = "not primed"
BY_ONE_DIGIT: dict[ScaleName, str] = {"cpu": "here by one digit, not three"}
PRODUCTS_NOTE = (
    "At cpu scale products differ from the paper's in more than the model's size. They are by one"
    " digit, not three; training problems are uniform over lengths, not over integers; the second"
    " operand takes no more tokens than it needs, instead of n_test; the optimiser is Muon, not"
    " AdamW. Lengths are the paper's. At smoke scale the long length is 8 digits."
)


def room(scale: ScaleName, digits: int) -> int:
    """The digits that a layout has room for (n_test)."""
    return SMOKE_DIGITS if scale == "smoke" else digits


def long_length(scale: ScaleName) -> int:
    """The long length of products."""
    return room(scale, LONG)


def tested_lengths(scale: ScaleName, *lengths: int) -> list[int]:
    """The lengths tested during training."""
    return list(SMOKE_LENGTHS if scale == "smoke" else lengths)


def addition(
    scale: ScaleName,
    embedding: str,
    encoder: str = "UTransformer",
    size: str = "S",
    order: str = "most significant first",
) -> Overrides:
    """Sums of up to 20 digits (§3)."""
    return {
        **base_keys(scale, "sums", encoder, size, embedding),
        "task": "addition",
        "layout.order": ORDERS[order],
        "data.test_digits": room(scale, 20),
        "evaluation.lengths": tested_lengths(scale, 5, 6, 10, 15, 20),
    }


def roomy_addition(scale: ScaleName) -> Overrides:
    """Sums of Table 1's Base size in a layout with room for five more digits."""
    keys = addition(scale, "RPE_k", size="B")
    wide = {"data.test_digits": keys["data.test_digits"] + 5}
    return (
        keys | wide | ({} if scale == "smoke" else {"evaluation.lengths": [5, 6, 10, 15, 20, 25]})
    )


def elementwise(scale: ScaleName, embedding: str) -> Overrides:
    """Sums without carries of up to 20 digits (§6.1, appendix A.2)."""
    final = {"evaluation.final_examples": 10_000} if scale == "paper" else {}
    return {
        **base_keys(scale, "elementwise", "UTransformer", "B", embedding),
        "task": "elementwise-addition",
        "data.test_digits": room(scale, 20),
        "data.train_size": 50_000,
        "evaluation.lengths": tested_lengths(scale, 5, 6, 10, 15, 20),
        **final,
    }


def modular_addition(
    scale: ScaleName, modulus: int, embedding: str, size: str, order: str
) -> Overrides:
    """Sums modulo c of up to 20 digits (§4)."""
    keys = base_keys(scale, "modular", "UTransformer", size, embedding)
    lengths = tested_lengths(scale, 5, 6, 10, 15, 20)
    return modular_keys(scale, keys, "modular-addition", modulus, order, 20, lengths)


def modular_multiplication(
    scale: ScaleName, modulus: int, embedding: str, size: str, order: str
) -> Overrides:
    """Products modulo c of up to 35 × 3 digits (§4)."""
    keys = base_keys(scale, "modular-products", "UTransformer", size, embedding)
    lengths = tested_lengths(scale, 5, 10, 20, 30, 35)
    return modular_keys(scale, keys, "modular-multiplication", modulus, order, 35, lengths)


def modular_keys(
    scale: ScaleName,
    keys: Overrides,
    task: str,
    modulus: int,
    order: str,
    digits: int,
    lengths: list[int],
) -> Overrides:
    return {
        **keys,
        "task.kind": task,
        "task.modulus": modulus,
        "layout.order": ORDERS[order],
        "data.test_digits": room(scale, digits),
        "evaluation.lengths": lengths,
    }


def products(
    scale: ScaleName,
    second_digits: int | None = None,
    embedding: str = "RPE_k",
    priming: Priming = (),
    train_size: int = TRAIN_SIZE,
) -> Overrides:
    """Products of up to 35 digits (§5); by default by as many digits as the figures have."""
    second_digits = second_digits or SECOND[scale]
    recipe: RecipeName = "products" if second_digits == 1 else "products-by-three"
    keys = {
        **base_keys(scale, recipe, "UTransformer", "S", embedding),
        "task.kind": "multiplication",
        "task.second_digits": second_digits,
        "data.test_digits": long_length(scale),
        "data.priming": priming,
        "data.train_size": train_size,
        "evaluation.lengths": tested_lengths(scale, 5, 6, 10, 20, 34, 35),
    }
    if scale == "smoke":
        keys["layout"] = "compact"
    if scale == "cpu":  # equal epochs for every size of the training set, as in the paper
        epochs = RECIPES[recipe].examples / TRAIN_SIZE
        keys = with_budget(keys, {"training.epochs": epochs})
    return keys


def primed_products(scale: ScaleName, count: int, embedding: str = "RPE_k") -> Overrides:
    """Products with primed examples of the long length."""
    return products(scale, embedding=embedding, priming=one_length(long_length(scale), count))


def fine_tuned_products(scale: ScaleName, count: int) -> Overrides:
    """The unprimed model, trained further on long products alone (§5.1)."""
    long = long_length(scale)
    keys = {
        **products(scale),
        "data.train_digits": long,
        "data.sampling": "exact",
        "data.train_size": count,
        "evaluation.final_lengths": [TRAIN_DIGITS, long],
        "start_from": UNPRIMED,
    }
    budgets: dict[ScaleName, Overrides] = {
        "smoke": {"training.steps": 4},
        "cpu": {"training.examples": RECIPES["products"].fine_tuning_examples},
        "paper": {"training.examples": int(statement("examples until 35 digits are learned"))},
    }
    return with_budget(keys, budgets[scale])


def primed_label(count: int) -> str:
    return f"primed with {count}"


def fine_tuned_label(count: int) -> str:
    return f"fine-tuned on {count}"
