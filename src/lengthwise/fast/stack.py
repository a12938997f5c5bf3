"""A stack of post-norm Transformer layers on the CPU in float32, by the C code in `c/`."""

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from lengthwise.fast.compiled import Shape, Unavailable, load

Plain = Callable[[Tensor, Sequence[Tensor | None], Sequence[Tensor]], Tensor]
Activation = Literal["relu", "gelu", "gelu-tanh"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)  # by their numbers in layer.h
PARAMETERS = (
    *("query.weight", "query.bias", "key.weight", "key.bias", "value.weight", "value.bias"),
    *("output.weight", "output.bias", "attention_norm.weight", "attention_norm.bias"),
    *("widen.weight", "widen.bias", "narrow.weight", "narrow.bias"),
    *("feedforward_norm.weight", "feedforward_norm.bias"),
)
SAVED, FORWARD, BACKWARD = range(3)  # what memory is for, as in stack.c
# The system clears memory that it gets back and gives out again, which takes up to a fifth of a
# step. glibc keeps buffers of this size; of those that are much larger, it returns most.
BUFFER_FLOATS = 2**17
CACHE_LINE_FLOATS = 16


@dataclass(frozen=True)
class StackShape:
    heads: int
    activation: Activation
    norm_epsilon: float
    scale: float  # of q·k; normally 1/√(head width)
    by_key: bool  # whether relative vectors are multiplied with keys, and not only with queries
    depth: int  # how many layers are applied
    queries: int  # how many first positions the last layer computes


def apply_stack(
    x: Tensor,
    layers: Sequence[Sequence[Tensor]],
    vectors: Sequence[Tensor | None],
    shape: StackShape,
    plain: Plain | None = None,
) -> Tensor:
    """Apply `shape.depth` layers to x: (b, j, width) -> (b, queries, width).

    Layers take turns: one is shared by all depths, `depth` are applied once each. A layer is its
    parameters in the order of PARAMETERS. Relative vectors (j, j, head width) take turns, too, and
    None stands for none: scores = scale·q·k + q·vectors[i, j] (+ k·vectors[i, j] by key).
    `plain` is the same by PyTorch: (x, vectors, parameters) -> y. It computes gradients of
    gradients, and everything where numbers are too large (c/vectors.h).
    """
    library = load()
    if isinstance(library, Unavailable):
        raise RuntimeError(library.reason)
    layers, vectors = [tuple(layer) for layer in layers], tuple(vectors)
    check(x, layers, vectors, shape)
    given = x, *vectors, *chain(*layers)
    call = Shape(
        *(*x.shape[:2], shape.queries, x.shape[2], shape.heads, len(layers[0][10])),
        *(shape.depth, len(layers), len(vectors), torch.get_num_threads()),
        *(ACTIVATIONS.index(shape.activation), shape.by_key),
        torch.is_grad_enabled()
        and any(tensor is not None and tensor.requires_grad for tensor in given),
        *(shape.scale, shape.norm_epsilon),
    )
    tensors = (None if tensor is None else tensor.contiguous().resolve_neg() for tensor in given)
    y, too_large = cast(tuple[Tensor, bool], StackFunction.apply(library, call, plain, *tensors))
    return plain(x, vectors, list(chain(*layers))) if too_large and plain else y


