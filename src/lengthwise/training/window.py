"""Loss and accuracy on the training examples since the last record."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.problems.batch import TrainingBatch


class Window:
    """Counts of unprimed and primed examples. They stay on the device, so that no step waits."""

    def __init__(self, n_out: int, device: torch.device):
        # A row for unprimed and one for primed examples: how many, all right, right at each symbol.
        self.counts = torch.zeros(2, 2 + n_out, dtype=torch.int64, device=device)
        self.total_loss = torch.zeros(2, device=device)  # the sum of losses, and how many

    @torch.no_grad()
    def add(self, loss: Tensor, logits: Tensor, batch: TrainingBatch) -> None:
        right = (logits.argmax(-1) == batch.targets)[:, batch.answer_at]
        # A fitted layout can be narrower than its largest; the rest is padding, and right.
        missing = self.counts.shape[1] - 2 - right.shape[1]
        right = F.pad(right, (0, missing), value=True)
        ones, exact = torch.ones_like(right[:, :1]), right.all(1, keepdim=True)
        columns = torch.cat([ones, exact, right], 1).long()
        self.counts.index_add_(0, batch.primed.long(), columns)
        self.total_loss += torch.stack([loss.float(), torch.ones_like(self.total_loss[0])])

    @property
    def loss(self) -> float:
        total, count = self.total_loss.tolist()
        return total / count if count else 0.0

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"loss": self.loss}
        for name, row in zip(("train", "primed"), self.counts.tolist(), strict=True):
            examples, exact, *digits = row
            if examples:
                record[name] = {
                    "examples": examples,
                    "exact_match": exact / examples,
                    "digits": [right / examples for right in digits],
                }
        return record

    def clear(self) -> None:
        self.counts.zero_()
        self.total_loss.zero_()
