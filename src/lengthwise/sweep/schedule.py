"""Which run is submitted when: finished ones never, one that starts from another after it."""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.sweep.engine import End, Engine, Job

if TYPE_CHECKING:
    from lengthwise.training.display import Display
    from lengthwise.training.runs import Run

Ends = Iterator[tuple["Run", str | None]]  # runs as they end, each with the reason if it failed


def run_all(runs: Sequence["Run"], engine: Engine, display: "Display") -> Ends:
    """Train runs on an engine, and yield each as it ends.

    Finished runs are skipped, interrupted ones resumed. Ctrl-C lets every run save.
    """
    engine.check(runs)
    ready: deque[Run] = deque()
    hopeless: list[End] = []
    dependent: dict[Path, list[Run]] = {}  # by the run that they wait for
    unfinished = {run.path.resolve(): run for run in runs if run.result is None}
    done = len(runs) - len(unfinished)
    yield from ((run, None) for run in runs if run.path.resolve() not in unfinished)
    for run in unfinished.values():
        origin = find_origin(run)
        if origin is None:
            ready.append(run)
        elif origin in unfinished:
            dependent.setdefault(origin, []).append(run)
        else:
            hopeless.append(End(run, f"it starts from {origin}, which has not finished"))
    for end in (end for first in hopeless for end in follow_end(first, dependent, ready)):
        done += 1
        yield end.run, end.reason
    active: dict[Path, Job] = {}
    bundler = Bundler(engine.batch_seeds)
    if not ready:
        return
    try:
        engine.start(list(ready))
        while ready or active:
            jobs = bundler.take(ready, engine.room(len({id(job) for job in active.values()})))
            if jobs:
                active |= {run.path: job for job in jobs for run in job}
                engine.submit(jobs)
            for event in engine.poll():
                if not isinstance(event, End):
                    display.show(event)
                    continue
                active.pop(event.run.path, None)
                for end in follow_end(event, dependent, ready):
                    done += 1
                    yield end.run, end.reason
            display.count(done, len(active), len(runs))
    finally:
        engine.stop()


class Bundler:
    """Makes jobs of runs: single ones, or up to `most` seeds of one experiment together."""

    def __init__(self, most: int):
        self.most = most
        self.keys: dict[Path, str] = {}  # what the seeds of an experiment have in common, by run
        self.declined: dict[str, str | None] = {}  # why seeds can't be trained together, by key

    def take(self, ready: deque["Run"], room: float) -> list[Job]:
        """Jobs of runs that are ready, at most as many as there is room for."""
        jobs: list[Job] = []
        while ready and len(jobs) < room:
            jobs.append([ready.popleft()] if self.most == 1 else self.take_seeds(ready))
        return jobs

    def take_seeds(self, ready: deque["Run"]) -> Job:
        first = ready[0]
        alike = [run for run in ready if self.key(run) == self.key(first)][: self.most]
        if len(alike) > 1 and self.decline_reason(first):
            alike = [first]
        for run in alike:
            ready.remove(run)
        return alike

    def key(self, run: "Run") -> str:
        from lengthwise.training.seeds import without_seed

        if run.path not in self.keys:
            self.keys[run.path] = without_seed(run.experiment)
        return self.keys[run.path]

    def decline_reason(self, run: "Run") -> str | None:
        """Why the seeds of a run's experiment can't be trained together; it is said once."""
        from lengthwise.training.seeds import decline_reason

        key = self.key(run)
        if key not in self.declined:
            self.declined[key] = reason = decline_reason(run.experiment)
            if reason:
                print(
                    f"{run.path.name}: its seeds are trained one by one: {reason}", file=sys.stderr
                )
        return self.declined[key]


def find_origin(run: "Run") -> Path | None:
    """The run that must finish before this one can start; None if it can start."""
    from lengthwise.training.experiment import is_saved_model
    from lengthwise.training.runs import Run

    if run.experiment.start_from is None or is_saved_model(run.experiment.start_from):
        return None
    origin = Path(run.experiment.start_from).resolve()
    return None if Run(origin).result is not None else origin


def follow_end(end: End, dependent: dict[Path, list["Run"]], ready: deque["Run"]) -> Iterator[End]:
    """An end, and those of runs that can't start any more; runs that now can become ready."""
    yield end
    origin = end.run.path.resolve()
    for run in dependent.pop(origin, []):
        if end.reason is None:
            ready.append(run)
        else:
            failed = End(run, f"it starts from {origin}, which failed")
            yield from follow_end(failed, dependent, ready)
