"""Interventions: run a model with a part's output zeroed, averaged or taken from another problem.

with intervene(model, zero("layer 2 head 1")):
    model.solve("99999 + 1")
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.base import UsageError
from lengthwise.solver.inside.sites import Site, parse_site
from lengthwise.solver.inside.trace import Trace

if TYPE_CHECKING:
    from lengthwise.solver.solver import Solver

AT_ONCE = 100  # problems that are traced at once for a mean


@dataclass(frozen=True, eq=False)
class Intervention:
    """What replaces a part's output: zeros, or values that are computed from other problems."""

    site: Site
    positions: tuple[int, ...] | None  # of the tokens at which it is replaced; None: all
    source: tuple[str, ...] | Trace = ()  # problems whose output replaces it; none: zeros
    average: bool = False  # their mean, or each its own
    values: Tensor | None = None  # (1 or b, j, width), once they are computed

    def prepare(self, solver: "Solver") -> "Intervention":
        """The same with its values, which the model computes as it is."""
        if self.source == ():
            return self
        if isinstance(self.source, Trace):
            found = self.source.at(self.site.name)
        else:
            starts = range(0, len(self.source), AT_ONCE)
            traces = (solver.trace(self.source[i : i + AT_ONCE]) for i in starts)
            found = np.concatenate([trace.at(self.site.name) for trace in traces])
        if self.average:
            found = found.mean(0, keepdims=True, dtype=np.float64).astype(found.dtype)
        return replace(self, values=torch.from_numpy(found).to(solver.device))

    def check_length(self, length: int) -> None:
        """Raise a UsageError unless problems of this length can be changed."""
        if self.positions and max(self.positions) >= length:
            raise UsageError(
                f"there is no position {max(self.positions)}: the problem has {length} tokens,"
                " counted from 0"
            )
        if self.values is not None and self.values.shape[1] != length:
            raise UsageError(
                f"the intervention at '{self.site.name}' has values for {self.values.shape[1]}"
                f" tokens, but the model is asked a problem of {length}"
            )

    def edit(self, x: Tensor) -> Tensor:
        """x (b, i, width) with the output replaced."""
        new = x.clone()
        count, length, _ = x.shape
        rows = [p for p in self.positions or range(length) if p < length]
        if self.values is None:
            new[:, rows] = 0
            return new
        if len(self.values) not in (1, count):
            raise UsageError(
                f"{len(self.values)} problems are patched in, but the model works on {count} at"
                " once; give one problem, or as many as are asked together"
            )
        new[:, rows] = self.values[:, rows].to(x.dtype)
        return new


def zero(site: str, positions: Sequence[int] | None = None) -> Intervention:
    """Replace a part's output by zeros: `zero("layer 2 head 1")`."""
    return Intervention(parse_site(site), check_positions(positions))


def mean(
    site: str, over: Sequence[str] | Trace, positions: Sequence[int] | None = None
) -> Intervention:
    """Replace a part's output by its mean over problems, at each position."""
    source = check_source(over)
    return Intervention(parse_site(site), check_positions(positions), source, average=True)


def patch(
    site: str, source: str | Sequence[str] | Trace, positions: Sequence[int] | None = None
) -> Intervention:
    """Replace a part's output by that of another problem, or of one for each problem asked.

    A trace of the other problems saves computing it again.
    """
    return Intervention(parse_site(site), check_positions(positions), check_source(source))


def check_source(source: str | Sequence[str] | Trace) -> tuple[str, ...] | Trace:
    if isinstance(source, Trace):
        return source
    found = (source,) if isinstance(source, str) else tuple(source)
    if not found:
        raise UsageError("an intervention needs a problem to take values from")
    return found


def check_positions(positions: Sequence[int] | None) -> tuple[int, ...] | None:
    if positions is None:
        return None
    found = tuple(positions)
    if not found or any(not isinstance(p, int) or p < 0 for p in found):
        raise UsageError(f"positions are indices of tokens, from 0 on, not {list(found)}")
    return found


@contextmanager
def intervene(solver: "Solver", *interventions: Intervention) -> Iterator[None]:
    """Run the model with these interventions while the context lasts.

    They take effect in the order given. Everything that asks the model sees them: `solve`,
    `trace`, `evaluate`, gradients. A forward pass that does not reach one of them is an error.
    """
    for intervention in interventions:
        if not isinstance(intervention, Intervention):
            raise UsageError(
                f"an intervention is made by zero, mean or patch, not {intervention!r}"
            )
        check_site(solver, intervention.site)
    with ExitStack() as stack:
        # All values first, so that none of these interventions changes another's.
        for prepared in [intervention.prepare(solver) for intervention in interventions]:
            Editor(solver, prepared).install(stack)
        yield


