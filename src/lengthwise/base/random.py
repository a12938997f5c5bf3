"""Named random generators that derive from one seed; nothing here uses global random state."""

from zlib import crc32

import numpy as np

from lengthwise.base.errors import UsageError


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """The random generator for one purpose, independent of all others of the same seed.

    Because each purpose, such as ("batch", 17), has its own generator, a change to one choice (say,
    the priming) leaves the draws of all others as they were. Any batch can be made again from its
    step.

    >>> [generator(0, "batch", step).integers(1000).item() for step in (17, 17, 18)]
    [513, 513, 375]
    """
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise UsageError(f"a seed is an integer ≥ 0, not {seed}")
    words = (crc32(word.encode()) if isinstance(word, str) else word for word in purpose)
    return np.random.default_rng([seed, *words])
