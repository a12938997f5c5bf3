"""A digest of a user's own code: what runs when a class or a function is called.

It covers bytecode and constants, and the functions, classes and constants of the user's own modules
that they refer to. It leaves out comments, docstrings and line numbers. It is made from what is
loaded, so that it is right in notebooks, too, and after an edit that was not imported yet.
"""

import hashlib
import inspect
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PACKAGE = __name__.partition(".")[0]
FOLDERS = (
    *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")),
    site.getusersitepackages(),
)
# Resolved, as `find_file` resolves the files that are compared with them.
INSTALLED = tuple({str(Path(folder).resolve()) for folder in FOLDERS})
HAS_DOCSTRING = 0x4000000  # a flag of code objects from Python 3.13 on
# What Python and pydantic add to a class.
LEFT_OUT = {"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "kind"}
PLAIN = (str, int, float, complex, bool, bytes, type(None))


def is_own(value: object) -> bool:
    """Whether a class or a function is neither of this package nor of an installed one."""
    module = str(getattr(value, "__module__", PACKAGE))
    if module.partition(".")[0] in (PACKAGE, "builtins"):
        return False
    file = find_file(value)
    return file is None or not file.startswith(INSTALLED)


def find_file(value: object) -> str | None:
    """The file that defines a class or a function; None in a notebook."""
    module = sys.modules.get(str(getattr(value, "__module__", "")))
    file = getattr(module, "__file__", None)
    return str(Path(file).resolve()) if file else None


def digest(value: object) -> str:
    """Sixteen characters that change with what a class or a function does."""
    parts = "\n".join(describe(value, set()))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def describe(value: object, seen: set[int]) -> Iterator[str]:
    """The parts of a class, a function or a constant, as text; what is not ours has a name only."""
    value = unwrap(value)
    if isinstance(value, FunctionType | type):
        yield value.__qualname__
        if is_own(value) and id(value) not in seen:
            seen.add(id(value))
            yield from (
                describe_function(value, seen)
                if isinstance(value, FunctionType)
                else describe_class(value, seen)
            )
    elif isinstance(value, CodeType):
        yield from describe_code(value, seen)
    elif isinstance(value, frozenset | set):
        yield from sorted("".join(describe(item, seen)) for item in value)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from describe(item, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield repr(key)
            yield from describe(item, seen)
    elif isinstance(value, PLAIN):
        yield repr(value)
    else:
        yield type(value).__qualname__


def unwrap(value: Any) -> Any:
    """The function behind a method, a property or a decorator that keeps it."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, cached_property):
        value = value.func
    return inspect.unwrap(value) if callable(value) else value


def describe_class(cls: type, seen: set[int]) -> Iterator[str]:
    yield from describe(cls.__bases__, seen)
    for name, field in getattr(cls, "__pydantic_fields__", {}).items():
        yield f"{name}: {field.annotation!r} {field.metadata!r}"
        yield from describe(field.default, seen)
    for name, value in vars(cls).items():
        is_ours = not name.startswith(("__pydantic", "_abc_", "model_")) and name not in LEFT_OUT
        if is_ours and not (name.startswith("__") and isinstance(value, dict | tuple | set)):
            yield name
            yield from describe(value, seen)


def describe_function(function: FunctionType, seen: set[int]) -> Iterator[str]:
    yield from describe_code(function.__code__, seen)
    yield from describe([function.__defaults__, function.__kwdefaults__], seen)
    for cell in function.__closure__ or ():
        yield from describe(cell.cell_contents, seen)
    for name in sorted(global_names(function.__code__) & function.__globals__.keys()):
        yield name
        yield from describe(function.__globals__[name], seen)


def describe_code(code: CodeType, seen: set[int]) -> Iterator[str]:
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars)
    yield from describe(list(code.co_consts[has_docstring(code) :]), seen)


def has_docstring(code: CodeType) -> bool:
    """Whether the first constant is a docstring, or the None in its place."""
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & HAS_DOCSTRING)
    return not code.co_name.startswith("<") or code.co_name == "<lambda>"


def global_names(code: CodeType) -> set[str]:
    """The names that a function and the functions inside it look up."""
    inner = (global_names(value) for value in code.co_consts if isinstance(value, CodeType))
    return set(code.co_names).union(*inner)
