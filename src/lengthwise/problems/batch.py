"""A batch as a model gets it: tokens, coordinates, and in training the targets."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.arithmetic.digits import Numbers
from lengthwise.problems.layouts import Coordinates, Layout
from lengthwise.problems.training_set import Examples


@dataclass(frozen=True)
class Batch:
    """Problems written in one layout."""

    tokens: Tensor  # (b, j)
    coordinates: Coordinates[Tensor]  # each (j,) or (b, j)
    n_out: int  # the model predicts a symbol at each of the first n_out positions
    answer_at: slice | NDArray[np.int64]  # the answer's among them
    targets: Tensor | None = None  # (b, n_out), in training
    primed: Tensor | None = None  # (b,)

    @classmethod
    def of_problems(
        cls, layout: Layout, operands: tuple[Numbers, ...], device: torch.device
    ) -> "Batch":
        tokens = torch.from_numpy(layout.encode(operands)).to(device, non_blocking=True)
        coordinates = layout.coordinates(operands).map(
            lambda values: torch.from_numpy(values).to(device, non_blocking=True)
        )
        return cls(tokens, coordinates, layout.n_supervised, layout.answer_at)

    @classmethod
    def of_examples(cls, layout: Layout, examples: Examples, device: torch.device) -> "Batch":
        """Problems with their targets, for training."""
        batch = cls.of_problems(layout, examples.operands, device)
        targets = layout.encode_targets(examples.operands, examples.answer)
        return cls(
            batch.tokens,
            batch.coordinates,
            batch.n_out,
            batch.answer_at,
            torch.from_numpy(targets).to(device, non_blocking=True),
            torch.from_numpy(examples.primed).to(device, non_blocking=True),
        )
