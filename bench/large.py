"""A sweep of 10,000 runs on Ray, whose training is a stand-in that sleeps: `make bench-large`.

One task in a hundred kills its worker. It prints what the driver needs for a run, in time and in
memory, and how much CPU time commands take with so many directories. Where a disk syncs slowly,
`--folder` in memory (/dev/shm) keeps it from being measured instead. `python bench/large.py
commands` leaves the sweep out: it finishes the runs itself.
"""

import argparse
import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from lengthwise.base.files import to_json
from lengthwise.sweep import run_all
from lengthwise.sweep.ray import Ray
from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.runs import RESULT, Run

SECONDS = 0.02  # of sleep, instead of training
SETTINGS = {"model.preset": "tiny", "training.steps": 1}


def sleep(paths: list[str], device: str, threads: int, patience: float) -> list[str | None]:
    """Instead of `train_job`: sleep, and finish the run; the first attempt of some is killed."""
    (run,) = map(Run, paths)
    with run.locked(patience):
        if run.result is not None:
            return [None]
        attempts = run.path / "attempts"
        with open(attempts, "a") as file:
            file.write("x")
        time.sleep(SECONDS)
        if is_doomed(run) and attempts.stat().st_size == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        finish(run)
    return [None]


def finish(run: Run) -> None:
    run.write({RESULT: to_json({"identity": run.identity, "evaluation": []})})


class SleepingRay(Ray):
    """Ray, with the stand-in for training."""

    work = staticmethod(sleep)


def is_doomed(run: Run) -> bool:
    return int(hashlib.sha256(run.path.name.encode()).hexdigest(), 16) % 100 == 0


def measure_sweep(count: int, root: Path, jobs: int) -> dict[str, Any]:
    """What a sweep on Ray needs, and whether anything was lost or done twice."""
    goes_on = root.exists()
    runs, created = timed(lambda: [create(seed, root) for seed in range(count)])
    engine = SleepingRay(jobs)
    engine.start(runs)  # Ray, which is not part of the time of a run
    before, cpu_before = memory(), time.process_time()
    display = Display(console=Console(file=open(os.devnull, "w")))  # noqa: SIM115
    unfinished = sum(run.result is None for run in runs)
    ends, swept = timed(lambda: list(run_all(runs, engine, display)))
    cpu = time.process_time() - cpu_before
    attempts = {run.path: (run.path / "attempts").stat().st_size for run in runs}
    doomed = {run.path for run in runs if is_doomed(run)}
    again = {path for path, n in attempts.items() if n > 1}
    assert all(reason is None for _, reason in ends), next(end for end in ends if end[1])
    assert len({run.path for run, _ in ends}) == len(ends) == count
    # A sweep that was killed itself has cut off what was active then.
    expected = doomed | again if goes_on else doomed
    assert again == expected, "a run was trained twice without reason"
    return {
        "runs": count,
        "of which this sweep finished": unfinished,
        "killed workers": len(doomed),
        "lost runs": 0,
        "jobs": jobs,
        "creation, ms a run": 1000 * created / count,
        "sweep, seconds": swept,
        "sweep, ms a run beyond its sleep": 1000 * (swept / max(1, unfinished) - SECONDS / jobs),
        "sweep, ms a run of the driver's CPU": 1000 * cpu / max(1, unfinished),
        "driver's memory before, MB": before,
        "driver's memory after, MB": memory(),
    }


def measure_commands(count: int, root: Path, jobs: int) -> dict[str, Any]:
    """How much CPU time commands take with so many finished runs."""
    for run in (create(seed, root) for seed in range(count)):
        if run.result is None:
            with run.locked():
                finish(run)
    folders = ("--runs", str(root))
    report = ("paper", "report", "--scale", "smoke", "--results", str(root.parent / "results"))
    return {
        "runs in the directory": count,
        "import torch, seconds of CPU": command_seconds("-c", "import torch"),
        **{
            f"{' '.join(words[:2])}, seconds of CPU": command_seconds(
                "-m", "lengthwise", *words, *folders
            )
            for words in (("runs",), ("runs", "--json"), ("compare",), report)
        },
    }


def create(seed: int, root: Path) -> Run:
    return Run.create(keys.load(None, {**SETTINGS, "seed": seed}), root)


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    started = time.monotonic()
    return function(), time.monotonic() - started


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def command_seconds(*words: str) -> float:
    """The CPU time of a Python process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


PARTS = {"sweep": measure_sweep, "commands": measure_commands}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", help="where runs are kept; the same command goes on with them")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(chosen.folder or temporary) / "runs"
        for part in chosen.parts or PARTS:
            for name, value in PARTS[part](chosen.runs, root, chosen.jobs).items():
                shown = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
                print(f"{name:<36} {shown}", flush=True)
