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


# A digit attends by position alone, and only to digits of its own power of ten and the next ones.
# So the model learns one rule for all places. A carry moves on by one place with every iteration.
# Iterating until the answer is stable lets it go as far as it must.
LOCAL: Setting = {
    "layout": {"kind": "fitted", "order": "least-significant-first", "extra_padding": 2},
    "data.sampling": "uniform-length",
    "data.train_size": 100_000,
    "model.width": 64,
    "model.heads": 8,
    "model.layers": 5,
    "model.attention": {"kind": "positional", "window": 1, "over": "significance"},
    "model.depth": {
        "kind": "until-stable",
        "stable_for": 3,
        "reinject_input": True,
        "extra_layers": 4,
    },
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
    **LOCAL,
    "data.mixture": {"repeated-digits": 0.2, "carry-chains": 0.3},
    "training.steps": 5000,
}

# A row for each product by one digit, and one for each partial sum: a rule for each is learned.
LONG_MULTIPLICATION: Setting = {
    "task": {"kind": "multiplication", "second_digits": 3},
    **LOCAL,
    "layout": {"kind": "long-multiplication", "extra_padding": 2},
    "data.mixture": {"repeated-digits": 0.1, "zeros": 0.2},
    "model.layers": 6,
    "model.attention.discrete_rows": True,
    "model.depth.extra_layers": 8,
    "training.batch_size": 16,
    "training.steps": 24_000,
}


@record("addition", "sums, trained on 1 to 5 digits")
def addition() -> dict[str, Trial]:
    tests = {5: 1000, 20: 1000, 100: 1000, 1000: 1000, 10_000: 20}
    goals = {100: 0.995, 1000: 0.99}
    return {"sum": Trial(SUM, tests, goals, stress_tests={5: 200, 20: 200, 100: 100, 1000: 3})}


@record("multiplication", "products of long numbers, trained on 1 to 5 digits by 1 to 3")
def multiplication() -> dict[str, Trial]:
    tests, stress_tests = {5: 1000, 20: 1000, 35: 1000, 100: 1000}, {5: 100, 20: 100, 35: 100}
    goals: dict[int, dict[int, float]] = {1: {100: 0.99}, 2: {35: 0.9}, 3: {35: 0.9}}
    trials = {
        f"n×{digits}": Trial(LONG_MULTIPLICATION, tests, goals[digits], stress_tests, digits)
        for digits in goals
    }
    square_tests = {5: 1000, 10: 1000, 20: 1000, 35: 100, 50: 50, 100: 5}
    square = Trial(LONG_MULTIPLICATION, square_tests, {}, {5: 100, 10: 100, 20: 20}, "same")
    return {**trials, "n×n": square}


def find_record(name: str) -> LengthRecord:
    if name not in RECORDS:
        raise UsageError(f"there is no record '{name}': {nearest(name, RECORDS)}")
    return RECORDS[name]
