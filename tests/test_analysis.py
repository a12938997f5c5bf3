"""Analyses of solvers with chosen mistakes, of written-out metrics, and of textbook examples."""

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import SMALLEST, KnownSolver, make_solver, mistaken

from lengthwise.arithmetic.tasks import Addition, Task
from lengthwise.base import UsageError
from lengthwise.evaluation.accuracy import Accuracy, evaluate
from lengthwise.evaluation.analysis import (
    compare_fits,
    examples_to_reach,
    failure_study,
    fit,
    forgetting,
    isotonic,
    largest_length,
    learning_curves,
    over_seeds,
    smallest_sufficient,
    student_t,
)
from lengthwise.problems.evaluation_set import BLOCK, evaluation_set
from lengthwise.training import keys
from lengthwise.training.loop import train
from lengthwise.training.runs import Run

T = TypeVar("T")
MOST, LEAST = "most-significant-first", "least-significant-first"


def some(value: T | None) -> T:
    assert value is not None
    return value


def make_mistaken(
    mistakes: Callable[..., list[int]], order: str = MOST, task: object = "addition"
) -> KnownSolver:
    return mistaken(mistakes, task, digits=6, layout={"kind": "paper", "order": order})


def problems(task: Task, length: int, count: int, **options: Any) -> list[tuple[int, ...]]:
    blocks = evaluation_set(task, length, count, **{"seed": 0, **options})
    return [
        problem
        for block in blocks
        for problem in zip(*(n.to_ints() for n in block.operands), strict=True)
    ]


def carries_of(a: int, b: int) -> tuple[int, int]:
    """The number of carries and the most of them in a row, by adding as at school."""
    carry = number = chain = longest = 0
    while a or b:
        carry = int(a % 10 + b % 10 + carry >= 10)
        number, chain = number + carry, (chain + 1) * carry
        longest = max(longest, chain)
        a, b = a // 10, b // 10
    return number, longest


def solved(pairs: list[tuple[int, bool]]) -> dict[int, tuple[int, int]]:
    """(correct, total) by value, from (value, right) pairs."""
    values = {value for value, _ in pairs}
    return {
        v: (sum(right for w, right in pairs if w == v), sum(w == v for w, _ in pairs))
        for v in values
    }


def test_the_oracle_of_carries() -> None:
    expected = {(58, 67): (2, 2), (99999, 1): (5, 5), (12, 34): (0, 0), (90909, 90909): (3, 1)}
    assert {pair: carries_of(*pair) for pair in expected} == expected


@pytest.mark.parametrize("order", [MOST, LEAST])
def test_failures_of_sums_are_counted(order: str) -> None:
    """Wrong with three or more carries, two of them in a row, as the paper found."""

    def mistakes(a: int, b: int) -> list[int]:
        number, chain = carries_of(a, b)
        return sorted({a % 3, b % 4}) if number >= 3 and chain >= 2 else []

    count = BLOCK + 50
    study = failure_study(make_mistaken(mistakes, order=order), 5, count)
    rows = problems(Addition(), 5, count)
    right = [not mistakes(a, b) for a, b in rows]
    assert 50 < sum(right) < count - 50
    assert (study.length, study.examples, study.correct) == (5, count, sum(right))
    of = [carries_of(a, b) for a, b in rows]
    assert study.by_carries == solved(list(zip([number for number, _ in of], right, strict=True)))
    assert study.by_chain == solved(list(zip([chain for _, chain in of], right, strict=True)))
    assert {chain for _, chain in of} == {0, 1, 2, 3, 4, 5}

    wrong = [(mistakes(a, b), len(str(a + b))) for a, b in rows if mistakes(a, b)]
    assert study.wrong_symbols == Counter(len(columns) for columns, _ in wrong)
    assert set(study.wrong_symbols) == {1, 2}
    single = [(columns[0], length) for columns, length in wrong if len(columns) == 1]
    assert study.wrong_position == Counter(column + 1 for column, _ in single)
    powers = Counter(column if order == LEAST else length - 1 - column for column, length in single)
    assert study.wrong_significance == powers


def test_a_single_wrong_digit_by_position_and_power() -> None:
    """The units are one power of ten, but two positions: the fourth and the fifth."""
    study = failure_study(make_mistaken(lambda a, b: [len(str(a + b)) - 1]), 4, 200)
    long = sum(a + b >= 10_000 for a, b in problems(Addition(), 4, 200))
    assert 0 < long < 200
    assert (study.correct, study.wrong_symbols) == (0, {1: 200})
    assert study.wrong_position == {4: 200 - long, 5: long}
    assert study.wrong_significance == {0: 200}


