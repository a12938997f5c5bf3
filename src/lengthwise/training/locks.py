"""Locks on directories. The system releases them with the process, however it ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lengthwise.base import UsageError
from lengthwise.base.files import writing

LOCK = "lock"
SECONDS_BETWEEN_ATTEMPTS = 0.05


class InUse(UsageError):
    """Another process holds the directory."""


class NoLocks(UsageError):
    """The file system has no locks, so that nobody can hold the directory."""


@contextmanager
def hold(directory: Path, patience: float) -> Iterator[int]:
    """Hold a directory, so that no other process can; gives the inode of the lock.

    `patience` is for how many seconds to wait for another process.
    """
    path, deadline = directory / LOCK, time.monotonic() + patience
    with writing(path):
        file = open(path, "a+")  # noqa: SIM115  # closed below
    with file:
        while not try_lock(file.fileno(), fcntl.LOCK_EX, directory):
            if time.monotonic() > deadline:
                raise InUse(f"{directory} is in use by another process")
            time.sleep(SECONDS_BETWEEN_ATTEMPTS)
        yield os.fstat(file.fileno()).st_ino


def is_held(directory: Path) -> bool:
    """Whether a process holds a directory."""
    try:
        file = open(directory / LOCK)  # noqa: SIM115  # closed below
    except FileNotFoundError:
        return False
    with file, suppress(NoLocks):
        return not try_lock(file.fileno(), fcntl.LOCK_SH, directory)
    return False


def try_lock(handle: int, kind: int, directory: Path) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # as on some network file systems
        raise NoLocks(
            f"{directory} is on a file system without file locks ({error.strerror}), so two"
            " processes could train one run; keep runs on a local disk with --runs"
        ) from None
    return True
