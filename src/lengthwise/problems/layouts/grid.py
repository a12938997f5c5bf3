"""Products on a two-dimensional grid: a cell for each pair of digits, one of each operand."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lengthwise.arithmetic.digits import Numbers, multiply
from lengthwise.arithmetic.tasks import BinaryMultiplication, Multiplication, Task
from lengthwise.base import UsageError
from lengthwise.problems.layouts.layout import LAYOUTS, Layout, TokenArray, WrittenField
from lengthwise.problems.layouts.long_multiplication import SUM, RowOptions


@LAYOUTS.register("grid")
class GridLayout(Layout):
    """The outer product of the digits: a row for each digit of the second operand.

    A cell has three tokens: a digit of the first operand, the digit of its row, and a blank. The
    first is trained to become a digit of the row's product, and the blank one of the sum of all
    rows so far. Rows are written in full, with zeros above their numbers. Any length fits.
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
        if not isinstance(task, Multiplication | BinaryMultiplication):
            raise UsageError(
                "the layout 'grid' needs the task multiplication or binary-multiplication"
            )
        self.base = task.base
        super().__init__(options, task, digits, operand_digits)  # type: ignore[arg-type]
        self.shared = np.array([False, False])  # every cell has its own digit of the second operand
        self.n_operands = 4  # with sums and, seen from a row, other rows of its kind
        # The lowest digit of each sum is final: the answer is those and the rest of the last sum.
        lowest = np.arange(self.rows) * self.row_length
        self.n_supervised = 2 * self.rows * self.row_length
        self.answer_at = np.append(lowest, lowest[-1] + 1 + np.arange(self.operand_digits[0]))

    @property
    def rows(self) -> int:
        return max(2, self.operand_digits[1])  # with one row there would be nothing to add

    @property
    def row_length(self) -> int:
        """The tokens of a row of one kind: the first operand, one more digit, and the operator."""
        return self.operand_digits[0] + 2

    def arrange(self) -> list[WrittenField]:
        width = self.row_length - 1
        return [WrittenField(kind, width, row) for kind in (SUM, 0, 1) for row in range(self.rows)]

    def answer_width(self) -> int:
        return self.operand_digits[0] + self.rows

    def most_digits(self, operand: int) -> int | None:
        return None

    def for_lengths(self, lengths: Sequence[int], padding: int = 0) -> "GridLayout":
        first, second = lengths
        operand_digits = first + padding, second
        return GridLayout(self.options, self.task, max(operand_digits), operand_digits)

    def field_numbers(self, operands: tuple[Numbers, ...]) -> list[Numbers]:
        first, second = operands
        digits = second.pad_to(max(second.width, self.rows))
        nothing = np.zeros_like(first.lengths)

        def cells(field: WrittenField) -> Numbers:
            if field.operand == 0:
                return first
            copies = np.repeat(digits[:, field.row, None], first.width, axis=1)
            exists = (field.row < second.lengths) & (field.operand != SUM)
            return Numbers(copies, np.where(exists, first.lengths, nothing))

        return [cells(field) for field in self.fields]

    def encode_targets(self, operands: tuple[Numbers, ...], answer: Numbers) -> TokenArray:
        first, second = operands
        digits = second.pad_to(max(second.width, self.rows))

        def target(kind: int, row: int) -> Numbers:
            lowest = 0 if kind == SUM else row
            total = multiply(first, Numbers.of(digits[:, lowest : row + 1]), base=self.base)
            return Numbers.of(total.digits[:, row - lowest :])

        supervised = self.fields[: 2 * self.rows]
        rows = [self.fill(target(f.operand, f.row), self.row_length) for f in supervised]
        return np.concatenate(rows, axis=1)

    def encode_answer(self, answer: Numbers, n_out: int | None = None) -> TokenArray:
        return self.fill(answer, n_out or self.n_out)

    def fill(self, numbers: Numbers, width: int) -> TokenArray:
        """(batch, width): digits, with zeros above them."""
        written = self.write(numbers, width)
        return np.where(written <= 9, written, 0)

    def decode_answer(self, tokens: TokenArray) -> tuple[Numbers, NDArray[np.bool_]]:
        valid: NDArray[np.bool_] = np.all(tokens < self.base, axis=1)
        return Numbers.of(np.where(valid[:, None], tokens, 0)), valid

    def decode(self, tokens: TokenArray) -> tuple[Numbers, ...]:
        first, second = self.rows * self.row_length * np.array([1, 2])
        lowest_cells = tokens[:, second + self.row_length * np.arange(self.rows)]
        return (
            self.read(tokens[:, first : first + self.row_length - 1])[0],
            self.read(lowest_cells)[0],
        )
