"""Engines train many runs. The local one has worker processes of one run each.

An engine skips finished runs, resumes interrupted ones, and makes a run wait for the one that it
starts from. A new engine is a function of the type `Engine` with the decorator `@engine("name")`.
"""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from lengthwise.base import UsageError, nearest
from lengthwise.base.extensions import import_files
from lengthwise.training.display import Display
from lengthwise.training.loop import Progress, train
from lengthwise.training.runs import Run

SECONDS_BETWEEN_MESSAGES = 0.3
INTERRUPTED = "interrupted"  # a worker's last message
WAIT = "the run that it starts from has not ended yet"
Ends = Iterator[tuple[Run, str | None]]  # runs as they end, each with the reason if it failed
Engine = Callable[[Sequence[Run], int, Display], Ends]  # trains this many runs at a time
ENGINES: dict[str, Engine] = {}


def engine(name: str) -> Callable[[Engine], Engine]:
    """Register an engine; the docstring's first line describes it to users."""

    def register(function: Engine) -> Engine:
        ENGINES[name] = function
        return function

    return register


def find_engine(name: str) -> Engine:
    if name not in ENGINES:
        raise UsageError(f"there is no engine '{name}': {nearest(name, ENGINES)}")
    return ENGINES[name]


class Worker:
    """A process that trains one run after another and reports its progress."""

    def __init__(self) -> None:
        # A fork of a process that has used torch may hang.
        context = multiprocessing.get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=work, args=(other_end, os.getpid()))
        self.process.start()
        other_end.close()
        self.run: Run | None = None

    def start(self, run: Run) -> None:
        self.run = run
        self.connection.send((run.path, run.experiment.device, run.experiment.threads))

    def stop(self) -> None:
        """End the process; it takes the signal as Ctrl-C and saves its run first."""
        self.connection.close()
        if self.run is not None:
            self.process.terminate()
        self.process.join()


@engine("local")
def run_all(runs: Sequence[Run], jobs: int, display: Display) -> Ends:
    """Train runs on this machine, `jobs` at a time, and yield each as it ends.

    Ctrl-C lets every worker save its run.
    """
    if jobs < 1:
        raise UsageError(f"at least 1 run is trained at a time, not {jobs}")
    waiting = [run for run in runs if run.result is None]
    yield from ((run, None) for run in runs if run not in waiting)
    workers: list[Worker] = []
    failed: set[Path] = set()
    try:
        while waiting or any(worker.run for worker in workers):
            for run in list(waiting):
                active = [worker.run for worker in workers if worker.run]
                if len(active) == jobs:
                    break
                obstacle = find_obstacle(run, [*waiting, *active], failed)
                if obstacle is WAIT:
                    continue
                waiting.remove(run)
                if obstacle is None:
                    start(run, workers)
                else:
                    failed.add(run.path.resolve())
                    yield run, obstacle
            for run, reason in collect_ends(workers, display):
                if reason:
                    failed.add(run.path.resolve())
                yield run, reason
    finally:
        for worker in workers:
            worker.stop()


def find_obstacle(run: Run, unfinished: Sequence[Run], failed: set[Path]) -> str | None:
    """Why a run can't start: `WAIT`, or a reason for which it never will; None if it can."""
    if run.experiment.start_from is None:
        return None
    origin = Path(run.experiment.start_from).resolve()
    if Run(origin).result is not None:
        return None
    if origin in {other.path.resolve() for other in unfinished}:
        return WAIT
    return f"it starts from {origin}, which {'failed' if origin in failed else 'has not finished'}"


def start(run: Run, workers: list[Worker]) -> None:
    """Give a run to an idle worker, or to a new one."""
    idle = next((worker for worker in workers if worker.run is None), None)
    if idle is None:
        workers.append(idle := Worker())
    idle.start(run)


def collect_ends(workers: list[Worker], display: Display) -> Ends:
    """Wait a moment for messages: show the progress, and yield the runs that have ended."""
    by_connection = {worker.connection: worker for worker in workers}
    for connection in wait(list(by_connection), timeout=0.5):
        worker = by_connection[connection]  # type: ignore[index]
        run = worker.run
        try:
            message = worker.connection.recv()
        except (EOFError, ConnectionError):  # the process ended without a message
            workers.remove(worker)
            worker.process.join()
            if run is not None:
                yield run, f"its process ended with exit code {worker.process.exitcode}"
            continue
        if isinstance(message, Progress):
            display.show(message)
            continue
        if message == INTERRUPTED:
            workers.remove(worker)
        assert run is not None
        worker.run = None
        yield run, message


def work(parent: Connection, parent_id: int) -> None:
    """Train the runs that the parent sends; report progress, then None or why a run failed."""
    os.setpgrp()  # Ctrl-C in a terminal reaches the parent only, which passes it on once
    while True:
        try:
            path, device, threads = parent.recv()
        except (EOFError, ConnectionError):  # the parent has no more runs, or is gone
            return
        try:
            import_files()
            run = Run(path)
            update = {"device": device, "threads": threads}
            run.experiment = run.experiment.model_copy(update=update)
            train_and_report(run, parent, parent_id)
            report(parent, None)
        except KeyboardInterrupt:
            report(parent, INTERRUPTED)
            return
        except UsageError as error:
            report(parent, str(error))
        except Exception as error:
            traceback.print_exc()
            report(parent, f"{type(error).__name__}: {error}")


def train_and_report(run: Run, parent: Connection, parent_id: int) -> None:
    last_report = 0.0
    for progress in train(run):
        if os.getppid() != parent_id:  # the parent was killed: save and stop, as for Ctrl-C
            os.kill(os.getpid(), signal.SIGTERM)
        is_due = time.monotonic() - last_report >= SECONDS_BETWEEN_MESSAGES
        if is_due or progress.step == progress.steps:
            report(parent, progress)
            last_report = time.monotonic()


def report(parent: Connection, message: Progress | str | None) -> None:
    with suppress(ConnectionError):  # a parent that is gone is noticed after the next step
        parent.send(message)
