"""Values of mappings and lists, as configurations consist of."""

from typing import Any

from lengthwise.base.errors import UsageError

MOST_VALUES = 100_000
DEEPEST = 30  # mappings inside mappings
TOO_LARGE = 10**100  # floats go to 10^308, and some integers are multiplied with others


def check_tree(value: Any) -> None:
    """Raise a UsageError unless a value is a tree of reasonable size; it may contain itself."""
    waiting, seen = [(value, 0)], 0
    while waiting:
        part, depth = waiting.pop()
        seen += 1
        if depth > DEEPEST or seen > MOST_VALUES:
            raise UsageError("the configuration is nested too deeply or has too many values")
        if isinstance(part, int) and abs(part) >= TOO_LARGE:
            raise UsageError("the configuration has an integer of more than 100 digits")
        if isinstance(part, dict):
            waiting += ((inner, depth + 1) for pair in part.items() for inner in pair)
        elif isinstance(part, list | tuple | set):
            waiting += ((inner, depth + 1) for inner in part)
