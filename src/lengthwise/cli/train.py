"""`lengthwise train`: trains a model."""

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.cli.arguments import add_log, add_runs
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import print_accuracies, print_table

if TYPE_CHECKING:
    from lengthwise.training.runs import Run


@command
class Train(Command):
    """Train a model. Every configuration key can be set, as --key value."""

    name = "train"
    on_several_processes = True
    usage = (
        "lengthwise train [CONFIG.yaml] [--KEY VALUE ...] [--keys] [--name NAME] [--runs DIR]"
        " [--again] [--log TRACKER] [--import FILE]"
    )
    example = "lengthwise train --task addition --model.position absolute --training.steps 2000"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "--keys",
            dest="list_keys",
            action="store_true",
            help="list the configuration keys, with the options of the choices made so far",
        )
        parser.add_argument(
            "--name", help="the run's directory (default: task, position embedding and a hash)"
        )
        add_runs(parser)
        parser.add_argument(
            "--again", action="store_true", help="train again if the run has finished"
        )
        add_log(parser)

    def take_rest(self, chosen: argparse.Namespace, rest: list[str]) -> None:
        chosen.keys = rest  # parsed in `run`, since their names come from the configuration

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.training import api, keys
        from lengthwise.training.trackers import find_tracker
        from lengthwise.training.yaml import read_yaml

        words: list[str] = chosen.keys
        file = words.pop(0) if words and not words[0].startswith("-") else None
        overrides = keys.parse_overrides(words)
        if chosen.list_keys:
            fields = read_yaml(Path(file)) if file else {}
            print_keys(keys.nest(fields, overrides))
            return
        experiment = keys.load(file, overrides)
        find_tracker(chosen.log)  # before a run is made
        run = api.create_run(experiment, chosen.runs, chosen.name, chosen.again)
        finish(run, chosen.imports, chosen.log)


def print_keys(fields: Mapping[str, Any]) -> None:
    """Every key with its default; of a choice, the options of the kind that `fields` choose."""
    from lengthwise.training import keys

    rows = [
        (f"--{key.name} {key.default}", key.description)
        for key in keys.keys(keys.chosen_kinds(fields))
    ]
    print_table([], rows)


def finish(run: "Run", imports: list[str], log: str | None = None) -> None:
    """Train a run to its end, and print its accuracy or how to go on."""
    from lengthwise.training import distributed

    with distributed.join(run.experiment.device.partition(":")[0]).only_first_prints():
        train_and_print(run, imports, log)


def train_and_print(run: "Run", imports: list[str], log: str | None) -> None:
    from lengthwise.training import api

    again = "".join(f" --import {shlex.quote(name)}" for name in imports)
    if run.result is not None:
        run.manifest.verify()
        run.tidy()
        print(f"{run.path} has finished already (`lengthwise train … --again` trains it again)")
    else:
        steps, warmup = run.experiment.steps, run.experiment.training.warmup_steps
        print(f"{run.path}: {steps} steps", file=sys.stderr)
        if warmup > steps:
            note = f"the learning rate only rises: training.warmup_steps is {warmup}"
            print(note, file=sys.stderr)
        try:
            api.resume(run, log=log)
        except KeyboardInterrupt:
            saved = "saved; " if run.checkpoint.exists() else ""
            print(f"\n{saved}go on with: lengthwise resume {run.path}{again}", file=sys.stderr)
            raise
    assert run.result is not None
    print_accuracies(run.result["evaluation"])
    if run.weights.exists():
        print(f'try it: lengthwise solve {run.path} "{example_problem(run)}"{again}')


def example_problem(run: "Run") -> str:
    """A problem one digit longer than those of training, if there is room."""
    data, task = run.experiment.data, run.experiment.task
    first, *others = task.operand_digits(min(data.train_digits + 1, data.test_digits))
    return f" {task.symbol} ".join(["9" * first, *("123456789"[: min(n, 9)] for n in others)])
