"""Randomised positions, around any other embedding."""

from dataclasses import replace

import torch
from pydantic import Field, field_validator
from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions.position import POSITIONS, AnyPosition, ModelShape, Position
from lengthwise.problems.layouts import Coordinates


@POSITIONS.register("randomised")
class Randomised(Position):
    """Sorted random positions below `reach`, around another embedding (Ruoss et al., 2023).

    Short training sequences then have the positions of long ones. Training draws them once a batch;
    testing always uses the same. All layers share the other embedding, even where they have weights
    of their own.
    """

    class Options(Position.Options):
        inner: AnyPosition = Field(
            "relative-key", validate_default=True, description="the embedding around which"
        )
        reach: int = Field(
            2048, ge=2, description="positions lie below it; at least twice the tokens of a problem"
        )

        @field_validator("inner")
        @classmethod
        def _reject_nesting(cls, inner: Position.Options) -> Position.Options:
            if isinstance(inner, Randomised.Options):
                raise UsageError("randomised positions go around another embedding")
            return inner

    options: Options
    random = True

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__(options, shape)
        self.inner = POSITIONS.build(options.inner, replace(shape, max_length=options.reach))
        self.content_free = self.inner.content_free

    @property
    def longest(self) -> int:
        return self.options.reach // 2  # powers of ten go to either side

    def resample_coordinates(self, coordinates: Coordinates[Tensor]) -> Coordinates[Tensor]:
        length = coordinates.index.shape[-1]
        rng = None if self.training else torch.Generator().manual_seed(length)

        def draw(count: int) -> Tensor:
            chosen = torch.randperm(self.options.reach, generator=rng)[:count].sort().values
            return chosen.to(coordinates.index.device)

        # Powers of ten may be negative. The digits of a shared operand keep their places.
        powers = draw(2 * length)[coordinates.significance + length]
        place = coordinates.place
        return replace(
            coordinates,
            index=draw(length)[coordinates.index],
            significance=torch.where(coordinates.shared, coordinates.significance, powers),
            place=torch.where(place > 0, draw(length)[place - 1] + 1, 0),
        )

    def embed(self, x: Tensor, coordinates: Coordinates[Tensor]) -> Tensor:
        return self.inner.embed(x, coordinates)

    def rotate(self, q: Tensor, k: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        return self.inner.rotate(q, k, pairs)

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor | None:
        return self.inner.scores(q, k, pairs)


def innermost(options: Position.Options) -> Position.Options:
    """The embedding inside randomised positions; any other is its own."""
    return options.inner if isinstance(options, Randomised.Options) else options