@pytest.mark.parametrize("order", [MOST, LEAST])
def test_a_digit_too_many_is_a_wrong_symbol(order: str) -> None:
    """The first padding after the answer: below the units, or above its largest power."""
    study = failure_study(make_mistaken(lambda a, b: [len(str(a + b))], order=order), 3, 100)
    lengths = Counter(len(str(a + b)) for a, b in problems(Addition(), 3, 100))
    assert study.wrong_symbols == {1: 100}
    assert study.wrong_position == {length + 1: count for length, count in lengths.items()}
    assert study.wrong_significance == ({-1: 100} if order == MOST else lengths)


def test_every_task_has_a_failure_study(task: Task) -> None:
    """Carries are defined for sums of two numbers alone, wrong symbols for all."""
    study = failure_study(make_mistaken(lambda *p: [0] if p[0] % 2 else [], task=task), 3, 60)
    answers = [
        text for block in evaluation_set(task, 3, 60, seed=0) for text in block.answer.to_text()
    ]
    wrong = [text for text, (a, *_) in zip(answers, problems(task, 3, 60), strict=True) if a % 2]
    assert 0 < len(wrong) < 60
    assert study.correct == 60 - len(wrong)
    assert study.wrong_symbols == study.wrong_position == {1: len(wrong)}
    assert study.wrong_significance == Counter(len(text) - 1 for text in wrong)
    if task == Addition():
        assert sum(int(total) for _, total in some(study.by_carries).values()) == 60
        assert sum(int(correct) for correct, _ in some(study.by_chain).values()) == study.correct
    else:
        assert study.by_carries is None
        assert study.by_chain is None


def test_a_perfect_solver_has_no_failures() -> None:
    study = failure_study(make_mistaken(lambda a, b: []), 6, 80)
    assert study.correct == 80
    assert all(correct == total for correct, total in some(study.by_carries).values())
    assert study.wrong_symbols == study.wrong_position == study.wrong_significance == {}


def test_the_test_set_is_evaluations_own() -> None:
    solver = make_mistaken(lambda a, b: [0] if (a + b) % 7 == 0 else [])
    changes: list[dict[str, Any]] = [{}, {"seed": 3}, {"occasion": 500}]
    for options in [*changes, {"sampling": "uniform-length"}]:
        study = failure_study(solver, 6, 300, **options)
        assert study.correct == evaluate(solver, [6], 300, **options)[0].correct
        rows = problems(solver.task, 6, 300, **options)
        totals = {number: total for number, (_, total) in some(study.by_carries).items()}
        assert totals == Counter(carries_of(a, b)[0] for a, b in rows)


def test_a_study_has_no_dropout_and_restores_the_mode() -> None:
    solver = make_solver(digits=3, layers=1, width=8, heads=1, dropout=0.5)
    for training in (True, False):
        solver.train(training)
        assert failure_study(solver, 3, 100) == failure_study(solver, 3, 100)
        assert solver.training is training


def test_a_study_checks_its_length() -> None:
    with pytest.raises(UsageError, match=r"length 7 .* 1 to 6 digits"):
        failure_study(make_mistaken(lambda a, b: []), 7, 10)
    with pytest.raises(UsageError, match="at least 1 example"):
        failure_study(make_mistaken(lambda a, b: []), 5, 0)


def window(step: int, **parts: list[float]) -> dict[str, Any]:
    """A record as training writes it, with batches of 10."""
    accuracies = {
        name: {"examples": 5, "exact_match": min(d), "digits": d} for name, d in parts.items()
    }
    return {"step": step, "examples": 10 * step, "learning_rate": 0.1, "loss": 1.0, **accuracies}


METRICS = [
    {"step": 1, "examples": 10, "evaluation": [Accuracy(2, 10, 1, (0.2, 0.1, 0.3)).to_json()]},
    window(2, train=[0.1, 0.2, 0.3, 1.0]),
    window(4, train=[0.9, 0.2, 0.3, 1.0], primed=[0.5, 0.0, 0.5, 0.25]),
    {
        "step": 4,
        "examples": 40,
        "evaluation": [Accuracy(n, 10, n, (0.9, n / 10, 0.8)).to_json() for n in (2, 5)],
    },
    window(6, train=[0.5, 0.9, 1.0, 1.0]),
]


