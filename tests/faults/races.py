"""Races: processes that create, train and record the same runs at the same moment."""

import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from faults.damage import SETTING
from faults.outcome import Outcome
from lengthwise.base import UsageError
from lengthwise.base.files import write_json
from lengthwise.sweep.work import train_job
from lengthwise.training import keys
from lengthwise.training.runs import Run
from lengthwise.training.verification import verify

DONE, REFUSED, FAILED = 0, 3, 4  # exit codes of a process


def at_once(acts: Sequence[Callable[[], object]]) -> list[int]:
    """Do things in processes of their own that start at the same moment; gives their exit codes."""
    read_end, write_end = os.pipe()

    def child(act: Callable[[], object]) -> None:
        os.close(write_end)
        os.read(read_end, 1)  # until the parent closes the other end
        try:
            act()
        except UsageError as error:
            print(error, file=sys.stderr)
            os._exit(REFUSED)
        except BaseException:
            traceback.print_exc()
            os._exit(FAILED)

    processes = []
    for act in acts:
        if (process := os.fork()) == 0:
            child(act)
            os._exit(DONE)
        processes.append(process)
    os.close(read_end)
    os.close(write_end)
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


def create_at_once(folder: Path, rounds: int, processes: int = 8) -> Outcome:
    """Several processes create one run."""
    outcome = Outcome("processes that create one run at once")
    experiment = keys.load(None, SETTING)
    for number in range(rounds):
        path = folder / f"run-{number}"
        codes = at_once([creation(experiment, folder, path.name)] * processes)
        problems = verify(path)
        for code in codes:
            outcome.add(f"exit code {code}, {problems}" if code or problems else None)
        shutil.rmtree(path)
    return outcome


def create_two_under_one_name(folder: Path, rounds: int) -> Outcome:
    """Two experiments want one name: one gets it, and the directory is all its own."""
    outcome = Outcome("pairs of experiments under one name")
    experiments = [keys.load(None, {**SETTING, "seed": seed}) for seed in (0, 1)]
    identities = {experiment.identity() for experiment in experiments}
    for number in range(rounds):
        path = folder / f"run-{number}"
        codes = at_once([creation(e, folder, path.name) for e in experiments])
        problems = verify(path)
        right = set(codes) <= {DONE, REFUSED} and not problems
        right = right and Run(path).experiment.identity() == Run(path).identity in identities
        outcome.add(None if right else f"exit codes {codes}, {problems}")
        shutil.rmtree(path)
    return outcome


def creation(experiment: Any, folder: Path, name: str) -> Callable[[], object]:
    return lambda: Run.create(experiment, folder, name)


def sweep_twice(folder: Path, rounds: int, runs: int = 3, sweeps: int = 2) -> Outcome:
    """Several sweeps train the same runs and write the same records."""
    outcome = Outcome("sweeps of the same runs at once")
    for number in range(rounds):
        root = folder / f"round-{number}"

        def sweep(root: Path = root) -> None:
            for seed in range(runs):
                run = Run.create(keys.load(None, {**SETTING, "seed": seed}), root, f"seed-{seed}")
                (reason,) = train_job([run.path], "cpu", 1, patience=60)
                assert reason is None, reason
                write_json(root / f"record-{seed}.json", Run(run.path).result)

        codes = at_once([sweep] * sweeps)
        problems = [p for seed in range(runs) for p in verify(root / f"seed-{seed}")]
        left = [path.name for path in root.rglob(".*")]
        for code in codes:
            outcome.add(f"{code}, {problems}, {left}" if code or problems or left else None)
        shutil.rmtree(root)
    return outcome
