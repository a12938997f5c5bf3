"""`lengthwise log`: sends the records of runs to a tracker."""

import argparse

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command


@command
class Log(Command):
    """Send the records of runs to TensorBoard or Weights & Biases."""

    name = "log"
    variadic = "chosen_runs"
    example = "lengthwise log runs/my-run --to tensorboard"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "chosen_runs", metavar="RUN", nargs="*", help="a run, or a pattern such as 'runs/add*'"
        )
        parser.add_argument("--to", metavar="TRACKER", required=True, help="tensorboard or wandb")
        arguments.add_runs(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base import UsageError
        from lengthwise.training.comparison import compare
        from lengthwise.training.trackers import find_tracker, send

        tracker = find_tracker(chosen.to)
        assert tracker is not None
        if not chosen.chosen_runs:
            raise UsageError("name the runs to send; `lengthwise runs` lists the runs")
        for run in compare(*chosen.chosen_runs, root=chosen.runs).runs:
            send(run, tracker)
            print(f"{run.path}: sent to {chosen.to}")
