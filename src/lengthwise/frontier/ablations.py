"""Ablations: what remains of a record as help is taken away from its models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lengthwise.base import UsageError, nearest
from lengthwise.frontier.records import (
    GRID,
    LONG_MULTIPLICATION,
    RECORDS,
    SUM,
    LengthRecord,
    Setting,
    Trial,
)

WIDTH, HEADS, STEPS = "model.width", "model.heads", "training.steps"
SUM_TESTS = {5: 500, 10: 500, 20: 500, 100: 100, 1000: 20}
SHORT_SUM_TESTS = {5: 500, 6: 500, 10: 500, 20: 100}  # where a layer costs the square of a length
GRID_TESTS, SHORT_GRID_TESTS = {5: 500, 6: 500, 10: 500, 20: 100, 100: 2}, {5: 500, 6: 500}
PRODUCT_TESTS = {5: 200, 10: 200, 20: 100, 100: 2}
SLOW_PRODUCT_TESTS, SHORT_PRODUCT_TESTS = {5: 200, 10: 200, 20: 50}, {5: 200, 6: 200, 10: 50}


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


# Hidden vectors go from iteration to iteration; attention reaches one column to either side. There
# is no teacher forcing, and 1000 steps don't teach the trained length.
HIDDEN_VECTORS: Setting = {
    "training.optimizer": "muon",
    STEPS: 5000,
    "model.layers": 6,
    "model.attention": {"kind": "positional", "window": 1, "over": "significance"},
    "model.depth": {"kind": "until-stable", "extra_layers": 4, "reinject_input": True},
}
# Every token sees all others. Distances of up to 8 columns can be told apart.
FULL_ATTENTION: Setting = {
    **HIDDEN_VECTORS,
    "model.attention": "full",
    "model.position.clip": 8,
}
# The paper's input: fields of 20 places, the most significant digit first, no powers of ten. The
# digit to add is 21 places away. The window has room for it and for its neighbours.
PAPER_INPUT: Setting = {
    **HIDDEN_VECTORS,
    "layout": "paper",
    "data.test_digits": 20,
    "data.sampling": "problem-length",
    "model.attention": {"kind": "positional", "window": 22, "over": "index"},
    "model.position": {"kind": "relative-bias", "coordinate": "index", "strength": 16},
}


@ablations("addition", SUM)
def sums() -> dict[str, Ablation]:
    long: dict[str, Setting] = {
        "nothing": {},
        "carry chains and repeated digits": {"data.mixture": {}},
        "sums of 4 and 5 digits": train_on(3),
        "sums of 3 to 5 digits": train_on(2),
        "the second layer of a round": {"model.depth.layers_per_round": 1},
        "a quarter of the width (24)": {WIDTH: 24},
        "half of the width (16)": {WIDTH: 16},
        "half of the width (16), 4000 steps": {WIDTH: 16, STEPS: 4000},
        "symbols between rounds: hidden vectors, 5000 steps": HIDDEN_VECTORS,
    }
    short: dict[str, Setting] = {
        "symbols and two columns: full attention, 5000 steps": FULL_ATTENTION,
        "symbols and alignment: the paper's input, 22 places, 5000 steps": PAPER_INPUT,
    }
    return {
        **{label: Ablation(changes, SUM_TESTS) for label, changes in long.items()},
        **{label: Ablation(changes, SHORT_SUM_TESTS) for label, changes in short.items()},
    }


@ablations("multiplication", LONG_MULTIPLICATION, second_digits="same")
def products() -> dict[str, Ablation]:
    two_digits: Setting = {"task": {"kind": "multiplication", "second_digits": 2}}
    hidden_vectors: Setting = {**HIDDEN_VECTORS, "training.batch_size": 32}
    full_attention: Setting = {
        **hidden_vectors,
        **FULL_ATTENTION,
        "model.position.row_clip": 8,  # rows that are as far apart can be told apart
    }
    fast: dict[str, Setting] = {
        "nothing": {},
        "special problems in training": {"data.mixture": {}},
        "zeros and repeated digits": {"data.mixture": {"full-length": 0.5}},
        "the third layer of a round": {"model.depth.layers_per_round": 2},
        "half of the width (32)": {WIDTH: 32},
        "half of the width (32), 4000 steps": {WIDTH: 32, STEPS: 4000},
        "5 × 3 digits: trained on 4 × 3": train_on(4),
        "5 × 3 digits: trained on 4 × 2": {**train_on(4), **two_digits},
        "5 × 3 digits: trained on 3 × 2": {**train_on(3), **two_digits},
    }
    slow: dict[str, Setting] = {
        "symbols between rounds: hidden vectors, 5000 steps": hidden_vectors,
        "symbols and targets of rows: the answer alone, 5000 steps": {
            **hidden_vectors,
            "layout.targets": "answer",
        },
    }
    return {
        **{label: Ablation(changes, PRODUCT_TESTS) for label, changes in fast.items()},
        **{label: Ablation(changes, SLOW_PRODUCT_TESTS) for label, changes in slow.items()},
        "symbols and two columns: full attention, 5000 steps": Ablation(
            full_attention, SHORT_PRODUCT_TESTS
        ),
    }


# The whole grid is seen as a sequence. Wei (arXiv 2603.29069) reports that such models fail.
# A trial was still learning the trained length when it was stopped after a quarter of this.
WHOLE_GRID: Setting = {
    WIDTH: 64,
    "training.optimizer": "muon",
    "training.batch_size": 32,
    STEPS: 4000,
    "model.layers": 6,
    "model.attention": "full",
    "model.depth": "fixed",
    "model.position": "relative-key",
}


@ablations("grid", GRID, second_digits="same")
def grids() -> dict[str, Ablation]:
    return {
        "nothing": Ablation({}, GRID_TESTS),
        "problems of full length": Ablation({"data.mixture": {}}, GRID_TESTS),
        "half of the width (16)": Ablation({WIDTH: 16}, GRID_TESTS),
        "columns and symbols: full attention over a sequence": Ablation(
            WHOLE_GRID, SHORT_GRID_TESTS
        ),
    }


def find_ablations(name: str) -> LengthRecord:
    if name not in ABLATIONS:
        raise UsageError(f"there are no ablations of '{name}': {nearest(name, ABLATIONS)}")
    return ABLATIONS[name]
