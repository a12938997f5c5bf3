"""Modules that register tasks, layouts, embeddings, …: ours, and files of the user's own."""

import importlib
import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from lengthwise.base.errors import UsageError

VARIABLE = "LENGTHWISE_IMPORT"  # passes the files on to child processes


def import_modules(package: str) -> None:
    """Import every module of a package, so that a new file needs no mention to be registered."""
    for module in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
        importlib.import_module(module.name)


def import_files(more: Iterable[str] = ()) -> None:
    """Import the given files and those that the environment variable names."""
    inherited = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    paths = list(dict.fromkeys(Path(name).resolve() for name in (*inherited, *more)))
    for path in paths:
        import_file(path)
    if paths:
        os.environ[VARIABLE] = os.pathsep.join(map(str, paths))


def share_files(files: Iterable[str]) -> None:
    """Have child processes import these files, too, unless they start by running them."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    inherited = os.environ.get(VARIABLE, "").split(os.pathsep)
    others = [file for file in files if not script or Path(script).resolve() != Path(file)]
    if others:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys(filter(None, [*inherited, *others])))


def import_file(path: Path) -> ModuleType:
    """The module of a file, given by its resolved path; a module is imported once."""
    name = f"own_{path.stem}"
    for module in list(sys.modules.values()):  # it may have been imported by its own name
        file = getattr(module, "__dict__", {}).get("__file__") or ""
        # A file is compared whole only if its name fits: resolving links takes time.
        if os.path.basename(file) == path.name and Path(file).resolve() == path:
            return module
    if known := getattr(sys.modules.get(name), "__file__", None):
        raise UsageError(f"{path} and {known} have the same name; rename one of them")
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"there is no Python file {path} to import")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)  # an error in it keeps its traceback
    except BaseException:
        del sys.modules[name]
        raise
    return module
