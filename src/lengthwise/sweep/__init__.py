"""Many runs: which ones, what trains them, and where.

`lengthwise.sweep(...)` trains a list or a grid of experiments and compares them.
"""

import importlib
import pkgutil
import sys
from types import ModuleType
from typing import Any

from lengthwise.sweep.engine import ENGINES, End, Engine, Job, build_engine, find_engine, option
from lengthwise.sweep.local import Local
from lengthwise.sweep.schedule import run_all

__all__ = [
    "ENGINES",
    "End",
    "Engine",
    "Job",
    "Local",
    "build_engine",
    "find_engine",
    "option",
    "run_all",
]

for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(module.name)  # engines register themselves


class SweepPackage(ModuleType):
    """The package and the function have one name, so that the package can be called."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from lengthwise.sweep.study import sweep

        return sweep(*arguments, **options)


sys.modules[__name__].__class__ = SweepPackage