def test_curves_are_read_from_metrics() -> None:
    curves = learning_curves(METRICS)
    assert sorted(curves.tested) == [2, 5]
    assert curves.tested[2].to_json() == {
        "examples": [10, 40],
        "exact_match": [0.1, 0.2],
        "digits": [[0.2, 0.1, 0.3], [0.9, 0.2, 0.8]],
    }
    assert curves.tested[5].to_json() == {
        "examples": [40],
        "exact_match": [0.5],
        "digits": [[0.9, 0.5, 0.8]],
    }
    train = some(curves.train)
    assert train.examples.tolist() == [20, 40, 60]
    assert train.digits.T.tolist() == [
        [0.1, 0.9, 0.5],
        [0.2, 0.2, 0.9],
        [0.3, 0.3, 1],
        [1, 1, 1],
    ]
    assert some(curves.primed).to_json() == {
        "examples": [40],
        "exact_match": [0],
        "digits": [[0.5, 0, 0.5, 0.25]],
    }


def test_curves_of_a_run_that_has_just_begun() -> None:
    empty = learning_curves([])
    assert (empty.tested, empty.train, empty.primed) == ({}, None, None)


def test_curves_of_a_run(tmp_path: Path) -> None:
    """With the answers' symbols, training curves leave out symbols that are always padding."""
    experiment = keys.parse(
        {
            "task": {"kind": "multiplication", "second_digits": 1},
            "data": {"train_digits": 2, "test_digits": 5, "train_size": 8, "priming": {4: 3}},
            "model": SMALLEST,
            "training": {"steps": 6, "batch_size": 4, "log_every": 2},
            "evaluation": {"every": 3, "lengths": [2, 4], "examples": 20, "final_examples": 20},
        }
    )
    run = Run.create(experiment, tmp_path)
    list(train(run))
    whole = learning_curves(run.metrics)
    curves = learning_curves(run.metrics, experiment.answer_symbols())
    assert curves.tested[4].examples.tolist() == [12, 24]
    assert curves.tested[4].digits.shape == (2, 5)
    all_symbols, answers = some(whole.train), some(curves.train)
    assert answers.examples.tolist() == all_symbols.examples.tolist() == [8, 16, 24]
    assert (all_symbols.digits.shape, answers.digits.shape) == ((3, 10), (3, 3))
    assert some(curves.primed).digits.shape[1] == 5
    assert (all_symbols.digits[:, :3] == answers.digits).all()


def test_the_first_time_at_a_level_counts() -> None:
    train = some(learning_curves(METRICS).train)
    assert examples_to_reach(train, 0.9, digit=1) == 40  # and lost again at 60
    assert examples_to_reach(train, 0.9, digit=2) == 60
    assert examples_to_reach(train, 0.15) == 40
    assert examples_to_reach(train, 0.51) is None


def test_largest_length() -> None:
    assert largest_length({20: 0.1, 6: 0.99, 15: 0.749, 10: 0.75}) == 10
    assert largest_length({5: 0.5, 35: 0.95}, level=0.9) == 35
    assert largest_length({5: 0.5}) == largest_length({}) == 0
    assert largest_length({5: (0.7 + 0.75 + 0.8) / 3}) == 5


def test_the_smallest_sufficient_priming(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[int, list[float]], float | None]] = [
        ({10: [0.0], 25: [0.45], 50: [0.95]}, 47.5),  # 25 + 25 · 0.45 / 0.5
        ({50: [0.95], 10: [0.0], 25: [0.45]}, 47.5),
        ({10: [0.92], 20: [1.0]}, 10),
        ({10: [0.1], 20: [0.9], 30: [1.0]}, 20),
        ({10: [0.7], 20: [0.7], 30: [0.95]}, 28),  # a plateau ends at 20
        (
            {10: [0.8], 20: [1.0], 30: [0.9], 40: [1.0]},
            10 + 10 * 0.1 / 0.15,
        ),  # 20 and 30 are 0.95 together
        (
            {10: [0.8], 20: [1.0], 30: [0.7, 0.7], 40: [1.0]},
            30 + 10 * 0.1 / 0.2,
        ),  # (1 + 0.7 + 0.7) / 3 = 0.8
        ({10: [0.3], 20: [0.9]}, 20),  # (0.3 + 0.9) − 0.3 is less than 0.9 by rounding
        ({10: [0.1], 20: [0.89]}, None),
        ({10: [0.0], 20: [1.0], 30: [0.7]}, None),
        ({}, None),
    ]
    for accuracies, value in cases:
        with subtests.test(str(accuracies)):
            found = smallest_sufficient(accuracies)
            assert (found and found.value) == (value if value is None else pytest.approx(value))


