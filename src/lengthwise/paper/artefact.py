"""The interface of a table or a figure of the paper: conditions, claims, tables, a drawing.

An artefact is a class in a file of its own. Its decorator registers it; nothing else lists it. A
file of your own works the same way: `lengthwise paper run NAME --import FILE`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lengthwise.base import UsageError, nearest
from lengthwise.paper.results import Cell, Record, Results
from lengthwise.paper.scales import SMOKE_LENGTHS, Overrides, ScaleName, variants
from lengthwise.paper.verdicts import Judgement
from lengthwise.training.runs import Run


@dataclass(frozen=True, eq=False)
class Headline:
    """A claim's place in the report's first table."""

    text: str
    lengths: Sequence[int]  # that it is about
    conditions: Sequence[str]  # the best of them is shown
    published: str  # as the paper puts it
    ours: Callable[[Results], str] | None = None  # shown instead of an accuracy


@dataclass(frozen=True, eq=False)
class Claim:
    """Something that the paper says, as a function from results to a judgement."""

    text: str
    judge: Callable[[Results], Judgement]
    headline: Headline | None = None

    def judgement(self, results: Results) -> Judgement:
        if results.scale == "smoke":  # which proves that the path runs, and nothing else
            return Judgement("can't be judged")
        return self.judge(results)


@dataclass(frozen=True)
class Grid:
    """A table of the report."""

    columns: Sequence[str]
    rows: Mapping[str, Sequence[Cell]]


class Artefact:
    """One table or figure. A subclass states its runs, numbers, drawing and claims."""

    name: ClassVar[str]
    where: ClassVar[str]  # in the paper
    title: ClassVar[str]
    notes: ClassVar[Sequence[str]] = ()  # contradictions in the paper, differences at small scales
    claims: ClassVar[Sequence[Claim]] = ()
    difference: ClassVar[Mapping[ScaleName, str]] = {}  # from the paper, said with every claim

    def qualify(self, text: str, scale: ScaleName) -> str:
        """A claim or a headline, with what differs from the paper at a scale."""
        return f"{text}; {self.difference[scale]}" if scale in self.difference else text

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        """The experiments by label, without seeds. `start_from` names another of them."""
        raise NotImplementedError

    def variants(self, scale: ScaleName) -> list[Overrides]:
        """The hyperparameters that each condition is tried with; the best in domain is kept."""
        return variants(scale)

    def grids(self, results: Results) -> dict[str, Grid]:
        """The tables to show, by title."""
        return {}

    def draw(self, results: Results, figure: Any) -> None:
        """Draw into a matplotlib figure; an artefact that is only a table draws nothing."""

    def measure(self, scale: ScaleName, run: Run) -> Record | None:
        """More to measure on a finished run, to be kept in its record."""
        return None

    @property
    def has_figure(self) -> bool:
        return type(self).draw is not Artefact.draw

    @property
    def measures(self) -> bool:
        return type(self).measure is not Artefact.measure


ARTEFACTS: dict[str, Artefact] = {}


def artefact(name: str, where: str, title: str) -> Callable[[type[Artefact]], type[Artefact]]:
    """Register an artefact where it is defined."""

    def register(cls: type[Artefact]) -> type[Artefact]:
        before = type(ARTEFACTS[name]) if name in ARTEFACTS else cls
        if (before.__module__, before.__qualname__) != (cls.__module__, cls.__qualname__):
            place = f"{before.__module__}.{before.__qualname__}"
            raise UsageError(f"the artefact '{name}' exists already: {place}")
        cls.name, cls.where, cls.title = name, where, title
        ARTEFACTS[name] = cls()
        return cls

    return register


def find_artefact(name: str) -> Artefact:
    if name not in ARTEFACTS:
        raise UsageError(f"there is no artefact '{name}': {nearest(name, ARTEFACTS)}")
    return ARTEFACTS[name]


class Table(Artefact):
    """Final accuracies: a row for a condition, a column for a length."""

    lengths: ClassVar[Sequence[int]]
    published: ClassVar[Mapping[str, Sequence[float | None]]] = {}  # percent

    def columns(self, scale: ScaleName) -> Sequence[int]:
        return SMOKE_LENGTHS if scale == "smoke" else self.lengths

    def grids(self, results: Results) -> dict[str, Grid]:
        labels = list(self.conditions(results.scale))
        return {"Exact match (%) by number of digits": self.grid(results, labels)}

    def grid(self, results: Results, labels: Sequence[str]) -> Grid:
        lengths = self.columns(results.scale)
        rows = {}
        for label in labels:
            published = self.published.get(label) if results.scale != "smoke" else None
            numbers = published or [None] * len(lengths)
            pairs = zip(lengths, numbers, strict=True)
            rows[label] = [results.cell(label, n, number) for n, number in pairs]
        return Grid([f"{n}" for n in lengths], rows)


def accuracy_grid(results: Results, labels: Sequence[str], lengths: Sequence[int]) -> Grid:
    """Final accuracies without published numbers: a row for a condition, a column for a length."""
    rows = {label: [results.cell(label, n) for n in lengths] for label in labels}
    return Grid([f"{n}" for n in lengths], rows)
