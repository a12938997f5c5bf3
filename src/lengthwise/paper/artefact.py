"""What a table or a figure of the paper is made of: its runs, its published numbers, its claims, its drawing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, ClassVar, Literal

import numpy as np

from lengthwise.runs import Run

ScaleName = Literal["smoke", "cpu", "paper"]
SCALES: tuple[ScaleName, ...] = ("smoke", "cpu", "paper")
Setting = dict[str, Any]  # dotted keys of a configuration; `start_from` names another setting of the artefact
Record = dict[str, Any]  # what is kept of a run, see records.py
Verdict = Literal["holds", "does not hold", "can't be judged", "not enough runs"]
TRAINED = 5  # digits, in every artefact


class Missing(Exception):
    """A claim needs runs that aren't there."""


class Undecided(Exception):
    """The runs of a claim are there, but they say nothing about it: a model that hasn't learnt can't generalise."""


@dataclass(frozen=True)
class Results:
    """The records of an artefact's runs at one scale, by setting and seed."""

    scale: ScaleName
    records: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    kept: Mapping[str, Setting] = field(default_factory=dict)  # the variant that a setting's records are of

    def of(self, label: str) -> Sequence[Record]:
        return self.records.get(label, ())

    def exact_match(self, label: str, length: int) -> list[float]:
        """The final accuracy at a length, one value a seed."""
        return [a["exact_match"] for r in self.of(label) for a in r["evaluation"] if a["length"] == length]

    def mean(self, label: str, length: int) -> float:
        """The mean over seeds; raises `Missing` where there is no run."""
        if not (values := self.exact_match(label, length)):
            raise Missing(label)
        return float(np.mean(values))

    def beyond(self, label: str, length: int) -> float:
        """The mean at a length beyond the trained one; `Undecided` if that isn't learnt (to a half)."""
        if self.mean(label, TRAINED) < 0.5:
            raise Undecided(f"{label} hasn't learnt {TRAINED} digits")
        return self.mean(label, length)

    def curve(self, label: str, length: int) -> tuple[list[int], list[list[float]]]:
        """The examples seen at each evaluation during training, and the exact match then, a list a seed."""
        curves = [
            [(e["examples"], a["exact_match"]) for e in r["curve"] for a in e["evaluation"] if a["length"] == length]
            for r in self.of(label)
        ]
        curves = [curve for curve in curves if curve]
        return ([x for x, _ in curves[0]] if curves else []), [[y for _, y in curve] for curve in curves]


@dataclass(frozen=True)
class Noted(Results):
    """Results that note which settings are read."""

    read: set[str] = field(default_factory=set)

    def of(self, label: str) -> Sequence[Record]:
        self.read.add(label)
        return super().of(label)


def every(holds: Callable[..., bool], *over: Iterable[Any]) -> bool:
    """Whether it holds for every combination.

    One that contradicts settles it. Without, a run that is missing could, so that is raised before `Undecided`.
    """
    answers: list[bool] = []
    missing: Missing | None = None
    undecided: Undecided | None = None
    for combination in product(*over):  # asks about all, so that `Noted` sees what it rests on
        try:
            answers.append(holds(*combination))
        except Missing as error:
            missing = error
        except Undecided as error:
            undecided = error
    if all(answers) and (unknown := missing or undecided):
        raise unknown
    return all(answers)


def some(holds: Callable[..., bool], *over: Iterable[Any]) -> bool:
    """Whether it holds for some combination; one settles it."""
    return not every(lambda *combination: not holds(*combination), *over)


# What counts as a difference between two accuracies: more than two points.
MARGIN = 0.02


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, as a predicate over results."""

    text: str
    holds: Callable[[Results], bool]

    def verdict(self, results: Results) -> Verdict:
        if results.scale == "smoke":
            return "not enough runs"  # smoke proves that the path runs, and nothing else
        try:
            return "holds" if self.holds(results) else "does not hold"
        except Undecided:
            return "can't be judged"
        except Missing:
            return "not enough runs"

    def seeds(self, results: Results) -> dict[str, int]:
        """The seeds that there are of each setting that the verdict rests on."""
        noted = Noted(results.scale, results.records)
        self.verdict(noted)
        return {label: len(results.of(label)) for label in sorted(noted.read)}


@dataclass(frozen=True)
class Grid:
    """A table of the report: rows are settings, columns are lengths, a cell has ours and the published number."""

    columns: Sequence[str]
    rows: Mapping[str, Sequence[tuple[list[float], float | None]]]  # ours over seeds, published (in percent)


class Artefact:
    """One table or figure. A subclass in a module of its own states its runs, numbers, drawing and claims."""

    name: ClassVar[str]
    where: ClassVar[str]  # in the paper
    title: ClassVar[str]
    notes: ClassVar[Sequence[str]] = ()  # where the paper contradicts itself, what differs at a small scale
    claims: ClassVar[Sequence[Claim]] = ()

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        """The runs, by label, for one seed."""
        raise NotImplementedError

    def grids(self, results: Results) -> dict[str, Grid]:
        """The tables to show, by title."""
        return {}

    def draw(self, results: Results, figure: Any) -> None:
        """Draw into a matplotlib figure; an artefact that is only a table draws nothing."""

    def measure(self, scale: ScaleName, run: Run) -> Record | None:
        """What else is to be measured on a finished run, to be kept with its record."""
        return None


ARTEFACTS: dict[str, Artefact] = {}


def artefact(name: str, where: str, title: str) -> Callable[[type[Artefact]], type[Artefact]]:
    """Register an artefact where it is defined."""

    def add(kind: type[Artefact]) -> type[Artefact]:
        assert name not in ARTEFACTS, f"artefact '{name}' is registered twice"
        kind.name, kind.where, kind.title = name, where, title
        ARTEFACTS[name] = kind()
        return kind

    return add


class Table(Artefact):
    """An artefact whose cells are final accuracies: a row a setting, a column a length."""

    lengths: ClassVar[Mapping[ScaleName, Sequence[int]]]  # the same number of columns at every scale
    published: ClassVar[Mapping[str, Sequence[float | None]]]  # percent, at the paper's lengths

    def grids(self, results: Results) -> dict[str, Grid]:
        ours, theirs = self.lengths[results.scale], self.lengths["paper"]
        anything = any(number is not None for row in self.published.values() for number in row)
        columns = [
            f"{n}" if n == m or not anything else f"{n} (published: {m})" for n, m in zip(ours, theirs, strict=True)
        ]
        rows = {
            label: [
                (results.exact_match(label, n), published)
                for n, published in zip(ours, self.published.get(label, [None] * len(ours)), strict=True)
            ]
            for label in self.settings(results.scale)
        }
        return {"Exact match (%) by number of digits": Grid(columns, rows)}
