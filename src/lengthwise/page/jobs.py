"""What the page asks of models: answers, attention, problems that break them, measurements.

Each function here runs in a worker process and returns JSON.
"""

from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise.arithmetic.digits import Numbers, carries
from lengthwise.arithmetic.tasks import Addition, Task
from lengthwise.base import UsageError, generator, nearest
from lengthwise.base.extensions import import_files
from lengthwise.evaluation.accuracy import evaluate
from lengthwise.evaluation.grid import evaluate_grid
from lengthwise.evaluation.stress import CASES
from lengthwise.page import paper
from lengthwise.page.lanes import Job
from lengthwise.page.trace import trace_attention, trace_steps
from lengthwise.page.views import find_run, modified, to_row
from lengthwise.solver import Solver
from lengthwise.solver.text import parse_problem
from lengthwise.training.runs import Run

MOST_MODELS = 6  # that are kept in memory
MOST_TOKENS = 60_000  # of a problem
MOST_PAIRS = 1e8  # of tokens, over all heads: what full attention keeps in memory
MOST_QUERIES = 96  # whose attention is shown at once
MOST_EXAMPLES = 500  # of one measurement
MOST_WORK = 2_000_000  # symbols of all problems of one measurement
MOST_CELLS = 24  # of a heat map, to each side
Json = dict[str, Any]


class Models:
    """The models of a directory of runs; those used last stay in memory."""

    def __init__(self, root: Path):
        self.root = root
        self.loaded: OrderedDict[str, tuple[object, Solver]] = OrderedDict()

    def find(self, name: str) -> Solver:
        run = find_run(self.root, name)
        stamp = modified(run.path)
        if name not in self.loaded or self.loaded[name][0] != stamp:
            self.loaded[name] = stamp, load(run)
        self.loaded.move_to_end(name)
        while len(self.loaded) > MOST_MODELS:
            self.loaded.popitem(last=False)
        return self.loaded[name][1]


def load(run: Run) -> Solver:
    solver = run.load()
    solver.requires_grad_(False)
    return solver


def find_jobs(root: Path, results: Path) -> dict[str, Job]:
    """The jobs by name, for one worker process."""
    import_files()
    torch.set_num_threads(1)
    models = Models(root)
    own: dict[str, Job] = {
        "ask": ask,
        "attention": show_attention,
        "break": break_model,
        "measure": measure,
        "grid": measure_grid_row,
    }
    return {
        **{name: partial(job, models) for name, job in own.items()},
        "paper": partial(paper.report, results, root),
        "figure": partial(paper.figure, results, root),
    }


def read_problem(solver: Solver, problem: str) -> tuple[tuple[Numbers, ...], list[str]]:
    """The operands, if the model can compute the problem in reasonable memory."""
    texts = parse_problem(problem, solver.layout)
    operands = tuple(Numbers.from_text([text]) for text in texts)
    tokens = solver.layout.fit(operands).length
    config = solver.encoder.config
    if tokens > MOST_TOKENS:
        raise UsageError(f"the problem has {tokens} tokens, but the page takes {MOST_TOKENS}")
    if config.attention.kind == "full" and tokens**2 * config.heads > MOST_PAIRS:
        raise UsageError(f"the problem has {tokens} tokens, too many for full attention here")
    return operands, texts


def ask(models: Models, run: str, problem: str) -> Json:
    """A model's answer to one problem, how it forms, and all that the page shows beside it."""
    solver = models.find(run)
    operands, texts = read_problem(solver, problem)
    steps = trace_steps(solver, operands)
    layout = solver.layout.fit(operands)
    symbols = np.array([steps[-1]["symbols"]])
    correct = solver.task.answer(*operands)
    truth = layout.encode_answer(correct, symbols.shape[1])
    numbers, valid = layout.decode_answer(symbols)
    coordinates = layout.coordinates(operands).map(lambda values: np.atleast_2d(values)[0])
    names = ("index", "significance", "place", "operand")
    return {
        "problem": f" {solver.task.symbol} ".join(texts),
        "operands": texts,
        "symbol": solver.task.symbol,
        "correct": correct.to_text()[0],
        "answer": numbers.to_text()[0] if valid[0] else None,
        "right": bool((symbols == truth).all()),
        "least_first": layout.least_first,
        "vocabulary": list(layout.vocabulary),
        "tokens": {
            "symbol": layout.encode(operands)[0].tolist(),
            **{name: getattr(coordinates, name).tolist() for name in names},
        },
        "read": np.arange(layout.n_supervised)[layout.answer_at].tolist(),
        "truth": truth[0].tolist(),
        "carries": find_carries(solver.task, operands),
        "steps": steps,
        "heads": solver.encoder.config.heads,
    }