def test_the_bootstraps_interval() -> None:
    """At ten, resamples have 0, 0.4 or 0.8, so that the line crosses 0.9 at 19, 18⅓ or 15."""
    found = some(smallest_sufficient({10: [0.0, 0.8], 20: [1.0, 1.0]}))
    assert (found.low, found.value, found.high) == pytest.approx((15, 10 + 50 / 6, 19))
    assert smallest_sufficient({10: [0.0, 0.8], 20: [1.0, 1.0]}) == found
    same = some(smallest_sufficient({10: [0.4] * 3, 20: [1.0] * 3}))
    assert (same.low, same.high) == pytest.approx((same.value, same.value))


def test_an_interval_without_a_bound() -> None:
    # A quarter of the resamples stay at 0.8.
    above = some(smallest_sufficient({10: [0.0, 0.0], 20: [0.8, 1.0]}))
    assert (above.low, above.value) == pytest.approx((19, 20))
    assert above.high is None
    single = some(smallest_sufficient({10: [0.0, 0.1], 20: [1.0]}))
    assert (single.low, single.high) == (None, None)
    with pytest.raises(UsageError, match="at least one seed"):
        smallest_sufficient({10: []})


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5)), min_size=1, max_size=8))
def test_isotonic_regression_pools_adjacent_violators(points: list[tuple[float, int]]) -> None:
    pools: list[list[float]] = []  # mean, weight, how many
    for value, weight in points:
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, v, n), (b, w, m) = pools[-2:]
            pools[-2:] = [[(a * v + b * w) / (v + w), v + w, n + m]]
    expected = [mean for mean, _, count in pools for _ in range(int(count))]
    values, weights = np.array(points).T
    assert isotonic(values[None], weights)[0].tolist() == pytest.approx(expected)


STUDENT = {  # by degrees of freedom and confidence
    0.95: {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 10: 2.2281, 29: 2.0452},
    0.99: {5: 4.0321, 10: 3.1693},
    0.9: {30: 1.6973},
    0.5: {1: 1.0},
}


def test_students_t_has_the_published_values() -> None:
    for confidence, published in STUDENT.items():
        found = {degrees: student_t(degrees, confidence) for degrees in published}
        assert found == pytest.approx(published, abs=6e-5)
    assert student_t(1000) == pytest.approx(1.9623, abs=6e-5)


def test_students_t_holds_95_percent_of_the_density() -> None:
    for degrees in (1, 2, 3, 4, 7, 8, 25):
        t = student_t(degrees)
        x = (np.arange(100_000) + 0.5) / 100_000 * t
        gammas = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
        height = math.exp(gammas) / math.sqrt(degrees * math.pi)
        density = height * (1 + x * x / degrees) ** (-(degrees + 1) / 2)
        assert 2 * density.mean() * t == pytest.approx(0.95, abs=1e-8)


def test_anscombes_first_regression() -> None:
    """The values that textbooks and R's lm give."""
    x = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    line = fit(x, y)
    assert (line.slope.value, line.slope.error) == pytest.approx((0.5000909, 0.1179055), abs=1e-7)
    assert (line.intercept.value, line.intercept.error) == pytest.approx(
        (3.0000909, 1.1247468), abs=1e-7
    )
    assert (line.slope.low, line.slope.high) == pytest.approx((0.2333701, 0.7668117), abs=1e-6)
    assert (line.intercept.low, line.intercept.high) == pytest.approx(
        (0.4557369, 5.5444449), abs=1e-6
    )
    assert line.r_squared == pytest.approx(0.6665425, abs=1e-7)
    assert line.points == 11
    assert line.residual == pytest.approx(13.76269, abs=1e-5)


@pytest.mark.parametrize("transform", ["linear", "log"])
def test_fits_agree_with_numpys(transform: Any) -> None:
    rng = np.random.default_rng(1)
    for points in (4, 9, 30):
        x, y = rng.uniform(1, 1000, points), rng.normal(size=points)
        at = np.log10(x) if transform == "log" else x
        (slope, intercept), covariance = np.polyfit(at, y, 1, cov=True)
        found = fit(x, y, transform)
        assert (found.slope.value, found.intercept.value) == pytest.approx((slope, intercept))
        assert [found.slope.error, found.intercept.error] == pytest.approx(
            np.sqrt(np.diag(covariance))
        )
        assert found.r_squared == pytest.approx(np.corrcoef(at, y)[0, 1] ** 2)
        assert found.residual == pytest.approx(((y - found.predict(x)) ** 2).sum())


