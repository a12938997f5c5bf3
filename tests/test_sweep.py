"""Many runs at once: finished, dependent, failing and killed ones, and Ctrl-C."""

import importlib
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from many_runs import wait_until

import lengthwise
from lengthwise.base import UsageError
from lengthwise.base.extensions import import_file
from lengthwise.model.positions import POSITIONS
from lengthwise.sweep import ENGINES, Job, Local, build_engine, find_engine, local, run_all
from lengthwise.sweep.work import train_job
from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.loop import Progress
from lengthwise.training.runs import Run

QUICK = {
    "model.preset": "tiny",
    "training.steps": 5,
    "evaluation.examples": 10,
    "evaluation.final_examples": 10,
}
# A shell starts background jobs, and so their children, with Ctrl-C ignored.
SCRIPT = """
import signal
import sys
from lengthwise.sweep import Local, run_all
from lengthwise.training.display import Display
from lengthwise.training.runs import Run

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    list(run_all([Run(path) for path in sys.argv[1:]], Local(2), Display()))
"""
# Prints which signals each worker blocks from its start on.
WORKERS = """
import re
from pathlib import Path
from lengthwise.sweep import Local

class Job:
    path = "nowhere"
    class experiment:
        device, threads = "cpu", 1

if __name__ == "__main__":
    engine = Local(2)
    engine.submit([[Job], [Job]])
    for worker in engine.workers:
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
        print(re.search(r"SigBlk:\\s*(\\w+)", status)[1])
    engine.stop()
"""
# A notebook: its class is in no file.
NOTEBOOK = """
from lengthwise.arithmetic.tasks import TASKS, Addition
import lengthwise

@TASKS.register("sum-of-mine")
class Mine(Addition):
    pass

result = lengthwise.sweep(
    {"task": "sum-of-mine", **%r}, grid={"seed": [0, 1]}, root=%r, progress=False
)
print(*[record["status"] for record in result])
try:
    lengthwise.sweep({"task": "sum-of-mine", **%r}, grid={"seed": [2]}, root=%r, on="ray")
except lengthwise.UsageError as error:
    print(error)
"""
OWN_POSITION = """
from lengthwise.model.positions import POSITIONS
from lengthwise.model.positions.rope import Rope

@POSITIONS.register("half-rope")
class HalfRope(Rope):
    pass
"""


def create(root: Path, **changes: Any) -> Run:
    fields = {key.replace("__", "."): value for key, value in changes.items()}
    return Run.create(keys.load(None, {**QUICK, **fields}), root)


def test_engines_are_found_by_name() -> None:
    assert find_engine("local") is ENGINES["local"] is Local
    with pytest.raises(UsageError, match=r"no engine 'locl': did you mean 'local'\?"):
        find_engine("locl")
    assert build_engine("local", 3).jobs == 3
    with pytest.raises(UsageError, match="--ray-address is an option of --on ray, but"):
        build_engine("local", None, {"ray": {"address": "auto"}})
    with pytest.raises(UsageError, match="at least 1 run is trained at a time, not 0"):
        list(run_all([], Local(0), Display()))


