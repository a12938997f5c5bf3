"""`lengthwise sweep`: trains a grid of experiments, and compares them."""

import argparse
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import columns, print_json

if TYPE_CHECKING:
    from lengthwise.training.experiment import Experiment

MOST_SEEDS = 10  # that are listed


@command
class Sweep(Command):
    """Train every combination of values, and compare.

    A list or a range of values is an axis. A range includes both ends: --seed 0:2 trains three
    seeds.
    """

    name = "sweep"
    usage = (
        "lengthwise sweep [GRID.yaml | STUDY.py[:FUNCTION]] [--KEY VALUE,VALUE ...] [--jobs N]"
        " [--on ENGINE] [--name NAME] [--runs DIR] [--retry] [--dry-run] [--log TRACKER] [--json]"
    )
    example = (
        "lengthwise sweep --model.position relative-key,rope,alibi --seed 0:2 --jobs 2\n"
        "  lengthwise sweep grid.yaml --training.steps 500\n"
        "  lengthwise sweep study.py   # runs what its function experiments() returns"
    )

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "--name", help="name of the result's files (default: sweep and a hash of the runs)"
        )
        arguments.add_runs(parser)
        parser.add_argument(
            "--retry", action="store_true", help="train runs that failed again, from the start"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="list the runs and train nothing"
        )
        arguments.add_log(parser)
        arguments.add_json(parser)
        arguments.add_engine(parser)

    def take_rest(self, chosen: argparse.Namespace, rest: list[str]) -> None:
        chosen.keys = rest  # parsed in `run`, since their names come from the configuration

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base import UsageError
        from lengthwise.base.files import to_json, write_atomically
        from lengthwise.sweep.study import default_name, run_sweep
        from lengthwise.training.runs import is_name

        if chosen.name is not None and not is_name(chosen.name):
            raise UsageError(f"--name is '{chosen.name}', but a name has letters, digits and -")
        engine = arguments.engine(chosen)
        experiments = find_experiments(chosen.keys)
        if chosen.dry_run:
            print_experiments(experiments)
            return
        print(f"{count_runs(experiments)} in {chosen.runs}", file=sys.stderr)
        root = Path(chosen.runs)
        result = run_sweep(experiments, root, engine, chosen.retry, log=chosen.log)
        base = root / (chosen.name or default_name(result.runs))
        write_atomically(base.with_name(f"{base.name}.json"), to_json(result.to_json()))
        result.plot(base.with_name(f"{base.name}.png"))
        if chosen.json:
            print_json(result.to_json())
        else:
            print(result.table(columns()))
            print(f"wrote {base}.json and {base}.png")
        failed = {r["run"]: r["failure"] for r in result if r["failure"]}
        for path, reason in failed.items():
            print(f"failed: {path}: {reason}", file=sys.stderr)
        if failed:
            raise UsageError(f"{len(failed)} of {len(result)} runs failed")


def find_experiments(words: list[str]) -> list["Experiment"]:
    """The experiments of a YAML grid, of a Python file, or of keys on the command line."""
    from lengthwise.base import UsageError
    from lengthwise.training import keys
    from lengthwise.training.grid import (
        FUNCTION,
        call_function,
        change,
        expand,
        parse_axes,
        read_grid,
    )

    file = words[0] if words and not words[0].startswith("-") else None
    fixed, axes = parse_axes(words[1:] if file else words)
    path, _, function = (file or "").partition(":")
    if path.endswith(".py"):
        found = call_function(Path(path), function or FUNCTION)
        combinations = expand_overrides(fixed, axes)
        return [change(experiment, overrides) for experiment in found for overrides in combinations]
    if file is None and not axes:
        raise UsageError("a sweep needs an axis, such as --model.position rope,alibi or --seed 0:2")
    fields, grid = read_grid(Path(path)) if file else ({}, {})
    for key in fixed.keys() & grid.keys():  # the command line has the last word
        del grid[key]
    return expand(keys.nest(fields, fixed), {**grid, **axes})


def expand_overrides(
    fixed: dict[str, object], axes: dict[str, list[object]]
) -> list[dict[str, object]]:
    """Every combination of the values of axes, each with the fixed keys."""
    combinations = itertools.product(*axes.values())
    return [{**fixed, **dict(zip(axes, values, strict=True))} for values in combinations]


def print_experiments(experiments: list["Experiment"]) -> None:
    for experiment in experiments:
        print(experiment)
    print(count_runs(experiments))


def count_runs(experiments: list["Experiment"]) -> str:
    """How many runs there are, and which seeds: 12 runs with 3 seeds (0, 1, 2)."""
    seeds = list(dict.fromkeys(experiment.seed for experiment in experiments))
    listed = [*map(str, seeds[:MOST_SEEDS]), *(["…"] if len(seeds) > MOST_SEEDS else [])]
    runs = "run" if len(experiments) == 1 else "runs"
    return (
        f"{len(experiments)} {runs} with {len(seeds)} seed{'s'[: len(seeds) > 1]}"
        f" ({', '.join(listed)})"
    )
