"""The progress of runs that train elsewhere, read from their directories."""

import json
import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress
    from lengthwise.training.runs import Run

SECONDS_BETWEEN_LOOKS = 1.0
MOST_AT_ONCE = 500  # directories that one look asks; on shared storage each takes a moment
TAIL = 1 << 16  # bytes at the end of metrics.jsonl that hold its last records


class Follower:
    """Looks at the directories of active runs, now and then, for what is new there."""

    def __init__(self) -> None:
        self.runs: dict[Path, Run] = {}  # the next to look at first
        self.seen: dict[Path, int] = {}  # when the metrics were written that were shown last
        self.last_look = 0.0

    def add(self, runs: Iterable["Run"]) -> None:
        self.runs |= {run.path: run for run in runs}

    def end(self, run: "Run") -> Iterator["Progress"]:
        """The last progress of a run that has ended."""
        self.runs.pop(run.path, None)
        self.seen.pop(run.path, None)
        progress = read_progress(run)
        if progress is not None:
            yield progress

    def look(self) -> Iterator["Progress"]:
        """The progress of runs that have written metrics since the last look."""
        now = time.monotonic()
        if now - self.last_look < SECONDS_BETWEEN_LOOKS:
            return
        self.last_look = now
        for path, run in list(islice(self.runs.items(), MOST_AT_ONCE)):
            self.runs[path] = self.runs.pop(path)  # to the end of the line
            try:
                written = os.stat(path / "metrics.jsonl").st_mtime_ns
            except OSError:
                continue
            if written != self.seen.get(path) and (progress := read_progress(run)):
                self.seen[path] = written
                yield progress


def read_progress(run: "Run") -> "Progress | None":
    """How far a run is, by its directory; None if it has not recorded anything yet."""
    from lengthwise.training.loop import Progress

    records, session = read_tail(run.path / "metrics.jsonl"), read_session(run.path)
    losses = [record for record in records if "loss" in record]
    tests = [record["evaluation"] for record in records if "evaluation" in record]
    if not losses or session is None:
        return None
    step, steps = losses[-1]["step"], run.experiment.steps
    elapsed = os.stat(run.path / "metrics.jsonl").st_mtime - session["started"]
    pace = max(1e-9, elapsed) / max(1, step - session["step"])  # seconds a step
    return Progress(
        run.path.name,
        step,
        steps,
        losses[-1]["loss"],
        {a["length"]: a["exact_match"] for a in (tests[-1] if tests else [])},
        run.experiment.training.batch_size / pace,
        pace * (steps - step),
        session["declined"],
    )


def read_tail(path: Path) -> list[dict[str, Any]]:
    """The last whole records of a file that another process may be writing to."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return []
    if size > TAIL:
        lines = lines[1:]  # the first one may be cut
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        return []


def read_session(path: Path) -> dict[str, Any] | None:
    """When, and at which step, the last session of a run began, and why not in C."""
    try:
        session = json.loads((path / "environment.json").read_text())["sessions"][-1]
        started = time.mktime(time.strptime(session["started"][:19], "%Y-%m-%dT%H:%M:%S"))
        computed_by = session["computed by"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    declined = None if computed_by == "C" else computed_by.removeprefix("PyTorch: ")
    return {"started": started, "step": session["step"], "declined": declined}
