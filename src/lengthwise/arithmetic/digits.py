"""Integers of any length as digit arrays, exact and vectorised over a batch.

Digits are stored least significant first: column i holds the power 10^i, with zeros above a
number's length. Loops run over columns, never over examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Python refuses to convert much longer decimal strings at once (sys.get_int_max_str_digits).
CHUNK = 4000
FEW = 8  # numbers whose carries are resolved faster one by one than as arrays


@dataclass(frozen=True)
class Numbers:
    """A batch of integers ≥ 0.

    >>> numbers = Numbers.from_text(["120", "7"])
    >>> numbers.digits.tolist(), numbers.lengths.tolist()
    ([[0, 2, 1], [7, 0, 0]], [3, 1])
    >>> numbers.to_ints()
    [120, 7]

    `lengths` counts the digits that are written. It exceeds what the value needs where leading
    zeros are part of the number, as in the answers of element-wise addition.
    """

    digits: NDArray[np.int64]  # (batch, width), least significant first
    lengths: NDArray[np.int64]  # (batch,)

    @classmethod
    def of(cls, digits: NDArray[np.int64]) -> "Numbers":
        """Numbers of these digits, without leading zeros (zero itself has one digit)."""
        return cls(digits, significant_digits(digits))

    @classmethod
    def blank(cls, count: int) -> "Numbers":
        """Numbers without digits, for fields that are left empty."""
        return cls(np.zeros((count, 1), np.int64), np.zeros(count, np.int64))

    @classmethod
    def from_text(cls, texts: Sequence[str]) -> "Numbers":
        width = max(map(len, texts), default=1)
        joined = "".join(text.rjust(width, "0") for text in texts)
        bytes_ = np.frombuffer(joined.encode("ascii"), np.uint8).reshape(len(texts), width)
        return cls.of((bytes_ - ord("0"))[:, ::-1].astype(np.int64))

    @classmethod
    def from_ints(cls, values: Sequence[int]) -> "Numbers":
        return cls.from_text([int_to_text(value) for value in values])

    def to_text(self) -> list[str]:
        rows = (self.digits[:, ::-1] + ord("0")).astype(np.uint8)
        pairs = zip(rows, self.lengths, strict=True)
        return [row.tobytes().decode("ascii")[self.width - n :] for row, n in pairs]

    def to_ints(self) -> list[int]:
        return [text_to_int(text) for text in self.to_text()]

    @property
    def width(self) -> int:
        return int(self.digits.shape[1])

    def __len__(self) -> int:
        return len(self.digits)

    def __getitem__(self, rows: NDArray[np.integer] | slice) -> "Numbers":
        return Numbers(self.digits[rows], self.lengths[rows])

    def pad_to(self, width: int) -> NDArray[np.int64]:
        """The digits with zero columns above, `width` in all."""
        return np.pad(self.digits, ((0, 0), (0, width - self.width)))


class LongInt(int):
    """An integer that prints its digits where Python's own refuses (above 4300 of them)."""

    def __repr__(self) -> str:
        return int_to_text(self)

    __str__ = __repr__

    def __format__(self, how: str) -> str:
        return super().__format__(how) if how else repr(self)


def text_to_int(text: str) -> int:
    """The integer of a decimal text, however long."""
    value = 0
    for start in range(0, len(text), CHUNK):
        chunk = text[start : start + CHUNK]
        value = value * 10 ** len(chunk) + int(chunk)
    return LongInt(value) if len(text) > CHUNK else value


def int_to_text(value: int) -> str:
    """The decimal text of an integer ≥ 0, however large."""
    chunks: list[str] = []
    value = int(value)
    while value >= 10**CHUNK:
        value, low = divmod(value, 10**CHUNK)
        chunks.append(str(low).zfill(CHUNK))
    return "".join([str(value), *reversed(chunks)])


def concatenate(parts: Sequence[Numbers]) -> Numbers:
    """All numbers of several batches as one batch."""
    width = max(part.width for part in parts)
    digits = np.concatenate([part.pad_to(width) for part in parts])
    return Numbers(digits, np.concatenate([part.lengths for part in parts]))


def significant_digits(digits: NDArray[np.int64]) -> NDArray[np.int64]:
    """The digits that each row needs: up to its most significant nonzero one, and at least one."""
    nonzero = digits != 0
    return np.where(nonzero.any(1), digits.shape[1] - nonzero[:, ::-1].argmax(1), 1)


def resolve_carries(columns: NDArray[np.int64], base: int = 10) -> NDArray[np.int64]:
    """Digits of the numbers sum_i columns[:, i]·base^i ≥ 0; columns may have any size and sign.

    >>> resolve_carries(np.array([[18, 12, 0]])).tolist()  # 18 + 12·10 = 138
    [[8, 3, 1]]
    """
    if len(columns) <= FEW:
        return np.array([resolve_row(row.tolist(), base) for row in columns], np.int64).reshape(
            columns.shape
        )
    powers = columns.T.copy()  # one row a power
    carry = np.zeros(len(columns), np.int64)
    for power in powers:
        power += carry
        carry = power // base
        power -= base * carry
    assert not carry.any(), "the numbers don't fit the columns"
    return np.ascontiguousarray(powers.T)


