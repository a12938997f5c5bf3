"""Every example runs, with a few steps of training."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lengthwise

EXAMPLES = Path(__file__).parent.parent / "examples"
TRAINING = ["new_attention", "new_embedding", "new_task", "sweep_and_compare", "train_and_plot"]
QUICK = {"train_and_plot": ["--examples", "20"], "sweep_and_compare": ["--seeds", "1"]}


def run(name: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TRAINING)
def test_it_trains_and_prints_accuracies(name: str, tmp_path: Path) -> None:
    output = run(name, tmp_path, "--steps", "5", *QUICK.get(name, []))
    assert "%" in output
    assert (tmp_path / "accuracy.png").exists() == (name == "train_and_plot")


def test_hooks_see_every_layer(tmp_path: Path) -> None:
    fields = {"model.preset": "tiny", "training.steps": 2, "evaluation.final_examples": 10}
    trained = lengthwise.train(fields, root=tmp_path, progress=False)
    output = run("look_inside", tmp_path, str(trained.path), "95 + 17")
    assert "112 is right" in output
    assert (tmp_path / "attention.png").stat().st_size > 10_000


def test_every_example_is_tested_and_short() -> None:
    scripts = {path.stem: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert sorted(scripts) == sorted([*TRAINING, "look_inside"])
    listed = (EXAMPLES / "README.md").read_text()
    for name, text in scripts.items():
        assert f"examples/{name}.py" in listed
        assert len(text.splitlines()) <= 60, name