def test_intervals_hold_the_true_slope_as_often_as_they_should() -> None:
    """With the normal's 1.96 in place of Student's 4.30 they would hold it 81 % of the time."""
    rng = np.random.default_rng(0)
    x = np.array([1.0, 2.0, 4.0, 8.0])
    slopes = [fit(x, 3 + 2 * x + rng.normal(size=4)).slope for _ in range(1000)]
    held = sum(some(slope.low) <= 2 <= some(slope.high) for slope in slopes)
    assert abs(held - 950) < 4 * math.sqrt(1000 * 0.95 * 0.05)


def test_fits_without_much_to_go_on() -> None:
    two = fit([1, 3], [5, 9])
    assert (two.slope.value, two.intercept.value, two.residual) == pytest.approx((2, 3, 0))
    assert (two.slope.low, two.slope.high, two.slope.error) == (None, None, None)
    assert fit([1, 2, 3], [4, 4, 4]).r_squared is None
    for x, y in [([1], [1]), ([2, 2], [1, 3]), ([1, 2], [1])]:
        with pytest.raises(UsageError, match="two or more different x"):
            fit(x, y)
    with pytest.raises(UsageError, match="positive x"):
        fit([0, 1, 2], [1, 2, 3], "log")


def test_the_better_fit_comes_first() -> None:
    x = np.array([6, 10, 20, 35])
    best, other = compare_fits(x, 10 + 1.4 * x)
    assert (best.transform, other.transform) == ("linear", "log")
    assert best.slope.value == pytest.approx(1.4)
    assert best.residual < 1e-20 < other.residual
    best, other = compare_fits(x, 10 + 1.4 * np.log10(x))
    assert (best.transform, other.transform) == ("log", "linear")
    assert best.slope.value == pytest.approx(1.4)
    with pytest.raises(UsageError, match="needs three"):
        compare_fits([1, 2, 2], [1, 2, 3])


def test_forgetting_has_newcombes_published_intervals(subtests: pytest.Subtests) -> None:
    """Newcombe, Statistics in Medicine 17 (1998), table II, method 10."""
    cases: list[tuple[tuple[int, int], tuple[int, int], float, float]] = [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((0, 10), (0, 10), -0.2775, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
        ((10, 10), (0, 10), 0.6075, 1.0),
    ]
    for before, after, low, high in cases:
        with subtests.test(str(before)):
            lost = forgetting(
                *(Accuracy(5, total, correct, ()) for correct, total in (before, after))
            )
            assert lost.value == pytest.approx(before[0] / before[1] - after[0] / after[1])
            assert (lost.low, lost.high) == pytest.approx((low, high), abs=6e-5)


def test_accuracies_are_read_back_from_jsons() -> None:
    accuracy = Accuracy(5, 80, 48, (0.5, 0.75))
    assert Accuracy.from_json(json.loads(json.dumps(accuracy.to_json()))) == accuracy


@pytest.mark.parametrize("values", [[0.25, 0.5, 0.9], [0.7, 0.1]])
def test_seeds(values: list[float]) -> None:
    spread = over_seeds(values)
    assert (spread.worst, spread.best, spread.n) == (min(values), max(values), len(values))
    assert (spread.mean, spread.deviation) == pytest.approx(
        (statistics.mean(values), statistics.stdev(values))
    )


def test_one_seed_has_no_deviation_and_none_no_spread() -> None:
    assert over_seeds([0.5]).to_json() == {
        "mean": 0.5,
        "worst": 0.5,
        "best": 0.5,
        "deviation": None,
        "n": 1,
    }
    with pytest.raises(UsageError, match="no run"):
        over_seeds([])


def test_records_survive_json() -> None:
    study = failure_study(make_mistaken(lambda a, b: [0] if a % 2 else []), 1, 20)
    curves, line = learning_curves(METRICS), fit([1, 2, 4], [1, 3, 2], "log")
    priming = some(smallest_sufficient({10: [0.0, 0.8], 20: [1.0, 1.0]}))
    for finding in (study, curves, line, priming):
        assert json.loads(json.dumps(finding.to_json(), allow_nan=False)) == finding.to_json()
    carries = {str(n): list(counts) for n, counts in some(study.by_carries).items()}
    assert study.to_json()["by_carries"] == carries
    assert curves.to_json()["tested"]["5"]["exact_match"] == [0.5]
    assert line.to_json()["slope"]["value"] == line.slope.value
