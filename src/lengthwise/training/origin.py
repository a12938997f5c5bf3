"""Where a run starts: at the weights of another run or of a saved model, where they fit."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.base.tensors import unpack_tensors
from lengthwise.model import ModelConfig
from lengthwise.solver import saved
from lengthwise.training.experiment import Experiment, is_saved_model
from lengthwise.training.runs import OPTIMIZER, Run

# Options of the model that change training only, and not what trained weights compute.
TRAINING_ONLY = {"preset", "dropout", "attention_dropout", "init_std"}


def load_origin(experiment: Experiment) -> dict[str, Tensor]:
    """The weights that an experiment starts from, if they fit its model."""
    path = Path(experiment.start_from or "")
    if is_saved_model(path):
        arguments, tensors = saved.read_model(path)
        check_model(experiment, arguments["model"], path)
    else:
        origin = Run(path)
        check_model(experiment, origin.experiment.model, path)
        if origin.status != "finished":
            raise UsageError(
                f"start_from is {path}, which has not finished (`lengthwise resume {path}`)"
            )
        tensors = origin.load().state_dict()
    check_shapes(experiment, tensors, path)
    return tensors


def check_model(experiment: Experiment, other: ModelConfig, path: Path) -> None:
    """Raise a UsageError unless trained weights mean the same in both models."""
    ours, theirs = (m.model_dump(exclude=TRAINING_ONLY) for m in (experiment.model, other))
    for key, value in ours.items():
        if theirs[key] != value:
            raise UsageError(
                f"start_from is {path}, whose model.{key} is {theirs[key]!r} instead of {value!r}"
            )


def check_shapes(experiment: Experiment, tensors: dict[str, Tensor], path: Path) -> None:
    """Raise a UsageError unless every tensor of the model has its shape."""
    with torch.device("meta"):  # shapes only
        expected = experiment.build().state_dict()
    for name, tensor in expected.items():
        found: Any = tuple(tensors[name].shape) if name in tensors else "missing"
        if found != tuple(tensor.shape):
            hint = (
                "; a table of positions has a row for each place of the layout, so that"
                " data.test_digits, the layout and the task must agree"
                if ".positions." in name
                else "; a task with a symbol of its own adds one to the vocabulary"
                if "symbols" in name or "classifier" in name
                else ""
            )
            raise UsageError(
                f"start_from is {path}, whose weights don't fit: {name} is {found} there and"
                f" {tuple(tensor.shape)} here{hint}"
            )


def load_optimizer(experiment: Experiment) -> tuple[dict[str, Tensor], Path]:
    """The state of the optimiser that an experiment starts from, and its file."""
    path = Path(experiment.start_from or "")
    content = None if is_saved_model(path) else Run(path).manifest.read(OPTIMIZER)
    if content is None:
        raise UsageError(
            f"{path} has no state of its optimiser, because training.keep_optimizer was false;"
            " --fresh-optimizer extends it with a new one"
        )
    return unpack_tensors(content, path / OPTIMIZER)[0], path / OPTIMIZER
