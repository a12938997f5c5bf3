"""The training set: fixed first operands, others sampled online, priming (paper, §2.1 and §5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from lengthwise.arithmetic.digits import Numbers, concatenate
from lengthwise.arithmetic.tasks import Task
from lengthwise.base import Config, UsageError, generator
from lengthwise.problems.mixtures import mix, parse_mixture
from lengthwise.problems.priming import Priming, parse_priming
from lengthwise.problems.sampling import (
    Sampling,
    sample_numbers,
    sample_other_operands,
    select_rows,
)

MOST_DIGITS = 1_000_000
Share = Annotated[float, Field(ge=0, le=1)]


class DataConfig(Config):
    """The training problems, and the lengths that the layout has room for."""

    train_digits: int = Field(
        5, ge=1, le=MOST_DIGITS, description="most digits of a training problem (n_train)"
    )
    test_digits: int = Field(
        10, ge=1, le=MOST_DIGITS, description="most digits that the layout has room for (n_test)"
    )
    train_size: int = Field(
        5000, ge=1, description="first operands to train on, primed ones included (N_train)"
    )
    sampling: Sampling = Field(
        "problem-length",
        description="uniform-length (each operand, 1 to n), problem-length (one for all),"
        " uniform-integer (below 10^n) or exact (n digits)",
    )
    priming: Annotated[Priming, BeforeValidator(parse_priming)] = Field(
        (), description="long training problems, as in 35=50, 34=25,35=25 or 6:35=500"
    )
    priming_second: Literal["online", "fixed"] = Field(
        "online", description="second operands of primed problems: sampled online, or fixed"
    )
    train_operands: int | None = Field(
        None, ge=2, description="most operands of a training problem, from 2 on; null: all"
    )
    mixture: Annotated[dict[str, Share], BeforeValidator(parse_mixture)] = Field(
        {}, description="shares of special problems, as in {carry-chains: 0.3}"
    )

    @model_validator(mode="after")
    def _check_lengths(self) -> "DataConfig":
        if self.train_digits > self.test_digits:
            raise UsageError(
                f"data.train_digits is {self.train_digits}, more than data.test_digits,"
                f" which is {self.test_digits}"
            )
        for length, count in self.priming:
            if not 1 <= length <= self.test_digits or count < 1:
                raise UsageError(
                    f"data.priming has {count} problems of {length} digits, but lengths go from 1"
                    f" to data.test_digits, which is {self.test_digits}, and counts start at 1"
                )
        if self.primed_count >= self.train_size:
            raise UsageError(
                f"data.priming takes {self.primed_count} of the {self.train_size} training"
                " problems (data.train_size), which leaves none that are not primed"
            )
        return self

    @property
    def primed_count(self) -> int:
        return sum(count for _, count in self.priming)

    @property
    def longest(self) -> int:
        """The digits of the longest training problem."""
        return max(self.train_digits, *(length for length, _ in self.priming), 1)


@dataclass(frozen=True)
class Examples:
    """Problems with their answers, and which of them are primed."""

    operands: tuple[Numbers, ...]
    answer: Numbers
    primed: NDArray[np.bool_]

    @classmethod
    def of(
        cls, task: Task, operands: Sequence[Numbers], primed: NDArray[np.bool_] | None = None
    ) -> "Examples":
        """The task's problems with these operands."""
        operands = task.admit(*operands)
        unprimed = np.zeros(len(operands[0]), bool)
        return cls(operands, task.answer(*operands), unprimed if primed is None else primed)

    def __len__(self) -> int:
        return len(self.answer)

    def __getitem__(self, rows: slice) -> "Examples":
        operands = tuple(numbers[rows] for numbers in self.operands)
        return Examples(operands, self.answer[rows], self.primed[rows])


class TrainingSet:
    """The fixed first operands of a run, and batches of examples made from them."""

    def __init__(self, task: Task, config: DataConfig, seed: int):
        self.task, self.config, self.seed = task, config, seed
        unprimed = config.train_size - config.primed_count
        # Sampled for the whole set, so that priming changes none of those that stay.
        digits = np.full(config.train_size, config.train_digits)
        self.first_unprimed = sample_numbers(
            generator(seed, "first operands"), config.sampling, digits
        )
        parts = [self.first_unprimed[:unprimed]]
        for length in sorted({length for length, _ in config.priming}):
            count = sum(c for n, c in config.priming if n == length)
            rng = generator(seed, "priming", length)
            parts.append(sample_numbers(rng, "exact", np.full(count, length)))
        self.first = concatenate(parts)
        self.primed = np.arange(config.train_size) >= unprimed
        self.fixed_others = sample_other_operands(
            generator(seed, "priming second operands"), "problem-length", task, 0, self.first
        )

    def batch(self, step: int, size: int) -> Examples:
        """The examples of one training step: a pure function of the seed and the step."""
        rng = generator(self.seed, "batch", step)
        rows = rng.integers(0, len(self.first), size)
        operands = self.unprimed_operands(rng, rows, step)
        if (primed := self.primed[rows]).any():
            first = self.first[rows]
            if self.config.priming_second == "fixed":
                others = [numbers[rows] for numbers in self.fixed_others]
            else:
                rng = generator(self.seed, "primed batch", step)
                others = sample_other_operands(rng, "problem-length", self.task, 0, first)
            pairs = zip([first, *others], operands, strict=True)
            operands = [select_rows(primed, long, short) for long, short in pairs]
        return Examples.of(self.task, operands, primed)

    def unprimed_operands(
        self, rng: np.random.Generator, rows: NDArray[np.int64], step: int
    ) -> list[Numbers]:
        """The operands of a batch without priming, so that priming changes none of these draws."""
        config, first = self.config, self.first_unprimed[rows]
        others = sample_other_operands(rng, config.sampling, self.task, config.train_digits, first)
        if config.train_operands:
            rng = generator(self.seed, "operands", step)
            counts = rng.integers(2, config.train_operands + 1, len(rows))
            others = blank_operands(others, counts)
        return mix(config.mixture, [first, *others], self.seed, step)


def blank_operands(others: Sequence[Numbers], counts: NDArray[np.int64]) -> list[Numbers]:
    """Second and further operands with no digits from the given number of operands on."""
    blank = Numbers.blank(len(counts))
    return [select_rows(counts > i, numbers, blank) for i, numbers in enumerate(others, start=1)]
