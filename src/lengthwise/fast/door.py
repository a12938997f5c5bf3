"""Decides between the C code and PyTorch, and calls it."""

import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call

from lengthwise.base import UsageError
from lengthwise.fast import compiled, verify
from lengthwise.fast.stack import PARAMETERS, StackShape, apply_stack
from lengthwise.model import ModelConfig
from lengthwise.model.attention import ATTENTIONS, FullAttention
from lengthwise.model.depth import FixedDepth
from lengthwise.model.encoder import Encoder, Layer
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import (
    POSITIONS,
    Abacus,
    Absolute,
    Coupled,
    NoPosition,
    RelativeKey,
    RelativeKeyQuery,
)
from lengthwise.model.positions.relative import multiply_by_key, multiply_by_query
from lengthwise.problems.layouts import Coordinates

VARIABLE = "LENGTHWISE_FAST"
OUTSIDE_ATTENTION = ("attention_norm", "widen", "narrow", "feedforward_norm")
WIDEST = 1024  # of layers; wider ones were not measured
MEASURED = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")
ADDED = (NoPosition, Absolute, Coupled, Abacus)  # embeddings without scores
RELATIVE = (RelativeKey, RelativeKeyQuery)
LAYER_PARAMETERS = tuple(  # in the order of `apply_stack`
    name if name.startswith(OUTSIDE_ATTENTION) else f"attention.{name}" for name in PARAMETERS
)


def is_enabled() -> bool:
    """Whether the C code may be used: by default where it was measured to gain (x86-64 Linux)."""
    setting = os.environ.get(VARIABLE, "on" if MEASURED else "off")
    if setting not in ("on", "off"):
        raise UsageError(f"{VARIABLE} is {setting!r}, but it must be on or off")
    return setting == "on" and not disabled.get()


disabled = ContextVar("disabled", default=False)


@contextmanager
def use_pytorch() -> Iterator[None]:
    """PyTorch computes everything inside this context."""
    token = disabled.set(True)
    try:
        yield
    finally:
        disabled.reset(token)


def logits(
    encoder: Encoder,
    tokens: Tensor,
    coordinates: Coordinates[Tensor],
    n_out: int,
    layers: int | None = None,
) -> Tensor:
    """What `encoder(tokens, coordinates, n_out, layers)` gives."""
    depth = layers or encoder.config.layers
    has_sizes = type(depth) is int and depth >= 1 and n_out >= 1
    if not has_sizes or decline_reason(encoder, tokens, coordinates) is not None:
        return encoder(tokens, coordinates, n_out, layers)
    encoder.check_lengths(tokens, n_out)
    x = encoder.embed(tokens, coordinates)
    pairs = Pairs(coordinates, tokens.shape[1])
    positions = list(encoder.positions)[:depth]
    vectors = [p.vectors(pairs) if isinstance(p, RELATIVE) else None for p in positions]
    shape = StackShape(
        heads=encoder.config.heads,
        activation=encoder.config.activation,
        norm_epsilon=encoder.config.norm_epsilon,
        scale=encoder.layer(0).attention.head_width ** -0.5,
        by_key=isinstance(encoder.position(0), RelativeKeyQuery),
        depth=depth,
        queries=n_out,
    )
    weights = [layer_parameters(encoder.layer(i)) for i in range(min(depth, len(encoder.layers)))]
    plain = partial(plain_stack, encoder, coordinates, shape)
    return encoder.classify(apply_stack(x, weights, vectors, shape, plain))


def layer_parameters(layer: Layer) -> list[Tensor]:
    return [layer.get_parameter(name) for name in LAYER_PARAMETERS]