def find_carries(task: Task, operands: tuple[Numbers, ...]) -> list[int] | None:
    """1 where a sum of two numbers carries out of a power of ten; None for other tasks."""
    if not isinstance(task, Addition) or len(operands) != 2:
        return None
    return carries(*operands)[0].astype(int).tolist()


def show_attention(
    models: Models, run: str, problem: str, iteration: int, first: int, last: int
) -> list[Any]:
    """The attention of the tokens from `first` to `last` in one iteration, by head."""
    solver = models.find(run)
    operands, _ = read_problem(solver, problem)
    tokens = solver.layout.fit(operands).length
    if not first < last <= tokens or last - first > MOST_QUERIES:
        raise UsageError(
            f"attention is shown for up to {MOST_QUERIES} of the {tokens} tokens, not {first} to"
            f" {last}"
        )
    return trace_attention(solver, operands, iteration, range(first, last))


def break_model(models: Models, run: str, case: str, length: int, seed: int) -> Json:
    """A problem of a stress case."""
    solver = models.find(run)
    if case not in CASES or not CASES[case].applies(solver.task):
        known = [name for name, found in CASES.items() if found.applies(solver.task)]
        raise UsageError(f"there is no stress case '{case[:40]}' here: {nearest(case, known)}")
    check_length(solver, length)
    rng = generator(seed, "page", case, length)
    batches = list(CASES[case].problems(solver.task, length, 1, seed))
    if not batches:
        raise UsageError(f"the case '{case}' has no problems of {length} digits")
    detail, operands = batches[int(rng.integers(len(batches)))]
    operands = solver.task.admit(*operands)
    texts = [numbers.to_text()[0] for numbers in operands]
    return {"problem": f" {solver.task.symbol} ".join(texts), "detail": detail}


def check_length(solver: Solver, length: int) -> None:
    room = solver.layout.digits
    if length > room and not solver.layout.fits_any_length:
        raise UsageError(f"this model takes up to {room} digits, not {length}")


def measure(models: Models, run: str, length: int, examples: int) -> Json:
    """Accuracy at one length, on fresh problems."""
    solver = models.find(run)
    check_length(solver, length)
    check_work(solver, [length], examples)
    (accuracy,) = evaluate(solver, [length], examples, occasion=2**31)
    return to_row(accuracy)


def check_work(solver: Solver, lengths: list[int], examples: int) -> None:
    digits = sum(sum(solver.task.operand_digits(length)) for length in lengths)
    if digits * examples > MOST_WORK:
        most = max(1, MOST_WORK // digits)
        raise UsageError(f"{examples} problems are too many here; {most} can be measured at once")


def measure_grid_row(
    models: Models, run: str, longest: int, cells: int, row: int, examples: int
) -> Json:
    """Exact match for first operands of one length and second operands of each length."""
    solver = models.find(run)
    check_length(solver, longest)
    task = solver.task
    if len(task.operand_digits(1)) != 2:
        raise UsageError(f"a grid is over two operands, but {task.kind} has another number here")
    rows = spread(longest, cells)
    columns = spread(task.operand_digits(longest)[1], cells)
    if row >= len(rows):
        raise UsageError(f"the grid has {len(rows)} rows, and none is number {row}")
    check_work(solver, [longest] * len(columns), examples)
    grid = evaluate_grid(solver, [rows[row]], columns, examples)
    shares = grid.exact_match[0].tolist()
    return {"rows": rows, "columns": columns, "row": row, "shares": shares, "examples": examples}


def spread(longest: int, most: int) -> list[int]:
    """Up to `most` lengths from 1 to the longest.

    >>> spread(5, 12), spread(20, 5)
    ([1, 2, 3, 4, 5], [1, 6, 10, 15, 20])
    """
    return sorted({round(n) for n in np.linspace(1, longest, min(longest, most)).tolist()})
