"""Lists of lengths as people write them: 5:10, 5,6,10:35:5."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from lengthwise.base import UsageError

MOST_LENGTHS = 1_000_000  # in a range


def parse_lengths(value: object) -> list[int]:
    """Lengths from a list, a number, or text of numbers and ranges with both ends included.

    >>> parse_lengths("5,6:10,20:30:5")
    [5, 6, 7, 8, 9, 10, 20, 25, 30]
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a list of lengths such as 5:10 or [5, 6, 10]")
    lengths: list[int] = []
    for part in value.split(","):
        try:
            bounds = [int(number) for number in part.split(":")]
            low, high, step = bounds + [bounds[0], 1][len(bounds) - 1 :]
            if low > high or step < 1 or high - low > MOST_LENGTHS:
                raise ValueError
            lengths += range(low, high + 1, step)
        except ValueError:
            raise UsageError(
                f"'{value}' is not a list of lengths such as 5:10 or 5,6,10:35:5"
            ) from None
    return lengths


Lengths = Annotated[list[int], BeforeValidator(parse_lengths), Field(min_length=1)]
