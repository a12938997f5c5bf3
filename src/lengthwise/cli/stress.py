"""`lengthwise stress`: the stress suite."""

import argparse

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import load_model
from lengthwise.cli.output import columns, print_json


@command
class Stress(Command):
    """Test a model on special problems: long carries, unequal lengths, zeros, palindromes, …"""

    name = "stress"
    example = "lengthwise stress runs/my-run --lengths 5,20,100"

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_model(parser)
        parser.add_argument("--lengths", default="5,10", help="such as 5,20,100 (default: 5,10)")
        parser.add_argument(
            "--examples", type=int, default=200, help="most problems of a case (default: 200)"
        )
        arguments.add_problem_seed(parser)
        arguments.add_second_digits(parser)
        arguments.add_layers(parser)
        arguments.add_sharpness(parser)
        arguments.add_step(parser)
        arguments.add_device(parser)
        arguments.add_threads(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from rich.console import Console

        from lengthwise.evaluation.stress import stress, table

        outcomes = stress(
            load_model(chosen),
            chosen.lengths,
            chosen.examples,
            chosen.seed,
            chosen.layers,
            chosen.sharpness,
            progress=True,
        )
        if chosen.json:
            print_json([outcome.to_json() for outcome in outcomes])
        else:
            Console(width=columns()).print(table(outcomes))
