"""Records what the plain model computes, by PyTorch's own forward hooks on its modules."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.arithmetic.digits import Numbers
from lengthwise.base import UsageError
from lengthwise.model import Encoder
from lengthwise.model.pairs import Pairs
from lengthwise.problems.batch import Batch
from lengthwise.solver.inside.sites import point_names
from lengthwise.solver.inside.trace import SUBLAYERS, Trace
from lengthwise.solver.text import list_problems, parse_problem
from lengthwise.solver.tokens import tokens_of

if TYPE_CHECKING:
    from lengthwise.solver.solver import Solver

MOST_BYTES = 2**31  # of a trace, so that a mistyped length does not fill the memory
TOLERANCE = 1e-3  # between logits that are computed at some positions and at all


def record(solver: "Solver", problems: str | Sequence[str], layers: int | None) -> Trace:
    """The trace of one problem, or of several that are laid out alike."""
    solver.check_layers(layers)
    texts: list[str] = list_problems(problems)
    if not texts:
        raise UsageError("there is no problem to trace; write one such as 12 + 34")
    parsed = [parse_problem(text, solver.layout) for text in texts]
    operands = tuple(Numbers.from_text(column) for column in zip(*parsed, strict=True))
    layout = solver.layout.fit(operands)
    if len({tuple(solver.layout.for_lengths([*map(len, p)]).fields) for p in parsed}) > 1:
        raise UsageError(
            "these problems are laid out with different lengths, and padding would change the"
            " answers; trace problems of the same lengths together, or one at a time"
        )
    batch = Batch.of_problems(layout, operands, solver.device)
    with solver.testing():
        recorder, logits = run(solver.encoder, batch, layers)
        arrays = recorder.arrays()
        lens = solver.encoder.classify(torch.from_numpy(arrays["residual"]).to(solver.device))
        arrays["logits"] = lens.cpu().numpy()
    return Trace(
        solutions=solver.read_solutions(texts, operands, logits[:, batch.answer_at]),
        tokens=tokens_of(layout, operands),
        points=point_names(len(recorder.layers)),
        heads=solver.encoder.config.heads,
        layout=layout,
        answer_at=np.arange(layout.n_supervised)[layout.answer_at],
        arrays=arrays,
    )


def run(encoder: Encoder, batch: Batch, layers: int | None) -> tuple["Recorder", Tensor]:
    """What was recorded, at all positions, and the logits as the model gives them.

    A model computes its last layer only where the answer is read. It then runs once more, as often
    as before, and reads all positions.
    """
    length = batch.tokens.shape[1]
    recorder = Recorder(encoder)
    with recorder.listen():
        logits = encoder(batch.tokens, batch.coordinates, batch.n_out, layers)
        if recorder.layers[-1]["after layer"].shape[1] < length:
            depth = len(recorder.layers)
            everywhere = encoder(batch.tokens, batch.coordinates, length, depth)
            if (everywhere[:, : batch.n_out] - logits).abs().max() > TOLERANCE:
                raise UsageError(
                    f"the depth '{encoder.config.depth.kind}' gives other answers where more"
                    " positions are read, so its last layer can't be traced"
                )
    return recorder, logits


class Recorder:
    """What each layer of one forward pass computed; shared layers are called once for each turn."""

    def __init__(self, encoder: Encoder):
        self.encoder = encoder
        self.start()

    def start(self) -> None:
        """Forget what an earlier pass computed."""
        self.layers: list[dict[str, Tensor]] = []
        self.prepared: list[Tensor] = []  # scores that were computed before the first layer
        self.softmax: tuple[Tensor, Tensor] | None = None  # input and output in this layer
        self.bytes = 0

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Record while this context lasts."""
        handles = [self.encoder.register_forward_pre_hook(lambda *_: self.start())]
        handles += [handle for layer in self.encoder.layers for handle in self.hook_layer(layer)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def hook_layer(self, layer: nn.Module) -> Iterator[Any]:
        """Hooks on the parts of a layer; a part that a model of one's own lacks is not recorded."""
        attention = layer.get_submodule("attention")
        softmax, output = (getattr(attention, name, None) for name in ("softmax", "output"))
        yield layer.register_forward_pre_hook(self.begin)
        if isinstance(softmax, nn.Module):
            yield softmax.register_forward_hook(self.keep_softmax)
        if isinstance(output, nn.Module):
            yield output.register_forward_pre_hook(self.keep_input("head"))
        yield attention.register_forward_hook(self.keep_attention)
        if getattr(layer, "pre_norm", False):
            norm = layer.get_submodule("feedforward_norm")
            yield norm.register_forward_pre_hook(self.keep_input("after attention"))
        else:
            norm = layer.get_submodule("attention_norm")
            yield norm.register_forward_hook(self.keep_output("after attention"))
        yield layer.get_submodule("narrow").register_forward_hook(self.keep_output("feed-forward"))
        yield layer.register_forward_hook(self.keep_output("after layer"))

    def begin(self, layer: nn.Module, given: tuple[Any, ...]) -> None:
        self.layers.append({})
        self.softmax = None
        self.keep("start", given[0])

    def keep_softmax(self, module: nn.Module, given: tuple[Tensor], found: Tensor) -> None:
        if self.layers:
            self.softmax = given[0], found
        else:  # attention by position alone computes its weights once, for all layers
            self.prepared.append(given[0])

    def keep_attention(self, module: nn.Module, given: tuple[Any, ...], found: Tensor) -> None:
        self.keep("attention", found)
        pairs: Pairs = given[2]
        keys = pairs.coordinates.index.shape[-1] if pairs.band is None else pairs.band.shape[-1]
        if pairs.weights is not None and self.prepared:
            scores = self.prepared[(len(self.layers) - 1) % len(self.prepared)]
            called = scores[..., : pairs.queries, :keys], pairs.weights
        elif self.softmax is not None:
            called = self.softmax
        else:
            return
        if all(values.shape[-1] == keys for values in called):
            named = zip(("scores", "pattern"), called, (-torch.inf, 0.0), strict=True)
            for name, values, empty in named:
                values = values.expand(len(found), *values.shape[-3:])
                self.reserve(values[..., 0].nbytes * pairs.coordinates.index.shape[-1])
                self.layers[-1][name] = over_all_keys(values, pairs, empty)

    def keep_input(self, name: str) -> Callable[..., None]:
        return lambda module, given: self.keep(name, given[0])

    def keep_output(self, name: str) -> Callable[..., None]:
        return lambda module, given, found: self.keep(name, found)

    def keep(self, name: str, value: Tensor) -> None:
        self.reserve(value.nbytes)
        self.layers[-1][name] = value

    def reserve(self, size: int) -> None:
        self.bytes += size
        if self.bytes > MOST_BYTES:
            raise UsageError(
                f"the trace takes more than {MOST_BYTES // 2**30} GiB; trace fewer or shorter"
                " problems, or set the number of layers"
            )

    def arrays(self) -> dict[str, np.ndarray]:
        """What was recorded of all layers, by the names of `AXES`."""

        def stack(name: str) -> Tensor:
            return torch.stack([layer[name] for layer in self.layers], 1)  # (b, layer, …)

        found = {}
        if all("pattern" in layer for layer in self.layers):
            found = {"scores": stack("scores"), "patterns": stack("pattern")}
        if all("head" in layer for layer in self.layers):
            heads = stack("head").unflatten(-1, (self.encoder.config.heads, -1))
            found["head_outputs"] = heads.movedim(-2, 2)  # (b, layer, head, j, d)
        found["sublayer_outputs"] = torch.stack([stack(name) for name in SUBLAYERS], 2)
        after = torch.stack([stack("after attention"), stack("after layer")], 2).flatten(1, 2)
        found["residual"] = torch.cat([self.layers[0]["start"][:, None], after], 1)
        return {name: values.cpu().numpy() for name, values in found.items()}


def over_all_keys(values: Tensor, pairs: Pairs, empty: float) -> Tensor:
    """(b, h, i, few or j) -> (b, h, i, j), with `empty` where a query does not see a key."""
    if pairs.hidden is not None:
        values = values.masked_fill(pairs.hidden, empty)
    if pairs.band is None:
        return values
    length = pairs.coordinates.index.shape[-1]
    dense = values.new_full((*values.shape[:-1], length), empty)
    return dense.scatter_reduce(-1, pairs.band.expand_as(values), values, "amax")
