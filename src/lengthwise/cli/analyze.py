"""`lengthwise analyze`: where a run fails, and how it learned."""

import argparse
from typing import TYPE_CHECKING

from lengthwise.cli.arguments import add_json, add_run, add_step, positive, share
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import find_path
from lengthwise.cli.output import print_json, print_table

if TYPE_CHECKING:
    from lengthwise.evaluation.analysis import FailureStudy


@command
class Analyze(Command):
    """Study a run: where it fails, and how it learned each digit."""

    name = "analyze"
    example = "lengthwise analyze runs/my-run --length 6"

    def add_arguments(self, parser: Parser) -> None:
        add_run(parser)
        parser.add_argument(
            "--length", type=int, help="digits of the problems (default: one more than trained)"
        )
        parser.add_argument(
            "--examples", type=positive, default=2000, help="problems (default: 2000)"
        )
        parser.add_argument(
            "--level",
            type=share,
            default=0.9,
            help="accuracy of a learned digit (default: 0.9)",
        )
        add_step(parser)
        add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.evaluation.analysis import (
            examples_to_reach,
            failure_study,
            learning_curves,
        )
        from lengthwise.training import machine
        from lengthwise.training.display import percent
        from lengthwise.training.runs import Run

        machine.prepare("cpu", threads=1)
        run = Run(find_path(chosen.run, chosen.runs))
        data = run.experiment.data
        one_more = min(data.train_digits + 1, data.test_digits)
        length = one_more if chosen.length is None else chosen.length
        study = failure_study(run.load(step=chosen.step), length, chosen.examples)
        learned = {
            n: [
                examples_to_reach(curve, chosen.level, digit)
                for digit in range(1, curve.digits.shape[1] + 1)
            ]
            for n, curve in learning_curves(run.metrics).tested.items()
        }
        if chosen.json:
            print_json({"failures": study.to_json(), "level": chosen.level, "learned": learned})
            return
        print_failures(study)
        rows = [
            [n, " ".join("never" if seen is None else f"{seen:,}" for seen in by_digit)]
            for n, by_digit in learned.items()
        ]
        level = percent(chosen.level)
        print_table(["digits", f"examples until each symbol of the answer reached {level}"], rows)


def print_failures(study: "FailureStudy") -> None:
    from lengthwise.training.display import percent

    accuracy = percent(study.correct / study.examples)
    print(f"{study.length} digits: {accuracy} of {study.examples} problems right\n")
    by_kind = {"carries": study.by_carries, "longest carry chain": study.by_chain}
    for title, parts in by_kind.items():
        if parts is not None:
            rows = [[k, percent(right / total), total] for k, (right, total) in parts.items()]
            print_table([title, "exact match", "problems"], rows)
            print()
    wrong = study.examples - study.correct
    if wrong:
        shares = [[k, percent(count / wrong)] for k, count in study.wrong_symbols.items()]
        print_table(["wrong symbols", "of the wrong answers"], shares)
        print()
    if study.wrong_position:
        places = list(study.wrong_position.items())
        print_table(["position of the only wrong symbol (1 is written first)", "answers"], places)
        print()
