"""The entry point: parses the command line, runs the command, and reports errors in a sentence."""

import argparse
import gc
import importlib
import io
import os
import pkgutil
import sys
from pathlib import Path
from typing import Any

from lengthwise.cli.command import COMMANDS, Command, Parser, add_command

FIRST_STEPS = """first steps:
  lengthwise demo                      the paper in miniature, in minutes
  lengthwise train --task addition --model.position relative-key
  lengthwise runs
  lengthwise COMMAND --help            a command's arguments, with an example"""

# Importing torch makes 160,000 objects that stay. With Python's threshold of 700, collecting them
# takes a tenth of the start.
OBJECTS_BETWEEN_COLLECTIONS = 50_000


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for bad input, 130 after Ctrl-C."""
    prepare_streams()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    parser = build_parser()
    chosen, rest = parser.parse_known_args(arguments)
    if not hasattr(chosen, "command"):
        if rest:
            parser.error(f"unknown argument: {' '.join(rest)}")
        parser.print_help()
        return 0
    chosen.command.take_rest(chosen, rest)
    return run(chosen.command, chosen)


def build_parser() -> Parser:
    parser = Parser(
        prog="lengthwise",
        description="When a transformer learns arithmetic on short numbers, does it still work on"
        " long ones?",
        epilog=FIRST_STEPS,
    )
    parser.add_argument("--version", action=VersionAction, help="show the version and exit")
    parsers = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"lengthwise.cli.{module.name}")  # commands register themselves
    for _, cls in sorted(COMMANDS.items()):
        add_command(cls, parsers)
    return parser


def run(command: Command, chosen: argparse.Namespace) -> int:
    from lengthwise.base import UsageError
    from lengthwise.base.extensions import import_files

    try:
        if "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            check_processes(command)
        import_files(chosen.imports)
        command.run(chosen)
        sys.stdout.flush()
        return 0
    except UsageError as error:
        return refuse(str(error))
    except KeyboardInterrupt:
        print("lengthwise: stopped", file=sys.stderr)
        return 130
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
        return refuse(f"this machine does not have enough memory: {reason}")
    except BrokenPipeError:  # as in `lengthwise runs | head`
        discard_output()
        return 0
    except OSError as error:
        if error.filename is None:
            discard_output()  # what is left in the buffer can't be written either
        reason = (error.strerror or str(error)).lower()
        return refuse(f"can't read or write {error.filename or 'the output'}: {reason}")


def check_processes(command: Command) -> None:
    """Refuse what would do the same work in every process that torchrun started."""
    from lengthwise.base import UsageError

    if not command.on_several_processes:
        raise UsageError(
            f"torchrun trains one run on several processes: it can start `lengthwise train` and"
            f" `lengthwise resume`, but not `lengthwise {command.name}`"
        )


def prepare_streams() -> None:
    """Make printing safe where a stream is closed, or its encoding lacks characters."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # Otherwise the next file that is opened would get this number, and receive the output.
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115  # stays open
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def refuse(sentence: str) -> int:
    """Print why a command can't be run, and return the exit code of bad input."""
    print(f"lengthwise: {sentence}", file=sys.stderr)
    return 2


class VersionAction(argparse.Action):
    """`--version`. Only this option looks the version up, because that takes time."""

    def __init__(self, **settings: Any):
        super().__init__(**settings, nargs=0)

    def __call__(self, *_: Any) -> None:
        import lengthwise

        print(f"lengthwise {lengthwise.__version__}")
        sys.exit(0)
