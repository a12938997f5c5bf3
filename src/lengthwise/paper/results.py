"""The records of an artefact's runs, and the numbers that claims and tables take from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lengthwise.evaluation.accuracy import wilson
from lengthwise.paper.scales import Overrides, ScaleName
from lengthwise.paper.verdicts import LEARNED, Measurement, student_margin

Record = dict[str, Any]  # what is kept of one run, see records.py


@dataclass(frozen=True)
class Cell:
    """A cell of a table: our exact match for each seed, and the published number in percent."""

    shares: tuple[float, ...]
    published: float | None = None
    examples: int | None = None  # tested for each share

    def text(self) -> str:
        """Mean and 95 % interval: Student's over seeds, Wilson's for one model.

        >>> Cell((0.5, 0.7, 0.6), 98.9).text(), Cell((0.9,), None, 100).text(), Cell((), 100).text()
        ('60.0 ± 24.8 (3 seeds) · 98.9', '90.0 [82.6, 94.5] (1 seed)', 'missing · 100')
        """
        published = "" if self.published is None else f" · {self.published:g}"
        return self.ours() + published

    def ours(self) -> str:
        count = len(self.shares)
        if not count:
            return "missing"
        margin = student_margin(self.shares)
        if margin is not None:
            return f"{100 * np.mean(self.shares):.1f} ± {100 * margin:.1f} ({count} seeds)"
        interval = ""
        if self.examples:
            low, high = wilson(round(self.shares[0] * self.examples), self.examples)
            interval = f" [{100 * low:.1f}, {100 * high:.1f}]"
        return f"{100 * self.shares[0]:.1f}{interval} (1 seed)"


@dataclass(frozen=True)
class Results:
    """The records of an artefact's runs at one scale, by condition and seed."""

    scale: ScaleName
    records: Mapping[str, Mapping[int, Record]] = field(default_factory=dict)
    variants: Mapping[str, Overrides] = field(default_factory=dict)  # the chosen ones
    origins: Mapping[str, str] = field(default_factory=dict)  # of conditions that fine-tune

    def of(self, label: str) -> Mapping[int, Record]:
        return self.records.get(label, {})

    def exact_match(self, label: str, length: int) -> list[float]:
        """The final accuracy at a length, one value for each seed."""
        shares = (final_accuracy(record, length) for record in self.of(label).values())
        return [share for share in shares if share is not None]

    def cell(self, label: str, length: int, published: float | None = None) -> Cell:
        records = self.of(label).values()
        tested = [a for r in records for a in r["evaluation"] if a["length"] == length]
        examples = tested[0].get("examples") if tested else None
        return Cell(tuple(self.exact_match(label, length)), published, examples)

    def in_domain(self, label: str) -> Measurement:
        """The final accuracy at the trained length."""
        return self.measure(label, trained_accuracy, f"{label} in domain", gated=False)

    def accuracy(self, label: str, length: int, gated: bool = True) -> Measurement:
        """The final accuracy at a length, of models that have learned the trained length."""
        name = f"{label} at {length} digits"
        return self.measure(label, lambda record: final_accuracy(record, length), name, gated)

    def mean_accuracy(
        self, label: str, lengths: Sequence[int], name: str, gated: bool = True
    ) -> Measurement:
        """The final accuracy, averaged over lengths."""

        def mean(record: Record) -> float:
            return float(np.mean([final_accuracy(record, n) or 0.0 for n in lengths]))

        return self.measure(label, mean, f"{label}, {name}", gated)

    def measure(
        self,
        label: str,
        quantity: Callable[[Record], float | None],
        name: str = "",
        gated: bool = True,
    ) -> Measurement:
        """A number of each seed's record. With `gated`, only trained models can be judged by it."""
        return self.measure_together(
            [label], lambda records: quantity(records[label]), name or label, gated
        )

    def measure_together(
        self,
        labels: Sequence[str],
        quantity: Callable[[Mapping[str, Record]], float | None],
        name: str,
        gated: bool = True,
    ) -> Measurement:
        """A number of each seed from the records of several conditions."""
        conditions = {label: len(self.of(label)) for label in labels}
        seeds = sorted(set.intersection(*(set(self.of(label)) for label in labels)))
        chosen = {seed: {label: self.of(label)[seed] for label in labels} for seed in seeds}
        values = {seed: quantity(records) for seed, records in chosen.items()}
        learned = (s for s in seeds if all(self.has_learned(label, s) for label in labels))
        return Measurement(name, values, conditions, frozenset(learned) if gated else None)

    def has_learned(self, label: str, seed: int) -> bool:
        """Whether a model, or the one that it starts from, has learned the trained length."""
        record = self.of(self.origins.get(label, label)).get(seed)
        share = None if record is None else trained_accuracy(record)
        return share is not None and share >= LEARNED

    def curve(self, label: str, length: int) -> tuple[list[int], list[list[float]]]:
        """The examples seen at each evaluation in training, and each seed's exact match then."""
        curves = [training_curve(record, length) for record in self.of(label).values()]
        curves = [curve for curve in curves if curve]
        examples = [seen for seen, _ in curves[0]] if curves else []
        return examples, [[share for _, share in curve] for curve in curves]


def final_accuracy(record: Record, length: int) -> float | None:
    """The exact match at a length in the final test."""
    shares = (a["exact_match"] for a in record["evaluation"] if a["length"] == length)
    return next(shares, None)


def final_digits(record: Record, length: int) -> list[float] | None:
    """The accuracy of each digit of the answer in the final test, in the order of writing."""
    return next((a["digits"] for a in record["evaluation"] if a["length"] == length), None)


def train_digits(record: Record) -> int:
    """The trained length: the digits of the longest operands in training."""
    return int(record["config"]["data"]["train_digits"])


def trained_accuracy(record: Record) -> float | None:
    """The exact match at the trained length in the final test."""
    return final_accuracy(record, train_digits(record))


def training_curve(record: Record, length: int) -> list[tuple[int, float]]:
    """(examples seen, exact match at a length) at each evaluation during training."""
    return [
        (point["examples"], a["exact_match"])
        for point in record["curve"]
        for a in point["evaluation"]
        if a["length"] == length
    ]
