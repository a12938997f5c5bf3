"""Runs the C code of lengthwise.fast with the address and undefined-behaviour sanitizers.

    python tests/sanitize.py [rounds]

Random shapes go forward and backward, with one thread and with two, for several instruction sets.
Every piece of memory is a buffer of its own, so that the sanitizer sees each step beyond one.
It first makes sure that such a step is found at all. Exits with 1 if there are errors.
"""

import ctypes
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

FLAGS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined")
HALT = ("-fno-sanitize-recover=all",)
SETS: dict[str, tuple[str, ...]] = {"native": ("-march=native",)}
if platform.machine() == "x86_64":
    SETS |= {"AVX2": ("-mavx2", "-mfma", "-mno-avx512f"), "SSE2": ("-march=x86-64",)}


def main(rounds: int) -> int:
    """Starts itself again with the sanitizers' libraries, which must be loaded before Python."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        for name in SETS:
            for task in ("overrun", "run"):
                environment = {
                    **os.environ,
                    "XDG_CACHE_HOME": directory,
                    "LD_PRELOAD": ":".join(
                        library(compiler, f"lib{kind}.so") for kind in ("asan", "ubsan")
                    ),
                    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
                    "UBSAN_OPTIONS": "print_stacktrace=1",
                }
                command = [sys.executable, __file__, task, name, str(rounds)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True)
                if task == "overrun":
                    wrong = "heap-buffer-overflow" not in done.stderr
                    message = (
                        f"{name}: an overrun was {'missed' if wrong else 'found, as it should be'}"
                    )
                else:
                    wrong = done.returncode != 0
                    message = f"{name}: {done.stdout.strip()}, {'ERRORS' if wrong else '0 errors'}"
                print(message, flush=True)
                if wrong:
                    print(done.stderr[-5000:], file=sys.stderr)
                failed += wrong
    return min(failed, 1)


def library(compiler: list[str], name: str) -> str:
    command = [*compiler, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def run(name: str, rounds: int, overrun: bool) -> None:
    """Random shapes, forward and backward; or one with a buffer that is too small."""
    import torch

    sys.path.insert(0, str(Path(__file__).parent))
    from test_fast_stack import differentiable, flat, sample

    from lengthwise.fast import compiled, stack

    loaded = compiled.load((*SETS[name], *FLAGS, *HALT))
    assert isinstance(loaded, ctypes.CDLL), loaded
    vars(stack)["load"] = lambda: loaded
    stack.BUFFER_FLOATS, stack.CACHE_LINE_FLOATS = 0, 1
    allocate = stack.allocate
    if overrun:
        stack.allocate = lambda floats: allocate(max(floats - 1, 0))
    rng = Random(0)
    for number in range(rounds):
        torch.set_num_threads(1 + number % 2)
        heads, j, depth = rng.randint(1, 4), rng.randint(1, 40), rng.randint(1, 3)
        layers, vectors = rng.randint(1, depth), rng.choice((0, 1, depth))
        width, inner = heads * rng.choice((1, 3, 8, 16, 25)), rng.choice((1, 15, 32, 100))
        case = sample(rng.choice((0, 1, 3, 30)), j, width, inner, heads, layers, vectors, number)
        shape = stack.StackShape(
            *(heads, rng.choice(stack.ACTIVATIONS), 1e-5, 0.5, rng.random() < 0.5),
            *(depth, rng.randint(1, j)),
        )
        stack.apply_stack(*case, shape)
        case = differentiable(case)
        y = stack.apply_stack(*case, shape)
        assert y.isfinite().all()
        torch.autograd.grad(y.square().sum(), flat(case))
    print(f"{rounds} random shapes", end="")


if __name__ == "__main__":
    if sys.argv[1:2] in (["run"], ["overrun"]):
        run(sys.argv[2], int(sys.argv[3]), sys.argv[1] == "overrun")
    else:
        sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 40))
