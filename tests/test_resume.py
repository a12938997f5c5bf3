"""A run killed at any moment and resumed ends bit-identical to one never interrupted."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from worker import work

from lengthwise.base import UsageError
from lengthwise.base.tensors import unpack_tensors
from lengthwise.problems.training_set import Examples
from lengthwise.training import keys, loop
from lengthwise.training.locks import InUse
from lengthwise.training.loop import batches, sample_padding, train
from lengthwise.training.runs import CHECKPOINT, Run

SETTINGS: dict[str, Any] = {
    "model.preset": "tiny",
    "data.priming": "8=20",
    "data.test_digits": 8,
    "training.steps": 300,
    "training.batch_size": 16,
    "training.log_every": 7,
    "training.checkpoint_every": 10,
    "evaluation.every": 25,
    "evaluation.examples": 40,
    "evaluation.final_examples": 60,
}
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["lengthwise.training.api", "torch._dynamo"])  # slow imports
Outcome = tuple[bytes, bytes, dict[str, Any]]


def outcome(run: Path) -> Outcome:
    """All that training leaves, but for the time it took."""
    result = json.loads((run / "result.json").read_text())
    del result["seconds"]
    return (run / "model.safetensors").read_bytes(), (run / "metrics.jsonl").read_bytes(), result


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    return unpack_tensors(path.read_bytes(), path)


def start(root: Path, changes: dict[str, Any]) -> BaseProcess:
    process = PROCESSES.Process(target=work, args=({**SETTINGS, **changes}, root))
    process.start()
    return process


def finish(root: Path, changes: dict[str, Any]) -> Outcome:
    process = start(root, changes)
    process.join()
    assert process.exitcode == 0
    return outcome(root / "run")


def wait_for_change(path: Path, process: BaseProcess) -> None:
    """Until a file is written, or the process has ended."""

    def written() -> int | None:
        return path.stat().st_mtime_ns if path.exists() else None

    before = written()
    while process.is_alive() and written() == before:
        time.sleep(0.005)


@pytest.mark.parametrize(
    "changes",
    [
        {"training.optimizer": "adamw"},
        {
            "training.optimizer": "muon",
            "training.ema": 0.99,
            "model.dropout": 0.1,
            "data.mixture": {"zeros": 0.3},
        },
    ],
    ids=["adamw", "muon-average-dropout-mixture"],
)
def test_killed_at_random_moments(changes: dict[str, Any], tmp_path: Path) -> None:
    rng = random.Random(0)
    checkpoint = tmp_path / "killed" / "run" / "checkpoint.safetensors"
    for _ in range(3):
        process = start(tmp_path / "killed", changes)
        wait_for_change(checkpoint, process)  # every session gets further than the one before
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it ended before it was killed"
    assert finish(tmp_path / "killed", changes) == finish(tmp_path / "whole", changes)
    sessions = json.loads((tmp_path / "killed" / "run" / "environment.json").read_text())
    steps = [session["step"] for session in sessions["sessions"]]
    assert len(steps) == 4
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_step_and_saves(number: signal.Signals, tmp_path: Path) -> None:
    """The checkpoint is of the step that was running, not of the last regular one."""
    changes = {"training.checkpoint_every": 1000}
    process = start(tmp_path / "stopped", changes)
    wait_for_change(tmp_path / "stopped" / "run" / "metrics.jsonl", process)
    time.sleep(0.1)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == 130
    _, metadata = read_tensors(tmp_path / "stopped" / "run" / "checkpoint.safetensors")
    assert 0 < int(metadata["step"]) < 300
    assert finish(tmp_path / "stopped", changes) == finish(tmp_path / "whole", changes)


def small(root: Path, name: str = "run", **changes: Any) -> Run:
    """A run of 40 steps: `model__width=8` is model.width."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    fields = {**SETTINGS, "training.steps": 40, **dotted}
    return Run.create(keys.load(None, fields), root, name)


def advance(run: Run, step: int) -> None:
    """Train to a step and stop there, as a kill would."""
    steps = train(run)
    assert next(progress.step for progress in steps if progress.step >= step) == step
    with patch.object(loop, "save_checkpoint"):  # which leaving the loop early would call
        steps.close()  # type: ignore[attr-defined]


