"""Few cases instead of a cross product, with every pair of values of any two options in one."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """A covering array of strength two, the same at every call.

    Three options with two values each have 8 combinations and need 4:

    >>> pairwise("ab", [1, 2], [False, True])
    [('a', 1, False), ('a', 2, True), ('b', 1, True), ('b', 2, False)]
    """
    if len(options) < 2:
        return list(product(*options))
    columns = range(len(options))
    sizes = [range(len(values)) for values in options]
    # A pair is two places, each a column and the number of a value. A dictionary keeps their order.
    uncovered = {
        ((a, x), (b, y)): None
        for a, b in combinations(columns, 2)
        for x, y in product(sizes[a], sizes[b])
    }
    rows = []
    while uncovered:
        row = dict(next(iter(uncovered)))
        for column in columns:
            if column not in row:

                def gain(value: int, place: int = column, row: dict[int, int] = row) -> int:
                    return sum(pair(place, value, *known) in uncovered for known in row.items())

                row[column] = max(sizes[column], key=gain)
        for known in combinations(sorted(row.items()), 2):
            uncovered.pop(known, None)
        rows.append(tuple(options[column][row[column]] for column in columns))
    return rows


def pair(a: int, x: int, b: int, y: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return ((a, x), (b, y)) if a < b else ((b, y), (a, x))
