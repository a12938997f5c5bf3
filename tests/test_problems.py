"""Which problems are trained on and tested on."""

from collections import Counter
from fractions import Fraction
from itertools import chain
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairwise import pairwise
from pydantic import ValidationError

from lengthwise.arithmetic.digits import (
    Numbers,
    carries,
    concatenate,
    longest_run,
    significant_digits,
)
from lengthwise.arithmetic.tasks import Addition, Multiplication, Task
from lengthwise.base import UsageError, explain, generator
from lengthwise.problems.evaluation_set import BLOCK, evaluation_set
from lengthwise.problems.layouts import PaperLayout
from lengthwise.problems.lengths import parse_lengths
from lengthwise.problems.mixtures import MIXTURES, mix
from lengthwise.problems.priming import (
    all_lengths,
    curriculum,
    even_lengths,
    one_length,
    parse_priming,
    spread,
)
from lengthwise.problems.sampling import Sampling, sample_numbers
from lengthwise.problems.training_set import DataConfig, Examples, TrainingSet

SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)


def rows(examples: Examples) -> list[tuple[str, ...]]:
    """The operands of each example."""
    return list(zip(*(numbers.to_text() for numbers in examples.operands), strict=True))


def training_set(task: Task | None = None, seed: int = 0, **fields: Any) -> TrainingSet:
    config = DataConfig(**{"train_size": 100, **fields})
    return TrainingSet(task or Addition(), config, seed)


def test_each_purpose_has_its_own_generator() -> None:
    purposes = [(0, "batch", 1), (0, "batch", 2), (0, "primed batch", 1), (1, "batch", 1)]
    draws = [tuple(generator(*purpose).integers(0, 10, 20)) for purpose in purposes]
    assert len(set(draws)) == len(draws)
    assert tuple(generator(0, "batch", 1).integers(0, 10, 20)) == draws[0]


def test_batches_are_functions_of_seed_and_step(task: Task) -> None:
    fields: dict[str, Any] = {"task": task, "priming": "10=30"}
    first = training_set(**fields)
    for step in range(3):
        first.batch(step, 16)
    batch = first.batch(7, 64)
    again = training_set(**fields).batch(7, 64)
    assert rows(batch) == rows(again)
    answer = task.answer(*batch.operands).to_text()
    assert batch.answer.to_text() == again.answer.to_text() == answer
    assert rows(batch) != rows(first.batch(8, 64))
    assert rows(batch) != rows(training_set(seed=1, **fields).batch(7, 64))


def test_first_operands_are_fixed_and_second_ones_are_not() -> None:
    data = training_set(train_size=3, sampling="exact")
    seen = [row for step in range(20) for row in rows(data.batch(step, 10))]
    assert {first for first, _ in seen} == set(data.first.to_text())
    assert len({second for _, second in seen}) > 190  # of 200 draws from 90,000 numbers


@pytest.mark.parametrize(
    ("sampling", "priming_second", "mixture", "task"),
    pairwise(SAMPLINGS, ["online", "fixed"], [None, *MIXTURES], [Addition(), Multiplication()]),
    ids=str,
)
def test_priming_changes_no_unprimed_example(
    sampling: Sampling, priming_second: str, mixture: str | None, task: Task
) -> None:
    shares = {mixture: 0.3} if mixture else {}
    fields: dict[str, Any] = {"task": task, "sampling": sampling, "mixture": shares}
    plain = training_set(**fields).batch(3, 300)
    primed = training_set(priming="7=10,9=20", priming_second=priming_second, **fields).batch(
        3, 300
    )
    unprimed = np.flatnonzero(~primed.primed)
    assert 0 < len(unprimed) < 300
    assert [rows(plain)[i] for i in unprimed] == [rows(primed)[i] for i in unprimed]


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_rewrites_its_share_of_unprimed_problems(name: str) -> None:
    """It keeps lengths, or makes all the longest, and draws from its own generator."""
    fields: dict[str, Any] = {
        "priming": {9: 30},
        "priming_second": "fixed",
        "sampling": "uniform-length",
        "test_digits": 9,
    }
    plain = training_set(**fields).batch(2, 2000)
    mixed = training_set(**fields, mixture={name: 0.4}).batch(2, 2000)
    assert mixed.primed.any()
    changed = np.array([a != b for a, b in zip(rows(plain), rows(mixed), strict=True)])
    assert not changed[mixed.primed].any()
    assert 0.1 < changed[~mixed.primed].mean() < 0.45
    for before, after in zip(plain.operands, mixed.operands, strict=True):
        is_long = changed & (name == "full-length")
        assert (after.lengths == np.where(is_long, 5, before.lengths)).all()
        assert after.digits.min() >= 0
        assert after.digits.max() <= 9
        assert not after.digits[np.arange(after.width) >= after.lengths[:, None]].any()
        assert all(text[0] != "0" or text == "0" for text in after.to_text())
    operands = list(plain.operands)
    same = mix({name: 0.4}, operands, 0, 2), mix({name: 0.4}, operands, 0, 2)
    assert [n.to_text() for n in same[0]] == [n.to_text() for n in same[1]]
    assert all(a is b for a, b in zip(mix({}, operands, 0, 2), operands, strict=True))


