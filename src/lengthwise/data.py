"""Which problems are trained on and tested on: fixed first operands, second operands drawn online, priming (§2.1, §5).

All randomness comes from named generators that derive from one seed, so that changing one choice (say, the priming)
leaves the draws of the others as they were, and any batch can be made again from its step alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, get_args
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from lengthwise import digits
from lengthwise.digits import Numbers
from lengthwise.errors import UsageError, nearest
from lengthwise.registry import Config
from lengthwise.tasks import Task

Sampling = Literal["uniform-length", "problem-length", "uniform-integer", "exact"]
Priming = tuple[tuple[int, int], ...]  # (digits, count) pairs
MOST_LENGTHS = 1_000_000  # in a range
MOST_DIGITS = 1_000_000
MOSTLY = 0.8  # of the digits of a problem in which carries run on


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """The random generator for one purpose, such as ("batch", 17): independent of all others of the same seed."""
    return np.random.default_rng([seed, *(crc32(p.encode()) if isinstance(p, str) else p for p in purpose)])


def parse_lengths(value: object) -> list[int]:
    """Lengths from a list, a number or a text of numbers and ranges, both ends included.

    >>> parse_lengths("5,6:10,20:30:5")
    [5, 6, 7, 8, 9, 10, 20, 25, 30]
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return [value]
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return list(value)
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is no list of lengths such as 5:10 or [5, 6, 10]")
    lengths: list[int] = []
    for part in value.split(","):
        try:
            bounds = [int(number) for number in part.split(":")]
            low, high, step = bounds + [bounds[0], 1][len(bounds) - 1 :]
            if low > high or step < 1 or high - low > MOST_LENGTHS:
                raise ValueError
            lengths += range(low, high + 1, step)
        except ValueError:
            raise UsageError(f"'{value}' is no list of lengths such as 5:10 or 5,6,10:35:5") from None
    return lengths


def spread(lengths: Sequence[int], count: int, weights: Sequence[float] | None = None) -> Priming:
    """Priming with `count` examples in all, over lengths by weights (default: growing linearly with the length).

    >>> spread([34, 35], 50, weights=[1, 1])
    ((34, 25), (35, 25))
    """
    shares = np.asarray(weights if weights is not None else lengths, float)
    shares = shares / shares.sum() * count
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: count - counts.sum()]] += 1  # largest remainders first
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


def even_lengths(low: int, high: int, count: int, weights: Sequence[float] | None = None) -> Priming:
    """Priming for the even lengths only (figure 5d)."""
    return spread([n for n in range(low, high + 1) if n % 2 == 0], count, weights)


def parse_priming(value: object) -> object:
    """Priming from {length: count}, from (length, count) pairs, or from a text such as "35=50" or "6:35=500".

    >>> parse_priming("10=50,34:36:2=20")
    ((10, 50), (34, 10), (36, 10))
    """
    if value is None:
        return ()
    if isinstance(value, Mapping):
        return tuple(pair for pair in value.items() if pair[1] != 0)
    if not isinstance(value, str):
        return value
    pairs: list[tuple[int, int]] = []
    for part in filter(None, value.split(",")):
        lengths, _, count = part.partition("=")
        if not count.strip().isdecimal():
            raise UsageError(f"'{value}' is no priming such as 35=50 (fifty of 35 digits), 34=25,35=25 or 6:35=500")
        if min(chosen := parse_lengths(lengths)) < 1:
            raise UsageError(f"data.priming is '{value}', but numbers have 1 digit or more")
        if len(count.strip()) > 9:
            raise UsageError(f"data.priming is '{value}', which is too many")
        pairs += spread(chosen, int(count))
    return tuple(pairs)


