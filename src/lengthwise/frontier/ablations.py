"""Ablations: what remains of a record as help is taken away from its models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lengthwise.base import UsageError, nearest
from lengthwise.frontier.records import (
    LONG_MULTIPLICATION,
    RECORDS,
    SUM,
    LengthRecord,
    Setting,
    Trial,
)

WIDTH = "model.width"
SUM_TESTS = {5: 500, 10: 500, 20: 500, 100: 100, 1000: 20}
SHORT_SUM_TESTS = {5: 500, 10: 500, 20: 100}  # where a round costs the square of a length
PRODUCT_TESTS = {5: 200, 10: 200, 20: 100, 100: 2}


@dataclass(frozen=True)
class Ablation:
    """What replaces the keys of a record's setting, and the problems of each length."""

    changes: Setting
    tests: Mapping[int, int]


Ablations = Callable[[], dict[str, Ablation]]
ABLATIONS: dict[str, LengthRecord] = {}


def ablations(
    name: str, setting: Setting, second_digits: Literal["same", "as trained"] = "as trained"
) -> Callable[[Ablations], Ablations]:
    """Register a function that returns the ablations of a record by what they take away."""

    def register(changes: Ablations) -> Ablations:
        trials = {
            label: Trial(
                {**setting, **ablation.changes}, ablation.tests, second_digits=second_digits
            )
            for label, ablation in changes().items()
        }
        title = f"{RECORDS[name].title}: what remains as help is taken away"
        ABLATIONS[name] = LengthRecord(title, trials)
        return changes

    return register


def train_on(digits: int) -> Setting:
    lengths = {"evaluation.lengths": [digits], "evaluation.final_lengths": [digits]}
    return {"data.train_digits": digits, **lengths}


# Hidden vectors go from round to round, and attention reaches one column to either side.
HIDDEN_VECTORS: Setting = {
    "model.layers": 6,
    "model.attention": {"kind": "positional", "window": 1, "over": "significance"},
    "model.depth": {"kind": "until-stable", "extra_layers": 4, "reinject_input": True},
}
FULL_ATTENTION: Setting = {**HIDDEN_VECTORS, "model.attention": "full"}
PAPER_INPUT: Setting = {
    "layout.order": "most-significant-first",
    "model.position.coordinate": "index",
    "model.position.clip": 16,
}


@ablations("addition", SUM)
def sums() -> dict[str, Ablation]:
    kept: dict[str, Setting] = {
        "nothing": {},
        "carry chains and repeated digits": {"data.mixture": {}},
        "sums of 4 and 5 digits": train_on(3),
        "sums of 3 to 5 digits": train_on(2),
        "the second layer of a round": {"model.depth.layers_per_round": 1},
        "a quarter of the width (24)": {WIDTH: 24},
        "half of the width (16)": {WIDTH: 16},
        "symbols between rounds: hidden vectors": HIDDEN_VECTORS,
    }
    return {label: Ablation(changes, SUM_TESTS) for label, changes in kept.items()}


@ablations("multiplication", LONG_MULTIPLICATION, second_digits="same")
def products() -> dict[str, Ablation]:
    two_digits: Setting = {"task": {"kind": "multiplication", "second_digits": 2}}
    changes: dict[str, Setting] = {
        "nothing": {},
        "special problems in training": {"data.mixture": {}},
        "zeros and repeated digits": {"data.mixture": {"full-length": 0.5}},
        "Muon: AdamW": {"training.optimizer": "adamw"},
        "the third layer of a round": {"model.depth.layers_per_round": 2},
        "half of the width (32)": {WIDTH: 32},
        "5 × 3 digits: trained on 4 × 3": train_on(4),
        "5 × 3 digits: trained on 4 × 2": {**train_on(4), **two_digits},
        "5 × 3 digits: trained on 3 × 2": {**train_on(3), **two_digits},
    }
    return {label: Ablation(changed, PRODUCT_TESTS) for label, changed in changes.items()}


def find_ablations(name: str) -> LengthRecord:
    if name not in ABLATIONS:
        raise UsageError(f"there are no ablations of '{name}': {nearest(name, ABLATIONS)}")
    return ABLATIONS[name]
