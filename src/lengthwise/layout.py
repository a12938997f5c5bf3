"""How a problem is written: symbols, digit order, padding, where the answer is read (paper, §2.1).

Every token also has coordinates: its index in the sequence, its significance (power of ten) and its operand. A position
embedding works over one of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lengthwise.digits import Numbers, multiply, significant_digits
from lengthwise.errors import UsageError
from lengthwise.registry import Config
from lengthwise.tasks import Multiplication, Task

VOCABULARY = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "+", "%", "×", "*", "<PAD>")
PAD = VOCABULARY.index("<PAD>")
SUMS = 2  # the operand number of the sums in long multiplication

Tokens = NDArray[np.int64]
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Coordinates(Generic[A]):
    """Where each token stands; arrays (length,) where all examples agree, else (batch, length)."""

    index: A  # 0, 1, 2, … in the sequence
    significance: A  # the power of ten of a digit; goes on through padding and operator as if they were digits
    place: A  # of a digit in its number as it is written, from 1; 0 for padding and operators
    operand: A  # 0 for the first operand and the operator after it, 1 for the second, …; then sums
    shared: A  # whether it is in an operand beside the number line, such as the second of 35 × 3
    row: A  # in long multiplication: which digit of the second operand it is, or belongs to; else 0

    def map(self, convert: Callable[[A], B]) -> "Coordinates[B]":
        return Coordinates(*(convert(getattr(self, field.name)) for field in fields(self)))


class LayoutConfig(Config):
    """How problems are written; the defaults are the paper's."""

    order: Literal["most-significant-first", "least-significant-first"] = Field(
        "most-significant-first", description="which digit of a number is written first"
    )
    compact: bool = Field(
        False, description="write the second operand no wider than the task needs, instead of test_digits wide"
    )
    n_out: int | None = Field(None, ge=1, description="symbols of the answer; null: as many as the answers need")
    fitted: bool = Field(
        False, description="make room for the longest problem of a batch instead of test_digits: any length fits"
    )
    answer_room: bool = Field(
        False, description="make the first operand's room as wide as the answer, which is read there"
    )
    long_multiplication: bool = Field(
        False,
        description="write two rows for each digit of the second operand: the first operand, which is trained to be the"
        " product, and an empty one, which is trained to be the sum of all products so far, both from that digit's"
        " place on",
    )

    @model_validator(mode="after")
    def _one_width(self) -> "LayoutConfig":
        if self.fitted and self.n_out:
            raise UsageError("layout.n_out can't be set where layout.fitted is true: it grows with the problem")
        return self


