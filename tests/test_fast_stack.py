"""The C code of lengthwise.fast against plain PyTorch, and what happens when it can't be used."""

import ctypes
import os
import platform
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.fast import compiled, stack
from lengthwise.fast.compiled import Unavailable
from lengthwise.fast.stack import StackShape, apply_stack

AVX2, SSE2 = ("-mavx2", "-mfma", "-mno-avx512f"), ("-march=x86-64",)
INSTRUCTIONS = (compiled.NATIVE, *((AVX2, SSE2) if platform.machine() == "x86_64" else ()))
NAN, INF = float("nan"), float("inf")
Case = tuple[Tensor, list[list[Tensor]], list[Any]]  # x, layers, relative vectors or None


def reference(
    x: Tensor,
    layers: Sequence[Sequence[Tensor]],
    vectors: Sequence[Tensor | None],
    shape: StackShape,
) -> Tensor:
    """What apply_stack computes, in plain PyTorch."""
    (b, j, width), h = x.shape, shape.heads
    for n in range(shape.depth):
        wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, w1, c1, w2, c2, g2, b2 = layers[n % len(layers)]
        relative = vectors[n % len(vectors)]
        i = shape.queries if n == shape.depth - 1 else j
        q = F.linear(x[:, :i], wq, bq).view(b, i, h, -1)
        k, v = (F.linear(x, w, bias).view(b, j, h, -1) for w, bias in ((wk, bk), (wv, bv)))
        scores = shape.scale * torch.einsum("bihd,bjhd->bhij", q, k)
        if relative is not None:
            scores = scores + torch.einsum("bihd,ijd->bhij", q, relative[:i])
            if shape.by_key:
                scores = scores + torch.einsum("bjhd,ijd->bhij", k, relative[:i])
        mixed = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v).reshape(b, i, width)
        x = F.layer_norm(x[:, :i] + F.linear(mixed, wo, bo), (width,), g1, b1, shape.norm_epsilon)
        inner = F.linear(x, w1, c1)
        approximate = "tanh" if shape.activation == "gelu-tanh" else "none"
        inner = (
            inner.relu() if shape.activation == "relu" else F.gelu(inner, approximate=approximate)
        )
        x = F.layer_norm(x + F.linear(inner, w2, c2), (width,), g2, b2, shape.norm_epsilon)
    return x


