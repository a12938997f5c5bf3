"""A run killed at any moment and resumed ends bit-identical to one never interrupted."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise.experiment import load
from lengthwise.runs import Run
from lengthwise.training import train, varied

LENGTHWISE = [sys.executable, "-m", "lengthwise"]
SETTINGS = {
    "model.preset": "tiny",
    "model.dropout": 0.1,
    "data.priming": "8=20",
    "data.test_digits": 8,
    "training.steps": 400,
    "training.batch_size": 16,
    "training.log_every": 7,
    "training.checkpoint_every": 10,
    "evaluation.every": 25,
    "evaluation.examples": 40,
    "evaluation.final_examples": 60,
}


def train_command(root: Path) -> list[str]:
    keys = [word for key, value in SETTINGS.items() for word in (f"--{key}", str(value))]
    return [*LENGTHWISE, "train", "--runs", str(root), "--name", "run", *keys]


def outcome(run: Path) -> tuple[bytes, bytes, dict]:
    result = json.loads((run / "result.json").read_text())
    del result["seconds"]
    return (run / "model.safetensors").read_bytes(), (run / "metrics.jsonl").read_bytes(), result


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    root = tmp_path_factory.mktemp("uninterrupted")
    subprocess.run(train_command(root), check=True, capture_output=True)
    return outcome(root / "run")


def start(root: Path) -> subprocess.Popen:
    return subprocess.Popen(train_command(root), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen) -> None:
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)


@pytest.mark.parametrize("luck", [1, 2])
def test_killed_at_random_moments(uninterrupted, tmp_path, luck):
    rng = random.Random(luck)
    metrics = tmp_path / "run" / "metrics.jsonl"
    for _ in range(4):
        before = metrics.stat().st_mtime_ns if metrics.exists() else None
        process = start(tmp_path)
        while process.poll() is None and (not metrics.exists() or metrics.stat().st_mtime_ns == before):
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        process.kill()
        process.communicate()
    assert not (tmp_path / "run" / "result.json").exists(), "it was never killed in the middle"
    subprocess.run(train_command(tmp_path), check=True, capture_output=True)
    assert outcome(tmp_path / "run") == uninterrupted
    assert len(json.loads((tmp_path / "run" / "environment.json").read_text())["sessions"]) > 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_signal_saves_and_says_how_to_go_on(uninterrupted, tmp_path, number):
    process = start(tmp_path)
    wait_for(tmp_path / "run" / "checkpoint.safetensors", process)
    os.kill(process.pid, number)
    _, told = process.communicate()
    assert process.returncode == 130
    assert f"go on with: lengthwise resume {tmp_path / 'run'}" in told
    assert "Traceback" not in told
    subprocess.run([*LENGTHWISE, "resume", str(tmp_path / "run")], check=True, capture_output=True)
    assert outcome(tmp_path / "run") == uninterrupted


def test_ctrl_c_stops_the_final_test_too(tmp_path):
    command = [*train_command(tmp_path), "--evaluation.final_examples", "1000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and '"step": 400' in metrics.read_text()):
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "saved; go on with" in told
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_checkpoint_is_whole_or_absent(tmp_path):
    """What a kill in the middle of writing leaves behind is neither read nor in the way."""
    process = start(tmp_path)
    wait_for(tmp_path / "run" / "checkpoint.safetensors", process)
    process.kill()
    process.communicate()
    (tmp_path / "run" / ".checkpoint.safetensors.partial").write_bytes(b"half")
    with open(tmp_path / "run" / "metrics.jsonl", "a") as metrics:
        metrics.write('{"step": 99, "lo')
    finished = subprocess.run([*LENGTHWISE, "resume", str(tmp_path / "run")], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)


def test_a_run_in_use_is_left_alone(tmp_path):
    process = start(tmp_path)
    wait_for(tmp_path / "run" / "checkpoint.safetensors", process)
    second = subprocess.run([*LENGTHWISE, "resume", str(tmp_path / "run")], capture_output=True, text=True)
    process.kill()
    process.communicate()
    assert second.returncode == 2
    assert "in use by another process" in second.stderr


VARIED = {
    "model.preset": "tiny",
    "data.train_digits": 3,
    "data.test_digits": 6,
    "layout.fitted": True,
    "data.padding": 3,
    "training.more_layers": 2,
    "training.steps": 24,
    "training.batch_size": 8,
    "training.log_every": 5,
    "training.checkpoint_every": 7,
    "evaluation.every": 9,
    "evaluation.examples": 10,
    "evaluation.final_examples": 20,
}


@pytest.mark.parametrize(
    ("position", "overrides"),
    [
        ({"kind": "randomised", "inner": "rope", "reach": 64}, {"model.patience": 2}),
        ({"kind": "abacus", "offset": 9}, {"model.dropout": 0.1, "model.recall": True}),
        ({"kind": "coupled", "offset": 9}, {"model.window": 1, "layout.answer_room": True}),
        ({"kind": "fire"}, {"model.patience": 1, "model.window": 2, "layout.order": "least-significant-first"}),
    ],
    ids=["randomised", "abacus", "coupled", "fire"],
)
def test_what_varies_from_batch_to_batch_varies_the_same_when_resumed(position, overrides, tmp_path):
    """Padding, layers, random positions: stopped between checkpoints, with other draws of torch's since."""
    experiment = load(overrides={**VARIED, "model.position": position, **overrides})
    outcomes = []
    for name, stops in [("whole", ()), ("stopped", (3, 10, 20))]:
        run = Run.create(experiment, tmp_path, name)
        for stop in stops:
            steps = train(run)
            assert next(progress.step for progress in steps if progress.step >= stop) == stop
            steps.close()
            torch.randn(stop)
        assert len({bytes(torch.get_rng_state()) for _ in train(run)}) == 1  # torch's own generator is left alone
        outcomes.append(outcome(run.path))
    assert outcomes[0] == outcomes[1]


