"""What layouts share: a problem is a row of fields, padded to their widths, with operators between.

Every token has coordinates: its index, its significance (power of ten), its place in its number,
its operand. A position embedding works over one of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, SerializeAsAny

from lengthwise.arithmetic.digits import Numbers, significant_digits
from lengthwise.arithmetic.tasks import Task
from lengthwise.base import Choice, Registry, UsageError

VOCABULARY = (*"0123456789", "+", "%", "×", "*", "<PAD>")
PAD = VOCABULARY.index("<PAD>")

TokenArray = NDArray[np.int64]
Coordinate = Literal["index", "significance"]  # those that a position embedding can choose
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Coordinates(Generic[A]):
    """Where each token stands: (length,) where all examples agree, else (batch, length)."""

    index: A  # 0, 1, 2, … in the sequence
    significance: A  # the power of ten; padding and operators continue it as if they were digits
    place: A  # of a digit in its number as written, from 1; 0 for padding and operators
    operand: A  # 0 for the first operand and the operator behind it, 1 for the second, …
    shared: A  # whether its operand is off the number line, such as the second of 35 × 3
    row: A  # in long multiplication, the digit of the second operand that the token belongs to;
    # in running sums, the operand

    def map(self, convert: Callable[[A], B]) -> "Coordinates[B]":
        return Coordinates(*(convert(getattr(self, field.name)) for field in fields(self)))


class WrittenField(NamedTuple):
    """A number's place in the sequence: whose it is, its width, and its lowest power of ten."""

    operand: int
    width: int
    row: int = 0