def test_primed_problems_have_the_given_counts_and_lengths(task: Task) -> None:
    data = training_set(task, priming={8: 5, 10: 20}, test_digits=12)
    lengths = np.array([len(text) for text in data.first.to_text()])
    assert Counter(lengths[data.primed].tolist()) == {8: 5, 10: 20}
    assert lengths[~data.primed].max() <= 5
    batch = data.batch(0, 400)
    assert 0 < batch.primed.sum() < 400
    for row, primed in zip(rows(batch), batch.primed, strict=True):
        longest = max(map(len, row))
        assert primed == (longest > 5)
        if primed:
            assert tuple(map(len, row)) == task.operand_digits(longest)
        else:
            most = task.operand_digits(5)
            assert all(len(text) <= n for text, n in zip(row, most, strict=True))


def test_a_length_primed_twice_gets_new_problems() -> None:
    """6:35=500,35=50 means more problems of 35 digits, not copies of some."""
    data = training_set(priming="10=20,10=20")
    endings = {text[1:] for text in data.first.to_text() if len(text) == 10}
    assert len(endings) == 40


def seconds_of_primed(data: TrainingSet) -> dict[str, list[str]]:
    """For each primed first operand, the second operands that it is seen with."""
    seen: dict[str, list[str]] = {}
    for step in range(30):
        batch = data.batch(step, 20)
        for (first, second), primed in zip(rows(batch), batch.primed, strict=True):
            if primed:
                seen.setdefault(first, []).append(second)
    return seen


def test_second_operands_of_primed_problems_are_online_or_fixed() -> None:
    fields: dict[str, Any] = {"train_size": 20, "priming": "10=5"}
    online = seconds_of_primed(training_set(**fields))
    fixed = seconds_of_primed(training_set(priming_second="fixed", **fields))
    assert online.keys() == fixed.keys()
    assert len(online) == 5
    seconds = list(chain.from_iterable(online.values()))
    assert len(seconds) > 100
    assert len(set(seconds)) == len(seconds)  # of 9 billion numbers, none comes twice
    assert all(len(set(seconds)) == 1 for seconds in fixed.values())
    assert len(set(chain.from_iterable(fixed.values()))) == 5


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_samplings(sampling: Sampling) -> None:
    data = training_set(train_size=10_000, sampling=sampling)
    expected: dict[int, float] = {
        "uniform-length": dict.fromkeys(range(1, 6), 2000.0),
        "problem-length": dict.fromkeys(range(1, 6), 2000.0),
        "uniform-integer": {n: 9 * 10 ** (n - 1) / 10 for n in range(1, 6)},
        "exact": {5: 10_000.0},
    }[sampling]
    for numbers in (data.first, data.batch(0, 10_000).operands[1]):
        counts = Counter(map(len, numbers.to_text()))
        assert set(counts) <= set(expected)
        assert all(abs(counts[n] - share) <= 5 * share**0.5 for n, share in expected.items())
    numbers = sample_numbers(np.random.default_rng(0), sampling, np.tile([1, 30], 200))
    lengths = np.array([len(text) for text in numbers.to_text()])
    assert set(lengths[::2]) == {1}  # each entry has a bound of its own
    assert 1 <= lengths[1::2].min() <= lengths[1::2].max() == 30


