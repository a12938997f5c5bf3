"""What the documents say is so: commands run, code works, names and links exist."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lengthwise.training import keys

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "lengthwise"
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
DOCUMENTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples/README.md"]
EXTENDING = DOCS / "extending.md"
# `make …` sets up an environment of its own, and records take an hour. Other tests run small ones.
NOT_RUN = ("make ", "git ", "cd ", "lengthwise demo", "lengthwise record ")
# Runs commands in one process, which saves importing torch for each of them.
RUN_COMMANDS = """
import json, sys
from lengthwise.cli.main import main
for command in json.loads(sys.argv[1]):
    print(*command, flush=True)
    assert main(command[1:]) == 0, command
"""
# All examples of extending.md at once, in the package.
USE_EXTENSIONS = """
import lengthwise
from lengthwise.evaluation.stress import stress
fields = {
    "task": "subtraction", "layout": "answer-field", "data.mixture": {"round-numbers": 0.5},
    "model": {"preset": "tiny", "position": "kerple", "attention": "capped", "depth": "sampled"},
    "training": {"steps": 2, "optimizer": "sgd"}, "evaluation.final_examples": 10,
}
run = lengthwise.train(fields, progress=False)
assert "equal operands" in {outcome.case for outcome in stress(run.load(), [4], 5)}
"""


def blocks(document: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, document.read_text(), re.DOTALL | re.MULTILINE)


def python_files() -> dict[str, str]:
    """The examples of extending.md by their file names, which are their first lines."""
    parts = [code.partition("\n") for code in blocks(EXTENDING, "python")]
    return {name.removeprefix("# "): code for name, _, code in parts}


def commands(document: Path) -> list[str]:
    """Those in bash blocks, and those in a table's first column."""
    lines = "\n".join(blocks(document, "bash")).replace("\\\n", " ").splitlines()
    listed = re.findall(r"^\| `(lengthwise [^`]*)`", document.read_text(), re.MULTILINE)
    return [*lines, *(re.sub(r" \[.*?\]", "", line) for line in listed)]


def run(words: list[str], folder: Path, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_every_command_runs(document: Path, tmp_path: Path) -> None:
    if document == EXTENDING:
        for name, code in python_files().items():
            (tmp_path / name).write_text(code)
    ours, tests = [], []
    for command in commands(document):
        words = shlex.split(command, comments=True)
        if not words or command.startswith(NOT_RUN):
            continue
        settings = dict(word.split("=") for word in words if word.startswith("LENGTHWISE_"))
        words = words[len(settings) :]
        assert words[0] in ("lengthwise", "pytest"), f"don't know how to run: {command}"
        if words[0] == "lengthwise":
            assert not settings
            ours.append(words)
        else:
            tests.append((words[1:], settings))
    if ours:
        run(["-c", RUN_COMMANDS, json.dumps(ours)], tmp_path)
    for words, settings in tests:
        words = [str(ROOT / word) if word.startswith("tests/") else word for word in words]
        words += ["-n", "0", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
        run(["-m", "pytest", *words], tmp_path, **settings)


def test_examples_work_inside_the_package(tmp_path: Path) -> None:
    """Each is put into the folder that the page's table names for its decorator."""
    package = Path(shutil.copytree(PACKAGE, tmp_path / "package" / "lengthwise"))
    row = r"^\| \[.*?\]\(.*?\) \| `@([\w.]+)` \| `([\w/]+)` \|"
    folders = dict(re.findall(row, EXTENDING.read_text(), re.MULTILINE))
    for name, code in python_files().items():
        (decorator,) = set(re.findall(r"^@([\w.]+)\(", code, re.MULTILINE))
        (package / folders[decorator] / name).write_text(code)
    run(["-c", USE_EXTENSIONS], tmp_path, PYTHONPATH=str(package.parent))


def test_python_in_the_readme_runs(tmp_path: Path) -> None:
    for code in blocks(ROOT / "README.md", "python"):
        run(["-c", code], tmp_path)


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_configurations_are_valid(document: Path, tmp_path: Path) -> None:
    for text in blocks(document, "yaml"):
        (tmp_path / "config.yaml").write_text(text)
        keys.load(tmp_path / "config.yaml")


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
        if target.startswith("http"):
            continue
        name, _, heading = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            assert heading in map(anchor, headings), target


@pytest.mark.parametrize("document", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_names_in_code_exist(document: Path) -> None:
    """The last part of every dotted name in backticks occurs in the source."""
    if document.name == "notebook.md":  # which tells of the past, too
        return
    text = document.read_text()
    sources = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.[ch]"), ROOT / "Makefile"]
    files = [
        path.name for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*")
    ]
    known = "\n".join(
        [*(path.read_text() for path in sources), *files, *blocks(document, "python")]
    )
    words = set(re.findall(r"\w+", known))
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for span in re.findall(r"`([^`]+)`", prose):
        if re.fullmatch(r"@?[A-Za-z_][\w.]*(\(.*\))?", span):
            name = span.lstrip("@").partition("(")[0].rpartition(".")[2]
            assert name in words, span


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_lines_are_short(document: Path) -> None:
    for number, line in enumerate(document.read_text().splitlines(), start=1):
        assert len(line) <= 100, f"{document.name}:{number} has {len(line)} characters"


def packages() -> list[str]:
    """In the order of the table in docs/README.md."""
    return re.findall(r"^\| `(\w+)` \|", (DOCS / "README.md").read_text(), re.MULTILINE)


def test_every_package_is_listed() -> None:
    assert sorted(packages()) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def test_the_readme_has_the_same_packages_in_the_same_order() -> None:
    tree = (ROOT / "README.md").read_text().partition("src/lengthwise/\n")[2]
    listed = re.findall(r"^ +(\w+)/ ", tree, re.MULTILINE)
    assert [name for name in listed if name in packages()] == packages()


def test_the_drawing_has_the_same_packages() -> None:
    drawing = (DOCS / "architecture.svg").read_text()
    assert sorted(re.findall(r'class="name">(\w+)<', drawing)) == sorted(packages())
