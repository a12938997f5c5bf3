"""Every table and figure of the paper: one module each, which states its runs, numbers, drawing and claims."""

import importlib
import pkgutil

from lengthwise.paper.artefact import ARTEFACTS

__all__ = ["ARTEFACTS"]

for _module in pkgutil.iter_modules(__path__):  # each registers what it defines
    importlib.import_module(f"{__name__}.{_module.name}")
# In the paper's order: the text's sections first, a section's tables before its figures.
_ordered = sorted(ARTEFACTS.items(), key=lambda item: (item[1].where[0] != "§", item[1].where.replace("Table", "0")))
ARTEFACTS.clear()
ARTEFACTS.update(_ordered)
