"""What a small transformer does on a CPU in float32, by kernels.c: linear maps, activations, layer norms, attention.

The C code is compiled when it is first needed, by the C compiler of the machine, and kept in the user's cache. Where
that can't be, and for other devices, types and transforms, the same is done by torch.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.module import _has_any_global_hook

from lengthwise.errors import UsageError

ActivationName = Literal["relu", "gelu", "gelu-tanh"]
ACTIVATIONS: tuple[ActivationName, ...] = get_args(ActivationName)  # in the order of their numbers in kernels.c
SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC")
PARTS = ("qkv", "output", "attention_norm", "widen", "narrow", "feedforward_norm")  # of a layer
MOST_PADDING = 15  # of a row of attention weights: one less than the widest vector of any processor
SMALL = 3_000_000  # multiplications of a product, up to which calling C takes longer than torch does it all
WIDEST = 1024  # layers beyond that are left to torch; larger ones weren't tried (docs/speed.md)
LONG, INT, FLOAT, DOUBLE, POINTER = ctypes.c_long, ctypes.c_int, ctypes.c_float, ctypes.c_double, ctypes.c_void_p

wanted = ContextVar("wanted", default=(asked := os.environ.get("LENGTHWISE_KERNELS", "C")) == "C")
if asked not in ("C", "torch"):
    raise UsageError(f"LENGTHWISE_KERNELS is {asked!r}; it can be C, as it is by default, or torch")


class Shape(ctypes.Structure):
    """Of attention: examples, heads, queries, keys, width of a head; scale of q·k; whether and how vectors are used."""

    _fields_ = (
        *((name, LONG) for name in "bhijd"),
        ("scale", FLOAT),
        ("by_query", INT),
        ("by_key", INT),
    )


class Tokens(ctypes.Structure):
    """Where a tensor (b, i, width) is in memory, and how far it is from token to token."""

    _fields_ = (("x", POINTER), ("stride", LONG))


class Lookup(ctypes.Structure):
    """Which row of a table each token has (b, j), and how many rows there are."""

    _fields_ = (("which", POINTER), ("rows", LONG))


class Projections(ctypes.Structure):
    """Queries, keys and values."""

    _fields_ = (("q", Tokens), ("k", Tokens), ("v", Tokens))


class LayerShape(ctypes.Structure):
    _fields_ = (("width", LONG), ("inner", LONG), ("activation", INT), ("epsilon", FLOAT), ("learning", INT))


class Stack(ctypes.Structure):
    """How often a layer is applied; how many there are to take in turns, and how many relative vectors."""

    _fields_ = (("depth", LONG), ("layers", LONG), ("vectors", LONG))


SIGNATURES: dict[str, list[Any]] = {
    "linear": [LONG, LONG, LONG, *4 * [POINTER]],
    "linear_input_gradient": [LONG, LONG, LONG, *3 * [POINTER]],
    "linear_weight_gradient": [LONG, LONG, LONG, *4 * [POINTER]],
    "activate": [INT, LONG, *3 * [POINTER]],
    "norm": [LONG, LONG, FLOAT, *7 * [POINTER]],
    "norm_gradient": [LONG, LONG, *7 * [POINTER]],
    "attend": [Shape, *3 * [Tokens], POINTER, POINTER, Tokens],
    "attend_gradient": [Shape, *3 * [Tokens], POINTER, POINTER, *4 * [Tokens], POINTER],
    "layer_memory": [Shape, LayerShape],
    "layers": [Shape, LayerShape, Stack, POINTER, POINTER, Lookup, Projections, *3 * [POINTER]],
    "layers_gradient": [Shape, LayerShape, Stack, POINTER, Lookup, *4 * [POINTER], Projections, POINTER, POINTER],
    "adamw": [LONG, *6 * [POINTER], *6 * [DOUBLE]],
}


@contextmanager
def by_torch() -> Iterator[None]:
    """Do all by torch meanwhile, such as what needs second derivatives. LENGTHWISE_KERNELS=torch does so always."""
    token = wanted.set(False)
    try:
        yield
    finally:
        wanted.reset(token)


@cache
def library() -> ctypes.CDLL | str:
    """The compiled kernels, or why there are none."""
    compiler = os.environ.get("CC") or "cc"
    try:
        found = ctypes.CDLL(str(compiled(shlex.split(compiler))))
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        said = isinstance(error, subprocess.CalledProcessError) and error.stderr.strip()
        return f"{compiler} didn't compile {SOURCE.name}: {said or error}"
    for name, arguments in SIGNATURES.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, LONG if name == "layer_memory" else None
    return found


def compiled(compiler: list[str]) -> Path:
    """The shared library of this source, compiler and processor."""
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
    # torch's own OpenMP library, which is loaded by now, is then used here too.
    flags = [*FLAGS, *(["-fopenmp"] if sys.platform == "linux" else [])]
    known = "\n".join([SOURCE.read_text(), version, *compiler, *flags, instruction_set()])
    name = f"kernels-{digest(known.encode())}"
    directory = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lengthwise"
    for kept in directory.glob(f"{name}-*.so"):
        if kept.stem == f"{name}-{digest(kept.read_bytes())}":  # else it is damaged, and would crash the process
            return kept
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        new = Path(temporary) / "kernels.so"
        command = [*compiler, *flags, str(SOURCE), "-o", str(new), "-lm"]
        subprocess.run(command, capture_output=True, text=True, check=True)
        kept = directory / f"{name}-{digest(new.read_bytes())}.so"
        new.replace(kept)  # at once, as other processes may be doing the same
    return kept


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def instruction_set() -> str:
    """What the processor can do, which the compiled code depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def available() -> bool:
    """Whether there are kernels, and they are wanted."""
    return wanted.get() and not isinstance(library(), str)


