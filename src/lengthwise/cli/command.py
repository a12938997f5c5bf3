"""A command: its help, its arguments and its action, registered by `@command`.

A command's module is imported for every help page. It imports torch and the rest of the package
only inside `run`.
"""

import argparse
import re
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn, TypeVar


class Parser(argparse.ArgumentParser):
    """A parser with errors of one sentence, and examples printed as they are written."""

    def __init__(self, **settings: Any):
        shape = argparse.RawDescriptionHelpFormatter
        super().__init__(**settings, formatter_class=shape, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        sentence = " ".join(f"{message} (see `{self.prog} --help`)".split())
        self.exit(2, f"lengthwise: {sentence}\n")


class Command:
    """One command of the command line. The docstring is its help."""

    name: ClassVar[str]
    example: ClassVar[str]
    usage: ClassVar[str | None] = None
    variadic: ClassVar[str | None] = None  # the argument that takes any number of words
    on_several_processes: ClassVar[bool] = False  # whether torchrun may start it
    subcommands: ClassVar[Sequence[type["Command"]]] = ()
    needs_subcommand: ClassVar[bool] = True  # where there are some

    def add_arguments(self, parser: Parser) -> None:
        """Define the command's arguments."""

    def take_rest(self, chosen: argparse.Namespace, rest: list[str]) -> None:
        """Use the words that argparse could not place, or refuse them.

        argparse does not join the words of an argument before options with those behind them.
        """
        # A problem such as -1+2 is not an option; the command says what is wrong with it.
        options = [word for word in rest if re.match("-+[^0-9]", word)]
        unknown = options if self.variadic else rest
        if unknown:
            chosen.parser.error(f"unknown argument: {' '.join(unknown)}")
        if self.variadic:
            setattr(chosen, self.variadic, [*getattr(chosen, self.variadic), *rest])

    def run(self, chosen: argparse.Namespace) -> None:
        """Do what the command is for."""
        raise NotImplementedError


COMMANDS: dict[str, type[Command]] = {}
C = TypeVar("C", bound=type[Command])


def command(cls: C) -> C:
    """Register a command."""
    COMMANDS[cls.name] = cls
    return cls


def help_columns() -> int:
    """The width of text in help pages, as argparse has it."""
    return shutil.get_terminal_size().columns - 2


def wrap_usage(usage: str) -> str:
    """A usage text in lines that break only between arguments."""
    words = re.findall(r"\[.*?\](?= |$)|\S+", usage)
    whole = " ".join(word.replace(" ", "\0") for word in words)
    room = max(30, help_columns() - len("usage: "))
    lines = textwrap.wrap(whole, room, break_long_words=False, break_on_hyphens=False)
    return "\n       ".join(lines).replace("\0", " ")


def add_command(cls: type[Command], parsers: Any) -> None:
    """Give a command, and its subcommands, a parser."""
    own = cls()
    text = " ".join((cls.__doc__ or "").split())
    parser: Parser = parsers.add_parser(
        cls.name,
        usage=cls.usage and wrap_usage(cls.usage),
        help=text[0].lower() + text[1:].partition(". ")[0].removesuffix("."),
        description=textwrap.fill(text, help_columns()),
        epilog=f"example:\n  {cls.example}",
    )
    if cls.subcommands:
        inner = parser.add_subparsers(
            title="commands",
            metavar="|".join(c.name for c in cls.subcommands),
            required=cls.needs_subcommand,
            prog=parser.prog,  # else argparse takes the usage for a name
        )
        for subcommand in cls.subcommands:
            add_command(subcommand, inner)
        if cls.needs_subcommand:
            return
    parser.set_defaults(command=own, parser=parser)
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="FILE",
        action="append",
        default=[],
        help="first import a Python file, such as one that registers a task",
    )
    own.add_arguments(parser)
