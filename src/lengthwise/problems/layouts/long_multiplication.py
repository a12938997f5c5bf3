"""Long multiplication: a row for each partial product, and a row for each partial sum."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lengthwise.arithmetic.digits import Numbers, multiply
from lengthwise.arithmetic.tasks import Multiplication, Task
from lengthwise.base import Choice, UsageError
from lengthwise.problems.layouts.layout import (
    LAYOUTS,
    Coordinates,
    Layout,
    TokenArray,
    WrittenField,
)

SUM = 2  # the operand number of the partial sums


class RowOptions(Choice):
    """The options of a layout that writes rows."""

    order: ClassVar[Literal["least-significant-first"]] = "least-significant-first"
    extra_padding: int = Field(
        0, ge=0, description="in training, up to this much padding more, drawn for each batch"
    )
    targets: Literal["rows", "answer"] = Field(
        "rows", description="what the loss asks for: every row, or the answer alone"
    )


def writes_rows(coordinates: Coordinates[Any]) -> Any:
    """Whether sums are written in rows, as in long multiplication and in running sums."""
    row = coordinates.row
    return coordinates.shared.any() | (row.max() > row.min())


@LAYOUTS.register("long-multiplication")
class LongMultiplicationLayout(Layout):
    """Two rows for each digit of the second operand, each written from that digit's power on.

    One row holds the first operand and is trained to become the partial product. The other is blank
    and is trained to become the sum of all partial products so far. Any length fits.
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
        if not isinstance(task, Multiplication):
            raise UsageError("the layout 'long-multiplication' needs the task multiplication")
        super().__init__(options, task, digits, operand_digits)  # type: ignore[arg-type]
        self.shared = np.array([False, True])
        self.n_operands = 4  # with sums and, seen from a row, other rows of its kind
        first, second = self.operand_digits
        # The lowest digit of each sum is final: the answer is those and the rest of the last sum.
        lowest = np.arange(second) * (first + 2)
        self.n_supervised = 2 * second * (first + 2)
        self.answer_at = np.append(lowest, lowest[-1] + 1 + np.arange(first))

    def arrange(self) -> list[WrittenField]:
        first, second = self.operand_digits
        sums = [WrittenField(SUM, first + 1, row) for row in range(second)]
        products = [WrittenField(0, first + 1, row) for row in range(second)]
        return [*sums, *products, WrittenField(1, second)]

    def answer_width(self) -> int:
        return self.task.answer_digits(self.operand_digits)

    def most_digits(self, operand: int) -> int | None:
        return None

    def for_lengths(self, lengths: Sequence[int], padding: int = 0) -> "LongMultiplicationLayout":
        first, second = lengths
        operand_digits = first + padding, second
        digits = max(first, second) + padding
        return LongMultiplicationLayout(self.options, self.task, digits, operand_digits)

    def encode_targets(self, operands: tuple[Numbers, ...], answer: Numbers) -> TokenArray:
        first, second = operands
        multiplier = second.pad_to(max(second.width, self.fields[-1].width))

        def target(operand: int, row: int) -> Numbers:
            exists = row < second.lengths  # the second operand has this digit
            if row:
                exists &= first.digits.any(1)  # 0 times anything is in the first row already
            if operand == SUM:
                total = multiply(first, Numbers.of(multiplier[:, : row + 1]))
                return Numbers(total.digits[:, row:], np.maximum(total.lengths - row, exists))
            product = multiply(first, Numbers.of(multiplier[:, row : row + 1]))
            return Numbers(product.digits, np.where(exists, product.lengths, 0))

        width = self.fields[0].width + 1
        rows = [self.write(target(field.operand, field.row), width) for field in self.fields[:-1]]
        return np.concatenate(rows, axis=1)

    def coordinates(self, operands: tuple[Numbers, ...]) -> Coordinates[NDArray[np.int64]]:
        found = super().coordinates(operands)
        # A digit of the second operand belongs to the row that it makes.
        digits = np.arange(self.fields[-1].width)
        found.row[found.operand == 1] = digits
        return found