def plain_stack(
    encoder: Encoder,
    coordinates: Coordinates[Tensor],
    shape: StackShape,
    x: Tensor,
    vectors: Sequence[Tensor | None],
    parameters: Sequence[Tensor],
) -> Tensor:
    """What `apply_stack` computes, by the encoder's own layers with these tensors."""
    for i in range(shape.depth):
        start = i % len(encoder.layers) * len(LAYER_PARAMETERS)
        own = dict(zip(LAYER_PARAMETERS, parameters[start:], strict=False))
        queries = shape.queries if i == shape.depth - 1 else x.shape[1]
        position = GivenVectors(vectors[i % len(vectors)], shape.by_key)
        pairs = Pairs(coordinates, queries)
        x = functional_call(encoder.layer(i), own, (x, position, pairs))
    return x


@dataclass(frozen=True)
class GivenVectors:
    """Relative-key or relative-key-query with the vectors of all pairs, or no scores."""

    vectors: Tensor | None  # (j, j, d)
    by_key: bool

    def rotate(self, q: Tensor, k: Tensor, pairs: Pairs) -> tuple[Tensor, Tensor]:
        return q, k

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor | None:
        if self.vectors is None:
            return None
        vectors = self.vectors[: pairs.queries]
        scores = multiply_by_query(q, vectors)
        return scores + multiply_by_key(k, vectors) if self.by_key else scores


def decline_reason(
    encoder: Encoder, tokens: Tensor, coordinates: Coordinates[Tensor]
) -> str | None:
    """Why PyTorch computes this batch; None if the C code does."""
    if not is_enabled():
        off_by_default = VARIABLE not in os.environ and not disabled.get()
        hint = f"; {VARIABLE}=on tries it" if off_by_default else ""
        return f"the C code is switched off{hint}"
    if type(encoder) is not Encoder:
        return f"the encoder is a {type(encoder).__name__}"
    return (
        unsupported_option(encoder.config, encoder.training)
        or verify.difference(encoder)
        or unsupported_tensors(encoder, tokens, coordinates)
        or unsupported_mode()
        or unavailable()
    )


def unavailable() -> str | None:
    library = compiled.load()
    return library.reason if isinstance(library, compiled.Unavailable) else None


def unsupported_option(config: ModelConfig, training: bool) -> str | None:
    """What the C code does not compute; `verify` makes sure that the encoder is as configured."""
    attention = config.attention
    is_full = ATTENTIONS[attention.kind] is FullAttention
    if not is_full or not isinstance(attention, FullAttention.Options):
        return f"model.attention is {attention.kind}"
    if attention.mask_padding:
        return "model.attention.mask_padding is true"
    if POSITIONS[config.position.kind] not in (*ADDED, *RELATIVE):
        return f"model.position is {config.position.kind}"
    if type(config.depth) is not FixedDepth:
        return f"model.depth is {config.depth.kind}"
    if config.norm != "post":
        return f"model.norm is {config.norm}"
    if training and (config.dropout or config.attention_dropout):
        return "there is dropout"
    if config.width > WIDEST:
        return f"model.width is more than {WIDEST}"
    return None


def unsupported_tensors(
    encoder: Encoder, tokens: Tensor, coordinates: Coordinates[Tensor]
) -> str | None:
    if not verify.plain_tensors(tokens, *encoder.parameters()):
        return "tensors are not float32 on the CPU"
    if isinstance(position := encoder.position(0), RELATIVE):
        needed = (position.options.coordinate, "operand", "shared", "row")
        if any(getattr(coordinates, name).dim() != 1 for name in needed):
            return "positions differ from example to example"
    return None


def unsupported_mode() -> str | None:
    """What else PyTorch may be doing than computing."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if torch.get_float32_matmul_precision() != "highest":  # bfloat16 on some processors
        return "torch may compute products of float32 less exactly"
    is_tracing = torch.compiler.is_compiling() or torch._C._is_tracing()
    if is_tracing or torch._C._are_functorch_transforms_active():
        return "torch is tracing or transforming"
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return "a torch function or dispatch mode is active"
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        return "saved tensors have hooks, as in activation checkpointing"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is on"
    return None
