"""`lengthwise paper`: the paper's tables and figures."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import print_json, print_table

if TYPE_CHECKING:
    from lengthwise.paper.artefact import Artefact


class PaperCommand(Command):
    """What the subcommands share: the artefacts, the scale and the directories."""

    variadic = "artefacts"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "artefacts",
            nargs="*",
            default=[],
            metavar="ARTEFACT",
            help="a table or figure, such as table-addition (`lengthwise paper list`)",
        )
        parser.add_argument(
            "--scale", default="cpu", help="smoke, cpu or paper, from small to large (default: cpu)"
        )
        arguments.add_runs(parser)
        arguments.add_results(parser)


def add_seeds(parser: Parser) -> None:
    parser.add_argument(
        "--seeds", type=arguments.positive, default=3, help="seeds of a condition (default: 3)"
    )


def find_artefacts(chosen: argparse.Namespace) -> list["Artefact"]:
    """The artefacts that are named, or all; checks the scale, too."""
    from lengthwise.paper import ARTEFACTS, find_artefact
    from lengthwise.paper.scales import check_scale

    check_scale(chosen.scale)
    return [find_artefact(name) for name in chosen.artefacts or ARTEFACTS]


class PaperList(PaperCommand):
    """List the paper's tables and figures, with the runs that are done and their cost."""

    name = "list"
    example = "lengthwise paper list --scale cpu"

    def add_arguments(self, parser: Parser) -> None:
        super().add_arguments(parser)
        add_seeds(parser)
        arguments.add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.paper.running import cost

        artefacts, seeds = find_artefacts(chosen), chosen.seeds
        results, root = Path(chosen.results), Path(chosen.runs)
        costs = {a.name: cost(a, chosen.scale, seeds, results, root) for a in artefacts}
        if chosen.json:
            print_json({name: vars(cost) for name, cost in costs.items()})
            return
        rows = []
        for a in artefacts:
            c = costs[a.name]
            numbers = [f"{c.done}/{c.runs}", f"{c.examples:.2g}", f"{c.flops:.2g}"]
            rows.append([a.name, *numbers, f"{a.where}: {a.title}"])
        done = f"runs done ({seeds} seed{'s' * (seeds > 1)})"
        print_table(["artefact", done, "examples", "FLOPs", "what it is"], rows)


class PaperRun(PaperCommand):
    """Train the runs of tables and figures that have no record yet, and record them."""

    name = "run"
    example = "lengthwise paper run table-addition --scale smoke --seeds 1"

    def add_arguments(self, parser: Parser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--all", action="store_true", help="run every artefact")
        parser.add_argument(
            "--only",
            metavar="TEXT",
            action="append",
            default=[],
            help="run only conditions whose label contains this text; can be given several times",
        )
        add_seeds(parser)
        parser.add_argument(
            "--no-search",
            action="store_true",
            help="train each condition with its first hyperparameters only",
        )
        parser.add_argument(
            "--retry", action="store_true", help="train runs that failed again, from the start"
        )
        arguments.add_engine(parser)
        arguments.add_device(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base import UsageError
        from lengthwise.paper.running import run_artefacts
        from lengthwise.training import machine
        from lengthwise.training.display import Display

        artefacts = find_artefacts(chosen)
        if not chosen.artefacts and not chosen.all:
            raise UsageError("name the artefacts to run, or --all (see `lengthwise paper list`)")
        engine = arguments.engine(chosen)  # checks come before any run is made
        if engine.here:
            machine.check(chosen.device, threads=1)
        results = Path(chosen.results)
        with Display() as display:
            failed = run_artefacts(
                artefacts,
                chosen.scale,
                chosen.seeds,
                engine,
                results,
                Path(chosen.runs),
                chosen.device,
                display,
                only=chosen.only,
                retry=chosen.retry,
                search=not chosen.no_search,
            )
        for path, reason in failed.items():
            print(f"failed: {path}: {reason}", file=sys.stderr)
        if failed:
            raise UsageError(
                f"{len(failed)} runs failed; the same command goes on with them, but trains those"
                " that diverged only with --retry"
            )
        command = f"lengthwise paper report --scale {chosen.scale}"
        print(f"recorded in {results / chosen.scale}; `{command}` shows the results")


class PaperReport(PaperCommand):
    """Write a report: our numbers beside the published ones, figures, and verdicts on claims."""

    name = "report"
    example = "lengthwise paper report --scale cpu"

    def add_arguments(self, parser: Parser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--out", metavar="DIR", help="the report's directory (default: RESULTS/SCALE)"
        )

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.paper.records import record_path
        from lengthwise.paper.report import write_report

        artefacts = find_artefacts(chosen)
        results = Path(chosen.results)
        out = Path(chosen.out) if chosen.out else results / chosen.scale
        if not any(record_path(results, chosen.scale, "").parent.glob("*.json")):
            print(f"there are no records in {results / chosen.scale} yet", file=sys.stderr)
        write_report(chosen.scale, results, Path(chosen.runs), out, artefacts)
        print(f"wrote {out / 'report.md'} and {out / 'report.html'}")


@command
class Paper(Command):
    """Run the paper's experiments: its tables, its figures, and a report."""

    name = "paper"
    example = (
        "lengthwise paper list --scale cpu\n"
        "  lengthwise paper run table-addition --scale smoke --seeds 1\n"
        "  lengthwise paper report --scale cpu"
    )
    subcommands = (PaperList, PaperRun, PaperReport)
