"""Special problems that may make up a share of training: `data.mixture: {carry-chains: 0.3}`.

A mixture rewrites the operands of a random share of each batch. Each is one function, registered by
its decorator.
"""

from collections.abc import Callable, Mapping

import numpy as np

from lengthwise.arithmetic.digits import Numbers, random_numbers
from lengthwise.base import UsageError, generator, nearest
from lengthwise.problems.sampling import select_rows

Rewrite = Callable[[np.random.Generator, list[Numbers]], list[Numbers]]
MIXTURES: dict[str, Rewrite] = {}
CHAIN_SHARE = 0.8  # of the digits of a problem with carry chains


def mixture(name: str) -> Callable[[Rewrite], Rewrite]:
    """Register a mixture; the docstring's first line describes it to users."""

    def register(rewrite: Rewrite) -> Rewrite:
        known = MIXTURES.get(name)
        # A notebook's cell may define a mixture again.
        if known and known.__qualname__ != rewrite.__qualname__:
            raise UsageError(f"there is a mixture '{name}' already")
        MIXTURES[name] = rewrite
        return rewrite

    return register


@mixture("full-length")
def fill_length(rng: np.random.Generator, operands: list[Numbers]) -> list[Numbers]:
    """operands of as many digits as training has"""

    def fill(numbers: Numbers) -> Numbers:
        longest = random_numbers(rng, np.full(len(numbers), numbers.width))
        return select_rows(numbers.lengths > 0, longest, numbers)  # blank ones stay blank

    return [fill(numbers) for numbers in operands]


@mixture("repeated-digits")
def repeat_digits(rng: np.random.Generator, operands: list[Numbers]) -> list[Numbers]:
    """operands made of one or two different digits, such as 77777 and 30330"""

    def repeat(numbers: Numbers) -> Numbers:
        frequent = rng.integers(1, 10, (len(numbers), 1))
        rare = rng.integers(0, 10, frequent.shape)
        rare = np.where(rng.random(frequent.shape) < 0.5, frequent, rare)
        place, leading = np.arange(numbers.width), numbers.lengths[:, None] - 1
        is_frequent = (rng.random(numbers.digits.shape) < 0.5) | (place == leading)
        digits = np.where(is_frequent, frequent, rare)
        return Numbers(np.where(place <= leading, digits, 0), numbers.lengths)

    return [repeat(numbers) for numbers in operands]


@mixture("zeros")
def insert_zeros(rng: np.random.Generator, operands: list[Numbers]) -> list[Numbers]:
    """each digit is 0 with probability ½, but not the leading one of several: 30070, 5002 and 0"""

    def insert(numbers: Numbers) -> Numbers:
        lengths = numbers.lengths[:, None]
        leading = (np.arange(numbers.width) == lengths - 1) & (lengths > 1)
        kept = leading | (rng.random(numbers.digits.shape) < 0.5)
        return Numbers(np.where(kept, numbers.digits, 0), numbers.lengths)

    return [insert(numbers) for numbers in operands]


@mixture("carry-chains")
def chain_carries(rng: np.random.Generator, operands: list[Numbers]) -> list[Numbers]:
    """most digits of the second operand add up to 9 with the first's, so that carries run on"""
    first, second, *others = operands
    width = max(first.width, second.width)
    complement, digits = 9 - first.pad_to(width), second.pad_to(width)
    # In half of the problems the units start a carry, where they can.
    starts = (rng.random(len(digits)) < 0.5) & (complement[:, 0] < 9)
    digits[:, 0] = np.where(starts, np.maximum(digits[:, 0], complement[:, 0] + 1), digits[:, 0])
    place, lengths = np.arange(width), second.lengths[:, None]
    leading_zero = (place == lengths - 1) & (complement == 0)
    replaced = (place > 0) & (place < lengths) & ~leading_zero
    replaced &= rng.random(digits.shape) < CHAIN_SHARE
    return [first, Numbers(np.where(replaced, complement, digits), second.lengths), *others]


def parse_mixture(value: object) -> object:
    """Shares by name, from a mapping or from text such as carry-chains=0.3,zeros=0.1."""
    if value is None:
        return {}
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {name.strip(): share.strip() for name, _, share in pairs}
    if isinstance(value, Mapping):
        for name in value:
            if name not in MIXTURES:
                raise UsageError(f"there is no mixture '{name}': {nearest(str(name), MIXTURES)}")
    return value


def mix(
    shares: Mapping[str, float], operands: list[Numbers], seed: int, step: int
) -> list[Numbers]:
    """The operands of a batch after each mixture has rewritten its share of them."""
    for name, rewrite in MIXTURES.items():
        if share := shares.get(name, 0.0):
            rng = generator(seed, "mixture", name, step)
            chosen = rng.random(len(operands[0])) < share
            pairs = zip(rewrite(rng, operands), operands, strict=True)
            operands = [select_rows(chosen, new, old) for new, old in pairs]
    return operands
