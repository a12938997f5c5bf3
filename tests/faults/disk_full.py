"""Full disks: from some write on, every one fails. The run says so, and goes on with room."""

import errno
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from faults.damage import SETTING
from faults.kills import check, count_calls, in_child, result
from faults.outcome import Outcome
from lengthwise.base import UsageError
from lengthwise.training import api, keys
from lengthwise.training.runs import Run

CALLS = ("fsync", "replace", "mkdir")  # of `os`; a full disk lets files be removed
ENOUGH_ROOM = 5  # exit code of a process that needed fewer writes
SENTENCE = "no space left on device"


def fill_everywhere(folder: Path, every: int = 1, start: int = 0) -> Outcome:
    """Fill the disk before each call that writes in turn, or before every so many."""
    outcome = Outcome("a disk that is full from some write on")
    experiment = keys.load(None, SETTING)
    calls = count_calls(partial(train, experiment, folder, "whole"), CALLS)
    whole = result(folder / "whole")
    for limit in range(start, calls, every):
        status = in_child(partial(train_until_full, experiment, folder, limit))
        if status == ENOUGH_ROOM:  # counting took more calls, such as those of compiling
            break
        create = partial(Run.create, experiment, folder, "killed")
        failure = check(folder / "killed", create, whole, limit)
        outcome.add(f"call {limit}: exit code {status}" if status else failure)
        shutil.rmtree(folder / "killed", ignore_errors=True)
    return outcome


def train(experiment: Any, folder: Path, name: str) -> None:
    api.resume(Run.create(experiment, folder, name), progress=False)


def train_until_full(experiment: Any, folder: Path, limit: int) -> None:
    """Train in this process; it must be refused in one sentence."""
    calls = 0

    def wrap(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(*arguments, **options)

        return wrapped

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name)))
    try:
        train(experiment, folder, "killed")
    except UsageError as error:
        if SENTENCE in str(error):
            return
    if calls <= limit:
        os._exit(ENOUGH_ROOM)
    raise AssertionError("it was not refused")
