"""Digit arrays against Python's integers."""

import random
from decimal import Decimal
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise import digits
from lengthwise.digits import Numbers

PRIMES = [2, 3, 7, 101, 65537, 2**61 - 1, 10**30 - 11]

number = st.one_of(
    st.integers(0, 10**40),
    st.integers(0, 40).flatmap(lambda n: st.integers(0, 10**n)),
    st.integers(1, 40).map(lambda n: 10**n - 1),  # all nines: the longest carries
    st.integers(0, 40).map(lambda n: 10**n),
)
modulus = st.one_of(
    st.integers(2, 10**30), st.integers(1, 30).map(lambda n: 10**n), st.sampled_from(PRIMES), st.integers(2, 1000)
)


def batches(operands: int) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.tuples(*[number] * operands), min_size=1, max_size=8)


def columns(rows: list[tuple[int, ...]]) -> list[Numbers]:
    return [Numbers.from_ints(column) for column in zip(*rows, strict=True)]


def check(numbers: Numbers, expected: list[int]) -> None:
    """The numbers, their texts and their lengths are those of these integers."""
    assert numbers.to_text() == [str(value) for value in expected]
    assert numbers.to_ints() == expected


@given(st.lists(number, min_size=1, max_size=8))
def test_ints_and_texts_round_trip(values):
    check(Numbers.from_ints(values), values)
    check(Numbers.from_text([str(value) for value in values]), values)
    for row, value in zip(Numbers.from_ints(values).digits.tolist(), values, strict=True):
        assert sum(digit * 10**power for power, digit in enumerate(row)) == value


def test_leading_zeros_of_a_text_are_dropped():
    assert Numbers.from_text(["007", "000"]).to_text() == ["7", "0"]


@pytest.mark.parametrize("operands", [2, 3, 11, 100])
@given(data=st.data())
def test_add(operands, data):
    rows = data.draw(batches(3))
    rows = [tuple(row[i % 3] for i in range(operands)) for row in rows]
    check(digits.add(*columns(rows)), [sum(row) for row in rows])


@given(batches(2))
def test_multiply(rows):
    check(digits.multiply(*columns(rows)), [a * b for a, b in rows])


@given(st.lists(number, min_size=1, max_size=8), modulus)
def test_remainder(values, modulus):
    check(digits.remainder(Numbers.from_ints(values), modulus), [value % modulus for value in values])


@given(modulus, st.integers(0, 10**12))
def test_remainder_next_to_multiples_of_the_modulus(modulus, factor):
    values = [factor * modulus, factor * modulus + 1, (factor + 1) * modulus - 1]
    check(digits.remainder(Numbers.from_ints(values), modulus), [0, 1, modulus - 1])


@pytest.mark.parametrize("modulus", [*range(2, 30), 99, 101, 10**9 + 1, 10**30 + 1])
def test_remainder_of_all_nines(modulus):
    """The largest sums of remainders of powers of ten, at which the division has most left to do."""
    values = [10**n - 1 for n in range(1, 80)]
    for width in (16, 31, 79):
        check(digits.remainder(Numbers.from_ints(values[:width]), modulus), [v % modulus for v in values[:width]])


@given(batches(2))
def test_add_elementwise_keeps_the_longer_operands_length(rows):
    expected = []
    for a, b in rows:
        width = max(len(str(a)), len(str(b)))
        pairs = zip(str(a).zfill(width), str(b).zfill(width), strict=True)
        expected.append("".join(str((int(x) + int(y)) % 10) for x, y in pairs))
    assert digits.add_elementwise(*columns(rows)).to_text() == expected


@given(batches(2))
def test_carries(rows):
    """There is a carry out of the power 10^i just if the operands' last i + 1 digits add up to 10^(i+1) or more."""
    a, b = columns(rows)
    marks = digits.carries(a, b)
    assert marks.shape == (len(rows), max(a.width, b.width))
    for row, (x, y) in zip(marks.tolist(), rows, strict=True):
        assert row == [x % 10 ** (i + 1) + y % 10 ** (i + 1) >= 10 ** (i + 1) for i in range(len(row))]


