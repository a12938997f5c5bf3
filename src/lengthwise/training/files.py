"""Files written whole or not at all, with checksums."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from zlib import crc32

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lengthwise.base import UsageError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say in one sentence what went wrong with writing a file."""
    try:
        yield
    except OSError as error:
        intact = "; what was saved before is intact" if path.exists() else ""
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"can't write {path}: {reason}{intact}") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment either the old one or the new one is there, whole."""
    temporary = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None


def to_line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"


def append(file: IO[str], record: Mapping[str, Any]) -> None:
    with writing(Path(file.name)):
        file.write(to_line(record))
        file.flush()


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors atomically, with a checksum that `load_tensors` verifies."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    checked = {**metadata, "crc32": checksum(stored)}
    write_atomically(path, safetensors.torch.save(stored, checked))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
    except FileNotFoundError:
        problem = "no permission to read" if path.exists() else "there is no file"
        raise UsageError(f"{problem} {path}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    if metadata.get("crc32", checksum(tensors)) != checksum(tensors):
        raise UsageError(f"{path} is damaged: its checksum doesn't match its contents")
    return tensors, metadata


def checksum(tensors: Mapping[str, Tensor]) -> str:
    value = 0
    for name in sorted(tensors):
        value = crc32(tensors[name].numpy().tobytes(), crc32(name.encode(), value))
    return f"{value:08x}"


def restore(into: Mapping[str, Tensor], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy loaded tensors into a model's in place: memory alignment decides the last bits."""
    for name, tensor in into.items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            found = tuple(tensors[name].shape) if name in tensors else "missing"
            raise UsageError(
                f"{path} doesn't fit the model: {name} should be {tuple(tensor.shape)}"
                f" and is {found}"
            )
        tensor.detach().copy_(tensors[name])
