"""A layout that grows with its problems."""

from collections.abc import Sequence

from pydantic import Field

from lengthwise.problems.layouts.layout import LAYOUTS, Layout, WrittenField


@LAYOUTS.register("fitted")
class FittedLayout(Layout):
    """As wide as the longest problem of a batch, so that any length fits.

    The first operand's field is as wide as the answer, which is read there: digit i of the answer
    at digit i of the first operand.
    """

    class Options(Layout.Options):
        extra_padding: int = Field(
            0, ge=0, description="in training, up to this much padding more, drawn for each batch"
        )

    options: Options
    fits_any_length = True

    def arrange(self) -> list[WrittenField]:
        first, *others = self.operand_digits
        widths = max(first, self.answer_width()), *others
        return [WrittenField(operand, width) for operand, width in enumerate(widths)]

    def answer_width(self) -> int:
        return self.task.answer_digits(self.operand_digits)

    def most_digits(self, operand: int) -> int | None:
        return super().most_digits(operand) if self.shared[operand] else None

    def for_lengths(self, lengths: Sequence[int], padding: int = 0) -> "FittedLayout":
        growing = (n for n, shared in zip(lengths, self.shared, strict=True) if not shared)
        return FittedLayout(self.options, self.task, max(growing) + padding)
