"""A stack of post-norm Transformer layers on the CPU in float32, by the C code in `c/`."""

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthwise.fast.compiled import Shape, Unavailable, load

Activation = Literal["relu", "gelu", "gelu-tanh"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)  # by their numbers in layer.h
PARAMETERS = (
    *("query.weight", "query.bias", "key.weight", "key.bias", "value.weight", "value.bias"),
    *("output.weight", "output.bias", "attention_norm.weight", "attention_norm.bias"),
    *("widen.weight", "widen.bias", "narrow.weight", "narrow.bias"),
    *("feedforward_norm.weight", "feedforward_norm.bias"),
)


@dataclass(frozen=True)
class StackShape:
    heads: int
    activation: Activation
    norm_epsilon: float
    scale: float  # of q·k; normally 1/√(head width)
    by_key: bool  # whether relative vectors are multiplied with keys, and not only with queries
    depth: int  # how many layers are applied
    queries: int  # the last layer is computed for so many positions, the first ones


def apply_stack(
    x: Tensor,
    layers: Sequence[Sequence[Tensor]],
    vectors: Sequence[Tensor | None],
    shape: StackShape,
) -> Tensor:
    """Applies `shape.depth` layers to x (b, j, width), for (b, queries, width).

    Layers take turns: one is shared by all depths, `depth` are applied once each. A layer is its
    parameters in the order of PARAMETERS. Relative vectors (j, j, head width) take turns, too, and
    None stands for none: scores = scale·q·k + q·vectors[i, j] (+ k·vectors[i, j] by key).
    Gradients can be taken once.
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
        torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in given),
        *(shape.scale, shape.norm_epsilon),
    )
    tensors = (None if tensor is None else tensor.contiguous().resolve_neg() for tensor in given)
    return cast(Tensor, StackFunction.apply(library, call, *tensors))


def check(
    x: Tensor,
    layers: Sequence[Sequence[Tensor]],
    vectors: Sequence[Tensor | None],
    shape: StackShape,
) -> None:
    """Raises unless everything has the type and shape that the C code relies on."""
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
        expected = *4 * (square, row), row, row, (inner, width), (inner,), (width, inner), row, row, row
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
    """Raises unless a tensor is dense float32 on the CPU and has the size, where that is given."""
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
        ctx: Any, library: ctypes.CDLL, shape: Shape, x: Tensor, *rest: Tensor | None
    ) -> Tensor:
        vectors, parameters = rest[: shape.vectors], rest[shape.vectors :]
        sizes = (ctypes.c_long * 4)()
        library.stack_sizes(ctypes.byref(shape), sizes)
        full, last, scratch_size, backward_size = sizes
        many = shape.depth if shape.training else 0
        saved = [allocate(last if i == shape.depth - 1 else full) for i in range(many)]
        y, scratch = x.new_empty(shape.examples, shape.queries, shape.width), allocate(scratch_size)
        library.stack_forward(
            ctypes.byref(shape),
            *(addresses(parameters), addresses(vectors), x.data_ptr(), addresses(saved)),
            *(scratch.data_ptr(), y.data_ptr()),
        )
        ctx.library, ctx.shape, ctx.scratch_size = library, shape, backward_size
        ctx.save_for_backward(*rest, *saved)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # once_differentiable raises only if dy requires a gradient. But this gradient depends
            # on x and the parameters, too; without an error, that part would silently be missing.
            dy = dy.detach().requires_grad_()
        return cast(tuple[Tensor | None, ...], gradients(ctx, dy))


@once_differentiable
def gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    shape: Shape = ctx.shape
    rest, saved = ctx.saved_tensors[: -shape.depth], ctx.saved_tensors[-shape.depth :]
    vectors, parameters = rest[: shape.vectors], rest[shape.vectors :]
    needed = ctx.needs_input_grad[3 : 3 + shape.vectors]
    dvectors = [torch.zeros_like(v) if need else None for v, need in zip(vectors, needed, strict=True)]
    dparameters = [torch.zeros_like(parameter) for parameter in parameters]
    dx = dy.new_empty(shape.examples, shape.length, shape.width)
    dy, scratch = dy.contiguous().resolve_neg(), allocate(ctx.scratch_size)
    ctx.library.stack_backward(
        ctypes.byref(shape),
        *(addresses(parameters), addresses(vectors), addresses(saved), dy.data_ptr()),
        *(scratch.data_ptr(), dx.data_ptr(), addresses(dvectors), addresses(dparameters)),
    )
    return None, None, dx, *dvectors, *dparameters


def allocate(floats: int) -> Tensor:
    try:
        return torch.empty(floats, dtype=torch.float32)
    except RuntimeError as error:
        raise MemoryError(f"there is no memory for {floats} numbers") from error


def addresses(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    found = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    return (ctypes.c_void_p * len(found))(*found)
