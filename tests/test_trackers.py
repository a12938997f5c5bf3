"""Trackers get what metrics.jsonl says: TensorBoard's event files, and wandb offline."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.base import UsageError
from lengthwise.cli.main import main
from lengthwise.training import trackers
from lengthwise.training.runs import Run

QUICK: dict[str, Any] = {
    "model.preset": "tiny",
    "training.steps": 6,
    "training.batch_size": 4,
    "training.log_every": 2,
    "evaluation.every": 3,
    "evaluation.lengths": [5, 6],
    "evaluation.examples": 4,
    "evaluation.final_lengths": [5],
    "evaluation.final_examples": 4,
}


def events(folder: Path) -> dict[str, dict[int, float]]:
    """The scalars of event files, by name and step."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (file,) = folder.glob("events.out.tfevents.*")
    read = accumulator.EventAccumulator(str(file))
    read.Reload()
    return {
        name: {event.step: event.value for event in read.Scalars(name)}
        for name in read.Tags()["scalars"]
    }


def expected(run: Run) -> dict[str, dict[int, float]]:
    """The same, from the run's own records."""
    values: dict[str, dict[int, float]] = {}
    for record in run.metrics:
        for name, value in trackers.scalars(record).items():
            values.setdefault(name, {})[record["step"]] = value
    for accuracy in (run.result or {})["evaluation"]:
        values[f"final/{accuracy['length']} digits"] = {6: accuracy["exact_match"]}
    return values


def test_tensorboard_has_the_runs_records(tmp_path: Path) -> None:
    """While it trains, and when its records are sent again afterwards."""
    pytest.importorskip("tensorboard")
    run = lengthwise.train(QUICK, tmp_path, "logged", progress=False, log="tensorboard")
    assert {"loss", "learning_rate", "exact_match/6 digits"} <= expected(run).keys()
    for _ in range(2):
        found = events(run.path / "tensorboard")
        assert found.keys() == expected(run).keys()
        for name, points in expected(run).items():
            assert found[name] == pytest.approx(points)
        assert main(["log", str(run.path), "--to", "tensorboard"]) == 0


def test_sweep_and_extend_send_their_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[Path, list[int]] = {}

    class Memory(trackers.Tracker):
        package = "json"

        def __init__(self, run: Run):
            self.steps = sent.setdefault(run.path, [])

        def write(self, step: int, values: Mapping[str, float]) -> None:
            self.steps.append(step)

        def close(self) -> None:
            self.steps.append(-1)

    monkeypatch.setitem(trackers.TRACKERS, "memory", Memory)
    fields = {**QUICK, "training.keep_optimizer": True}
    (swept,) = lengthwise.sweep([fields], None, tmp_path, on="inline", progress=False, log="memory")
    longer = lengthwise.extend(swept["run"], 2, root=tmp_path, progress=False, log="memory")
    assert [steps[-2:] for steps in sent.values()] == [[swept["steps"], -1], [2, -1]]
    assert list(sent) == [Path(swept["run"]), longer.path]


def test_wandb_offline_keeps_a_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    run = lengthwise.train(QUICK, tmp_path, "logged", progress=False)
    command = [sys.executable, "-m", "lengthwise", "log", str(run.path), "--to", "wandb"]
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    subprocess.run(command, env=environment, check=True, timeout=300)
    (file,) = run.path.glob("wandb/offline-run-*/*.wandb")
    assert run.identity[:16] in file.name
    content = file.read_bytes()
    assert b"exact_match/6 digits" in content
    assert b"final/5 digits" in content


def test_a_tracker_that_is_not_installed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs the package wandb: pip install 'lengthwise\[wan"):
        lengthwise.train(QUICK, tmp_path, log="wandb")
    assert not list(tmp_path.iterdir())


def test_trackers_are_imported_only_when_asked(tmp_path: Path) -> None:
    code = (
        "import sys, lengthwise.training.api\n"
        "assert not {'tensorboard', 'wandb', 'pandas', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_tracker_that_refuses_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(tracker: trackers.TensorBoard, run: Run) -> None:
        raise RuntimeError("No API key configured.")

    monkeypatch.setattr(trackers.TensorBoard, "__init__", refuse)
    words = ["train", "--model.preset", "tiny", "--training.steps", "5", "--log", "tensorboard"]
    assert main([*words, "--runs", str(tmp_path), "--name", "run"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        "lengthwise: tensorboard can't be used: No API key configured;"
        f" `lengthwise resume {tmp_path / 'run'}` goes on without it"
    )
    assert Run(tmp_path / "run").status == "interrupted"