def check_site(solver: "Solver", site: Site) -> None:
    """Raise a UsageError unless the model has the place."""
    config, attention = solver.encoder.config, solver.encoder.layer(0).attention
    if site.head > config.heads:
        raise UsageError(f"there is no '{site.name}': the model has {config.heads} heads")
    if config.encoder == "transformer" and site.layer > config.layers:
        raise UsageError(f"there is no '{site.name}': the model has {config.layers} layers")
    if site.part == "head" and not isinstance(getattr(attention, "output", None), nn.Module):
        raise UsageError(
            f"the attention '{config.attention.kind}' has no module `output`, so its heads can't be"
            " told apart"
        )


class Editor:
    """One intervention as forward hooks: counts the layers of a forward pass, and edits its own."""

    def __init__(self, solver: "Solver", intervention: Intervention):
        self.encoder, self.intervention = solver.encoder, intervention
        self.site = intervention.site
        self.turn = self.edits = 0

    def start(self, encoder: nn.Module, given: tuple[Tensor, ...]) -> None:
        self.intervention.check_length(given[0].shape[1])
        self.turn = 0  # layers that have begun in this forward pass
        self.edits = 0
        self.input: Tensor | None = None  # of the layer

    def install(self, stack: ExitStack) -> None:
        handles = [
            self.encoder.register_forward_pre_hook(self.start),
            self.encoder.register_forward_hook(self.check_reached),
            *(handle for layer in self.encoder.layers for handle in self.hook_layer(layer)),
        ]
        if self.site.part == "embedding":
            handles.append(self.encoder.project.register_forward_hook(self.edit_embedding))
        for handle in handles:
            stack.callback(handle.remove)

    def hook_layer(self, layer: nn.Module) -> Iterator[Any]:
        attention = layer.get_submodule("attention")
        yield layer.register_forward_pre_hook(self.begin)
        part = self.site.part
        if part == "head":
            output = attention.get_submodule("output")
            yield output.register_forward_pre_hook(self.edit_head)
        elif part == "attention":
            yield attention.register_forward_hook(self.edit_output)
        elif part == "feed-forward":
            yield layer.get_submodule("narrow").register_forward_hook(self.edit_output)
        elif part == "after layer":
            yield layer.register_forward_hook(self.edit_output)
        elif part == "after attention" and getattr(layer, "pre_norm", False):
            yield attention.register_forward_hook(self.edit_sum)
        elif part == "after attention":
            norm = layer.get_submodule("attention_norm")
            yield norm.register_forward_hook(self.edit_output)

    def begin(self, layer: nn.Module, given: tuple[Any, ...]) -> None:
        self.turn += 1
        self.input = given[0]

    def edit(self, x: Tensor) -> Tensor:
        self.edits += 1
        return self.intervention.edit(x)

    def edit_output(self, module: nn.Module, given: Any, found: Tensor) -> Tensor | None:
        return self.edit(found) if self.turn == self.site.layer else None

    def edit_embedding(self, module: nn.Module, given: Any, found: Tensor) -> Tensor | None:
        # Symbols that are read between layers are projected by the same module.
        return self.edit(found) if self.turn == 0 and not self.edits else None

    def edit_sum(self, module: nn.Module, given: Any, found: Tensor) -> Tensor | None:
        """The attention's output, so that its sum with the residual stream is the new value."""
        if self.turn != self.site.layer:
            return None
        assert self.input is not None
        x = self.input[:, : found.shape[1]]
        return self.edit(x + found) - x

    def edit_head(self, module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor] | None:
        if self.turn != self.site.layer:
            return None
        heads = given[0].unflatten(-1, (self.encoder.config.heads, -1)).clone()
        heads[..., self.site.head - 1, :] = self.edit(heads[..., self.site.head - 1, :])
        return (heads.flatten(-2),)

    def check_reached(self, *_: Any) -> None:
        if not self.edits:
            raise UsageError(
                f"the intervention at '{self.site.name}' had no effect: layers were applied"
                f" {self.turn} times"
            )
