"""Every table and figure of the paper: one module each, which states its runs, numbers, drawing and claims."""

import importlib
import pkgutil

from lengthwise.paper.artefact import ARTEFACTS

__all__ = ["ARTEFACTS"]

for _module in pkgutil.iter_modules(__path__):  # each registers what it defines
    importlib.import_module(f"{__name__}.{_module.name}")
