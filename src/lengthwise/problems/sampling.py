"""How operands are sampled: the length distribution of training and test problems (paper, §2.1)."""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lengthwise.arithmetic.digits import Numbers, random_below, random_numbers
from lengthwise.arithmetic.tasks import Task
from lengthwise.base import UsageError, nearest

Sampling = Literal["uniform-length", "problem-length", "uniform-integer", "exact"]


def check_sampling(sampling: str) -> None:
    if sampling not in get_args(Sampling):
        hint = nearest(str(sampling), get_args(Sampling))
        raise UsageError(f"there is no sampling '{sampling}': {hint}")


def sample_numbers(
    rng: np.random.Generator, sampling: Sampling, digits: NDArray[np.int64]
) -> Numbers:
    """A positive number for each entry, of at most (for `exact`: of exactly) that many digits."""
    if sampling == "exact":
        return random_numbers(rng, digits)
    if sampling == "uniform-integer":
        return random_below(rng, digits)
    return random_numbers(rng, rng.integers(1, digits + 1))


def sample_other_operands(
    rng: np.random.Generator, sampling: Sampling, task: Task, digits: int, first: Numbers
) -> list[Numbers]:
    """Second and further operands for problems of at most `digits` digits.

    With `problem-length` the length of each first operand sets the length of the problem, whatever
    `digits` is.
    """
    if sampling == "problem-length":
        return [random_numbers(rng, lengths) for lengths in other_lengths(task, first.lengths)]
    others = task.operand_digits(digits)[1:]
    return [sample_numbers(rng, sampling, np.full(len(first), length)) for length in others]


def other_lengths(task: Task, first: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The digits of second and further operands for first operands of these lengths."""
    distinct, inverse = np.unique(first, return_inverse=True)
    table = np.array([task.operand_digits(int(length))[1:] for length in distinct])
    return list(table[inverse].T)


def select_rows(mask: NDArray[np.bool_], a: Numbers, b: Numbers) -> Numbers:
    """Row by row, a's number where the mask is true, else b's."""
    width = max(a.width, b.width)
    digits = np.where(mask[:, None], a.pad_to(width), b.pad_to(width))
    return Numbers(digits, np.where(mask, a.lengths, b.lengths))
