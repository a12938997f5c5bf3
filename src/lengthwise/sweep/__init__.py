"""Many runs: what trains them, and where."""

import importlib
import pkgutil

from lengthwise.sweep.engine import ENGINES, End, Engine, build_engine, find_engine, option
from lengthwise.sweep.local import Local
from lengthwise.sweep.schedule import run_all

__all__ = [
    "ENGINES",
    "End",
    "Engine",
    "Local",
    "build_engine",
    "find_engine",
    "option",
    "run_all",
]

for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(module.name)  # engines register themselves
