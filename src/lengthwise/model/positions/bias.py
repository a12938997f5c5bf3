"""Embeddings that add a number for each distance to the scores: relative-bias, T5, ALiBi, FIRE."""

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from lengthwise.base import UsageError
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions.position import (
    POSITIONS,
    ModelShape,
    OverCoordinate,
    move_heads_first,
)
from lengthwise.model.positions.relative import OverDistance


@POSITIONS.register("relative-bias")
class RelativeBias(OverDistance):
    """A learned number for each distance and head, whatever the content (as in Swin, 2021)."""

    class Options(OverDistance.Options):
        strength: float = Field(
            1.0,
            gt=0,
            description="factor of the numbers; a large one lets heads specialise at once",
        )
        row_clip: int | None = Field(
            None,
            ge=1,
            description="add a number for each distance of rows, the same beyond ±row_clip; null:"
            " add none",
        )

    options: Options
    content_free = True

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__(options, shape, shape.heads)
        if options.row_clip:
            self.row_table = nn.Embedding(2 * options.row_clip + 1, shape.heads)

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        bias = self.table(self.rows(pairs))
        if clip := self.options.row_clip:
            query_row, key_row = pairs.ends("row")
            bias = bias + self.row_table((query_row - key_row).clamp(-clip, clip) + clip)
        return move_heads_first(bias * self.options.strength)


@POSITIONS.register("t5-bias")
class T5Bias(OverCoordinate):
    """A learned number a head for each bucket of distances (Raffel et al., 2020)."""

    class Options(OverCoordinate.Options):
        buckets: int = Field(32, ge=4, multiple_of=2, description="half for each direction")
        longest: int = Field(128, ge=2, description="distances from here on share the last bucket")

    options: Options
    content_free = True

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__(options, shape)
        if options.longest <= options.buckets // 4:
            raise UsageError(
                f"a T5 bias with {options.buckets} buckets needs a longest above"
                f" {options.buckets // 4}"
            )
        self.table = nn.Embedding(options.buckets, shape.heads)

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        ahead = -pairs.distance(self.options.coordinate)
        return move_heads_first(self.table(self.bucket(ahead)))

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of a key that is this far ahead of the query."""
        half = self.options.buckets // 2
        exact = half // 2  # the shortest distances have a bucket each
        far = ahead.abs()
        share = (far.clamp(min=1) / exact).log() / math.log(self.options.longest / exact)
        coarse = (exact + (share * (half - exact)).long()).clamp(max=half - 1)
        return torch.where(far < exact, far, coarse) + half * (ahead > 0)


@POSITIONS.register("alibi")
class Alibi(OverCoordinate):
    """A penalty that grows with the distance, steeper in some heads; fixed (Press et al., 2022)."""

    class Options(OverCoordinate.Options):
        signed: bool = Field(
            False, description="later keys count twice as far in even heads, earlier ones in odd"
        )

    options: Options
    content_free = True

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        distance = pairs.distance(self.options.coordinate)[..., None]
        penalty = distance.abs() * self.slopes().to(q)
        if self.options.signed:
            is_odd = torch.arange(self.shape.heads, device=q.device) % 2 == 1
            counts_twice = torch.where(is_odd, distance > 0, distance < 0)
            penalty = penalty * (1 + counts_twice)
        return move_heads_first(-penalty)

    def slopes(self) -> Tensor:
        """Geometric from 2^(−8/h) to 2^−8; between powers of two, with some of the next power's."""
        heads = self.shape.heads
        power = 2 ** math.floor(math.log2(heads))
        steps = torch.arange(1, power + 1) / power
        between = torch.arange(1, 2 * power + 1, 2)[: heads - power] / (2 * power)
        return 2.0 ** (-8 * torch.cat([steps, between]))


@POSITIONS.register("fire")
class Fire(OverCoordinate):
    """A small network of the distance, relative to the query's position (FIRE; Li et al., 2024)."""

    class Options(OverCoordinate.Options):
        hidden: int = Field(32, ge=1, description="width of the network")
        threshold: int = Field(
            512, ge=1, description="positions below it (times a learned factor) count as it"
        )
        signed: bool = Field(
            False, description="the network sees on which side of the query a key is"
        )

    options: Options
    content_free = True

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__(options, shape)
        self.network = nn.Sequential(
            nn.Linear(1, options.hidden), nn.ReLU(), nn.Linear(options.hidden, shape.heads)
        )
        self.c = nn.Parameter(torch.tensor(0.1))
        self.factor = nn.Parameter(torch.tensor(1.0))

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        threshold = (self.factor * self.options.threshold).abs()
        query, _ = pairs.ends(self.options.coordinate)
        reach = torch.maximum(query.to(threshold), threshold)
        distance = pairs.distance(self.options.coordinate)
        share = self.log(distance) / self.log(reach)
        if self.options.signed:
            share = share * distance.sign()
        return move_heads_first(self.network(share[..., None]))

    def log(self, x: Tensor) -> Tensor:
        return ((self.c * x).abs() + 1).log()
