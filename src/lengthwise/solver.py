"""A model that solves problems: an encoder with the task and the layout that it is trained for."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from huggingface_hub import PyTorchModelHubMixin
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from lengthwise.digits import Numbers
from lengthwise.errors import UsageError, explain
from lengthwise.layout import Coordinates, Layout, LayoutConfig
from lengthwise.model import Encoder, Knobs, ModelConfig
from lengthwise.tasks import SYMBOL, TASKS, Product, Task

PROBLEM = re.compile(rf"\s*[0-9]+(?:\s*{SYMBOL}\s*[0-9]+)*\s*=?\s*")
ALIASES = {"x": "×", "X": "×"}  # what people type for a symbol
# How many symbols of problems are worked on at once. On the CPU more is no faster.
SYMBOLS_AT_ONCE = {"cpu": 6000, "cuda": 50_000, "mps": 50_000}


@dataclass(frozen=True)
class Solution:
    """What a model makes of one problem."""

    problem: str
    answer: int | None  # None where the model's output is no number
    correct: int
    symbols: tuple[str, ...]  # the model's output as it stands, padding included
    confidences: tuple[float, ...]  # of each symbol
    right: bool


@dataclass(frozen=True)
class Written:
    """Problems as a model gets them in training, and what it should make of them."""

    tokens: Tensor  # (b, j)
    at: Coordinates[Tensor]
    targets: Tensor  # (b, n): the symbols of the first positions
    answer_at: slice | NDArray[np.int64]  # which of those are the answer's


class Solver(nn.Module, PyTorchModelHubMixin):
    """`solver.solve(["99999+1"])`; also `from_pretrained`, `save_pretrained` and `push_to_hub`.

    The arguments are plain mappings, as in a configuration file, because the Hub keeps them as JSON.
    """

    def __init__(self, task: Mapping[str, Any], digits: int, layout: Mapping[str, Any], model: Mapping[str, Any]):
        super().__init__()
        self.task: Task = TASKS.parse(task)  # type: ignore[assignment]
        try:
            layout_, model_ = LayoutConfig.model_validate(layout), ModelConfig.model_validate(model)
        except ValidationError as error:
            raise UsageError(explain(error)) from None
        self.layout = written = Layout(self.task, digits, layout_)
        self.encoder = Encoder(model_, written.length, len(written.vocabulary), written.n_operands)

    @property
    def device(self) -> torch.device:
        return self.encoder.symbols.weight.device

    def at_once(self, layout: Layout) -> int:
        """How many problems are worked on at once."""
        return max(1, SYMBOLS_AT_ONCE[self.device.type] // layout.length)

    def forward(self, operands: tuple[Numbers, ...], layout: Layout | None = None) -> Tensor:
        """Logits (batch, n_out, vocabulary), with the problems written in this layout; by default in what fits them."""
        layout = layout or self.layout.fit(operands)
        # Where layers are applied until nothing changes, sums that the answer builds on count as well.
        return self.logits(layout, operands, layout.n_asked)[:, layout.answer_at]

    def write(self, operands: tuple[Numbers, ...], answer: Numbers, padding: int = 0) -> Written:
        """Problems for training; with more padding, where the layout is fitted."""
        layout = self.layout.fit(operands, padding)
        targets = torch.from_numpy(layout.encode_targets(operands, answer)).to(self.device, non_blocking=True)
        return Written(*self.tokens(layout, operands), targets, layout.answer_at)

    def supervised(self, written: Written, layers: int | None = None) -> Tensor:
        """Logits that should give the targets; with other than the usual layers."""
        return cast(Tensor, self.encoder(written.tokens, written.at, written.targets.shape[1], layers))

    def logits(self, layout: Layout, operands: tuple[Numbers, ...], positions: int) -> Tensor:
        """Logits of the first positions, with the problems written in this layout."""
        return cast(Tensor, self.encoder(*self.tokens(layout, operands), positions))

    def tokens(self, layout: Layout, operands: tuple[Numbers, ...]) -> tuple[Tensor, Coordinates[Tensor]]:
        tokens = torch.from_numpy(layout.encode(operands)).to(self.device, non_blocking=True)
        return tokens, layout.coordinates(operands).map(lambda c: torch.from_numpy(c).to(self.device))

    def targets(self, answer: Numbers, n_out: int) -> Tensor:
        """The symbols (batch, n_out) that logits should give."""
        return torch.from_numpy(self.layout.encode_answer(answer, n_out)).to(self.device, non_blocking=True)

    @contextmanager
    def testing(self, layers: int | None = None, sharpness: float = 1.0) -> Iterator[None]:
        """No dropout and no gradients, the knobs as given, and then all as it was before."""
        if layers and self.encoder.config.encoder == "transformer":
            raise UsageError("only a universal transformer can apply its layers another number of times")
        was_training, knobs = self.training, self.encoder.knobs
        self.encoder.knobs = Knobs(layers, sharpness)
        self.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            self.encoder.knobs = knobs
            self.train(was_training)

    def multiplying_by(self, digits: int | Literal["same"]) -> "Solver":
        """The same model, asked for products by numbers of so many digits, or of the same as the first has."""
        if not isinstance(self.task, Product):
            raise UsageError(f"this model was trained for {self.task.kind}, not for products")
        if digits != "same" and digits < 1:
            raise UsageError(f"numbers have 1 digit or more, not {digits}")
        layout, room = self.layout.config, self.task.second_digits
        longer = room is not None and (digits == "same" or digits > room)
        if longer and not (layout.long_multiplication and layout.fitted):
            raise UsageError(
                f"this model multiplies by numbers of up to {room} digits; only one with layout.long_multiplication and"
                " layout.fitted multiplies by longer ones"
            )
        other = copy(self)
        other.task = self.task.model_copy(update={"second_digits": None if digits == "same" else digits})
        return other

    def solve(self, problems: Sequence[str]) -> list[int | None]:
        """The model's answers; None where its output is no number."""
        return [solution.answer for solution in self.explain(problems)]

    def explain(self, problems: Sequence[str]) -> list[Solution]:
        """The model's answers with their confidence, beside the correct ones."""
        several = isinstance(problems, Iterable) and not isinstance(problems, str)
        problems = list(problems) if several else [problems]  # type: ignore[list-item]
        parsed = [self.parse(problem) for problem in problems]
        solutions: dict[int, Solution] = {}
        for rows in self.batches(parsed):
            operands = tuple(Numbers.from_text(column) for column in zip(*(parsed[row] for row in rows), strict=True))
            solutions |= zip(rows, self._solutions([problems[row] for row in rows], operands), strict=True)
        return [solutions[row] for row in range(len(problems))]

    def batches(self, parsed: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        """Which problems are solved together: of one length, where the layout is fitted to it, and not too many."""
        fitting: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for row, operands in enumerate(parsed):
            layout = self.layout.of_lengths([len(operand) for operand in operands])
            _, rows = fitting.setdefault(layout.widths, (self.at_once(layout), []))
            rows.append(row)
        for size, rows in fitting.values():
            yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def _solutions(self, problems: Sequence[str], operands: tuple[Numbers, ...]) -> Iterator[Solution]:
        with self.testing():
            confidence, symbols = (t.cpu().numpy() for t in self(operands).softmax(-1).max(-1))
        numbers, valid = self.layout.decode_answer(symbols)
        correct = self.task.answer(*operands)
        right = (symbols == self.layout.encode_answer(correct, symbols.shape[1])).all(1)
        answers, truths = numbers.to_ints(), correct.to_ints()
        for row, problem in enumerate(problems):
            yield Solution(
                problem,
                answers[row] if valid[row] else None,
                truths[row],
                tuple(self.layout.vocabulary[token] for token in symbols[row]),
                tuple(confidence[row].tolist()),
                bool(right[row]),
            )

    def show(self, problem: str) -> list[dict[str, Any]]:
        """How a problem is written: each token's symbol and coordinates, and the symbol of the answer read there."""
        operands = tuple(Numbers.from_text([operand]) for operand in self.parse(problem))
        layout = self.layout.fit(operands)
        at = layout.coordinates(operands).map(lambda c: c[0].tolist() if c.ndim == 2 else c.tolist())
        (tokens,), (answer,) = layout.encode(operands), layout.encode_answer(self.task.answer(*operands))
        read = dict(zip(np.arange(layout.n_asked)[layout.answer_at].tolist(), answer, strict=True))
        shown = [name for name in vars(at) if name != "row" or layout.config.long_multiplication]
        return [
            {
                "symbol": layout.vocabulary[token],
                **{name: values[i] for name, values in vars(at).items() if name in shown},
                "answer read here": layout.vocabulary[read[i]] if i in read else "",
            }
            for i, token in enumerate(tokens)
        ]

    def parse(self, problem: str) -> list[str]:
        """The operands of a problem such as "99999 + 1", as decimal texts without leading zeros."""
        shown, rooms = shortened(repr(problem)), self.task.operand_digits(self.layout.digits)
        bare = len(rooms) > 1 and isinstance(problem, str) and problem.strip(" =").isdecimal()
        if not isinstance(problem, str) or not PROBLEM.fullmatch(problem) or bare:
            example = f" {self.task.symbol} ".join(f"{n}{n + 1}" for n in range(1, 2 * len(rooms), 2))
            raise UsageError(f"{shown} is no problem; write one such as {example}")
        operands = [text.lstrip("0") or "0" for text in re.findall("[0-9]+", problem)]
        written = {s if s == self.task.symbol else ALIASES.get(s, s) for s in re.findall(SYMBOL, problem)}
        if not written <= {self.task.symbol}:
            raise UsageError(
                f"{shown} has the operation {' '.join(sorted(written))}, but this model was trained for"
                f" {self.task.kind}, which is written {self.task.symbol}"
            )
        if len(operands) != len(rooms):
            raise UsageError(f"{shown} has {len(operands)} operands, but this model's layout has {len(rooms)}")
        for operand, room, shared in zip(operands, rooms, self.layout.shared, strict=True):
            fixed = shared and not self.layout.config.long_multiplication
            if len(operand) > room and (fixed or not self.layout.config.fitted):
                raise UsageError(
                    f"{shortened(operand)} has {len(operand)} digits, but this model's layout has room for {room}"
                )
        taken = [n.to_text()[0] for n in self.task.arranged(*(Numbers.from_text([o]) for o in operands))]
        if taken != operands:
            other = f" {self.task.symbol} ".join(map(shortened, taken))
            raise UsageError(f"{shown} is none of {self.task.kind}'s problems; {other} is")
        return operands


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:20]}…{text[-10:]}"
