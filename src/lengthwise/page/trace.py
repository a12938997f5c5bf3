"""How an answer forms: what would be read after each layer, and what each token attends to.

`Solver.trace` keeps everything, dense and in every layer, for problems of some dozens of tokens.
The page keeps only what it shows, so that a sum of 10,000 digits and as many iterations fits in
memory. A test compares both.
"""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.arithmetic.digits import Numbers
from lengthwise.model.pairs import Pairs
from lengthwise.problems.batch import Batch
from lengthwise.solver import Solver

MOST_SYMBOLS = 400_000  # of answers, over all iterations that are kept
LEAST_WEIGHT = 10  # thousandths; keys with less are left out
Json = dict[str, Any]


class Reached(Exception):
    """The iteration that was asked for is done."""


class Steps:
    """What would be read after each iteration; of very many, every second, fourth, … is kept."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, NDArray[Any], NDArray[Any]]] = []
        self.last: tuple[int, NDArray[Any], NDArray[Any]] | None = None
        self.every, self.count = 1, 0

    def add(self, logits: Tensor) -> None:
        """The logits (n_out, vocabulary) at the answer's positions."""
        confidence, symbols = logits.softmax(-1).max(-1)
        thousandths = (1000 * confidence).round().to(torch.int16)
        self.last = self.count, symbols.to(torch.int8).numpy(), thousandths.numpy()
        if self.count % self.every == 0:
            self.kept.append(self.last)
        self.count += 1
        if len(self.kept) * len(symbols) > MOST_SYMBOLS and len(self.kept) > 2:
            self.kept, self.every = self.kept[::2], 2 * self.every

    def to_json(self) -> list[Json]:
        assert self.last is not None
        steps = self.kept if self.kept[-1] is self.last else [*self.kept, self.last]
        return [
            {"iteration": i, "symbols": symbols.tolist(), "confidence": confidence.tolist()}
            for i, symbols, confidence in steps
        ]


def trace_steps(solver: Solver, operands: tuple[Numbers, ...]) -> list[Json]:
    """The answer as it would be read before the first layer, and after each one."""
    encoder, steps = solver.encoder, Steps()
    batch = Batch.of_problems(solver.layout.fit(operands), operands, solver.device)

    def read(x: Tensor) -> None:
        steps.add(encoder.classify(x[:, : batch.n_out])[0, batch.answer_at])

    with solver.testing(), ExitStack() as stack:
        for layer in encoder.layers:
            hook = layer.register_forward_hook(lambda module, given, output: read(output))
            stack.callback(hook.remove)
        read(encoder.embed(batch.tokens, batch.coordinates))
        solver(batch)
    return steps.to_json()


def trace_attention(
    solver: Solver, operands: tuple[Numbers, ...], iteration: int, queries: range
) -> list[list[list[tuple[int, int]]]]:
    """For each head and query, its keys with their weights in thousandths, in one iteration."""
    encoder = solver.encoder
    batch = Batch.of_problems(solver.layout.fit(operands), operands, solver.device)
    seen: list[tuple[Pairs, Tensor | None]] = []

    def before(module: Any, given: tuple[Any, ...]) -> None:
        seen.append((given[2], None))

    def after_softmax(module: Any, given: Any, pattern: Tensor) -> None:
        if seen and seen[-1][1] is None:
            seen[-1] = seen[-1][0], pattern

    def after_layer(module: Any, given: Any, output: Tensor) -> None:
        if len(seen) == iteration:
            raise Reached

    with solver.testing(), ExitStack() as stack:
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
    return read_weights(weights, pairs, queries)


def read_weights(
    weights: Tensor, pairs: Pairs, queries: Sequence[int]
) -> list[list[list[tuple[int, int]]]]:
    """Weights (h, i, j) or (b, h, i, j) as pairs of a key and its weight."""
    table = (1000 * weights.reshape(-1, *weights.shape[-3:])[0]).round().to(torch.int64)
    band = None if pairs.band is None else pairs.band.numpy()
    found: list[list[list[tuple[int, int]]]] = []
    for head in table.numpy():
        rows = []
        for query in queries:
            row = head[query] if query < len(head) else np.zeros(0, np.int64)
            columns = np.flatnonzero(row >= LEAST_WEIGHT)
            keys = columns if band is None else band[query][columns]
            rows.append(list(zip(keys.tolist(), row[columns].tolist(), strict=True)))
        found.append(rows)
    return found
