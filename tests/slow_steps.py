"""AdamW that takes its time, so that a test can kill a run in the middle on any machine."""

import os
import time
from typing import Any

import torch
from torch import nn

from lengthwise.training.optimizers import OPTIMIZERS, AdamWChoice


@OPTIMIZERS.register("slow-adamw")
class SlowAdamW(AdamWChoice):
    """AdamW, after a pause."""

    pause: float = 0.05  # seconds

    def build(
        self, model: nn.Module, betas: tuple[float, float], weight_decay: float
    ) -> torch.optim.Optimizer:
        optimizer = super().build(model, betas, weight_decay)

        def wait(*_: Any) -> None:
            if "SLURM_RESTART_COUNT" not in os.environ:  # a requeued job makes up for it
                time.sleep(self.pause)

        optimizer.register_step_pre_hook(wait)
        return optimizer
