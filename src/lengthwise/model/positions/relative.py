"""Embeddings with a learned vector for each distance: relative-key and relative-key-query."""

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from lengthwise.model.pairs import Pairs
from lengthwise.model.positions.position import POSITIONS, ModelShape, OverCoordinate


class OverDistance(OverCoordinate):
    """A table with a row for each distance, or for each distance of each pair of operands."""

    class Options(OverCoordinate.Options):
        clip: int | None = Field(
            None, ge=1, description="distances beyond ±clip share a row; null: none do"
        )
        by_operands: bool = Field(
            False, description="a table for each pair of operands instead of one for all"
        )

    options: Options
    per_layer = True

    def __init__(self, options: Options, shape: ModelShape, width: int):
        super().__init__(options, shape)
        # Distances of significance can be longer than the sequence: padding has negative powers.
        over_index = options.coordinate == "index"
        longest = shape.max_length - 1 if over_index else 2 * shape.max_length - 1
        self.reach = options.clip or longest
        tables = shape.operands**2 if options.by_operands else 1
        self.table = nn.Embedding(tables * (2 * self.reach + 1), width)

    @property
    def longest(self) -> int | None:
        return None if self.options.clip else self.shape.max_length

    def rows(self, pairs: Pairs) -> Tensor:
        """The table's row for each pair: (i, j), or (b, i, j) where examples differ."""
        distance = pairs.distance(self.options.coordinate)
        if self.options.clip:
            distance = distance.clamp(-self.reach, self.reach)
        rows = distance + self.reach
        if self.options.by_operands:
            query, key = pairs.operands()
            rows = rows + (query * self.shape.operands + key) * (2 * self.reach + 1)
        return rows


@POSITIONS.register("relative-key")
class RelativeKey(OverDistance):
    """A learned vector for each distance, multiplied with the query (RPE_k; Shaw et al., 2018)."""

    def __init__(self, options: OverDistance.Options, shape: ModelShape):
        super().__init__(options, shape, shape.head_width)
        self.scale = 1 / math.sqrt(shape.head_width) if shape.scale_relative else 1.0

    def vectors(self, pairs: Pairs) -> Tensor:
        """The vector of each pair: (i, j, d), or (b, 1, i, j, d), the same in all heads."""
        vectors = self.table(self.rows(pairs)) * self.scale
        return vectors if vectors.dim() == 3 else vectors[:, None]

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        return multiply_by_query(q, self.vectors(pairs))


@POSITIONS.register("relative-key-query")
class RelativeKeyQuery(RelativeKey):
    """A learned vector for each distance, multiplied with query and key (Huang et al., 2018)."""

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        vectors = self.vectors(pairs)
        return multiply_by_query(q, vectors) + multiply_by_key(k, vectors)


def multiply_by_query(q: Tensor, vectors: Tensor) -> Tensor:
    """q (b, h, i, d) · vectors (i, j, d) or (b, 1, i, j, d) -> (b, h, i, j)"""
    if vectors.dim() == 3:
        return torch.einsum("bhid,ijd->bhij", q, vectors)
    return (vectors @ q[..., None])[..., 0]


def multiply_by_key(k: Tensor, vectors: Tensor) -> Tensor:
    """k (b, h, j, d), or (b, h, i, j, d) in a band, · vectors -> (b, h, i, j)"""
    if k.dim() == 4 and vectors.dim() == 3:
        return torch.einsum("bhjd,ijd->bhij", k, vectors)
    keys = k if k.dim() == 5 else k[:, :, None]
    return (keys * vectors).sum(-1)