def missing() -> str | None:
    """Why there are none, though they are wanted."""
    return why if wanted.get() and isinstance(why := library(), str) else None


def native(*tensors: Tensor) -> bool:
    """Whether the kernels can work on these."""
    if not available() or not all(x.dtype == torch.float32 and x.is_cpu for x in tensors):
        return False
    return not transformed() and not torch.is_autocast_enabled("cpu")


def transformed() -> bool:
    """Whether torch doesn't compute but trace, or compute something else, such as the gradient of each example."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def altered(module: nn.Module) -> bool:
    """Whether something looks at what goes through a module, or takes its place."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks) or _has_any_global_hook() or "forward" in vars(module)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (…, k) · weight (n, k)ᵀ + bias (n)"""
    large = x.numel() * len(weight) > SMALL and min(weight.shape) <= WIDEST
    fitting = x.shape[-1:] == weight.shape[1:]  # else torch says what is wrong
    if large and fitting and bias is not None and bias.shape == weight.shape[:1] and native(x, weight, bias):
        return cast(Tensor, LinearFunction.apply(x.contiguous(), weight.contiguous(), bias.contiguous()))
    return F.linear(x, weight, bias)


class LinearFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        n, k = weight.shape
        y = x.new_empty(*x.shape[:-1], n)
        call("linear", x.numel() // k, n, k, x, weight, bias, y)
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        (x, weight), dy, dx = ctx.saved_tensors, dy.contiguous(), None
        n, k = weight.shape
        m = x.numel() // k
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x)
            call("linear_input_gradient", m, n, k, weight, dy, dx)
        dweight, dbias = torch.zeros_like(weight), weight.new_zeros(n)
        call("linear_weight_gradient", m, n, k, x, dy, dweight, dbias)
        return dx, dweight, dbias


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Activation(nn.Module):
    """relu, gelu, or gelu as approximated by tanh."""

    def __init__(self, name: ActivationName):
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        if native(x):
            return cast(Tensor, ActivationFunction.apply(x.contiguous(), self.name))
        return F.relu(x) if self.name == "relu" else F.gelu(x, approximate="tanh" if "tanh" in self.name else "none")


class ActivationFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, name: ActivationName) -> Tensor:
        y, slope = torch.empty_like(x), torch.empty_like(x)
        call("activate", ACTIVATIONS.index(name), x.numel(), x, y, slope)
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return dy * slope, None


class Norm(nn.LayerNorm):
    """Layer norm of x, or of x + more."""

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        fitting = x.shape[-1:] == self.weight.shape and (more is None or more.shape == x.shape)
        if fitting and self.bias is not None and native(x, self.weight, x if more is None else more):
            more = None if more is None else more.contiguous()
            return cast(Tensor, NormFunction.apply(x.contiguous(), more, self.weight, self.bias, self.eps))
        return super().forward(x if more is None else x + more)


class NormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, more: Tensor | None, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
        n = len(weight)
        m = x.numel() // n
        y, normed, scale = torch.empty_like(x), torch.empty_like(x), x.new_empty(m)
        call("norm", m, n, epsilon, x, more, weight, bias, y, normed, scale)
        ctx.save_for_backward(normed, scale, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor, None]:
        normed, scale, weight = ctx.saved_tensors
        dx, dweight, dbias = torch.empty_like(normed), torch.zeros_like(weight), torch.zeros_like(weight)
        call("norm_gradient", len(scale), len(weight), normed, scale, weight, dy.contiguous(), dx, dweight, dbias)
        return dx, dx if ctx.needs_input_grad[1] else None, dweight, dbias, None


class Vectors(Protocol):
    """Those of relative positions: (i, j, width of a head), the same in all examples and heads."""

    @property
    def vectors(self) -> Tensor: ...

    @property
    def by_key(self) -> bool: ...  # whether they are multiplied with the keys, too, and not only with the queries


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, scale: float, relative: Vectors | None = None) -> Tensor:
    """softmax(q·k·scale + q·vectors, and by_key + k·vectors) · v, for q (b, i, width), k and v (b, j, width)."""
    (b, i, width), j = q.shape, k.shape[1]
    shape = attention_shape(b, heads, i, j, width, scale, relative)
    vectors = None if relative is None else relative.vectors.contiguous()
    fitting = k.shape == v.shape == (b, j, heads * shape.d) and width == heads * shape.d
    if not fitting or (vectors is not None and vectors.shape != (i, j, shape.d)):
        raise ValueError("queries, keys, values and relative vectors don't fit each other")
    return cast(Tensor, AttendFunction.apply(shape, *map(in_runs, (q, k, v)), vectors))


def attention_shape(b: int, heads: int, i: int, j: int, width: int, scale: float, relative: Vectors | None) -> Shape:
    by_key = relative is not None and relative.by_key
    return Shape(b, heads, i, j, width // heads, scale, relative is not None, by_key)


def in_runs(x: Tensor) -> Tensor:
    """x (b, i, width) with one stride from token to token, also of different examples."""
    regular = x.stride(2) == 1 and x.stride(0) == x.shape[1] * x.stride(1)
    return x if regular else x.clone(memory_format=torch.contiguous_format)  # x.contiguous() may keep odd strides


class AttendFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, shape: Shape, q: Tensor, k: Tensor, v: Tensor, vectors: Tensor | None) -> Tensor:
        weights, mixed = q.new_empty(shape.b, shape.h, shape.i, shape.j + MOST_PADDING), q.new_empty(q.shape)
        call("attend", shape, *map(tokens, (q, k, v)), vectors, weights, tokens(mixed))
        ctx.shape = shape
        ctx.save_for_backward(q, k, v, vectors, weights)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dmixed: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, vectors, weights = ctx.saved_tensors
        gradients = [x.new_empty(x.shape) for x in (q, k, v)]
        dvectors = None if vectors is None else torch.zeros_like(vectors)
        dmixed = in_runs(dmixed)
        given = *map(tokens, (q, k, v)), vectors, weights, tokens(dmixed)
        call("attend_gradient", ctx.shape, *given, *map(tokens, gradients), dvectors)
        return None, *gradients, dvectors


