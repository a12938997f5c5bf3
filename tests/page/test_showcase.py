"""The showcase: the JavaScript inside the committed file computes what PyTorch does."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from node import NODE, run_node

from lengthwise.arithmetic.digits import Numbers, random_numbers
from lengthwise.evaluation.stress import CASES
from lengthwise.page.export import render
from lengthwise.solver import Solver
from lengthwise.training import keys

SHOWCASE = Path(__file__).parents[2] / "docs" / "showcase" / "sum.html"
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


@pytest.fixture(scope="module")
def model() -> dict[str, Any]:
    data = re.search(r'id="models">(.*?)</script>', SHOWCASE.read_text(), re.DOTALL)
    assert data is not None
    (found,) = json.loads(data[1])
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def solver(model: dict[str, Any]) -> Solver:
    """The model of the file, in PyTorch."""
    parts = {"task": model["task"], "layout": model["layout"], "model": model["config"]}
    solver = keys.parse({**parts, "data.test_digits": model["digits"]}).build().eval()
    flat = torch.from_numpy(np.frombuffer(base64.b64decode(model["weights"]), "<f4").copy())
    sizes = [size for _, size in model["tensors"]]
    pieces = dict(zip((name for name, _ in model["tensors"]), flat.split(sizes), strict=True))
    state = {k: pieces[k].reshape(t.shape) for k, t in solver.encoder.state_dict().items()}
    solver.encoder.load_state_dict(state)
    return solver


def sample(solver: Solver, count: int, stress: dict[int, int]) -> list[tuple[Numbers, ...]]:
    """Random sums of 1 to 40 digits, and stress problems: so many of each case at each length."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, 41, (count, 2))
    problems = [tuple(random_numbers(rng, np.array([n])) for n in pair) for pair in lengths]
    for length, examples in stress.items():
        for case in CASES.values():
            if case.applies(solver.task):
                for _, operands in case.problems(solver.task, length, examples, 0):
                    rows = range(len(operands[0]))
                    problems += [tuple(n[row : row + 1] for n in operands) for row in rows]
    return problems


def compare(
    model: dict[str, Any], solver: Solver, problems: list[tuple[Numbers, ...]], folder: Path
) -> None:
    texts = [" + ".join(numbers.to_text()[0] for numbers in p) for p in problems]
    for operands, found in zip(problems, run_node(model, texts, folder), strict=True):
        layout = solver.layout.fit(operands)
        with solver.testing():
            expected = solver.answer_logits(operands, layout)[0].numpy()
        logits = np.reshape(found["logits"], expected.shape)
        assert np.abs(logits - expected).max() < 1e-4, found["problem"]
        assert found["steps"][-1]["symbols"] == expected.argmax(-1).tolist()
        correct = operands[0].to_ints()[0] + operands[1].to_ints()[0]
        assert found["correct"] == found["answer"] == Numbers.from_ints([correct]).to_text()[0]


@needs_node
def test_a_sample_of_problems(model: dict[str, Any], solver: Solver, tmp_path: Path) -> None:
    compare(model, solver, sample(solver, 40, {20: 1}), tmp_path)


@needs_node
@pytest.mark.slow
def test_1000_random_and_all_stress_problems(
    model: dict[str, Any], solver: Solver, tmp_path: Path
) -> None:
    compare(model, solver, sample(solver, 1000, {5: 20, 20: 20, 100: 5, 1000: 1}), tmp_path)


@needs_node
def test_a_carry_runs_through_every_column(model: dict[str, Any], tmp_path: Path) -> None:
    """One column a round, and 100,000 digits are not too many."""
    nines, ones = "9" * 1000, "1" * 100_000
    short, long = run_node(model, [f"{nines} + 1", f"{ones} + {ones}"], tmp_path)
    rounds = [step["symbols"] for step in short["steps"]]
    assert rounds[-1] == [0] * 1000 + [1]
    for i, symbols in enumerate(rounds[:1000]):
        assert symbols[: i + 1] == [0] * (i + 1)
        assert symbols[i + 1 : 1000] == [9] * (999 - i)
    assert long["answer"] == "2" * 100_000


def test_the_showcase_is_what_export_writes(model: dict[str, Any]) -> None:
    """After a change of the page, `lengthwise page export` must write the file again."""
    assert SHOWCASE.read_text() == render([model])
    assert len(SHOWCASE.read_bytes()) < 400_000