def test_problem_length_is_one_length_for_the_whole_problem() -> None:
    """With uniform-length, the lengths of operands are independent."""
    expected: list[tuple[Sampling, float]] = [("problem-length", 1.0), ("uniform-length", 0.2)]
    for sampling, same in expected:
        data = training_set(train_size=10_000, sampling=sampling)
        first, second = data.batch(0, 10_000).operands
        assert abs((first.lengths == second.lengths).mean() - same) < 0.03
        (block,) = evaluation_set(Addition(), 5, 250, seed=0, sampling=sampling)
        lengths, others = (numbers.lengths for numbers in block.operands)
        assert set(lengths) == {1, 2, 3, 4, 5}
        assert (lengths == others).all() == (same == 1.0)
    products = training_set(Multiplication(second_digits=3), sampling="problem-length")
    assert set(products.batch(0, 500).operands[1].lengths) == {3}


@pytest.mark.parametrize("task", [Addition(), Multiplication()], ids=["addition", "multiplication"])
def test_large_batches(task: Task) -> None:
    fields: dict[str, Any] = {"train_digits": 35, "test_digits": 35, "train_size": 20_000}
    batch = training_set(task, sampling="exact", **fields).batch(0, 20_000)
    a, b = (numbers[:2000].to_ints() for numbers in batch.operands)
    expected = [x + y if task.symbol == "+" else x * y for x, y in zip(a, b, strict=True)]
    assert batch.answer[:2000].to_ints() == expected
    assert set(batch.operands[0].lengths) == {35}


def test_builders_of_priming() -> None:
    assert one_length(35, 50) == ((35, 50),)
    assert curriculum([34, 35], 50) == ((34, 25), (35, 25))
    assert [n for n, _ in all_lengths(6, 35, 500)] == list(range(6, 36))
    assert [n for n, _ in even_lengths(6, 35, 500)] == list(range(6, 36, 2))
    counts = [count for _, count in all_lengths(6, 35, 500)]
    assert sum(counts) == sum(count for _, count in even_lengths(6, 35, 500)) == 500
    assert counts == sorted(counts)  # more of the longer ones
    assert all_lengths(6, 7, 10, weights=[4, 1]) == ((6, 8), (7, 2))


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=30, unique=True),
    st.integers(0, 2000),
    st.data(),
)
def test_spread_gives_each_length_its_share(lengths: list[int], count: int, data: Any) -> None:
    some = st.lists(st.integers(1, 1000), min_size=len(lengths), max_size=len(lengths))
    weights = data.draw(st.none() | some, label="weights")
    priming = dict(spread(lengths, count, weights))
    assert sum(priming.values()) == count
    for length, weight in zip(lengths, weights or lengths, strict=True):
        share = Fraction(weight * count, sum(weights or lengths))
        assert abs(priming.get(length, 0) - share) < 1 + Fraction(1, 10**6)


def test_lengths_are_parsed() -> None:
    expected: list[tuple[object, list[int]]] = [
        ("5", [5]),
        ("5:7", [5, 6, 7]),
        ("5,10:35:10", [5, 10, 20, 30]),
        ([3, 4], [3, 4]),
        (7, [7]),
    ]
    for value, lengths in expected:
        assert parse_lengths(value) == lengths


def test_other_values_than_lengths_are_an_error() -> None:
    texts = ["", "five", "5:", "5:10:0", "5:6:7:8", "5,,6", "5-10", "10:5", "5:10:-1"]
    for value in (*texts, 3.5, True):
        with pytest.raises(UsageError, match="is not a list of lengths such as"):
            parse_lengths(value)


def test_priming_is_parsed() -> None:
    expected: list[tuple[object, tuple[tuple[int, int], ...]]] = [
        (None, ()),
        ("", ()),
        ({35: 50}, ((35, 50),)),
        ([[34, 25], [35, 25]], ((34, 25), (35, 25))),
        ("34=25,35=25", ((34, 25), (35, 25))),
        ("10:12=33", ((10, 10), (11, 11), (12, 12))),
        ("35=0", ()),
    ]
    for value, priming in expected:
        assert DataConfig(test_digits=35, priming=value).priming == priming


