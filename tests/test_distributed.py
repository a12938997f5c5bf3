"""One run on two processes: as good as on one, also when one is killed and one goes on alone."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from many_runs import holders, sessions, wait_until
from slurm_here import free_port
from test_resume import advance

from lengthwise.base import UsageError
from lengthwise.base.files import read_json
from lengthwise.cli.main import main
from lengthwise.training import keys
from lengthwise.training.distributed import ALONE, Group
from lengthwise.training.loop import train
from lengthwise.training.runs import Run

SETTINGS: dict[str, Any] = {
    "model.preset": "tiny",
    "layout": "fitted",  # the layout of a batch depends on all its rows
    "data.priming": "8=20",
    "training.steps": 50,
    "training.batch_size": 15,  # which two processes can't share evenly
    "training.log_every": 20,
    "training.checkpoint_every": 10,
    "evaluation.every": 30,
    "evaluation.examples": 40,
    "evaluation.final_examples": 60,
}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]


def create(root: Path, name: str, **changes: Any) -> Run:
    fields = {key.replace("__", "."): value for key, value in changes.items()}
    return Run.create(keys.load(None, {**SETTINGS, **fields}), root, name)


def start(*words: str) -> subprocess.Popen[str]:
    command = [*TORCHRUN, "--master-port", str(free_port()), "-m", "lengthwise", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def assert_close(run: Run, other: Run) -> None:
    """The same to rounding: weights, losses, and how many answers were right."""
    own, others = (r.load().state_dict() for r in (run, other))
    assert own.keys() == others.keys()
    for name, tensor in own.items():
        if name.endswith("attention.key.bias"):
            # Softmax cancels it, so its gradient is rounding only, which AdamW makes full steps of.
            continue
        torch.testing.assert_close(tensor, others[name], rtol=0, atol=1e-6, msg=name)
    for mine, theirs in zip(run.metrics, other.metrics, strict=True):
        loss = pytest.approx(theirs.pop("loss", 0), abs=1e-6)
        assert mine.pop("loss", 0) == loss
        assert mine == theirs
    assert run.result is not None
    assert other.result is not None
    assert run.result["evaluation"] == other.result["evaluation"]


def test_two_processes_go_on_with_the_run_of_one(tmp_path: Path) -> None:
    alone, shared = create(tmp_path, "alone"), create(tmp_path, "shared")
    for _ in train(alone):
        pass
    advance(shared, 10)
    torchrun = start("resume", str(shared.path))
    printed, messages = torchrun.communicate(timeout=900)
    assert torchrun.returncode == 0, messages
    assert len(re.findall("^try it: ", printed, re.MULTILINE)) == 1  # one process prints
    assert_close(shared, alone)
    assert sessions(shared) == [0, 10]
    described = read_json(shared.path / "environment.json")["sessions"]
    assert [session.get("processes", 1) for session in described] == [1, 2]
    assert described[1]["computed by"] == described[0]["computed by"]


def test_one_process_goes_on_when_another_is_killed(tmp_path: Path) -> None:
    alone, shared = create(tmp_path, "alone"), create(tmp_path, "shared", training__steps=50)
    slow = str(Path(__file__).parent / "slow_steps.py")
    torchrun = start("resume", str(shared.path), "--import", slow)
    wait_until(shared.checkpoint.exists)
    (first,) = holders(shared)
    processes = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
    (other,) = {int(process) for process in processes} - {first}
    os.kill(other, signal.SIGKILL)
    _, messages = torchrun.communicate(timeout=900)
    assert torchrun.returncode != 0, messages
    assert shared.status in ("interrupted", "finished")
    for run in (shared, alone):
        for _ in train(run):
            pass
    assert_close(shared, alone)


def test_rows_are_shared_out() -> None:
    assert ALONE.rows(15) is None
    for size in (2, 3, 7):
        rows = []
        for rank in range(size):
            group = Group.__new__(Group)
            group.rank, group.size = rank, size
            rows += list(range(15))[group.rows(15) or slice(0)]
            with pytest.raises(
                UsageError, match=f"batch_size is {size - 1}, fewer than the {size}"
            ):
                group.rows(size - 1)
        assert rows == list(range(15))


def test_torchrun_trains_one_run_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    assert main(["runs"]) == 2
    assert "but not `lengthwise runs`" in capsys.readouterr().err


@pytest.mark.slow
def test_the_commands_of_the_docs(tmp_path: Path) -> None:
    from test_docs import DOCS, commands

    ours = [c for c in commands(DOCS / "cluster.md", elsewhere=True) if c.startswith("torchrun")]
    assert len(ours) >= 2
    for command in ours:
        words = [*TORCHRUN[:3], "--master-port", str(free_port()), *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
    assert Run(tmp_path / "runs" / "both").result is not None
