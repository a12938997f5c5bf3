"""`lengthwise verify`: tests a claim about any model."""

import argparse
import re
from pathlib import Path
from typing import Any

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import print_json, print_table


@command
class Verify(Command):
    """Test a claim about any model on fresh problems, and write a report."""

    name = "verify"
    example = (
        'lengthwise verify runs/my-run --claim "addition:5->1000"\n'
        '  lengthwise verify model.py --claim "multiplication:5x3->20" --trained "5 by 3 digits"\n'
        '  lengthwise verify "command:./solver --fast" --claim "addition:5->100@99%"'
    )

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "model",
            metavar="MODEL",
            help="a run, a saved model, a repository on the Hub, a Python file with"
            " solve(problems), or command:WORDS, which reads and writes a line for each problem",
        )
        parser.add_argument("--claim", required=True, help="such as addition:5->1000")
        parser.add_argument(
            "--seed", type=arguments.natural, help="seed of the problems (default: a fresh one)"
        )
        parser.add_argument(
            "--problems",
            type=arguments.positive,
            default=100,
            help="random problems of each length (default: 100)",
        )
        parser.add_argument(
            "--stress",
            type=arguments.natural,
            default=3,
            help="problems of each stress case at each length (default: 3)",
        )
        parser.add_argument(
            "--seconds",
            type=arguments.positive,
            default=600,
            help="time limit for each length (default: 600)",
        )
        parser.add_argument(
            "--megabytes",
            type=arguments.positive,
            default=4000,
            help="memory limit (default: 4000)",
        )
        parser.add_argument("--trained", metavar="TEXT", help="what the model was trained on")
        arguments.add_runs(parser)
        arguments.add_results(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base.files import write_json, writing
        from lengthwise.cli.models import find_path
        from lengthwise.frontier.claims import parse_claim
        from lengthwise.frontier.sandbox import Limits
        from lengthwise.frontier.verify import COMMAND, seal, verify

        source = chosen.model
        if not source.startswith(COMMAND) and not source.endswith(".py"):
            source = str(find_path(source, chosen.runs))
        claim, folder = parse_claim(chosen.claim), Path(chosen.results) / "verified"
        with writing(folder):  # before minutes of testing
            folder.mkdir(parents=True, exist_ok=True)
        limits = Limits(chosen.seconds, chosen.megabytes)
        report = verify(
            source, claim, chosen.seed, chosen.problems, chosen.stress, limits, chosen.trained
        )
        report = seal(report)
        words = re.sub(r"[^\w.-]+", "-", f"{report['model']['source']}-{claim.text}").strip("-")
        path = folder / f"{words[:100]}.json"
        write_json(path, report)
        if chosen.json:
            print_json(report)
        else:
            print_report(report)
            print(f"wrote {path}")


def print_report(report: dict[str, Any]) -> None:
    """The tests, the verdict, and the worst case."""
    headings = ["digits", "problems", "right", "seconds", "MB", "how it ended"]
    rows = [
        [
            *(test[key] for key in ("digits", "problems", "right", "seconds")),
            test["peak megabytes"] or "?",
            test["failure"] or "answered all",
        ]
        for test in report["tests"]
    ]
    print_table(headings, rows)
    worst, outside = report["worst case"], report["arithmetic outside of the network"]
    parameters = report["model"]["parameters"]
    print(f"\nclaim: {report['claim']}: {report['verdict']}")
    print(f"errors: {report['errors']} of {report['problems']}")
    if worst["failures"]:
        failure = worst["failures"][0]
        print(f"worst case: {worst['kind']}, {worst['digits']} digits,", end=" ")
        print(f"{worst['right']} of {worst['problems']} right; such as {failure['problem']}")
        print(f"  answered {failure['answer']}, but it is {failure['correct']}")
    print(f"parameters: {f'{parameters:,}' if parameters else 'not checkable'}")
    print(f"arithmetic outside of the network: {outside['verdict']}: {outside['reason']}")
