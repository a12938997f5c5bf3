"""Fresh test problems of one length."""

from collections.abc import Iterator

import numpy as np

from lengthwise.arithmetic.tasks import Task
from lengthwise.base import UsageError, generator
from lengthwise.problems.sampling import (
    Sampling,
    check_sampling,
    sample_numbers,
    sample_other_operands,
)
from lengthwise.problems.training_set import Examples, blank_operands

# Problems are sampled in blocks of a fixed size, so that a test set does not depend on batch sizes.
BLOCK = 250


def evaluation_set(
    task: Task,
    length: int,
    count: int,
    seed: int,
    occasion: int = 0,
    sampling: Sampling = "exact",
    operands: int | None = None,
) -> Iterator[Examples]:
    """`count` fresh problems of one length, in blocks; they depend on the arguments only.

    `occasion` (the training step) gives every evaluation a test set of its own. `operands` leaves
    the operands beyond that number blank.
    """
    if not isinstance(seed, int) or seed < 0:
        raise UsageError(f"a seed is an integer ≥ 0, not {seed}")
    check_sampling(sampling)
    for start in range(0, count, BLOCK):
        rng = generator(seed, "evaluation", occasion, length, start)
        first = sample_numbers(rng, sampling, np.full(BLOCK, length))
        others = sample_other_operands(rng, sampling, task, length, first)
        if operands:
            others = blank_operands(others, np.full(BLOCK, operands))
        size = min(BLOCK, count - start)
        yield Examples.of(task, [numbers[:size] for numbers in (first, *others)])
