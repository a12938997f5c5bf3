"""`lengthwise extend`: trains a finished run for more steps, as a new run."""

import argparse

from lengthwise.cli.arguments import add_log, add_run, positive
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import find_path
from lengthwise.cli.train import finish


@command
class Extend(Command):
    """Train a finished run for more steps, as a new run that goes on with its optimiser."""

    name = "extend"
    usage = (
        "lengthwise extend RUN --steps N [--KEY VALUE ...] [--fresh-optimizer] [--name NAME]"
        " [--runs DIR] [--log TRACKER] [--import FILE]"
    )
    example = "lengthwise extend runs/my-run --steps 1000 --training.learning_rate 5e-4"

    def add_arguments(self, parser: Parser) -> None:
        add_run(parser)
        parser.add_argument(
            "--steps", type=positive, required=True, help="the steps of the new run"
        )
        parser.add_argument(
            "--fresh-optimizer",
            action="store_true",
            help="start with a fresh optimiser; else the run must have training.keep_optimizer",
        )
        parser.add_argument("--name", help="the new run's directory")
        add_log(parser)

    def take_rest(self, chosen: argparse.Namespace, rest: list[str]) -> None:
        chosen.keys = rest  # changes of the configuration

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.training import api, keys
        from lengthwise.training.runs import Run
        from lengthwise.training.trackers import find_tracker

        find_tracker(chosen.log)
        changes = keys.parse_overrides(chosen.keys)
        origin = Run(find_path(chosen.run, chosen.runs))
        experiment = api.extension(origin, chosen.steps, changes, chosen.fresh_optimizer)
        run = api.create_run(experiment, chosen.runs, chosen.name, again=False)
        finish(run, chosen.imports, chosen.log)
