"""The judge: three seeds that agree, two standard errors, learned in domain, nothing missing."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_fixtures import at, only, record, results

from lengthwise.paper.report import CHANCE_AT_LEVEL, CHANCE_OF_TWO, RULE
from lengthwise.paper.results import Cell, Results
from lengthwise.paper.verdicts import (
    Judgement,
    Measurement,
    Verdict,
    all_of,
    any_of,
    at_least,
    at_most,
    decide,
    greater,
    less,
    standard_error,
    student_margin,
)

Compare = Callable[[Measurement, Measurement | float], Judgement]
share = st.floats(0, 1)
three = st.lists(share, min_size=3, max_size=5)
ALL_VERDICTS: list[Verdict] = [
    "holds",
    "does not hold",
    "depends on the seed",
    "can't be judged",
    "too few seeds",
    "not run",
]


def measured(*values: float | None, learned: set[int] | None = None) -> Measurement:
    seeds = None if learned is None else frozenset(learned)
    return Measurement("m", dict(enumerate(values)), {"m": len(values)}, seeds)


def test_a_difference(subtests: pytest.Subtests) -> None:
    cases: list[tuple[tuple[float, ...], tuple[float, ...], Verdict]] = [
        ((0.9, 0.92, 0.91), (0.1, 0.12, 0.11), "holds"),
        ((0.1, 0.12, 0.11), (0.9, 0.92, 0.91), "does not hold"),
        ((0.9, 0.92, 0.05), (0.1, 0.12, 0.11), "depends on the seed"),  # one seed disagrees
        ((0.2, 0.9, 0.3), (0.1, 0.12, 0.11), "depends on the seed"),  # agree, but within 2 errors
        ((0.9, 0.92), (0.1, 0.12), "too few seeds"),
        ((0.9, 0.92, 0.91), (), "not run"),
        ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "does not hold"),  # no difference isn't more
    ]
    for a, b, verdict in cases:
        with subtests.test(str(a)):
            assert greater(measured(*a), measured(*b)).verdict == verdict
            assert less(measured(*b), measured(*a)).verdict == verdict


def test_a_level(subtests: pytest.Subtests) -> None:
    cases: list[tuple[tuple[float | None, ...], Verdict]] = [
        ((0.983, 0.983, 0.983), "holds"),  # a level that is met exactly
        ((0.99, 0.995, 0.992), "holds"),
        ((0.99, 0.995, 0.98), "depends on the seed"),
        ((0.8, 0.98, 0.97), "depends on the seed"),  # all below, by less than two errors
        ((0.9, 0.91, 0.92), "does not hold"),
        ((0.99, 0.995), "too few seeds"),
        ((), "not run"),
        ((0.99, None, 0.99), "can't be judged"),
    ]
    for values, verdict in cases:
        with subtests.test(str(values)):
            assert at_least(measured(*values), 98.3 / 100).verdict == verdict
            opposite = [None if v is None else 1 - v for v in values]
            assert at_most(measured(*opposite), 1 - 98.3 / 100).verdict == verdict


def test_the_rule_is_two_standard_errors_of_the_difference_of_means() -> None:
    a, b = [0.5, 0.6, 0.7], [0.2, 0.3, 0.4]
    error = math.sqrt(np.var(a, ddof=1) / 3 + np.var(b, ddof=1) / 3)
    difference = float(np.mean(a) - np.mean(b))
    assert difference > 2 * error
    assert greater(measured(*a), measured(*b)).verdict == "holds"
    closer = [x - (difference - 1.99 * error) for x in a]  # every seed still above
    assert all(x > y for x, y in zip(closer, b, strict=True))
    assert greater(measured(*closer), measured(*b)).verdict == "depends on the seed"


def test_how_often_chance_gives_a_verdict() -> None:
    """The rule in the report states it, for normal seeds without a true difference."""
    rng = np.random.default_rng(0)
    for rivals, stated in ((True, CHANCE_OF_TWO), (False, CHANCE_AT_LEVEL)):
        found = [
            greater(measured(*a), measured(*b) if rivals else 0.0).verdict
            for a, b in rng.normal(size=(20_000, 2, 3))
        ]
        for verdict in ("holds", "does not hold"):
            assert round(100 * found.count(verdict) / len(found)) == stated
            assert f"{stated} %" in RULE


@given(three, share)
def test_a_verdict_needs_agreement_and_a_difference(values: list[float], level: float) -> None:
    verdict = at_least(measured(*values), level).verdict
    apart = abs(np.mean(values) - level) >= 2 * standard_error(values) - 1e-6
    if verdict == "holds":
        assert apart
        assert min(values) >= level - 1e-6
    elif verdict == "does not hold":
        assert apart
        assert max(values) <= level + 1e-6
    else:
        assert verdict == "depends on the seed"


@given(three, three)
def test_more_and_at_most_never_agree(a: list[float], b: list[float]) -> None:
    """a > b and a ≤ b are opposites, and undecided together."""
    more, at_most_b = greater(measured(*a), measured(*b)), at_most(measured(*a), measured(*b))
    opposite: dict[str, Verdict] = {"holds": "does not hold", "does not hold": "holds"}
    assert at_most_b.verdict == opposite.get(more.verdict, more.verdict)


@given(three, st.randoms())
def test_the_order_of_seeds_is_irrelevant_to_a_level(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert decide(values, 0.01, strict=True) == decide(shuffled, 0.01, strict=True)


@pytest.mark.parametrize("values", [(0.9, 0.92, 0.91), (0.1, 0.12, 0.11)])
def test_models_that_have_not_learned_cannot_be_judged(
    values: tuple[float, ...], subtests: pytest.Subtests
) -> None:
    """Whichever way it would have gone, and on whichever side."""
    cases: list[Compare] = [greater, less, at_least, at_most]
    for compare in cases:
        with subtests.test(str(compare)):
            untrained, trained = (
                measured(*values, learned={0, 2}),
                measured(0.5, 0.5, 0.5, learned={0, 1, 2}),
            )
            assert compare(untrained, 0.5).verdict == "can't be judged"
            assert compare(untrained, trained).verdict == "can't be judged"
            assert compare(trained, untrained).verdict == "can't be judged"
            assert compare(measured(*values, learned={0, 1, 2}), trained).verdict in (
                "holds",
                "does not hold",
            )


def test_only_common_seeds_count() -> None:
    a = Measurement("a", {0: 0.9, 1: 0.9, 2: 0.9, 3: 0.1}, {"a": 4})
    b = Measurement("b", {0: 0.5, 1: 0.5, 2: 0.5}, {"b": 3})
    assert greater(a, b).verdict == "holds"
    assert greater(a, b).conditions == {"a": 4, "b": 3}
    shifted = Measurement("b", {1: 0.5, 2: 0.5, 3: 0.5}, {"b": 3})
    assert greater(Measurement("a", {0: 0.9, 1: 0.9, 2: 0.9}, {"a": 3}), shifted).verdict == (
        "too few seeds"
    )


@given(st.lists(st.sampled_from(ALL_VERDICTS), min_size=1, max_size=4))
def test_combinations(parts: list[Verdict]) -> None:
    """One contradiction settles "all", one confirmation "any"; otherwise a gap leaves it open."""
    judged = [Judgement(verdict) for verdict in parts]
    opposite: dict[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}
    negated = [Judgement(opposite.get(verdict, verdict)) for verdict in parts]
    found = all_of(judged).verdict
    assert any_of(negated).verdict == opposite.get(found, found)
    if "does not hold" in parts:
        assert found == "does not hold"
    elif set(parts) == {"holds"}:
        assert found == "holds"
    else:
        assert found in set(parts) - {"holds"}
        assert found == "not run" or "not run" not in parts


def test_gates_of_results() -> None:
    """In domain isn't gated; beyond it is, by every seed; fine-tuning is gated by its origin."""
    good, bad = record(at({5: 95, 6: 50})), record(at({5: 85, 6: 50}))
    found = results({"good": good, "bad": bad, "tuned": record(at({5: 0, 6: 50}))})
    found = Results("cpu", found.records, {}, {"tuned": "good"})
    assert at_least(found.accuracy("good", 6), 0.5).verdict == "holds"
    assert at_least(found.accuracy("bad", 6), 0.5).verdict == "can't be judged"
    assert at_least(found.in_domain("bad"), 0.8).verdict == "holds"
    assert at_least(found.accuracy("tuned", 6), 0.5).verdict == "holds"
    mixed = Results("cpu", {"mixed": {0: good, 1: good, 2: bad}})
    assert at_least(mixed.accuracy("mixed", 6), 0.5).verdict == "can't be judged"
    assert at_least(mixed.accuracy("missing", 6), 0.5).verdict == "not run"


def test_seeds_are_not_pooled() -> None:
    """Two seeds at 100 % don't outvote one at 0 %, though the mean is above the level."""
    seeds = {0: record(only(5, 6, high=1.0)), 1: record(only(5, 6, high=1.0)), 2: record(only(5))}
    assert at_least(Results("cpu", {"m": seeds}).accuracy("m", 6), 0.5).verdict == (
        "depends on the seed"
    )


def test_intervals() -> None:
    """Student's over seeds (scipy.stats.t.interval), Wilson's for one model (statsmodels)."""
    assert student_margin([0.5, 0.7, 0.6]) == pytest.approx(0.248414, abs=1e-6)
    assert student_margin([0.5]) is None
    assert Cell((0.9,), 12.5, 100).text() == "90.0 [82.6, 94.5] (1 seed) · 12.5"
    assert Cell((1.0, 1.0)).text() == "100.0 ± 0.0 (2 seeds)"
    assert Cell(()).text() == "missing"
