"""A run killed at any moment and resumed ends bit-identical to one never interrupted."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
