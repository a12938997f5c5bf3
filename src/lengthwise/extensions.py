"""Files of a user's own, which register tasks, position embeddings, stress cases or artefacts (docs/extending.md)."""

import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from lengthwise.errors import UsageError

VARIABLE = "LENGTHWISE_IMPORT"  # the files, by which the processes that this one starts know them, too


def import_files(more: Iterable[str] = ()) -> None:
    """Import the files that are named, and those that the environment names."""
    named = [name for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    paths = list(dict.fromkeys(Path(name).resolve() for name in (*named, *more)))
    if paths:
        os.environ[VARIABLE] = os.pathsep.join(map(str, paths))
    for path in paths:
        import_file(path)


def import_file(path: Path) -> None:
    name = f"own_{path.stem}"
    known = getattr(sys.modules.get(name), "__file__", None)
    if known == str(path):
        return
    if known is not None:
        raise UsageError(f"{path} and {known} have the same name; give one of them another")
    if path.suffix != ".py" or not path.is_file():
        raise UsageError(f"there is no Python file {path} to import")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)  # what goes wrong in it is told with its traceback
    except BaseException:
        del sys.modules[name]
        raise