class DataConfig(Config):
    """Which problems are trained on, and how wide the layout is (`test_digits`)."""

    train_digits: int = Field(
        5, ge=1, le=MOST_DIGITS, description="the most digits of a training problem's first operand (n_train)"
    )
    test_digits: int = Field(
        10, ge=1, le=MOST_DIGITS, description="the most digits that the layout has room for (n_test)"
    )
    train_size: int = Field(5000, ge=1, description="how many first operands there are, primed included (N_train)")
    sampling: Sampling = Field(
        "problem-length",
        description="how operands are drawn: uniform-length (each of a length from 1 to n), problem-length (one length"
        " for the whole problem), uniform-integer (from 1 to 10^n − 1) or exact (n digits)",
    )
    priming: Annotated[Priming, BeforeValidator(parse_priming)] = Field(
        (), description="long problems in the training set: 35=50, 34=25,35=25, 6:35=500 or {35: 50}"
    )
    priming_second: Literal["online", "fixed"] = Field(
        "online", description="whether the second operands of primed problems are drawn online or fixed"
    )

    train_operands: int | None = Field(
        None,
        ge=2,
        description="the most operands of a usual training problem, drawn from 2 on; the rest of the task's are left"
        " empty; null: all there are",
    )
    chains: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of training problems whose second operand has mostly digits that add up to 9 with the"
        " first's, so that carries run on",
    )
    repeats: float = Field(
        0.0, ge=0, le=1, description="share of training problems with one or two different digits in each operand"
    )
    zeros: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of training problems in which each digit, but the leading one of several, is 0 by a chance"
        " of ½",
    )
    padding: int = Field(
        0, ge=0, description="with a fitted layout: up to so much more padding in training, drawn for each batch"
    )

    @model_validator(mode="after")
    def _lengths_fit(self) -> "DataConfig":
        if self.train_digits > self.test_digits:
            raise UsageError(
                f"data.train_digits is {self.train_digits}, more than data.test_digits, which is {self.test_digits}"
            )
        for length, count in self.priming:
            if not 1 <= length <= self.test_digits or count < 1:
                raise UsageError(
                    f"data.priming has {count} problems of {length} digits, but lengths go from 1 to"
                    f" data.test_digits, which is {self.test_digits}, and counts from 1"
                )
        if self.primed_count >= self.train_size:
            raise UsageError(
                f"data.priming takes {self.primed_count} of the {self.train_size} training problems"
                " (data.train_size), which leaves none of the usual length"
            )
        return self

    @property
    def primed_count(self) -> int:
        return sum(count for _, count in self.priming)


def draw(rng: np.random.Generator, sampling: Sampling, most_digits: NDArray[np.int64]) -> Numbers:
    """One positive number for each entry, with at most (or, for `exact`, exactly) so many digits."""
    if sampling == "exact":
        return digits.random_numbers(rng, most_digits)
    if sampling == "uniform-integer":
        return digits.random_below(rng, most_digits)
    return digits.random_numbers(rng, rng.integers(1, most_digits + 1))


def draw_rest(rng: np.random.Generator, sampling: Sampling, task: Task, n: int, first: Numbers) -> list[Numbers]:
    """Second and further operands for problems of up to n digits with these first operands.

    With `problem-length` they are as long as the first operand makes the problem (n doesn't matter then).
    """
    if sampling == "problem-length":
        return [draw(rng, "exact", most) for most in rest_digits(task, first.lengths)]
    return [draw(rng, sampling, np.full(len(first), most)) for most in task.operand_digits(n)[1:]]


@dataclass(frozen=True)
class Examples:
    """A batch of problems with their answers and tags."""

    operands: tuple[Numbers, ...]
    answer: Numbers
    length: NDArray[np.int64]  # digits of the first operand
    primed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.length)


class TrainingSet:
    """The fixed first operands of a run, and batches of examples made from them."""

    def __init__(self, task: Task, config: DataConfig, seed: int):
        self.task, self.config, self.seed = task, config, seed
        usual = config.train_size - config.primed_count
        most = np.full(config.train_size, config.train_digits)  # drawn for all, so that priming changes none of them
        self.usual = draw(generator(seed, "first operands"), config.sampling, most)
        parts = [self.usual[:usual]]
        for length in sorted({length for length, _ in config.priming}):
            count = sum(c for n, c in config.priming if n == length)
            parts.append(draw(generator(seed, "priming", length), "exact", np.full(count, length)))
        self.first = digits.concatenate(parts)
        self.primed = np.arange(config.train_size) >= usual
        self.fixed = draw_rest(generator(seed, "priming second operands"), "problem-length", task, 0, self.first)

    def batch(self, step: int, size: int) -> Examples:
        """The examples of one training step; a pure function of the seed and the step."""
        rng = generator(self.seed, "batch", step)
        rows = rng.integers(0, len(self.first), size)
        operands = self.usual_problems(rng, rows, step)
        if (primed := self.primed[rows]).any():
            first = self.first[rows]
            if self.config.priming_second == "fixed":
                rest = [numbers[rows] for numbers in self.fixed]
            else:
                rest = draw_rest(generator(self.seed, "primed batch", step), "problem-length", self.task, 0, first)
            operands = [choose(primed, a, b) for a, b in zip([first, *rest], operands, strict=True)]
        return example_batch(self.task, tuple(operands), primed)

    def usual_problems(self, rng: np.random.Generator, rows: NDArray[np.int64], step: int) -> list[Numbers]:
        """What a batch is if none of its problems is primed, so that no draw depends on how long those are."""
        config, size = self.config, len(rows)
        first = self.usual[rows]
        rest = draw_rest(rng, config.sampling, self.task, config.train_digits, first)
        if config.train_operands:
            rest = emptied(rest, generator(self.seed, "operands", step).integers(2, config.train_operands + 1, size))
        if config.repeats:
            rng = generator(self.seed, "repeats", step)
            chosen = rng.random(size) < config.repeats
            first, *rest = (choose(chosen, repetitive(rng, numbers), numbers) for numbers in (first, *rest))
        if config.zeros:
            rng = generator(self.seed, "zeros", step)
            chosen = rng.random(size) < config.zeros
            first, *rest = (choose(chosen, sparse(rng, numbers), numbers) for numbers in (first, *rest))
        if config.chains:
            rng = generator(self.seed, "chains", step)
            chosen = rng.random(size) < config.chains
            rest[0] = choose(chosen, complemented(rng, first, rest[0]), rest[0])
        return [first, *rest]


