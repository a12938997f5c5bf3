"""When a transformer learns arithmetic on short numbers, does it still work on long ones?

import lengthwise
run = lengthwise.train({"task": "addition", "model": {"position": "relative-key"}})
model = lengthwise.load(run.path)
model.solve(["99999+1", "123+456"])
lengthwise.evaluate(model, lengths="5:10", examples=1000)
"""

from typing import Any

__all__ = ["Experiment", "UsageError", "evaluate", "load", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Import torch and the rest only when something is asked for, so that `lengthwise --help` is quick."""
    if name in __all__:
        from lengthwise import api

        return getattr(api, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("lengthwise")
    raise AttributeError(f"module 'lengthwise' has no attribute '{name}'")
