"""A batch as a model gets it: tokens, coordinates, and in training the targets."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.arithmetic.digits import Numbers
from lengthwise.problems.layouts import Coordinates, Layout
from lengthwise.problems.training_set import Examples

NO_TARGET = -100  # what cross-entropy leaves out


@dataclass(frozen=True)
class Batch:
    """Problems written in one layout."""

    tokens: Tensor  # (b, j)
    coordinates: Coordinates[Tensor]  # each (j,) or (b, j)
    n_out: int  # the model predicts a symbol at each of the first n_out positions
    answer_at: slice | NDArray[np.int64]  # the answer's among them

    @classmethod
    def of_problems(
        cls, layout: Layout, operands: tuple[Numbers, ...], device: torch.device
    ) -> "Batch":
        tokens = to_device(layout.encode(operands), device)
        coordinates = layout.coordinates(operands).map(lambda values: to_device(values, device))
        return Batch(tokens, coordinates, layout.n_supervised, layout.answer_at)


@dataclass(frozen=True)
class TrainingBatch(Batch):
    """Problems with the symbols that the model should predict."""

    targets: Tensor  # (b, n_out), or NO_TARGET
    primed: Tensor  # (b,)

    @classmethod
    def of_examples(
        cls, layout: Layout, examples: Examples, device: torch.device
    ) -> "TrainingBatch":
        problems = Batch.of_problems(layout, examples.operands, device)
        targets = layout.encode_targets(examples.operands, examples.answer)
        if getattr(layout.options, "targets", None) == "answer":
            asked = np.zeros(layout.n_supervised, bool)
            asked[layout.answer_at] = True
            targets = np.where(asked, targets, NO_TARGET)
        return TrainingBatch(
            **vars(problems),
            targets=to_device(targets, device),
            primed=to_device(examples.primed, device),
        )


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(array)
    if device.type == "cuda":  # only from pinned memory is the copy not waited for
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
