"""Accuracy over the digits of the first × the digits of the second operand."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.arithmetic.digits import random_numbers
from lengthwise.base import UsageError, generator
from lengthwise.base.progress import show_progress
from lengthwise.evaluation.accuracy import check_lengths, measure_accuracy, wilson
from lengthwise.problems.lengths import parse_lengths
from lengthwise.problems.training_set import Examples
from lengthwise.solver import Solver

if TYPE_CHECKING:
    from lengthwise.base.picture import Picture


@dataclass(frozen=True, eq=False)
class LengthGrid:
    """Right answers for each pair of lengths."""

    first: tuple[int, ...]  # digits of the first operand
    second: tuple[int, ...]  # digits of the second operand
    examples: int  # problems of each pair
    correct: NDArray[np.int64]  # (first, second)

    @property
    def exact_match(self) -> NDArray[np.float64]:
        """(first, second): the share of problems with every symbol right."""
        return self.correct / self.examples

    def to_json(self) -> list[dict[str, Any]]:
        """A record for each pair, with its 95 % interval."""
        records = []
        for i, j in np.ndindex(self.correct.shape):
            correct = int(self.correct[i, j])
            low, high = wilson(correct, self.examples)
            records.append(
                {
                    "first": self.first[i],
                    "second": self.second[j],
                    "examples": self.examples,
                    "correct": correct,
                    "exact_match": correct / self.examples,
                    "low": low,
                    "high": high,
                }
            )
        return records

    def table(self) -> str:
        """Exact match in percent: a row for each first operand, a column for each second one."""
        # Rounded towards the middle, so that 100 and 0 are exact.
        share = 100 * self.exact_match
        shown = np.where(share > 50, np.floor(share), np.ceil(share)).astype(int)
        lines = [["", *map(str, self.second)]]
        lines += [[str(n), *map(str, row)] for n, row in zip(self.first, shown, strict=True)]
        width = max(3, *(len(cell) for line in lines for cell in line))
        return "\n".join(" ".join(f"{cell:>{width}}" for cell in line) for line in lines)

    def plot(self, trained: int | None = None) -> "Picture":
        """A heat map; `trained` outlines operands of up to this many digits."""
        from matplotlib.patches import Rectangle

        from lengthwise.base.picture import Picture

        rows, columns = self.correct.shape
        size = (min(9.0, 2.2 + 0.3 * columns), min(8.0, 1.4 + 0.3 * rows))
        picture = Picture(figsize=size, layout="constrained")
        axis = picture.subplots()
        share = 100 * self.exact_match
        image = axis.imshow(share, vmin=0, vmax=100, cmap="viridis", origin="lower")
        for ticks, values in ((axis.set_xticks, self.second), (axis.set_yticks, self.first)):
            shown = range(0, len(values), max(1, len(values) // 20))
            ticks(list(shown), [str(values[i]) for i in shown], fontsize=8)
        if trained is not None:
            inside = [sum(n <= trained for n in values) for values in (self.second, self.first)]
            if all(inside):
                box = Rectangle((-0.5, -0.5), *inside, fill=False, ec="red", lw=1.5)
                axis.add_patch(box)
                axis.set_title(f"box: up to {trained} digits, the longest in training", fontsize=8)
        axis.set(xlabel="digits of the second operand", ylabel="digits of the first operand")
        picture.colorbar(image, ax=axis, label="exact match (%)")
        return picture


def evaluate_grid(
    model: Solver,
    first: str | Sequence[int],
    second: str | Sequence[int] | None = None,
    examples: int = 100,
    seed: int = 0,
    layers: int | None = None,
    sharpness: float = 1.0,
    progress: bool = False,
) -> LengthGrid:
    """Exact match on fresh problems of each pair of lengths; by default the same for both.

    A cell's problems depend on its lengths, the seed and the number of examples only. With
    `progress`, a terminal shows a bar.
    """
    rows = check_lengths(model, parse_lengths(first), examples)
    columns = rows if second is None else check_lengths(model, parse_lengths(second), examples)
    if len(model.layout.operand_digits) != 2:
        raise UsageError(
            f"a grid is over two operands, but this model takes {len(model.layout.operand_digits)}"
        )
    pairs = list(product(rows, columns))
    for pair in pairs:
        model.layout.check_operands(pair)
    counts = []
    for pair in show_progress(pairs, "grid") if progress else pairs:
        rng = generator(seed, "grid", *pair)
        operands = [random_numbers(rng, np.full(examples, n)) for n in pair]
        block = Examples.of(model.task, operands)
        counts.append(measure_accuracy(model, max(pair), [block], layers, sharpness).correct)
    correct = np.array(counts).reshape(len(rows), len(columns))
    return LengthGrid(tuple(rows), tuple(columns), examples, correct)
