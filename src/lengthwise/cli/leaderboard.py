"""`lengthwise leaderboard`: a page from the reports of `lengthwise verify`."""

import argparse
from pathlib import Path

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command


@command
class Leaderboard(Command):
    """Render a page of all verified claims, as Markdown and HTML."""

    name = "leaderboard"
    variadic = "reports"
    example = "lengthwise leaderboard\n  lengthwise leaderboard results/verified/mine.json"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "reports",
            metavar="REPORT",
            nargs="*",
            help="files or folders (default: RESULTS/verified)",
        )
        arguments.add_results(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.frontier.leaderboard import markdown, read_reports, write_leaderboard

        results = Path(chosen.results)
        reports = read_reports(map(Path, chosen.reports or [results / "verified"]))
        write_leaderboard(reports, results)
        print("\n".join(markdown(reports)))
        print(f"wrote {results / 'leaderboard.md'} and {results / 'leaderboard.html'}")
