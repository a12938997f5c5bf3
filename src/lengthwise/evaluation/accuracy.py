"""Exact-match and per-digit accuracy by length, with confidence intervals."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthwise.base import UsageError
from lengthwise.base.progress import show_progress
from lengthwise.problems.evaluation_set import BLOCK, evaluation_set
from lengthwise.problems.lengths import parse_lengths
from lengthwise.problems.sampling import Sampling
from lengthwise.problems.training_set import Examples
from lengthwise.solver import Solver


class Score:
    """How many problems a model was asked, and how many answers had every symbol right."""

    examples: int
    correct: int

    @property
    def exact_match(self) -> float:
        return self.correct / self.examples

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.correct, self.examples)


@dataclass(frozen=True)
class Accuracy(Score):
    """The score on problems of one length."""

    length: int
    examples: int
    correct: int
    digits: tuple[float, ...]  # accuracy of each symbol of the answer, in the order of writing

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Accuracy":
        """The accuracy that `to_json` described."""
        digits = tuple(fields["digits"])
        return cls(fields["length"], fields["examples"], fields["correct"], digits)

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        return {
            "length": self.length,
            "examples": self.examples,
            "correct": self.correct,
            "exact_match": self.exact_match,
            "low": low,
            "high": high,
            "digits": list(self.digits),
        }


def wilson(correct: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a proportion, at 95 % confidence.

    >>> [round(bound, 4) for bound in wilson(90, 100)]
    [0.8256, 0.9448]
    """
    share = correct / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def measure_accuracy(
    solver: Solver,
    length: int,
    blocks: Iterable[Examples],
    layers: int | None = None,
    sharpness: float = 1.0,
) -> Accuracy:
    """Accuracy over a stream of examples; only one block is in memory at a time."""
    task, layout = solver.task, solver.layout
    digits = task.answer_digits(task.operand_digits(length))
    if not layout.fits_any_length:
        digits = min(digits, layout.n_out)
    examples = correct = 0
    by_digit = np.zeros(digits, np.int64)
    solver.check_layers(layers)
    with solver.testing(sharpness):
        for block in blocks:
            for part, symbols in solver.predict(block, layers):
                right = symbols == layout.encode_answer(part.answer, symbols.shape[1])
                examples += len(right)
                correct += int(right.all(1).sum())
                # A fitted layout leaves out padding that all answers of the batch have.
                missing = max(0, digits - right.shape[1])
                right = np.pad(right, ((0, 0), (0, missing)), constant_values=True)
                by_digit += right[:, :digits].sum(0)
    return Accuracy(length, examples, correct, tuple((by_digit / examples).tolist()))


def evaluate(
    model: Solver,
    lengths: str | Sequence[int] | None = None,
    examples: int = 1000,
    seed: int = 0,
    occasion: int = 0,
    sampling: Sampling = "exact",
    layers: int | None = None,
    sharpness: float = 1.0,
    progress: bool = False,
) -> list[Accuracy]:
    """Accuracy on fresh problems of each length; by default of all that the layout has room for.

    `layers` applies shared layers that often, `sharpness` multiplies the attention scores. With
    `progress`, a terminal shows a bar.
    """

    def measure(length: int) -> Accuracy:
        blocks: Iterable[Examples] = evaluation_set(
            model.task, length, examples, seed, occasion, sampling
        )
        if progress:
            blocks = show_progress(blocks, f"{length} digits", math.ceil(examples / BLOCK))
        return measure_accuracy(model, length, blocks, layers, sharpness)

    return [measure(length) for length in check_lengths(model, lengths, examples)]


def check_lengths(model: Solver, lengths: str | Sequence[int] | None, examples: int) -> list[int]:
    """The lengths to test, after checking that the model's layout has room for them."""
    if not isinstance(model, Solver):
        raise UsageError(f"a model is tested, such as lengthwise.load gives, not {model!r}")
    room = model.layout.digits
    if lengths is None:  # all up to 40, then every fiftieth
        chosen = [n for n in range(1, room + 1) if n <= 40 or n == room or n % 50 == 0]
    else:
        chosen = parse_lengths(lengths)
    try:
        if any(isinstance(length, bool) for length in chosen):
            raise TypeError
        chosen = [operator.index(length) for length in dict.fromkeys(chosen)]
        examples = operator.index(examples)
    except TypeError:
        raise UsageError(
            f"lengths and examples are integers, not {lengths!r} and {examples!r}"
        ) from None
    if not chosen:
        raise UsageError("an evaluation needs a length, such as 5, or several, such as 5:10")
    if examples < 1:
        raise UsageError(f"an evaluation needs at least 1 example a length, not {examples}")
    for length in chosen:
        if length < 1 or (length > room and not model.layout.fits_any_length):
            raise UsageError(
                f"length {length} does not fit the model's layout, which has room for 1 to {room}"
                " digits"
            )
    return chosen
