"""The names of `import lengthwise`: offered, typed, and what each accepts; shell completion."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from api_page import PAGE, page

import lengthwise
from lengthwise.cli.command import COMMANDS
from lengthwise.cli.main import main

SCRIPT = """
import lengthwise

run = lengthwise.train({"task": "addition"}, progress=False)
reveal_type(run)
reveal_type(lengthwise.load(run))
reveal_type(lengthwise.evaluate(run, lengths="5:10"))
reveal_type(lengthwise.compare("runs/*", where={"seed": 0}))
reveal_type(lengthwise.extend(run, steps=5))
reveal_type(run.metrics)
lengthwise.load(5)
"""


def test_the_public_names_are_offered() -> None:
    offered = dir(lengthwise)
    assert {"train", "load", "evaluate", "sweep", "compare", "extend", "Run"} <= set(offered)
    for name in offered:
        assert getattr(lengthwise, name) is not None
    assert callable(lengthwise.sweep)


def test_a_users_script_has_real_types(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "script.py"]
    config = ["--config-file", "/dev/null", "--follow-imports", "silent"]
    done = subprocess.run([*command, *config], cwd=tmp_path, capture_output=True, text=True)
    revealed = re.findall(r'Revealed type is "(.*?)"', done.stdout)
    assert [name.replace("builtins.", "") for name in revealed] == [
        "lengthwise.training.runs.Run",
        "lengthwise.solver.solver.Solver",
        "list[lengthwise.evaluation.accuracy.Accuracy]",
        "lengthwise.training.comparison.Comparison",
        "lengthwise.training.runs.Run",
        "list[dict[str, Any]]",
    ]
    assert 'Argument 1 to "load" has incompatible type "int"' in done.stdout


def test_the_page_of_the_api_is_that_of_the_docstrings() -> None:
    """`python tests/api_page.py` writes it."""
    assert PAGE.read_text() == page()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command_and_key(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for name in COMMANDS:
        assert re.search(rf"\b{name}\b", script)
    assert "model.position" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lengthwise trai", {"train"}),
        ("lengthwise evaluate --len", {"--lengths"}),
        ("lengthwise train --model.posit", {"--model.position"}),
        ("lengthwise paper re", {"report"}),
        ("lengthwise paper run --see", {"--seeds"}),
    ],
)
def test_bash_completes(line: str, expected: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    words = line.split(" ")
    ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _lengthwise"
    program = f'{script}\n{ask}\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert expected <= found
    assert all(word.startswith(words[-1]) for word in found)


def test_names_are_not_wrapped_in_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lengthwise.cli import output

    monkeypatch.setattr(output, "columns", lambda: 40)
    name = "addition-relative-key-" + "1" * 60
    output.print_table(["run", "exact match"], [[name, "5 digits 100 %  " * 5]])
    assert name in capsys.readouterr().out


def test_a_notebook_shows_one_line_a_run_that_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As IPython's display does it: the first call shows, the others update what was shown."""
    shown: list[str] = []
    updated: list[str] = []

    class Handle:
        def update(self, content: dict[str, str], raw: bool) -> None:
            updated.append(content["text/plain"])

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(content["text/plain"])
        return Handle()

    fake = ModuleType("IPython.display")
    fake.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("lengthwise.training.display.SECONDS_BETWEEN_UPDATES", 0)
    fields = {"model.preset": "tiny", "training.steps": 3, "evaluation.final_examples": 4}
    lengthwise.train({**fields, "evaluation.examples": 4}, tmp_path, "noted")
    assert len(shown) == 1
    assert [text.partition(",")[0] for text in updated] == ["noted: step 2/3", "noted: step 3/3"]


def test_training_a_finished_run_prints_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fields = {"model.preset": "tiny", "training.steps": 1, "evaluation.final_examples": 4}
    run = lengthwise.train({**fields, "evaluation.examples": 4}, tmp_path, progress=False)
    capfd.readouterr()
    lengthwise.train({**fields, "evaluation.examples": 4}, tmp_path)
    captured = capfd.readouterr()
    assert captured.out + captured.err == f"{run.path} has finished already\n"