def drawn(overrides: dict[str, Any] | None = None) -> list[tuple[int, int | None]]:
    """The padding and the layers of each step."""
    experiment = load(overrides={**VARIED, **(overrides or {})})
    return [varied(experiment, step) for step in range(60)]


def test_padding_and_layers_take_all_their_values_and_are_drawn_apart():
    """A step's draws depend on the seed and the step only: not on each other, nor on whether the other is drawn."""
    both, no_padding, no_layers = drawn(), {"data.padding": 0}, {"training.more_layers": 0}
    assert set(both) == {(padding, layers) for padding in range(4) for layers in (2, 3, 4)}
    assert both == drawn() != drawn({"seed": 1})
    assert [padding for padding, _ in both] == [padding for padding, _ in drawn(no_layers)]
    assert [layers for _, layers in both] == [layers for _, layers in drawn(no_padding)]
    assert set(drawn({**no_padding, **no_layers})) == {(0, 2)}


BY_POSITION = {"model.content": False, "model.position": "relative-bias"}


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"layout.fitted": False}, "data.padding needs a layout that is fitted: layout.fitted true"),
        ({"model.encoder": "transformer"}, "training.more_layers needs layers that are shared"),
        ({"data.train_operands": 3}, "data.train_operands is 3, but the task has 2 operands"),
        ({"model.read_rows": True, **BY_POSITION}, "model.read_rows needs rows: layout.long_multiplication true"),
        ({"data.padding": -1}, "data.padding is -1"),
        ({"training.more_layers": -1}, "training.more_layers is -1"),
    ],
)
def test_what_doesnt_go_together_is_told_in_a_sentence(overrides, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        load(overrides={**VARIED, **overrides})
    assert "\n" not in str(caught.value)


def small(root: Path, **settings: Any) -> Run:
    fields = {**SETTINGS, "training.steps": 40, **{key.replace("__", "."): value for key, value in settings.items()}}
    return Run.create(load(None, fields), root, "run")


def test_a_run_whose_directory_was_replaced_writes_nothing_into_the_other(tmp_path):
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


def test_metrics_that_lost_lines_are_not_gone_on_with(tmp_path):
    run = small(tmp_path)
    going = train(run)
    for _ in range(32):
        next(going)
    going.close()
    metrics = run.path / "metrics.jsonl"
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:2]))
    with pytest.raises(UsageError, match=r"is damaged: it has .* bytes up to step 30 instead of"):
        list(train(run))


def test_no_checkpoint_is_said_to_be_kept_where_there_is_none(tmp_path):
    run = small(tmp_path, training__learning_rate=1e38, training__warmup_steps=0, training__checkpoint_every=100)
    with pytest.raises(UsageError, match="stopped: the loss is nan at step 7; a smaller"):
        list(train(run))
