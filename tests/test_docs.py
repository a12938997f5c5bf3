"""README and docs are true: commands run, code works, names and links exist."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lengthwise.training.grid import expand, read_grid

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lengthwise"
README, DOCS = ROOT / "README.md", ROOT / "docs"
EXTENDING = DOCS / "extending.md"
PAGES = sorted(DOCS.glob("*.md"))
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
DOCUMENTS += sorted((ROOT / "examples").glob("*.md"))
# `make` sets up an environment of its own. Records and the demo take long; other tests run them
# small.
NOT_RUN = ("make", "git", "cd", "lengthwise record", "lengthwise demo")
ELSEWHERE = ("--on ray", "--on slurm", "torchrun ")  # run by test_ray.py, test_slurm.py, …
# One process runs all commands of a document: to import torch for each would take minutes.
RUN_ALL = """
import json, sys
from lengthwise.cli.main import main
for words in json.load(sys.stdin):
    print("$", *words, flush=True)
    if code := main(words):
        sys.exit(f"exit code {code}")
"""
# All examples of extending.md at once, inside the package.
USE_EXAMPLES = """
import lengthwise
from lengthwise.evaluation.stress import stress
from lengthwise.paper import ARTEFACTS
fields = {
    "task": "subtraction", "layout": "answer-field", "data.mixture": {"round-numbers": 0.5},
    "model": {"preset": "tiny", "position": "kerple", "attention": "capped", "depth": "sampled"},
    "training": {"steps": 2, "optimizer": "sgd"}, "evaluation.final_examples": 10,
}
run = lengthwise.train(fields, progress=False)
assert "equal operands" in {outcome.case for outcome in stress(run.load(), [4], 5)}
assert ARTEFACTS["far-embeddings"].has_figure
"""


def blocks(document: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, document.read_text(), re.DOTALL | re.MULTILINE)


def commands(document: Path, elsewhere: bool = False) -> list[str]:
    """The commands in a document's blocks: those that run here, or those that need a cluster."""
    text = "".join(blocks(document, "bash")).replace("\\\n", " ")
    lines = (shlex.join(shlex.split(line, comments=True)) for line in text.splitlines())
    found = (line for line in lines if line and not line.startswith(NOT_RUN))
    return [line for line in found if any(mark in line for mark in ELSEWHERE) == elsewhere]


