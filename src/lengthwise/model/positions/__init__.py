"""Position embeddings: each is one class behind three hooks, over a coordinate of the tokens."""

from lengthwise.base import import_modules
from lengthwise.model.positions.absolute import Abacus, Absolute, Coupled, NoPosition
from lengthwise.model.positions.bias import Alibi, Fire, RelativeBias, T5Bias
from lengthwise.model.positions.position import (
    POSITIONS,
    AnyPosition,
    ModelShape,
    OverCoordinate,
    Position,
)
from lengthwise.model.positions.randomised import Randomised, innermost
from lengthwise.model.positions.relative import OverDistance, RelativeKey, RelativeKeyQuery
from lengthwise.model.positions.rope import Rope

__all__ = [
    "POSITIONS",
    "Abacus",
    "Absolute",
    "Alibi",
    "AnyPosition",
    "Coupled",
    "Fire",
    "ModelShape",
    "NoPosition",
    "OverCoordinate",
    "OverDistance",
    "Position",
    "Randomised",
    "RelativeBias",
    "RelativeKey",
    "RelativeKeyQuery",
    "Rope",
    "T5Bias",
    "innermost",
]

import_modules(__name__)
