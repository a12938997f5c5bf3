"""How much memory an experiment needs at least, so that an impossible one is refused at once."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lengthwise.base import UsageError
from lengthwise.training.own_code import walk

if TYPE_CHECKING:
    from lengthwise.training.experiment import Experiment

FLOAT, INTEGER = 4, 8  # bytes
TRAINING_COPIES = 4  # weights, gradients, and two moments of AdamW
UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def check_model(experiment: "Experiment") -> None:
    """Raise a UsageError unless the weights fit into memory."""
    require(model_bytes(experiment), "the weights of this model need", "cpu")


def check_training(experiment: "Experiment") -> None:
    """Raise a UsageError unless the least that training needs fits into memory."""
    require(data_bytes(experiment), "the training problems need", "cpu")
    weights = TRAINING_COPIES * model_bytes(experiment)
    needed = weights + activation_bytes(experiment)
    require(needed, "training this model with this batch size needs", experiment.device)


def require(needed: int, what: str, device: str) -> None:
    available = device_bytes(device)
    if needed > available:
        raise UsageError(
            f"{what} at least {to_text(needed)} of memory, but there are {to_text(available)}"
        )


def model_bytes(experiment: "Experiment") -> int:
    """The weights of the layers, and tables of distances up to a `clip`; others come on top."""
    model = experiment.model
    own_layers = 1 if model.encoder == "universal-transformer" else model.layers
    inner = model.feedforward_width or 4 * model.width
    layer = 2 * model.width**2 + 2 * model.width * inner  # an attention has two matrices at least
    clips = (getattr(position, "clip", None) or 0 for position in walk(model.position))
    tables = sum(2 * clip * model.width // model.heads for clip in clips)
    return FLOAT * (own_layers * layer + tables)


def activation_bytes(experiment: "Experiment") -> int:
    """What the layers keep for the backward pass of a batch, at least."""
    model, length = experiment.model, experiment.training_layout().length
    inner = model.feedforward_width or 4 * model.width
    per_token = model.layers * (2 * model.width + inner)
    scores = model.heads * length if model.attention.kind == "full" else 0
    return FLOAT * experiment.training.batch_size * length * (per_token + scores)


def data_bytes(experiment: "Experiment") -> int:
    data = experiment.data
    return INTEGER * (data.train_size + experiment.training.batch_size) * data.train_digits


def device_bytes(device: str) -> int:
    """The memory of a device, or of this machine or its container."""
    if device.startswith("cuda"):
        return int(torch.cuda.get_device_properties(device).total_memory)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = LIMIT.read_text().strip() if LIMIT.is_file() else ""
    return min(total, int(limit)) if limit.isdecimal() else total


def to_text(size: int) -> str:
    """A number of bytes as people say it.

    >>> to_text(3_200_000_000), to_text(10**40)
    ('3.2 GB', '1000 EB')
    """
    size = min(size, 1000 * 10**18)
    unit = next((u for u in range(len(UNITS)) if size < 1000 ** (u + 1)), len(UNITS) - 1)
    return f"{size / 1000**unit:.3g} {UNITS[unit]}".replace("1e+03", "1000")
