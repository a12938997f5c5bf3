"""Length records: models trained on numbers of up to five digits, tested on very long ones.

A record is one or more trials. Each trial is trained with several seeds. Each seed's model is
tested on fresh problems of each length and on the stress suite. It is the last one of training.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lengthwise.base import UsageError, nearest

Setting = dict[str, Any]  # dotted keys of an experiment


@dataclass(frozen=True)
class Trial:
    """How a model is trained, where it is tested, and the goal at each length."""

    setting: Setting
    tests: Mapping[int, int]  # problems by length
    goals: Mapping[int, float] = field(default_factory=dict)  # exact match by length
    stress_tests: Mapping[int, int] = field(default_factory=dict)  # problems of a case, by length
    second_digits: int | Literal["same", "as trained"] = "as trained"  # of products, in testing
    operands: int | None = None  # of sums, in testing; None: as trained


@dataclass(frozen=True)
class LengthRecord:
    """What `lengthwise record NAME` trains and tests."""

    title: str
    trials: Mapping[str, Trial]


RECORDS: dict[str, LengthRecord] = {}
Trials = Callable[[], dict[str, Trial]]


def record(name: str, title: str) -> Callable[[Trials], Trials]:
    """Register a function that returns a record's trials by their labels."""

    def register(trials: Trials) -> Trials:
        RECORDS[name] = LengthRecord(title, trials())
        return trials

    return register


# A column sees itself and the next lower one, and the digit that was written there. So the model
# learns one rule for all columns. In training, the right digit is written there.
COLUMNS: Setting = {
    "layout": {"kind": "fitted", "order": "least-significant-first", "extra_padding": 2},
    "data.sampling": "uniform-length",
    "data.train_size": 100_000,
    "model.width": 32,
    "model.heads": 8,
    "model.attention": "columns",
    "model.depth": {"kind": "rewrite", "layers_per_round": 2, "teacher_forcing": True},
    "model.position": {
        "kind": "relative-bias",
        "coordinate": "significance",
        "clip": 1,
        "by_operands": True,
        "strength": 16,
    },
    "training.batch_size": 64,
    "evaluation.every": 1000,
    "evaluation.lengths": [5],
    "evaluation.final_lengths": [5],
}

SUM: Setting = {
    "task": "addition",
    **COLUMNS,
    "data.mixture": {"repeated-digits": 0.2, "carry-chains": 0.3},
    "training.steps": 1000,
}

# A row for each product by one digit, and one for each partial sum: a rule for each is learned.
# Half of the problems have as many digits as training allows: short ones show few sums.
LONG_MULTIPLICATION: Setting = {
    "task": {"kind": "multiplication", "second_digits": 3},
    **COLUMNS,
    "layout": {"kind": "long-multiplication", "extra_padding": 2},
    "data.mixture": {"full-length": 0.5, "repeated-digits": 0.1, "zeros": 0.2},
    "model.width": 64,
    "model.depth": {"kind": "rewrite", "layers_per_round": 3, "teacher_forcing": True},
    "training.optimizer": "muon",
    "training.steps": 2000,
}

# A row for each operand, and one for the sum so far: a rule for sums of two is learned.
RUNNING_SUMS: Setting = {
    **SUM,
    "task": {"kind": "addition", "operands": 3},
    "layout": {"kind": "running-sums", "extra_padding": 2},
}


# A cell for each pair of digits: it sees its neighbours in its row and in the row below. Half of
# the problems have as many bits as training allows, as in long multiplication.
GRID: Setting = {
    "task": {"kind": "binary-multiplication", "second_digits": None},
    **COLUMNS,
    "layout": {"kind": "grid", "extra_padding": 2},
    "data.mixture": {"full-length": 0.5},
    "training.steps": 500,
}

