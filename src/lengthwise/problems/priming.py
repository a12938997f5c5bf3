"""Train set priming: how many long examples of which lengths join the training set (paper, §5)."""

from collections.abc import Mapping, Sequence

import numpy as np

from lengthwise.base import UsageError
from lengthwise.problems.lengths import parse_lengths

EXAMPLES = "written as in 35=50 (fifty examples of 35 digits), 34=25,35=25 or 6:35=500"
Priming = tuple[tuple[int, int], ...]  # (digits, count) pairs


def spread(lengths: Sequence[int], count: int, weights: Sequence[float] | None = None) -> Priming:
    """`count` examples distributed over lengths by weights; by default they grow with the length.

    >>> spread([34, 35], 50, weights=[1, 1])
    ((34, 25), (35, 25))
    """
    shares = np.asarray(weights if weights is not None else lengths, float)
    shares = shares / shares.sum() * count
    counts = np.floor(shares).astype(int)
    largest_remainders = np.argsort(counts - shares, kind="stable")[: count - counts.sum()]
    counts[largest_remainders] += 1
    return tuple((int(n), int(c)) for n, c in zip(lengths, counts, strict=True) if c)


def one_length(length: int, count: int) -> Priming:
    """Priming for one length, the paper's default (figures 3b and 5a)."""
    return ((length, count),)


def curriculum(lengths: Sequence[int], count: int) -> Priming:
    """Priming split evenly between several lengths, such as 34 and 35 (figure 4d)."""
    return spread(lengths, count, [1] * len(lengths))


def all_lengths(low: int, high: int, count: int, weights: Sequence[float] | None = None) -> Priming:
    """Priming for every length from low to high (figures 5b and 5c)."""
    return spread(range(low, high + 1), count, weights)


def even_lengths(
    low: int, high: int, count: int, weights: Sequence[float] | None = None
) -> Priming:
    """Priming for the even lengths only (figure 5d)."""
    return spread([n for n in range(low, high + 1) if n % 2 == 0], count, weights)


def parse_priming(value: object) -> object:
    """Priming from {length: count}, (length, count) pairs, or text: "35=50" or "6:35=500".

    >>> parse_priming("10=50,34:36:2=20")
    ((10, 50), (34, 10), (36, 10))
    """
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple(pair for pair in value.items() if pair[1] != 0)
    if isinstance(value, int | float):
        raise UsageError(f"data.priming is {value}, but a priming is {EXAMPLES}")
    if not isinstance(value, str):
        return value
    pairs: list[tuple[int, int]] = []
    for part in filter(None, value.split(",")):
        lengths, _, count = part.partition("=")
        if not count.strip().isdecimal():
            raise UsageError(f"data.priming is '{value}', but a priming is {EXAMPLES}")
        if min(chosen := parse_lengths(lengths)) < 1:
            raise UsageError(f"data.priming is '{value}', but numbers have at least 1 digit")
        if len(count.strip()) > 9:
            raise UsageError(f"data.priming is '{value}', but the count is too large")
        pairs += spread(chosen, int(count))
    return tuple(pairs)
