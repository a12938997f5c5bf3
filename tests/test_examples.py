"""Every example runs, with a few steps of training."""

import os
import subprocess
import sys
from pathlib import Path

import notebooks
import pytest

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


def test_a_model_is_looked_into(tmp_path: Path) -> None:
    output = run("look_inside", tmp_path)
    assert "95 + 17 = 112, and 112 is right" in output
    assert "after layer 6" in output
    assert (tmp_path / "attention.png").stat().st_size > 10_000


def test_the_carry_is_found_by_patching(tmp_path: Path) -> None:
    """At first in the digit that makes it, at last in the digit at which the tens are read."""
    rows = {
        line[:24].strip(): line[24:].split(" %") for line in run("patching", tmp_path).splitlines()
    }
    first, last = ([int(share) for share in rows[p][:4]] for p in ("embedding", "after layer 6"))
    assert first == [0, 0, 0, 100]  # 1 1 2 9
    assert last == [100, 0, 0, 0]


def test_the_notebook_runs() -> None:
    """Its claims are assertions in its cells."""
    notebook = notebooks.run(EXAMPLES / "carry_study.ipynb")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert sum("assert " in "".join(cell["source"]) for cell in cells) >= 4
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3


def test_every_example_is_tested_and_short() -> None:
    scripts = {path.stem: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert sorted(scripts) == sorted([*TRAINING, "look_inside", "patching"])
    listed = (EXAMPLES / "README.md").read_text()
    for name, text in scripts.items():
        assert f"examples/{name}.py" in listed
        assert len(text.splitlines()) <= 60, name
