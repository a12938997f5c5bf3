"""Many runs: what trains them, and where."""

from lengthwise.base import import_modules
from lengthwise.sweep.engines import ENGINES, Engine, find_engine, run_all

__all__ = ["ENGINES", "Engine", "find_engine", "run_all"]

import_modules(__name__)
