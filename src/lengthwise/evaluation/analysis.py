"""Where models fail, how they learn each digit, thresholds, scaling fits, forgetting (§5 and §6).

Everything here is a pure function of a model, of a run's metrics, or of accuracies.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lengthwise.arithmetic.digits import carries, longest_run
from lengthwise.arithmetic.tasks import Addition
from lengthwise.base import UsageError, generator
from lengthwise.evaluation.accuracy import Accuracy, check_lengths
from lengthwise.problems.evaluation_set import evaluation_set
from lengthwise.problems.layouts import Layout
from lengthwise.problems.sampling import Sampling
from lengthwise.problems.training_set import Examples
from lengthwise.solver import Solver

Transform = Literal["linear", "log"]
RESAMPLES = 1000  # of the bootstrap
TOLERANCE = 1e-9  # in comparisons of means with a level, so that rounding does not decide


class Finding:
    """What the results here share: a form for JSON."""

    def to_json(self) -> dict[str, Any]:
        def convert(value: Any) -> Any:
            return vars(value) if isinstance(value, Finding) else value.tolist()

        return json.loads(json.dumps(vars(self), default=convert))


@dataclass(frozen=True)
class FailureStudy(Finding):
    """Where a model fails on problems of one length (paper, §6.2 and figure 6)."""

    length: int
    examples: int
    correct: int
    # (correct, total) by the number of carries (NC) and of consecutive ones (MC); sums of two only
    by_carries: dict[int, tuple[int, int]] | None
    by_chain: dict[int, tuple[int, int]] | None
    wrong_symbols: dict[int, int]  # wrong answers by their number of wrong symbols
    wrong_position: dict[int, int]  # of one wrong symbol, by its position; 1 is written first
    wrong_significance: dict[int, int]  # and by its power of ten; padding has −1, −2, …


def failure_study(
    solver: Solver,
    length: int,
    examples: int,
    seed: int = 0,
    occasion: int = 0,
    sampling: Sampling = "exact",
) -> FailureStudy:
    """Accuracy by carries, number and place of wrong symbols, on fresh problems of one length."""
    check_lengths(solver, [length], examples)
    sum_of_two = isinstance(solver.task, Addition) and solver.task.operands == 2
    blocks = evaluation_set(solver.task, length, examples, seed, occasion, sampling)
    with solver.testing():
        parts = [part for block in blocks for part in solver.predict(block)]
    errors = [describe_errors(solver.layout, *part, sum_of_two) for part in parts]
    number, chain, wrong, position, power = np.concatenate(errors, axis=1)
    right, single = wrong == 0, wrong == 1
    return FailureStudy(
        length,
        examples,
        int(right.sum()),
        score_by(number, right) if sum_of_two else None,
        score_by(chain, right) if sum_of_two else None,
        tally(wrong[~right]),
        tally(position[single]),
        tally(power[single]),
    )


def describe_errors(
    layout: Layout, examples: Examples, symbols: NDArray[np.int64], sum_of_two: bool
) -> NDArray[np.int64]:
    """(5, b): carries, the longest chain, wrong symbols, place and power of ten of the first."""
    answer = examples.answer
    wrong = symbols != layout.encode_answer(answer, symbols.shape[1])
    first = wrong.argmax(1)
    power = first if layout.least_first else answer.lengths - 1 - first
    no_carries = np.zeros((len(answer), 1), bool)
    marks = carries(*examples.operands) if sum_of_two else no_carries
    return np.stack([marks.sum(1), longest_run(marks), wrong.sum(1), first + 1, power])


def tally(values: NDArray[np.int64]) -> dict[int, int]:
    """How often each value occurs.

    >>> tally(np.array([3, 1, 3]))
    {1: 1, 3: 2}
    """
    kinds, counts = np.unique(values, return_counts=True)
    return dict(zip(kinds.tolist(), counts.tolist(), strict=True))


def score_by(values: NDArray[np.int64], right: NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """For each value, how many of its problems are right, and how many there are.

    >>> score_by(np.array([3, 1, 3]), np.array([True, False, False]))
    {1: (0, 1), 3: (1, 2)}
    """
    correct = tally(values[right])
    return {value: (correct.get(value, 0), total) for value, total in tally(values).items()}


@dataclass(frozen=True, eq=False)
class Curve(Finding):
    """Accuracy as training went on."""

    examples: NDArray[np.int64]  # (points,), seen until then
    exact_match: NDArray[np.float64]  # (points,)
    digits: NDArray[np.float64]  # (points, symbols of the answer), in the order of writing


@dataclass(frozen=True)
class LearningCurves(Finding):
    """All curves of a run (paper, figures 3b, 4d and 7, appendices A.3 to A.5)."""

    tested: dict[int, Curve]  # by length
    train: Curve | None  # on unprimed training examples
    primed: Curve | None  # on the primed ones


def learning_curves(
    metrics: Sequence[Mapping[str, Any]], answer_symbols: Mapping[str, int] | None = None
) -> LearningCurves:
    """The curves in a run's metrics (`run.metrics`).

    Records of training examples have all symbols of the layout. `answer_symbols`, as from
    `experiment.answer_symbols()`, keeps those that are not always padding.
    """
    points: dict[int | str, list[tuple[int, Mapping[str, Any]]]] = {}
    kept = answer_symbols or {}
    for record in metrics:
        tested = {accuracy["length"]: accuracy for accuracy in record.get("evaluation", [])}
        trained = {name: record[name] for name in ("train", "primed") if name in record}
        for key, accuracy in {**tested, **trained}.items():
            points.setdefault(key, []).append((record["examples"], accuracy))

    def curve(key: int | str) -> Curve:
        examples = np.array([seen for seen, _ in points[key]])
        digits = np.array([a["digits"][: kept.get(str(key))] for _, a in points[key]])
        exact_match = np.array([a["exact_match"] for _, a in points[key]])
        return Curve(examples, exact_match, digits)

    return LearningCurves(
        {key: curve(key) for key in points if isinstance(key, int)},
        curve("train") if "train" in points else None,
        curve("primed") if "primed" in points else None,
    )


def examples_to_reach(curve: Curve, level: float, digit: int | None = None) -> int | None:
    """The examples seen when exact match, or a digit's accuracy (from 1), first reached the level.

    >>> window = {"exact_match": 0.5, "digits": [0.9, 0.5]}
    >>> curves = learning_curves([{"step": 10, "examples": 640, "train": window}])
    >>> examples_to_reach(curves.train, 0.9, digit=1), examples_to_reach(curves.train, 0.9)
    (640, None)
    """
    if digit is not None and not 1 <= digit <= curve.digits.shape[1]:
        raise UsageError(f"digits go from 1 to {curve.digits.shape[1]}, so there is no {digit}")
    values = curve.exact_match if digit is None else curve.digits[:, digit - 1]
    reached = values >= level - TOLERANCE
    return int(curve.examples[reached.argmax()]) if reached.any() else None


def largest_length(accuracies: Mapping[int, float], level: float = 0.75) -> int:
    """The largest length at which the accuracy reaches the level (paper, figure 2), or 0.

    >>> largest_length({5: 1.0, 10: 0.8, 15: 0.75, 20: 0.2})
    15
    """
    reached = (n for n, accuracy in accuracies.items() if accuracy >= level - TOLERANCE)
    return max(reached, default=0)


@dataclass(frozen=True)
class Estimate(Finding):
    """A value with its 95 % confidence interval; a bound is None where the data give none."""

    value: float
    low: float | None
    high: float | None
    error: float | None = None  # the standard error, where the interval comes from one


def smallest_sufficient(
    accuracies: Mapping[int, Sequence[float]], level: float = 0.9
) -> Estimate | None:
    """The priming needed for a level of accuracy, from each count's accuracies over seeds (fig. 4).

    Isotonic regression makes the means rise with the count; between tested counts they are
    interpolated. The interval is a bootstrap over each count's seeds, if every count has several.
    None if the level is never reached.

    >>> smallest_sufficient({10: [0.2, 0.4], 20: [0.8, 0.8], 40: [1.0, 1.0]}).value
    30.0
    """
    tested = sorted(accuracies)
    seeds = [np.asarray(accuracies[count], float) for count in tested]
    if not all(map(len, seeds)):
        raise UsageError("every count needs the accuracy of at least one seed")
    counts, weights = np.array(tested, float), np.array([len(values) for values in seeds], float)
    means = np.array([[values.mean() for values in seeds]])
    value = crossing(counts, means, weights, level)[0] if tested else math.inf
    if value == math.inf:
        return None
    if weights.min() < 2:
        return Estimate(float(value), None, None)
    rng = generator(0, "bootstrap")
    resampled = [v[rng.integers(0, len(v), (RESAMPLES, len(v)))].mean(1) for v in seeds]
    crossings = crossing(counts, np.stack(resampled, axis=1), weights, level)
    # This method does no arithmetic with infinity.
    bounds = np.quantile(crossings, [0.025, 0.975], method="inverted_cdf").tolist()
    low, high = (bound if math.isfinite(bound) else None for bound in bounds)
    return Estimate(float(value), low, high)


def crossing(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64], level: float
) -> NDArray[np.float64]:
    """Where each row of y (rows, points), made to rise, first reaches the level."""
    y = isotonic(y, weights)
    reached = y >= level - TOLERANCE
    end = reached.argmax(1)
    start = np.maximum(end - 1, 0)
    below, above = (np.take_along_axis(y, at[:, None], 1)[:, 0] for at in (start, end))
    share = np.clip((level - below) / np.where(above > below, above - below, 1), 0, 1)
    return np.where(reached.any(1), x[start] + share * (x[end] - x[start]), math.inf)


def isotonic(y: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nondecreasing rows nearest to those of y (rows, points), by weighted squares.

    At each point it is the maximum, over stretches that start there or before, of the minimum, over
    their ends, of a mean.

    >>> isotonic(np.array([[1.0, 3.0, 2.0, 4.0]]), np.ones(4)).tolist()
    [[1.0, 2.5, 2.5, 4.0]]
    """
    total, weight = (
        np.pad(np.cumsum(v, -1), [(0, 0), (1, 0)]) for v in (y * weights, weights[None])
    )
    sums, sizes = (v[:, None, 1:] - v[:, :-1, None] for v in (total, weight))  # (rows, start, end)
    means = np.where(sizes > 0, sums / np.where(sizes > 0, sizes, 1), -math.inf)
    least: NDArray[np.float64] = np.minimum.accumulate(means[:, :, ::-1], axis=2)[:, :, ::-1]
    return least.max(1)


