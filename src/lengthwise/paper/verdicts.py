"""The judge: what runs with several seeds say about a claim.

A claim is one comparison, or several combined by `all_of` and `any_of`. A comparison has a verdict
only if three seeds agree and the difference exceeds two standard errors over seeds. Seeds are never
pooled. A comparison beyond the trained length needs models that have learned the trained length:
otherwise it can't be judged, whichever way it would have gone.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from lengthwise.evaluation.analysis import student_t

Verdict = Literal[
    "holds", "does not hold", "depends on the seed", "can't be judged", "too few seeds", "not run"
]
SEEDS_NEEDED = 3
LEARNED = 0.9  # exact match at the trained length from which a model counts as trained
STANDARD_ERRORS = 2
TOLERANCE = 1e-9  # so that rounding does not decide a comparison with a level


@dataclass(frozen=True)
class Measurement:
    """One number for each seed, such as the exact match at 15 digits."""

    name: str
    values: Mapping[int, float | None]  # by seed; None where the run says nothing about it
    conditions: Mapping[str, int]  # what it rests on, each with the number of its seeds
    learned: frozenset[int] | None = None  # seeds that learned the trained length; None: irrelevant

    def map(self, function: Callable[[float], float], name: str | None = None) -> "Measurement":
        """Each seed's number changed by a function."""
        values = {s: None if v is None else function(v) for s, v in self.values.items()}
        return Measurement(name or self.name, values, self.conditions, self.learned)

    def known_values(self) -> tuple[float, ...]:
        """The numbers of the seeds that have one."""
        return tuple(value for value in self.values.values() if value is not None)

    def can_judge(self, seed: int) -> bool:
        return self.values[seed] is not None and (self.learned is None or seed in self.learned)


@dataclass(frozen=True)
class Judgement:
    """A verdict, the numbers of seeds that it rests on, and the numbers compared."""

    verdict: Verdict
    conditions: Mapping[str, int] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()


def greater(a: Measurement, b: Measurement | float) -> Judgement:
    """Whether a > b.

    >>> fifteen = Measurement("at 15 digits", {0: 0.93, 1: 0.97, 2: 0.95}, {"RPE_k": 3})
    >>> greater(fifteen, 0.5).verdict, greater(fifteen, 0.94).verdict
    ('holds', 'depends on the seed')
    """
    return compare(a, b, 1, strict=True)


def less(a: Measurement, b: Measurement | float) -> Judgement:
    """Whether a < b."""
    return compare(a, b, -1, strict=True)


def at_least(a: Measurement, b: Measurement | float) -> Judgement:
    """Whether a ≥ b."""
    return compare(a, b, 1, strict=False)


def at_most(a: Measurement, b: Measurement | float) -> Judgement:
    """Whether a ≤ b."""
    return compare(a, b, -1, strict=False)


def compare(
    a: Measurement, b: Measurement | float, sign: Literal[1, -1], strict: bool
) -> Judgement:
    """Whether a − b, for each seed and on average, has the sign."""
    sides = [side for side in (a, b) if isinstance(side, Measurement)]
    seeds = sorted(set.intersection(*(set(side.values) for side in sides)))
    conditions = {label: n for side in sides for label, n in side.conditions.items()}
    words = {(1, True): "more than", (1, False): "at least"}
    words |= {(-1, True): "less than", (-1, False): "at most"}
    evidence = f"{describe(a)}; the claim: {words[sign, strict]} {describe(b)}"

    def judgement(verdict: Verdict) -> Judgement:
        return Judgement(verdict, conditions, (f"{evidence}: {verdict}",))

    if not all(side.values for side in sides):
        return judgement("not run")
    if len(seeds) < SEEDS_NEEDED:
        return judgement("too few seeds")
    if not all(side.can_judge(seed) for side in sides for seed in seeds):
        return judgement("can't be judged")
    columns = [numbers(side, seeds) for side in (a, b)]
    differences = [sign * (x - y) for x, y in zip(*columns, strict=True)]
    error = math.hypot(*map(standard_error, columns))
    return judgement(decide(differences, error, strict))


def decide(differences: Sequence[float], error: float, strict: bool) -> Verdict:
    """The verdict on differences that are positive in the claim's favour, one for each seed.

    A strict claim (more than) fails where nothing differs; a claim with a level (at least) holds.

    >>> decide([0.1, 0.2, 0.15], 0.03, strict=True), decide([0.1, -0.2, 0.15], 0.1, strict=True)
    ('holds', 'depends on the seed')
    """
    least = TOLERANCE if strict else -TOLERANCE
    mean, margin = float(np.mean(differences)), STANDARD_ERRORS * error
    if all(d > least for d in differences) and mean > margin + least:
        return "holds"
    if all(d <= least for d in differences) and -mean >= margin - least:
        return "does not hold"
    return "depends on the seed"


def numbers(side: Measurement | float, seeds: Sequence[int]) -> list[float]:
    if not isinstance(side, Measurement):
        return [side] * len(seeds)
    return [value for seed in seeds if (value := side.values[seed]) is not None]


def standard_error(values: Sequence[float]) -> float:
    """Of the mean over seeds.

    >>> round(standard_error([0.1, 0.2, 0.3]), 4)
    0.0577
    """
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def student_margin(values: Sequence[float]) -> float | None:
    """Half of Student's 95 % interval of the mean over seeds; None for one seed.

    >>> round(student_margin([0.5, 0.7, 0.6]), 4)  # 4.303 · 0.1 / √3
    0.2484
    """
    return student_t(len(values) - 1) * standard_error(values) if len(values) > 1 else None


def describe(side: Measurement | float) -> str:
    """Mean and Student's interval over seeds, in the unit of the numbers.

    >>> describe(Measurement("share", {0: 0.5, 1: 0.7, 2: 0.6}, {})), describe(0.9)
    ('share 0.600 ± 0.248', '0.9')
    """
    if not isinstance(side, Measurement):
        return f"{side:g}"
    values = side.known_values()
    if not values:
        return f"{side.name} (missing)"
    margin, mean = student_margin(values), float(np.mean(values))
    decimals = 0 if abs(mean) >= 100 else 3  # of counts of examples, and of shares
    interval = "" if margin is None else f" ± {margin:,.{decimals}f}"
    return f"{side.name} {mean:,.{decimals}f}{interval}"


# The verdicts that leave a claim open, in the order in which a claim of several parts takes them:
# a missing run could still settle it either way.
OPEN: tuple[Verdict, ...] = ("not run", "too few seeds", "can't be judged", "depends on the seed")


def all_of(judgements: Iterable[Judgement]) -> Judgement:
    """Whether all hold. One that doesn't hold settles it, even if others are open."""
    return combine(judgements, settles="does not hold", otherwise="holds")


def any_of(judgements: Iterable[Judgement]) -> Judgement:
    """Whether at least one holds. One that holds settles it, even if others are open."""
    return combine(judgements, settles="holds", otherwise="does not hold")


def combine(judgements: Iterable[Judgement], settles: Verdict, otherwise: Verdict) -> Judgement:
    parts = list(judgements)
    found = {part.verdict for part in parts}
    verdict = next((v for v in (settles, *OPEN) if v in found), otherwise)
    conditions = {label: n for part in parts for label, n in part.conditions.items()}
    return Judgement(verdict, conditions, tuple(line for part in parts for line in part.evidence))
