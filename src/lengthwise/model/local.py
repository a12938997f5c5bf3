"""Attention within a window: by content, or by position alone."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from lengthwise.base import UsageError
from lengthwise.model.attention import ATTENTIONS, Attention, FullAttention
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import POSITIONS, Position, innermost
from lengthwise.problems.layouts import Coordinate, Coordinates

if TYPE_CHECKING:
    from lengthwise.model.config import ModelConfig

# Sequences up to this length score all pairs and hide those outside the window, which is faster.
LONGEST_DENSE, LONGEST_DENSE_POSITIONAL = 64, 128


class WindowOptions(Attention.Options):
    window: int = Field(1, ge=1, description="attend this far to either side")
    over: Coordinate = Field("significance", description="what the window is measured over")


@ATTENTIONS.register("local")
class LocalAttention(FullAttention):
    """As `full`, but within a window, and always to shared operands such as the 3 of 35 × 3."""

    class Options(WindowOptions):
        pass

    options: Options  # type: ignore[assignment]

    def pairs(self, tokens: Tensor, coordinates: Coordinates[Tensor]) -> Pairs:
        return windowed_pairs(coordinates, self.options, LONGEST_DENSE)

    def forward(self, x: Tensor, position: Position, pairs: Pairs, read: Tensor | None) -> Tensor:
        if pairs.band is None:
            return super().forward(x, position, pairs, read)
        q = self.split_heads(self.query(x[:, : pairs.queries]))
        k, v = self.split_heads(self.key(x)), self.split_heads(self.value(x))
        q, k = position.rotate(q, k, pairs)
        k, v = k[:, :, pairs.band], v[:, :, pairs.band]  # (b, h, i, j, d): keys of each query
        scores = (k @ q[..., None])[..., 0] / math.sqrt(self.head_width)
        relative = position.scores(q, k, pairs)
        if relative is not None:
            scores = scores + relative
        pattern = self.dropout(self.softmax(self.mask(scores, pairs)))
        return self.output(self.merge_heads((pattern[..., None, :] @ v)[..., 0, :]))


@ATTENTIONS.register("positional")
class PositionalAttention(Attention):
    """Weights by position alone, within a window: a head learns where to look, not for what.

    A null key, with score and value 0, lets a head take nothing. The position embedding needs
    scores of its own that ignore content, as relative-bias has.
    """

    class Options(WindowOptions):
        discrete_rows: bool = Field(
            False,
            description="in long multiplication, show a row only the symbols that would be read in"
            " other rows, not their hidden vectors",
        )

        def check(self, config: "ModelConfig") -> None:
            position = innermost(config.position)
            if not POSITIONS[position.kind].content_free:
                raise UsageError(
                    "the attention 'positional' needs a position embedding whose scores ignore"
                    f" content, such as relative-bias, not {position.kind}"
                )
            if self.discrete_rows and (config.encoder == "transformer" or config.dropout):
                raise UsageError("discrete_rows needs shared layers and no dropout")

    options: Options

    def __init__(self, options: Options, width: int, heads: int, dropout: float):
        super().__init__(options, width, heads, dropout)
        self.discrete_rows = options.discrete_rows
        self.value = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, width)

    def pairs(self, tokens: Tensor, coordinates: Coordinates[Tensor]) -> Pairs:
        return windowed_pairs(coordinates, self.options, LONGEST_DENSE_POSITIONAL)

    def prepare(self, pairs: Pairs, position: Position) -> Pairs:
        no_content = self.value.weight.new_empty(0)
        scores = position.scores(no_content, no_content, pairs)
        assert scores is not None, "checked by ModelConfig"
        assert pairs.hidden is not None, "a window hides pairs"
        scores = (scores * self.sharpness).masked_fill(pairs.hidden, torch.finfo(scores.dtype).min)
        pattern = self.softmax(F.pad(scores, (0, 1)))[..., :-1]  # without the null key
        return replace(pairs, weights=pattern)

    def forward(self, x: Tensor, position: Position, pairs: Pairs, read: Tensor | None) -> Tensor:
        """With `read`, other rows are seen as these vectors of the symbols that they would give."""
        assert pairs.weights is not None, "`prepare` adds them"
        if read is None:
            return self.output(self.mix(pairs.weights, self.value(x), pairs))
        query_row, key_row = pairs.ends("row")
        own_row = pairs.weights * (query_row == key_row)
        other_rows = pairs.weights * (query_row != key_row)
        mixed = self.mix(own_row, self.value(x), pairs)
        return self.output(mixed + self.mix(other_rows, self.value(read), pairs))

    def mix(self, weights: Tensor, values: Tensor, pairs: Pairs) -> Tensor:
        """weights (h, i, j) or (b, h, i, j), values (b, j, width) -> (b, i, width)"""
        v = values.unflatten(-1, (self.heads, self.head_width))  # (b, j, h, d)
        if self.training and self.dropout.p:
            weights = self.dropout(weights.expand(len(v), *weights.shape[-3:]))
        if pairs.band is None:
            equation = "hij,bjhd->bihd" if weights.dim() == 3 else "bhij,bjhd->bihd"
            return torch.einsum(equation, weights, v).flatten(-2)
        return (weights.movedim(-3, -1)[..., None] * v[:, pairs.band]).sum(-3).flatten(-2)


def windowed_pairs(
    coordinates: Coordinates[Tensor], options: WindowOptions, longest_dense: int
) -> Pairs:
    """Pairs within the window; in long multiplication, of one row or of a sum and the sum below."""
    values = getattr(coordinates, options.over)
    if values.shape[-1] > longest_dense and values.dim() == 1:
        return banded_pairs(coordinates, options)
    pairs = Pairs(coordinates, values.shape[-1])
    far = pairs.distance(options.over).abs() > options.window
    query_shared, key_shared = pairs.ends("shared")
    # Shared operands are seen from everywhere, and see only themselves.
    hidden = torch.where(query_shared | key_shared, ~key_shared, far) | pairs.in_unseen_row()
    return replace(pairs, hidden=hidden[:, None] if hidden.dim() == 3 else hidden)


def banded_pairs(coordinates: Coordinates[Tensor], options: WindowOptions) -> Pairs:
    """As `windowed_pairs`, for coordinates (j,), but with the keys in the window only: (i, few)."""
    values, row, window = getattr(coordinates, options.over), coordinates.row, options.window
    on_line = (~coordinates.shared).nonzero()[:, 0]
    shared = coordinates.shared.nonzero()[:, 0]
    lowest, highest = int(values[on_line].min()), int(values[on_line].max())
    rows = 1 + int(row.max())
    # One slot for each row and value, with margins as wide as the window.
    span = highest - lowest + 1 + 2 * window
    slot = (1 + row) * span + values - lowest + window
    slots = group_by_slot(on_line, slot[on_line], (1 + rows) * span)
    offsets = torch.arange(-window, window + 1, device=values.device)
    if rows > 1:
        offsets = torch.cat([offsets, offsets - span])  # the row below
    near = slots[(slot[:, None] + offsets).clamp(0, len(slots) - 1)].flatten(1)
    near = near.masked_fill(coordinates.shared[:, None], -1)
    band = torch.cat([near, group_by_slot(shared, row[shared], rows)[row]], 1)
    pairs = Pairs(coordinates, len(values), band=band.clamp(min=0))
    return replace(pairs, hidden=(band < 0) | pairs.in_unseen_row())


def group_by_slot(members: Tensor, slot: Tensor, slots: int) -> Tensor:
    """(slots, most): the members of each slot in their order, and −1 where others have more."""
    slot, order = slot.sort(stable=True)
    counts = slot.bincount(minlength=slots)
    column = torch.arange(len(slot), device=slot.device) - (counts.cumsum(0) - counts)[slot]
    table = torch.full((slots, int(counts.max())), -1, device=slot.device)
    table[slot, column] = members[order]
    return table
