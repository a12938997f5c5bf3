"""A user's file that registers one of everything; `test_registries.py` tests its contracts."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lengthwise.arithmetic import digits
from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import TASKS, Task
from lengthwise.base import UsageError
from lengthwise.model.attention import ATTENTIONS, Attention, FullAttention
from lengthwise.model.config import ModelConfig
from lengthwise.model.depth import DEPTHS, Depth
from lengthwise.model.encoder import Encoder
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import POSITIONS, ModelShape, Position
from lengthwise.model.positions.position import move_heads_first
from lengthwise.problems.layouts import LAYOUTS, Coordinates, Layout, WrittenField
from lengthwise.problems.mixtures import mixture
from lengthwise.problems.sampling import select_rows


@TASKS.register("own-subtraction")
class Subtraction(Task):
    """x₁ − x₂, where x₁ is the larger one."""

    symbol: ClassVar[str] = "-"

    def admit(self, *operands: Numbers) -> tuple[Numbers, ...]:
        a, b = operands
        width = max(a.width, b.width)
        in_order = digits.at_least(a.pad_to(width), b.pad_to(width))
        return select_rows(in_order, a, b), select_rows(in_order, b, a)

    def answer(self, *operands: Numbers) -> Numbers:
        a, b = operands
        width = max(a.width, b.width)
        return Numbers.of(digits.resolve_carries(a.pad_to(width) - b.pad_to(width)))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits)


@LAYOUTS.register("own-spacious")
class SpaciousLayout(Layout):
    """Room for the answer, and some more, in every field."""

    class Options(Layout.Options):
        space: int = Field(2, ge=0, description="symbols of padding behind each number")

    options: Options

    def arrange(self) -> list[WrittenField]:
        width = max(*self.operand_digits, self.answer_width()) + self.options.space
        return [WrittenField(operand, width) for operand in range(self.n_operands)]

    def answer_width(self) -> int:
        return self.task.answer_digits(self.operand_digits)


@POSITIONS.register("own-distance")
class DistanceBias(Position):
    """A learned number for each distance and head."""

    class Options(Position.Options):
        reach: int = Field(8, ge=1, description="distances beyond ±reach share a number")

    options: Options
    per_layer = True
    content_free = True

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__(options, shape)
        self.table = nn.Embedding(2 * options.reach + 1, shape.heads)

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        reach = self.options.reach
        return move_heads_first(self.table(pairs.distance("index").clamp(-reach, reach) + reach))


@ATTENTIONS.register("own-capped")
class CappedAttention(FullAttention):
    """Attention whose scores stay between ±cap."""

    class Options(FullAttention.Options):
        cap: float = Field(5.0, gt=0, description="the largest score")

    options: Options

    def mask(self, scores: Tensor, pairs: Pairs) -> Tensor:
        return super().mask((scores / self.options.cap).tanh() * self.options.cap, pairs)


@ATTENTIONS.register("own-linear")
class LinearAttention(Attention):
    """Attention without a softmax, and so without scores (Katharopoulos et al., 2020)."""

    class Options(Attention.Options):
        def check(self, config: ModelConfig) -> None:
            if POSITIONS[config.position.kind].scores is not Position.scores:
                raise UsageError("the attention 'own-linear' takes no embedding with scores")

    def __init__(self, options: Options, width: int, heads: int, dropout: float):
        super().__init__(options, width, heads, dropout)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dropout, self.output = nn.Dropout(dropout), nn.Linear(width, width)

    def pairs(self, tokens: Tensor, coordinates: Coordinates[Tensor]) -> Pairs:
        return Pairs(coordinates, tokens.shape[1])

    def forward(self, x: Tensor, position: Position, pairs: Pairs, read: Tensor | None) -> Tensor:
        q = self.split_heads(self.query(x[:, : pairs.queries]))
        k, v = self.split_heads(self.key(x)), self.split_heads(self.value(x))
        q, k = (F.elu(rotated) + 1 for rotated in position.rotate(q, k, pairs))
        mixed = q @ (k.mT @ v) / (q @ k.sum(-2, keepdim=True).mT)
        return self.output(self.merge_heads(self.dropout(mixed)))


@DEPTHS.register("own-averaged")
class AveragedDepth(Depth):
    """The classifier sees the mean of all layers."""

    def run(
        self,
        encoder: Encoder,
        start: Tensor,
        pairs: Sequence[Pairs],
        n_out: int,
        layers: int | None,
    ) -> Tensor:
        x, total, depth = start, start[:, :n_out], layers or encoder.config.layers
        for i in range(depth):
            x = encoder.apply_layer(i, x, pairs)
            total = total + x[:, :n_out]
        return encoder.classify(total / (depth + 1))


@mixture("own-ones")
def write_ones(rng: np.random.Generator, operands: list[Numbers]) -> list[Numbers]:
    """operands whose digits are all 1"""

    def ones(numbers: Numbers) -> Numbers:
        inside = np.arange(numbers.width) < numbers.lengths[:, None]
        return Numbers(inside.astype(np.int64), numbers.lengths)

    return [ones(numbers) for numbers in operands]
