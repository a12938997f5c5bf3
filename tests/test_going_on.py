"""Kept checkpoints, leaving the loop early, extending a run, starting elsewhere, own code."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from conftest import label
from safetensors.torch import load_file

import lengthwise
from lengthwise.arithmetic.digits import Numbers, add
from lengthwise.arithmetic.tasks import TASKS, Task
from lengthwise.base import Registry, UsageError
from lengthwise.base.code import digest
from lengthwise.cli.main import main
from lengthwise.training import keys
from lengthwise.training.experiment import TrainingConfig
from lengthwise.training.loop import initial_solver, train
from lengthwise.training.runs import Run

QUICK: dict[str, Any] = {
    "model.preset": "tiny",
    "training.batch_size": 4,
    "training.steps": 8,
    "evaluation.lengths": [5],
    "evaluation.examples": 4,
    "evaluation.final_lengths": [5],
    "evaluation.final_examples": 4,
}
KEEP = {"training.keep_checkpoints": "powers-of-two", "training.keep_optimizer": True}


def make(root: Path, name: str, **changes: Any) -> Run:
    fields = {**QUICK, **{key.replace("__", "."): value for key, value in changes.items()}}
    return lengthwise.train(fields, root=root, name=name, progress=False)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    fields = {**QUICK, **KEEP}
    return lengthwise.train(fields, tmp_path_factory.mktemp("kept"), "kept", progress=False)


@pytest.mark.parametrize(
    ("kept", "steps"),
    [
        (None, []),
        (3, [0, 3, 6, 9]),
        ([7, 2, 2], [2, 7]),
        ("powers-of-two", [0, 1, 2, 4, 8]),
    ],
    ids=label,
)
def test_the_steps_that_are_kept(kept: Any, steps: list[int]) -> None:
    config = TrainingConfig(keep_checkpoints=kept)
    assert [step for step in range(10) if config.keeps(step)] == steps


def test_other_values_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [0, -5, "often", [1.5], [], [-1], True]
    for value in cases:
        with subtests.test(str(value)), pytest.raises(UsageError, match="keep_checkpoints"):
            keys.parse({"training.keep_checkpoints": value})


def test_weights_of_a_step_are_those_of_a_run_that_ends_there(kept: Run, tmp_path: Path) -> None:
    """With a constant rate, four of eight steps are the same as four of four."""
    constant = {"training__schedule": "constant", "training__warmup_steps": 0}
    long = make(tmp_path, "long", **constant, training__keep_checkpoints=[0, 4])
    short = make(tmp_path, "short", **constant, training__steps=4)
    assert_equal(long.load(step=4), short.load())
    assert_equal(long.load(step=0), initial_solver(long.experiment))
    assert_equal(long.load(step=8), long.load())
    assert long.kept_steps() == [0, 4, 8]
    assert kept.kept_steps() == [0, 1, 2, 4, 8]


def assert_equal(one: torch.nn.Module, other: torch.nn.Module) -> None:
    mine, theirs = one.state_dict(), other.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_evaluate_takes_a_step(kept: Run, capsys: pytest.CaptureFixture[str]) -> None:
    tested = lengthwise.evaluate(kept, [1], 300, step=1)
    assert tested == lengthwise.evaluate(kept.load(step=1), [1], 300)
    assert main(["evaluate", str(kept.path), "--step", "3"]) == 2
    assert "no weights of step 3, but those of the steps 0, 1, 2, 4, 8" in capsys.readouterr().err
    assert main(["trace", str(kept.path), "1 + 1", "--step", "1"]) == 0
    assert capsys.readouterr().out == kept.load(step=1).trace("1 + 1").table() + "\n"
    with pytest.raises(UsageError, match="a step is one of a run"):
        lengthwise.evaluate(kept.load(), [1], 10, step=1)


def test_a_damaged_kept_checkpoint_is_named(kept: Run) -> None:
    path = kept.path / "weights-2.safetensors"
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(UsageError, match=r"weights-2\.safetensors is damaged"):
            Run(kept.path).load(step=2)
    finally:
        path.write_bytes(whole)


def test_training_again_forgets_kept_weights(tmp_path: Path) -> None:
    first = make(tmp_path, "again", training__keep_checkpoints=[1, 3])
    fields = {**QUICK, "training.keep_checkpoints": [2]}
    second = lengthwise.train(fields, tmp_path, "again", again=True, progress=False)
    assert first.identity == second.identity
    assert Run(second.path).kept_steps() == [2, 8]
    assert Run(second.path).experiment.training.keep_checkpoints == [2]


def test_leaving_the_loop_early_loses_nothing(tmp_path: Path) -> None:
    """The run goes on where the loop was left, and ends with the bits of one that never was."""
    whole = make(tmp_path, "whole")
    left = Run.create(keys.parse(QUICK), tmp_path, "left")
    for progress in train(left):
        if progress.step == 5:
            break
    assert Run(left.path).status == "interrupted"
    assert next(iter(train(Run(left.path)))).step == 6
    lengthwise.resume(left.path, progress=False)
    assert_equal(Run(left.path).load(), whole.load())
    assert Run(left.path).metrics == whole.metrics


def test_extending_goes_on_with_the_optimiser(kept: Run, tmp_path: Path) -> None:
    """The first update has the moments of the finished run, and not those of a fresh start."""
    first = lengthwise.extend(kept, 1, root=tmp_path, progress=False)
    fresh = lengthwise.extend(kept, 1, fresh_optimizer=True, root=tmp_path, progress=False)
    assert first.experiment.training.batch_size == 4
    assert first.identity != fresh.identity
    assert first.experiment.steps == 1
    before, after, alone = (optimizer_state(run) for run in (kept, first, fresh))
    assert [int(state["step"]) for state in (before, after, alone)] == [8, 9, 1]
    # v ← β₂·v + (1 − β₂)·g² can't be smaller than β₂·v.
    assert (after["exp_avg_sq"] >= 0.98 * before["exp_avg_sq"] * (1 - 1e-5)).all()
    assert not (alone["exp_avg_sq"] >= 0.98 * before["exp_avg_sq"] * (1 - 1e-5)).all()


def optimizer_state(run: Run) -> dict[str, torch.Tensor]:
    prefix = "optimizer.encoder.layers.0.widen.weight."
    tensors = load_file(run.path / "optimizer.safetensors")
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def test_extending_needs_the_optimisers_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = make(tmp_path, "plain", training__steps=1)
    assert main(["extend", str(plain.path), "--steps", "5", "--runs", str(tmp_path)]) == 2
    assert "--fresh-optimizer" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


def test_a_run_starts_from_another_task_or_a_saved_model(kept: Run, tmp_path: Path) -> None:
    other = make(tmp_path, "other", task="elementwise-addition", start_from=kept)
    assert other.status == "finished"
    kept.load().save_pretrained(tmp_path / "saved")
    saved = make(tmp_path, "from-saved", start_from=tmp_path / "saved", training__steps=1)
    run = make(tmp_path, "from-run", start_from=kept, training__steps=1)
    assert saved.identity != run.identity
    assert saved.experiment.start_from == str((tmp_path / "saved").resolve())


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks that a notebook defines, whose `__main__` has no file."""
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    before = dict(TASKS._classes)
    yield
    TASKS._classes.clear()
    TASKS._classes.update(before)


