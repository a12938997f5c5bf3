"""Runs that tests of engines train, kill and compare with runs of one process."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from test_resume import outcome

from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.files import read_json
from lengthwise.training.loop import Progress, train
from lengthwise.training.runs import Run

LONG: dict[str, Any] = {
    "model.preset": "tiny",
    "training.steps": 1200,
    "training.batch_size": 16,
    "training.log_every": 10,
    "training.checkpoint_every": 40,
    "evaluation.every": 400,
    "evaluation.examples": 20,
    "evaluation.final_examples": 20,
}


def create(root: Path, **changes: Any) -> Run:
    fields = {key.replace("__", "."): value for key, value in changes.items()}
    return Run.create(keys.load(None, {**LONG, **fields}), root)


def assert_same_as_here(runs: Sequence[Run], root: Path) -> None:
    """Train the same experiments in this process, and compare all bits."""
    for run in runs:
        fields: dict[str, Any] = {}
        if run.experiment.start_from:
            fields["start_from"] = str(root / Path(run.experiment.start_from).name)
        own = Run.create(run.experiment.model_copy(update=fields), root)
        for _ in train(own):
            pass
        assert outcome(run.path) == outcome(own.path), run.path


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


def wait_until(condition: Callable[[], object], seconds: float = 240) -> None:
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
