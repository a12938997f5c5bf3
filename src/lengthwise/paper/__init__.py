"""Every table and figure of the paper: conditions to train, numbers to compare, claims to judge."""

import importlib

from lengthwise.paper.artefact import ARTEFACTS, Artefact, find_artefact

__all__ = ["ARTEFACTS", "find_artefact"]


def place(item: tuple[str, Artefact]) -> tuple[bool, str]:
    """The paper's order: the text's sections first, a section's tables before its figures."""
    where = item[1].where
    return not where.startswith("§"), where.replace("Table", "0")


importlib.import_module(f"{__name__}.artefacts")  # each module registers the artefact it defines
_ordered = sorted(ARTEFACTS.items(), key=place)
ARTEFACTS.clear()
ARTEFACTS.update(_ordered)
