"""Files written whole or not at all."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lengthwise.base.errors import UsageError

PARTIAL = ".partial"  # how the names of files end that are still being written


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
    with writing(path):
        temporary = write_temporary(path, content)
        try:
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def write_temporary(path: Path, content: bytes) -> Path:
    """A file beside `path` with this content, on the disk, under a name that nobody else has."""
    temporary = temporary_path(path)
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def temporary_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")


def sync_directory(directory: Path) -> None:
    """Bring the names of a directory to the disk: a rename is lost with the power otherwise."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, to_json(value))


def read_json(path: Path) -> Any:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    return parse_json(content, path)


def parse_json(content: bytes, path: Path) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
