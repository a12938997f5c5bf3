"""How an answer forms: what would be read after each iteration, and what each token attends to.

`Solver.trace` keeps everything, dense and in every layer, for problems of some dozens of tokens.
The page keeps only what it shows, so that a sum of 10,000 digits and as many iterations fits in
memory. A test compares both.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.arithmetic.digits import Numbers
from lengthwise.model.pairs import Pairs
from lengthwise.model.rewrite import Rewrite, column_pairs
from lengthwise.problems.batch import Batch
from lengthwise.problems.layouts import Coordinates
from lengthwise.solver import Solver

MOST_SYMBOLS = 400_000  # of answers, over all iterations that are kept
LEAST_WEIGHT = 10  # thousandths; keys with less are left out
Json = dict[str, Any]
Weights = list[list[list[tuple[int, int]]]]  # by head and query: keys with weights in thousandths


class Reached(Exception):
    """The iteration that was asked for is done."""


class Steps:
    """What would be read after each iteration; of very many, every second, fourth, … is kept."""

    def __init__(self, first: int) -> None:
        self.kept: list[Json] = []
        self.iteration, self.every, self.first = first - 1, 1, first
        self.logits: Callable[[], Tensor]  # the latest

    def add(self, logits: Callable[[], Tensor]) -> None:
        """The next iteration; `logits` gives those of the answer, (n_out, vocabulary)."""
        self.iteration, self.logits = self.iteration + 1, logits
        if (self.iteration - self.first) % self.every == 0:
            self.keep()
        if len(self.kept) > 2 and len(self.kept) * len(self.kept[0]["symbols"]) > MOST_SYMBOLS:
            self.kept, self.every = self.kept[::2], 2 * self.every

    def keep(self) -> None:
        confidence, symbols = self.logits().softmax(-1).max(-1)
        thousandths = (1000 * confidence).round().int().tolist()
        step = {"symbols": symbols.tolist(), "confidence": thousandths}
        self.kept.append({"iteration": self.iteration, **step})

    def end(self) -> list[Json]:
        """What was kept, and the last iteration."""
        if self.kept[-1]["iteration"] != self.iteration:
            self.keep()
        return self.kept


def trace_steps(solver: Solver, operands: tuple[Numbers, ...]) -> list[Json]:
    """The answer as it would be read before the first layer and after each, or after each round."""
    batch = Batch.of_problems(solver.layout.fit(operands), operands, solver.device)
    with solver.testing():
        if isinstance(solver.encoder.depth, Rewrite):
            return trace_rounds(solver, solver.encoder.depth, batch)
        return trace_layers(solver, batch)


def trace_layers(solver: Solver, batch: Batch) -> list[Json]:
    encoder, steps = solver.encoder, Steps(0)

    def read(x: Tensor) -> None:
        steps.add(lambda: encoder.classify(x[:, : batch.n_out])[0, batch.answer_at])

    with ExitStack() as stack:
        for layer in encoder.layers:
            hook = layer.register_forward_hook(lambda module, given, output: read(output))
            stack.callback(hook.remove)
        read(encoder.embed(batch.tokens, batch.coordinates))
        solver(batch)
    return steps.end()


def trace_rounds(solver: Solver, depth: Rewrite, batch: Batch) -> list[Json]:
    encoder, steps = solver.encoder, Steps(1)
    embedded = encoder.embed(batch.tokens, batch.coordinates)
    found = depth.neighbourhoods(encoder, embedded, only_coordinates(batch), batch.n_out)
    state, entries, active = found.start()
    while len(active):
        active = found.advance(state, entries, active)
        steps.add(lambda: found.read(entries)[0, batch.answer_at])
    return steps.end()


def only_coordinates(batch: Batch) -> Coordinates[Tensor]:
    """The coordinates (j,) of a batch of one problem."""
    return batch.coordinates.map(lambda values: values[0] if values.dim() == 2 else values)


def trace_attention(
    solver: Solver, operands: tuple[Numbers, ...], iteration: int, queries: range
) -> Weights:
    """For each head and query, its keys with their weights in thousandths, in one iteration.

    The last layer is computed only where the answer is read; other queries are left out.
    """
    batch = Batch.of_problems(solver.layout.fit(operands), operands, solver.device)
    with solver.testing():
        if isinstance(solver.encoder.depth, Rewrite):
            return trace_columns(solver, batch, queries)
        weights, pairs = find_weights(solver, batch, iteration)
    weights = weights[:, queries.start : queries.stop]
    band = torch.arange(weights.shape[-1]).expand(weights.shape[1:])
    if pairs.band is not None:
        band = pairs.band[queries.start : queries.stop]
    return read_weights(weights, list(band.numpy()))


def find_weights(solver: Solver, batch: Batch, iteration: int) -> tuple[Tensor, Pairs]:
    """The weights (h, i, j) of all pairs in one iteration."""
    encoder = solver.encoder
    seen: list[tuple[Pairs, Tensor | None]] = []

    def before(module: Any, given: tuple[Any, ...]) -> None:
        seen.append((given[2], None))

    def after_softmax(module: Any, given: Any, pattern: Tensor) -> None:
        if seen and seen[-1][1] is None:
            seen[-1] = seen[-1][0], pattern

    def after_layer(module: Any, given: Any, output: Tensor) -> None:
        if len(seen) == iteration:
            raise Reached

    with ExitStack() as stack:
        for i in range(len(encoder.layers)):
            layer = encoder.layer(i)
            hooks = [
                layer.attention.register_forward_pre_hook(before),
                layer.attention.get_submodule("softmax").register_forward_hook(after_softmax),
                layer.register_forward_hook(after_layer),
            ]
            for hook in hooks:
                stack.callback(hook.remove)
        with suppress(Reached):
            solver(batch)
    pairs, pattern = seen[min(iteration, len(seen)) - 1]
    weights = pattern if pairs.weights is None else pairs.weights
    assert weights is not None, "an attention has a softmax, or weights by position"
    return weights.reshape(-1, *weights.shape[-3:])[0], pairs


def trace_columns(solver: Solver, batch: Batch, queries: range) -> Weights:
    """Attention in the first layer of a round, which is the same in each.

    A query sees its column and the next lower one, so only those are looked at.
    """
    own = np.arange(queries.start, queries.stop)
    at = only_coordinates(batch).map(lambda values: values.cpu().numpy())
    columns = np.unique(at.significance[own])
    near = at.shared | np.isin(at.significance, [columns, columns - 1])
    near[own] = False
    keys = np.concatenate([own, np.flatnonzero(near)])  # the queries are the first
    pairs = Pairs(at.map(lambda values: torch.from_numpy(values[keys])), len(own))
    gather, _ = column_pairs(solver.encoder, pairs)
    assert gather.weights is not None
    assert gather.symbol_weights is not None
    weights = torch.maximum(gather.weights, gather.symbol_weights)  # of vectors, and of symbols
    return read_weights(weights, [keys] * len(own))


def read_weights(weights: Tensor, keys: Sequence[NDArray[np.int64]]) -> Weights:
    """Weights (h, i, j) as pairs of a key and its weight; `keys` are those of each query."""
    table = (1000 * weights).round().int().cpu().numpy()
    found: Weights = []
    for head in table:
        shown = [np.flatnonzero(row >= LEAST_WEIGHT) for row in head]
        found.append([
            list(zip(own[columns].tolist(), row[columns].tolist(), strict=True))
            for row, own, columns in zip(head, keys, shown, strict=True)
        ])  # fmt: skip
    return found