class Layout:
    """Writes problems of at most `digits` digits as tokens of one length, and reads answers back.

    A subclass defines `arrange`, and overrides the rest where it differs.
    """

    class Options(Choice):
        """The options of a layout, as in `layout: {kind: fitted, extra_padding: 3}`."""

        order: Literal["most-significant-first", "least-significant-first"] = Field(
            "most-significant-first", description="which digit of a number is written first"
        )

    fits_any_length = False  # whether `fit` makes room for problems of any length

    def __init__(
        self,
        options: Options,
        task: Task,
        digits: int,
        operand_digits: tuple[int, ...] | None = None,
    ):
        if digits < 1:
            raise UsageError(f"numbers have at least 1 digit, not {digits}")
        self.options, self.task, self.digits = options, task, digits
        self.operand_digits = operand_digits or task.operand_digits(digits)
        # The paper's 15 symbols serve its tasks; a task with a symbol of its own adds one.
        known = task.symbol in VOCABULARY
        self.vocabulary = VOCABULARY if known else (*VOCABULARY, task.symbol)
        self.least_first = options.order == "least-significant-first"
        # An operand whose length does not grow with the problem is shared by all of its digits.
        self.shared = np.equal(task.operand_digits(1), task.operand_digits(2))
        self.n_operands = len(self.operand_digits)
        self.fields = self.arrange()
        # A blank field is one more operand that position embeddings tell apart.
        self.n_operands = 1 + max(field.operand for field in self.fields)
        self.length = sum(field.width for field in self.fields) + len(self.fields) - 1
        self.n_out = self.answer_width()
        self.n_supervised = self.n_out  # positions with a target in training
        self.answer_at: slice | NDArray[np.int64] = slice(self.n_out)  # the answer's among them
        needed = task.answer_digits(self.operand_digits)
        if not needed <= self.n_out <= self.length:
            raise UsageError(
                f"the layout reads answers from {self.n_out} of its {self.length} positions, but"
                f" answers have up to {needed} digits; the layout 'fitted' makes room for them"
            )

    def arrange(self) -> list[WrittenField]:
        """The fields of the sequence, in their order."""
        raise NotImplementedError

    def answer_width(self) -> int:
        """How many positions the answer is read from (n_out)."""
        widths = tuple(field.width for field in self.fields)
        return min(self.task.answer_digits(widths), self.length)

    def check_operands(self, lengths: Sequence[int]) -> None:
        """Raise a UsageError unless operands of these lengths fit."""
        for operand, length in enumerate(lengths):
            most = self.most_digits(operand)
            if most is not None and length > most:
                raise UsageError(
                    f"operand {operand + 1} has {length} digits, but this model's layout has room"
                    f" for {most}"
                )

    def most_digits(self, operand: int) -> int | None:
        """The longest number that an operand's field has room for; None: any."""
        return self.task.operand_digits(self.digits)[operand]

    def fit(self, operands: Sequence[Numbers], padding: int = 0) -> "Layout":
        """The layout for these problems: itself, or one with room for the longest of them."""
        return self.for_lengths([int(n.lengths.max(initial=1)) for n in operands], padding)

    def for_lengths(self, lengths: Sequence[int], padding: int = 0) -> "Layout":
        """The layout for operands of these lengths, with extra padding if it fits any length."""
        return self

    def encode(self, operands: tuple[Numbers, ...]) -> TokenArray:
        """(batch, length): the operands, padded, with the operator between them."""
        operator = np.full((len(operands[0]), 1), self.vocabulary.index(self.task.symbol))
        parts = []
        for numbers, field in zip(self.field_numbers(operands), self.fields, strict=True):
            parts += [self.write(numbers, field.width), operator]
        return np.concatenate(parts[:-1], axis=1)

    def encode_answer(self, answer: Numbers, n_out: int | None = None) -> TokenArray:
        """(batch, n_out): the answer, padded."""
        return self.write(answer, n_out or self.n_out)

    def encode_targets(self, operands: tuple[Numbers, ...], answer: Numbers) -> TokenArray:
        """(batch, n_supervised): what training asks for at the first positions."""
        return self.encode_answer(answer)

    def decode(self, tokens: TokenArray) -> tuple[Numbers, ...]:
        """The operands of problems that `encode` wrote."""
        starts = np.cumsum([0, *(field.width + 1 for field in self.fields[:-1])])
        found = {
            field.operand: self.read(tokens[:, start : start + field.width])[0]
            for start, field in zip(starts, self.fields, strict=True)
            if field.row == 0 and field.operand < len(self.shared)
        }
        return tuple(found[operand] for operand in sorted(found))

    def decode_answer(self, tokens: TokenArray) -> tuple[Numbers, NDArray[np.bool_]]:
        """The numbers that (batch, n_out) tokens stand for, and which rows are numbers at all.

        A number is digits and then padding only. It has no leading zero, unless the task's answers
        have a fixed length.
        """
        numbers, valid = self.read(tokens)
        valid &= numbers.lengths > 0
        if not self.task.leading_zeros:
            valid &= numbers.lengths == significant_digits(numbers.digits)
        return numbers, valid

    def coordinates(self, operands: tuple[Numbers, ...]) -> Coordinates[NDArray[np.int64]]:
        """The coordinates of the tokens of `encode(operands)`."""
        numbers = self.field_numbers(operands)
        offsets = [np.arange(field.width + 1) for field in self.fields]  # with the operator
        lengths = [n.lengths[:, None] for n in numbers]
        if self.least_first:
            pairs = zip(offsets, self.fields, strict=True)
            significance = np.concatenate([offset + field.row for offset, field in pairs])[:-1]
        else:
            powers = [n - 1 - offset for n, offset in zip(lengths, offsets, strict=True)]
            significance = np.concatenate(powers, axis=1)[:, :-1]
        places = [
            np.where(offset < n, offset + 1, 0) for n, offset in zip(lengths, offsets, strict=True)
        ]
        owners = np.array([(field.operand, field.row) for field in self.fields])
        operand, row = np.repeat(owners, [len(offset) for offset in offsets], axis=0)[:-1].T
        return Coordinates(
            index=np.arange(self.length),
            significance=significance,
            place=np.concatenate(places, axis=1)[:, :-1],
            operand=operand,
            shared=np.append(self.shared, False)[operand],
            row=row,
        )

    def text(self, tokens: TokenArray) -> list[str]:
        """Token sequences as people read them."""
        return [" ".join(self.vocabulary[token] for token in row) for row in tokens]

    def field_numbers(self, operands: tuple[Numbers, ...]) -> list[Numbers]:
        """The number in each field; fields of no operand are blank."""
        blank = Numbers.blank(len(operands[0]))
        return [operands[f.operand] if f.operand < len(operands) else blank for f in self.fields]

    def write(self, numbers: Numbers, width: int) -> TokenArray:
        """(batch, width): digits, then padding."""
        if (longest := int(numbers.lengths.max(initial=0))) > width:
            raise UsageError(f"a number of {longest} digits does not fit the layout's {width}")
        column = np.arange(width)
        power = column if self.least_first else numbers.lengths[:, None] - 1 - column
        inside = column < numbers.lengths[:, None]
        power = np.broadcast_to(np.where(inside, power, 0), inside.shape)
        return np.where(inside, np.take_along_axis(numbers.digits, power, axis=1), PAD)

    def read(self, tokens: TokenArray) -> tuple[Numbers, NDArray[np.bool_]]:
        """The numbers that `write` wrote, and which rows are digits and then padding only."""
        width = tokens.shape[1]
        padding = tokens == PAD
        lengths = np.where(padding.any(1), padding.argmax(1), width)
        inside = np.arange(width) < lengths[:, None]
        valid: NDArray[np.bool_] = np.all(np.where(inside, tokens <= 9, padding), axis=1)
        digits = np.where(inside & valid[:, None], tokens, 0)
        if not self.least_first:
            power = lengths[:, None] - 1 - np.arange(width)
            reversed_ = np.take_along_axis(digits, np.maximum(power, 0), axis=1)
            digits = np.where(power >= 0, reversed_, 0)
        return Numbers(digits, lengths), valid


LAYOUTS: Registry[Layout] = Registry("layout", "layout")
AnyLayout = Annotated[SerializeAsAny[Choice], BeforeValidator(LAYOUTS.parse)]
