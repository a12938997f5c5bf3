"""What a worker does, on whatever engine: trains a job to its end, from wherever its runs are."""

import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress

SECONDS_BETWEEN_ATTEMPTS = 0.5


def train_job(
    paths: Sequence[Path | str],
    device: str,
    threads: int,
    watch: Callable[["Progress"], None] = lambda progress: None,
    patience: float = 0.0,
    is_wanted: Callable[[], bool] = lambda: True,
) -> list[str | None]:
    """Train a run, or several seeds as one batched model; for each, the reason if it failed.

    Another worker may hold a run: one of another sweep, or one that is about to die, such as one
    whose driver was killed. This one waits for it, `patience` seconds at most, while `is_wanted`.
    """
    from lengthwise.base import UsageError
    from lengthwise.base.extensions import import_files
    from lengthwise.training.locks import InUse

    deadline = time.monotonic() + patience
    while True:
        try:
            import_files()
            return train_once(paths, device, threads, watch)
        except InUse as error:
            if time.monotonic() >= deadline or not is_wanted():
                return [str(error)] * len(paths)
            time.sleep(SECONDS_BETWEEN_ATTEMPTS)
        except UsageError as error:
            return [str(error)] * len(paths)
        except Exception as error:
            traceback.print_exc()
            return [f"{type(error).__name__}: {error}"] * len(paths)


def train_once(
    paths: Sequence[Path | str], device: str, threads: int, watch: Callable[["Progress"], None]
) -> list[str | None]:
    from lengthwise.training.loop import train
    from lengthwise.training.runs import Run
    from lengthwise.training.seeds import train_seeds

    runs = [Run(path) for path in paths]
    failures: dict[Run, str] = {}
    for run in runs:
        update = {"device": device, "threads": threads}
        run.experiment = run.experiment.model_copy(update=update)
    for progress in train(runs[0]) if len(runs) == 1 else train_seeds(runs, failures):
        watch(progress)
    return [failures.get(run) for run in runs]
