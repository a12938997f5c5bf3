"""`lengthwise record`: trains and tests a length record."""

import argparse
from pathlib import Path

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import print_json


@command
class Record(Command):
    """Train and test a length record: train on five digits, test on up to a million."""

    name = "record"
    example = "lengthwise record addition --seeds 3"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("name", metavar="NAME", help="a record (`lengthwise list records`)")
        parser.add_argument(
            "--seeds",
            type=arguments.positive,
            help="number of seeds, from --seed on (default: 3, or 1 with --seed)",
        )
        parser.add_argument("--seed", type=arguments.natural, help="the first seed (default: 0)")
        parser.add_argument(
            "--most-long",
            type=arguments.positive,
            metavar="K",
            help="test on at most K problems of each length and case above 1000 digits",
        )
        parser.add_argument(
            "--ablations",
            action="store_true",
            help="train and test the record's ablations instead: models that lack one kind of help",
        )
        arguments.add_engine(parser)
        arguments.add_runs(parser)
        arguments.add_results(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.frontier.make import make_record
        from lengthwise.frontier.record_page import file_name, markdown
        from lengthwise.training.display import Display

        engine = arguments.engine(chosen)
        first = chosen.seed or 0
        seeds = range(first, first + (chosen.seeds or (3 if chosen.seed is None else 1)))
        root, results = Path(chosen.runs), Path(chosen.results)
        with Display() as display:
            contents = make_record(
                chosen.name,
                seeds,
                engine,
                root,
                results,
                display,
                chosen.most_long,
                chosen.ablations,
            )
        if chosen.json:
            print_json(contents)
            return
        print("\n".join(markdown(contents)))
        figure = " and .json" if chosen.ablations else ", .json and .png"
        file = results / "records" / file_name(contents)
        print(f"wrote {file}.md{figure}; the trained runs:")
        runs = [run for trial in contents["trials"].values() for run in trial["runs"]]
        for run in dict.fromkeys(runs):
            print(f"  {root / run}")