def check(
    x: Tensor,
    layers: Sequence[Sequence[Tensor]],
    vectors: Sequence[Tensor | None],
    shape: StackShape,
) -> None:
    """Raise an error unless everything has the type and shape that the C code relies on."""
    check_tensor("x", x, (None, None, None))
    _, length, width = x.shape
    if not length or not width:
        raise ValueError(f"x has shape {tuple(x.shape)}; neither length nor width can be 0")
    check_shape(shape, length, width)
    for name, many in (("layers", len(layers)), ("relative vectors", len(vectors))):
        if not 1 <= many <= shape.depth:
            raise ValueError(f"expected 1 to {shape.depth} {name} for that depth, got {many}")
    inner = None
    for number, layer in enumerate(layers):
        if len(layer) != len(PARAMETERS):
            raise ValueError(f"expected {len(PARAMETERS)} parameters of a layer, got {len(layer)}")
        check_tensor(f"widen.weight of layer {number}", layer[10], (inner, width))
        inner = len(layer[10])
        if not inner:
            raise ValueError(f"widen.weight of layer {number} has no rows")
        square, row = (width, width), (width,)
        expected = (
            *4 * (square, row),
            row,
            row,
            (inner, width),
            (inner,),
            (width, inner),
            row,
            row,
            row,
        )
        for name, parameter, size in zip(PARAMETERS, layer, expected, strict=True):
            check_tensor(f"{name} of layer {number}", parameter, size)
    for number, relative in enumerate(vectors):
        if relative is not None:
            size = length, length, width // shape.heads
            check_tensor(f"relative vectors {number}", relative, size)


def check_shape(shape: StackShape, length: int, width: int) -> None:
    for name in ("heads", "depth", "queries"):
        if type(value := getattr(shape, name)) is not int:
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    for name in ("norm_epsilon", "scale"):
        if not isinstance(value := getattr(shape, name), float | int) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, not {type(value).__name__}")
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, but must be finite")
    if shape.activation not in ACTIVATIONS:
        raise ValueError(f"activation is {shape.activation!r}; it can be {', '.join(ACTIVATIONS)}")
    if shape.heads < 1 or width % shape.heads:
        raise ValueError(f"a width of {width} can't be split into {shape.heads} heads")
    if shape.depth < 1:
        raise ValueError(f"depth is {shape.depth}, but must be at least 1")
    if not 1 <= shape.queries <= length:
        raise ValueError(f"queries is {shape.queries}, but must be from 1 to {length}, the length")


