"""`lengthwise check`: every byte of runs and saved models."""

import argparse
from pathlib import Path

from lengthwise.cli.arguments import add_json, add_runs
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import print_json, print_table


@command
class Check(Command):
    """Check every byte of runs and saved models against their manifests."""

    name = "check"
    variadic = "directories"
    example = "lengthwise check runs/my-run\n  lengthwise check --runs runs"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "directories",
            metavar="RUN",
            nargs="*",
            help="runs or saved models (default: all in the directory of runs)",
        )
        parser.add_argument(
            "--adopt",
            action="store_true",
            help="first write a manifest of the files as they are, where there is none",
        )
        add_runs(parser)
        add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base import UsageError
        from lengthwise.training.verification import adopt, find_directories, verify

        given = [Path(name) for name in chosen.directories]
        problems: dict[str, list[str]] = {}
        for path in given or find_directories(Path(chosen.runs)):
            try:
                if chosen.adopt:
                    adopt(path)
                problems[str(path)] = verify(path)
            except ValueError as error:  # a UsageError, or a name that can't be a path
                problems[str(path)] = [str(error)]
        if chosen.json:
            print_json(problems)
        elif problems:
            rows = [(path, "; ".join(found) or "verified") for path, found in problems.items()]
            print_table(["directory", "files"], rows)
        else:
            print(f"there are no runs in {chosen.runs} yet; `lengthwise train` makes one")
        damaged = sum(map(bool, problems.values()))
        if damaged:
            raise UsageError(f"{damaged} of {len(problems)} can't be verified")
