"""Damage: changed, lost and added bytes in every file of runs and saved models."""

import itertools
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from faults.outcome import Outcome
from lengthwise.base import UsageError
from lengthwise.base.manifest import MANIFEST, Manifest
from lengthwise.solver import Solver, saved
from lengthwise.training import api, keys, loop
from lengthwise.training.locks import LOCK
from lengthwise.training.loop import train
from lengthwise.training.overview import overview
from lengthwise.training.runs import METRICS, Run

SETTING: dict[str, Any] = {
    "model.layers": 1,
    "model.width": 8,
    "model.heads": 2,
    "data.train_digits": 2,
    "data.test_digits": 4,
    "data.train_size": 100,
    "training.steps": 30,
    "training.batch_size": 4,
    "training.log_every": 4,
    "training.checkpoint_every": 15,
    "evaluation.every": 12,
    "evaluation.examples": 4,
    "evaluation.final_examples": 8,
}
# What someone may change by hand, or a bad disk turn into something valid.
TARGETS: tuple[tuple[bytes, bytes], ...] = (
    (b'"dtype":"F32"', b'"dtype":"I32"'),
    (b'"step":"15"', b'"step":"29"'),
    (b"symbols.weight", b"symbolz.weight"),
    (b"heads: 2", b"heads: 4"),
    (b"activation: relu", b"activation: gelu"),
    (b'"heads": 2', b'"heads": 4'),
    (b'"exact_match"', b'"exact_natch"'),
    (b'"correct": 0', b'"correct": 4'),
    (b'"step": 4', b'"step": 5'),
    (b'"loss": 2', b'"loss": 1'),
    (b'"seconds"', b'"seconbs"'),
    (b"seed: 0", b"seed: 1"),
    (b"start_from: /", b"start_from: ."),
    (b'"size": 1', b'"size": 2'),
    (b"\n", b" "),
    (b"}\n", b"}"),
)


def make_run(
    root: Path, name: str, stop: int | None = None, changes: dict[str, Any] | None = None
) -> Path:
    """A small run that has finished, or was killed after a step."""
    run = Run.create(keys.load(None, {**SETTING, **(changes or {})}), root, name)
    steps = train(run)
    for progress in steps:
        if progress.step == stop:
            with patch.object(loop, "save_checkpoint"):  # leaving the loop early would call it
                steps.close()  # type: ignore[attr-defined]
    return run.path


def damages(content: bytes, rng: random.Random) -> Iterator[bytes | None]:
    """Endless damaged versions of a file; None is a file that was lost."""
    while True:
        place, kind = rng.randrange(len(content)), rng.randrange(12)
        before, byte, after = content[:place], content[place], content[place + 1 :]
        if kind < 4:
            yield before + bytes([byte ^ 1 << rng.randrange(8)]) + after
        elif kind < 6:
            yield before + bytes([rng.randrange(256)]) + after
        elif kind == 6:
            yield before + after
        elif kind == 7:
            yield before + bytes([rng.randrange(256), byte]) + after
        elif kind == 8:
            yield before
        elif kind == 9:
            yield before + bytes(min(16, len(content) - place)) + after[15:]
        elif kind == 10:
            yield None if rng.random() < 0.3 else content + bytes([rng.randrange(256)])
        else:
            old, new = rng.choice(TARGETS)
            yield content.replace(old, new, rng.choice([1, -1]))


def damage_files(
    name: str,
    directories: Sequence[Path],
    count: int,
    seed: int,
    check: Callable[[Path, Path], str | None],
) -> Outcome:
    """Damage one file at a time, check what is said about it, and mend it."""
    rng, outcome = random.Random(seed), Outcome(name)
    files = [path for d in directories for path in sorted(d.iterdir()) if path.name != LOCK]
    sources = {path: (content := path.read_bytes(), damages(content, rng)) for path in files}
    while outcome.tried < count:
        path = rng.choice(files)
        content, damaged = sources[path]
        new = next(damaged)
        if new == content or not is_damage(path, content, new):
            continue
        path.unlink() if new is None else path.write_bytes(new)
        try:
            failure = check(path.parent, path)
            outcome.add(failure and f"{path.name}, {describe(content, new)}: {failure}")
        finally:
            path.write_bytes(content)
    return outcome


def is_damage(path: Path, content: bytes, new: bytes | None) -> bool:
    """What stands behind the last record of an unfinished run is a line that a kill cut off."""
    if path.name != METRICS or new is None or not new.startswith(content):
        return True
    known = Manifest.load(path.parent).contents[METRICS][-1]
    return not (known and known.grows)


def describe(content: bytes, new: bytes | None) -> str:
    if new is None:
        return "lost"
    pairs = zip(content, new, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(content), len(new)))
    return f"{len(content)} → {len(new)} bytes, other from byte {at}: {new[at : at + 10]!r}"


def damage_runs(runs: Sequence[Path], folder: Path, count: int, seed: int) -> Outcome:
    """Damage copies of runs beside a good one, which must stay listed."""
    copies = []
    for run in runs:
        shutil.copytree(runs[0], folder / run.name / "good")
        copies.append(Path(shutil.copytree(run, folder / run.name / "damaged")))
    turns = itertools.cycle([lambda run: api.load(run), lambda run: list(train(Run(run)))])

    def check(run: Path, damaged: Path) -> str | None:
        rows = {row["run"]: row for row in overview(run.parent)}
        good = rows[str(run.parent / "good")]
        if good["status"] == "damaged":
            return f"a good run is listed as damaged: {good['reason']}"
        listed = not damaged.name.endswith(".safetensors")  # too large for a list
        if listed and damaged.name not in rows.get(str(run), {}).get("reason", ""):
            return f"listed as {rows.get(str(run))}"
        return refusal(partial(next(turns), run), damaged.name, run)

    return damage_files("damaged runs", copies, count, seed, check)


def damage_model(run: Path, folder: Path, count: int, seed: int) -> Outcome:
    """Damage a saved model."""
    api.load(run).save_pretrained(folder / "saved")
    (folder / "saved" / "README.md").unlink()  # whose changes are a warning
    saved.write_manifest(folder / "saved")

    def check(directory: Path, damaged: Path) -> str | None:
        for act in (lambda: api.load(directory), lambda: Solver.from_pretrained(directory)):
            if (failure := refusal(act, damaged.name, directory)) is not None:
                return failure
        return None

    return damage_files("damaged saved models", [folder / "saved"], count, seed, check)


def refusal(act: Callable[[], object], name: str, directory: Path) -> str | None:
    """Why an action's answer to a damaged file is not the sentence that it should be."""
    try:
        act()
    except UsageError as error:
        if name in str(error) and str(directory) in str(error) and "\n" not in str(error):
            return None
        return f"the error doesn't name it: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted" if name != MANIFEST else "a damaged manifest is accepted"
