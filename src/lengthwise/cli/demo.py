"""`lengthwise demo`: the paper in miniature."""

import argparse
from pathlib import Path

from lengthwise.cli.arguments import add_jobs, add_runs
from lengthwise.cli.command import Command, Parser, command


@command
class Demo(Command):
    """Show the paper's effects in minutes: a table and a figure."""

    name = "demo"
    example = "lengthwise demo"

    def add_arguments(self, parser: Parser) -> None:
        add_jobs(parser)
        parser.add_argument("--again", action="store_true", help="train finished runs again")
        parser.add_argument(
            "--smoke", action="store_true", help="train for a few steps only, to test the path"
        )
        add_runs(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.paper.demo import demo

        demo(Path(chosen.runs), chosen.jobs, chosen.again, chosen.smoke)
