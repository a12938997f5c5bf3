"""`lengthwise page`: the laboratory in a browser, and models in one HTML file."""

import argparse
from pathlib import Path

from lengthwise.cli import arguments
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.models import find_path


class PageExport(Command):
    """Write models into one HTML file that needs no server: it computes in the browser."""

    name = "export"
    variadic = "models"
    example = "lengthwise page export runs/my-run --out sum.html"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("models", metavar="RUN", nargs="+", help="one run, or several")
        parser.add_argument(
            "--out", metavar="FILE", default="sum.html", help="the file (default: sum.html)"
        )
        arguments.add_runs(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.page.export import export
        from lengthwise.training.runs import Run

        out = Path(chosen.out)
        runs = [Run(find_path(name, chosen.runs)) for name in chosen.models]
        size = export(runs, out)
        print(f"wrote {out}, {size / 1000:.0f} kB; open it in a browser")


@command
class Page(Command):
    """Serve the laboratory in a browser: ask models, see the cliff, train, read the paper.

    The page is for this machine only. `lengthwise page export` writes models into one file instead.
    """

    name = "page"
    usage = "lengthwise page [--runs DIR] [--results DIR] [--port PORT] [--no-browser] [export …]"
    example = "lengthwise page --runs runs\n  lengthwise page export runs/my-run --out sum.html"
    subcommands = (PageExport,)
    needs_subcommand = False

    def add_arguments(self, parser: Parser) -> None:
        arguments.add_runs(parser)
        arguments.add_results(parser)
        parser.add_argument(
            "--port",
            type=arguments.natural,
            default=8765,
            help="port of the address (default: 8765)",
        )
        parser.add_argument(
            "--no-browser", action="store_true", help="serve the page, but don't open it"
        )

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base import UsageError

        try:
            from lengthwise.page.server import serve
        except ModuleNotFoundError as error:
            if error.name not in ("starlette", "uvicorn"):
                raise
            raise UsageError(
                "the page needs starlette and uvicorn; `make page` or"
                " `pip install 'lengthwise[page]'` installs them"
            ) from None
        root = Path(chosen.runs)
        if root.exists() and not root.is_dir():
            raise UsageError(f"{root} is not a directory of runs")
        serve(root, Path(chosen.results), chosen.port, not chosen.no_browser)