@dataclass(frozen=True)
class Fit(Finding):
    """A line through points: y = intercept + slope · x, or slope · log₁₀ x."""

    transform: Transform
    points: int
    slope: Estimate
    intercept: Estimate
    r_squared: float | None  # None where y doesn't vary
    residual: float  # sum of squares

    def predict(self, x: ArrayLike) -> NDArray[np.float64]:
        return self.intercept.value + self.slope.value * apply_transform(x, self.transform)


def fit(x: ArrayLike, y: ArrayLike, transform: Transform = "linear") -> Fit:
    """Least squares, with Student's intervals from three points on (paper, figure 4b and c).

    >>> by_train_size = fit([1e3, 1e4, 1e5], [30, 70, 100], "log")
    >>> [round(number, 2) for number in (by_train_size.slope.value, by_train_size.slope.error)]
    [35.0, 2.89]
    """
    at, values = apply_transform(x, transform), np.asarray(y, float)
    if at.shape != values.shape or len(np.unique(at)) < 2:
        raise UsageError(
            f"a fit needs two or more different x, each with its y, not {at.size} and {values.size}"
        )
    centre, degrees = at.mean(), at.size - 2
    deviation, height = at - centre, values - values.mean()
    squares = float(deviation @ deviation)
    slope = float(deviation @ height) / squares
    residual = float(((height - slope * deviation) ** 2).sum())

    def estimate(value: float, variance: float) -> Estimate:
        if degrees == 0:
            return Estimate(value, None, None)
        error = math.sqrt(residual / degrees * variance)
        margin = student_t(degrees) * error
        return Estimate(value, value - margin, value + margin, error)

    return Fit(
        transform,
        at.size,
        estimate(slope, 1 / squares),
        estimate(float(values.mean() - slope * centre), 1 / at.size + float(centre) ** 2 / squares),
        1 - residual / float(height @ height) if np.ptp(values) else None,
        residual,
    )


