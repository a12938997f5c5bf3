"""Many runs: the finished are skipped, the others trained or resumed by worker processes of one thread each."""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from lengthwise.display import Display
from lengthwise.errors import UsageError, nearest
from lengthwise.extensions import import_files
from lengthwise.runs import Run
from lengthwise.training import Progress, train

SECONDS_BETWEEN_MESSAGES = 0.3
INTERRUPTED = "interrupted"  # the last word of a worker
Ends = Iterator[tuple[Run, str | None]]  # runs as they end, each with the reason if it failed
# What trains runs, so many at a time. One that starts from another of them waits for it.
Engine = Callable[[Sequence[Run], int, Display], Ends]


class Worker:
    """A process that trains one run after another, and tells how it goes."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork of a process that has used torch may hang
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, os.getpid()))
        self.process.start()
        theirs.close()
        self.run: Run | None = None

    def start(self, run: Run) -> None:
        self.run = run
        self.connection.send((run.path, run.experiment.device, run.experiment.threads))

    def stop(self) -> None:
        """A worker takes the signal as Ctrl-C: it saves what it is training."""
        self.connection.close()
        if self.run is not None:
            self.process.terminate()
        self.process.join()


def run_all(runs: Sequence[Run], jobs: int, display: Display) -> Ends:
    """Train runs to their ends on this machine, `jobs` at a time, yielding each as it ends.

    One that has finished ends at once, one that starts from another waits for it. Ctrl-C lets every worker save first.
    """
    if jobs < 1:
        raise UsageError(f"runs can be trained 1 or more at a time, not {jobs}")
    waiting = [run for run in runs if run.result is None]
    yield from ((run, None) for run in runs if run not in waiting)
    workers: list[Worker] = []
    failed: set[Path] = set()
    try:
        while waiting or any(worker.run for worker in workers):
            for run in list(waiting):
                if sum(worker.run is not None for worker in workers) == jobs:
                    break
                origin = Path(run.experiment.start_from).resolve() if run.experiment.start_from else None
                coming = {r.path.resolve() for r in [*waiting, *(w.run for w in workers if w.run)]}
                finished = origin is None or Run(origin).result is not None
                if not finished and origin not in coming:
                    waiting.remove(run)
                    failed.add(run.path.resolve())
                    why = "failed" if origin in failed else "hasn't finished"
                    yield run, f"it starts from {origin}, which {why}"
                elif finished:
                    idle = next((worker for worker in workers if worker.run is None), None)
                    if idle is None:
                        workers.append(idle := Worker())
                    waiting.remove(run)
                    idle.start(run)
            for worker, reason in ended(workers, display):
                assert worker.run is not None
                run, worker.run = worker.run, None
                if reason:
                    failed.add(run.path.resolve())
                yield run, reason
    finally:
        for worker in workers:
            worker.stop()


def ended(workers: list[Worker], display: Display) -> Iterator[tuple[Worker, str | None]]:
    """Wait a moment for the workers: show their progress, and tell whose run has ended, and why if it failed."""
    by_connection = {worker.connection: worker for worker in workers}
    for connection in wait(list(by_connection), timeout=0.5):
        worker = by_connection[connection]  # type: ignore[index]
        try:
            said = worker.connection.recv()
        except (EOFError, ConnectionError):
            workers.remove(worker)
            worker.process.join()
            if worker.run is not None:  # it ended without a word
                yield worker, f"its process ended with exit code {worker.process.exitcode}"
            continue
        if isinstance(said, Progress):
            display.show(said)
            continue
        if said == INTERRUPTED:
            workers.remove(worker)
        yield worker, said


def work(parent: Connection, its_process: int) -> None:
    """Train the runs that are ordered, telling the parent how it goes: progress, then None or what went wrong."""
    os.setpgrp()  # Ctrl-C in a terminal reaches the parent only, which passes it on, once

    def tell(content: Progress | str | None) -> None:
        with suppress(ConnectionError):  # it is gone, which is noticed after the next step
            parent.send(content)

    while True:
        try:
            path, device, threads = parent.recv()
        except (EOFError, ConnectionError):  # the parent has no more, or is gone
            return
        try:
            import_files()
            told = 0.0
            run = Run(path)
            run.experiment = run.experiment.model_copy(update={"device": device, "threads": threads})
            for progress in train(run):
                if os.getppid() != its_process:  # it was killed: save and stop, as for Ctrl-C
                    os.kill(os.getpid(), signal.SIGTERM)
                if time.monotonic() - told >= SECONDS_BETWEEN_MESSAGES or progress.step == progress.steps:
                    tell(progress)
                    told = time.monotonic()
            tell(None)
        except KeyboardInterrupt:
            tell(INTERRUPTED)
            return
        except UsageError as error:
            tell(str(error))
        except Exception as error:
            traceback.print_exc()
            tell(f"{type(error).__name__}: {error}")


ENGINES: dict[str, Engine] = {"local": run_all}


def find_engine(name: str) -> Engine:
    if name not in ENGINES:
        raise UsageError(f"there is no engine '{name}': {nearest(name, ENGINES)}")
    return ENGINES[name]
