"""The paper's layout, and its compact variant (paper, §2.1)."""

from pydantic import Field

from lengthwise.problems.layouts.layout import LAYOUTS, Layout, WrittenField


@LAYOUTS.register("paper")
class PaperLayout(Layout):
    """Every operand padded to `data.test_digits`; the answer is read at the first positions.

    >>> from lengthwise.arithmetic.digits import Numbers
    >>> from lengthwise.arithmetic.tasks import Addition
    >>> layout = PaperLayout(PaperLayout.Options(), Addition(), digits=3)
    >>> operands = Numbers.from_ints([12, 999]), Numbers.from_ints([39, 345])
    >>> print(*layout.text(layout.encode(operands)), sep=chr(10))
    1 2 <PAD> + 3 9 <PAD>
    9 9 9 + 3 4 5
    >>> print(*layout.text(layout.encode_answer(Addition().answer(*operands))), sep=chr(10))
    5 1 <PAD> <PAD>
    1 3 4 4
    """

    class Options(Layout.Options):
        n_out: int | None = Field(
            None, ge=1, description="positions of the answer; null: as many as answers need"
        )

    options: Options

    def arrange(self) -> list[WrittenField]:
        width = max(self.operand_digits)
        return [WrittenField(operand, width) for operand in range(self.n_operands)]

    def answer_width(self) -> int:
        return self.options.n_out or super().answer_width()


@LAYOUTS.register("compact")
class CompactLayout(PaperLayout):
    """As `paper`, but no operand is wider than the task needs: 35 × 3 takes 39 tokens, not 71."""

    def arrange(self) -> list[WrittenField]:
        return [WrittenField(operand, width) for operand, width in enumerate(self.operand_digits)]
