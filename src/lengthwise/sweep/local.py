"""The engine of this machine: worker processes that train one job after another."""

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, ClassVar

from lengthwise.sweep.engine import End, Engine, Job, engine
from lengthwise.sweep.work import train_job

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress
    from lengthwise.training.runs import Run

SECONDS_BETWEEN_MESSAGES = 0.3
INTERRUPTED = "interrupted"  # the reason in a worker's last message


class Worker:
    """A process that trains one job after another and reports its progress."""

    def __init__(self) -> None:
        # A fork of a process that has used torch may hang.
        context = multiprocessing.get_context("spawn")
        self.connection, other_end = context.Pipe()
        self.process = context.Process(target=work, args=(other_end, os.getpid()))
        self.process.start()
        other_end.close()
        self.job: Job | None = None

    def start(self, job: Job) -> None:
        self.job, experiment = job, job[0].experiment
        paths = [run.path for run in job]
        self.connection.send((paths, experiment.device, experiment.threads))

    def stop(self) -> None:
        """Have the process end; it takes the signal as Ctrl-C and saves its runs first."""
        self.connection.close()
        if self.job is not None:
            self.process.terminate()


@engine("local")
@dataclass
class Local(Engine):
    """Worker processes on this machine."""

    here: ClassVar[bool] = True
    jobs: int | None = 2
    workers: list[Worker] = field(default_factory=list, init=False)

    def check(self, runs: Sequence["Run"]) -> None:
        from lengthwise.base import UsageError
        from lengthwise.training import machine

        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"at least 1 run is trained at a time, not {self.jobs}")
        for device, threads in {(r.experiment.device, r.experiment.threads) for r in runs}:
            machine.check(device, threads)

    def submit(self, jobs: Sequence[Job]) -> None:
        from lengthwise.base.processes import children_without_interrupts

        for job in jobs:
            idle = next((worker for worker in self.workers if worker.job is None), None)
            if idle is None:
                with children_without_interrupts():  # one that comes now finds the worker listed
                    self.workers.append(idle := Worker())
            idle.start(job)

    def poll(self) -> Iterator["Progress | End"]:
        by_connection: dict[Any, Worker] = {worker.connection: worker for worker in self.workers}
        for connection in wait(list(by_connection), timeout=0.5):
            worker = by_connection[connection]
            job = worker.job
            try:
                message = worker.connection.recv()
            except (EOFError, ConnectionError):  # the process ended without a message
                self.workers.remove(worker)
                worker.process.join()
                reason = f"its process ended with exit code {worker.process.exitcode}"
                yield from (End(run, reason) for run in job or ())
                continue
            if not isinstance(message, list):
                yield message
                continue
            assert job is not None
            worker.job = None
            if INTERRUPTED in message:
                self.workers.remove(worker)
            yield from map(End, job, message)

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        while self.workers:
            self.workers.pop().process.join()


def work(parent: Connection, parent_id: int) -> None:
    """Train the jobs that the parent sends; report progress, then for each run why it failed."""
    os.setpgrp()  # Ctrl-C in a terminal reaches the parent only, which passes it on once
    last_report: dict[str, float] = {}  # by run

    def watch(progress: "Progress") -> None:
        if not is_parent(parent_id):  # the parent was killed: save and stop, as for Ctrl-C
            os.kill(os.getpid(), signal.SIGTERM)
        now = time.monotonic()
        is_due = now - last_report.get(progress.run, 0.0) >= SECONDS_BETWEEN_MESSAGES
        if is_due or progress.step == progress.steps:
            report(parent, progress)
            last_report[progress.run] = now

    while True:
        try:
            paths, device, threads = parent.recv()
        except (EOFError, ConnectionError):  # the parent has no more jobs, or is gone
            return
        try:
            # Another sweep may be training a run: this one waits for it, while it is needed.
            is_wanted = partial(is_parent, parent_id)
            report(parent, train_job(paths, device, threads, watch, math.inf, is_wanted))
        except KeyboardInterrupt:
            report(parent, [INTERRUPTED] * len(paths))
            return


def is_parent(process: int) -> bool:
    return os.getppid() == process


def report(parent: Connection, message: "Progress | list[str | None]") -> None:
    with suppress(ConnectionError):  # a parent that is gone is noticed after the next step
        parent.send(message)
