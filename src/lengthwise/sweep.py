"""Many runs: the finished are skipped, the others trained or resumed by worker processes of one thread each."""

import multiprocessing
import queue
import signal
from collections.abc import Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.runs import Run
from lengthwise.training import train


def run_all(runs: Sequence[Run], jobs: int, display: Display) -> dict[Path, str]:
    """Train runs to their ends, `jobs` at a time; returns the reasons of those that failed.

    A run that starts from another waits for it. Ctrl-C lets every worker save before it stops.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process that has used torch's threads may hang
    messages: Any = context.Queue()
    waiting = [run for run in runs if run.result is None]
    working: dict[Path, SpawnProcess] = {}
    failed: dict[Path, str] = {}
    try:
        while waiting or working:
            done = {run.path for run in runs} - {run.path for run in waiting} - set(working)
            for run in list(waiting):
                origin = run.experiment.start_from
                if origin and Path(origin) in failed:
                    failed[run.path] = f"it starts from {origin}, which failed"
                    waiting.remove(run)
                elif len(working) < jobs and (not origin or Path(origin) in done or Run(origin).result is not None):
                    waiting.remove(run)
                    process = context.Process(target=work, args=(run.path, messages))
                    process.start()
                    working[run.path] = process
            try:
                kind, path, content = messages.get(timeout=0.5)
            except queue.Empty:
                for path, process in list(working.items()):
                    if not process.is_alive():  # it ended without a word
                        failed[path] = f"its process ended with exit code {process.exitcode}"
                        del working[path]
                continue
            if kind == "progress":
                display.show(content)
            else:
                working.pop(path).join()
                if kind == "failed":
                    failed[path] = content
    except KeyboardInterrupt:
        for process in working.values():
            process.terminate()  # which a worker takes as Ctrl-C, and saves
        for process in working.values():
            process.join()
        raise
    return failed


def work(path: Path, messages: Any) -> None:
    """Train one run in a process of its own, telling the parent how it goes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent passes it on, once
    try:
        last = 0.0
        for progress in train(Run(path)):
            if progress.seconds_left <= last - 0.5 or last == 0.0 or progress.step == progress.steps:
                messages.put(("progress", path, progress))
                last = progress.seconds_left
        messages.put(("finished", path, None))
    except KeyboardInterrupt:
        messages.put(("failed", path, "interrupted"))
    except UsageError as error:
        messages.put(("failed", path, str(error)))
    except Exception as error:
        messages.put(("failed", path, f"{type(error).__name__}: {error}"))
        raise
