"""`lengthwise evaluate`: accuracy by length."""

import argparse
import sys
from pathlib import Path

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import find_path, load_model
from lengthwise.cli.output import print_accuracies, print_json


@command
class Evaluate(Command):
    """Measure a model's accuracy by length on fresh problems."""

    name = "evaluate"
    example = (
        "lengthwise evaluate runs/my-run --lengths 5:10 --examples 10000\n"
        "  lengthwise evaluate runs/my-run --grid 1:10 --out grid.png"
    )

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_model(parser)
        parser.add_argument(
            "--lengths", help="such as 5:20 or 5,10,20 (default: all that the layout has room for)"
        )
        parser.add_argument(
            "--grid",
            metavar="LENGTHS[xLENGTHS]",
            help="accuracy over the digits of both operands, such as 1:20, or 1:20x1:3 where the"
            " second is shorter",
        )
        parser.add_argument(
            "--out", metavar="FILE", help="draw the grid as a heat map (.png, .pdf or .svg)"
        )
        parser.add_argument(
            "--examples",
            type=int,
            help="problems of each length (default: 1000), or of each cell of a grid (100)",
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
        arguments.add_step(parser)
        arguments.add_device(parser)
        arguments.add_threads(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base import UsageError
        from lengthwise.evaluation.accuracy import evaluate

        if chosen.grid is not None:
            return run_grid(chosen)
        if chosen.out is not None:
            raise UsageError("--out draws a grid, so it needs --grid")
        accuracies = evaluate(
            load_model(chosen),
            chosen.lengths,
            1000 if chosen.examples is None else chosen.examples,
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


def run_grid(chosen: argparse.Namespace) -> None:
    from lengthwise.base import UsageError
    from lengthwise.evaluation.grid import evaluate_grid

    given = {"--lengths": chosen.lengths, "--digits": chosen.digits}
    given["--sampling"] = chosen.sampling != "exact"
    if unused := [option for option, value in given.items() if value]:
        raise UsageError(f"{unused[0]} does not go with --grid, whose operands have exact lengths")
    first, has_second, second = chosen.grid.partition("x")
    if has_second and not second:
        raise UsageError("--grid needs lengths behind the x, such as 1:20x1:3")
    grid = evaluate_grid(
        load_model(chosen),
        first,
        second or None,
        100 if chosen.examples is None else chosen.examples,
        chosen.seed,
        chosen.layers,
        chosen.sharpness,
        progress=True,
    )
    if chosen.json:
        print_json(grid.to_json())
    else:
        print("exact match (%): digits of the first operand (rows) × of the second (columns)")
        print(grid.table())
    if chosen.out is not None:
        grid.plot(trained_digits(chosen)).write(chosen.out)
        print(f"see {chosen.out}", file=sys.stderr)


def trained_digits(chosen: argparse.Namespace) -> int | None:
    """The longest problems that a run was trained on; None for other models."""
    from lengthwise.training.experiment import CONFIG
    from lengthwise.training.runs import Run

    path = Path(find_path(chosen.run, chosen.runs))
    return Run(path).experiment.data.train_digits if (path / CONFIG).is_file() else None
