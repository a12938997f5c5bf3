"""The paper's numbers, read from `published.yaml`; nothing else in the project states them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lengthwise.training.yaml import read_yaml

FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed: percentages by row, a column for each number of digits."""

    where: str
    label: str  # in the paper's LaTeX
    lengths: tuple[int, ...]
    rows: Mapping[str, tuple[float, ...]]
    note: str = ""


@cache
def contents() -> dict[str, Any]:
    return read_yaml(FILE)


def table(name: str) -> PublishedTable:
    """A table by its name.

    >>> table("addition").rows["UTransformer RPE_k L"]
    (100, 99.9, 98.3, 18.2)
    """
    fields = contents()["tables"][name]
    rows = {row: tuple(values) for row, values in fields["rows"].items()}
    lengths = tuple(fields["lengths"])
    return PublishedTable(fields["where"], fields["label"], lengths, rows, fields.get("note", ""))


def within_a_point(percent: float) -> float:
    """The share that reaches a published percentage: a point less, for the published error.

    >>> within_a_point(98.3)
    0.973
    """
    return round(percent - 1, 1) / 100


def statement(name: str) -> float:
    """A number that the text states.

    >>> statement("addition at 15 digits")
    98.3
    """
    return float(contents()["statements"][name]["value"])


def statements(name: str) -> dict[int, float]:
    """A number that the text states for several sizes or lengths.

    >>> statements("priming needed by train set size")
    {1000: 30, 10000: 70, 100000: 100}
    """
    return dict(contents()["statements"][name]["values"])
