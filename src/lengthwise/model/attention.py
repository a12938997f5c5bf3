"""Multi-head self-attention over all pairs of tokens (paper, §2.2); what attentions share."""

import math
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn

from lengthwise.base import Choice, Registry
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import Position
from lengthwise.problems.layouts import PAD, Coordinates

if TYPE_CHECKING:
    from lengthwise.model.config import ModelConfig


class Attention(nn.Module):
    """An attention: which pairs it scores, and what each query takes from its keys."""

    class Options(Choice):
        """The options of an attention, as in `model.attention: {kind: local, window: 3}`."""

        def check(self, config: "ModelConfig") -> None:
            """Raise a UsageError where the attention does not fit the rest of the model."""

    discrete_rows = False  # whether `forward` is given what would be read at each token

    def __init__(self, options: Options, width: int, heads: int, dropout: float):
        super().__init__()
        self.options, self.heads, self.head_width = options, heads, width // heads
        self.sharpness = 1.0  # a factor of the scores, for experiments in testing

    def pairs(self, tokens: Tensor, coordinates: Coordinates[Tensor]) -> Pairs:
        """The pairs that are scored for tokens (b, j); computed once for each forward pass."""
        raise NotImplementedError

    def prepare(self, pairs: Pairs, position: Position) -> Pairs:
        """The pairs with all that positions alone decide; computed once for each forward pass."""
        return pairs

    def forward(self, x: Tensor, position: Position, pairs: Pairs, read: Tensor | None) -> Tensor:
        """x (b, j, width) -> (b, i, width)"""
        raise NotImplementedError

    def split_heads(self, x: Tensor) -> Tensor:
        """(b, j, width) -> (b, h, j, d)"""
        return x.unflatten(-1, (self.heads, self.head_width)).transpose(1, 2)

    def merge_heads(self, x: Tensor) -> Tensor:
        """(b, h, i, d) -> (b, i, width)"""
        return x.transpose(1, 2).flatten(-2)


ATTENTIONS: Registry[Attention] = Registry("attention", "model.attention")
AnyAttention = Annotated[SerializeAsAny[Attention.Options], BeforeValidator(ATTENTIONS.parse)]


@ATTENTIONS.register("full")
class FullAttention(Attention):
    """Every token attends to every token: softmax(q·k/√d + position scores)·v."""

    class Options(Attention.Options):
        mask_padding: bool = Field(
            False, description="hide <PAD> from attention; the paper attends to it"
        )

    options: Options

    def __init__(self, options: Options, width: int, heads: int, dropout: float):
        super().__init__(options, width, heads, dropout)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, width)

    def pairs(self, tokens: Tensor, coordinates: Coordinates[Tensor]) -> Pairs:
        hidden = (tokens == PAD)[:, None, None, :] if self.options.mask_padding else None
        return Pairs(coordinates, tokens.shape[1], hidden)

    def forward(self, x: Tensor, position: Position, pairs: Pairs, read: Tensor | None) -> Tensor:
        q = self.split_heads(self.query(x[:, : pairs.queries]))
        k, v = self.split_heads(self.key(x)), self.split_heads(self.value(x))
        q, k = position.rotate(q, k, pairs)
        scores = q @ k.mT / math.sqrt(self.head_width)
        relative = position.scores(q, k, pairs)
        if relative is not None:
            scores = scores + relative
        pattern = self.dropout(self.softmax(self.mask(scores, pairs)))
        return self.output(self.merge_heads(pattern @ v))

    def mask(self, scores: Tensor, pairs: Pairs) -> Tensor:
        """The scores with those of hidden pairs as low as numbers go."""
        if self.sharpness != 1:
            scores = scores * self.sharpness
        if pairs.hidden is None:
            return scores
        return scores.masked_fill(pairs.hidden, torch.finfo(scores.dtype).min)