# Decimal digits have more sums and carries, so the recipe is that of long multiplication. Batches
# of 32 problems learn nearly as much in a step as those of 64.
DECIMAL_GRID: Setting = {
    **LONG_MULTIPLICATION,
    "layout": GRID["layout"],
    "training.batch_size": 32,
    "training.steps": 1500,
}


@record("addition", "sums, trained on 1 to 5 digits")
def addition() -> dict[str, Trial]:
    tests = {5: 1000, 20: 1000, 100: 1000, 1000: 100, 10_000: 100, 100_000: 20, 1_000_000: 100}
    goals = {100: 1.0, 1000: 1.0, 1_000_000: 1.0}
    stress_tests = {5: 200, 20: 200, 100: 50, 1000: 3, 1_000_000: 1}
    return {"sum": Trial(SUM, tests, goals, stress_tests)}


@record("smallest", "sums by small models, trained on 1 to 5 digits")
def smallest() -> dict[str, Trial]:
    """How few parameters are enough: heads of width 1, and a feed-forward width of twice that."""
    tests = {5: 1000, 20: 1000, 100: 1000, 1000: 20, 1_000_000: 1}
    stress_tests = {5: 100, 20: 100, 100: 20}

    def trial(width: int) -> Trial:
        sizes = {"model.width": width, "model.heads": width, "model.feedforward_width": 2 * width}
        longer = {"training.steps": 8000, "training.learning_rate": 0.01}
        return Trial({**SUM, **sizes, **longer}, tests, stress_tests=stress_tests)

    return {f"width {width}": trial(width) for width in (8, 6, 5, 4)}


@record("multiplication", "products of long numbers, trained on 1 to 5 digits by 1 to 3")
def multiplication() -> dict[str, Trial]:
    tests = {5: 1000, 10: 1000, 20: 1000, 50: 300, 100: 100, 200: 20, 500: 5, 1000: 1}
    goals = {20: 1.0, 50: 1.0, 100: 1.0, 200: 1.0, 500: 1.0}
    stress_tests = {5: 100, 20: 20, 50: 5, 100: 2, 200: 1, 500: 1}
    return {"n×n": Trial(LONG_MULTIPLICATION, tests, goals, stress_tests, "same")}


@record("operands", "sums of many numbers, trained on 3 numbers of 1 to 5 digits")
def operands() -> dict[str, Trial]:
    tests, stress_tests = {5: 1000, 30: 1000, 100: 100}, {5: 20, 30: 5, 100: 1}
    tests_by_count = dict.fromkeys((2, 3, 4, 10, 30), tests)
    tests_by_count[100] = {5: 100, 30: 100, 100: 20}  # of 10,000 digits each
    return {
        f"{count} numbers": Trial(RUNNING_SUMS, lengths, {30: 1.0}, stress_tests, operands=count)
        for count, lengths in tests_by_count.items()
    }


@record("grid", "binary products on a grid, trained on 1 to 5 bits by 1 to 5")
def grid() -> dict[str, Trial]:
    tests = {5: 1000, 10: 1000, 20: 1000, 50: 100, 100: 20, 200: 5, 500: 1, 1000: 1}
    goals = {20: 1.0, 100: 1.0, 1000: 1.0}
    stress_tests = {5: 100, 20: 20, 100: 2}
    return {"n×n": Trial(GRID, tests, goals, stress_tests, "same")}


@record("decimal-grid", "products on a grid, trained on 1 to 5 digits by 1 to 3")
def decimal_grid() -> dict[str, Trial]:
    tests = {5: 1000, 10: 1000, 20: 1000, 50: 50, 100: 20, 200: 5, 500: 1}
    goals = {20: 1.0, 100: 1.0, 200: 1.0}
    stress_tests = {5: 100, 20: 20, 100: 2}
    return {"n×n": Trial(DECIMAL_GRID, tests, goals, stress_tests, "same")}


def find_record(name: str) -> LengthRecord:
    if name not in RECORDS:
        raise UsageError(f"there is no record '{name}': {nearest(name, RECORDS)}")
    return RECORDS[name]
