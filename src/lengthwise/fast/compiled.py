"""Compiles the C code on first use and loads it.

The library is kept in a directory that only the user can write to. It is loaded only if the
directory and the file belong to the user and the content is what was compiled here. Where anything
is missing or suspicious, `load` says so in one sentence and the caller uses PyTorch.
"""

import ctypes
import hashlib
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO

from lengthwise.base.processor import processor_lines

SOURCES = Path(__file__).parent / "c"
NATIVE = ("-march=native",)
# Without errno, square roots take one instruction. No flag changes results, as -ffast-math would.
FLAGS = ("-O3", "-ffp-contract=fast", "-fno-math-errno")
SHARED = ("-shared", "-fPIC", "-fvisibility=hidden")
COMPILER_SECONDS = 120.0  # for all calls of the compiler together; it takes about 5
LONG, POINTER = ctypes.c_long, ctypes.c_void_p


class Shape(ctypes.Structure):
    """`stack_shape` of layer.h."""

    _fields_ = (
        *((name, LONG) for name in ("examples", "length", "queries", "width", "heads", "inner")),
        *((name, LONG) for name in ("depth", "layers", "vectors", "threads")),
        *((name, ctypes.c_int) for name in ("activation", "by_key", "training")),
        *((name, ctypes.c_float) for name in ("scale", "norm_epsilon")),
    )


SIGNATURES: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "source_digest": (ctypes.c_ulonglong, ()),
    "stack_shape_size": (LONG, ()),
    "stack_pieces": (LONG, (POINTER, ctypes.c_int, POINTER)),
    "stack_forward": (ctypes.c_int, (POINTER,) * 7),
    "stack_backward": (ctypes.c_int, (POINTER,) * 9),
}


@dataclass(frozen=True)
class Unavailable:
    """Why there is no compiled code, in one sentence."""

    reason: str


class UnavailableError(Exception):
    """Carries the reason to `load`."""


@cache
def load(
    instructions: tuple[str, ...] = NATIVE, seconds: float = COMPILER_SECONDS
) -> ctypes.CDLL | Unavailable:
    """The C code for an instruction set, compiled if need be; or why there is none."""
    try:
        return open_library(instructions, seconds)
    except UnavailableError as error:
        return Unavailable(str(error))
    except OSError as error:
        return Unavailable(f"The C code can't be compiled or loaded: {error}.")


def open_library(instructions: tuple[str, ...], seconds: float) -> ctypes.CDLL:
    deadline = time.monotonic() + seconds
    compiler = compiler_command()
    version = run([*compiler, "--version"], deadline)
    # PyTorch's OpenMP library is loaded by now. On macOS, compilers come without one.
    openmp = ("-fopenmp",) if sys.platform == "linux" else ()
    flags = (*FLAGS, *SHARED, *openmp, *instructions)
    sources = sorted(SOURCES.glob("*.[ch]"))
    texts = [f"{path.name}\n{path.read_text()}" for path in sources]
    abilities = processor_lines("model name", "flags", "Features")  # the code depends on them
    key = digest("\n".join([*texts, version, *compiler, *flags, *abilities]).encode())
    directory = cache_directory()
    for path in directory.glob(f"stack-{key}-*.so"):
        with suppress(UnavailableError):  # a damaged library is compiled anew
            check_library(path)
            return bind(path, key)
    command = [*compiler, *flags, f"-DSOURCE_DIGEST=0x{key}ull"]
    files = [str(path) for path in sources if path.suffix == ".c"]
    handle, temporary = tempfile.mkstemp(dir=directory, prefix="new-", suffix=".so")
    os.close(handle)
    try:
        run([*command, *files, "-o", temporary, "-lm"], deadline)
        with open_regular(Path(temporary)) as file:
            os.fchmod(file.fileno(), 0o700)  # whatever the umask
            content = file.read()
        if not content:
            raise UnavailableError(
                f"The C compiler {shlex.join(compiler)!r} wrote an empty library."
            )
        path = directory / f"stack-{key}-{digest(content)}.so"
        os.replace(temporary, path)  # at once: other processes may be doing the same
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    check_library(path)
    return bind(path, key)


def compiler_command() -> list[str]:
    named = os.environ.get("CC", "")
    try:
        return shlex.split(named) or ["cc"]
    except ValueError as error:
        raise UnavailableError(f"CC is {named!r}, which isn't a command: {error}.") from error


def run(command: Sequence[str], deadline: float) -> str:
    """What a command writes to its standard output, if it succeeds by the deadline."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise UnavailableError(f"There is no C compiler {command[0]!r}: {error}.") from error
    try:
        output, errors = process.communicate(timeout=max(deadline - time.monotonic(), 0.01))
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"The C compiler {command[0]!r} didn't finish in time.") from None
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started, if it still runs
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    if process.returncode:
        lines = [line for line in errors.splitlines() if "error" in line] or errors.splitlines()
        said = lines[0].strip() if lines else f"exit status {process.returncode}"
        raise UnavailableError(f"The C compiler {command[0]!r} failed: {said}.")
    return output


def cache_directory() -> Path:
    """The directory of libraries, which must be the user's alone."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        if not os.path.isabs(home):
            raise UnavailableError("HOME isn't set, so there is nowhere to keep the compiled code.")
        base = os.path.join(home, ".cache")
    directory = Path(base) / "lengthwise"
    with suppress(FileExistsError):
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise UnavailableError(f"{directory} isn't a directory, so nothing is loaded from it.")
    if found.st_uid != os.getuid():
        raise UnavailableError(
            f"{directory} belongs to another user, so nothing is loaded from it."
        )
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnavailableError(f"{directory} can be changed by other users; `chmod 700` it.")
    if stat.S_IMODE(found.st_mode) != 0o700:  # as version 0.1 made it
        os.chmod(directory, 0o700)
    return directory


def check_library(path: Path) -> None:
    """Raise an error unless a library is the user's and is what its name says."""
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
        if found.st_uid != os.getuid():
            raise UnavailableError(f"{path} belongs to another user.")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnavailableError(f"{path} can be changed by other users.")
        if not path.stem.endswith(f"-{digest(file.read())}"):
            raise UnavailableError(f"{path} is damaged.")


def open_regular(path: Path) -> BinaryIO:
    """Open a file that is neither a link nor a device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise UnavailableError(f"{path} can't be opened: {error.strerror}.") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UnavailableError(f"{path} isn't a regular file.")
    return open(handle, "rb")


def bind(path: Path, key: str) -> ctypes.CDLL:
    """Load a library, and make sure that it was compiled from these sources."""
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        path.unlink(missing_ok=True)  # so that it is compiled anew next time
        raise UnavailableError(f"The compiled C code can't be loaded: {error}.") from error
    if library.source_digest() != int(key, 16):
        raise UnavailableError(f"{path} was compiled from other sources.")
    if library.stack_shape_size() != ctypes.sizeof(Shape):
        raise UnavailableError("The C compiler lays out structures in another way than Python.")
    return library


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