@given(st.integers(0, 12).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1)))
def test_longest_run(rows):
    expected = [max((len(list(run)) for mark, run in groupby(row) if mark), default=0) for row in rows]
    assert digits.longest_run(np.array(rows, bool).reshape(len(rows), -1)).tolist() == expected


@given(st.lists(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=20), min_size=1, max_size=6))
def test_carried_takes_columns_of_any_size_and_sign(rows):
    width = max(map(len, rows)) + 8
    table = np.array([row + [0] * (width - len(row)) for row in rows])
    values = [sum(column * 10**power for power, column in enumerate(row)) for row in rows]
    table[:, -1] += np.array(values) < 0  # the numbers, not the columns, are at least 0
    values = [value + 10 ** (width - 1) * (value < 0) for value in values]
    assert Numbers.of(digits.carried(table)).to_ints() == values


@pytest.mark.parametrize("table", [[[18, 12, 0]], [[7], [8]], [[18, 0], [25, 0]]], ids=["row", "column", "table"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_carried_leaves_its_argument_as_it_was(table, order):
    given = np.array(table, order=order)
    digits.carried(given)
    assert given.tolist() == table


def test_carried_notices_numbers_that_do_not_fit():
    with pytest.raises(AssertionError):
        digits.carried(np.array([[10]]))


def test_concatenate_and_rows():
    joined = digits.concatenate([Numbers.from_ints([5, 123]), Numbers.from_ints([10**20])])
    check(joined, [5, 123, 10**20])
    check(joined[np.array([2, 0, 0])], [10**20, 5, 5])


@pytest.mark.parametrize("length", [1000, 10_000])
def test_long_numbers(length):
    """Beyond 4300 digits Python's own int and str refuse, so Decimal converts here."""
    rng = random.Random(length)
    values = [rng.randrange(10 ** (length - 1), 10**length) for _ in range(2)]
    texts = [str(Decimal(value)) for value in values]
    assert [len(text) for text in texts] == [length, length]
    a, b = Numbers.from_text(texts[:1]), Numbers.from_text(texts[1:])
    x, y = values
    assert a.to_ints() == [x]
    assert a.to_text() == texts[:1]
    assert digits.add(a, b).to_ints() == [x + y]
    assert digits.multiply(a, b).to_ints() == [x * y]
    for modulus in (97, 10**30, 10**30 - 11):
        assert digits.remainder(a, modulus).to_ints() == [x % modulus]


def test_long_integers_become_numbers():
    assert Numbers.from_ints([10**10_000 + 7]).to_text() == ["1" + "0" * 9_999 + "7"]


def evenly_spread(values: np.ndarray, kinds: range) -> bool:
    """Whether each kind of value, and no other, comes up about equally often (within five standard deviations)."""
    counts = np.bincount(values, minlength=kinds.stop)
    expected = len(values) / len(kinds)
    return counts.sum() == counts[kinds].sum() and bool((abs(counts[kinds] - expected) < 5 * expected**0.5).all())


def test_random_numbers_have_exactly_the_lengths_asked_for():
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    numbers = digits.random_numbers(np.random.default_rng(1), lengths)
    assert [len(str(value)) for value in numbers.to_ints()] == lengths.tolist()
    assert [len(text) for text in numbers.to_text()] == lengths.tolist()


def test_random_numbers_are_uniform():
    drawn = digits.random_numbers(np.random.default_rng(0), np.full(90_000, 2)).to_ints()
    assert evenly_spread(np.array(drawn), range(10, 100))


@pytest.mark.parametrize("most", [1, 2])
def test_random_below_is_uniform_from_one(most):
    drawn = digits.random_below(np.random.default_rng(0), np.full(50_000, most))
    check(drawn, drawn.to_ints())  # lengths are those of the values
    assert evenly_spread(np.array(drawn.to_ints()), range(1, 10**most))


def test_random_below_keeps_each_entrys_own_bound():
    drawn = digits.random_below(np.random.default_rng(0), np.tile([1, 3], 5000)).to_ints()
    assert set(drawn[::2]) == set(range(1, 10))
    assert 100 <= max(drawn[1::2]) < 1000
    assert min(drawn[1::2]) < 100