def test_dependent_runs_wait_and_failures_leave_the_rest_alone(tmp_path: Path) -> None:
    base = create(tmp_path)
    tuned = create(tmp_path, start_from=str(base.path), seed=1)
    diverging = create(tmp_path, training__learning_rate=1e38, training__warmup_steps=0)
    hopeless = create(tmp_path, start_from=str(diverging.path))
    too_large = create(tmp_path, model__width=10_000_000)  # more memory than there is
    not_included = create(tmp_path, seed=2)
    orphan = create(tmp_path, start_from=str(not_included.path))
    # A directory may come from another machine; the run is trained on the device it has here.
    moved = create(tmp_path, device="cuda", seed=3)
    moved.experiment = moved.experiment.model_copy(update={"device": "cpu"})

    grandchild = create(tmp_path, start_from=str(orphan.path))
    runs = [tuned, base, hopeless, diverging, too_large, grandchild, orphan, moved]
    ends = list(run_all(runs, Local(2), Display()))
    reasons = {run.path: reason or "" for run, reason in ends}
    assert len(reasons) == len(ends) == len(runs)
    assert reasons[base.path] == reasons[tuned.path] == reasons[moved.path] == ""
    assert "the loss is nan" in reasons[diverging.path]
    assert "which failed" in reasons[hopeless.path]
    assert "at least" in reasons[too_large.path]
    assert "which has not finished" in reasons[orphan.path]
    assert "which failed" in reasons[grandchild.path]
    assert (diverging.status, hopeless.status) == ("failed", "interrupted")
    order = [run.path for run, _ in ends]
    assert order.index(base.path) < order.index(tuned.path)

    before = (base.path / "model.safetensors").stat().st_mtime_ns
    assert [reason for _, reason in run_all([base, tuned], Local(2), Display())] == [None, None]
    assert (base.path / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_workers_save_when_the_sweep_is_stopped(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C reaches the parent, which waits for its workers; a killed parent can't wait."""
    script = tmp_path / "sweep.py"
    script.write_text(SCRIPT)
    changes = {"training__steps": 100_000, "training__checkpoint_every": 100_000}
    runs = [create(tmp_path / "runs", seed=seed, **changes) for seed in (0, 1)]
    parent = subprocess.Popen(
        [sys.executable, str(script), *(str(run.path) for run in runs)], stderr=subprocess.DEVNULL
    )
    wait_until(lambda: all(started(run) for run in runs) or parent.poll() is not None)
    assert parent.poll() is None
    os.kill(parent.pid, number)
    assert parent.wait(60) != 0
    if number == signal.SIGKILL:
        wait_until(lambda: all(run.status == "interrupted" for run in runs))
    for run in runs:
        assert run.status == "interrupted"
        assert run.checkpoint.exists()


def started(run: Run) -> bool:
    """Whether a run has trained some steps."""
    metrics = run.path / "metrics.jsonl"
    return metrics.exists() and metrics.stat().st_size > 0


def test_a_killed_worker_is_noticed_while_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes: dict[str, Any] = {}
    start = local.Worker.start

    def note_process(worker: local.Worker, job: Job) -> None:
        processes[job[0].path.name] = worker.process
        start(worker, job)

    class KillingDisplay(Display):
        def show(self, state: Progress) -> None:
            if state.run == doomed.path.name:
                processes[state.run].kill()

    monkeypatch.setattr(local.Worker, "start", note_process)
    doomed, other = (create(tmp_path, training__steps=5000, seed=seed) for seed in (0, 1))
    ends = run_all([doomed, other], Local(2), KillingDisplay())
    run, reason = next(ends)
    assert run.path == doomed.path
    assert reason == "its process ended with exit code -9"
    ends.close()  # type: ignore[attr-defined]  # a generator; the same as Ctrl-C
    assert other.status == "interrupted"
    assert other.checkpoint.exists()


def test_no_worker_ever_sees_ctrl_c(tmp_path: Path) -> None:
    """A terminal sends it to the whole group; one that is importing would print a traceback."""
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    masks = [int(word, 16) for word in done.stdout.split()]
    assert len(masks) == 2  # the first one starts multiprocessing's tracker, too
    assert all(mask >> (signal.SIGINT - 1) & 1 for mask in masks), done.stdout


@pytest.mark.parametrize("moment", range(4))
def test_ctrl_c_to_all_processes_while_workers_import(moment: int, tmp_path: Path) -> None:
    """No process prints a traceback, and none is left."""
    script = tmp_path / "sweep.py"
    call = SCRIPT.rpartition("\n    ")[2].strip()
    quiet = f"try:\n        {call}\n    except KeyboardInterrupt:\n        sys.exit(130)"
    script.write_text(SCRIPT.replace(call, quiet))
    runs = [create(tmp_path / "runs", seed=seed, training__steps=100_000) for seed in (0, 1)]
    command = [sys.executable, str(script), *(str(run.path) for run in runs)]
    parent = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    wait_until(lambda: len(children.read_text().split()) >= 2)  # of which one tracks resources
    time.sleep(0.2 * moment)
    started = children.read_text().split()
    os.killpg(parent.pid, signal.SIGINT)
    _, errors = parent.communicate(timeout=300)
    assert parent.returncode == 130, errors
    assert "Traceback" not in errors
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in started))


def test_a_run_that_another_sweep_trains_is_waited_for(tmp_path: Path) -> None:
    run = create(tmp_path)
    reasons: list[str | None] = []

    def wait_for_it() -> None:
        reasons.extend(train_job([run.path], "cpu", 1, patience=math.inf))

    other = threading.Thread(target=wait_for_it)
    with run.locked():
        assert "in use" in str(train_job([run.path], "cpu", 1))
        assert "in use" in str(train_job([run.path], "cpu", 1, print, math.inf, lambda: False))
        other.start()
        time.sleep(1.0)
        assert not reasons
    other.join()
    assert reasons == [None]
    assert run.status == "finished"


def test_a_class_of_a_notebook_is_swept_in_its_process(tmp_path: Path) -> None:
    code = NOTEBOOK % ((QUICK, str(tmp_path)) * 2)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    finished, refused = done.stdout.splitlines()
    assert finished == "finished finished"
    why = "the task sum-of-mine is defined in a notebook, where no other process can import it"
    assert f"{why}: this process trains one run after another" in done.stderr
    assert refused == f"{why}; write it to a file, and import that in the notebook"


def test_workers_import_the_files_of_own_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook may import a file by its own name; workers know it by its path."""
    file = tmp_path / "half_rope.py"
    file.write_text(OWN_POSITION)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LENGTHWISE_IMPORT", "")
    module = importlib.import_module("half_rope")
    assert import_file(file) is module
    try:
        fields = {**QUICK, "model.position": "half-rope"}
        result = lengthwise.sweep(fields, {"seed": [0]}, tmp_path / "runs", 1, progress=False)
        assert [record["failure"] for record in result] == [None]
    finally:
        del POSITIONS._classes["half-rope"]
