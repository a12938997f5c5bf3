"""Runs the harnesses and writes the table of docs/faults.md: `make test-faults`.

`python tests/faults --share 0.1 NAME ...` tries a tenth of each, and only some of them; the other
rows of the table stay.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial, reduce
from multiprocessing import get_context
from operator import add
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from faults import damage, disk_full, fuzz, kills, races
from faults.outcome import Outcome

PAGE = Path(__file__).parent.parent.parent / "docs" / "faults.md"
PARTS = 4  # processes of a harness that takes long
START = "| fault | tried | failed | commit | date |\n| --- | ---: | ---: | --- | --- |\n"


def some(count: int, share: float) -> int:
    return max(PARTS, round(count * share))


def in_parts(harness: Callable[[Path, int, int], Outcome], folder: Path, count: int) -> Outcome:
    """A harness in several processes, each with a folder, a part of the count and a seed."""
    folders = [folder / str(part) for part in range(PARTS)]
    for own in folders:
        own.mkdir(parents=True)
    with ProcessPoolExecutor(PARTS, get_context("fork")) as pool:
        outcomes = list(pool.map(harness, folders, [count // PARTS] * PARTS, range(PARTS)))
    return reduce(add, outcomes)


def damaged_runs(folder: Path, share: float) -> Iterator[Outcome]:
    runs = [damage.make_run(folder, "finished"), damage.make_run(folder, "interrupted", 15)]
    runs.append(damage.make_run(folder, "tuned", 15, {"start_from": str(runs[0])}))
    kept = {"training.keep_checkpoints": [0, 15], "training.keep_optimizer": True}
    runs.append(damage.make_run(folder, "kept", changes=kept))
    yield in_parts(partial(damage.damage_runs, runs), folder / "damaged", some(7000, share))


def damaged_models(folder: Path, share: float) -> Iterator[Outcome]:
    run = damage.make_run(folder, "finished")
    yield in_parts(partial(damage.damage_model, run), folder / "damaged", some(3000, share))


def killed_runs(folder: Path, share: float) -> Iterator[Outcome]:
    every = PARTS * round(1 / share)
    yield in_parts(partial(kill_part, {}, every), folder / "usual", PARTS)
    origin = damage.make_run(folder, "origin")
    changes = {"start_from": str(origin), "training.optimizer": "muon", "model.dropout": 0.1}
    yield in_parts(partial(kill_part, changes, every), folder / "tuned", PARTS)


def kill_part(changes: dict[str, Any], every: int, folder: Path, _: int, part: int) -> Outcome:
    return kills.kill_everywhere(folder, changes, every, part * every // PARTS)


def full_disks(folder: Path, share: float) -> Iterator[Outcome]:
    yield in_parts(partial(fill_part, PARTS * round(1 / share)), folder / "full", PARTS)


def fill_part(every: int, folder: Path, _: int, part: int) -> Outcome:
    return disk_full.fill_everywhere(folder, every, part * every // PARTS)


def raced_runs(folder: Path, share: float) -> Iterator[Outcome]:
    yield races.create_at_once(folder, rounds=some(50, share))
    yield races.create_two_under_one_name(folder, rounds=some(200, share))


def raced_sweeps(folder: Path, share: float) -> Iterator[Outcome]:
    yield races.sweep_twice(folder, rounds=max(1, round(8 * share)), sweeps=3)


def absurd_input(folder: Path, share: float) -> Iterator[Outcome]:
    yield fuzz.fuzz_problems(some(50_000, share), 0)
    yield fuzz.fuzz_python(some(30_000, share), 0)
    yield fuzz.fuzz_words(some(12_000, share), 0)
    yield fuzz.fuzz_yaml(some(7_000, share), 0)


def absurd_commands(folder: Path, share: float) -> Iterator[Outcome]:
    yield fuzz.fuzz_commands(some(1_000, share), 0, str(folder))


HARNESSES: dict[str, Callable[[Path, float], Iterator[Outcome]]] = {
    "damaged-runs": damaged_runs,
    "damaged-models": damaged_models,
    "kills": killed_runs,
    "full-disks": full_disks,
    "races": raced_runs,
    "sweeps": raced_sweeps,
    "absurd-input": absurd_input,
    "absurd-commands": absurd_commands,
}


def write_rows(rows: dict[str, str]) -> None:
    """Put rows into the table of the page, in place of those of the same name."""
    before, _, rest = PAGE.read_text().partition(START)
    lines = rest.split("\n")
    old = [line for line in lines if line.startswith("| ")]
    table = {line.split(" | ")[0].removeprefix("| "): line for line in old} | rows
    after = "\n".join(line for line in lines if not line.startswith("| "))
    PAGE.write_text(before + START + "\n".join(table.values()) + "\n" + after)


def commit() -> str:
    """The commit that is tried, with a + if files were changed, but for the page."""
    git = partial(subprocess.run, cwd=PAGE.parent, capture_output=True, text=True, check=True)
    changed = git(["git", "status", "--porcelain", "--", "..", f":!{PAGE.name}"]).stdout
    return git(["git", "rev-parse", "--short=8", "HEAD"]).stdout.strip() + ("+" if changed else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(HARNESSES))
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts (default: 1)")
    options = parser.parse_args()
    unknown = set(options.names) - HARNESSES.keys()
    if unknown or not 0 < options.share <= 1:
        parser.error(f"names are of {', '.join(HARNESSES)}, and the share is above 0, at most 1")
    torch.set_num_threads(1)
    tried, failed = f"{commit()} | {time.strftime('%Y-%m-%d')}", 0
    for name in options.names or HARNESSES:
        with tempfile.TemporaryDirectory() as folder:
            found: dict[str, Outcome] = {}
            started = time.monotonic()
            for outcome in HARNESSES[name](Path(folder), options.share):
                known = found.get(outcome.name)
                found[outcome.name] = known + outcome if known else outcome
                print(f"{outcome.name}: {outcome.tried} tried, {outcome.failed} failed", flush=True)
                for example in outcome.examples:
                    print(f"    {example}", flush=True)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
        rows = {o.name: f"| {o.name} | {o.tried} | {o.failed} | {tried} |" for o in found.values()}
        write_rows(rows)
        failed += sum(outcome.failed for outcome in found.values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
