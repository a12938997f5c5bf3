"""Hand-made records and results of the paper's artefacts, for the tests test_paper_*.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lengthwise.paper import ARTEFACTS
from lengthwise.paper.artefact import Artefact, Table
from lengthwise.paper.results import Record, Results
from lengthwise.paper.scales import ScaleName

SEEDS = (0, 1, 2)
POINTS = np.arange(1, 21) * 1000  # examples seen
Accuracy = Callable[[int], float]  # exact match by length
Speed = Callable[[int, int], float]  # (digit, of digits) → when in training it is learned, 0 to 1


def together(digit: int, digits: int) -> float:
    """The outer digits first, then all others at once."""
    return 0.3 if digit in (1, digits) else 0.5


def one_at_a_time(digit: int, digits: int) -> float:
    return 0.05 if digit in (1, digits) else 0.1 + 0.8 * (digit - 1) / digits


def record(
    accuracy: Accuracy,
    *,
    longest: int = 35,
    second: int = 1,
    speed: Speed = together,
    delay: float = 0.2,
    digits: Callable[[int], Sequence[float]] | None = None,
    measures: Mapping[str, Any] | None = None,
) -> Record:
    """A record as `write_record` makes it, where longer problems are learned later by `delay`."""
    curve: list[Record] = []
    for examples in POINTS:
        done, tests = examples / POINTS[-1], []
        for length in (5, longest):
            n = length + second
            late = delay * (length > 5)
            by_digit = [
                accuracy(length) * float(done >= min(1, speed(d, n) + late))
                for d in range(1, n + 1)
            ]
            tests.append(tested(length, min(by_digit), by_digit))
        curve.append({"examples": int(examples), "evaluation": tests})
    final = [
        tested(n, accuracy(n), digits(n) if digits else [accuracy(n)] * n)
        for n in range(3, longest + 1)
    ]
    training = [
        {"examples": p["examples"], "loss": 1.0, "train": [*p["evaluation"][0]["digits"], 1.0]}
        for p in curve
    ]
    return {
        "identity": "0" * 64,
        "commit": "abcdef1234567890",
        "sessions": [{"started": "2026-01-01T00:00:00+0000", "commit": "abcdef1234567890"}],
        "config": {"seed": 0, "data": {"train_digits": 5}},
        "evaluation": final,
        "curve": curve,
        "training": training,
        "measures": dict(measures or {}),
    }


def tested(length: int, share: float, digits: Sequence[float]) -> Record:
    counts = {"length": length, "examples": 1000, "correct": round(1000 * share)}
    return {**counts, "exact_match": share, "digits": list(digits)}


def results(
    records: Mapping[str, Record],
    scale: ScaleName = "cpu",
    origins: Mapping[str, str] | None = None,
) -> Results:
    """Three seeds with the same record of each condition."""
    by_seed = {label: dict.fromkeys(SEEDS, found) for label, found in records.items()}
    return Results(scale, by_seed, {}, origins or {})


def only(*lengths: int, high: float = 0.97) -> Accuracy:
    """The accuracy of a model that knows these lengths."""
    return lambda length: high if length in lengths else 0.0


def at(cells: Mapping[int, float]) -> Accuracy:
    """Percentages by length; between tested lengths, that of the nearest shorter one."""
    return lambda n: cells[max((m for m in cells if m <= n), default=min(cells))] / 100


Rows = dict[str, dict[int, float]]  # percentages by condition and length


def published_rows(table: Table) -> Rows:
    """A table's published numbers, with 100 % in domain where it has no such column."""
    return {
        label: {5: 100.0, **dict(zip(table.lengths, row, strict=True))}  # type: ignore[arg-type]
        for label, row in table.published.items()
    }


def table_results(rows: Rows, scale: ScaleName = "cpu", **options: Any) -> Results:
    return results({label: record(at(cells), **options) for label, cells in rows.items()}, scale)


def verdicts(artefact: Artefact, found: Results) -> dict[str, str]:
    return {claim.text: claim.judgement(found).verdict for claim in artefact.claims}


def without(found: Results, label: str) -> Results:
    left = {other: seeds for other, seeds in found.records.items() if other != label}
    return Results(found.scale, left, found.variants, found.origins)


def table(name: str) -> Table:
    found = ARTEFACTS[name]
    assert isinstance(found, Table)
    return found
