"""Position embeddings: each is one class behind one small interface, over a chosen coordinate of the tokens.

The encoder calls three hooks, each optional: `added` is added to the input, `rotate` transforms queries and keys,
`scores` adds to the attention scores. Attention knows no names. Axis names in signatures: b batch, h heads, i queries,
j keys, d width of a head. Queries are the first i positions; keys are all positions or, in a band, the few that a query
sees.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator
from torch import Tensor, nn

from lengthwise.errors import UsageError
from lengthwise.layout import SUMS, Coordinates
from lengthwise.registry import Choice, Registry

Coordinate = Literal["index", "significance"]


@dataclass(frozen=True)
class Shape:
    """What a position embedding may need to know of the model it is part of."""

    width: int
    input_width: int  # of the input embeddings, which are projected if that isn't width
    heads: int
    max_length: int  # of a token sequence, for what has a table; the others take any length
    operands: int
    scale_relative: bool  # whether a relative term is divided by √d like the scores (BERT) or not (ALBERT)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class View:
    """Which keys each query attends to: all, with some hidden, or in a band only the few that it sees."""

    at: Coordinates[Tensor]  # of all positions
    queries: int  # the first so many positions
    band: Tensor | None = None  # (i, j): the positions of each query's keys; null: every query has all
    hidden: Tensor | None = None  # pairs that don't attend, in a shape that broadcasts to (b, h, i, j)
    weights: Tensor | None = None  # of attention, where they depend on positions alone: (h, i, j) or (b, h, i, j)
    reading: Tensor | None = None  # the same, of keys of which only the symbols are seen that would be read there
    plain: bool = False  # whether scores are products with all keys and with the vectors of `relative`, and no more
    relative: "Relative | None" = None  # of all pairs, where that is so

    def ends(self, coordinate: str) -> tuple[Tensor, Tensor]:
        """A coordinate of queries and of keys, which broadcast to (i, j), or to (b, i, j) where examples differ."""
        where = getattr(self.at, coordinate)
        key = where[..., None, :] if self.band is None else where[..., self.band]
        return where[..., : self.queries, None], key

    def distance(self, coordinate: Coordinate) -> Tensor:
        """Query minus key: (i, j) or (b, i, j).

        By significance, an operand beside the number line (the second of 35 × 3) isn't on it: from outside, its digits
        are at their own places, wherever the query is, counted from the query's row.
        """
        query, key = self.ends(coordinate)
        if coordinate == "significance":
            query_shared, key_shared = self.ends("shared")
            query_row, key_row = self.ends("row")
            query = torch.where(key_shared & ~query_shared, query_row, query)
            key = torch.where(query_shared & ~key_shared, key_row, key)
        return query - key

    def operands(self) -> tuple[Tensor, Tensor]:
        """The operands of queries and of keys; another row of the query's operand is one operand more."""
        (query, key), (query_row, key_row) = self.ends("operand"), self.ends("row")
        return query, torch.where((query == key) & (query_row != key_row), self.at.operand.max() + 1, key)

    def other_rows(self) -> Tensor:
        """Whether a key is in none of the rows that a query sees: its own and, from a sum, the sum below. (i, j)"""
        (query, key), (query_row, key_row) = self.ends("operand"), self.ends("row")
        below = (query == SUMS) & (key == SUMS) & (query_row == key_row + 1)
        return (query_row != key_row) & ~below

    def of_first(self, queries: int) -> "View":
        """The same for fewer queries."""

        def first(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.shape[-2] == 1 else x[..., :queries, :]

        band, hidden, weights, reading = map(first, (self.band, self.hidden, self.weights, self.reading))
        relative = self.relative and replace(self.relative, rows=self.relative.rows[..., :queries, :])
        return replace(
            self, queries=queries, band=band, hidden=hidden, weights=weights, reading=reading, relative=relative
        )

    def of_examples(self, rows: Tensor) -> "View":
        """The same for some examples of the batch."""

        def of_rows(x: Tensor | None) -> Tensor | None:
            return x if x is None or x.dim() < 4 else x[rows]

        at = self.at.map(lambda x: x[rows] if x.dim() == 2 else x)
        hidden, weights, reading = map(of_rows, (self.hidden, self.weights, self.reading))
        return replace(self, at=at, hidden=hidden, weights=weights, reading=reading)


def view_window(at: Coordinates[Tensor], reach: int, over: Coordinate) -> View:
    """A query attends so far to either side, and to shared operands; these attend only to themselves.

    In long multiplication it attends only to its row and, if it is in a sum, to the sum below.
    """
    everything = View(at, at.index.shape[-1])
    far = everything.distance(over).abs() > reach
    query_shared, key_shared = everything.ends("shared")
    hidden = torch.where(query_shared | key_shared, ~key_shared, far) | everything.other_rows()
    return replace(everything, hidden=hidden[:, None] if hidden.dim() == 3 else hidden)


def view_band(at: Coordinates[Tensor], reach: int, over: Coordinate) -> View:
    """The same as `view_window`, for coordinates (j,) that all examples have, with the keys in the window alone."""
    where, device = getattr(at, over), at.index.device
    inside, beside = (~at.shared).nonzero()[:, 0], at.shared.nonzero()[:, 0]
    least, most, rows = int(where[inside].min()), int(where[inside].max()), 1 + int(at.row.max())
    # A slot for each row and value of the coordinate, with as many more at both ends as a query sees beyond them.
    span = most - least + 1 + 2 * reach
    slot = (1 + at.row) * span + where - least + reach
    slots = grouped(inside, slot[inside], (1 + rows) * span)
    seen = torch.arange(-reach, reach + 1, device=device)
    if rows > 1:
        seen = torch.cat([seen, seen - span])  # the row below
    near = slots[(slot[:, None] + seen).clamp(0, len(slots) - 1)].flatten(1).masked_fill(at.shared[:, None], -1)
    band = torch.cat([near, grouped(beside, at.row[beside], rows)[at.row]], 1)
    view = View(at, len(where), band.clamp(min=0))
    return replace(view, hidden=(band < 0) | view.other_rows())


def grouped(members: Tensor, group: Tensor, groups: int) -> Tensor:
    """(groups, most): the members of each group in their order, and −1 where other groups have more."""
    group, order = group.sort(stable=True)
    counts = group.bincount(minlength=groups)
    column = torch.arange(len(group), device=group.device) - (counts.cumsum(0) - counts)[group]
    table = torch.full((groups, int(counts.max())), -1, device=group.device)
    table[group, column] = members[order]
    return table


@dataclass(frozen=True)
class Relative:
    """A vector for each pair of query and key, which is multiplied with the query and, by_key, with the key as well."""

    table: Tensor  # (rows, d)
    rows: Tensor  # of the table for each pair: (i, j), or (b, i, j) where examples differ
    by_key: bool = False

    @cached_property
    def vectors(self) -> Tensor:
        return F.embedding(self.rows, self.table)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        by_query = self.attend(q, self.rows)
        if not self.by_key:
            return by_query
        if k.dim() == 5:
            vectors = self.vectors[:, None] if self.rows.dim() == 3 else self.vectors
            return by_query + (k * vectors).sum(-1)
        return by_query + self.attend(k, self.rows.mT).mT

    def attend(self, x: Tensor, rows: Tensor) -> Tensor:
        """x (b, h, i, d) · table[rows] for rows (i, j) or (b, i, j): (b, h, i, j)."""
        if rows.dim() == 2:
            return torch.einsum("bhid,ijd->bhij", x, self.table[rows])
        return (x @ self.table.T).gather(-1, rows[:, None].expand(-1, x.shape[1], -1, -1))


class Position(nn.Module):
    """A position embedding. The hooks here do nothing; a subclass overrides what it needs."""

    class Options(Choice):
        """The options of one embedding, as in `model.position: {kind: relative-key, clip: 3}`."""

    per_layer = False  # whether layers that don't share weights have one each
    random = False  # whether it draws random numbers in training
    by_content = True  # whether `scores` looks at queries or keys; else it gives (h, i, j) or (b, h, i, j)

    def __init__(self, options: Options, shape: Shape):
        super().__init__()
        self.options, self.shape = options, shape

    @property
    def longest(self) -> int | None:
        """The longest sequence that it can take; None: any."""
        return None

    def embed(self, x: Tensor, at: Coordinates[Tensor]) -> Tensor:
        """Input embeddings (b, j, input_width) with position in them."""
        added = self.added(at)
        return x if added is None else x + added

    def added(self, at: Coordinates[Tensor]) -> Tensor | None:
        """What is added to the input: (j, input_width) or (b, j, input_width); what gives it needs no `embed`."""
        return None

    def rotate(self, q: Tensor, k: Tensor, at: Coordinates[Tensor]) -> tuple[Tensor, Tensor]:
        """Queries (b, h, i, d) and keys (b, h, j, d) of all positions with position mixed in."""
        return q, k

    def scores(self, q: Tensor, k: Tensor, view: View) -> Tensor | None:
        """What is added to the scores q·k/√d: (b, h, i, j) or a shape that broadcasts to it.

        Keys are (b, h, j, d), or (b, h, i, j, d) in a band, where each query has keys of its own.
        """
        relative = self.relative(view)
        return None if relative is None else relative.scores(q, k)

    def relative(self, view: View) -> Relative | None:
        """Vectors whose products with queries and keys are its scores; what gives them needs no `scores`."""
        return None

    def has_own(self, hook: str) -> bool:
        """Whether its class, or itself, overrides a hook."""
        return getattr(getattr(self, hook), "__func__", None) is not getattr(Position, hook)

    def moved(self, at: Coordinates[Tensor]) -> Coordinates[Tensor]:
        """The coordinates that all hooks are given; drawn once for each pass over a batch."""
        return at


POSITIONS: Registry[Position] = Registry("position embedding")


@POSITIONS.register("none")
class NoPosition(Position):
    """No position embedding (NoPE): the encoder sees a bag of symbols."""


class OverCoordinate(Position):
    """A position embedding over a coordinate that can be chosen."""

    class Options(Position.Options):
        coordinate: Coordinate = Field("index", description="what positions and distances are measured over")

    options: Options


@POSITIONS.register("absolute")
class Absolute(OverCoordinate):
    """A learned vector for each position, added to the input (APE; Vaswani et al., 2017)."""

    def __init__(self, options: OverCoordinate.Options, shape: Shape):
        super().__init__(options, shape)
        # Where the most significant digit comes first, the padding after a number has negative powers of ten.
        self.below = 0 if options.coordinate == "index" else shape.max_length
        self.table = nn.Embedding(self.below + shape.max_length, shape.input_width)

    @property
    def longest(self) -> int:
        return self.shape.max_length

    def added(self, at: Coordinates[Tensor]) -> Tensor:
        return cast(Tensor, self.table(getattr(at, self.options.coordinate) + self.below))


@POSITIONS.register("coupled")
class Coupled(Position):
    """Position coupling (Cho et al., 2024): digits of the same significance share a learned vector in all operands.

    In training all positions are moved by one random offset a batch, so that the vectors of long numbers are learned.
    """

    class Options(Position.Options):
        offset: int = Field(0, ge=0, description="the largest random offset of positions in training")

    options: Options

    def __init__(self, options: Options, shape: Shape):
        super().__init__(options, shape)
        self.random = options.offset > 0
        self.table = nn.Embedding(2 * self.longest + options.offset, shape.input_width)

    @property
    def longest(self) -> int:
        return self.shape.max_length + self.options.offset

    def added(self, at: Coordinates[Tensor]) -> Tensor:
        return cast(Tensor, self.table(at.significance + self.longest + self.random_offset()))

    def random_offset(self) -> int:
        """Drawn in training; none in testing."""
        most = self.options.offset if self.training else 0
        return int(torch.randint(most + 1, ())) if most else 0


@POSITIONS.register("abacus")
class Abacus(Coupled):
    """Abacus (McLeish et al., 2024): a learned vector for each digit's place in its number, as it is written.

    Padding and operators share one. In training all places are moved by one random offset a batch.
    """

    def __init__(self, options: Coupled.Options, shape: Shape):
        super().__init__(options, shape)
        self.table = nn.Embedding(self.longest + options.offset + 1, shape.input_width)

    def added(self, at: Coordinates[Tensor]) -> Tensor:
        return cast(Tensor, self.table(torch.where(at.place > 0, at.place + self.random_offset(), 0)))


class OverDistance(OverCoordinate):
    """A position embedding with a table that has a row for each distance, or for each of each pair of operands."""

    class Options(OverCoordinate.Options):
        clip: int | None = Field(None, ge=1, description="distances beyond ±clip share a vector; null: none do")
        by_operands: bool = Field(False, description="a table for each pair of operands instead of one for all")

    options: Options
    per_layer = True

    def __init__(self, options: Options, shape: Shape, width: int):
        super().__init__(options, shape)
        # Distances of significance are longer where examples have different lengths and the largest digit comes first.
        longest = shape.max_length - 1 if options.coordinate == "index" else 2 * shape.max_length - 1
        self.reach = options.clip or longest
        tables = shape.operands**2 if options.by_operands else 1
        self.table = nn.Embedding(tables * (2 * self.reach + 1), width)

    @property
    def longest(self) -> int | None:
        return None if self.options.clip else self.shape.max_length

    def rows(self, view: View) -> Tensor:
        """The table's row for each pair of query and key: (i, j), or (b, i, j) where examples differ."""
        distance = view.distance(self.options.coordinate)
        if self.options.clip:
            distance = distance.clamp(-self.reach, self.reach)
        rows = distance + self.reach
        if self.options.by_operands:
            query, key = view.operands()
            rows = rows + (query * self.shape.operands + key) * (2 * self.reach + 1)
        return rows


@POSITIONS.register("relative-key")
class RelativeKey(OverDistance):
    """A learned vector for each distance, multiplied with the queries (RPE_k; Shaw et al., 2018)."""

    def __init__(self, options: OverDistance.Options, shape: Shape):
        super().__init__(options, shape, shape.head_width)
        self.scale = 1 / math.sqrt(shape.head_width) if shape.scale_relative else 1.0

    def relative(self, view: View) -> Relative:
        weight = self.table.weight
        return Relative(weight if self.scale == 1 else weight * self.scale, self.rows(view))


@POSITIONS.register("relative-key-query")
class RelativeKeyQuery(RelativeKey):
    """A learned vector for each distance, multiplied with queries and with keys (RPE_{k,q}; Huang et al., 2018)."""

    def relative(self, view: View) -> Relative:
        return replace(super().relative(view), by_key=True)


def by_head(bias: Tensor) -> Tensor:
    """(i, j, h) or (b, i, j, h) -> a shape that broadcasts to (b, h, i, j)."""
    return bias.movedim(-1, -3)


@POSITIONS.register("relative-bias")
class RelativeBias(OverDistance):
    """A learned number for each distance and head, which depends on no content (as in Swin; Liu et al., 2021)."""

    class Options(OverDistance.Options):
        strength: float = Field(1.0, gt=0, description="factor of the numbers; more: heads prefer some places at once")

    options: Options
    by_content = False

    def __init__(self, options: Options, shape: Shape):
        super().__init__(options, shape, shape.heads)

    def scores(self, q: Tensor, k: Tensor, view: View) -> Tensor:
        return by_head(self.table(self.rows(view)) * self.options.strength)


@POSITIONS.register("t5-bias")
class T5Bias(OverCoordinate):
    """A learned scalar a head for each bucket of distances, whose size grows logarithmically (Raffel et al., 2020)."""

    class Options(OverCoordinate.Options):
        buckets: int = Field(32, ge=4, multiple_of=2, description="half for each direction")
        longest: int = Field(128, ge=2, description="distances from here on share the last bucket")

    options: Options
    by_content = False

    def __init__(self, options: Options, shape: Shape):
        super().__init__(options, shape)
        if options.longest <= options.buckets // 4:
            raise UsageError(f"a T5 bias of {options.buckets} buckets needs a longest above {options.buckets // 4}")
        self.table = nn.Embedding(options.buckets, shape.heads)

    def scores(self, q: Tensor, k: Tensor, view: View) -> Tensor:
        return by_head(self.table(self.bucket(-view.distance(self.options.coordinate))))

    def bucket(self, ahead: Tensor) -> Tensor:
        """The bucket of a key that is so far ahead of the query."""
        half = self.options.buckets // 2
        exact = half // 2  # the shortest distances have a bucket each
        far = ahead.abs()
        share = (far.clamp(min=1) / exact).log() / math.log(self.options.longest / exact)
        coarse = (exact + (share * (half - exact)).long()).clamp(max=half - 1)
        return torch.where(far < exact, far, coarse) + half * (ahead > 0)


@POSITIONS.register("alibi")
class Alibi(OverCoordinate):
    """A penalty that grows with the distance, steeper in some heads; nothing is learned (Press et al., 2022)."""

    by_content = False

    def scores(self, q: Tensor, k: Tensor, view: View) -> Tensor:
        distance = view.distance(self.options.coordinate).abs()
        return by_head(-distance[..., None] * self.slopes().to(q))

    def slopes(self) -> Tensor:
        """A geometric sequence from 2^(−8/h) to 2^−8; for other than powers of two, every other one of the next."""
        heads = self.shape.heads
        power = 2 ** math.floor(math.log2(heads))
        steps = torch.arange(1, power + 1) / power
        between = torch.arange(1, 2 * power + 1, 2)[: heads - power] / (2 * power)
        return 2.0 ** (-8 * torch.cat([steps, between]))


@POSITIONS.register("rope")
class Rope(OverCoordinate):
    """Queries and keys are rotated by angles that grow with the position (RoPE; Su et al., 2021)."""

    class Options(OverCoordinate.Options):
        base: float = Field(10000.0, gt=1, description="the wavelengths go from 2π to nearly 2π·base")

    options: Options

    def __init__(self, options: Options, shape: Shape):
        super().__init__(options, shape)
        if shape.head_width % 2:
            raise UsageError(f"rope turns pairs of dimensions, and a head has {shape.head_width}")

    def rotate(self, q: Tensor, k: Tensor, at: Coordinates[Tensor]) -> tuple[Tensor, Tensor]:
        half = self.shape.head_width // 2
        frequency = self.options.base ** (-torch.arange(half, device=q.device) / half)
        angle = getattr(at, self.options.coordinate)[..., None] * frequency
        if angle.dim() == 3:  # (b, j, d/2): the same in all heads
            angle = angle[:, None]
        angle = torch.cat([angle, angle], -1)
        cos, sin = angle.cos().to(q), angle.sin().to(q)

        def turned(x: Tensor) -> Tensor:
            n = x.shape[-2]
            a, b = x.chunk(2, -1)
            return x * cos[..., :n, :] + torch.cat([-b, a], -1) * sin[..., :n, :]

        return turned(q), turned(k)


@POSITIONS.register("fire")
class Fire(OverCoordinate):
    """A small network of the distance, logarithmic and relative to the query's position (FIRE; Li et al., 2024)."""

    class Options(OverCoordinate.Options):
        hidden: int = Field(32, ge=1, description="width of the network")
        threshold: int = Field(512, ge=1, description="positions below it (times a learned factor) count as it")

    options: Options
    by_content = False

    def __init__(self, options: Options, shape: Shape):
        super().__init__(options, shape)
        self.network = nn.Sequential(nn.Linear(1, options.hidden), nn.ReLU(), nn.Linear(options.hidden, shape.heads))
        self.c = nn.Parameter(torch.tensor(0.1))
        self.factor = nn.Parameter(torch.tensor(1.0))

    def scores(self, q: Tensor, k: Tensor, view: View) -> Tensor:
        threshold = (self.factor * self.options.threshold).abs()
        reach = torch.maximum(view.ends(self.options.coordinate)[0].to(threshold), threshold)
        share = self.log(view.distance(self.options.coordinate)) / self.log(reach)
        return by_head(self.network(share[..., None]))

    def log(self, x: Tensor) -> Tensor:
        return ((self.c * x).abs() + 1).log()


@POSITIONS.register("randomised")
class Randomised(Position):
    """Randomised positions (Ruoss et al., 2023), around any other embedding: a sorted random choice of 0 … reach − 1.

    Short sequences of training so have the positions of long ones. One choice a batch in training; in testing it is
    always the same.
    """

    class Options(Position.Options):
        inner: "AnyPosition" = Field("relative-key", validate_default=True, description="the embedding around which")
        reach: int = Field(
            2048, ge=2, description="positions are chosen below it: twice the tokens of a problem or more"
        )

        @field_validator("inner")
        @classmethod
        def _not_randomised_twice(cls, inner: Position.Options) -> Position.Options:
            if isinstance(inner, Randomised.Options):
                raise UsageError("randomised positions are around another embedding, not around themselves")
            return inner

    options: Options
    random = True

    def __init__(self, options: Options, shape: Shape):
        super().__init__(options, shape)
        inner = POSITIONS[options.inner.kind]
        self.inner = inner(options.inner, replace(shape, max_length=options.reach))
        self.per_layer, self.by_content = inner.per_layer, inner.by_content

    @property
    def longest(self) -> int:
        return self.options.reach // 2  # powers of ten go to either side

    def moved(self, at: Coordinates[Tensor]) -> Coordinates[Tensor]:
        length = at.index.shape[-1]
        fixed = None if self.training else torch.Generator().manual_seed(length)

        def chosen(many: int) -> Tensor:
            return torch.randperm(self.options.reach, generator=fixed)[:many].sort().values.to(at.index.device)

        return replace(
            at,
            index=chosen(length)[at.index],
            # Powers of ten may be below zero. A shared operand's digits stay at their places beside the number line.
            significance=torch.where(at.shared, at.significance, chosen(2 * length)[at.significance + length]),
            place=torch.where(at.place > 0, chosen(length)[at.place - 1] + 1, 0),
        )

    def embed(self, x: Tensor, at: Coordinates[Tensor]) -> Tensor:
        return self.inner.embed(x, at)

    def rotate(self, q: Tensor, k: Tensor, at: Coordinates[Tensor]) -> tuple[Tensor, Tensor]:
        return self.inner.rotate(q, k, at)

    def scores(self, q: Tensor, k: Tensor, view: View) -> Tensor | None:
        return self.inner.scores(q, k, view)


def innermost(options: Position.Options) -> Position.Options:
    """What randomised positions are around; any other embedding is its own."""
    return options.inner if isinstance(options, Randomised.Options) else options


AnyPosition = Annotated[SerializeAsAny[Position.Options], BeforeValidator(POSITIONS.parse)]
Randomised.Options.model_rebuild()
