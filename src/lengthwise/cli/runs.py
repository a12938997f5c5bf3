"""`lengthwise runs`: the runs of a directory."""

import argparse
from pathlib import Path
from typing import Any

from lengthwise.cli.arguments import add_json, add_runs
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import keep_together, print_json, print_table


@command
class Runs(Command):
    """List the runs, with their status and accuracy."""

    name = "runs"
    example = "lengthwise runs"

    def add_arguments(self, parser: Parser) -> None:
        add_runs(parser)
        add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.training.display import summarise
        from lengthwise.training.overview import overview

        rows = overview(Path(chosen.runs))
        add_states(rows)
        if chosen.json:
            print_json(rows)
            return
        if not rows:
            print(f"there are no runs in {chosen.runs} yet; `lengthwise train` makes one")
            return
        table = [
            [
                row["run"],
                row["status"],
                f"{row['step']}/{row['steps']}",
                row.get("reason") or keep_together(summarise(row["headline"])),
            ]
            for row in rows
        ]
        print_table(["run", "status", "step", "exact match"], table)


def add_states(rows: list[dict[str, Any]]) -> None:
    """Ask the engines which of the runs that no process here trains are queued or running."""
    from lengthwise.sweep import ENGINES

    waiting = {Path(row["run"]): row for row in rows if row["status"] == "interrupted"}
    for engine in ENGINES.values():
        for path, state in engine.states(waiting).items():
            waiting[path]["status"] = state
