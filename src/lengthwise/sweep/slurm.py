"""The engine of SLURM: a sweep is one job array, and a job goes on from its run's directory.

A job is a line of a file: which runs, on which device, with how many threads. Nothing is pickled.
So a job that SLURM starts again, a week later or on another node, knows only what directories say.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from lengthwise.sweep.engine import End, Engine, Job, engine, option
from lengthwise.sweep.follow import Follower
from lengthwise.sweep.work import train_job

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress
    from lengthwise.training.runs import Run

JOB = "job.json"  # in a run's directory: the job that trains it
FOLDER = ".slurm"  # beside the runs: lists of runs, and the logs of jobs
SECONDS_OF_POLL = 1.0
SECONDS_BETWEEN_QUESTIONS = 5.0  # to slurmctld, which many users ask
SECONDS_FOR_FILES = 60.0  # until files of another node show up on slow shared storage
PATIENCE = 120.0  # seconds in which a job that SLURM gave up leaves its run
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
TRAINING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
LOST = {"TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "unknown"}  # submitted again
FAILED = "lengthwise: "  # how the line of a log begins that says why a run failed


@engine("slurm")
@dataclass
class Slurm(Engine):
    """SLURM: one job array for a sweep; its jobs are requeued, and go on from their runs."""

    partition: str | None = option(None, "partition of the jobs", metavar="NAME")
    time: str | None = option(
        None, "time limit of a job, after which it goes on in another one", metavar="LIMIT"
    )
    notice: int = option(
        120, "seconds before the time limit at which a job saves (default: 120)", int, "SECONDS"
    )
    retries: int = option(
        3, "how often a run whose job was lost is submitted again (default: 3)", int, "NUMBER"
    )
    set: Sequence[str] = option(
        (), "any other option of sbatch, such as account=lab", metavar="KEY=VALUE", repeated=True
    )
    active: dict[str, list["Run"]] = field(default_factory=dict, init=False)  # by job, as in 12_3
    attempts: dict[Path, int] = field(default_factory=dict, init=False)
    missing: dict[str, float] = field(default_factory=dict, init=False)  # ended, result not seen
    follower: Follower = field(default_factory=Follower, init=False)
    asked: float = field(default=0.0, init=False)

    def check(self, runs: Sequence["Run"]) -> None:
        from lengthwise.base import UsageError

        if which("sbatch") is None:
            raise UsageError("--on slurm needs SLURM's commands, but there is no sbatch here")
        for text in self.set:
            if not text.partition("=")[0].strip("-"):
                raise UsageError(f"--slurm-set is {text!r}, but it should be as in account=lab")
        for name in ("notice", "retries"):
            if getattr(self, name) < 0:
                raise UsageError(f"--slurm-{name} is {getattr(self, name)}, but can't be negative")
        limit = seconds_of(self.time or "")
        if limit is not None and limit <= self.notice:
            raise UsageError(
                f"--slurm-time is {limit} seconds, but a job saves {self.notice} seconds before its"
                " limit; --slurm-notice changes that"
            )
        call("sinfo", "--noheader")

    def room(self, active: int) -> float:
        return float("inf")  # the array itself has a limit of tasks at a time

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submit the runs that no job of an earlier command has."""
        states = job_states()
        groups: dict[tuple[str, int], list[Job]] = {}
        for job in jobs:
            self.follower.add(job)
            new = []
            for run in job:
                number = read_job(run.path)
                if number is not None and states.get(number) in WAITING | TRAINING:
                    self.active.setdefault(number, []).append(run)
                else:
                    new.append(run)
            if new:
                key = (job[0].experiment.device, job[0].experiment.threads)
                groups.setdefault(key, []).append(new)
        size = most_tasks()
        for (device, threads), group in groups.items():
            for start in range(0, len(group), size):
                self.submit_array(group[start : start + size], device, threads)

    def submit_array(self, jobs: Sequence[Job], device: str, threads: int) -> None:
        from lengthwise.base.files import write_atomically, write_json

        folder = jobs[0][0].path.parent.resolve() / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        tasks = [[[str(run.path.resolve()) for run in job], device, threads] for job in jobs]
        file = folder / f"{time.time_ns()}.json"
        write_atomically(file, json.dumps(tasks).encode())
        script = self.script(file, len(jobs), device, threads)
        array = call("sbatch", "--parsable", text=script).strip().partition(";")[0]
        for number, runs in enumerate(jobs):
            job = f"{array}_{number}"
            fields = {"engine": self.name, "job": job, "log": str(folder / f"{job}.log")}
            for run in runs:
                write_json(run.path / JOB, fields)
            self.active[job] = list(runs)

    def script(self, file: Path, count: int, device: str, threads: int) -> str:
        """What sbatch gets; `exec` lets the notice of the time limit reach Python itself."""
        limit = "" if self.jobs is None else f"%{self.jobs}"
        options = {
            "job-name": "lengthwise",
            "array": f"0-{count - 1}{limit}",
            "output": f"{file.parent}/%A_%a.log",
            "open-mode": "append",
            "requeue": None,
            "signal": f"B:USR1@{self.notice}",
            "ntasks": 1,
            "cpus-per-task": threads,
            **({"gpus": 1} if device.startswith("cuda") else {}),
            **({"partition": self.partition} if self.partition else {}),
            **({"time": self.time} if self.time else {}),
        }
        for text in self.set:
            key, equals, value = text.lstrip("-").partition("=")
            options[key] = value if equals else None
        lines = [f"#SBATCH --{k}" + ("" if v is None else f"={v}") for k, v in options.items()]
        code = f"from lengthwise.sweep.slurm import work; work({str(file)!r})"
        command = shlex.join([sys.executable, "-c", code])
        return "\n".join(["#!/bin/sh", *lines, f"exec {command}", ""])

    def poll(self) -> Iterator["Progress | End"]:
        time.sleep(SECONDS_OF_POLL)
        yield from self.follower.look()
        if time.monotonic() - self.asked < SECONDS_BETWEEN_QUESTIONS:
            return
        self.asked = time.monotonic()
        try:
            states = job_states()
        except OSError:  # slurmctld is out of reach; the jobs don't need it
            return
        for job, runs in list(self.active.items()):
            state = states.get(job, "unknown")
            if state in WAITING | TRAINING:
                continue
            unfinished = [run for run in runs if run.result is None]
            if unfinished and self.may_be_late(job, state):
                continue
            del self.active[job]
            again = [run for run in unfinished if self.try_again(run, job, state)]
            if again:
                self.submit([again])
            for run in (run for run in runs if run not in again):
                yield from self.follower.end(run)
                yield End(run, None if run.result is not None else describe_end(run, job, state))

    def may_be_late(self, job: str, state: str) -> bool:
        """Whether a job ended well, but its files may not have shown up here yet."""
        first = self.missing.setdefault(job, time.monotonic())
        return state == "COMPLETED" and time.monotonic() - first < SECONDS_FOR_FILES

    def try_again(self, run: "Run", job: str, state: str) -> bool:
        """Whether to submit a run again, because its job was lost or killed."""
        attempts = self.attempts[run.path] = self.attempts.get(run.path, 0) + 1
        was_killed = state == "FAILED" and not reason_in_log(run, job)
        return (state in LOST or was_killed) and attempts <= self.retries

    def stop(self) -> None:
        jobs = list(self.active)
        for start in range(0, len(jobs), 500):
            call("scancel", *jobs[start : start + 500])
        self.active.clear()

    @classmethod
    def states(cls, paths: Iterable[Path]) -> dict[Path, str]:
        jobs = {path: job for path in paths if (job := read_job(path)) is not None}
        if not jobs or which("squeue") is None:
            return {}
        try:
            states = job_states()
        except OSError:
            return {}
        names = {**dict.fromkeys(WAITING, "queued"), **dict.fromkeys(TRAINING, "running")}
        found = {path: names.get(states.get(job, "")) for path, job in jobs.items()}
        return {path: state for path, state in found.items() if state}


