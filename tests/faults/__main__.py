"""Runs the harnesses at full counts and writes docs/faults.md: `make test-faults`.

`python tests/faults NAME ...` runs some of them; the other rows of the table stay.
"""

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
START = "| fault | tried | failed | date |\n| --- | ---: | ---: | --- |\n"


def in_parts(harness: Callable[[Path, int, int], Outcome], folder: Path, count: int) -> Outcome:
    """A harness in several processes, each with a folder, a part of the count and a seed."""
    folders = [folder / str(part) for part in range(PARTS)]
    for own in folders:
        own.mkdir(parents=True)
    with ProcessPoolExecutor(PARTS, get_context("fork")) as pool:
        outcomes = list(pool.map(harness, folders, [count // PARTS] * PARTS, range(PARTS)))
    return reduce(add, outcomes)


def damaged_runs(folder: Path) -> Iterator[Outcome]:
    runs = [damage.make_run(folder, "finished"), damage.make_run(folder, "interrupted", 15)]
    runs.append(damage.make_run(folder, "tuned", 15, {"start_from": str(runs[0])}))
    yield in_parts(partial(damage.damage_runs, runs), folder / "damaged", 7000)


def damaged_models(folder: Path) -> Iterator[Outcome]:
    run = damage.make_run(folder, "finished")
    yield in_parts(partial(damage.damage_model, run), folder / "damaged", 3000)


def killed_runs(folder: Path) -> Iterator[Outcome]:
    yield in_parts(partial(kill_part, {}), folder / "usual", PARTS)
    origin = damage.make_run(folder, "origin")
    changes = {"start_from": str(origin), "training.optimizer": "muon", "model.dropout": 0.1}
    yield in_parts(partial(kill_part, changes), folder / "tuned", PARTS)


def kill_part(changes: dict[str, Any], folder: Path, _: int, part: int) -> Outcome:
    return kills.kill_everywhere(folder, changes, PARTS, part)


def full_disks(folder: Path) -> Iterator[Outcome]:
    yield in_parts(fill_part, folder / "full", PARTS)


def fill_part(folder: Path, _: int, part: int) -> Outcome:
    return disk_full.fill_everywhere(folder, PARTS, part)


def raced_runs(folder: Path) -> Iterator[Outcome]:
    yield races.create_at_once(folder, rounds=50)
    yield races.create_two_under_one_name(folder, rounds=200)


def raced_sweeps(folder: Path) -> Iterator[Outcome]:
    yield races.sweep_twice(folder, rounds=8, sweeps=3)


def absurd_input(folder: Path) -> Iterator[Outcome]:
    yield fuzz.fuzz_problems(50_000, 0)
    yield fuzz.fuzz_python(30_000, 0)
    yield fuzz.fuzz_words(12_000, 0)
    yield fuzz.fuzz_yaml(7_000, 0)


def absurd_commands(folder: Path) -> Iterator[Outcome]:
    yield fuzz.fuzz_commands(1_000, 0, str(folder))


HARNESSES: dict[str, Callable[[Path], Iterator[Outcome]]] = {
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


def main(chosen: list[str]) -> int:
    torch.set_num_threads(1)
    today = time.strftime("%Y-%m-%d")
    failed = 0
    unknown = set(chosen) - HARNESSES.keys()
    if unknown:
        print(f"there is no harness {', '.join(unknown)}; there are {', '.join(HARNESSES)}")
        return 2
    for name in chosen or HARNESSES:
        with tempfile.TemporaryDirectory() as folder:
            found: dict[str, Outcome] = {}
            started = time.monotonic()
            for outcome in HARNESSES[name](Path(folder)):
                known = found.get(outcome.name)
                found[outcome.name] = known + outcome if known else outcome
                print(f"{outcome.name}: {outcome.tried} tried, {outcome.failed} failed", flush=True)
                for example in outcome.examples:
                    print(f"    {example}", flush=True)
        print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
        rows = {o.name: f"| {o.name} | {o.tried} | {o.failed} | {today} |" for o in found.values()}
        write_rows(rows)
        failed += sum(outcome.failed for outcome in found.values())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
