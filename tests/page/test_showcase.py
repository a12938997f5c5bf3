"""The showcase: the JavaScript inside the committed files computes what PyTorch does."""

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

SHOWCASE = Path(__file__).parents[2] / "docs" / "showcase"
NAMES = ["sum", "product"]
MOST_BYTES = {"sum": 200_000, "product": 400_000}
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def read_model(name: str) -> dict[str, Any]:
    """The description of the model in a file."""
    text = (SHOWCASE / f"{name}.html").read_text()
    data = re.search(r'id="models">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    (found,) = json.loads(data[1])
    assert isinstance(found, dict)
    return found


def build(model: dict[str, Any]) -> Solver:
    """The same model in PyTorch."""
    parts = {"task": model["task"], "layout": model["layout"], "model": model["config"]}
    solver = keys.parse({**parts, "data.test_digits": model["digits"]}).build().eval()
    flat = torch.from_numpy(np.frombuffer(base64.b64decode(model["weights"]), "<f4").copy())
    sizes = [size for _, size in model["tensors"]]
    pieces = dict(zip((name for name, _ in model["tensors"]), flat.split(sizes), strict=True))
    state = {k: pieces[k].reshape(t.shape) for k, t in solver.encoder.state_dict().items()}
    solver.encoder.load_state_dict(state)
    return solver


def sample(
    solver: Solver, count: int, most_digits: int, stress: dict[int, int]
) -> list[tuple[Numbers, ...]]:
    """Random problems, and stress problems: so many of each case at each length."""
    rng = np.random.default_rng(7)
    lengths = rng.integers(1, most_digits + 1, (count, 2))
    problems = [tuple(random_numbers(rng, np.array([n])) for n in pair) for pair in lengths]
    for length, examples in stress.items():
        for case in CASES.values():
            if case.applies(solver.task):
                for _, operands in case.problems(solver.task, length, examples, 0):
                    rows = range(len(operands[0]))
                    problems += [tuple(n[row : row + 1] for n in operands) for row in rows]
    return problems


def compare(name: str, count: int, most_digits: int, stress: dict[int, int], folder: Path) -> None:
    model = read_model(name)
    solver = build(model)
    problems = sample(solver, count, most_digits, stress)
    symbol = solver.task.symbol
    texts = [f" {symbol} ".join(numbers.to_text()[0] for numbers in p) for p in problems]
    for operands, found in zip(problems, run_node(model, texts, folder), strict=True):
        layout = solver.layout.fit(operands)
        with solver.testing():
            expected = solver.answer_logits(operands, layout)[0].numpy()
        logits = np.reshape(found["logits"], expected.shape)
        assert np.abs(logits - expected).max() < 1e-4, found["problem"]
        assert found["steps"][-1]["symbols"] == expected.argmax(-1).tolist()
        a, b = (numbers.to_ints()[0] for numbers in operands)
        correct = a + b if symbol == "+" else a * b
        assert found["correct"] == found["answer"] == Numbers.from_ints([correct]).to_text()[0]


@needs_node
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_problems(name: str, tmp_path: Path) -> None:
    compare(name, 40, 40 if name == "sum" else 5, {20 if name == "sum" else 6: 1}, tmp_path)


@needs_node
@pytest.mark.slow
def test_1000_random_and_all_stress_sums(tmp_path: Path) -> None:
    compare("sum", 1000, 40, {5: 20, 20: 20, 100: 5, 1000: 1}, tmp_path)


@needs_node
@pytest.mark.slow
def test_300_random_and_all_stress_products(tmp_path: Path) -> None:
    compare("product", 300, 12, {5: 5, 20: 2, 50: 1}, tmp_path)


@needs_node
def test_a_carry_runs_through_every_column(tmp_path: Path) -> None:
    """One column a round, and 100,000 digits are not too many."""
    nines, ones = "9" * 1000, "1" * 100_000
    problems = [f"{nines} + 1", f"{ones} + {ones}"]
    short, long = run_node(read_model("sum"), problems, tmp_path)
    rounds = [step["symbols"] for step in short["steps"]]
    assert rounds[-1] == [0] * 1000 + [1]
    for i, symbols in enumerate(rounds[:1000]):
        assert symbols[: i + 1] == [0] * (i + 1)
        assert symbols[i + 1 : 1000] == [9] * (999 - i)
    assert long["answer"] == "2" * 100_000


@pytest.mark.parametrize("name", NAMES)
def test_the_showcase_is_what_export_writes(name: str) -> None:
    """After a change of the page, `lengthwise page export` must write the file again."""
    path = SHOWCASE / f"{name}.html"
    assert path.read_text() == render([read_model(name)])
    assert len(path.read_bytes()) < MOST_BYTES[name]