def sample(
    b: int,
    j: int,
    width: int,
    inner: int,
    heads: int,
    layers: int = 1,
    vectors: int = 0,
    seed: int = 0,
) -> Case:
    """Random x, layers and relative vectors, in float32."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*size: int, std: float = 1.0) -> Tensor:
        return std * torch.randn(size, generator=rng)

    def linear(n: int, k: int) -> list[Tensor]:
        return [normal(n, k, std=k**-0.5), normal(n, std=0.1)]

    def norm() -> list[Tensor]:
        return [1 + normal(width, std=0.1), normal(width, std=0.1)]

    def layer() -> list[Tensor]:
        attention = [tensor for _ in range(4) for tensor in linear(width, width)]
        return [*attention, *norm(), *linear(inner, width), *linear(width, inner), *norm()]

    relative = [normal(j, j, width // heads, std=0.3) for _ in range(vectors)]
    return normal(b, j, width), [layer() for _ in range(layers)], [*relative] or [None]


def shape_of(case: Case, heads: int, queries: int | None = None, **fields: Any) -> StackShape:
    x = case[0]
    shape = StackShape(
        heads, "gelu", 1e-5, (x.shape[2] // heads) ** -0.5, False, 2, queries or x.shape[1]
    )
    return replace(shape, **fields)


def flat(case: Case) -> list[Tensor]:
    return [
        case[0],
        *(tensor for layer in case[1] for tensor in layer),
        *(v for v in case[2] if v is not None),
    ]


def differentiable(case: Case, dtype: torch.dtype = torch.float32) -> Case:
    def copy(tensor: Tensor) -> Tensor:
        return tensor.detach().to(dtype, copy=True).requires_grad_()

    x, layers, vectors = case
    return (
        copy(x),
        [[*map(copy, layer)] for layer in layers],
        [v if v is None else copy(v) for v in vectors],
    )


def results(
    function: Callable[..., Tensor], case: Case, shape: StackShape, dtype: torch.dtype
) -> list[Tensor]:
    """The output, and the gradients of x, parameters and vectors."""
    case = differentiable(case, dtype)
    y = function(*case, shape)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    return [y.detach(), *torch.autograd.grad(y, flat(case), weights.to(dtype))]


def rms(x: Tensor) -> float:
    return x.double().square().mean().sqrt().item()


@pytest.fixture(scope="module", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of libraries for these tests, whatever the user's own looks like."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        compiled.load.cache_clear()
        yield
    compiled.load.cache_clear()


@pytest.fixture(params=INSTRUCTIONS, ids=" ".join)
def instructions(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, ...]:
    """Each instruction set in turn is what apply_stack uses."""
    library = compiled.load(request.param)
    assert not isinstance(library, Unavailable), library
    monkeypatch.setattr(stack, "load", lambda: library)
    return request.param


# b, j, width, inner, heads, layers, vectors; by key, depth, queries, activation
CASES = {
    "cpu size": ((16, 21, 128, 512, 4, 1, 1), (False, 3, 11, "relu")),
    "unshared, by key": ((8, 41, 64, 96, 4, 3, 3), (True, 3, 40, "gelu")),
    "odd sizes": ((5, 7, 20, 33, 4, 2, 2), (True, 2, 3, "gelu-tanh")),
    "vectors take turns": ((3, 9, 24, 50, 3, 4, 2), (False, 4, 9, "gelu")),
    "one token": ((2, 1, 17, 5, 1, 1, 1), (True, 2, 1, "relu")),
    "one query": ((3, 19, 36, 40, 2, 1, 0), (False, 2, 1, "gelu")),
    "heads of one": ((40, 5, 3, 7, 3, 1, 1), (True, 1, 2, "gelu-tanh")),
    "long sums": ((6, 35, 288, 1100, 6, 1, 1), (False, 1, 35, "gelu")),
}


# All cases with what this machine has, and in turns with the others: odd sizes with each, which
# reach the remainders of all loops. Random shapes and long sums are for each, too.
BY_INSTRUCTIONS = [
    (name, set_of)
    for place, set_of in enumerate(INSTRUCTIONS)
    for number, name in enumerate(CASES)
    if set_of == compiled.NATIVE or name == "odd sizes" or number % 2 == place % 2
]


@pytest.mark.parametrize(
    ("name", "instructions"),
    BY_INSTRUCTIONS,
    indirect=["instructions"],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_outputs_and_gradients_are_as_exact_as_pytorch(
    name: str, instructions: tuple[str, ...]
) -> None:
    sizes, (by_key, depth, queries, activation) = CASES[name]
    case = sample(*sizes)
    shape = shape_of(case, sizes[4], queries, by_key=by_key, depth=depth, activation=activation)
    exact = results(reference, case, shape, torch.float64)
    plain = results(reference, case, shape, torch.float32)
    fast = results(apply_stack, case, shape, torch.float32)
    largest = max(rms(gradient) for gradient in exact[1:])
    for number, (want, ours, theirs) in enumerate(zip(exact, fast, plain, strict=True)):
        assert ours.shape == want.shape
        # Small sums differ by luck; some gradients are 0 but for rounding.
        limit = 2 * rms(theirs - want) + 3e-7 * (rms(want) + (0.1 * largest if number else 0))
        assert rms(ours - want) <= limit, f"result {number}: {rms(ours - want):.2e} > {limit:.2e}"


def test_long_sums_are_as_exact_as_pytorch(instructions: tuple[str, ...]) -> None:
    case = sample(8, 16, 64, 6000, 2)
    shape = shape_of(case, 2, depth=1, activation="relu")
    with torch.no_grad():
        exact = reference(*differentiable(case, torch.float64), shape)
        ours, theirs = (rms(f(*case, shape) - exact) for f in (apply_stack, reference))
    assert ours <= 1.5 * theirs


def test_random_shapes(instructions: tuple[str, ...]) -> None:
    rng = torch.Generator().manual_seed(3)

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=rng))

    for seed in range(12):
        heads, j, depth = draw(1, 4), draw(1, 37), draw(1, 3)
        layers, vectors = draw(1, depth), draw(0, depth)
        case = sample(
            draw(1, 5), j, heads * draw(1, 40), draw(1, 140), heads, layers, vectors, seed
        )
        activation = stack.ACTIVATIONS[draw(0, 2)]
        fields = {"by_key": bool(draw(0, 1)), "depth": depth, "activation": activation}
        shape = shape_of(case, heads, draw(1, j), **fields)
        exact = results(reference, case, shape, torch.float64)
        fast = results(apply_stack, case, shape, torch.float32)
        largest = max(rms(gradient) for gradient in exact)
        for want, ours in zip(exact, fast, strict=True):
            assert rms(ours - want) <= 2e-5 * max(rms(want), 0.1 * largest)


def test_an_example_has_the_same_bits_in_any_batch(instructions: tuple[str, ...]) -> None:
    for sizes, activation in (
        ((70, 21, 128, 200, 4, 1, 1), "gelu"),
        ((50, 7, 20, 33, 4, 1, 1), "gelu-tanh"),
    ):
        case = sample(*sizes)
        x, layers, vectors = case
        shape = shape_of(case, 4, 5, by_key=True, activation=activation)
        with torch.no_grad():
            whole = apply_stack(x, layers, vectors, shape)
            rng = torch.Generator().manual_seed(0)
            for many in (1, 1, 2, 3, 17, 49):
                some = torch.randperm(len(x), generator=rng)[:many]
                alone = apply_stack(x[some], layers, vectors, shape)
                assert torch.equal(alone, whole[some])


def test_threads_and_training_do_not_change_bits(instructions: tuple[str, ...]) -> None:
    case = sample(23, 13, 72, 100, 4, 2, 2)
    shape = shape_of(case, 4, 6, by_key=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(results(apply_stack, case, shape, torch.float32))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))
    assert torch.equal(apply_stack(*case, shape), found[0][0])  # without gradients


POISON = [
    *(("x", value) for value in (NAN, INF, 1e30)),
    *(("query.weight", 1e30), ("key.weight", -1e38), ("narrow.weight", 1e38)),
    *(("widen.bias", value) for value in (NAN, INF, -INF, 1e30, -1e30)),
    *(("value.bias", INF), ("vectors", NAN), ("vectors", INF), ("vectors", -INF)),
]


@pytest.mark.parametrize("activation", stack.ACTIVATIONS)
def test_nan_and_infinity_are_those_of_pytorch(
    activation: stack.Activation, instructions: tuple[str, ...], subtests: pytest.Subtests
) -> None:
    for tensor, value in POISON:
        with subtests.test(tensor):
            case = sample(3, 6, 20, 33, 2, 1, 1)
            poisoned = {
                "x": case[0],
                "vectors": case[2][0],
                **dict(zip(stack.PARAMETERS, case[1][0], strict=True)),
            }
            poisoned[tensor].view(-1)[7] = value
            shape = shape_of(case, 2, activation=activation, depth=1)
            expected, found = reference(*case, shape), apply_stack(*case, shape)
            assert torch.equal(found.isnan(), expected.isnan())
            assert torch.equal(found.isinf(), expected.isinf())
            torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-4, atol=1e-4)


def test_an_empty_batch() -> None:
    case = sample(0, 4, 8, 8, 2, 1, 1)
    y, dx, *others = results(apply_stack, case, shape_of(case, 2, 3), torch.float32)
    assert y.shape == (0, 3, 8)
    assert dx.shape == (0, 4, 8)
    assert not any(gradient.any() for gradient in others)


def test_inputs_with_other_strides() -> None:
    x, [layer], vectors = sample(3, 5, 8, 12, 2, 1, 1)
    shape = shape_of((x, [layer], vectors), 2)
    expected = apply_stack(x, [layer], vectors, shape)
    turned = [parameter.t().contiguous().t() for parameter in layer]
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    assert torch.equal(apply_stack(strided, [turned], vectors, shape), expected)
    assert torch.equal(apply_stack(torch._neg_view(-x), [layer], vectors, shape), expected)
    same = x[:1].expand(3, -1, -1).requires_grad_()
    y = apply_stack(same, [layer], vectors, shape)
    y.backward(torch.ones(()).expand(y.shape))


def test_gradients_of_what_needs_them() -> None:
    case = sample(2, 3, 8, 12, 2, 1, 1)
    case[1][0][4].requires_grad_()
    apply_stack(*case, shape_of(case, 2)).sum().backward()
    assert case[1][0][4].grad is not None
    assert case[0].grad is None
    assert case[2][0].grad is None


@pytest.mark.parametrize("linear", [False, True])
def test_double_backward_needs_the_plain_stack(linear: bool) -> None:
    case = differentiable(sample(2, 3, 8, 12, 2, 1, 1))
    y = apply_stack(*case, shape_of(case, 2))
    loss = (y[..., 0] if linear else y.square()).sum()
    with pytest.raises(RuntimeError, match="gradients of gradients"):
        torch.autograd.grad(loss, case[0], create_graph=True)


def test_backward_twice_gives_the_same_bits() -> None:
    case = differentiable(sample(4, 5, 24, 12, 2, 1, 1))
    y = apply_stack(*case, shape_of(case, 2, 2)).square().sum()
    first = torch.autograd.grad(y, flat(case), retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(y, flat(case))))


def test_parameters_changed_before_backward_raise() -> None:
    case = differentiable(sample(2, 3, 8, 12, 2))
    y = apply_stack(*case, shape_of(case, 2))
    with torch.no_grad():
        case[1][0][0].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_tangents_are_not_lost() -> None:
    case = sample(2, 3, 8, 12, 2)
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(case[0], torch.ones_like(case[0]))
        with pytest.raises((RuntimeError, NotImplementedError)):
            apply_stack(x, *case[1:], shape_of(case, 2))


class Odd(Tensor):
    pass


BAD: dict[str, tuple[Callable[[Case, Any], tuple[Any, ...]], type[Exception]]] = {
    "x in 2 dimensions": (lambda c, s: (c[0][0], c[1], c[2], s), ValueError),
    "x in float64": (lambda c, s: (c[0].double(), c[1], c[2], s), TypeError),
    "x elsewhere": (lambda c, s: (c[0].to("meta"), c[1], c[2], s), TypeError),
    "x sparse": (lambda c, s: (c[0].to_sparse(), c[1], c[2], s), TypeError),
    "x of another class": (lambda c, s: (c[0].as_subclass(Odd), c[1], c[2], s), TypeError),
    "x of no length": (lambda c, s: (c[0][:, :0], c[1], c[2], s), ValueError),
    "x too wide": (lambda c, s: (torch.zeros(2, 5, 10), c[1], c[2], s), ValueError),
    "a list": (lambda c, s: ([[[1.0]]], c[1], c[2], s), TypeError),
    "no layers": (lambda c, s: (c[0], [], c[2], s), ValueError),
    "too many layers": (lambda c, s: (c[0], c[1] * 3, c[2], s), ValueError),
    "a parameter too few": (lambda c, s: (c[0], [c[1][0][:-1]], c[2], s), ValueError),
    "layers of other widths": (
        lambda c, s: (c[0], [c[1][0], sample(1, 1, 8, 9, 2)[1][0]], c[2], s),
        ValueError,
    ),
    "no vectors": (lambda c, s: (c[0], c[1], [], s), ValueError),
    "vectors too few": (lambda c, s: (c[0], c[1], [c[2][0][:4]], s), ValueError),
    "vectors in float16": (lambda c, s: (c[0], c[1], [c[2][0].half()], s), TypeError),
    "heads that don't divide": (lambda c, s: (*c, replace(s, heads=3)), ValueError),
    "no heads": (lambda c, s: (*c, replace(s, heads=0)), ValueError),
    "no depth": (lambda c, s: (*c, replace(s, depth=0)), ValueError),
    "no queries": (lambda c, s: (*c, replace(s, queries=0)), ValueError),
    "too many queries": (lambda c, s: (*c, replace(s, queries=6)), ValueError),
    "half a query": (lambda c, s: (*c, replace(s, queries=2.5)), TypeError),
    "another activation": (lambda c, s: (*c, replace(s, activation="silu")), ValueError),
    "an infinite scale": (lambda c, s: (*c, replace(s, scale=float("inf"))), ValueError),
    "epsilon that is none": (lambda c, s: (*c, replace(s, norm_epsilon=None)), TypeError),
}


def test_bad_arguments_raise(subtests: pytest.Subtests) -> None:
    for name in BAD:
        with subtests.test(name):
            case = sample(2, 5, 8, 12, 2, 1, 1)
            change, error = BAD[name]
            with pytest.raises(error):
                apply_stack(*change(case, shape_of(case, 2)))


def test_every_parameter_is_checked(subtests: pytest.Subtests) -> None:
    for number in range(16):
        with subtests.test(str(number)):
            x, [layer], vectors = sample(2, 5, 8, 12, 2)
            shape = shape_of((x, [layer], vectors), 2)
            for wrong, error in (
                (layer[number][:-1], ValueError),
                (layer[number].double(), TypeError),
            ):
                with pytest.raises(
                    error, match=stack.PARAMETERS[number] if error is TypeError else None
                ):
                    apply_stack(x, [[*layer[:number], wrong, *layer[number + 1 :]]], vectors, shape)


def test_too_much_memory_raises() -> None:
    case = sample(1, 2**24, 1, 1, 1)  # whose attention has 2^48 weights
    with pytest.raises(MemoryError):
        apply_stack(*case, shape_of(case, 1))


def test_too_much_memory_in_backward_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    case = differentiable(sample(2, 3, 8, 12, 2))
    y = apply_stack(*case, shape_of(case, 2))
    allocate = stack.allocate
    monkeypatch.setattr(stack, "allocate", lambda floats: allocate(2**50))
    with pytest.raises(MemoryError):
        y.sum().backward()


def test_sizes_beyond_all_numbers_are_not_wrapped() -> None:
    library = compiled.load()
    assert not isinstance(library, Unavailable)
    shape = compiled.Shape(1, 2**32, 1, 1, 1, 1, 1, 1, 1, 1)
    sizes = (ctypes.c_long * library.stack_pieces(ctypes.byref(shape), stack.FORWARD, None))()
    library.stack_pieces(ctypes.byref(shape), stack.FORWARD, sizes)
    assert max(sizes) == 2**63 - 1
    assert min(sizes) > 0


# What follows tests the loading of the library. -O0 compiles quickly.
QUICK = ("-O0",)


def load() -> ctypes.CDLL | Unavailable:
    return compiled.load.__wrapped__(QUICK)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; where the libraries will be."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lengthwise"


def compiler(path: Path, script: str) -> str:
    """A compiler that tells its version, and otherwise runs a script that writes $out."""
    find = 'while [ "$1" != -o ]; do shift; done; out=$2'
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\n{find}\n{script}\n')
    path.chmod(0o700)
    return str(path)


def refuses(reason: str) -> None:
    found = load()
    assert isinstance(found, Unavailable)
    assert reason in found.reason
    assert found.reason.endswith(".")
    assert "\n" not in found.reason


def test_library_is_compiled_once_and_private(cache: Path) -> None:
    assert isinstance(load(), ctypes.CDLL)
    (path,) = cache.iterdir()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not path.stat().st_mode & 0o022
    before = path.stat().st_mtime_ns
    assert isinstance(load(), ctypes.CDLL)
    assert [file.stat().st_mtime_ns for file in cache.iterdir()] == [before]


def test_library_is_private_whatever_the_compiler_does(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "cc"
    script.write_text(f'#!/bin/sh\ncc "$@" && chmod -f 777 {cache}/new-*; true\n')
    script.chmod(0o700)
    monkeypatch.setenv("CC", str(script))
    assert isinstance(load(), ctypes.CDLL)
    (path,) = cache.iterdir()
    assert not path.stat().st_mode & 0o022


def test_other_sources_are_another_library(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(load(), ctypes.CDLL)
    (first,) = cache.iterdir()
    sources = tmp_path / "c"
    sources.mkdir()
    for path in compiled.SOURCES.iterdir():
        (sources / path.name).write_text(path.read_text() + "/* changed */\n")
    monkeypatch.setattr(compiled, "SOURCES", sources)
    assert isinstance(load(), ctypes.CDLL)
    (second,) = set(cache.iterdir()) - {first}
    # The old library under the new one's name isn't taken for it.
    key = second.stem.rpartition("-")[0].removeprefix("stack-")
    stale = cache / f"stack-{key}-{first.stem.rpartition('-')[2]}.so"
    second.unlink()
    first.rename(stale)
    compiled.check_library(stale)
    with pytest.raises(compiled.UnavailableError, match="other sources"):
        compiled.bind(stale, key)
    found = load()
    assert isinstance(found, ctypes.CDLL)
    assert found.source_digest() == int(key, 16)


def test_symbolic_link_to_a_directory_is_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    cache.parent.mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    refuses("isn't a directory")


def test_readable_directory_is_closed(cache: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    cache.chmod(0o755)
    assert isinstance(load(), ctypes.CDLL)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_open_directory_is_refused(mode: int, cache: Path) -> None:
    assert isinstance(load(), ctypes.CDLL)
    cache.chmod(mode)
    refuses("can be changed by other users")


def test_directory_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(load(), ctypes.CDLL)
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    refuses("belongs to another user")


def test_library_of_another_user_is_not_loaded(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(load(), ctypes.CDLL)
    (path,) = cache.iterdir()
    user = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(compiled.UnavailableError, match="another user"):
        compiled.check_library(path)


@pytest.mark.parametrize("how", ["link", "writable", "garbage", "empty", "directory", "pipe"])
def test_suspicious_library_is_replaced(how: str, cache: Path, tmp_path: Path) -> None:
    assert isinstance(load(), ctypes.CDLL)
    (path,) = cache.iterdir()
    good = path.read_bytes()
    if how == "writable":
        path.chmod(0o722)
    else:
        path.unlink()
    if how == "link":
        (tmp_path / "library.so").write_bytes(good)
        path.symlink_to(tmp_path / "library.so")
    elif how in ("garbage", "empty"):
        path.write_bytes(good[:1000] if how == "garbage" else b"")
    elif how == "directory":
        path.mkdir()
    elif how == "pipe":
        os.mkfifo(path)
    with pytest.raises(compiled.UnavailableError):
        compiled.check_library(path)
    found = load()
    if how == "directory":  # which a file can't replace
        assert isinstance(found, Unavailable)
    else:
        assert isinstance(found, ctypes.CDLL)
        assert path.is_file()
        assert not path.is_symlink()
        assert path.read_bytes() == good
        assert not path.stat().st_mode & 0o022


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "failed: exit status 3"),
        ("echo 'stack.c:1: error: no' >&2; exit 1", "failed: stack.c:1: error: no"),
        (": > $out", "empty library"),
        ("echo nonsense > $out", "can't be loaded"),
        ("rm $out", "can't be opened"),
        ("echo 'int x;' | cc -x c -shared -fPIC -o $out -", "can't be loaded"),
        ("rm $out; touch $0.target; ln -s $0.target $out", "can't be opened"),
    ],
)
def test_bad_compiler_is_reported(
    script: str, reason: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", script))
    refuses(reason)
    assert not list(cache.glob("stack-*"))
    assert not list(cache.glob("new-*.so"))
    monkeypatch.delenv("CC")
    assert isinstance(load(), ctypes.CDLL)


def test_hanging_compiler_is_ended(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    monkeypatch.setenv("CC", compiler(tmp_path / "cc", f"sleep 60 & echo $! > {pid}; wait"))
    start = time.monotonic()
    found = compiled.load.__wrapped__(QUICK, 1.0)
    assert isinstance(found, Unavailable)
    assert "didn't finish in time" in found.reason
    assert time.monotonic() - start < 20
    child = Path(f"/proc/{int(pid.read_text())}/stat")
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] not in "ZX":
        assert time.monotonic() - start < 20  # a killed process ends soon, but not at once
        time.sleep(0.01)


@pytest.mark.parametrize("named", ["no-such-compiler -x", "'unclosed", "/etc/passwd"])
def test_missing_compiler_is_reported(
    named: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", named)
    refuses("C compiler" if "unclosed" not in named else "isn't a command")


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_missing_home_is_reported(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative, so ignored")
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    refuses("HOME isn't set")


def test_home_that_cannot_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    refuses("can't be compiled or loaded")


def test_unavailable_code_raises_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "load", lambda: Unavailable("There is none."))
    case = sample(1, 1, 4, 4, 1)
    with pytest.raises(RuntimeError, match=r"There is none\."):
        apply_stack(*case, shape_of(case, 1))


def test_processes_may_compile_at_once(cache: Path) -> None:
    code = f"from lengthwise.fast.compiled import load; print(type(load({QUICK!r})).__name__)"
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=100)[0].strip() for process in processes] == ["CDLL"] * 4
    assert all(path.name.startswith("stack-") for path in cache.iterdir())
