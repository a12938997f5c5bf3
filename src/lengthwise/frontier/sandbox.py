"""Runs an untrusted model in a process of its own, under limits of time, memory and file size."""

import ctypes
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

POLL_SECONDS = 0.05
MEGABYTE = 1 << 20
LARGEST_FILE = 64 * MEGABYTE  # that a process may write, where nothing else is said
SET_SUBREAPER, GET_SUBREAPER = 36, 37  # of Linux's prctl
MOST_SHOWN = 300  # characters of what a failed process wrote


@dataclass(frozen=True)
class Limits:
    """What a process may use."""

    seconds: float
    megabytes: int


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    failure: str | None  # one sentence, or None if it succeeded
    seconds: float
    peak_megabytes: int | None  # of the process and all that it started; None: unknown


class Process(NamedTuple):
    """A running process, as Linux describes it."""

    parent: int
    is_zombie: bool
    bytes: int  # of resident memory


def run_limited(
    command: Sequence[str],
    folder: Path,
    limits: Limits,
    stdin: Path | None = None,
    environment: Mapping[str, str] | None = None,
    largest_file: int = LARGEST_FILE,
) -> Ending:
    """Run a command until it ends or breaks a limit; its output goes to files in the folder.

    At the end all processes that it started are killed, those in other sessions too on Linux.
    """
    started, peak, failure = time.monotonic(), 0, None
    with (
        open(folder / "stdout", "wb") as out,
        open(folder / "stderr", "wb") as err,
        open(stdin or os.devnull, "rb") as given,
        adopting_orphans(),
    ):
        before = frozenset(children_of(os.getpid()))
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=out,
                stderr=err,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
                preexec_fn=partial(limit_files, largest_file),
            )
        except OSError as error:
            return Ending(f"can't be started: {error.strerror or error}", 0.0, None)
        try:
            while process.poll() is None:
                family = find_family(process.pid, before)
                peak = max(peak, sum(member.bytes for member in family.values()) // MEGABYTE)
                if peak > limits.megabytes:
                    failure = f"used more than {limits.megabytes} MB"
                    break
                if time.monotonic() - started > limits.seconds:
                    failure = f"took more than {limits.seconds:g} seconds"
                    break
                time.sleep(POLL_SECONDS)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            kill_family(process.pid, before)
            process.wait()
    if failure is None and process.returncode == -signal.SIGXFSZ:
        failure = f"wrote more than {largest_file // MEGABYTE} MB"
    if failure is None and process.returncode:
        failure = f"ended with exit code {process.returncode}{last_line(folder / 'stderr')}"
    seconds = round(time.monotonic() - started, 2)
    return Ending(failure, seconds, peak if sys.platform == "linux" else None)


def limit_files(largest: int) -> None:
    """No larger files and no core dumps, for this process and all that it starts."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of orphans among its descendants, where the system can."""
    if sys.platform != "linux":
        yield
        return
    prctl, known = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(GET_SUBREAPER, ctypes.byref(known), 0, 0, 0)
    prctl(SET_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(SET_SUBREAPER, known.value, 0, 0, 0)


def list_processes() -> dict[int, Process]:
    """All processes by their ids; empty where there is no /proc."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The name of a program stands in brackets and may have spaces.
            state, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
            pages = int(fields[20]) * os.sysconf("SC_PAGE_SIZE")
            found[int(folder.name)] = Process(int(fields[0]), state == "Z", pages)
    return found


def children_of(parent: int) -> list[int]:
    return [pid for pid, process in list_processes().items() if process.parent == parent]


def find_family(pid: int, before: frozenset[int]) -> dict[int, Process]:
    """A child process with all its descendants; orphans among them are children of ours by now."""
    processes = list_processes()
    members = {pid} | {
        other
        for other, process in processes.items()
        if process.parent == os.getpid() and other not in before
    }
    while more := {o for o, p in processes.items() if p.parent in members} - members:
        members |= more
    return {member: processes[member] for member in members if member in processes}


def kill_family(pid: int, before: frozenset[int]) -> None:
    """Kill a child process and all that it started, until none is left."""
    while alive := [p for p, m in find_family(pid, before).items() if not m.is_zombie]:
        for member in alive:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        time.sleep(POLL_SECONDS / 10)
    for orphan in find_family(pid, before):
        if orphan != pid:
            with suppress(ChildProcessError):
                os.waitpid(orphan, os.WNOHANG)


def read_bytes(path: Path, most: int = LARGEST_FILE) -> bytes:
    """The contents of a file that is not trusted; empty if it is a link, a pipe, or too large."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= most:
            return path.read_bytes()
    return b""


def last_line(path: Path) -> str:
    """What a process said last, for a message."""
    lines = read_bytes(path)[-20 * MOST_SHOWN :].decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()[:MOST_SHOWN]}" if lines else ""
