"""Trains the runs that the page asks for, one after another, in a process of its own."""

from pathlib import Path
from threading import Condition, Thread
from typing import Any

from lengthwise.base import UsageError
from lengthwise.sweep import End, Local
from lengthwise.training.loop import Progress
from lengthwise.training.runs import Run

MOST_RUNS = 5  # in the queue, with the one that is being trained


class Queue:
    """Runs to be trained. The first one is being trained; the others wait."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.active: Path | None = None  # the run that is being trained
        self.progress: Progress | None = None  # of that run
        self.failures: dict[str, str] = {}  # by the run's name
        self.stopping = self.closed = False
        self.changed = Condition()
        self.thread = Thread(target=self.train_all, daemon=True)
        self.thread.start()

    def add(self, run: Run) -> None:
        """Train a run, or go on with it, when its turn comes."""
        with self.changed:
            if run.result is not None:
                raise UsageError(f"{run.path.name} has finished already")
            if run.path in [other.path for other in self.runs]:
                raise UsageError(f"{run.path.name} is in the queue already")
            if len(self.runs) >= MOST_RUNS:
                raise UsageError(f"the queue is full with {MOST_RUNS} runs; stop one, or wait")
            if run.status == "running":
                raise UsageError(f"{run.path.name} is being trained by another process")
            self.failures.pop(run.path.name, None)
            self.runs.append(run)
            self.changed.notify()

    def stop(self, name: str) -> None:
        """Take a run out of the queue; if it is being trained, it is saved first."""
        with self.changed:
            found = next((run for run in self.runs if run.path.name == name), None)
            if found is None:
                raise UsageError(f"{name[:60]} is not in the queue")
            if found.path == self.active:
                self.stopping = True
            else:
                self.runs.remove(found)

    def close(self) -> None:
        """Stop training; the run that is being trained is saved and can be resumed."""
        with self.changed:
            self.closed = self.stopping = True
            self.changed.notify()
        self.thread.join()

    def state(self) -> dict[str, Any]:
        """What is trained and what waits, for the page."""
        with self.changed:
            names, progress = [run.path.name for run in self.runs], self.progress
            active = [self.active.name] if self.active else []
            stopping = active if self.stopping else []
            failures = dict(self.failures)
        return {
            "queue": names,
            "active": active,
            "stopping": stopping,
            "most": MOST_RUNS,
            "failures": failures,
            "progress": {progress.run: vars(progress)} if progress else {},
        }

    def train_all(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.runs or self.closed)
                if self.closed:
                    return
                run, self.active = self.runs[0], self.runs[0].path
            reason = self.train(run)
            with self.changed:
                if reason and not self.stopping:
                    self.failures[run.path.name] = reason
                self.active = self.progress = None
                self.stopping = self.closed
                self.runs.remove(run)

    def train(self, run: Run) -> str | None:
        """Train a run until it ends or is to be stopped; returns the reason if it failed."""
        engine = Local(jobs=1)
        try:
            engine.submit([[run]])
            while not self.stopping:
                for event in engine.poll():
                    if isinstance(event, End):
                        return event.reason
                    self.progress = event
            return None
        except (UsageError, OSError) as error:  # such as no memory for a process
            return str(error)
        finally:
            engine.stop()
