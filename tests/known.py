"""Solvers whose answers are known in advance, to test what is said about them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import TASKS, Task
from lengthwise.model import ModelConfig
from lengthwise.problems.layouts import LAYOUTS, Layout, TokenArray
from lengthwise.solver import Solver

SMALLEST = {"layers": 1, "width": 4, "heads": 1, "position": "none"}
CONFIDENCE = 5.0  # the logit of a known symbol; others have 0
Respond = Callable[[tuple[Numbers, ...], Layout], TokenArray]


def make_solver(
    task: object = "addition",
    layout: object = "paper",
    digits: int = 5,
    kind: type[Solver] = Solver,
    **model: Any,
) -> Solver:
    """A solver whose weights are PyTorch's own."""
    parsed = TASKS.parse(task)
    assert isinstance(parsed, Task)
    config = ModelConfig.model_validate(model or SMALLEST)
    return kind(parsed, digits, LAYOUTS.parse(layout), config)


def untrained(
    task: object = "addition", layout: object = "paper", digits: int = 5, **model: Any
) -> Solver:
    """A solver with random weights that answers in digits only, so that some are right."""
    fields = {"layers": 2, "width": 16, "heads": 2, **model}
    solver = make_solver(task, layout, digits, **fields)
    solver.encoder.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        solver.encoder.classifier.bias[10:] = -100
    return solver.eval()


class KnownSolver(Solver):
    """A solver that gives the symbols of `respond`."""

    respond: Respond

    def answer_logits(
        self, operands: tuple[Numbers, ...], layout: Layout, layers: int | None = None
    ) -> Tensor:
        symbols = torch.from_numpy(self.respond(operands, layout))
        return CONFIDENCE * torch.nn.functional.one_hot(symbols, len(layout.vocabulary)).float()


def known(respond: Respond, task: object = "addition", **options: Any) -> KnownSolver:
    solver = make_solver(task, kind=KnownSolver, **options)
    assert isinstance(solver, KnownSolver)
    solver.respond = respond
    return solver


def answering(answer: Callable[..., str], task: object = "addition", **options: Any) -> KnownSolver:
    """A solver that writes `answer(*texts)`: a number, or symbols with spaces between them."""

    def respond(operands: tuple[Numbers, ...], layout: Layout) -> TokenArray:
        rows = []
        for texts in zip(*(numbers.to_text() for numbers in operands), strict=True):
            written = answer(*texts)
            symbols = written.split() if " " in written else list(written)
            symbols += ["<PAD>"] * (layout.n_out - len(symbols))
            rows.append([layout.vocabulary.index(symbol) for symbol in symbols])
        return np.array(rows)

    return known(respond, task, **options)


def computing(
    compute: Callable[..., Numbers] | None = None, task: object = "addition", **options: Any
) -> KnownSolver:
    """A solver that answers `compute(*operands)`, by default correctly."""
    parsed = TASKS.parse(task)
    assert isinstance(parsed, Task)
    answer = compute or parsed.answer

    def respond(operands: tuple[Numbers, ...], layout: Layout) -> TokenArray:
        return layout.encode_answer(answer(*operands))

    return known(respond, parsed, **options)


def mistaken(
    mistakes: Callable[..., list[int]], task: object = "addition", **options: Any
) -> KnownSolver:
    """A solver that is right but for the columns `mistakes(*problem)`."""
    parsed = TASKS.parse(task)
    assert isinstance(parsed, Task)

    def respond(operands: tuple[Numbers, ...], layout: Layout) -> TokenArray:
        tokens = layout.encode_answer(parsed.answer(*operands))
        problems = zip(*(numbers.to_ints() for numbers in operands), strict=True)
        for row, problem in enumerate(problems):
            columns = mistakes(*problem)
            tokens[row, columns] = (tokens[row, columns] + 1) % 10  # padding becomes a digit
        return tokens

    return known(respond, parsed, **options)


def speechless(operands: tuple[Numbers, ...], layout: Layout) -> TokenArray:
    """Answers that are not numbers."""
    return np.full((len(operands[0]), layout.n_out), layout.vocabulary.index(layout.task.symbol))


def add(a: str, b: str) -> str:
    return str(int(a) + int(b))
