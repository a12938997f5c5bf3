"""A progress bar for loops that take long."""

import sys
from collections.abc import Iterable
from typing import TypeVar

from rich.console import Console
from rich.progress import track

T = TypeVar("T")


def show_progress(items: Iterable[T], title: str, count: int | None = None) -> Iterable[T]:
    """The items, with a bar on standard error where that is a terminal.

    >>> list(show_progress([1, 2], "counting"))  # doctests have no terminal
    [1, 2]
    """
    if not sys.stderr.isatty():
        return items
    return track(items, title, count, transient=True, console=Console(stderr=True))
