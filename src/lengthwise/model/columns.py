"""Attention to a column and the next lower one, and to what was written there."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.base import UsageError
from lengthwise.model.attention import ATTENTIONS, Attention
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import POSITIONS, Position, innermost
from lengthwise.problems.layouts import SUM, Coordinates, writes_rows

if TYPE_CHECKING:
    from lengthwise.model.config import ModelConfig


@dataclass(frozen=True)
class Visibility:
    """Which keys a query sees, each (i, j) or (b, i, j)."""

    hidden_vectors: Tensor  # of the query's column and of the next lower one
    column: Tensor  # only of the query's column
    symbols: Tensor  # that were written in other places


@dataclass(frozen=True)
class ColumnPairs(Pairs):
    """Pairs with the weights of hidden vectors and of written symbols."""

    symbol_weights: Tensor | None = None  # like `weights`


@ATTENTIONS.register("columns")
class ColumnAttention(Attention):
    """By position alone: in the first layer of a round a token gathers from two columns.

    It sees the tokens of its own power of ten and of the next lower one, and the symbols that were
    written at the lower one. In the other layers it sees its own column only. In long
    multiplication, a sum sees what was written in the product of its row and in the sum below; a
    product sees the digit of its row. The lowest digit of a product also sees the next digit of the
    first operand, in the row below. In running sums, an operand takes the place of a product. No
    token sees what was written at itself.
    """

    class Options(Attention.Options):
        def check(self, config: "ModelConfig") -> None:
            position = innermost(config.position)
            if not POSITIONS[position.kind].content_free:
                raise UsageError(
                    "the attention 'columns' needs a position embedding whose scores ignore"
                    f" content, such as relative-bias, not {config.position.kind}"
                )
            if getattr(position, "coordinate", "significance") != "significance":
                raise UsageError(
                    "the attention 'columns' needs model.position.coordinate significance: it sees"
                    " columns, wherever they stand in the sequence"
                )
            if config.depth.kind != "rewrite":
                raise UsageError("the attention 'columns' needs the depth 'rewrite'")

    def __init__(self, options: Options, width: int, heads: int, dropout: float):
        super().__init__(options, width, heads, dropout)
        self.value = nn.Linear(width, width)
        self.symbol_value = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, width)

    def pairs(self, tokens: Tensor, coordinates: Coordinates[Tensor]) -> Pairs:
        return Pairs(coordinates, tokens.shape[1])

    def gather(self, pairs: Pairs, position: Position) -> ColumnPairs:
        """The pairs of a round's first layer."""
        seen = visibility(pairs)
        weights = self.weigh(pairs, position, seen.hidden_vectors | seen.symbols)
        vectors, symbols = (
            weights * match_heads(part, weights) for part in (seen.hidden_vectors, seen.symbols)
        )
        return ColumnPairs(
            pairs.coordinates, pairs.queries, weights=vectors, symbol_weights=symbols
        )

    def within(self, pairs: Pairs, position: Position) -> ColumnPairs:
        """The pairs of a round's other layers; only queries are left in them."""
        weights = self.weigh(pairs, position, visibility(pairs).column)[..., : pairs.queries]
        return ColumnPairs(pairs.coordinates, pairs.queries, weights=weights)

    def weigh(self, pairs: Pairs, position: Position, visible: Tensor) -> Tensor:
        """(h, i, j) or (b, h, i, j): softmax over visible keys and a null key."""
        no_content = self.value.weight.new_empty(0)
        scores = position.scores(no_content, no_content, pairs)
        assert scores is not None, "checked by ModelConfig"
        lowest = torch.finfo(scores.dtype).min
        scores = (scores * self.sharpness).masked_fill(~match_heads(visible, scores), lowest)
        return self.softmax(F.pad(scores, (0, 1)))[..., :-1]

    def forward(self, x: Tensor, position: Position, pairs: Pairs, read: Tensor | None) -> Tensor:
        """`read` has the vectors of written symbols, in a round's first layer."""
        assert isinstance(pairs, ColumnPairs), "the depth 'rewrite' makes them"
        assert pairs.weights is not None
        mixed = self.mix(pairs.weights, self.value(x))
        if read is not None and pairs.symbol_weights is not None:
            mixed = mixed + self.mix(pairs.symbol_weights, self.symbol_value(read))
        return self.output(mixed)

    def mix(self, weights: Tensor, values: Tensor) -> Tensor:
        """weights (h, i, j) or (b, h, i, j), values (b, j, width) -> (b, i, width)"""
        v = values.unflatten(-1, (self.heads, self.head_width))  # (b, j, h, d)
        if self.training and self.dropout.p:
            weights = self.dropout(weights.expand(len(v), *weights.shape[-3:]))
        equation = "hij,bjhd->bihd" if weights.dim() == 3 else "bhij,bjhd->bihd"
        return torch.einsum(equation, weights, v).flatten(-2)


def match_heads(mask: Tensor, scores: Tensor) -> Tensor:
    """A mask (i, j) or (b, i, j) that broadcasts to scores (h, i, j) or (b, h, i, j)."""
    return mask[:, None] if mask.dim() == 3 else mask


def visibility(pairs: Pairs) -> Visibility:
    """What each query sees, as `ColumnAttention` describes it."""
    distance = pairs.distance("significance")
    (query, key), (query_row, key_row) = pairs.ends("operand"), pairs.ends("row")
    query_shared, key_shared = pairs.ends("shared")
    has_rows = writes_rows(pairs.coordinates)
    query_sum, key_sum = (query == SUM) & has_rows, (key == SUM) & has_rows
    below = query_row == key_row + 1
    same_line = (query_row == key_row) & (query_sum == key_sum) & (~query_shared | key_shared)
    own, lower = distance == 0, (distance == 1) & ~key_shared & ~query_shared
    lowest = pairs.ends("significance")[0] == query_row
    next_digit = below & own & lowest & (query == 0) & (key == 0) & ~key_shared
    next_digit = next_digit & pairs.coordinates.shared.any()  # only in long multiplication
    product = query_sum & ~key_sum & ~key_shared & (query_row == key_row)
    sum_below = query_sum & key_sum & below
    column = same_line & own
    return Visibility(
        hidden_vectors=column | (same_line & lower) | next_digit,
        column=column,
        symbols=(same_line & lower) | ((product | sum_below) & (own | lower)),
    )
