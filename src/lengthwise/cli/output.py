"""What commands print."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

WIDE = 160  # columns where the output is not a terminal
UNBREAKABLE = "\xa0"
NARROWEST = 30  # columns of text that is wrapped


def print_json(value: Any) -> None:
    """JSON that is whole in whatever encoding the output has."""
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(value, indent=2, ensure_ascii=not is_unicode))


def columns() -> int:
    """The width of the terminal, or room for long lines in a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Aligned columns. Only the last is wrapped, so that names in the others can be copied."""
    cells = [[str(cell) for cell in row] for row in rows]
    lines = [list(headings), *cells] if headings else cells
    *widths, _ = (max(map(len, column)) for column in zip(*lines, strict=True))
    indent = sum(widths) + 2 * len(widths)
    room = max(NARROWEST, columns() - indent)
    for number, line in enumerate(lines):
        start = "".join(f"{cell:<{width}}  " for cell, width in zip(line, widths, strict=False))
        # Whole words only, so that the path of a file can be copied.
        wrapped = textwrap.wrap(line[-1], room, break_long_words=False, break_on_hyphens=False)
        first, *others = (text.replace(UNBREAKABLE, " ") for text in wrapped or [""])
        print((start + first).rstrip())
        for text in others:
            print(" " * indent + text)
        if number == 0 and headings:
            print("─" * min(columns(), indent + max(len(row[-1]) for row in lines)))


def keep_together(text: str) -> str:
    """Text that a table breaks only where it has two spaces."""
    return "  ".join(part.replace(" ", UNBREAKABLE) for part in text.split("  "))


def print_accuracies(accuracies: Iterable[dict[str, Any]], with_digits: bool = False) -> None:
    """Exact match by length, as `Accuracy.to_json` describes it."""
    from lengthwise.training.display import percent

    headings = ["digits", "exact match", "95 % interval", "problems"]
    rows: list[list[object]] = []
    for a in accuracies:
        interval = f"{100 * a['low']:.1f}–{100 * a['high']:.1f} %"
        rows.append([a["length"], percent(a["exact_match"]), interval, a["examples"]])
        if with_digits:
            rows[-1].append(" ".join(f"{100 * share:.0f}" for share in a["digits"]))
    digits = ["each symbol of the answer, in the order of writing (%)"] if with_digits else []
    print_table([*headings, *digits], rows)
