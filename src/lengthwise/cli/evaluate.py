"""`lengthwise evaluate`: accuracy by length."""

import argparse

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import load_model
from lengthwise.cli.output import print_accuracies, print_json


@command
class Evaluate(Command):
    """Measure a model's accuracy by length on fresh problems."""

    name = "evaluate"
    example = "lengthwise evaluate runs/my-run --lengths 5:10 --examples 10000"

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_model(parser)
        parser.add_argument(
            "--lengths", help="such as 5:20 or 5,10,20 (default: all that the layout has room for)"
        )
        parser.add_argument(
            "--examples", type=int, default=1000, help="problems of each length (default: 1000)"
        )
        arguments.add_problem_seed(parser)
        parser.add_argument(
            "--sampling",
            default="exact",
            help="how operands are sampled, as in data.sampling (default: exact)",
        )
        arguments.add_second_digits(parser)
        arguments.add_layers(parser)
        arguments.add_sharpness(parser)
        parser.add_argument(
            "--digits", action="store_true", help="show the accuracy of each digit too"
        )
        arguments.add_device(parser)
        arguments.add_threads(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.evaluation.accuracy import evaluate

        accuracies = evaluate(
            load_model(chosen),
            chosen.lengths,
            chosen.examples,
            chosen.seed,
            sampling=chosen.sampling,
            layers=chosen.layers,
            sharpness=chosen.sharpness,
            progress=True,
        )
        results = [accuracy.to_json() for accuracy in accuracies]
        if chosen.json:
            print_json(results)
        else:
            print_accuracies(results, chosen.digits)
