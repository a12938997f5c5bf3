"""`lengthwise trace`: what a model computes inside."""

import argparse
import sys
from itertools import product
from pathlib import Path

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import load_model
from lengthwise.cli.output import print_json


@command
class TraceProblem(Command):
    """Look inside a model: answers after each layer, and where each head looks."""

    name = "trace"
    example = (
        'lengthwise trace runs/my-run "99999 + 1"\n'
        '  lengthwise trace runs/my-run "99999 + 1" --layer 2 --head 1 --out pattern.png\n'
        '  lengthwise trace runs/my-run "99999 + 1" --what answers --out answers.png'
    )

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_model(parser)
        parser.add_argument(
            "problem", metavar="PROBLEM", help='such as "99999 + 1"; × may be written x'
        )
        parser.add_argument(
            "--layer", type=arguments.positive, help="from 1 (default: a figure shows all)"
        )
        parser.add_argument(
            "--head", type=arguments.positive, help="from 1 (default: a figure shows all)"
        )
        parser.add_argument(
            "--what",
            default="patterns",
            help="what the figure shows: patterns, scores or answers (default: patterns)",
        )
        parser.add_argument("--out", metavar="FILE", help="draw a figure (.png, .pdf or .svg)")
        parser.add_argument("--save", metavar="FILE", help="save all arrays for NumPy (.npz)")
        arguments.add_layers(parser)
        arguments.add_step(parser)
        arguments.add_device(parser)
        arguments.add_threads(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        sys.set_int_max_str_digits(0)  # answers may have any number of digits
        trace = load_model(chosen).trace(chosen.problem, chosen.layers)
        layer, head = chosen.layer, chosen.head
        labels = {a: v for a, v in (("layer", layer), ("head", head)) if v is not None}
        if labels:
            trace.select("patterns", **labels)  # refuses labels that are not there
        if chosen.json:
            (found,) = trace.to_json(layer, head)
            print_json(found)
        else:
            print(trace.table())
            layers = trace.labels("layer") if layer is None else [layer]
            heads = trace.labels("head") if head is None else [head]
            for one_layer, one_head in product(layers, heads) if labels else ():
                print(f"\nlayer {one_layer}, head {one_head}")
                print(trace.table(one_layer, one_head))
        if chosen.out:
            trace.plot(layer, head, what=chosen.what).write(chosen.out)
            print(f"see {chosen.out}", file=sys.stderr)
        if chosen.save:
            trace.save(Path(chosen.save))
            print(f"see {chosen.save}", file=sys.stderr)
