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
    from lengthwise.solver import Solver
    from lengthwise.sweep.study import sweep
    from lengthwise.training.api import evaluate, extend, load, resume, train
    from lengthwise.training.comparison import Comparison, compare
    from lengthwise.training.experiment import Experiment
    from lengthwise.training.runs import Run

MODULES = {
    "Comparison": "lengthwise.training.comparison",
    "Experiment": "lengthwise.training.experiment",
    "Run": "lengthwise.training.runs",
    "Solver": "lengthwise.solver",
    "UsageError": "lengthwise.base",
    "compare": "lengthwise.training.comparison",
    "evaluate": "lengthwise.training.api",
    "extend": "lengthwise.training.api",
    "load": "lengthwise.training.api",
    "resume": "lengthwise.training.api",
    "sweep": "lengthwise.sweep.study",
    "train": "lengthwise.training.api",
}
__all__ = [
    "Comparison",
    "Experiment",
    "Run",
    "Solver",
    "UsageError",
    "compare",
    "evaluate",
    "extend",
    "load",
    "resume",
    "sweep",
    "train",
]


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