def emptied(rest: Sequence[Numbers], many: NDArray[np.int64]) -> list[Numbers]:
    """Second and further operands with only so many operands in all, the rest with no digit at all."""
    nothing = Numbers(np.zeros((len(many), 1), np.int64), np.zeros(len(many), np.int64))
    return [choose(many > i, numbers, nothing) for i, numbers in enumerate(rest, start=1)]


def complemented(rng: np.random.Generator, first: Numbers, second: Numbers) -> Numbers:
    """The second numbers with most digits such that they add up to 9 with the first's; their lengths stay.

    For half of them, the last digits make a carry if they can.
    """
    width = max(first.width, second.width)
    nines, own = 9 - first.widened(width), second.widened(width)
    carry = (rng.random(len(own)) < 0.5) & (nines[:, 0] < 9)
    own[:, 0] = np.where(carry, np.maximum(own[:, 0], nines[:, 0] + 1), own[:, 0])
    place = np.arange(width)
    inside = place < second.lengths[:, None]
    leading_zero = (place == second.lengths[:, None] - 1) & (nines == 0)
    changed = inside & (place > 0) & ~leading_zero & (rng.random(own.shape) < MOSTLY)
    return Numbers(np.where(changed, nines, own), second.lengths)


def repetitive(rng: np.random.Generator, numbers: Numbers) -> Numbers:
    """Numbers of the same lengths of one or two digits each, such as 77777 and 30330."""
    often = rng.integers(1, 10, (len(numbers), 1))
    other = np.where(rng.random(often.shape) < 0.5, often, rng.integers(0, 10, often.shape))
    place, leading = np.arange(numbers.width), numbers.lengths[:, None] - 1
    drawn = np.where((rng.random(numbers.digits.shape) < 0.5) | (place == leading), often, other)
    return Numbers(np.where(place <= leading, drawn, 0), numbers.lengths)


def sparse(rng: np.random.Generator, numbers: Numbers) -> Numbers:
    """The numbers with each digit 0 by chance, but the leading one of several, such as 30070, 5002 and 0."""
    lengths = numbers.lengths[:, None]
    leading = (np.arange(numbers.width) == lengths - 1) & (lengths > 1)
    return Numbers(np.where(leading | (rng.random(numbers.digits.shape) < 0.5), numbers.digits, 0), numbers.lengths)


def rest_digits(task: Task, lengths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The most digits of the second and further operands, for first operands of these lengths."""
    kinds, inverse = np.unique(lengths, return_inverse=True)
    table = np.array([task.operand_digits(int(n))[1:] for n in kinds])
    return list(table[inverse].T)


def choose(mask: NDArray[np.bool_], a: Numbers, b: Numbers) -> Numbers:
    """Row by row, a's number where the mask is true, else b's."""
    width = max(a.width, b.width)
    chosen = np.where(mask[:, None], a.widened(width), b.widened(width))
    return Numbers(chosen, np.where(mask, a.lengths, b.lengths))


def example_batch(task: Task, operands: tuple[Numbers, ...], primed: NDArray[np.bool_]) -> Examples:
    operands = task.arranged(*operands)
    return Examples(operands, task.answer(*operands), operands[0].lengths, primed)


# Examples are drawn in blocks of a fixed size, so that a test set is the same whatever batch the model is run with.
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
    """`count` fresh problems of one length, in blocks; they depend on nothing but the arguments.

    `occasion` tells evaluations apart (the training step): each has a test set of its own. `operands` leaves all but
    the first so many empty.
    """
    if not isinstance(seed, int) or seed < 0:
        raise UsageError(f"a seed is a whole number from 0 up, not {seed}")
    if sampling not in get_args(Sampling):
        raise UsageError(f"there is no sampling '{sampling}': {nearest(str(sampling), get_args(Sampling))}")
    for start in range(0, count, BLOCK):
        rng = generator(seed, "evaluation", occasion, length, start)
        first = draw(rng, sampling, np.full(BLOCK, length))
        rest = draw_rest(rng, sampling, task, length, first)
        if operands:
            rest = emptied(rest, np.full(BLOCK, operands))
        size = min(BLOCK, count - start)
        yield example_batch(task, tuple(numbers[:size] for numbers in (first, *rest)), np.zeros(size, bool))
