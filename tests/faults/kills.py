"""Kills: SIGKILL at every write, sync, rename and removal of a run; it resumes bit for bit."""

import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from faults.damage import SETTING
from faults.outcome import Outcome
from lengthwise.training import api, journal, keys
from lengthwise.training.runs import METRICS, RESULT, WEIGHTS, Run
from lengthwise.training.verification import verify

CALLS = ("fsync", "replace", "unlink", "mkdir")  # of `os`
Result = tuple[bytes, bytes, dict[str, Any]]


def kill_everywhere(
    folder: Path, changes: dict[str, Any] | None = None, every: int = 1, start: int = 0
) -> Outcome:
    """Kill a run before each of its calls in turn, or before every so many, and resume it."""
    outcome = Outcome("kills at a write, sync, rename or removal")
    experiment = keys.load(None, {**SETTING, **(changes or {})})
    calls = count_calls(lambda: api.resume(Run.create(experiment, folder, "whole"), False))
    whole = result(folder / "whole")
    for limit in range(start, calls, every):
        path, create = folder / "killed", partial(Run.create, experiment, folder, "killed")
        status = in_child(partial(train_until, experiment, folder, limit))
        if status == 0:  # counting took more calls, such as those of compiling the C code
            break
        if status != -signal.SIGKILL:
            outcome.add(f"call {limit}: it was not killed but ended with {status}")
        else:
            outcome.add(check(path, create, whole, limit))
        shutil.rmtree(path, ignore_errors=True)
    return outcome


def check(path: Path, create: Callable[[], Run], whole: Result, limit: int) -> str | None:
    """Whether a killed run resumes to the same end, and leaves nothing behind."""
    try:
        run = create()
        api.resume(run, progress=False)
    except Exception as error:
        return f"call {limit}: {type(error).__name__}: {error}"
    if result(path) != whole:
        return f"call {limit}: it ended in another way"
    left = {p.name for p in path.iterdir()} - {p.name for p in (path.parent / "whole").iterdir()}
    problems = verify(path)
    return f"call {limit}: left behind {left} {problems}" if left or problems else None


def result(run: Path) -> Result:
    """All that training leaves, but for the time it took."""
    found = json.loads((run / RESULT).read_bytes())
    del found["seconds"]
    return (run / WEIGHTS).read_bytes(), (run / METRICS).read_bytes(), found


def train_until(experiment: Any, folder: Path, limit: int) -> None:
    """Train in this process, which ends before its call number `limit`."""
    interpose(Killer(limit).count)
    api.resume(Run.create(experiment, folder, "killed"), progress=False)


class Killer:
    def __init__(self, limit: int):
        self.limit, self.calls = limit, 0

    def count(self) -> None:
        if self.calls == self.limit:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1


def interpose(before: Callable[[], None], names: Sequence[str] = CALLS) -> None:
    """Call a function before each call that writes; for the rest of this process."""

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            before()
            return call(*arguments, **options)

        return wrapped

    for name in names:
        setattr(os, name, wrap(getattr(os, name)))
    if names == CALLS:
        journal.Journal.append = wrap(journal.Journal.append)  # type: ignore[method-assign]


def count_calls(act: Callable[[], object], names: Sequence[str] = CALLS) -> int:
    """How many calls that write an action makes, in a process of its own."""
    read_end, write_end = os.pipe()

    def child() -> None:
        counter = Killer(-1)
        interpose(counter.count, names)
        act()
        os.write(write_end, str(counter.calls).encode())

    status = in_child(child)
    assert status == 0, status
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        return int(pipe.read())


def in_child(act: Callable[[], object]) -> int:
    """Do something in a fork of this process, which has used one thread; gives its exit code."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status)
