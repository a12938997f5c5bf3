"""The interface of position embeddings: three hooks that the encoder calls, each optional.

`embed` changes the input embeddings, `rotate` changes queries and keys, `scores` adds to the
attention scores. Axis names: b batch, h heads, i queries, j keys, d width of a head.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn

from lengthwise.base import Choice, Registry
from lengthwise.model.pairs import Pairs
from lengthwise.problems.layouts import Coordinate, Coordinates


@dataclass(frozen=True)
class ModelShape:
    """What a position embedding may need to know of its model."""

    width: int
    input_width: int  # of the input embeddings, which are projected where it differs from width
    heads: int
    max_length: int  # of a token sequence, for embeddings with a table; others take any length
    operands: int
    scale_relative: bool  # divide a relative term by √d like the scores (BERT), or don't (ALBERT)

    @property
    def head_width(self) -> int:
        return self.width // self.heads


class Position(nn.Module):
    """A position embedding. These hooks do nothing; a subclass overrides what it needs."""

    class Options(Choice):
        """The options of an embedding, as in `model.position: {kind: relative-key, clip: 3}`."""

    per_layer = False  # whether every layer with weights of its own has one
    random = False  # whether it draws random numbers in training
    content_free = False  # whether `scores` ignores queries and keys

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__()
        self.options, self.shape = options, shape

    @property
    def longest(self) -> int | None:
        """The longest token sequence that it can take; None: any."""
        return None

    def resample_coordinates(self, coordinates: Coordinates[Tensor]) -> Coordinates[Tensor]:
        """The coordinates that the hooks see; called once for each forward pass."""
        return coordinates

    def embed(self, x: Tensor, coordinates: Coordinates[Tensor]) -> Tensor:
        """Input embeddings (b, j, input_width) with positions added."""
        return x

    def rotate(self, q: Tensor, k: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Queries (b, h, i, d) and keys (b, h, j, d) of all positions with positions mixed in."""
        return q, k

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor | None:
        """What is added to q·k/√d: (b, h, i, j), or a shape that broadcasts to it.

        Keys are (b, h, j, d), or (b, h, i, j, d) in a band, where each query has keys of its own.
        """
        return None


POSITIONS: Registry[Position] = Registry("position embedding", "model.position")
AnyPosition = Annotated[SerializeAsAny[Position.Options], BeforeValidator(POSITIONS.parse)]


class OverCoordinate(Position):
    """A position embedding over a coordinate that can be chosen."""

    class Options(Position.Options):
        coordinate: Coordinate = Field(
            "index", description="what positions and distances are measured over"
        )

    options: Options


def move_heads_first(bias: Tensor) -> Tensor:
    """(i, j, h) or (b, i, j, h) -> a shape that broadcasts to (b, h, i, j)."""
    return bias.movedim(-1, -3)
