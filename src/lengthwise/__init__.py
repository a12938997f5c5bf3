"""When a transformer learns arithmetic on short numbers, does it still work on long ones?

import lengthwise
run = lengthwise.train({"task": "addition", "model": {"position": "relative-key"}})
model = lengthwise.load(run.path)
model.solve(["99999+1", "123+456"])
lengthwise.evaluate(model, lengths="5:10", examples=1000)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.base import UsageError
    from lengthwise.evaluation.accuracy import evaluate
    from lengthwise.training.api import load, resume, train
    from lengthwise.training.experiment import Experiment

__all__ = ["Experiment", "UsageError", "evaluate", "load", "resume", "train"]
MODULES = {
    "Experiment": "lengthwise.training.experiment",
    "UsageError": "lengthwise.base",
    "evaluate": "lengthwise.evaluation.accuracy",
    "load": "lengthwise.training.api",
    "resume": "lengthwise.training.api",
    "train": "lengthwise.training.api",
}


def __getattr__(name: str) -> Any:
    """Import torch and the rest on first use, so that `lengthwise --help` is quick."""
    if name in MODULES:
        from importlib import import_module

        return getattr(import_module(MODULES[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("lengthwise")
    raise AttributeError(f"module 'lengthwise' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
