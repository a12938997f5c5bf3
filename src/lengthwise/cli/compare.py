"""`lengthwise compare`: runs side by side."""

import argparse
import sys
from pathlib import Path

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import columns, print_json


@command
class Compare(Command):
    """Compare runs: what differs in their configurations, accuracy by length, learning curves."""

    name = "compare"
    variadic = "chosen_runs"
    example = (
        "lengthwise compare runs/a runs/b --out figure.pdf\n"
        "  lengthwise compare 'runs/addition-*' --where seed=0,1 --where model.position=rope"
    )

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "chosen_runs",
            metavar="RUN",
            nargs="*",
            help="a run, or a pattern such as 'runs/add*' (default: all runs)",
        )
        parser.add_argument(
            "--where",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help="only runs with this value, or one of a list, as in seed=0,1",
        )
        parser.add_argument("--out", metavar="FILE", help="write a figure: .png, .pdf or .svg")
        parser.add_argument(
            "--length",
            type=arguments.positive,
            help="digits of the learning curves (default: one more than trained)",
        )
        arguments.add_runs(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.training.comparison import check_figure_name, compare

        if chosen.out:
            check_figure_name(Path(chosen.out))
        where = parse_where(chosen.where)
        comparison = compare(*chosen.chosen_runs, where=where, root=chosen.runs)
        if chosen.out:
            comparison.plot(chosen.out, chosen.length)
        for path, reason in comparison.skipped.items():
            print(f"skipped: {path}: {reason}", file=sys.stderr)
        if chosen.json:
            print_json(comparison.to_json())
            return
        print(comparison.describe(columns()))
        if chosen.out:
            print(f"\nwrote {chosen.out}")


def parse_where(conditions: list[str]) -> dict[str, list[object]]:
    """Conditions such as seed=0,1, as the accepted values of each key."""
    from lengthwise.base import UsageError
    from lengthwise.training.grid import split_values

    where: dict[str, list[object]] = {}
    for condition in conditions:
        key, equals, text = condition.partition("=")
        if not equals or not key.strip() or not text.strip():
            raise UsageError(f"--where is '{condition}', but a condition is KEY=VALUE")
        where[key.strip()] = split_values(key.strip(), text)
    return where
