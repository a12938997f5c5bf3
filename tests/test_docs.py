"""What README and docs say is so: their commands run, their code works, their tree is the package's."""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lengthwise import experiment

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "lengthwise"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# `make …` sets up an environment of its own; what it then runs is tested in test_sweep.py and by this very test suite.
# Records take an hour; test_record.py makes a small one.
NOT_RUN_HERE = ("make ", "git ", "cd ", "lengthwise record ")


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document.read_text(), re.DOTALL | re.MULTILINE)


def run_commands(commands: list[str], folder: Path, package: Path) -> None:
    """Run shell commands one after the other, as a reader would, with `lengthwise` and `pytest` of this Python."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "COLUMNS": "120"}
    for command in commands:
        words = shlex.split(command, comments=True)
        if not words or command.startswith(NOT_RUN_HERE):
            continue
        settings = dict(word.split("=") for word in words if word.startswith("LENGTHWISE_"))
        words = words[len(settings) :]
        assert words[0] in ("lengthwise", "pytest"), f"don't know how to run: {command}"
        if words[0] == "pytest":
            words = [str(ROOT / word) if word.startswith("tests/") else word for word in words]
            words += ["-n", "0", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=folder,
            env={**environment, **settings},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_runs(document, tmp_path):
    """Commands of extending.md need the code of that page, put where the page says."""
    package = Path(shutil.copytree(PACKAGE, tmp_path / "package" / "lengthwise"))
    if document.name == "extending.md":
        own, task, position, case, artefact = blocks(document, "python")
        (tmp_path / "mine.py").write_text(own)
        (package / "paper" / "short_sums.py").write_text(artefact)
        for file, code, marker in (
            ("tasks.py", task, "AnyTask = "),
            ("positions.py", position, "AnyPosition = "),
            ("stress.py", case, "class Failure("),
        ):
            source = (package / file).read_text()
            before, _, after = source.partition(marker)
            if code.splitlines()[0] not in source:  # unless somebody has done what the page says
                (package / file).write_text(before + code + "\n\n" + marker + after)
    commands = [line for block in blocks(document, "bash") for line in block.replace("\\\n", " ").splitlines()]
    run_commands(commands + table_commands(document), tmp_path, package)


def table_commands(document: Path) -> list[str]:
    """The commands in a table's first column; those that train for long are tested at smoke scale elsewhere."""
    listed = re.findall(r"^\| `(lengthwise [^`]*)`", document.read_text(), re.MULTILINE)
    listed = [re.sub(r" \[.*?\]", "", command).replace("RUN", "runs/tour") for command in listed]
    return [command for command in listed if not re.search(r"train$|demo|paper run|record", command)]


def test_python_in_the_readme_runs(tmp_path):
    for code in blocks(ROOT / "README.md", "python"):
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_configurations_in_the_readme_are_valid(tmp_path):
    configurations = blocks(ROOT / "README.md", "yaml")
    assert configurations
    for text in configurations:
        (tmp_path / "config.yaml").write_text(text)
        experiment.load(tmp_path / "config.yaml")


def tree() -> list[str]:
    """The modules in the order of the README's annotated tree."""
    text = (ROOT / "README.md").read_text()
    listed = text[text.index("src/lengthwise/\n") : text.index("\ntests/")]
    return re.findall(r"^  (\w+)(?:\.py|/) +\S", listed, re.MULTILINE)


def test_modules_import_only_from_above():
    order = tree()
    modules = {path: path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    modules = {path: module for path, module in modules.items() if not module.startswith("__")}
    assert sorted(order) == sorted(set(modules.values()))
    for path, module in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lengthwise"):
                _, _, inner = (node.module or "").partition(".")
                for name in [inner.partition(".")[0]] if inner else [alias.name for alias in node.names]:
                    above = name == module or order.index(name) < order.index(module)
                    assert above, f"{path.name} imports {name}, which isn't above it"
