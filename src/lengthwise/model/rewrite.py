"""Rewriting: in each round the model sees the problem and what it wrote in the round before."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.model.columns import ColumnAttention, ColumnPairs
from lengthwise.model.depth import DEPTHS, Depth
from lengthwise.model.neighbourhoods import Ask, Neighbourhoods
from lengthwise.model.pairs import Pairs
from lengthwise.problems.batch import TrainingBatch
from lengthwise.problems.layouts import SUM, Coordinates, writes_rows

if TYPE_CHECKING:
    from lengthwise.model.config import ModelConfig
    from lengthwise.model.encoder import Encoder


@DEPTHS.register("rewrite")
class Rewrite(Depth):
    """The answer is written again and again; in testing, until it no longer changes.

    Only symbols go from round to round, no hidden vectors. `model.layers` counts rounds. A training
    step has gradients of its last round. With teacher forcing it is one round, in which the right
    symbols are written already.
    """

    symbols_at_once: ClassVar[int | None] = 100_000  # equal neighbourhoods are computed once

    layers_per_round: int = Field(2, ge=1, description="how many layers a round applies")
    extra_rounds: int = Field(
        0, ge=0, description="in training, up to this many rounds more, drawn for each batch"
    )
    teacher_forcing: bool = Field(
        False, description="train in one round that sees the right symbols, not those written"
    )

    def check(self, config: "ModelConfig") -> None:
        if config.attention.kind != "columns":
            raise UsageError("the depth 'rewrite' needs the attention 'columns'")
        if config.encoder == "transformer":
            raise UsageError(
                "the depth 'rewrite' needs shared layers: model.encoder universal-transformer"
            )

    def sample_layers(self, rng: np.random.Generator, layers: int) -> int:
        return layers + int(rng.integers(self.extra_rounds + 1))

    def run(
        self,
        encoder: "Encoder",
        start: Tensor,
        pairs: Sequence[Pairs],
        n_out: int,
        layers: int | None,
    ) -> Tensor:
        at = pairs[0].coordinates
        alike = all(v.dim() == 1 for v in (at.significance, at.operand, at.row))
        if alike and not encoder.training and not has_hooks(encoder):
            return self.neighbourhoods(encoder, start, at, n_out).rewrite(layers)
        gather, within = column_pairs(encoder, pairs[0])
        depth = layers or (encoder.config.layers if encoder.training else start.shape[1])
        writes, written = writing_positions(at), None
        with torch.no_grad():
            for _ in range(depth - 1):
                logits = self.round(encoder, start, gather, within, written)
                written = symbol_table(encoder)[logits.argmax(-1)] * writes[..., None]
        return self.round(encoder, start, gather, within, written)[:, :n_out]

    def teach(self, encoder: "Encoder", batch: TrainingBatch) -> Tensor | None:
        """With teacher forcing, the logits of a round in which the targets are written."""
        if not self.teacher_forcing:
            return None
        at, unread = batch.coordinates, batch.tokens.shape[1] - batch.n_out
        gather, within = column_pairs(encoder, Pairs(at, batch.tokens.shape[1]))
        written = F.pad(symbol_table(encoder)[batch.targets], (0, 0, 0, unread))
        written = written * writing_positions(at)[..., None]
        start = encoder.embed(batch.tokens, at)
        return self.round(encoder, start, gather, within, written)[:, : batch.n_out]

    def round(
        self,
        encoder: "Encoder",
        start: Tensor,
        gather: ColumnPairs,
        within: ColumnPairs,
        written: Tensor | None,
    ) -> Tensor:
        """One round: logits (b, j, vocabulary) from embeddings and vectors of written symbols."""
        nothing = torch.zeros_like(start) if written is None else written
        x = encoder.layer(0)(start, encoder.position(0), gather, nothing)
        for _ in range(self.layers_per_round - 1):
            x = encoder.layer(0)(x, encoder.position(0), within)
        return encoder.classify(x)

    def neighbourhoods(
        self, encoder: "Encoder", start: Tensor, coordinates: Coordinates[Tensor], n_out: int
    ) -> Neighbourhoods:
        """The tokens of a batch, where the model is asked once about each neighbourhood."""

        symbols = symbol_table(encoder)
        table = torch.cat([symbols, torch.zeros_like(symbols[:1])])  # NOTHING is last

        def prepare(at: Coordinates[Tensor], queries: int) -> Ask:
            gather, within = column_pairs(encoder, Pairs(at, queries))
            return lambda vectors, written: self.round(
                encoder, vectors, gather, within, table[written]
            )

        return Neighbourhoods(start, coordinates, writing_positions(coordinates), n_out, prepare)


def has_hooks(encoder: "Encoder") -> bool:
    """Whether somebody looks into a layer, to see sequences and not neighbourhoods."""
    return any(m._forward_hooks or m._forward_pre_hooks for m in encoder.layers.modules())


def column_pairs(encoder: "Encoder", pairs: Pairs) -> tuple[ColumnPairs, ColumnPairs]:
    """The pairs of a round's first layer, and of the others."""
    attention, position = encoder.layer(0).attention, encoder.position(0)
    assert isinstance(attention, ColumnAttention), "checked by ModelConfig"
    return attention.gather(pairs, position), attention.within(pairs, position)


def symbol_table(encoder: "Encoder") -> Tensor:
    """(vocabulary, width): the vector of each symbol, as it is embedded without a position."""
    return encoder.project(encoder.dropout(encoder.embedding_norm(encoder.symbols.weight)))


def writing_positions(coordinates: Coordinates[Tensor]) -> Tensor:
    """(j,) or (b, j): the tokens where symbols are written: where answers are read."""
    operand = coordinates.operand
    return (operand == 0) | ((operand == SUM) & writes_rows(coordinates))
