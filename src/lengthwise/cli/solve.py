"""`lengthwise solve`: a model's answers."""

import argparse
import sys
from typing import TYPE_CHECKING, TextIO

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import load_model
from lengthwise.cli.output import print_json

if TYPE_CHECKING:
    from lengthwise.solver.solver import Solution


MOST_CHARACTERS = 100_000_000  # of a file of problems


@command
class Solve(Command):
    """Ask a model: the answer, whether it is right, and the confidence in each digit."""

    name = "solve"
    variadic = "problems"
    example = (
        'lengthwise solve runs/my-run "99999 + 1"\n'
        "  lengthwise solve runs/my-run --file problems.txt --json\n"
        "  seq -f '%.0f + 1' 5 | lengthwise solve runs/my-run -"
    )

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_model(parser)
        parser.add_argument(
            "problems",
            metavar="PROBLEM",
            nargs="*",
            help='such as "99999 + 1"; × may be written x; - reads standard input',
        )
        parser.add_argument("--file", metavar="FILE", help="a file with one problem on each line")
        arguments.add_layers(parser)
        arguments.add_step(parser)
        arguments.add_device(parser)
        arguments.add_threads(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from dataclasses import asdict

        sys.set_int_max_str_digits(0)  # answers may have any number of digits
        problems = read_problems(chosen.problems, chosen.file)
        solutions = load_model(chosen).explain(problems, chosen.layers, progress=True)
        if chosen.json:
            print_json([asdict(solution) for solution in solutions])
        else:
            for solution in solutions:
                print_solution(solution)


def read_problems(words: list[str], file: str | None) -> list[str]:
    """The problems of the command line, of standard input where a word is -, and of a file."""
    from lengthwise.base import UsageError

    problems: list[str] = []
    for word in words:
        problems += read_lines(sys.stdin, "standard input") if word == "-" else [word]
    if file is not None:
        with open(file, encoding="utf-8") as opened:
            problems += read_lines(opened, file)
    if not problems:
        raise UsageError("there is no problem to solve; write one such as 12 + 34")
    return problems


def read_lines(file: TextIO, name: str) -> list[str]:
    from lengthwise.base import UsageError

    try:
        text = file.read(MOST_CHARACTERS + 1)  # a device may have no end
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not a text file in UTF-8") from None
    if len(text) > MOST_CHARACTERS:
        raise UsageError(f"{name} has more than {MOST_CHARACTERS} characters; solve it in parts")
    return [line for line in text.splitlines() if line.strip()]


def print_solution(solution: "Solution") -> None:
    output = " ".join(solution.symbols)
    answer = f"not a number: {output}" if solution.answer is None else str(solution.answer)
    verdict = "right" if solution.right else f"wrong, it is {solution.correct}"
    print(f"{solution.problem.strip(' =')} = {answer}   ({verdict})")
    pairs = zip(solution.symbols, solution.confidences, strict=True)
    shown = [f"{symbol} {100 * share:.0f} %" for symbol, share in pairs if symbol != "<PAD>"]
    if shown:
        print("   " + "  ".join(shown))
