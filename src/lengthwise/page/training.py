"""Trains the runs that the page asks for, one after another, in a process of its own."""

from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from lengthwise.base import UsageError
from lengthwise.sweep.engines import INTERRUPTED, Worker, collect_ends
from lengthwise.training.display import Display
from lengthwise.training.loop import Progress
from lengthwise.training.runs import Run

MOST_WAITING = 4


class Latest(Display):
    """Keeps the last progress of each run instead of showing it."""

    def __init__(self) -> None:
        self.progress: dict[str, Progress] = {}

    def show(self, state: Progress) -> None:
        self.progress[state.run] = state


class Queue:
    """Runs to be trained. The first one is being trained; the others wait."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.failures: dict[str, str] = {}  # by the run's name
        self.latest = Latest()
        self.workers: list[Worker] = []
        self.stopping: set[Path] = set()
        self.lock, self.changed, self.closed = Lock(), Event(), False
        self.thread = Thread(target=self.train, daemon=True)
        self.thread.start()

    def add(self, run: Run) -> None:
        """Train a run, or go on with it, when its turn comes."""
        with self.lock:
            if run.result is not None:
                raise UsageError(f"{run.path.name} has finished already")
            if run.path in [other.path for other in self.runs]:
                raise UsageError(f"{run.path.name} is in the queue already")
            if len(self.runs) > MOST_WAITING:
                raise UsageError(
                    f"{len(self.runs)} runs are in the queue, which is full; stop one, or wait"
                )
            if run.status == "running":
                raise UsageError(f"{run.path.name} is being trained by another process")
            self.failures.pop(run.path.name, None)
            self.runs.append(run)
        self.changed.set()

    def stop(self, name: str) -> None:
        """Take a run out of the queue; if it is being trained, it is saved first."""
        with self.lock:
            found = next((run for run in self.runs if run.path.name == name), None)
            if found is None:
                raise UsageError(f"{name} is not in the queue")
            worker = next((w for w in self.workers if w.run is found), None)
            if worker is None:
                self.runs.remove(found)
            else:
                self.stopping.add(found.path)
                worker.process.terminate()  # the worker takes it as Ctrl-C

    def state(self) -> dict[str, Any]:
        """What is trained and what waits, for the page."""
        with self.lock:
            names = [run.path.name for run in self.runs]
            active = [w.run.path.name for w in self.workers if w.run is not None]
            stopping = [path.name for path in self.stopping]
        progress = {n: p for n, p in self.latest.progress.items() if n in active}
        return {
            "queue": names,
            "active": active,
            "stopping": stopping,
            "most": MOST_WAITING + 1,
            "failures": dict(self.failures),
            "progress": {
                name: {
                    "step": p.step,
                    "steps": p.steps,
                    "loss": p.loss,
                    "examples_per_second": p.examples_per_second,
                    "seconds_left": p.seconds_left,
                }
                for name, p in progress.items()
            },
        }

    def close(self) -> None:
        """Stop training; the run that is being trained is saved and can be resumed."""
        self.closed = True
        self.changed.set()
        self.thread.join()

    def train(self) -> None:
        """Give the first run to a worker, and wait for its end, until the queue is closed."""
        try:
            while not self.closed:
                if not self.runs:
                    self.changed.wait()
                    self.changed.clear()
                    continue
                with self.lock:
                    if self.runs and not any(worker.run for worker in self.workers):
                        self.start(self.runs[0])
                for run, reason in collect_ends(self.workers, self.latest):
                    self.end(run, reason)
        finally:
            for worker in self.workers:
                worker.stop()

    def start(self, run: Run) -> None:
        worker = Worker()
        worker.start(run)
        self.workers.append(worker)

    def end(self, run: Run, reason: str | None) -> None:
        with self.lock:
            self.runs.remove(run)
            asked = run.path in self.stopping
            self.stopping.discard(run.path)
            if reason and reason != INTERRUPTED and not asked:
                self.failures[run.path.name] = reason
            for worker in self.workers:
                if worker.run is None:  # each run has a process of its own, whose memory it frees
                    worker.stop()
            self.workers = [worker for worker in self.workers if worker.run is not None]
