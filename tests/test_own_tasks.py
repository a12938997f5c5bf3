"""Tasks of a user's own: unlike those of the package, from training to solving, and in files."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lengthwise.arithmetic import digits
from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import TASKS, Task
from lengthwise.base import Registry, UsageError
from lengthwise.cli.main import main
from lengthwise.evaluation.accuracy import evaluate
from lengthwise.evaluation.stress import stress
from lengthwise.problems.evaluation_set import evaluation_set
from lengthwise.problems.sampling import select_rows
from lengthwise.solver import Solver
from lengthwise.sweep import Local, run_all
from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.loop import train
from lengthwise.training.runs import Run

QUICK = {
    "model.preset": "tiny",
    "training.steps": 2,
    "evaluation.examples": 5,
    "evaluation.final_examples": 5,
}
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_registrations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts with the package's choices, and leaves none behind."""
    monkeypatch.delenv("LENGTHWISE_IMPORT", raising=False)
    for registry in Registry.all.values():
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    yield
    for name in [name for name in sys.modules if name.startswith("own_test_")]:
        del sys.modules[name]


class Subtraction(Task):
    """x₁ − x₂, where x₁ is the larger one."""

    symbol: ClassVar[str] = "-"

    def admit(self, *operands: Numbers) -> tuple[Numbers, ...]:
        a, b = operands
        width = max(a.width, b.width)
        in_order = digits.at_least(a.pad_to(width), b.pad_to(width))
        return select_rows(in_order, a, b), select_rows(in_order, b, a)

    def answer(self, *operands: Numbers) -> Numbers:
        a, b = operands
        width = max(a.width, b.width)
        return Numbers.of(digits.resolve_carries(a.pad_to(width) - b.pad_to(width)))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits)


class Square(Task):
    """x²"""

    symbol: ClassVar[str] = "²"

    def operand_digits(self, n: int) -> tuple[int, ...]:
        return (n,)

    def answer(self, *operands: Numbers) -> Numbers:
        return digits.multiply(operands[0], operands[0])

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return 2 * operand_digits[0]


def train_task(task: type[Task], root: Path, **changes: Any) -> Solver:
    TASKS.register("mine")(task)
    run = Run.create(keys.load(None, {"task": "mine", **QUICK, **changes}), root)
    list(train(run))
    return run.load()


@pytest.mark.parametrize("order", ["most-significant-first", "least-significant-first"])
def test_a_task_that_admits_only_some_operands(order: str, tmp_path: Path) -> None:
    changes = {"layout.order": order, "data.sampling": "uniform-length"}
    solver = train_task(Subtraction, tmp_path, **changes)
    for block in evaluation_set(solver.task, 6, 300, seed=0):
        a, b = (numbers.to_ints() for numbers in block.operands)
        assert block.answer.to_ints() == [x - y for x, y in zip(a, b, strict=True)]
    assert len(evaluate(solver, [3, 4], 20)) == 2
    cases = {outcome.case for outcome in stress(solver, [4], 20)}
    assert cases >= {"random", "unequal lengths", "zero"}
    (solution,) = solver.explain(["500 - 17"])
    assert solution.correct == 483
    message = "'17 - 500' is not a problem of the task mine, but 500 - 17 is"
    with pytest.raises(UsageError, match=message):
        solver.solve(["17 - 500"])


def test_a_task_of_one_operand(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"up to 20 digits; the layout 'fitted' makes room"):
        train_task(Square, tmp_path)
    solver = train_task(Square, tmp_path, layout="fitted")
    (solution,) = solver.explain(["12"])
    assert solution.correct == 144
    assert len(solver.show("12")) == 4
    assert stress(solver, [4], 20)
    with pytest.raises(UsageError, match="'1 ² 2' has 2 operands, but this model takes 1"):
        solver.solve(["1 ² 2"])
    with pytest.raises(UsageError, match=r"'x' is not a problem; write one such as 12$"):
        solver.solve(["x"])


OWN = '''
from typing import ClassVar
from lengthwise.arithmetic.tasks import TASKS, Addition


@TASKS.register("own-sum")
class Own(Addition):
    """x₁ + x₂, once more."""

    symbol: ClassVar[str] = "s"
'''


def test_a_file_is_imported_by_commands_and_their_workers(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("test_mine.py").write_text(OWN)
    words = shlex.split(
        "train --name first --import test_mine.py --task own-sum --model.preset tiny"
        " --training.steps 1 --evaluation.examples 5 --evaluation.final_examples 5"
    )
    assert main(words) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.endswith(' "999999 s 123456" --import test_mine.py')
    # Workers of this process import it, too.
    experiment = Run("runs/first").experiment.model_copy(update={"seed": 1})
    assert [end for _, end in run_all([Run.create(experiment)], Local(1), Display())] == [None]
    # The printed command works in another process, and not without the file.
    command = [sys.executable, "-m", *shlex.split(line.partition(": ")[2])]
    monkeypatch.delenv("LENGTHWISE_IMPORT")
    assert "999999 s 123456 = " in subprocess.run(command, capture_output=True, text=True).stdout
    refused = subprocess.run(command[:-2], capture_output=True, text=True)
    assert refused.returncode == 2
    assert f"code that is not imported: the task own-sum (--import {tmp_path}" in refused.stderr


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("absent.py", None, "there is no Python file"),
        ("test_mine.txt", "", "there is no Python file"),
        ("test_mine.py", OWN.replace('"s"', '"s s"'), "the symbol of Own is 's s', but it must"),
        ("test_mine.py", OWN.replace("own-sum", "addition"), "the task 'addition' exists already"),
    ],
    ids=["absent", "not Python", "symbol", "name"],
)
def test_a_file_that_can_not_be_imported_is_refused_in_a_sentence(
    name: str, content: str | None, sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    assert main(["list", "tasks", "--import", str(tmp_path / name)]) == 2
    message = capsys.readouterr().err
    assert sentence in message
    assert message.count("\n") == 1


def test_an_error_in_a_file_keeps_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError) as error:
        main(["list", "tasks", "--import", str(tmp_path / "test_mine.py")])
    assert error.traceback[-1].path == tmp_path / "test_mine.py"


def test_two_files_of_one_name_are_refused(tmp_path: Path, capsys: Capture) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "test_mine.py").write_text("")
    a, b = tmp_path / "a" / "test_mine.py", tmp_path / "b" / "test_mine.py"
    same = tmp_path / "b" / ".." / "a" / "test_mine.py"
    assert main(["list", "tasks", "--import", str(a), "--import", str(same)]) == 0
    assert main(["list", "tasks", "--import", str(b)]) == 2
    assert "have the same name" in capsys.readouterr().err