def test_other_texts_than_primings_are_an_error() -> None:
    for text in ("35", "35=", "=50", "35=many", "35=-5", "35:50", "a=5", "35:6=500", "35=²"):
        with pytest.raises(UsageError, match=r"(a priming|a list of lengths) (is|such as)"):
            parse_priming(text)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"train_digits": 11}, "train_digits is 11, more than data.test_digits, which is 10"),
    ({"priming": "11=5"}, "11 digits, but lengths go from 1 to data.test_digits, which is 10"),
    ({"priming": {10: -1}}, "-1 problems of 10 digits"),
    ({"priming": {0: 1}}, "1 problems of 0 digits"),
    ({"priming": "10=5000"}, "takes 5000 of the 5000 training problems"),
    ({"priming": "ten=5"}, "'ten' is not a list of lengths"),
    ({"sampling": "uniform"}, "uniform-length"),
    ({"train_size": 0}, "train_size is 0"),
    ({"train_size": True}, "train_size is True, but it can't be true or false"),
    ({"trian_size": 10}, "trian_size"),
    ({"mixture": {"zeroes": 0.1}}, "there is no mixture 'zeroes': did you mean 'zeros'?"),
    ({"mixture": "zeros=1.5"}, "mixture.zeros is '1.5', but"),
    ({"mixture": {"zeros": -0.1}}, "mixture.zeros is -0.1, but"),
]


def test_a_bad_configuration_is_explained_in_a_sentence() -> None:
    for fields, sentence in BAD:
        with pytest.raises(ValidationError) as caught:
            DataConfig(**fields)
        assert sentence in explain(caught.value)
        assert "\n" not in explain(caught.value)


def test_mixtures_are_parsed() -> None:
    expected = {"carry-chains": 0.3, "zeros": 0.1}
    for value in (expected, "carry-chains=0.3, zeros=0.1"):
        assert DataConfig(mixture=value).mixture == expected
    assert DataConfig(mixture=None).mixture == {}


def test_evaluation_problems_have_the_given_length_and_count(task: Task) -> None:
    blocks = list(evaluation_set(task, 8, BLOCK + 10, seed=0))
    assert [len(block) for block in blocks] == [BLOCK, 10]
    for block in blocks:
        assert {tuple(map(len, row)) for row in rows(block)} == {task.operand_digits(8)}
        assert block.answer.to_text() == task.answer(*block.operands).to_text()
        assert not block.primed.any()


def problems(count: int = 40, length: int = 8, **fields: Any) -> list[tuple[str, ...]]:
    blocks = evaluation_set(Addition(), length, count, **{"seed": 0, **fields})
    return [row for block in blocks for row in rows(block)]


def test_evaluation_sets_are_fresh_for_each_occasion_seed_and_block() -> None:
    sets = [problems(), problems(occasion=500), problems(occasion=1000), problems(seed=1)]
    assert problems() == sets[0]
    assert len({row for rows in sets for row in rows}) == 160
    assert len(set(problems(3 * BLOCK))) == 3 * BLOCK
    data = training_set(train_digits=10, sampling="exact", train_size=1000)
    assert not set(data.first.to_text()) & {first for first, _ in problems(1000, length=10)}


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_larger_evaluation_sets_begin_with_the_smaller_ones(sampling: Sampling) -> None:
    many = problems(2 * BLOCK + 7, sampling=sampling)
    assert len(many) == 2 * BLOCK + 7
    for count in (1, 40, BLOCK, BLOCK + 1):
        assert problems(count, sampling=sampling) == many[:count]


def test_evaluation_can_sample_as_training_does() -> None:
    blocks = evaluation_set(Addition(), 5, 2000, seed=0, sampling="uniform-length")
    lengths = Counter(concatenate([block.operands[0] for block in blocks]).lengths.tolist())
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert all(300 < count < 500 for count in lengths.values())
    with pytest.raises(UsageError, match="there is no sampling 'exactly': did you mean 'exact'"):
        list(evaluation_set(Addition(), 5, 10, seed=0, sampling="exactly"))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="a seed is an integer ≥ 0, not -1"):
        list(evaluation_set(Addition(), 5, 10, seed=-1))


