"""`lengthwise show`: the tokens of a problem."""

import argparse
from pathlib import Path

from lengthwise.cli.arguments import add_json, add_runs
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import load_model
from lengthwise.cli.output import print_json, print_table


@command
class Show(Command):
    """Show how a problem is written: tokens, coordinates, and where the answer is read."""

    name = "show"
    example = 'lengthwise show runs/my-run "12 + 345"'

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "run", metavar="RUN", help="a run, a saved model or a configuration file (.yaml)"
        )
        parser.add_argument(
            "problem", metavar="PROBLEM", help='such as "12 + 345"; × may be written x'
        )
        add_runs(parser)
        add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.training import keys

        is_config = Path(chosen.run).suffix in (".yaml", ".yml")
        solver = keys.load(chosen.run).build() if is_config else load_model(chosen)
        tokens = solver.show(chosen.problem)
        if chosen.json:
            print_json(tokens)
        else:
            print_table(list(tokens[0]), [list(token.values()) for token in tokens])
