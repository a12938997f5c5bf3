"""Exact-match and per-digit accuracy by length, with confidence intervals."""

import math
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from lengthwise.data import BLOCK, Examples, Sampling, evaluation_set, parse_lengths
from lengthwise.digits import Numbers
from lengthwise.errors import UsageError
from lengthwise.solver import Solver


class Scored:
    """Problems that a model was asked, and of how many it had every symbol of the answer right."""

    examples: int
    correct: int

    @property
    def exact_match(self) -> float:
        return self.correct / self.examples

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.correct, self.examples)


@dataclass(frozen=True)
class Accuracy(Scored):
    """How a model did on problems of one length."""

    length: int
    examples: int
    correct: int
    digits: tuple[float, ...]  # accuracy of each symbol of the answer, in the order in which it is written

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Accuracy":
        """The accuracy that `to_json` was written of, into metrics or a result."""
        return cls(fields["length"], fields["examples"], fields["correct"], tuple(fields["digits"]))

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
    """The Wilson score interval of a proportion, for 95 % confidence.

    >>> [round(bound, 4) for bound in wilson(90, 100)]
    [0.8256, 0.9448]
    """
    share = correct / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def accuracy(
    solver: Solver, length: int, blocks: Iterable[Examples], layers: int | None = None, sharpness: float = 1.0
) -> Accuracy:
    """Accuracy over a stream of examples; memory stays that of one block, or of less where problems are long."""
    task, layout = solver.task, solver.layout
    digits = task.answer_digits(task.operand_digits(length))
    if not layout.config.fitted:
        digits = min(digits, layout.n_out)
    examples = correct = 0
    by_digit = np.zeros(digits, np.int64)
    with solver.testing(layers, sharpness):
        for block in blocks:
            for _, answer, symbols in answered(solver, block):
                right = symbols == layout.encode_answer(answer, symbols.shape[1])
                examples += len(right)
                correct += int(right.all(1).sum())
                short = max(0, digits - right.shape[1])  # a fitted layout has no room for padding that is sure
                by_digit += np.pad(right, ((0, 0), (0, short)), constant_values=True)[:, :digits].sum(0)
    return Accuracy(length, examples, correct, tuple((by_digit / examples).tolist()))


def answered(solver: Solver, block: Examples) -> Iterator[tuple[tuple[Numbers, ...], Numbers, NDArray[np.int64]]]:
    """A block's problems with their answers and what the model reads, some at a time, in the layout that fits all."""
    layout = solver.layout.fit(block.operands)
    size = solver.at_once(layout)
    for start in range(0, len(block), size):
        rows = slice(start, start + size)
        operands = tuple(numbers[rows] for numbers in block.operands)
        symbols = solver(operands, layout).argmax(-1).cpu().numpy()
        yield operands, block.answer[rows], symbols


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
    """Accuracy on fresh problems of each length (default: all that the model's layout has room for).

    `layers` and `sharpness` turn the knobs of a trained model: more iterations of shared layers, sharper attention.
    With `progress`, a terminal has a bar meanwhile.
    """

    def tested(length: int) -> Accuracy:
        blocks: Iterable[Examples] = evaluation_set(model.task, length, examples, seed, occasion, sampling)
        if progress and sys.stderr.isatty():
            many, console = math.ceil(examples / BLOCK), Console(stderr=True)
            blocks = track(blocks, f"{length} digits", many, transient=True, console=console)
        return accuracy(model, length, blocks, layers, sharpness)

    return [tested(length) for length in check_lengths(model, lengths, examples)]


def check_lengths(model: Solver, lengths: str | Sequence[int] | None, examples: int) -> list[int]:
    """The lengths to test, all of which the model's layout has room for."""
    if not isinstance(model, Solver):
        raise UsageError(f"what is tested is a model, such as lengthwise.load gives, not {model!r}")
    if lengths is None:  # all, but of hundreds only some
        chosen = [n for n in range(1, model.layout.digits + 1) if n <= 40 or n == model.layout.digits or n % 50 == 0]
    else:
        chosen = parse_lengths(lengths)
    try:
        if any(isinstance(length, bool) for length in chosen):
            raise TypeError
        chosen, examples = [operator.index(length) for length in dict.fromkeys(chosen)], operator.index(examples)
    except TypeError:
        raise UsageError(f"lengths and examples are whole numbers, not {lengths!r} and {examples!r}") from None
    if not chosen:
        raise UsageError("an evaluation needs a length, such as 5, or several, such as 5:10")
    if examples < 1:
        raise UsageError(f"an evaluation needs at least 1 example a length, not {examples}")
    room = model.layout.digits
    for length in chosen:
        if length < 1 or (length > room and not model.layout.config.fitted):
            raise UsageError(f"length {length} doesn't fit the model's layout, which has room for 1 to {room} digits")
    return chosen
