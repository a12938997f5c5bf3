"""The pairs of queries and keys that attention scores, and what their coordinates say of them.

Axis names: b batch, h heads, i queries, j keys, d width of a head. Queries are the first i
positions. Keys are all positions or, in a band, the few that a query sees.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.problems.layouts import SUM, Coordinate, Coordinates


@dataclass(frozen=True)
class Pairs:
    """Which keys each query attends to."""

    coordinates: Coordinates[Tensor]  # of all positions
    queries: int
    hidden: Tensor | None = None  # pairs that don't attend; broadcasts to (b, h, i, j)
    band: Tensor | None = None  # (i, j): the positions of each query's keys; None: all positions
    weights: Tensor | None = None  # of attention by position alone: (h, i, j) or (b, h, i, j)

    def ends(self, coordinate: str) -> tuple[Tensor, Tensor]:
        """A coordinate of queries and of keys, which broadcast to (i, j) or (b, i, j)."""
        values = getattr(self.coordinates, coordinate)
        keys = values[..., None, :] if self.band is None else values[..., self.band]
        return values[..., : self.queries, None], keys

    def distance(self, coordinate: Coordinate) -> Tensor:
        """Query minus key: (i, j) or (b, i, j).

        A shared operand, such as the second of 35 × 3, is not on the number line: seen from other
        operands, its digits keep their places, counted from the query's row.
        """
        query, key = self.ends(coordinate)
        if coordinate == "significance":
            query_shared, key_shared = self.ends("shared")
            query_row, key_row = self.ends("row")
            query = torch.where(key_shared & ~query_shared, query_row, query)
            key = torch.where(query_shared & ~key_shared, key_row, key)
        return query - key

    def operands(self) -> tuple[Tensor, Tensor]:
        """The operands of queries and keys; another row of the query's operand is one more."""
        (query, key), (query_row, key_row) = self.ends("operand"), self.ends("row")
        other_row = (query == key) & (query_row != key_row)
        return query, torch.where(other_row, self.coordinates.operand.max() + 1, key)

    def in_unseen_row(self) -> Tensor:
        """(i, j): whether a key's row is neither the query's nor, from a sum, the sum below."""
        (query, key), (query_row, key_row) = self.ends("operand"), self.ends("row")
        below = (query == SUM) & (key == SUM) & (query_row == key_row + 1)
        return (query_row != key_row) & ~below

    def first(self, queries: int) -> "Pairs":
        """The same pairs for the first queries only."""

        def cut(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.shape[-2] == 1 else x[..., :queries, :]

        hidden, band, weights = map(cut, (self.hidden, self.band, self.weights))
        return replace(self, queries=queries, hidden=hidden, band=band, weights=weights)
