"""A process of its own for a model that is not trusted, under limits of time and memory."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.05
MEGABYTE = 1 << 20
MOST_SHOWN = 300  # characters of what a failed process wrote


@dataclass(frozen=True)
class Limits:
    """What a process may use."""

    seconds: float
    megabytes: int


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    failure: str | None  # one sentence, or None if it succeeded
    seconds: float
    peak_megabytes: int | None  # of the process and all that it started; None: unknown


def run_limited(
    command: Sequence[str],
    folder: Path,
    limits: Limits,
    stdin: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a command until it ends or breaks a limit; its output goes to files in the folder.

    Its whole process group is killed at the end, so that nothing that it started goes on.
    """
    started, peak, failure = time.monotonic(), 0, None
    with (
        open(folder / "stdout", "wb") as out,
        open(folder / "stderr", "wb") as err,
        open(stdin or os.devnull, "rb") as given,
    ):
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=out,
                stderr=err,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
            )
        except OSError as error:
            return Ended(f"can't be started: {error.strerror or error}", 0.0, None)
        try:
            while process.poll() is None:
                peak = max(peak, group_megabytes(process.pid))
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
            process.wait()
    if failure is None and process.returncode:
        failure = f"ended with exit code {process.returncode}{last_line(folder / 'stderr')}"
    seconds = round(time.monotonic() - started, 2)
    return Ended(failure, seconds, peak if sys.platform == "linux" else None)


def group_megabytes(group: int) -> int:
    """The resident memory of all processes of a group; 0 where the system does not tell."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            # The name of a program stands in brackets and may have spaces.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total // MEGABYTE


def last_line(path: Path) -> str:
    """What a process said last, for a message."""
    lines = path.read_bytes()[-20 * MOST_SHOWN :].decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()[:MOST_SHOWN]}" if lines else ""
