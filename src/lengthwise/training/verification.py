"""Verifying whole directories of runs and saved models, and adopting those of older versions."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from lengthwise.base import UsageError
from lengthwise.base.manifest import MANIFEST, Content, Manifest, read_if_there
from lengthwise.solver import Solver, saved
from lengthwise.training.experiment import CONFIG, IDENTITY
from lengthwise.training.journal import seal
from lengthwise.training.locks import hold
from lengthwise.training.runs import (
    CHECKPOINT,
    ENVIRONMENT,
    FAILURE,
    METRICS,
    RESULT,
    WEIGHTS,
    Run,
    is_run,
)

# What versions without a manifest wrote.
OLDER_FILES = (
    *(CONFIG, IDENTITY, ENVIRONMENT, METRICS, CHECKPOINT, WEIGHTS, RESULT, FAILURE),
    *(saved.CONFIG, "record.json"),
)


def find_directories(root: Path) -> list[Path]:
    """The runs and the saved models in a directory."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a directory of runs")
    signs = (CONFIG, MANIFEST, saved.CONFIG)
    return [path for path in sorted(root.iterdir()) if any((path / s).exists() for s in signs)]


def verify(path: Path) -> list[str]:
    """All that is wrong with the files of a run or a saved model, a sentence each."""
    try:
        if not is_run(path):
            Solver.from_pretrained(saved.find_model(path.resolve()))
            return []
        run = Run(path)
        problems = [str(problem) for problem in run.manifest.problems()]
        if not problems:
            run.metrics  # noqa: B018  # reads them
            if run.status == "finished" or run.checkpoint.exists():
                run.load()
        return problems
    except UsageError as error:
        return [str(error)]


def adopt(path: Path) -> None:
    """Write a manifest of the files as they are, where there is none that is whole.

    It is kept if the run or the saved model can be read.
    """
    with suppress(UsageError):
        Manifest.load(path)
        return
    if not (path / CONFIG).is_file():
        if not (path / saved.CONFIG).is_file():
            raise UsageError(f"there is no run and no saved model at {path}")
        saved.write_manifest(path)
    else:
        with hold(path, patience=0.5):
            adopt_run(path)
    problems = verify(path)
    if problems:
        (path / MANIFEST).unlink()
        raise UsageError(problems[0])


def adopt_run(path: Path) -> None:
    files = {name: read_if_there(path / name) for name in OLDER_FILES}
    known = {name: Content.of(content) for name, content in files.items() if content is not None}
    manifest = Manifest(path, {name: [content] for name, content in known.items()})
    metrics = add_checksums(files[METRICS] or b"", path / METRICS)
    manifest.replace({METRICS: metrics}, grows=[] if files[RESULT] else [METRICS])
    manifest.settle()


def add_checksums(content: bytes, path: Path) -> bytes:
    """metrics.jsonl with the checksum of each line, which older versions didn't write."""
    sha256, lines = hashlib.sha256(), []
    for line in content.splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                record: dict[str, Any] = json.loads(line)
                record.pop("checksum", None)
            except (ValueError, AttributeError) as error:
                raise UsageError(f"{path} is damaged: {error}") from None
            lines.append(seal(record, sha256))
    return b"".join(lines)