def check_tensor(name: str, tensor: Tensor, size: tuple[int | None, ...]) -> None:
    """Raise an error unless a tensor is dense float32 on the CPU and has the size given."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise TypeError(f"{name} must be a plain tensor, not {type(tensor).__name__}")
    if tensor.dtype != torch.float32 or not tensor.is_cpu or tensor.layout != torch.strided:
        found = f"{tensor.dtype} on {tensor.device}, {tensor.layout}"
        raise TypeError(f"{name} must be torch.float32 on cpu, torch.strided; got {found}")
    wrong = (want not in (None, got) for want, got in zip(size, tensor.shape, strict=False))
    if len(tensor.shape) != len(size) or any(wrong):
        wanted = ", ".join("any" if want is None else str(want) for want in size)
        raise ValueError(f"{name} must have shape ({wanted}), got {tuple(tensor.shape)}")


class StackFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        shape: Shape,
        plain: Plain | None,
        x: Tensor,
        *rest: Tensor | None,
    ) -> tuple[Tensor, bool]:
        """The output, and whether numbers are so large that it is not reliable."""
        vectors, parameters = rest[: shape.vectors], rest[shape.vectors :]
        y = x.new_empty(shape.examples, shape.queries, shape.width)
        saved = Memory.of(library, shape, SAVED) if shape.training else Memory([], [])
        scratch = Memory.of(library, shape, FORWARD)
        too_large = library.stack_forward(
            ctypes.byref(shape),
            *(addresses(parameters), addresses(vectors), x.data_ptr()),
            *(saved.addresses(), scratch.addresses(), y.data_ptr()),
        )
        if shape.training:
            ctx.library, ctx.shape, ctx.plain, ctx.places = library, shape, plain, saved.places
            ctx.save_for_backward(x, *rest, *saved.buffers)
        return y, bool(too_large)

    @staticmethod
    def backward(ctx: Any, dy: Tensor, _: None) -> tuple[Tensor | None, ...]:
        shape: Shape = ctx.shape
        many = 1 + shape.vectors + shape.layers * len(PARAMETERS)
        x, *tensors = ctx.saved_tensors[:many]
        saved = Memory(ctx.saved_tensors[many:], ctx.places)
        vectors, parameters = tensors[: shape.vectors], tensors[shape.vectors :]
        # The gradient itself may be differentiated, or computed for many dy at once.
        in_c = not (torch.is_grad_enabled() or not torch._C._has_storage(dy))
        needed = ctx.needs_input_grad[4 : 4 + shape.vectors]
        found = gradients(ctx, vectors, parameters, saved, needed, dy) if in_c else None
        if found is None:
            found = plain_gradients(ctx.plain, x, vectors, parameters, dy)
        return None, None, None, *found


def plain_gradients(
    plain: Plain | None,
    x: Tensor,
    vectors: Sequence[Tensor | None],
    parameters: Sequence[Tensor],
    dy: Tensor,
) -> list[Tensor | None]:
    if plain is None:
        raise RuntimeError("the C code has no gradients of gradients, or of such large numbers")
    inputs = [x, *vectors, *parameters]
    needed = {i: t for i, t in enumerate(inputs) if t is not None and t.requires_grad}
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        y = plain(x, vectors, parameters)
    found = torch.autograd.grad(
        y, list(needed.values()), dy, create_graph=differentiable, allow_unused=True
    )
    by_input = dict(zip(needed, found, strict=True))
    return [by_input.get(i) for i in range(len(inputs))]


def gradients(
    ctx: Any,
    vectors: Sequence[Tensor | None],
    parameters: Sequence[Tensor],
    saved: "Memory",
    needed: Sequence[bool],
    dy: Tensor,
) -> list[Tensor | None] | None:
    """The gradients of x, vectors and parameters; None if numbers are too large."""
    shape: Shape = ctx.shape
    dvectors = [
        torch.zeros_like(v) if need and v is not None else None
        for v, need in zip(vectors, needed, strict=True)
    ]
    dparameters = [torch.zeros_like(parameter) for parameter in parameters]
    dx = dy.new_empty(shape.examples, shape.length, shape.width)
    dy, scratch = dy.contiguous().resolve_neg(), Memory.of(ctx.library, shape, BACKWARD)
    too_large = ctx.library.stack_backward(
        ctypes.byref(shape),
        *(addresses(parameters), addresses(vectors), saved.addresses(), dy.data_ptr()),
        *(scratch.addresses(), dx.data_ptr(), addresses(dvectors), addresses(dparameters)),
    )
    return None if too_large else [dx, *dvectors, *dparameters]


@dataclass(frozen=True)
class Memory:
    """Pieces of memory for the C code: which buffer each is in, and where in it, in bytes."""

    buffers: Sequence[Tensor]
    places: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, library: ctypes.CDLL, shape: Shape, purpose: int) -> "Memory":
        sizes = (ctypes.c_long * library.stack_pieces(ctypes.byref(shape), purpose, None))()
        library.stack_pieces(ctypes.byref(shape), purpose, sizes)
        lengths, places = [0], []
        for size in sizes:
            if lengths[-1] and lengths[-1] + size > BUFFER_FLOATS:
                lengths.append(0)
            places.append((len(lengths) - 1, 4 * lengths[-1]))
            lengths[-1] += -(-size // CACHE_LINE_FLOATS) * CACHE_LINE_FLOATS
        return cls([allocate(length) for length in lengths], places)

    def addresses(self) -> ctypes.Array[ctypes.c_void_p]:
        starts = [buffer.data_ptr() for buffer in self.buffers]
        found = [starts[buffer] + offset for buffer, offset in self.places]
        return (ctypes.c_void_p * len(found))(*found)


def allocate(floats: int) -> Tensor:
    try:
        return torch.empty(floats, dtype=torch.float32)
    except RuntimeError as error:
        raise MemoryError(f"there is no memory for {floats} numbers") from error


def addresses(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    found = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    return (ctypes.c_void_p * len(found))(*found)