@dataclass(frozen=True)
class Form:
    """What all layers of one call have in common."""

    width: int
    inner: int  # the width of the feed-forward network
    heads: int
    scale: float
    activation: ActivationName
    epsilon: float

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the parameters: weight and bias of each of PARTS."""
        n, inner = self.width, self.inner
        weights = (3 * n, n), (n, n), (n,), (inner, n), (n, inner), (n,)
        return [shape for weight in weights for shape in (weight, weight[:1])]


@dataclass(frozen=True)
class Input:
    """What a layer gets: vectors (b, j, width), or a table of them (n, width) and which row each token has (b, j).

    The rows of a table are embedded, and projected by the first layer, once each, when it is known by whom.
    """

    rows: Tensor
    which: Tensor | None = None
    embedded: Callable[[Tensor], Tensor] | None = None  # what a layer gets of rows; null: what they are
    project: Callable[[Tensor], Tensor] | None = None  # what attention needs of that in the first layer, side by side
    norm: Norm | None = None  # where embedding is no more than that

    @cached_property
    def table(self) -> Tensor:
        return self.rows if self.embedded is None else self.embedded(self.rows)

    @cached_property
    def projected(self) -> Tensor | None:
        # A row's gradient is a sum over all of its tokens, which bfloat16 would round away.
        return None if self.project is None else self.project(self.table).to(self.rows.dtype)

    @cached_property
    def x(self) -> Tensor:
        return self.looked_up(self.table.to(self.rows.dtype))

    def looked_up(self, rows: Tensor) -> Tensor:
        return rows if self.which is None else F.embedding(self.which, rows)

    def of_examples(self, some: Tensor) -> "Input":
        return replace(self, rows=self.rows[some]) if self.which is None else replace(self, which=self.which[some])


def layers(
    start: Input,
    relatives: Sequence[Vectors | None],
    parameters: Sequence[Sequence[Tensor]],
    form: Form,
    depth: int,
    queries: int,
    classifier: Linear | None = None,
) -> Tensor:
    """Through whole layers, with a norm after each part, to the first positions: (b, queries, width), or their classes.

    So many layers as `depth` says; those that there are, and their relative vectors, in turns.
    """
    b, j = start.rows.shape[:2] if start.which is None else start.which.shape
    shape = attention_shape(b, form.heads, queries, j, form.width, form.scale, relatives[0])
    activation = ACTIVATIONS.index(form.activation)
    sizes = LayerShape(form.width, form.inner, activation, form.epsilon, torch.is_grad_enabled())
    stack = Stack(depth, len(parameters), len(relatives))
    which: Tensor | None = None
    table: Tensor | None = None
    norm: Norm | None = None
    if start.which is None or start.project is None:
        rows = start.x
    else:
        which, norm = start.which.long().contiguous(), start.norm
        check_rows(which, len(start.rows))
        rows, table = (start.table, start.projected) if norm is None else (start.rows, None)
    vectors = (None if relative is None else relative.vectors for relative in relatives)
    ends = *weight_and_bias(norm), *weight_and_bias(classifier)
    tensors = (x if x is None else x.contiguous() for x in (rows, table, *vectors, *chain(*parameters), *ends))
    return cast(Tensor, LayersFunction.apply(shape, sizes, stack, norm.eps if norm else 0.0, which, *tensors))


def weight_and_bias(part: Linear | Norm | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if part is None else (part.weight, part.bias)


def check_rows(which: Tensor, many: int) -> None:
    least, most = which.aminmax()
    if least < 0 or most >= many:
        raise IndexError(f"there is no row {int(least if least < 0 else most)} in a table of {many}")


class LayersFunction(torch.autograd.Function):
    """The layers, and before them the norm of a table and its projection, and after them the classifier, if given."""

    @staticmethod
    def forward(
        ctx: Any,
        shape: Shape,
        sizes: LayerShape,
        stack: Stack,
        epsilon: float,
        which: Tensor | None,
        x: Tensor,
        table: Tensor | None,
        *rest: Tensor | None,
    ) -> Tensor:
        vectors, parameters, (norm, norm_bias, classifier, classifier_bias) = parted(rest, stack)
        n, width, read = len(x), sizes.width, (shape.b, shape.i)
        rows, normed, scale = x, None, None
        if norm is not None:
            rows, normed, scale, table = (x.new_empty(size) for size in ((n, width), (n, width), n, (n, 3 * width)))
            call("norm", n, width, epsilon, x, None, norm, norm_bias, rows, normed, scale)
            call("linear", n, 3 * width, width, rows, *parameters[:2], table)
        memory = [x.new_empty(size) for size in needed(shape, sizes, stack)]
        y = x.new_empty(*read, width)
        given = lookup(which, n), projections(table), pointers(vectors), pointers(memory)
        call("layers", shape, sizes, stack, pointers(parameters), rows, *given, y)
        ctx.sizes = shape, sizes, stack
        ctx.save_for_backward(which, table, rows, normed, scale, y if classifier is not None else None, *rest, *memory)
        if classifier is None:
            return y
        logits = x.new_empty(*read, len(classifier))
        call("linear", shape.b * shape.i, len(classifier), width, y, classifier, classifier_bias, logits)
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        shape, sizes, stack = ctx.sizes
        which, table, rows, normed, scale, y, *rest = ctx.saved_tensors[: -stack.depth]
        memory = ctx.saved_tensors[-stack.depth :]
        vectors, parameters, ends = parted(rest, stack)
        norm, _, classifier, _ = ends
        n, width, dy = len(rows), sizes.width, dy.contiguous()
        dends = [None if x is None else torch.zeros_like(x) for x in ends]
        if classifier is not None:
            of = shape.b * shape.i, len(classifier), width
            dlogits, dy = dy, torch.empty_like(y)
            call("linear_input_gradient", *of, classifier, dlogits, dy)
            call("linear_weight_gradient", *of, y, dlogits, *dends[2:])
        drows, dtable = torch.empty_like(rows), None if table is None else torch.empty_like(table)
        dvectors = [None if x is None else torch.zeros_like(x) for x in vectors]
        dparameters = [torch.zeros_like(x) for x in parameters if x is not None]
        given = lookup(which, n), pointers(vectors), pointers(memory), dy
        found = drows, projections(dtable), pointers(dvectors), pointers(dparameters)
        call("layers_gradient", *ctx.sizes, pointers(parameters), *given, *found)
        if norm is not None:
            of, dprojected, dx = (n, 3 * width, width), torch.empty_like(rows), torch.empty_like(rows)
            call("linear_weight_gradient", *of, rows, dtable, *dparameters[:2])
            call("linear_input_gradient", *of, parameters[0], dtable, dprojected)
            call("norm_gradient", n, width, normed, scale, norm, drows.add_(dprojected), dx, *dends[:2])
            drows, dtable = dx, None
        return None, None, None, None, None, drows, dtable, *dvectors, *dparameters, *dends


def needed(shape: Shape, sizes: LayerShape, stack: Stack) -> list[int]:
    """How many numbers each layer writes down for the gradient; without one, how many they all need."""
    every = Shape.from_buffer_copy(shape)
    every.i = every.j
    last, other = (call("layer_memory", each, sizes) for each in (shape, every))
    return [*(stack.depth - 1) * [other], last] if sizes.learning else [max(last, other)]


Tensors = Sequence[Tensor | None]


def parted(tensors: Tensors, stack: Stack) -> tuple[Tensors, Tensors, Tensors]:
    """Relative vectors; parameters of the layers; and those of the norm before and of the classifier after them."""
    return tensors[: stack.vectors], tensors[stack.vectors : -4], tensors[-4:]


def tokens(x: Tensor | None) -> Tokens:
    return Tokens(None, 0) if x is None else Tokens(x.data_ptr(), x.stride(1))


def lookup(which: Tensor | None, rows: int) -> Lookup:
    return Lookup(None if which is None else which.data_ptr(), rows)


def projections(table: Tensor | None) -> Projections:
    """Queries, keys and values that are side by side in contiguous rows."""
    if table is None:
        return Projections()
    at, stride, size = table.data_ptr(), table.shape[1], table.element_size()
    return Projections(*(Tokens(at + i * stride // 3 * size, stride) for i in range(3)))


def pointers(tensors: Tensors) -> ctypes.Array[ctypes.c_void_p]:
    return (POINTER * len(tensors))(*(None if x is None else x.data_ptr() for x in tensors))


def call(name: str, *arguments: Any) -> Any:
    """Call a kernel, with the places of tensors in memory."""
    return getattr(library(), name)(*[x.data_ptr() if isinstance(x, Tensor) else x for x in arguments])


def adamw(optimizer: torch.optim.AdamW, clip: float | None) -> None:
    """A step of the optimiser, after clipping the norm of all gradients."""
    (group,) = optimizer.param_groups
    learned = [parameter for parameter in group["params"] if parameter.grad is not None]
    states = [optimizer.state[parameter] for parameter in learned]
    if all(states):  # torch makes them in the first step
        kept = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step"))
        parts = learned, [parameter.grad for parameter in learned], *kept
        if native(*chain(*parts)) and all(x.is_contiguous() for x in chain(*parts)):
            sizes = (LONG * len(learned))(*(parameter.numel() for parameter in learned))
            numbers = group["lr"], *group["betas"], group["eps"], group["weight_decay"], clip or 0
            call("adamw", len(learned), sizes, *map(pointers, parts), *numbers)
            torch.autograd.graph.increment_version(learned)
            return
    if clip:
        torch.nn.utils.clip_grad_norm_(learned, clip)
    optimizer.step()
