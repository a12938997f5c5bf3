"""Checkpoints: all that the rest of a run depends on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.base.tensors import pack_tensors, restore, unpack_tensors
from lengthwise.solver import Solver
from lengthwise.training.experiment import CONFIG
from lengthwise.training.journal import Journal
from lengthwise.training.runs import AVERAGE, CHECKPOINT, METRICS, MODEL, OPTIMIZER, Run
from lengthwise.training.window import Window


@dataclass
class State:
    """What a training step changes."""

    solver: Solver
    optimizer: torch.optim.Optimizer
    window: Window
    average: Solver | None = None  # the model with averaged weights (training.ema)
    step: int = 0
    seconds: float = 0.0  # of training, in all sessions

    @property
    def tested_solver(self) -> Solver:
        """The model that is tested and kept."""
        return self.average or self.solver

    @torch.no_grad()
    def update_average(self, decay: float) -> None:
        """Move the average towards the weights, early on as if the decay were smaller."""
        assert self.average is not None
        share = max(1 - decay, 9 / (self.step + 10))  # of the weights of this step
        pairs = zip(self.average.parameters(), self.solver.parameters(), strict=True)
        for average, weight in pairs:
            average.lerp_(weight, share)

    def tensors(self) -> dict[str, Tensor]:
        tensors = {f"{MODEL}{name}": tensor for name, tensor in self.solver.state_dict().items()}
        if self.average is not None:
            averages = self.average.state_dict().items()
            tensors |= {f"{AVERAGE}{name}": tensor for name, tensor in averages}
        tensors |= self.optimizer_tensors()
        tensors |= {"window.counts": self.window.counts}
        return tensors | {"window.total_loss": self.window.total_loss}

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return {
            f"optimizer.{name}.{key}": value
            for name, parameter in self.solver.named_parameters()
            for key, value in self.optimizer.state[parameter].items()
        }


def save_checkpoint(run: Run, state: State, metrics: Journal) -> None:
    run.manifest.contents[METRICS] = [metrics.sync()]
    metadata = {
        "step": str(state.step),
        "seconds": str(state.seconds),
        "identity": run.identity,
    }
    run.write({CHECKPOINT: pack_tensors(state.tensors(), metadata)})


def save_optimizer(run: Run, state: State) -> None:
    """Keep the optimiser's state, so that another run can go on with it."""
    metadata = {"step": str(state.step), "identity": run.identity}
    run.write({OPTIMIZER: pack_tensors(state.optimizer_tensors(), metadata)})


def load_checkpoint(run: Run, state: State) -> None:
    """Bring a fresh state to the last checkpoint, if there is one."""
    content = run.manifest.read(CHECKPOINT)
    if content is None:
        return
    tensors, metadata = unpack_tensors(content, run.checkpoint)
    if metadata.get("identity") != run.identity or not metadata.get("step", "").isdecimal():
        raise UsageError(
            f"{run.checkpoint} is damaged or belongs to another experiment than {run.path / CONFIG}"
        )
    restore(state.tensors(), tensors, run.checkpoint)
    state.step, state.seconds = int(metadata["step"]), float(metadata["seconds"])
