"""Folders behind links, blank operands in mixtures, seeds, lengths and examples of problems."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import Addition
from lengthwise.base import UsageError, generator
from lengthwise.base.extensions import import_file
from lengthwise.problems.layouts import LAYOUTS, Layout
from lengthwise.problems.training_set import DataConfig, TrainingSet
from lengthwise.solver.card import make_card
from lengthwise.training import api, keys


def test_installed_code_is_nobodys_own_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "environment").symlink_to(sys.prefix)
    python = tmp_path / "environment" / "bin" / Path(sys.executable).name
    code = (
        "from pydantic import BaseModel; from lengthwise.base.code import is_own;"
        "print(is_own(BaseModel), is_own(type('Mine', (), {'__module__': '__main__'})))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_file_behind_a_link_is_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    file = tmp_path / "real" / "behind_a_link.py"
    file.write_text("")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.syspath_prepend(str(tmp_path / "link"))
    module = importlib.import_module("behind_a_link")
    monkeypatch.delitem(sys.modules, "own_behind_a_link", raising=False)
    try:
        assert import_file(file.resolve()) is module
    finally:
        del sys.modules["behind_a_link"]


def test_full_length_problems_keep_their_number_of_operands() -> None:
    def batch(mixture: dict[str, float]) -> tuple[Numbers, ...]:
        config = DataConfig(train_operands=3, mixture=mixture)
        return TrainingSet(Addition(operands=4), config, seed=0).batch(0, 200).operands

    before, after = batch({}), batch({"full-length": 1.0})
    for numbers, longest in zip(before, after, strict=True):
        assert ((numbers.lengths > 0) == (longest.lengths > 0)).all()
    assert (after[1].lengths == 5).all()
    assert set(after[2].lengths) == {0, 5}


def test_every_generator_refuses_a_seed_that_is_none() -> None:
    for seed in (-1, 1.5, None):
        with pytest.raises(UsageError, match=f"a seed is an integer ≥ 0, not {seed}"):
            generator(seed, "test")  # type: ignore[arg-type]
    assert generator(np.int64(3)).integers(100) == generator(3).integers(100)  # type: ignore[arg-type]


def test_options_of_no_registered_class_are_refused() -> None:
    with pytest.raises(UsageError, match="layout is a name or a mapping with 'kind', not"):
        LAYOUTS.parse(Layout.Options())


@pytest.mark.parametrize(
    "keys_of_model",
    [
        {"task.operands": 12},
        {"task": "binary-multiplication", "layout": "grid"},
        {"task.second_digits": 1, "task": "multiplication", "data.test_digits": 5},
        {"data.train_digits": 1, "data.test_digits": 1},
    ],
    ids=str,
)
def test_the_problem_of_a_model_card_and_of_messages_is_one(keys_of_model: dict[str, Any]) -> None:
    solver = keys.parse({"model.preset": "tiny", **keys_of_model}).build().eval()
    found = re.search(r'model\.solve\("(.+)"\)', str(make_card(solver)))
    assert found is not None
    assert len(solver.solve(found[1])) == 1
    with pytest.raises(UsageError, match=f"such as {re.escape(found[1])}$"):
        solver.solve("x")


def test_a_length_that_is_given_twice_is_tested_once(tmp_path: Path) -> None:
    config = {
        "model.preset": "tiny",
        "training.steps": 1,
        "evaluation.final_lengths": [5, 6, 5],
        "evaluation.final_examples": 4,
    }
    run = api.train(config, tmp_path, progress=False)
    assert run.result is not None
    assert [accuracy["length"] for accuracy in run.result["evaluation"]] == [5, 6]
