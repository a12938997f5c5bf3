"""Fresh test problems of one length."""

from collections.abc import Iterator

import numpy as np

from lengthwise.arithmetic.tasks import Task
from lengthwise.base import generator
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
    block: int = BLOCK,
) -> Iterator[Examples]:
    """`count` fresh problems of one length, in blocks; they depend on the arguments only.

    `occasion` (the training step) gives every evaluation a test set of its own. `operands` leaves
    the operands beyond that number blank. Very long problems need a smaller `block` to fit memory;
    another block gives other problems.
    """
    check_sampling(sampling)
    for start in range(0, count, block):
        rng = generator(seed, "evaluation", occasion, length, start)
        first = sample_numbers(rng, sampling, np.full(block, length))
        others = sample_other_operands(rng, sampling, task, length, first)
        if operands:
            others = blank_operands(others, np.full(block, operands))
        size = min(block, count - start)
        yield Examples.of(task, [numbers[:size] for numbers in (first, *others)])