def apply_transform(x: ArrayLike, transform: Transform) -> NDArray[np.float64]:
    x = np.asarray(x, float)
    if transform == "log" and not (x > 0).all():
        raise UsageError("a logarithmic fit needs positive x")
    return np.log10(x) if transform == "log" else x


def compare_fits(x: ArrayLike, y: ArrayLike) -> list[Fit]:
    """The linear and the logarithmic fit, the one with the smaller residual first.

    >>> [f.transform for f in compare_fits([1e3, 1e4, 1e5], [30, 70, 100])]
    ['log', 'linear']
    """
    if np.unique(np.asarray(x)).size < 3:
        raise UsageError("two points fit a line and a logarithm alike, so a comparison needs three")
    return sorted((fit(x, y, "linear"), fit(x, y, "log")), key=lambda f: f.residual)


def student_t(degrees: int, confidence: float = 0.95) -> float:
    """The t for which Student's distribution has this share within ±t, by bisection.

    For integer degrees of freedom the share is a finite sum in the angle arctan(t/√degrees)
    (Abramowitz and Stegun, 26.7.3 and 26.7.4).

    >>> round(student_t(1), 3), round(student_t(10), 3)
    (12.706, 2.228)
    """

    def within(angle: float) -> float:
        odd, cosine, total = degrees % 2, math.cos(angle), 0.0
        term = cosine if odd else 1.0
        for power in range(odd, degrees - 1, 2):
            total += term
            term *= cosine * cosine * (power + 1) / (power + 2)
        share = math.sin(angle) * total
        return (angle + share) * 2 / math.pi if odd else share

    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) < confidence else (low, middle)
    return math.sqrt(degrees) * math.tan(low)


