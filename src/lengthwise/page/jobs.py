"""What the page asks of models: answers, attention, problems that break them, measurements.

Each function here runs in a worker process and returns JSON.
"""

import io
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise.arithmetic.digits import Numbers, carries, random_numbers
from lengthwise.arithmetic.tasks import Addition
from lengthwise.base import UsageError, generator
from lengthwise.base.extensions import import_files
from lengthwise.evaluation.accuracy import evaluate, wilson
from lengthwise.evaluation.stress import CASES
from lengthwise.page import paper
from lengthwise.page.lanes import Job
from lengthwise.page.views import find_run, modified
from lengthwise.problems.training_set import Examples
from lengthwise.solver import Solver
from lengthwise.solver.text import parse_problem
from lengthwise.training.runs import Run

MOST_MODELS = 6  # that are kept in memory
MOST_DIGITS = 10_000  # of an operand
MOST_TOKENS = 60_000
MOST_PAIRS = 1.5e8  # of tokens, in all heads: what full attention keeps in memory
MOST_SYMBOLS = 400_000  # of answers, over all iterations that are shown
MOST_QUERIES = 96  # whose attention is shown at once
MOST_EXAMPLES = 500  # of one measurement
MOST_CELLS = 24  # of a heat map, to each side
Json = dict[str, Any]


class Models:
    """The models of a directory of runs; those used last stay in memory."""

    def __init__(self, root: Path):
        self.root = root
        self.loaded: OrderedDict[str, tuple[object, Run, Solver]] = OrderedDict()

    def find(self, name: str) -> tuple[Run, Solver]:
        run = find_run(self.root, name)
        stamp = modified(run.path)
        if name not in self.loaded or self.loaded[name][0] != stamp:
            self.loaded[name] = stamp, run, run.load()
        self.loaded.move_to_end(name)
        while len(self.loaded) > MOST_MODELS:
            self.loaded.popitem(last=False)
        return self.loaded[name][1:]


def find_jobs(root: Path, results: Path) -> dict[str, Job]:
    """The jobs by name, for one worker process."""
    import_files()
    torch.set_num_threads(1)
    models = Models(root)
    jobs: dict[str, Job] = {
        "ask": ask,
        "attention": attention,
        "break": break_model,
        "measure": measure,
        "grid": measure_grid,
    }
    bound = {name: partial(job, models) for name, job in jobs.items()}
    return {
        **bound,
        "paper": partial(paper.report, results, root),
        "figure": partial(paper.figure, results, root),
    }
