"""Digit arrays against Python's integers."""

import random
from decimal import Decimal
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lengthwise.arithmetic import digits
from lengthwise.arithmetic.digits import Numbers

PRIMES = [2, 3, 7, 101, 65537, 2**61 - 1, 10**30 - 11]

number = st.one_of(
    st.integers(0, 10**40),
    st.integers(0, 40).flatmap(lambda n: st.integers(0, 10**n)),
    st.integers(1, 40).map(lambda n: 10**n - 1),  # all nines: the longest carries
    st.integers(0, 40).map(lambda n: 10**n),
)
modulus = st.one_of(
    st.integers(2, 10**30),
    st.integers(1, 30).map(lambda n: 10**n),
    st.sampled_from(PRIMES),
    st.integers(2, 1000),
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
def test_integers_and_texts_round_trip(values: list[int]) -> None:
    check(Numbers.from_ints(values), values)
    check(Numbers.from_text([str(value) for value in values]), values)
    for row, value in zip(Numbers.from_ints(values).digits.tolist(), values, strict=True):
        assert sum(digit * 10**power for power, digit in enumerate(row)) == value


def test_leading_zeros_of_a_text_are_dropped() -> None:
    assert Numbers.from_text(["007", "000"]).to_text() == ["7", "0"]


@pytest.mark.parametrize("operands", [2, 3, 100])
@given(data=st.data())
def test_add(operands: int, data: Any) -> None:
    rows = data.draw(batches(3))
    rows = [tuple(row[i % 3] for i in range(operands)) for row in rows]
    check(digits.add(*columns(rows)), [sum(row) for row in rows])


@given(batches(2))
def test_multiply(rows: list[tuple[int, ...]]) -> None:
    check(digits.multiply(*columns(rows)), [a * b for a, b in rows])


@given(st.lists(number, min_size=1, max_size=8), modulus, st.integers(0, 10**12))
def test_remainder(values: list[int], modulus: int, factor: int) -> None:
    """Of any numbers, and of those next to multiples of the modulus."""
    values += [factor * modulus, factor * modulus + 1, (factor + 1) * modulus - 1]
    expected = [value % modulus for value in values]
    check(digits.remainder(Numbers.from_ints(values), modulus), expected)


@pytest.mark.parametrize("width", [16, 31, 79])
def test_remainder_of_all_nines(width: int) -> None:
    """The remainders of powers of ten have the largest sums here, and leave most to divide."""
    values = [10**n - 1 for n in range(1, width + 1)]
    for modulus in (*range(2, 30), 99, 101, 10**9 + 1, 10**30 + 1):
        expected = [value % modulus for value in values]
        check(digits.remainder(Numbers.from_ints(values), modulus), expected)


@given(batches(2))
def test_add_elementwise_keeps_the_longer_operands_length(rows: list[tuple[int, ...]]) -> None:
    expected = []
    for a, b in rows:
        width = max(len(str(a)), len(str(b)))
        pairs = zip(str(a).zfill(width), str(b).zfill(width), strict=True)
        expected.append("".join(str((int(x) + int(y)) % 10) for x, y in pairs))
    first, second = columns(rows)
    assert digits.add_elementwise(first, second).to_text() == expected


@given(batches(2))
def test_carries(rows: list[tuple[int, ...]]) -> None:
    """The power 10^i carries just if the last i + 1 digits add up to 10^(i+1) or more."""
    a, b = columns(rows)
    marks = digits.carries(a, b)
    assert marks.shape == (len(rows), max(a.width, b.width))
    for row, (x, y) in zip(marks.tolist(), rows, strict=True):
        bounds = [10 ** (i + 1) for i in range(len(row))]
        assert row == [x % bound + y % bound >= bound for bound in bounds]


@given(batches(2))
def test_at_least(rows: list[tuple[int, ...]]) -> None:
    a, b = columns(rows)
    width = max(a.width, b.width)
    for row, bound in enumerate(b.pad_to(width)):
        expected = [x >= rows[row][1] for x, _ in rows]
        assert digits.at_least(a.pad_to(width), bound).tolist() == expected


@given(
    st.integers(0, 12).flatmap(
        lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1)
    )
)
def test_longest_run(rows: list[list[bool]]) -> None:
    runs = [[len(list(run)) for mark, run in groupby(row) if mark] for row in rows]
    marks = np.array(rows, bool).reshape(len(rows), -1)
    assert digits.longest_run(marks).tolist() == [max(lengths, default=0) for lengths in runs]