def mixed(name: str, task: Task, **fields: Any) -> tuple[Examples, Examples]:
    """A batch without a mixture, and the same batch wholly rewritten by it."""
    both = {"sampling": "uniform-length", "train_digits": 6, **fields}
    plain = training_set(task, seed=1, **both).batch(0, 2000)
    return plain, training_set(task, seed=1, mixture={name: 1.0}, **both).batch(0, 2000)


def check_products(examples: Examples) -> None:
    x, y, product = (numbers.to_ints() for numbers in (*examples.operands, examples.answer))
    assert product == [a * b for a, b in zip(x, y, strict=True)]


def test_full_length_problems_have_as_many_digits_as_training() -> None:
    plain, batch = mixed("full-length", Multiplication(second_digits=3))
    check_products(batch)
    assert {len(set(numbers.lengths.tolist())) for numbers in plain.operands} == {6, 3}
    assert [set(numbers.lengths.tolist()) for numbers in batch.operands] == [{6}, {3}]


def test_repeated_digits_are_operands_of_one_or_two_digits() -> None:
    _, batch = mixed("repeated-digits", Multiplication())
    check_products(batch)
    for numbers in batch.operands:
        assert (numbers.lengths == significant_digits(numbers.digits)).all()
        kinds = Counter(len(set(text)) for text in numbers.to_text() if len(text) > 2)
        assert set(kinds) == {1, 2}
        assert min(kinds.values()) > 0.2 * kinds.total()


def test_zeros_replace_half_of_the_digits() -> None:
    plain, batch = mixed("zeros", Multiplication())
    check_products(batch)
    for before, after in zip(plain.operands, batch.operands, strict=True):
        single = [b for a, b in zip(before.to_text(), after.to_text(), strict=True) if len(a) == 1]
        if single:
            assert 0.4 < np.mean(np.array(single) == "0") < 0.6
        kept, nonzero = 0, 0
        for old, new in zip(before.to_text(), after.to_text(), strict=True):
            assert new[0] == old[0] or new == "0"
            assert all(b in (a, "0") for a, b in zip(old, new, strict=True))
            kept += sum(a == b != "0" for a, b in zip(old[1:], new[1:], strict=True))
            nonzero += sum(a != "0" for a in old[1:])
        assert 0.4 < kept / nonzero < 0.6


def test_carry_chains_are_sums_in_which_carries_run_on() -> None:
    long = []
    both = mixed("carry-chains", Addition())
    for batch in both:
        x, y = batch.operands
        pairs = zip(x.to_ints(), y.to_ints(), strict=True)
        assert batch.answer.to_ints() == [a + b for a, b in pairs]
        assert (y.lengths == significant_digits(y.digits)).all()
        long.append((longest_run(carries(x, y)) >= 4).mean())
    assert long[1] > 3 * long[0]
    assert both[0].operands[0].to_text() == both[1].operands[0].to_text()  # only second ones change


def test_training_may_leave_operands_of_a_sum_blank() -> None:
    task = Addition(operands=4)
    fields: dict[str, Any] = {"train_operands": 3, "priming": {9: 500}, "train_size": 5000}
    batch = training_set(task, seed=1, **fields).batch(0, 2000)
    counts = np.sum([numbers.lengths > 0 for numbers in batch.operands], axis=0)
    assert set(counts[~batch.primed]) == {2, 3}
    assert set(counts[batch.primed]) == {4}
    for i, numbers in enumerate(batch.operands):
        assert ((numbers.lengths > 0) == (counts > i)).all()
    columns = zip(*(blank_as_zero(n).to_ints() for n in batch.operands), strict=True)
    assert batch.answer.to_ints() == [sum(row) for row in columns]
    (block,) = evaluation_set(task, 5, 20, seed=0, operands=2)
    lengths = [numbers.lengths.tolist() for numbers in block.operands]
    assert lengths == [[5] * 20, [5] * 20, [0] * 20, [0] * 20]
    layout = PaperLayout(PaperLayout.Options(), task, 5)
    blank = " + <PAD> <PAD> <PAD> <PAD> <PAD>"
    assert all(line.endswith(2 * blank) for line in layout.text(layout.encode(block.operands)))


def blank_as_zero(numbers: Numbers) -> Numbers:
    return Numbers(numbers.digits, np.maximum(numbers.lengths, 1))