def resolve_row(columns: list[int], base: int = 10) -> list[int]:
    """As `resolve_carries`, for one number."""
    carry = 0
    for power, value in enumerate(columns):
        carry, columns[power] = divmod(value + carry, base)
    assert not carry, "the numbers don't fit the columns"
    return columns


def add(*numbers: Numbers) -> Numbers:
    """The sum of two or more numbers."""
    width = max(n.width for n in numbers) + len(str(len(numbers) - 1))
    columns = numbers[0].pad_to(width)
    for n in numbers[1:]:
        columns[:, : n.width] += n.digits
    return Numbers.of(resolve_carries(columns))


def multiply(a: Numbers, b: Numbers, *, base: int = 10) -> Numbers:
    """The product a·b, by long multiplication."""
    columns = np.zeros((len(a), a.width + b.width), np.int64)
    for i in range(b.width):
        columns[:, i : i + a.width] += a.digits * b.digits[:, i : i + 1]
    return Numbers.of(resolve_carries(columns, base))


def remainder(a: Numbers, modulus: int) -> Numbers:
    """a mod `modulus`, for a modulus of any size.

    Replacing every power of ten by its remainder leaves a number below 9·width·modulus; subtracting
    modulus·2^k a few times finishes the division.
    """
    width = len(str(9 * a.width * modulus))

    def row(value: int) -> NDArray[np.int64]:
        return Numbers.from_ints([value]).pad_to(width)[0]

    table = np.stack([row(pow(10, power, modulus)) for power in range(a.width)])
    rest = resolve_carries(a.digits @ table)
    for k in reversed(range((9 * a.width).bit_length())):
        multiple = row(modulus << k)
        rest = resolve_carries(rest - at_least(rest, multiple)[:, None] * multiple)
    return Numbers.of(rest[:, : len(str(modulus - 1))])


def at_least(digits: NDArray[np.int64], bound: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each row is a number ≥ the bound: the most significant digit that differs decides."""
    difference = (digits - bound)[:, ::-1]
    first = (difference != 0).argmax(1)
    return difference[np.arange(len(digits)), first] >= 0


def add_elementwise(a: Numbers, b: Numbers) -> Numbers:
    """Addition without carries; the answer is as long as the longer operand, with leading zeros.

    >>> add_elementwise(Numbers.from_ints([99]), Numbers.from_ints([35])).to_ints()
    [24]
    """
    width = max(a.width, b.width)
    return Numbers((a.pad_to(width) + b.pad_to(width)) % 10, np.maximum(a.lengths, b.lengths))


def carries(a: Numbers, b: Numbers) -> NDArray[np.bool_]:
    """(batch, width): column i is true where the sum a + b carries out of the power 10^i.

    >>> carries(Numbers.from_ints([58]), Numbers.from_ints([67])).tolist()  # 8+7 and 5+6+1
    [[True, True]]
    """
    width = max(a.width, b.width)
    total = add(a, b).pad_to(width + 1)[:, : width + 1]
    carry_in = (total[:, 1:] - a.pad_to(width + 1)[:, 1:] - b.pad_to(width + 1)[:, 1:]) % 10
    return carry_in.astype(bool)


def longest_run(marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The length of the longest run of true values in each row."""
    columns = np.arange(1, marks.shape[1] + 1)
    last_gap = np.maximum.accumulate(np.where(marks, 0, columns), axis=1)
    return (columns - last_gap).max(1, initial=0)


def random_numbers(rng: np.random.Generator, lengths: NDArray[np.int64]) -> Numbers:
    """Numbers drawn uniformly among those with exactly these lengths; none starts with 0."""
    width = int(lengths.max(initial=1))
    digits = rng.integers(0, 10, (len(lengths), width))
    digits[np.arange(width) >= lengths[:, None]] = 0
    digits[np.arange(len(lengths)), lengths - 1] = rng.integers(1, 10, len(lengths))
    return Numbers(digits, lengths)


def random_below(rng: np.random.Generator, most_digits: NDArray[np.int64]) -> Numbers:
    """Numbers drawn uniformly from 1 … 10^n − 1, for each entry n of `most_digits`."""
    shape = len(most_digits), int(most_digits.max(initial=1))
    above = np.arange(shape[1]) >= most_digits[:, None]
    drawn = np.where(above, 0, rng.integers(0, 10, shape))
    while (zeros := ~drawn.any(1)).any():  # zero isn't positive: draw again
        drawn[zeros] = np.where(above, 0, rng.integers(0, 10, shape))[zeros]
    return Numbers.of(drawn)