def test_ctrl_c_stops_the_final_test_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = small(tmp_path, "whole"), small(tmp_path, "stopped")
    list(train(whole))
    blocks = loop.final_test_set

    def interrupt(experiment: Any, length: int) -> Iterator[Examples]:
        for block in blocks(experiment, length):
            os.kill(os.getpid(), signal.SIGINT)
            yield block

    with monkeypatch.context() as patch:
        patch.setattr(loop, "final_test_set", interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(train(stopped))
    assert stopped.result is None
    list(train(stopped))
    assert outcome(stopped.path) == outcome(whole.path)


def test_half_written_files_do_no_harm(tmp_path: Path) -> None:
    """A kill while writing leaves parts behind, which are neither read nor in the way."""
    whole, killed = small(tmp_path, "whole"), small(tmp_path, "killed")
    list(train(whole))
    advance(killed, 25)
    (killed.path / ".checkpoint.safetensors.partial").write_bytes(b"half")
    with open(killed.path / "metrics.jsonl", "a") as metrics:
        metrics.write('{"step": 99, "lo')
    list(train(killed))
    assert outcome(killed.path) == outcome(whole.path)


def test_a_run_in_use_is_left_alone(tmp_path: Path) -> None:
    run = small(tmp_path)
    steps = train(run)
    next(steps)
    assert run.status == "running"
    with pytest.raises(InUse, match="in use by another process"):
        list(train(Run(run.path)))
    steps.close()  # type: ignore[attr-defined]
    assert Run(run.path).status == "interrupted"


VARIED: dict[str, Any] = {
    "data.train_digits": 3,
    "data.test_digits": 6,
    "data.priming": "6=5",
    "layout": {"kind": "fitted", "extra_padding": 3},
    "model.depth": {"kind": "until-stable", "extra_layers": 2},
    "training.steps": 24,
    "training.batch_size": 8,
    "training.log_every": 5,
    "training.checkpoint_every": 7,
    "evaluation.every": 9,
    "evaluation.examples": 10,
    "evaluation.final_examples": 20,
}
RANDOMISED = {"kind": "randomised", "inner": "rope", "reach": 64}
BY_POSITION = {"model.attention": "positional", "model.position": {"kind": "fire"}}


@pytest.mark.parametrize(
    "changes",
    [
        {"model.position": RANDOMISED, "model.depth.stable_for": 2},
        {
            "model.position": {"kind": "abacus", "offset": 9},
            "model.dropout": 0.1,
            "model.depth.reinject_input": True,
            "training.optimizer": "muon",
        },
        {
            "model.position": {"kind": "coupled", "offset": 9},
            "model.attention": "local",
            "training.clip": None,
            "data.mixture": {"carry-chains": 0.3, "repeated-digits": 0.3},
        },
        {**BY_POSITION, "layout.order": "least-significant-first", "precision": "bfloat16"},
        {
            "model.encoder": "transformer",
            "model.depth": "fixed",
            "layout": "paper",
            "model.attention_dropout": 0.2,
            "training.schedule": "constant",
            "data.priming_second": "fixed",
        },
        {
            "task": {"kind": "multiplication", "second_digits": 2},
            "layout": {"kind": "long-multiplication", "extra_padding": 2},
            "data.priming": "",
            "model.position": {"kind": "relative-bias", "coordinate": "significance", "clip": 2},
        },
    ],
    ids=["randomised", "abacus-muon", "coupled", "positional-bfloat16", "transformer", "product"],
)
def test_random_draws_are_the_same_when_resumed(changes: dict[str, Any], tmp_path: Path) -> None:
    """Stopped between checkpoints, and PyTorch's own generator is used meanwhile."""
    experiment = keys.load(None, {"model.preset": "tiny", **VARIED, **changes})
    outcomes = []
    stops: dict[str, tuple[int, ...]] = {"whole": (), "stopped": (3, 10, 20)}
    for name, steps in stops.items():
        run = Run.create(experiment, tmp_path, name)
        for step in steps:
            advance(run, step)
            torch.randn(step)
        states = {bytes(torch.get_rng_state().tolist()) for _ in train(run)}
        assert len(states) == 1, "training used PyTorch's own generator"
        outcomes.append(outcome(run.path))
    assert outcomes[0] == outcomes[1]


def test_fine_tuning_resumes(tmp_path: Path) -> None:
    """From the checkpoint, and no longer from the other run, which may be gone."""
    origin = small(tmp_path, "origin")
    list(train(origin))
    runs = [
        small(tmp_path, name, start_from=str(origin.path), seed=1) for name in ("whole", "stopped")
    ]
    list(train(runs[0]))
    advance(runs[1], 25)
    shutil.rmtree(origin.path)
    list(train(Run(runs[1].path)))
    assert outcome(runs[0].path) == outcome(runs[1].path)


@pytest.mark.parametrize(
    ("optimizer", "kept"),
    [("adamw", {"step", "exp_avg", "exp_avg_sq"}), ("muon", {"momentum"})],
)
def test_a_checkpoint_has_the_optimisers_state(
    optimizer: str, kept: set[str], tmp_path: Path
) -> None:
    """A run that goes on with another state, or without one, ends elsewhere or not at all."""
    run = small(tmp_path, training__optimizer=optimizer)
    advance(run, 15)
    tensors, _ = read_tensors(run.checkpoint)
    prefix = "optimizer.encoder.layers.0.widen.weight."
    state = {name.removeprefix(prefix): tensors[name] for name in tensors if prefix in name}
    assert state.keys() == kept
    assert all(tensor.any() for tensor in state.values())
    parameters = {name.removeprefix("model.") for name in tensors if name.startswith("model.")}
    assert all(any(name.startswith(f"optimizer.{p}.") for name in tensors) for p in parameters)
    other = small(tmp_path, "other", training__optimizer=optimizer, seed=1)
    with other.locked():
        other.write({CHECKPOINT: run.checkpoint.read_bytes()})
    with pytest.raises(UsageError, match="is damaged or belongs to another experiment"):
        list(train(other))


def padding_and_layers(changes: dict[str, Any] | None = None) -> list[tuple[int, int]]:
    """Of each step."""
    experiment = keys.load(None, {"model.preset": "tiny", **VARIED, **(changes or {})})
    experiment = experiment.model_copy(
        update={"training": experiment.training.model_copy(update={"steps": 60})}
    )
    layers = [layers for _, layers in batches(experiment, experiment.build(), 0)]
    return list(zip([sample_padding(experiment, step) for step in range(60)], layers, strict=True))


def test_padding_and_layers_are_drawn_independently() -> None:
    """They depend on the seed and the step only, not on whether the other one is drawn."""
    both = padding_and_layers()
    no_padding, no_layers = {"layout.extra_padding": 0}, {"model.depth.extra_layers": 0}
    assert set(both) == {(padding, layers) for padding in range(4) for layers in (2, 3, 4)}
    assert both == padding_and_layers() != padding_and_layers({"seed": 1})
    assert [p for p, _ in both] == [p for p, _ in padding_and_layers(no_layers)]
    assert [n for _, n in both] == [n for _, n in padding_and_layers(no_padding)]
    assert set(padding_and_layers({**no_padding, **no_layers})) == {(0, 2)}


def test_a_replaced_directory_is_not_written_to(tmp_path: Path) -> None:
    replaced = train(small(tmp_path))
    for _ in range(12):  # it has a checkpoint
        next(replaced)
    shutil.rmtree(tmp_path / "run")
    other = small(tmp_path, seed=1)
    list(train(other))
    before = outcome(other.path)
    with pytest.raises(UsageError, match="was deleted or replaced by another process"):
        list(replaced)
    assert outcome(other.path) == before


def test_metrics_that_lost_lines_are_refused(tmp_path: Path) -> None:
    run = small(tmp_path)
    advance(run, 32)
    metrics = run.path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(UsageError, match=r"metrics\.jsonl is damaged: its checksum"):
        list(train(run))


@pytest.mark.parametrize(("first", "kept"), [(0, ""), (15, "the last checkpoint is kept, and ")])
def test_divergence_stops_a_run_before_it_spoils_the_checkpoint(
    first: int, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learning rate is far too high from the first step on, or from a later one."""

    def rate(config: Any, step: int, steps: int) -> float:
        return 1e-3 if step < first else 1e38

    monkeypatch.setattr(loop, "learning_rate", rate)
    run = small(tmp_path)
    with pytest.raises(UsageError, match=rf"stopped: .* at step \d+; {kept}a smaller"):
        list(train(run))
    assert run.status == "failed"
    assert run.checkpoint.exists() == bool(kept)
    if kept:
        tensors, metadata = read_tensors(run.checkpoint)
        assert metadata["step"] == "10"
        assert all(tensor.isfinite().all() for tensor in tensors.values())