def define(factor: int, comment: str = "") -> type[Task]:
    """A task whose answer depends on a constant of its module, defined as a notebook would."""
    code = f'''
FACTOR = {factor}
{comment}
def helper(numbers):
    return [FACTOR * n for n in numbers]

@TASKS.register("own-edited")
class Edited(Task):
    """{comment}"""
    symbol: ClassVar[str] = "&"
    def answer(self, *operands):
        {comment}
        return Numbers.from_ints(helper(add(*operands).to_ints()))
    def answer_digits(self, operand_digits):
        return max(operand_digits) + 2
'''
    names = {"TASKS": TASKS, "Task": Task, "ClassVar": ClassVar, "Numbers": Numbers, "add": add}
    names |= {"__name__": "__main__"}
    exec(code, names)
    return names["Edited"]  # type: ignore[return-value]


@pytest.mark.usefixtures("registered")
def test_a_task_with_a_symbol_of_its_own_has_other_weights(kept: Run, tmp_path: Path) -> None:
    define(1)
    with pytest.raises(UsageError, match=r"don't fit: .*symbols.weight is \(15, 32\) there"):
        make(tmp_path, "own", task="own-edited", start_from=kept)


@pytest.mark.usefixtures("registered")
def test_an_edited_task_is_trained_anew(tmp_path: Path) -> None:
    digests = [digest(define(1)), digest(define(1, "# the same")), digest(define(2))]
    assert digests[0] == digests[1] != digests[2]
    define(1)
    first = lengthwise.train({**QUICK, "task": "own-edited"}, tmp_path, progress=False)
    define(1, "# a comment")
    again = lengthwise.train({**QUICK, "task": "own-edited"}, tmp_path, progress=False)
    define(2)
    other = lengthwise.train({**QUICK, "task": "own-edited"}, tmp_path, progress=False)
    assert first.path == again.path != other.path
    assert Run(first.path).result is not None  # still listed and loaded
    rows = lengthwise.compare(first, other).summary()  # which are not seeds of one experiment
    assert [row["runs"] for row in rows] == [[str(first.path)], [str(other.path)]]
    assert all(row["label"].startswith("code of the task own-edited ") for row in rows)
    with pytest.raises(UsageError, match="other code of the task own-edited"):
        Run.create(keys.parse({**QUICK, "task": "own-edited"}), tmp_path, first.path.name)


@pytest.mark.usefixtures("registered")
def test_a_run_names_the_code_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    define(1)
    run = lengthwise.train({**QUICK, "task": "own-edited"}, tmp_path, progress=False)
    stopped = Run.create(keys.parse({**QUICK, "task": "own-edited", "seed": 1}), tmp_path)
    define(2)
    with pytest.raises(UsageError, match="was started with other code of the task own-edited"):
        list(train(Run(stopped.path)))
    del TASKS._classes["own-edited"]
    with pytest.raises(UsageError, match="needs code that is not imported: the task own-edited"):
        lengthwise.load(run)
    assert main(["runs", "--runs", str(tmp_path)]) == 0
    assert "not imported" in capsys.readouterr().out
    assert main(["compare", "--runs", str(tmp_path)]) == 2
    assert "no run to compare; " in (sentence := capsys.readouterr().err)
    assert "the task own-edited" in sentence


def test_code_of_the_package_is_not_in_the_identity() -> None:
    from lengthwise.training.own_code import own_parts

    for key, registry in Registry.all.items():
        for kind in registry:
            if registry[kind].__module__.startswith("lengthwise."):
                fields = {key: kind} if key != "layout" else {}
                try:
                    experiment = keys.parse(fields)
                except UsageError:  # it needs other options
                    continue
                assert own_parts(experiment) == {}
