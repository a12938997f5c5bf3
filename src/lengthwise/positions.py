"""Position embeddings: each is one class behind one small interface, over a chosen coordinate of the tokens.

The encoder calls three hooks, each optional: `embed` adds to the input, `rotate` transforms queries and keys, `scores`
adds to the attention scores. Attention knows no names. Axis names in signatures: b batch, h heads, i queries, j keys,
d width of a head. Queries are the first i of the j positions.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn

from lengthwise.layout import Coordinates
from lengthwise.registry import Choice, Registry


@dataclass(frozen=True)
class Shape:
    """What a position embedding may need to know of the model it is part of."""

    width: int
    input_width: int  # of the input embeddings, which are projected if that isn't width
    heads: int
    max_length: int  # of a token sequence
    scale_relative: bool  # whether a relative term is divided by √d like the scores (BERT) or not (ALBERT)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class Position(nn.Module):
    """A position embedding. The hooks here do nothing; a subclass overrides what it needs."""

    class Options(Choice):
        """The options of one embedding, as in `model.position: {kind: relative-key, clip: 3}`."""

    per_layer = False  # whether layers that don't share weights have one each

    def __init__(self, options: Options, shape: Shape):
        super().__init__()
        self.options, self.shape = options, shape

    def embed(self, x: Tensor, at: Coordinates[Tensor]) -> Tensor:
        """Input embeddings (b, j, input_width) with position added."""
        return x

    def rotate(self, q: Tensor, k: Tensor, at: Coordinates[Tensor]) -> tuple[Tensor, Tensor]:
        """Queries (b, h, i, d) and keys (b, h, j, d) with position mixed in."""
        return q, k

    def scores(self, q: Tensor, k: Tensor, at: Coordinates[Tensor]) -> Tensor | None:
        """What is added to the scores q·k/√d: (b, h, i, j) or a shape that broadcasts to it."""
        return None


POSITIONS: Registry[Position] = Registry("position embedding")


@POSITIONS.register("none")
class NoPosition(Position):
    """No position embedding (NoPE): the encoder sees a bag of symbols."""


@POSITIONS.register("absolute")
class Absolute(Position):
    """A learned vector for each index, added to the input (APE; Vaswani et al., 2017)."""

    def __init__(self, options: Position.Options, shape: Shape):
        super().__init__(options, shape)
        self.table = nn.Embedding(shape.max_length, shape.input_width)

    def embed(self, x: Tensor, at: Coordinates[Tensor]) -> Tensor:
        return x + self.table(at.index)


@POSITIONS.register("relative-key")
class RelativeKey(Position):
    """A learned vector for each distance, multiplied with the queries (RPE_k; Shaw et al., 2018)."""

    class Options(Position.Options):
        coordinate: Literal["index", "significance"] = Field("index", description="what distance is measured over")
        clip: int | None = Field(None, ge=1, description="distances beyond ±clip share a vector; null: none do")

    options: Options
    per_layer = True

    def __init__(self, options: Options, shape: Shape):
        super().__init__(options, shape)
        self.reach = options.clip or shape.max_length - 1
        self.table = nn.Embedding(2 * self.reach + 1, shape.head_width)
        self.scale = 1 / math.sqrt(shape.head_width) if shape.scale_relative else 1.0

    def scores(self, q: Tensor, k: Tensor, at: Coordinates[Tensor]) -> Tensor:
        return attend_distances(q, self.table.weight, self.rows(q, at)) * self.scale

    def rows(self, q: Tensor, at: Coordinates[Tensor]) -> Tensor:
        """The table's row for each pair of query and key: (i, j), or (b, i, j) where examples differ."""
        where = getattr(at, self.options.coordinate)
        distance = where[..., : q.shape[-2], None] - where[..., None, :]
        if self.options.clip:
            distance = distance.clamp(-self.reach, self.reach)
        return distance + self.reach


@POSITIONS.register("relative-key-query")
class RelativeKeyQuery(RelativeKey):
    """A learned vector for each distance, multiplied with queries and with keys (RPE_{k,q}; Huang et al., 2018)."""

    def scores(self, q: Tensor, k: Tensor, at: Coordinates[Tensor]) -> Tensor:
        rows = self.rows(q, at)
        by_query = attend_distances(q, self.table.weight, rows)
        by_key = attend_distances(k, self.table.weight, rows.mT).mT
        return (by_query + by_key) * self.scale


def attend_distances(x: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """x (b, h, i, d) · table[rows] for rows (i, j) or (b, i, j): (b, h, i, j)."""
    if rows.dim() == 2:
        return torch.einsum("bhid,ijd->bhij", x, table[rows])
    return (x @ table.T).gather(-1, rows[:, None].expand(-1, x.shape[1], -1, -1))


AnyPosition = Annotated[SerializeAsAny[Position.Options], BeforeValidator(POSITIONS.parse)]
