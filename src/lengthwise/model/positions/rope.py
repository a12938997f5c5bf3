"""Rotary position embeddings."""

import torch
from pydantic import Field
from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions.position import POSITIONS, ModelShape, OverCoordinate


@POSITIONS.register("rope")
class Rope(OverCoordinate):
    """Queries and keys rotated by angles that grow with the position (RoPE; Su et al., 2021)."""

    class Options(OverCoordinate.Options):
        base: float = Field(
            10000.0, gt=1, description="the wavelengths go from 2π to nearly 2π·base"
        )

    options: Options

    def __init__(self, options: Options, shape: ModelShape):
        super().__init__(options, shape)
        if shape.head_width % 2:
            raise UsageError(f"rope rotates pairs of dimensions, but a head has {shape.head_width}")

    def rotate(self, q: Tensor, k: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        half = self.shape.head_width // 2
        frequency = self.options.base ** (-torch.arange(half, device=q.device) / half)
        angle = getattr(pairs.coordinates, self.options.coordinate)[..., None] * frequency
        if angle.dim() == 3:  # (b, j, d/2): the same in all heads
            angle = angle[:, None]
        angle = torch.cat([angle, angle], -1)
        cos, sin = angle.cos().to(q), angle.sin().to(q)

        def turn(x: Tensor) -> Tensor:
            n = x.shape[-2]
            a, b = x.chunk(2, -1)
            return x * cos[..., :n, :] + torch.cat([-b, a], -1) * sin[..., :n, :]

        return turn(q), turn(k)