class SlurmError(OSError):
    """A command of SLURM failed."""


def call(*words: str, text: str = "") -> str:
    """What a command of SLURM prints; if it fails, its own sentence is the reason."""
    from lengthwise.base import UsageError

    done = subprocess.run(words, input=text, capture_output=True, text=True)
    if done.returncode:
        reason = " ".join(done.stderr.split())
        raise UsageError(f"SLURM refuses `{words[0]}`: {reason}")
    return done.stdout


def seconds_of(limit: str) -> int | None:
    """A time limit as sbatch reads it; None if it is something else, such as UNLIMITED.

    >>> [seconds_of(text) for text in ("10", "10:30", "1:00:00", "1-0", "2-12:30", "UNLIMITED")]
    [600, 630, 3600, 86400, 217800, None]
    """
    days, dash, rest = limit.rpartition("-")
    numbers = rest.split(":")
    units = (3600, 60, 1) if dash or len(numbers) == 3 else (60, 1)
    if len(numbers) > len(units) or not all(n.isdecimal() for n in [*numbers, days or "0"]):
        return None
    return 86400 * int(days or 0) + sum(u * int(n) for u, n in zip(units, numbers, strict=False))


def job_states() -> dict[str, str]:
    """The states of all jobs of this user that slurmctld still knows, by job."""
    words = ["squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SlurmError(" ".join(done.stderr.split()))
    pairs = (line.strip().partition("|") for line in done.stdout.splitlines())
    return {job: state for job, _, state in pairs}


def most_tasks() -> int:
    """How many tasks an array can have here."""
    for line in call("scontrol", "show", "config").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "MaxArraySize":
            return max(1, int(value) - 1)
    return 1000


def read_job(path: Path) -> str | None:
    """The job that a run was given last."""
    try:
        fields = json.loads((path / JOB).read_text())
        return str(fields["job"]) if fields["engine"] == "slurm" else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def describe_end(run: "Run", job: str, state: str) -> str:
    """Why a job did not finish its run: what its log says, or its state."""
    reason = reason_in_log(run, job) if state == "FAILED" else None
    return reason or f"its job {job} ended as {state}; its log is {log_file(run, job)}"


def log_file(run: "Run", job: str) -> Path:
    return run.path.parent.resolve() / FOLDER / f"{job}.log"


def reason_in_log(run: "Run", job: str) -> str | None:
    """Why a run failed, as its job wrote it; None if the job was killed instead."""
    log, begin = log_file(run, job), f"{FAILED}{run.path.name}: "
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    reasons = [line.removeprefix(begin) for line in lines if line.startswith(begin)]
    return reasons[-1] if reasons else None


def work(file: str) -> None:
    """Train the runs of this task. Before its time limit the job saves, and SLURM requeues it."""
    at_limit = False

    def take_notice(number: int, frame: Any) -> None:
        nonlocal at_limit
        at_limit = True
        signal.raise_signal(signal.SIGTERM)  # the training loop saves, and stops

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGUSR1, take_notice)
    array, number = os.environ["SLURM_ARRAY_JOB_ID"], os.environ["SLURM_ARRAY_TASK_ID"]
    paths, device, threads = json.loads(Path(file).read_text())[int(number)]
    before = list(map(checkpoint_time, paths))
    try:
        reasons = train_job(paths, device, threads, patience=PATIENCE)
    except KeyboardInterrupt:
        if not at_limit:
            sys.exit("stopped")
        if list(map(checkpoint_time, paths)) != before:
            subprocess.run(["scontrol", "requeue", f"{array}_{number}"], check=True)
            sys.exit("saved")
        reasons = ["its time limit is too short: it came before the first step"] * len(paths)
    failed = [(path, reason) for path, reason in zip(paths, reasons, strict=True) if reason]
    for path, reason in failed:
        print(f"{FAILED}{Path(path).name}: {' '.join(reason.split())}", file=sys.stderr)
    sys.exit(1 if failed else 0)


def checkpoint_time(run: str) -> int:
    """When a run's checkpoint was written; 0 if it has none."""
    path = Path(run) / "checkpoint.safetensors"
    return path.stat().st_mtime_ns if path.exists() else 0
