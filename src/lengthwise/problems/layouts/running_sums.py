"""Sums of many operands: a row for each operand, and a row for the sum so far."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lengthwise.arithmetic.digits import Numbers, add
from lengthwise.arithmetic.tasks import Addition, Task
from lengthwise.base import UsageError
from lengthwise.problems.layouts.layout import (
    LAYOUTS,
    Coordinates,
    Layout,
    TokenArray,
    WrittenField,
)
from lengthwise.problems.layouts.long_multiplication import SUM, RowOptions


@LAYOUTS.register("running-sums")
class RunningSumsLayout(Layout):
    """Two rows for each operand, which any number of operands and any length fit.

    One row holds the operand and is trained to repeat it. The other is blank and is trained to
    become the sum of all operands so far. The answer is the last sum.
    """

    class Options(RowOptions):
        pass

    options: Options  # type: ignore[assignment]
    fits_any_length = True

    def __init__(
        self,
        options: Options,
        task: Task,
        digits: int,
        operand_digits: tuple[int, ...] | None = None,
    ):
        if not isinstance(task, Addition):
            raise UsageError("the layout 'running-sums' needs the task addition")
        super().__init__(options, task, digits, operand_digits)  # type: ignore[arg-type]
        self.n_operands = 4  # with sums and, seen from a row, other rows of its kind
        rows, width = len(self.operand_digits), self.answer_width()
        self.n_supervised = self.length
        self.answer_at = (rows - 1) * (width + 1) + np.arange(width)

    def arrange(self) -> list[WrittenField]:
        rows, width = range(len(self.operand_digits)), self.answer_width()
        sums = [WrittenField(SUM, width, row) for row in rows]
        return [*sums, *(WrittenField(0, width, row) for row in rows)]

    def answer_width(self) -> int:
        return self.task.answer_digits(self.operand_digits)

    def most_digits(self, operand: int) -> int | None:
        return None

    def for_lengths(self, lengths: Sequence[int], padding: int = 0) -> "RunningSumsLayout":
        digits = max(lengths) + padding
        return RunningSumsLayout(self.options, self.task, digits, (digits,) * len(lengths))

    def field_numbers(self, operands: tuple[Numbers, ...]) -> list[Numbers]:
        blank = Numbers.blank(len(operands[0]))
        return [blank if field.operand == SUM else operands[field.row] for field in self.fields]

    def encode_targets(self, operands: tuple[Numbers, ...], answer: Numbers) -> TokenArray:
        sums = [operands[0]]
        for numbers in operands[1:]:
            sums.append(add(sums[-1], numbers))
        width = self.fields[0].width + 1
        rows = [self.write(numbers, width) for numbers in (*sums, *operands)]
        return np.concatenate(rows, axis=1)[:, : self.length]

    def decode(self, tokens: TokenArray) -> tuple[Numbers, ...]:
        width = self.fields[0].width + 1
        starts = width * np.arange(len(self.operand_digits), len(self.fields))
        return tuple(self.read(tokens[:, start : start + width - 1])[0] for start in starts)

    def coordinates(self, operands: tuple[Numbers, ...]) -> Coordinates[NDArray[np.int64]]:
        found = super().coordinates(operands)
        # All rows start with the units.
        found.significance[:] = np.arange(self.length) % (self.fields[0].width + 1)
        return found
