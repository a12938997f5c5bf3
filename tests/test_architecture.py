"""The packages are the data flow: each imports only from those above it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lengthwise

SOURCE = Path(lengthwise.__file__).parent
ORDER = [
    *("base", "arithmetic", "problems", "model", "fast", "solver", "evaluation", "training"),
    *("sweep", "paper", "frontier", "page", "cli"),
]
FILES = sorted(SOURCE.rglob("*.py"))
NAMES = [str(path.relative_to(SOURCE)) for path in FILES]
OTHER_FILES = [
    path for kind in ("c", "h", "js", "css") for path in sorted(SOURCE.rglob(f"*.{kind}"))
]
FAST_USERS = {"solver/solver.py", "training/loop.py", "training/seeds.py"}
LONGEST_FILE, LONGEST_LINE = 450, 100


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in FILES}


def imports(path: Path) -> Iterator[str]:
    """The modules of lengthwise that a file imports, wherever it does, or names in strings."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            # `from lengthwise import fast` imports a module, `from lengthwise.fast import logits`
            # a name of one.
            names = [f"{module}.{alias.name}" for alias in node.names]
            inner = [name for name in names if name in MODULES]
            yield from inner
            if len(inner) < len(names) and module in MODULES:
                yield module
        elif isinstance(node, ast.Constant) and node.value in MODULES - {"lengthwise"}:
            yield str(node.value)  # as importlib takes it


def package_of(module: str) -> str:
    """The part of the name behind `lengthwise`; empty for the top itself."""
    return [*module.split("."), ""][1]


def test_the_packages_are_known() -> None:
    found = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert found <= set(ORDER), "a new package gets a place in ORDER"
    assert set(ORDER) <= found
    loose = {path.name for path in SOURCE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py"}


def test_a_package_imports_only_from_those_above() -> None:
    for path in FILES:
        own = package_of(module_name(path))
        for module in imports(path) if own != "__main__" else ():
            other, where = package_of(module), f"{path.relative_to(SOURCE)} imports {module}"
            if own == "":  # the public names, loaded on first use
                assert other in ORDER[: ORDER.index("paper")], where
            elif other:  # `from lengthwise import __version__` is free
                assert ORDER.index(other) <= ORDER.index(own), where


def test_the_command_line_is_imported_by_nothing_but_itself() -> None:
    for path, name in zip(FILES, NAMES, strict=True):
        users = {"__main__.py"} if path.parent == SOURCE else set()
        if not name.startswith("cli/") and name not in users:
            assert "cli" not in map(package_of, imports(path)), name


def test_speed_has_one_door() -> None:
    users = {
        name
        for path, name in zip(FILES, NAMES, strict=True)
        if not name.startswith("fast/") and "fast" in map(package_of, imports(path))
    }
    assert users == FAST_USERS
    for name in users:  # through the package, not past it
        assert {m for m in imports(SOURCE / name) if package_of(m) == "fast"} == {"lengthwise.fast"}
    calls = {
        name: [node.func.attr for node in ast.walk(ast.parse((SOURCE / name).read_text()))
               if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
               and isinstance(node.func.value, ast.Name) and node.func.value.id == "fast"]
        for name in users
    }  # fmt: skip
    assert calls == {
        "solver/solver.py": ["logits"],
        "training/loop.py": ["decline_reason"],
        "training/seeds.py": ["use_pytorch", "use_pytorch"],  # which closes the door
    }


def test_files_and_lines_are_short() -> None:
    wrong = []
    for path in (*FILES, *OTHER_FILES):
        name, lines = path.relative_to(SOURCE), path.read_text().splitlines()
        if len(lines) > LONGEST_FILE:
            wrong.append(f"{name} has {len(lines)} lines")
        long = [number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE]
        wrong += [f"{name}:{number} is longer than {LONGEST_LINE}" for number in long]
    assert not wrong, "\n".join(wrong)


def test_imports_are_found_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check itself: at the top, in functions, in branches, relative ones, and by name."""
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path / "lengthwise")
    path = tmp_path / "lengthwise" / "model" / "new.py"
    path.parent.mkdir(parents=True)
    for line, expected in {
        "import lengthwise.fast": "lengthwise.fast",
        "from lengthwise import fast": "lengthwise.fast",
        "from lengthwise.fast.door import logits as x": "lengthwise.fast.door",
        "def f():\n    from lengthwise.cli import main": "lengthwise.cli.main",
        "if TYPE_CHECKING:\n    from ..fast import door": "lengthwise.fast.door",
        "from .attention import Attention": "lengthwise.model.attention",
        "importlib.import_module('lengthwise.fast')": "lengthwise.fast",
        "try:\n    import lengthwise.training.loop as l\nexcept ImportError: pass": (
            "lengthwise.training.loop"
        ),
    }.items():
        path.write_text(line)
        assert list(imports(path)) == [expected], line
