"""Runs that tests of engines train, kill and compare with runs of one process."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from test_resume import outcome

from lengthwise.base.extensions import import_files
from lengthwise.base.files import read_json
from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.experiment import Experiment
from lengthwise.training.loop import Progress, data_seed, train
from lengthwise.training.optimizers import AdamWChoice
from lengthwise.training.runs import Run
from lengthwise.training.seeds import train_seeds

SLOW = Path(__file__).parent / "slow_steps.py"
SETTINGS: dict[str, Any] = {
    "model.preset": "tiny",
    "training.steps": 400,
    "training.optimizer": "slow-adamw",
    "training.batch_size": 8,
    "training.log_every": 5,
    "training.checkpoint_every": 10,
    "evaluation.every": 200,
    "evaluation.examples": 10,
    "evaluation.final_examples": 10,
}


def create(root: Path, **changes: Any) -> Run:
    """A run of 400 slow steps; `model__width=8` is model.width."""
    import_files([str(SLOW)])
    fields = {key.replace("__", "."): value for key, value in changes.items()}
    return Run.create(keys.load(None, {**SETTINGS, **fields}), root)


def create_seeds(root: Path) -> list[Run]:
    """Seeds that one batched model trains; a relu would turn rounding into more than that."""
    return [create(root, seed=n, training__steps=60, model__activation="gelu") for n in (0, 1)]


def assert_seeds_same_as_here(runs: Sequence[Run], root: Path) -> None:
    """Train the same as one batched model in this process, and compare weights to rounding.

    A kill between the checkpoints of two seeds leaves one behind. It catches up on its own.
    """
    same = [Run.create(with_plain_adamw(run), root) for run in runs]
    failures: dict[Run, str] = {}
    for _ in train_seeds(same, failures):
        pass
    assert not failures
    for run, other in zip(runs, same, strict=True):
        theirs = other.load().state_dict()
        for name, tensor in run.load().state_dict().items():
            if not name.endswith("attention.key.bias"):  # whose gradient is rounding only
                torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-5, msg=name)


def with_plain_adamw(run: Run) -> Experiment:
    """The run's experiment, without pauses."""
    training = run.experiment.training.model_copy(update={"optimizer": AdamWChoice()})
    return run.experiment.model_copy(update={"training": training})


def assert_same_as_here(runs: Sequence[Run], root: Path) -> None:
    """Train the same in this process, without pauses, and compare all bits."""
    own: dict[str, Path] = {}
    for run in runs:
        fields: dict[str, Any] = {}
        if run.experiment.start_from:
            fields["start_from"] = str(own[run.experiment.start_from])
        same = Run.create(with_plain_adamw(run).model_copy(update=fields), root)
        # A run that starts from another draws its batches by its identity.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("lengthwise.training.loop.data_seed", lambda _, run=run: data_seed(run))
            for _ in train(same):
                pass
        own[str(run.path.resolve())] = same.path.resolve()
        (*files, result), (*own_files, own_result) = outcome(run.path), outcome(same.path)
        assert files == own_files, run.path
        assert {**result, "identity": ""} == {**own_result, "identity": ""}


def sessions(run: Run) -> list[int]:
    """The steps at which sessions of a run began."""
    return [session["step"] for session in read_json(run.path / "environment.json")["sessions"]]


def holders(run: Run) -> list[int]:
    """The processes that are writing a run's metrics."""
    target = str((run.path / "metrics.jsonl").resolve())
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [os.readlink(file) for file in (process / "fd").iterdir()]
        except OSError:
            continue
        if target in files:
            found.append(int(process.name))
    return found


def wait_until(condition: Callable[[], object], seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


class ActingDisplay(Display):
    """Does something once, when a run has passed some steps."""

    def __init__(self, run: Run, step: int, act: Callable[[], object]):
        super().__init__(console=Console(file=open(os.devnull, "w")))  # noqa: SIM115
        self.name, self.step, self.act = run.path.name, step, act
        self.acted = False

    def show(self, state: Progress) -> None:
        if not self.acted and state.run == self.name and self.step <= state.step < state.steps:
            self.acted = True
            self.act()