class Layout:
    """Writes problems of up to `digits` digits as token sequences of one length, and reads them back.

    >>> from lengthwise.tasks import Addition
    >>> layout = Layout(Addition(), digits=3)
    >>> operands = Numbers.from_ints([12, 999]), Numbers.from_ints([39, 345])
    >>> print(*layout.text(layout.encode(operands)), sep=chr(10))
    1 2 <PAD> + 3 9 <PAD>
    9 9 9 + 3 4 5
    >>> print(*layout.text(layout.encode_answer(Addition().answer(*operands))), sep=chr(10))
    5 1 <PAD> <PAD>
    1 3 4 4
    """

    def __init__(
        self, task: Task, digits: int, config: LayoutConfig | None = None, needed: tuple[int, ...] | None = None
    ):
        if digits < 1:
            raise UsageError(f"numbers have 1 digit or more, not {digits}")
        self.config = config = config or LayoutConfig()
        needed = needed or task.operand_digits(digits)  # digits of each operand, where they aren't as the task has them
        self.task = task
        self.digits = digits
        # The paper's 15 symbols serve its tasks; a task with a symbol of its own has one more.
        self.vocabulary = VOCABULARY if task.symbol in VOCABULARY else (*VOCABULARY, task.symbol)
        self.least_first = config.order == "least-significant-first"
        self.widths = needed if config.compact else (max(needed),) * len(needed)
        self.shared = np.equal(task.operand_digits(1), task.operand_digits(2))
        if config.answer_room:
            self.widths = (max(self.widths[0], config.n_out or task.answer_digits(needed)), *self.widths[1:])
        # The numbers that are written: which operand, and from which power of ten on.
        self.written = [(operand, 0) for operand in range(len(needed))]
        self.n_operands = len(needed)  # that a position embedding tells apart
        if config.long_multiplication:
            roomy = config.answer_room or config.n_out is not None
            if not (isinstance(task, Multiplication) and config.compact and self.least_first) or roomy:
                raise UsageError(
                    "layout.long_multiplication needs the task multiplication, with layout.compact and the order"
                    " least-significant-first, and without layout.answer_room and layout.n_out"
                )
            self.shared = np.array([False, True])
            rows = range(needed[1])
            self.written = [*((SUMS, row) for row in rows), *((0, row) for row in rows), (1, 0)]
            self.widths = (needed[0] + 1,) * (2 * len(rows)) + self.widths[1:]
            self.n_operands = 4  # with sums and, seen from a row, other rows of its kind
        self.length = sum(self.widths) + len(self.widths) - 1
        room = needed if config.answer_room or config.long_multiplication else self.widths
        self.n_out = config.n_out or min(task.answer_digits(room), self.length)
        # The positions that training asks for, and where among them the answer is read.
        self.n_asked = self.n_out
        self.answer_at: slice | NDArray[np.int64] = slice(self.n_out)
        if config.long_multiplication:  # the first digit of each sum, from which on the next goes, and all of the last
            starts = np.arange(needed[1]) * (needed[0] + 2)
            self.n_asked = 2 * len(starts) * (needed[0] + 2)
            self.answer_at = np.append(starts, starts[-1] + 1 + np.arange(needed[0]))
        if not task.answer_digits(needed) <= self.n_out <= self.length:
            hint = "" if config.n_out else "; layout.answer_room makes more"
            raise UsageError(
                f"layout.n_out is {self.n_out}, but the answers have up to {task.answer_digits(needed)} digits"
                f" and are read from the {self.length} positions of the input{hint}"
            )

    def fit(self, operands: tuple[Numbers, ...], padding: int = 0) -> "Layout":
        """The layout for these problems: itself, or one with room for the longest of them and some more padding."""
        return self.of_lengths([int(numbers.lengths.max(initial=1)) for numbers in operands], padding)

    def of_lengths(self, longest: Sequence[int], padding: int = 0) -> "Layout":
        """The same for problems whose longest operands have so many digits."""
        if not self.config.fitted:
            return self
        if self.config.long_multiplication:
            return Layout(self.task, max(longest) + padding, self.config, (longest[0] + padding, longest[1]))
        digits = max(n for n, shared in zip(longest, self.shared, strict=True) if not shared)
        return Layout(self.task, digits + padding, self.config)

    def encode(self, operands: tuple[Numbers, ...]) -> Tokens:
        """(batch, length): the operands, padded, with the operator between them."""
        operator = np.full((len(operands[0]), 1), self.vocabulary.index(self.task.symbol))
        parts = []
        for numbers, width in zip(self._written(operands), self.widths, strict=True):
            parts += [self._write(numbers, width), operator]
        return np.concatenate(parts[:-1], axis=1)

    def encode_answer(self, answer: Numbers, n_out: int | None = None) -> Tokens:
        """(batch, n_out)"""
        return self._write(answer, n_out or self.n_out)

    def encode_targets(self, operands: tuple[Numbers, ...], answer: Numbers) -> Tokens:
        """What training asks for at the first n_asked positions: the answer and, in long multiplication, all rows."""
        if not self.config.long_multiplication:
            return self.encode_answer(answer)
        first, second = operands
        digits = second.widened(max(second.width, self.widths[-1]))

        def asked(operand: int, row: int) -> Numbers:
            there = row < second.lengths  # the second operand has this digit
            if row:
                there &= first.digits.any(1)  # or else the answer is 0, in the first row
            if operand == 0:
                product = multiply(first, Numbers.of(digits[:, row : row + 1]))
                return Numbers(product.digits, np.where(there, product.lengths, 0))
            total = multiply(first, Numbers.of(digits[:, : row + 1]))
            return Numbers(total.digits[:, row:], np.maximum(total.lengths - row, there))

        return np.concatenate([self._write(asked(*row), self.widths[0] + 1) for row in self.written[:-1]], axis=1)

    def decode(self, tokens: Tokens) -> tuple[Numbers, ...]:
        """The operands of problems written by `encode`."""
        starts = np.cumsum([0, *(width + 1 for width in self.widths[:-1])])
        return tuple(
            self._read(tokens[:, start : start + width])[0]
            for start, width, (operand, row) in zip(starts, self.widths, self.written, strict=True)
            if row == 0 and operand < len(self.shared)
        )

    def decode_answer(self, tokens: Tokens) -> tuple[Numbers, NDArray[np.bool_]]:
        """The numbers that (batch, n_out) tokens stand for, and which rows are numbers at all.

        Digits, then only padding; no leading zero, unless the task's answers have a fixed length.
        """
        numbers, valid = self._read(tokens)
        valid &= numbers.lengths > 0
        if not self.task.leading_zeros:
            valid &= numbers.lengths == significant_digits(numbers.digits)
        return numbers, valid

    def coordinates(self, operands: tuple[Numbers, ...]) -> Coordinates[NDArray[np.int64]]:
        """The coordinates of the tokens of `encode(operands)`."""
        offsets = [np.arange(width + 1) for width in self.widths]  # in its number; one more for the operator
        lengths = [numbers.lengths[:, None] for numbers in self._written(operands)]
        if self.least_first:
            shifts = [row for _, row in self.written]
            significance = np.concatenate([offset + row for offset, row in zip(offsets, shifts, strict=True)])[:-1]
        else:
            powers = [n - 1 - offset for n, offset in zip(lengths, offsets, strict=True)]
            significance = np.concatenate(powers, axis=1)[:, :-1]
        operand, row = np.repeat(self.written, [len(offset) for offset in offsets], axis=0)[:-1].T
        if self.config.long_multiplication:
            row[operand == 1] = offsets[-1][:-1]
        places = [np.where(offset < n, offset + 1, 0) for n, offset in zip(lengths, offsets, strict=True)]
        place = np.concatenate(places, axis=1)[:, :-1]
        return Coordinates(
            np.arange(self.length),
            significance,
            place,
            operand,
            np.append(self.shared, False)[operand],
            row,
        )

    def text(self, tokens: Tokens) -> list[str]:
        """Token sequences as people read them."""
        return [" ".join(self.vocabulary[token] for token in row) for row in tokens]

    def _written(self, operands: tuple[Numbers, ...]) -> list[Numbers]:
        """What is written, in its order."""
        empty = Numbers(np.zeros((len(operands[0]), 1), np.int64), np.zeros(len(operands[0]), np.int64))
        return [operands[operand] if operand < len(operands) else empty for operand, _ in self.written]

    def _write(self, numbers: Numbers, width: int) -> Tokens:
        if (longest := int(numbers.lengths.max(initial=0))) > width:
            raise UsageError(f"a number of {longest} digits is too long for this layout, which has room for {width}")
        column = np.arange(width)
        power = column if self.least_first else numbers.lengths[:, None] - 1 - column
        written = column < numbers.lengths[:, None]
        power = np.broadcast_to(np.where(written, power, 0), written.shape)
        return np.where(written, np.take_along_axis(numbers.digits, power, axis=1), PAD)

    def _read(self, tokens: Tokens) -> tuple[Numbers, NDArray[np.bool_]]:
        width = tokens.shape[1]
        padding = tokens == PAD
        lengths = np.where(padding.any(1), padding.argmax(1), width)
        inside = np.arange(width) < lengths[:, None]
        valid: NDArray[np.bool_] = np.all(np.where(inside, tokens <= 9, padding), axis=1)
        digits = np.where(inside & valid[:, None], tokens, 0)
        if not self.least_first:
            power = lengths[:, None] - 1 - np.arange(width)
            digits = np.where(power >= 0, np.take_along_axis(digits, np.maximum(power, 0), axis=1), 0)
        return Numbers(digits, lengths), valid
