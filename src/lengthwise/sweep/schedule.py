"""Which run is submitted when: finished ones never, one that starts from another after it."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.sweep.engine import End, Engine

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
    active: set[Path] = set()
    if not ready:
        return
    try:
        engine.start(list(ready))
        while ready or active:
            count = min(len(ready), engine.room(len(active)))
            if count > 0:
                batch = [ready.popleft() for _ in range(int(count))]
                active |= {run.path for run in batch}
                engine.submit(batch)
            for event in engine.poll():
                if not isinstance(event, End):
                    display.show(event)
                    continue
                active.discard(event.run.path)
                for end in follow_end(event, dependent, ready):
                    done += 1
                    yield end.run, end.reason
            display.count(done, len(active), len(runs))
    finally:
        engine.stop()


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