def forgetting(before: Accuracy, after: Accuracy) -> Estimate:
    """The accuracy lost between two evaluations, with Newcombe's interval (§5.1 and figure 3a).

    >>> lost = forgetting(Accuracy(5, 70, 56, ()), Accuracy(5, 80, 48, ()))
    >>> [round(number, 4) for number in (lost.value, lost.low, lost.high)]
    [0.2, 0.0524, 0.3339]
    """
    (low, high), (low_after, high_after) = before.interval, after.interval
    lost = before.exact_match - after.exact_match
    down = math.hypot(before.exact_match - low, high_after - after.exact_match)
    up = math.hypot(high - before.exact_match, after.exact_match - low_after)
    return Estimate(lost, lost - down, lost + up)


@dataclass(frozen=True)
class Spread(Finding):
    """A value over seeds."""

    mean: float
    worst: float
    best: float
    deviation: float | None  # the standard deviation of the sample; None for one seed
    n: int


def over_seeds(values: Sequence[float]) -> Spread:
    """Mean and spread of a value, such as the accuracy, over the runs with several seeds.

    >>> over_seeds([0.5, 1.0])
    Spread(mean=0.75, worst=0.5, best=1.0, deviation=0.3535533905932738, n=2)
    """
    if not values:
        raise UsageError("there is no run to average over")
    array = np.asarray(values, float)
    deviation = float(array.std(ddof=1)) if array.size > 1 else None
    return Spread(
        float(array.mean()), float(array.min()), float(array.max()), deviation, array.size
    )
