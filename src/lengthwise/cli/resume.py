"""`lengthwise resume`: goes on with a run."""

import argparse

from lengthwise.cli.arguments import add_log, add_run, positive
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import find_path
from lengthwise.cli.train import finish


@command
class Resume(Command):
    """Go on with a run that was stopped."""

    name = "resume"
    on_several_processes = True
    example = "lengthwise resume runs/my-run"

    def add_arguments(self, parser: Parser) -> None:
        add_run(parser)
        parser.add_argument("--device", help="device to go on with: cpu, cuda or mps")
        parser.add_argument("--threads", type=positive, help="go on with this many CPU threads")
        add_log(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.training.runs import Run

        run = Run(find_path(chosen.run, chosen.runs))
        given = {key: getattr(chosen, key) for key in ("device", "threads")}
        update = {key: value for key, value in given.items() if value is not None}
        run.experiment = run.experiment.model_copy(update=update)
        finish(run, chosen.imports, chosen.log)
