"""How often layers are applied: a fixed number of times, or until the answer is stable."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from lengthwise.base import Choice, Registry, UsageError
from lengthwise.model.pairs import Pairs
from lengthwise.problems.batch import TrainingBatch

if TYPE_CHECKING:
    from lengthwise.model.config import ModelConfig
    from lengthwise.model.encoder import Encoder


class Depth(Choice):
    """A rule that takes embeddings through the layers of an encoder to logits."""

    symbols_at_once: ClassVar[int | None] = None  # in testing; None: as many as suits the device

    def check(self, config: "ModelConfig") -> None:
        """Raise a UsageError where the rule does not fit the rest of the model."""

    def sample_layers(self, rng: np.random.Generator, layers: int) -> int:
        """How often a training step applies the layers."""
        return layers

    def teach(self, encoder: "Encoder", batch: TrainingBatch) -> Tensor | None:
        """Logits (b, n_out, vocabulary) from a view of the targets; None: training has no view."""
        return None

    def run(
        self,
        encoder: "Encoder",
        start: Tensor,
        pairs: Sequence[Pairs],
        n_out: int,
        layers: int | None,
    ) -> Tensor:
        """Embeddings (b, j, width) -> logits (b, n_out, vocabulary); `layers` sets the depth."""
        raise NotImplementedError


DEPTHS: Registry[Depth] = Registry("depth", "model.depth")
AnyDepth = Annotated[SerializeAsAny[Depth], BeforeValidator(DEPTHS.parse)]


@DEPTHS.register("fixed")
class FixedDepth(Depth):
    """The layers are applied `model.layers` times, in training and testing alike."""

    def run(
        self,
        encoder: "Encoder",
        start: Tensor,
        pairs: Sequence[Pairs],
        n_out: int,
        layers: int | None,
    ) -> Tensor:
        x, depth = start, layers or encoder.config.layers
        for i in range(depth - 1):
            x = encoder.apply_layer(i, x, pairs)
        # The last layer is computed only where the answer is read.
        return encoder.classify(encoder.apply_layer(depth - 1, x, pairs, queries=n_out))


@DEPTHS.register("until-stable")
class UntilStable(Depth):
    """In testing, shared layers are applied until the answer has stopped changing."""

    stable_for: int = Field(3, ge=1, description="iterations without a change that end it")
    extra_layers: int = Field(
        0, ge=0, description="in training, up to this many iterations more, drawn for each batch"
    )
    reinject_input: bool = Field(
        False, description="add the embeddings again before every iteration but the first"
    )

    def check(self, config: "ModelConfig") -> None:
        if config.encoder == "transformer":
            raise UsageError(
                "the depth 'until-stable' needs shared layers: model.encoder universal-transformer"
            )

    def sample_layers(self, rng: np.random.Generator, layers: int) -> int:
        return layers + int(rng.integers(self.extra_layers + 1))

    def run(
        self,
        encoder: "Encoder",
        start: Tensor,
        pairs: Sequence[Pairs],
        n_out: int,
        layers: int | None,
    ) -> Tensor:
        if encoder.training or layers:
            x, depth = start, layers or encoder.config.layers
            for i in range(depth - 1):
                x = self.iterate(encoder, i, x, start, pairs)
            return encoder.classify(self.iterate(encoder, depth - 1, x, start, pairs, n_out))
        return self.iterate_until_stable(encoder, start, pairs, n_out)

    def iterate(
        self,
        encoder: "Encoder",
        i: int,
        x: Tensor,
        start: Tensor,
        pairs: Sequence[Pairs],
        queries: int | None = None,
    ) -> Tensor:
        reinjected = start if i and self.reinject_input else None
        return encoder.apply_layer(i, x, pairs, queries, reinjected)

    def iterate_until_stable(
        self, encoder: "Encoder", start: Tensor, pairs: Sequence[Pairs], n_out: int
    ) -> Tensor:
        """The logits of each example when its symbols have not changed for `stable_for` iterations.

        A stable answer is kept while others go on, so that it does not depend on the rest of the
        batch. The limit is one iteration for each position of a row, and a training depth for each
        row.
        """
        x, layers = start, encoder.config.layers
        rows = int(pairs[0].coordinates.row.max()) + 1
        logits = encoder.classify(x[:, :n_out])
        unchanged = torch.zeros(len(x), dtype=torch.long, device=x.device)  # iterations
        stable = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for i in range(layers * rows + x.shape[1] // rows):
            x = self.iterate(encoder, i, x, start, pairs)
            new = encoder.classify(x[:, :n_out])
            same = (new.argmax(-1) == logits.argmax(-1)).all(1)
            logits = torch.where(stable[:, None, None], logits, new)
            unchanged = torch.where(same, unchanged + 1, 0)
            if i + 1 >= layers:
                stable = stable | (unchanged >= self.stable_for)
            if stable.all():
                break
        return logits
