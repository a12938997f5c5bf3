"""Checkpoints: all that the rest of a run depends on."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.solver import Solver
from lengthwise.training.experiment import CONFIG
from lengthwise.training.files import load_tensors, restore, save_tensors, writing
from lengthwise.training.runs import Run
from lengthwise.training.window import Window


@dataclass
class State:
    """What a training step changes."""

    solver: Solver
    optimizer: torch.optim.Optimizer
    window: Window
    step: int = 0
    seconds: float = 0.0  # of training, in all sessions
    metrics_size: int = 0  # bytes of metrics.jsonl

    def tensors(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": tensor for name, tensor in self.solver.state_dict().items()}
        for name, parameter in self.solver.named_parameters():
            state = self.optimizer.state[parameter]
            tensors |= {f"optimizer.{name}.{key}": value for key, value in state.items()}
        tensors |= {"window.counts": self.window.counts}
        return tensors | {"window.total_loss": self.window.total_loss}


def save_checkpoint(run: Run, state: State, metrics: IO[str]) -> None:
    run.check_held()
    with writing(Path(metrics.name)):
        os.fsync(metrics.fileno())
    metadata = {
        "step": str(state.step),
        "seconds": str(state.seconds),
        "identity": run.identity,
        "metrics": str(os.fstat(metrics.fileno()).st_size),
    }
    save_tensors(run.checkpoint, state.tensors(), metadata)


def load_checkpoint(run: Run, state: State) -> None:
    """Bring a fresh state to the last checkpoint, if there is one."""
    if not run.checkpoint.exists():
        return
    tensors, metadata = load_tensors(run.checkpoint)
    numbers = [metadata.get(key, "") for key in ("step", "metrics")]
    if metadata.get("identity") != run.identity or not all(map(str.isdecimal, numbers)):
        raise UsageError(
            f"{run.checkpoint} is damaged or belongs to another experiment than {run.path / CONFIG}"
        )
    restore(state.tensors(), tensors, run.checkpoint)
    state.step, state.metrics_size = map(int, numbers)
    state.seconds = float(metadata["seconds"])
