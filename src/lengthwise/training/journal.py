"""metrics.jsonl: records that are only added, each with a checksum of the file up to its end."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lengthwise.base import UsageError
from lengthwise.base.files import writing
from lengthwise.base.manifest import Content
from lengthwise.evaluation.accuracy import Accuracy

Record = dict[str, Any]
SEAL = ', "checksum": "%s"}\n'
FIRST = b'{"step": '  # how lines begin
SEAL_BYTES = len(SEAL % ("0" * 16))


class Journal:
    """A file of records, open for appending."""

    def __init__(self, path: Path, content: bytes):
        """`content` is what the file holds."""
        self.path, self.sha256, self.size = path, hashlib.sha256(content), len(content)
        with writing(path):
            self.file = open(path, "ab")  # noqa: SIM115  # closed by `close`

    def append(self, record: Mapping[str, Any]) -> None:
        line = seal(record, self.sha256)
        self.check_unchanged()
        with writing(self.path):
            self.file.write(line)
            self.file.flush()
        self.size += len(line)

    def check_unchanged(self) -> None:
        """Raise a UsageError if another process has deleted, replaced or changed the file."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            found = None
        own = os.fstat(self.file.fileno())
        if found is None or (found.st_ino, found.st_size) != (own.st_ino, self.size):
            raise UsageError(f"{self.path} was deleted or replaced by another process, or changed")

    def sync(self) -> Content:
        """Bring all records to the disk; returns what the file holds."""
        self.check_unchanged()
        with writing(self.path):
            os.fsync(self.file.fileno())
        return Content(self.sha256.hexdigest(), self.size, grows=True)

    def close(self) -> Content:
        """Close the file; returns what it holds, to which nothing will be added."""
        content = self.sync()
        self.file.close()
        return replace(content, grows=False)


class NoJournal(Journal):
    """Keeps nothing: the journal of a process that doesn't write the run's directory."""

    def __init__(self) -> None:
        pass

    def append(self, record: Mapping[str, Any]) -> None:
        pass


def seal(record: Mapping[str, Any], sha256: "hashlib._Hash") -> bytes:
    """A record's line; `sha256` is of the lines before, and then of this one, too."""
    body = json.dumps(record).removesuffix("}").encode()
    sha256.update(body)
    end = (SEAL % sha256.hexdigest()[:16]).encode()
    sha256.update(end)
    return body + end


def read_records(content: bytes, path: Path, key: str = "") -> list[Record]:
    """The records of a journal that have a key; a last line whose writing was cut off is none."""
    return [parse_record(line, path) for line, _ in read_lines(content, path) if has_key(line, key)]


def last_record(content: bytes, path: Path, key: str = "") -> Record | None:
    """The last record that has a key."""
    lines = [line for line, _ in read_lines(content, path) if has_key(line, key)]
    return parse_record(lines[-1], path) if lines else None


def has_key(line: bytes, key: str) -> bool:
    """Whether a record has a key, which no record has as a value; "" stands for any key."""
    return f'{key}":'.encode() in line


def read_lines(content: bytes, path: Path) -> Iterator[tuple[bytes, int]]:
    """Each record's line, verified, with the size of the file up to its end."""
    sha256, size = hashlib.sha256(), 0
    *lines, rest = content.split(b"\n")
    if not is_cut_off(rest):
        lines.append(rest)
    for number, line in enumerate(lines, 1):
        body, end = line[: 1 - SEAL_BYTES], line[1 - SEAL_BYTES :] + b"\n"
        sha256.update(body)
        if line is rest or end != (SEAL % sha256.hexdigest()[:16]).encode():
            raise UsageError(f"{path} is damaged: the checksum of line {number} doesn't match")
        sha256.update(end)
        size += len(line) + 1
        yield line, size


def is_cut_off(rest: bytes) -> bool:
    """Whether what follows the last line can be the beginning of one that was being written."""
    if rest[: len(FIRST)] != FIRST[: len(rest)]:
        return False
    try:
        _, end = json.JSONDecoder().raw_decode(rest.decode())
    except ValueError:
        return True
    return end == len(rest)


def parse_record(line: bytes, path: Path) -> Record:
    try:
        record: Record = json.loads(line)
        del record["checksum"]
        if not isinstance(record["step"], int):
            raise TypeError("the step is no integer")
        for accuracy in record.get("evaluation", ()):
            Accuracy.from_json(accuracy)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    return record
