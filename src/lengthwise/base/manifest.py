"""The manifest of a directory: a digest of every file, so that any changed byte is noticed.

Before a file is replaced, the manifest lists the old and the new content, and either is right.
So a process can be killed at any moment, and the directory can be verified nevertheless.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.base.errors import UsageError
from lengthwise.base.files import sync_directory, write_atomically, write_temporary, writing

MANIFEST = "manifest.json"
ATTEMPTS = 20  # at reading a file that another process keeps replacing


@dataclass(frozen=True)
class Content:
    """What a file holds. One that grows holds at least this, at its beginning."""

    sha256: str
    size: int
    grows: bool = False

    @classmethod
    def of(cls, content: bytes, grows: bool = False) -> "Content":
        return cls(hashlib.sha256(content).hexdigest(), len(content), grows)

    def fits(self, content: bytes) -> bool:
        if self.grows:
            content = content[: self.size]
        return len(content) == self.size and Content.of(content, self.grows) == self


Contents = dict[str, list[Content | None]]  # by file: what may be there; None stands for no file


class Manifest:
    """The contents that the files of a directory should have.

    Only a process that holds the directory's lock may change it.
    """

    def __init__(self, directory: Path, contents: Contents | None = None):
        self.directory, self.path = directory, directory / MANIFEST
        self.contents = contents or {}
        self.text = b""

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        manifest = cls(directory)
        manifest.reload()
        return manifest

    def reload(self) -> None:
        text = read_if_there(self.path)
        if text is None:
            raise UsageError(
                f"{self.directory} has no {MANIFEST}: it is of an older version, or the file was"
                f" lost; `lengthwise check {self.directory} --adopt` takes its files as they are"
            )
        try:
            self.contents = from_json(json.loads(text)["files"])
            if to_text(self.contents) != text:
                raise ValueError("its checksum doesn't match its contents")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise UsageError(f"{self.path} is damaged: {error}") from None
        self.text = text

    def save(self) -> None:
        text = to_text(self.contents)
        if text != self.text:
            write_atomically(self.path, text)
            self.text = text

    def read(self, name: str) -> bytes | None:
        """The content of a file, verified; None if there is none, as it should be."""
        path = os.path.join(self.directory, name)  # lists of runs come here often
        for _ in range(ATTEMPTS):
            content = read_if_there(path)
            if self.fits(name, content):
                return content
            before = self.text
            self.reload()
            if self.text == before:  # so no other process has replaced the file meanwhile
                break
        raise UsageError(f"{self.directory / name} is damaged: {self.mismatch(name, content)}")

    def fits(self, name: str, content: bytes | None) -> bool:
        return any(self.is_content(one, content) for one in self.contents.get(name, [None]))

    @staticmethod
    def is_content(known: Content | None, content: bytes | None) -> bool:
        if known is None or content is None:
            return known is None and content is None
        return known.fits(content)

    def mismatch(self, name: str, content: bytes | None) -> str:
        if content is None:
            return f"it is missing, but {MANIFEST} lists it"
        if not any(self.contents.get(name, ())):
            return f"{MANIFEST} doesn't list it"
        return f"its checksum doesn't match {MANIFEST}"

    def verify(self, left_out: Iterable[str] = ()) -> None:
        """Raise a UsageError that names a file that isn't as it was written."""
        for problem in self.problems(left_out):
            raise problem

    def problems(self, left_out: Iterable[str] = ()) -> Iterator[UsageError]:
        for name in sorted(self.contents.keys() - set(left_out)):
            try:
                self.read(name)
            except UsageError as error:
                yield error

    def replace(self, changes: Mapping[str, bytes | None], grows: Iterable[str] = ()) -> None:
        """Write files, in this order, and remove those whose new content is None."""
        temporary: dict[str, Path] = {}
        new = {
            name: None if content is None else Content.of(content, name in set(grows))
            for name, content in changes.items()
        }
        try:
            for name, content in changes.items():
                if content is not None:
                    with writing(self.directory / name):
                        temporary[name] = write_temporary(self.directory / name, content)
            for name, content_after in new.items():
                self.contents[name] = [*self.contents.get(name, [None]), content_after]
            self.save()
            for name in changes:
                with writing(self.directory / name):
                    if name in temporary:
                        os.replace(temporary[name], self.directory / name)
                    else:
                        (self.directory / name).unlink(missing_ok=True)
            with writing(self.directory):
                sync_directory(self.directory)
        except BaseException:
            for path in temporary.values():
                path.unlink(missing_ok=True)
            raise
        before = [self.contents[name] for name in new]
        self.contents |= {name: [content] for name, content in new.items()}
        if any(None in known for known in before):  # else a lost file would pass for a new one
            self.save()
        # Otherwise the next `save` forgets the old contents.

    def settle(self) -> None:
        """Forget the contents that files had before, and files that are gone."""
        settled: Contents = {}
        for name, known in self.contents.items():
            content = read_if_there(self.directory / name) if len(known) > 1 else None
            fitting = [one for one in known if self.is_content(one, content)]
            left = known if len(known) == 1 else fitting[-1:] or known  # a damaged file stays one
            if left != [None]:
                settled[name] = left
        self.contents = settled
        self.save()


def read_if_there(path: Path | str) -> bytes | None:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # a pipe may wait
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a device may have no end
                raise UsageError(f"{path} is damaged: it isn't a regular file")
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None


def to_text(contents: Contents) -> bytes:
    """JSON with an indent of 1, formatted here, because `json` takes long for that."""
    files = {
        name: [None if one is None else to_fields(one) for one in contents[name]]
        for name in sorted(contents)
    }
    digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    items = [
        f"  {json.dumps(name)}: " + enclose("[]", map(format_content, contents[name]), "  ")
        for name in files
    ]
    return f'{{\n "files": {enclose("{}", items, " ")},\n "sha256": "{digest}"\n}}\n'.encode()


def enclose(brackets: str, items: Iterable[str], indent: str) -> str:
    """The items in brackets, each on lines of its own."""
    text = ",\n".join(items)
    return f"{brackets[0]}\n{text}\n{indent}{brackets[1]}" if text else brackets


def format_content(content: Content | None) -> str:
    if content is None:
        return "   null"
    grows = ',\n    "grows": true' if content.grows else ""
    return f'   {{\n    "sha256": "{content.sha256}",\n    "size": {content.size}{grows}\n   }}'


def to_fields(content: Content) -> dict[str, Any]:
    fields: dict[str, Any] = {"sha256": content.sha256, "size": content.size}
    return {**fields, "grows": True} if content.grows else fields


def from_json(files: Mapping[str, Any]) -> Contents:
    return {
        name: [None if one is None else Content(**one) for one in known]
        for name, known in files.items()
    }