@given(
    st.lists(
        st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=20), min_size=1, max_size=6
    )
)
def test_carries_of_columns_of_any_size_and_sign(rows: list[list[int]]) -> None:
    width = max(map(len, rows)) + 8
    table = np.array([row + [0] * (width - len(row)) for row in rows])
    values = [sum(column * 10**power for power, column in enumerate(row)) for row in rows]
    table[:, -1] += np.array(values) < 0  # the numbers, not the columns, are at least 0
    values = [value + 10 ** (width - 1) * (value < 0) for value in values]
    before = table.copy()
    assert Numbers.of(digits.resolve_carries(table)).to_ints() == values
    assert (table == before).all()
    assert Numbers.of(digits.resolve_carries(np.asfortranarray(table))).to_ints() == values


def test_columns_that_hold_no_digits_leave_their_argument_alone() -> None:
    given = np.array([[7], [8]])  # its transpose is contiguous, too
    digits.resolve_carries(given)[:] = 0
    assert given.tolist() == [[7], [8]]


def test_numbers_that_do_not_fit_their_columns_are_an_error() -> None:
    with pytest.raises(AssertionError, match="don't fit"):
        digits.resolve_carries(np.array([[10]]))


def test_concatenate_and_rows() -> None:
    joined = digits.concatenate([Numbers.from_ints([5, 123]), Numbers.from_ints([10**20])])
    check(joined, [5, 123, 10**20])
    check(joined[np.array([2, 0, 0])], [10**20, 5, 5])


def test_long_numbers() -> None:
    """Python's own int and str refuse more than 4300 digits, so Decimal converts here."""
    length, rng = 10_000, random.Random(0)
    x, y = (rng.randrange(10 ** (length - 1), 10**length) for _ in range(2))
    texts = [str(Decimal(value)) for value in (x, y)]
    assert [len(text) for text in texts] == [length, length]
    a, b = Numbers.from_text(texts[:1]), Numbers.from_ints([y])
    assert a.to_ints() == [x]
    assert b.to_text() == texts[1:]
    assert digits.add(a, b).to_ints() == [x + y]
    assert digits.multiply(a, b).to_ints() == [x * y]
    for modulus in (97, 10**30, 10**30 - 11):
        assert digits.remainder(a, modulus).to_ints() == [x % modulus]


def is_uniform(values: NDArray[np.int64], kinds: range) -> bool:
    """Whether each kind of value, and no other, is about as frequent (five deviations)."""
    counts = np.bincount(values, minlength=kinds.stop)
    expected = len(values) / len(kinds)
    near = abs(counts[kinds] - expected) < 5 * expected**0.5
    return bool(counts.sum() == counts[kinds].sum() and near.all())


def test_random_numbers_have_exactly_the_given_lengths() -> None:
    lengths = np.random.default_rng(0).integers(1, 40, 500)
    numbers = digits.random_numbers(np.random.default_rng(1), lengths)
    assert [len(str(value)) for value in numbers.to_ints()] == lengths.tolist()
    assert [len(text) for text in numbers.to_text()] == lengths.tolist()


def test_random_numbers_are_uniform() -> None:
    drawn = digits.random_numbers(np.random.default_rng(0), np.full(90_000, 2)).to_ints()
    assert is_uniform(np.array(drawn), range(10, 100))


@pytest.mark.parametrize("most", [1, 2])
def test_random_below_is_uniform_from_one(most: int) -> None:
    drawn = digits.random_below(np.random.default_rng(0), np.full(50_000, most))
    check(drawn, drawn.to_ints())  # lengths are those of the values
    assert is_uniform(np.array(drawn.to_ints()), range(1, 10**most))


def test_random_below_keeps_the_bound_of_each_entry() -> None:
    drawn = digits.random_below(np.random.default_rng(0), np.tile([1, 3], 5000)).to_ints()
    assert set(drawn[::2]) == set(range(1, 10))
    assert 100 <= max(drawn[1::2]) < 1000
    assert min(drawn[1::2]) < 100


def test_long_integers_print_their_digits() -> None:
    """Python's own raise a ValueError above 4300 digits."""
    nines = "9" * 5000
    (value,) = Numbers.from_text([nines]).to_ints()
    assert str(value) == f"{value}" == nines
    assert repr([value]) == f"[{nines}]"
    assert value + 1 == 10**5000
    assert f"{Numbers.from_text(['12']).to_ints()[0]:>4}" == "  12"
