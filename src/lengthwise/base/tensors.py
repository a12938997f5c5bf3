"""Tensors in safetensors files."""

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from lengthwise.base.errors import UsageError

LENGTH_BYTES = 8  # a safetensors file begins with the length of its header


def pack_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The content of a safetensors file."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(stored, dict(metadata))


def unpack_tensors(content: bytes, path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a safetensors file."""
    try:
        tensors = safetensors.torch.load(content)
        end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
        metadata = json.loads(content[LENGTH_BYTES:end]).get("__metadata__", {})
    except (SafetensorError, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    return tensors, metadata


def restore(into: Mapping[str, Tensor], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy loaded tensors into a model's in place: memory alignment decides the last bits."""
    for name in tensors.keys() - into.keys():
        raise UsageError(f"{path} doesn't fit the model, which has no {name}")
    for name, tensor in into.items():
        found = describe(tensors[name]) if name in tensors else "missing"
        if found != describe(tensor):
            raise UsageError(
                f"{path} doesn't fit the model: {name} should be {describe(tensor)} and is {found}"
            )
        tensor.detach().copy_(tensors[name])


def describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise a UsageError if a weight is infinite or not a number."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UsageError(f"{path} has weights that are not finite numbers: {name}")
