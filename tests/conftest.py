"""What all tests share: reproducible hypothesis, one thread, and the tasks that contracts cover."""

import os
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

from lengthwise.arithmetic.tasks import TASKS, Task
from lengthwise.base.extensions import VARIABLE, import_files

hypothesis.settings.register_profile(
    "reproducible", deadline=None, derandomize=True, database=None, max_examples=25
)
hypothesis.settings.load_profile("reproducible")
torch.set_num_threads(1)
import_files()  # the contract tests cover the files that LENGTHWISE_IMPORT names, too

# A script for an environment that has transformers, and a file whose import registers choices.
collect_ignore = ["parity.py", "own_choices.py", "slow_steps.py"]

OPTIONS: list[dict[str, Any]] = [
    {"kind": "addition", "operands": 12},
    {"kind": "modular-addition", "modulus": 1000, "constant_length": True},
    {"kind": "multiplication", "second_digits": 1},
    {"kind": "modular-multiplication", "modulus": 10**20, "second_digits": None},
]
TASK_OPTIONS: list[dict[str, Any]] = [*({"kind": kind} for kind in TASKS), *OPTIONS]


def label(value: object) -> str:
    """A test's id for options, in which `-k` finds the name of a choice."""
    return "-".join(map(label, value.values())) if isinstance(value, dict) else str(value)


@pytest.fixture(autouse=True)
def own_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a test imports are not passed on to the processes of other tests."""
    monkeypatch.setenv(VARIABLE, os.environ.get(VARIABLE, ""))


@pytest.fixture(params=TASK_OPTIONS, ids=label)
def task(request: pytest.FixtureRequest) -> Task:
    """Every registered task with its defaults, and some with other options."""
    options: Task = TASKS.parse(request.param)  # type: ignore[assignment]
    return options


@pytest.fixture(scope="session")
def trained_adder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the record's model, which adds numbers of any length after some seconds."""
    from lengthwise.frontier.records import SUM
    from lengthwise.training import api

    fields = {**SUM, "training.steps": 1000, "evaluation.final_examples": 50}
    return api.train(fields, root=tmp_path_factory.mktemp("runs"), progress=False).path
