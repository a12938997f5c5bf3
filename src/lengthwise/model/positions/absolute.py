"""Embeddings that are added to the input: absolute (APE), position coupling, Abacus, and none."""

import torch
from pydantic import Field
from torch import Tensor, nn

from lengthwise.model.positions.position import POSITIONS, ModelShape, OverCoordinate, Position
from lengthwise.problems.layouts import Coordinates


@POSITIONS.register("none")
class NoPosition(Position):
    """No position embedding (NoPE): the encoder sees a bag of symbols."""


@POSITIONS.register("absolute")
class Absolute(OverCoordinate):
    """A learned vector for each position, added to the input (APE; Vaswani et al., 2017)."""

    def __init__(self, options: OverCoordinate.Options, shape: ModelShape):
        super().__init__(options, shape)
        # With the most significant digit first, padding has negative powers of ten.
        self.lowest = 0 if options.coordinate == "index" else -shape.max_length
        self.table = nn.Embedding(shape.max_length - self.lowest, shape.input_width)

    @property
    def longest(self) -> int:
        return self.shape.max_length

    def embed(self, x: Tensor, coordinates: Coordinates[Tensor]) -> Tensor:
        return x + self.table(getattr(coordinates, self.options.coordinate) - self.lowest)


@POSITIONS.register("coupled")
class Coupled(Position):
    """Position coupling (Cho et al., 2024): digits of one significance share a learned vector.

    In training one random offset a batch shifts all positions, so that the vectors of long numbers
    are trained too.
    """

    class Options(Position.Options):
        offset: int = Field(0, ge=0, description="largest random offset of positions in training")

    options: Options

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__(options, shape)
        self.random = options.offset > 0
        self.table = nn.Embedding(2 * self.longest + options.offset, shape.input_width)

    @property
    def longest(self) -> int:
        return self.shape.max_length + self.options.offset

    def embed(self, x: Tensor, coordinates: Coordinates[Tensor]) -> Tensor:
        return x + self.table(coordinates.significance + self.longest + self.draw_offset())

    def draw_offset(self) -> int:
        """Random in training, 0 in testing."""
        if not self.training or not self.options.offset:
            return 0
        return int(torch.randint(self.options.offset + 1, ()))


@POSITIONS.register("abacus")
class Abacus(Coupled):
    """Abacus (McLeish et al., 2024): a learned vector for each digit's place in its number.

    Padding and operators share one vector. In training one random offset a batch shifts all places.
    """

    def __init__(self, options: Coupled.Options, shape: ModelShape):
        super().__init__(options, shape)
        self.table = nn.Embedding(self.longest + options.offset + 1, shape.input_width)

    def embed(self, x: Tensor, coordinates: Coordinates[Tensor]) -> Tensor:
        place = coordinates.place
        return x + self.table(torch.where(place > 0, place + self.draw_offset(), 0))
