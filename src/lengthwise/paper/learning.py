"""Numbers that claims take from learning curves: which length or digit was learned first."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lengthwise.paper.results import Record, Results, final_accuracy, training_curve
from lengthwise.paper.scales import TRAIN_DIGITS
from lengthwise.paper.verdicts import Measurement

DigitCurves = tuple[list[int], NDArray[np.float64]]  # examples seen; (seeds, points, digits)


def first_reached(curve: Sequence[tuple[int, float]], level: float) -> float:
    """The examples seen when a curve first was at the level; infinite if it never was.

    >>> first_reached([(100, 0.2), (200, 0.6)], 0.5), first_reached([(100, 0.2)], 0.5)
    (200, inf)
    """
    return next((seen for seen, share in curve if share >= level), float("inf"))


def short_before_long(results: Results, label: str, long: int) -> Measurement:
    """By how many examples the trained length came before a long one, seed by seed.

    Each is timed when it reached half of the final accuracy at the long length. At least half of
    that length must be learned.
    """

    def lead(record: Record) -> float | None:
        level = (final_accuracy(record, long) or 0.0) / 2
        if level < 0.25:
            return None
        short = first_reached(training_curve(record, TRAIN_DIGITS), level)
        late = first_reached(training_curve(record, long), level)
        return late - short if np.isfinite([short, late]).all() else None

    name = f"{label}: examples between {TRAIN_DIGITS} and {long} digits"
    return results.measure(label, lead, name, gated=False)


def mean_over_training(results: Results, label: str, length: int) -> Measurement:
    """The accuracy at a length, averaged over training: higher for a model that learns faster."""

    def mean(record: Record) -> float | None:
        shares = [share for _, share in training_curve(record, length)]
        return float(np.mean(shares)) if shares else None

    return results.measure(label, mean, f"{label} at {length} digits, averaged over training")


def tested_digits(record: Record, length: int) -> NDArray[np.float64]:
    """(points, digits): the accuracy of each digit of the answer on fresh problems."""
    return np.array(
        [
            a["digits"]
            for point in record["curve"]
            for a in point["evaluation"]
            if a["length"] == length
        ]
    )


def tested_digit_curves(results: Results, label: str, length: int) -> DigitCurves:
    """The accuracy of each digit of the answer on fresh problems, while the model was trained."""
    examples, _ = results.curve(label, length)
    return examples, stack([tested_digits(record, length) for record in results.of(label).values()])


def training_digit_curves(results: Results, label: str, digits: int) -> DigitCurves:
    """The same on unprimed training examples, for as many digits as their answers have."""
    seeds = [
        [point for point in record["training"] if "train" in point]
        for record in results.of(label).values()
    ]
    examples = [point["examples"] for point in seeds[0]] if seeds else []
    return examples, stack([np.array([p["train"][:digits] for p in seed]) for seed in seeds])


def stack(seeds: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    found = [seed for seed in seeds if seed.size]
    return np.array(found) if found else np.zeros((0, 0, 0))


def digit_gap(results: Results, label: str) -> Measurement:
    """How far apart a model learns the inner digits of an answer, seed by seed.

    It is the largest difference between their accuracies at one time, without the first and the
    last digit.
    """

    def gap(record: Record) -> float | None:
        digits = tested_digits(record, TRAIN_DIGITS)
        return float(np.ptp(digits[:, 1:-1], axis=1).max()) if digits.size else None

    return results.measure(label, gap, f"{label}: gap between inner digits")


def lead_of_outer_digits(results: Results, label: str) -> Measurement:
    """By how much the first and the last digit beat every other, averaged over training."""

    def lead(record: Record) -> float | None:
        digits = tested_digits(record, TRAIN_DIGITS)
        if not digits.size:
            return None
        first, *inner, last = digits.mean(0)
        return float(min(first, last) - max(inner))

    return results.measure(label, lead, f"{label}: lead of the outer digits")
