"""What a worker does, on whatever engine: trains one run to its end, from wherever it is."""

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress

SECONDS_BETWEEN_ATTEMPTS = 0.5


def train_run(
    path: Path | str,
    device: str,
    threads: int,
    watch: Callable[["Progress"], None] = lambda progress: None,
    patience: float = 0.0,
    is_wanted: Callable[[], bool] = lambda: True,
) -> str | None:
    """Train a run; returns the reason if it failed, else None.

    Another worker may hold the run: one of another sweep, or one that is about to die, such as one
    whose driver was killed. This one waits for it, `patience` seconds at most, while `is_wanted`.
    """
    from lengthwise.base import UsageError
    from lengthwise.base.extensions import import_files
    from lengthwise.training.locks import InUse
    from lengthwise.training.loop import train
    from lengthwise.training.runs import Run

    deadline = time.monotonic() + patience
    while True:
        try:
            import_files()
            run = Run(path)
            update = {"device": device, "threads": threads}
            run.experiment = run.experiment.model_copy(update=update)
            for progress in train(run):
                watch(progress)
            return None
        except InUse as error:
            if time.monotonic() >= deadline or not is_wanted():
                return str(error)
            time.sleep(SECONDS_BETWEEN_ATTEMPTS)
        except UsageError as error:
            return str(error)
        except Exception as error:
            traceback.print_exc()
            return f"{type(error).__name__}: {error}"
