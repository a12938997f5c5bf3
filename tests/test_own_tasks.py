"""Tasks that aren't like those of the package: what a user may add, from training to asking."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from lengthwise import digits
from lengthwise.data import evaluation_set
from lengthwise.digits import Numbers
from lengthwise.errors import UsageError
from lengthwise.evaluation import evaluate
from lengthwise.experiment import load
from lengthwise.runs import Run
from lengthwise.solver import Solver
from lengthwise.stress import stress
from lengthwise.tasks import TASKS, Task
from lengthwise.training import train


class Subtraction(Task):
    """x₁ − x₂, where x₁ is the larger one."""

    kind: ClassVar[str] = "subtraction"
    symbol: ClassVar[str] = "-"

    def arranged(self, *operands: Numbers) -> tuple[Numbers, ...]:
        a, b = operands
        width = max(a.width, b.width)
        right = digits.at_least(a.widened(width), b.widened(width))
        return tuple(
            Numbers(np.where(right[:, None], x.widened(width), y.widened(width)), np.where(right, x.lengths, y.lengths))
            for x, y in ((a, b), (b, a))
        )

    def answer(self, *operands: Numbers) -> Numbers:
        a, b = operands
        width = max(a.width, b.width)
        return Numbers.of(digits.carried(a.widened(width) - b.widened(width)))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits)


class Square(Task):
    """x²"""

    kind: ClassVar[str] = "square"
    symbol: ClassVar[str] = "²"

    def operand_digits(self, n: int) -> tuple[int, ...]:
        return (n,)

    def answer(self, *operands: Numbers) -> Numbers:
        return digits.multiply(operands[0], operands[0])

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return 2 * operand_digits[0]


def trained(task: type[Task], root, monkeypatch, **settings) -> Solver:
    monkeypatch.setitem(TASKS._choices, task.kind, task)
    quick = {"model.preset": "tiny", "training.steps": 2, "evaluation.examples": 5, "evaluation.final_examples": 5}
    run = Run.create(load(None, {"task": task.kind, **quick, **settings}), root)
    list(train(run))
    return run.load()


@pytest.mark.parametrize("order", ["most-significant-first", "least-significant-first"])
def test_a_task_that_takes_only_some_operands(order, tmp_path, monkeypatch):
    solver = trained(Subtraction, tmp_path, monkeypatch, **{"layout.order": order, "data.sampling": "uniform-length"})
    for block in evaluation_set(solver.task, 6, 300, seed=0):
        a, b = (numbers.to_ints() for numbers in block.operands)
        assert block.answer.to_ints() == [x - y for x, y in zip(a, b, strict=True)]
        assert block.length.tolist() == [len(str(x)) for x in a]
    assert len(evaluate(solver, [3, 4], 20)) == 2
    assert {outcome.case for outcome in stress(solver, [4], 20)} >= {"random", "unequal lengths", "zero"}
    (solution,) = solver.explain(["500 - 17"])
    assert solution.correct == 483
    with pytest.raises(UsageError, match="'17 - 500' is none of subtraction's problems; 500 - 17 is"):
        solver.solve(["17 - 500"])


def test_a_task_of_one_operand(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"layout.n_out is 10, .* 20 digits .*; layout.answer_room makes more"):
        trained(Square, tmp_path, monkeypatch)
    solver = trained(Square, tmp_path, monkeypatch, **{"layout.answer_room": True})
    (solution,) = solver.explain(["12"])
    assert solution.correct == 144
    assert len(solver.show("12")) == solver.layout.length
    assert stress(solver, [4], 20)
    with pytest.raises(UsageError, match="'1 ² 2' has 2 operands, but this model's layout has 1"):
        solver.solve(["1 ² 2"])
    with pytest.raises(UsageError, match=r"'x' is no problem; write one such as 12$"):
        solver.solve(["x"])


OWN = '''
from typing import ClassVar
from lengthwise.paper.artefact import Artefact, artefact
from lengthwise.tasks import TASKS, Addition


@TASKS.register("sum-of-one-s-own")
class Own(Addition):
    """x₁ + x₂, once more."""

    symbol: ClassVar[str] = "s"


@artefact("own", "mine", "a sum")
class OwnArtefact(Artefact):
    def settings(self, scale):
        return {"one": {"task": "sum-of-one-s-own", "model.preset": "tiny", "training.steps": 1,
                        "evaluation.examples": 5, "evaluation.final_examples": 5}}
'''


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, since what it imports stays."""
    command = [sys.executable, "-m", "lengthwise", *arguments]
    return subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)


def test_a_file_of_ones_own_is_imported_by_commands_and_their_workers(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    done = run(tmp_path, "paper", "run", "own", "--import", "mine.py", "--scale", "smoke", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "runs").glob("*")
    assert "1 s 2" in run(tmp_path, "solve", str(path), "1 s 2", LENGTHWISE_IMPORT="mine.py").stdout
    told = run(tmp_path, "solve", str(path), "1 s 2").stderr
    assert "of code that isn't imported (--import FILE): there is no task" in told


def test_what_to_do_next_has_the_imports(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    keys = "--task sum-of-one-s-own --model.preset tiny --training.steps 1 --evaluation.final_examples 5".split()
    done = run(tmp_path, "train", "--import", "mine.py", *keys)
    assert done.stdout.splitlines()[-1].endswith(" --import mine.py"), done.stderr
    _, command = done.stdout.splitlines()[-1].split(": lengthwise ")
    assert run(tmp_path, *shlex.split(command)).returncode == 0


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("absent.py", None, "there is no Python file"),
        ("mine.txt", "", "there is no Python file"),
        ("mine.py", OWN.replace('"s"', '"s s"'), "the symbol of Own is 's s'; it has to be one character"),
        ("mine.py", OWN.replace("sum-of-one-s-own", "addition"), "there is a task 'addition' already: lengthwise"),
    ],
    ids=["absent", "no Python", "symbol", "name"],
)
def test_a_file_that_cannot_be_imported_is_told_in_a_sentence(name, content, told, tmp_path):
    if content is not None:
        (tmp_path / name).write_text(content)
    done = run(tmp_path, "list", "tasks", "--import", name)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_goes_wrong_in_a_file_is_told_with_its_place(tmp_path):
    (tmp_path / "mine.py").write_text("1 / 0\n")
    done = run(tmp_path, "list", "tasks", "--import", "mine.py")
    assert done.returncode == 1
    assert 'mine.py", line 1' in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_two_files_of_one_name_are_an_error(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text("")
    done = run(tmp_path, "list", "tasks", "--import", "a/mine.py", "--import", "b/mine.py")
    assert (done.returncode, "have the same name" in done.stderr) == (2, True)
    assert run(tmp_path, "list", "tasks", "--import", "a/mine.py", "--import", "./a/mine.py").returncode == 0