def run(words: list[str | Path], folder: Path, text: str = "", **variables: str) -> None:
    environment = {**os.environ, "COLUMNS": "120", **variables}
    done = subprocess.run(
        words, cwd=folder, env=environment, input=text, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if commands(path)], ids=lambda path: path.stem
)
def test_every_command_runs(document: Path, tmp_path: Path) -> None:
    """Code that starts with a file's name is written to that file first."""
    for code in blocks(document, "python"):
        if name := re.match(r"# (\w+\.py)\n", code):
            (tmp_path / name[1]).write_text(code)
    ours, tests = [], []
    for command in commands(document):
        variables = re.findall(r"^(LENGTHWISE_\w+)=(\S+) ", command)
        program, *words = shlex.split(command)[len(variables) :]
        assert program in ("lengthwise", "pytest"), f"don't know how to run: {command}"
        if program == "lengthwise":
            ours.append(words)
        else:
            tests.append((dict(variables), words))
    run([sys.executable, "-c", RUN_ALL], tmp_path, json.dumps(ours))
    for settings, words in tests:
        paths = [str(ROOT / word) if word.startswith("tests/") else word for word in words]
        options = ["-n", "0", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
        run([sys.executable, "-m", "pytest", *paths, *options], tmp_path, **settings)


def test_the_documents_have_commands() -> None:
    """Else the test above would have nothing to run."""
    assert len(commands(README)) > 6
    assert len(commands(EXTENDING)) > 8


def test_examples_work_inside_the_package(tmp_path: Path) -> None:
    """Each is put into the folder that extending.md's table names for its decorator."""
    package = Path(shutil.copytree(PACKAGE, tmp_path / "package" / "lengthwise"))
    row = r"^\| \[.*?\]\(.*?\) \| `@([\w.]+)` \| `([\w/]+)` \|"
    folders = dict(re.findall(row, EXTENDING.read_text(), re.MULTILINE))
    for code in blocks(EXTENDING, "python"):
        (name,) = re.findall(r"^# (\w+\.py)\n", code)
        (decorator,) = re.findall(r"^@([\w.]+)\(", code, re.MULTILINE)
        (package / folders[decorator] / name).write_text(code)
    command: list[str | Path] = [sys.executable, "-c", USE_EXAMPLES]
    run(command, tmp_path, PYTHONPATH=str(package.parent))


def test_python_in_the_documents_runs(tmp_path: Path) -> None:
    for document in DOCUMENTS:
        for code in blocks(document, "python"):
            if not re.match(r"# \w+\.py\n", code):
                run([sys.executable, "-c", code], tmp_path)


def test_configurations_in_the_documents_are_valid(tmp_path: Path) -> None:
    configurations = [text for document in DOCUMENTS for text in blocks(document, "yaml")]
    assert configurations
    for text in configurations:
        (tmp_path / "config.yaml").write_text(text)
        assert expand(*read_grid(tmp_path / "config.yaml"))  # a grid may have no axes


def test_the_readmes_tree_is_the_packages() -> None:
    """In the order of the data flow, which test_architecture.py asserts."""
    from test_architecture import ORDER

    text = README.read_text()
    tree = text[text.index("src/lengthwise/\n") :].partition("```")[0]
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    listed = re.findall(r"^  (\w+)/ +\S", tree, re.MULTILINE)
    assert listed == [name for name in ORDER if name in packages]


def test_the_docs_index_and_the_drawing_have_all_packages() -> None:
    from test_architecture import ORDER

    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    listed = re.findall(r"^\| `(\w+)` \|", (DOCS / "README.md").read_text(), re.MULTILINE)
    assert listed == [name for name in ORDER if name in packages]
    drawing = (DOCS / "architecture.svg").read_text()
    assert sorted(re.findall(r'class="name">(\w+)<', drawing)) == sorted(packages)


def test_names_in_backticks_exist(subtests: pytest.Subtests) -> None:
    """The last part of every name occurs in the source; the notebook also tells of the past."""
    cases: list[Path] = [path for path in PAGES if path.stem != "notebook"]
    for document in cases:
        with subtests.test(str(document)):
            sources = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.[ch]"), ROOT / "Makefile"]
            files = [
                path.name for part in ("src", "tests", "docs") for path in (ROOT / part).rglob("*")
            ]
            texts = [*(path.read_text() for path in sources), *files, *blocks(document, "python")]
            known = set(re.findall(r"\w+", "\n".join(texts)))
            prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
            for span in re.findall(r"`([^`]+)`", prose):
                if re.fullmatch(r"@?[A-Za-z_][\w.]*(\(.*\))?", span):
                    name = span.lstrip("@").partition("(")[0].rpartition(".")[2]
                    assert name in known, span


def test_links_lead_to_files_and_headings(subtests: pytest.Subtests) -> None:
    for document in DOCUMENTS:
        with subtests.test(str(document)):
            text = document.read_text()
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"\w+:", target):  # https:, mailto:
                    continue
                path, _, anchor = target.partition("#")
                linked = document.parent / path if path else document
                assert linked.exists(), target
                if anchor:
                    headings = re.findall(r"^#+ (.*)", linked.read_text(), re.MULTILINE)
                    slugs = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]
                    assert anchor in slugs, target


def test_lines_are_short() -> None:
    """Tables and links can't be wrapped."""
    assert len(README.read_text().splitlines()) <= 120
    for document in DOCUMENTS:
        for number, line in enumerate(document.read_text().splitlines(), start=1):
            wraps = not line.startswith("|") and "](" not in line
            assert len(line) <= 100 or not wraps, f"{document.name}:{number}"
