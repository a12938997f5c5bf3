"""The encoder: embeddings, a stack of layers, shared or not, and a classifier (paper, §2.2)."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from lengthwise.base import UsageError
from lengthwise.model.attention import ATTENTIONS, Attention
from lengthwise.model.config import ModelConfig
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import POSITIONS, ModelShape, Position
from lengthwise.problems.layouts import VOCABULARY, Coordinates


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a residual connection and a layer norm."""

    attention: Attention

    def __init__(self, config: ModelConfig):
        super().__init__()
        width, inner = config.width, config.feedforward_width or 4 * config.width
        own = config.attention_dropout
        attention_dropout = config.dropout if own is None else own
        self.attention = ATTENTIONS.build(config.attention, width, config.heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.widen = nn.Linear(width, inner)
        self.activation = make_activation(config.activation)
        self.narrow = nn.Linear(inner, width)
        self.feedforward_norm = nn.LayerNorm(width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(
        self, x: Tensor, position: Position, pairs: Pairs, read: Tensor | None = None
    ) -> Tensor:
        """x (b, j, width) -> (b, i, width), for the first i positions"""
        if self.pre_norm:
            attended = self.attention(self.attention_norm(x), position, pairs, read)
            x = x[:, : pairs.queries] + self.dropout(attended)
            return x + self.dropout(self.feedforward(self.feedforward_norm(x)))
        attended = self.attention(x, position, pairs, read)
        x = self.attention_norm(x[:, : pairs.queries] + self.dropout(attended))
        return self.feedforward_norm(x + self.dropout(self.feedforward(x)))

    def feedforward(self, x: Tensor) -> Tensor:
        return self.narrow(self.activation(self.widen(x)))


class Encoder(nn.Module):
    """Tokens and their coordinates in, logits at the first n_out positions out."""

    def __init__(
        self,
        config: ModelConfig,
        max_length: int,
        vocabulary: int = len(VOCABULARY),
        operands: int = 2,
    ):
        super().__init__()
        self.config, self.depth = config, config.depth
        input_width = config.embedding_width or config.width
        shape = ModelShape(
            config.width, input_width, config.heads, max_length, operands, config.scale_relative
        )
        own_layers = 1 if config.encoder == "universal-transformer" else config.layers
        own_positions = own_layers if POSITIONS[config.position.kind].per_layer else 1

        self.symbols = nn.Embedding(vocabulary, input_width)
        self.positions = nn.ModuleList(
            POSITIONS.build(config.position, shape) for _ in range(own_positions)
        )
        self.embedding_norm = nn.LayerNorm(input_width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.project = (
            nn.Linear(input_width, config.width) if config.embedding_width else nn.Identity()
        )
        self.layers = nn.ModuleList(Layer(config) for _ in range(own_layers))
        self.final_norm = (
            nn.LayerNorm(config.width, config.norm_epsilon)
            if config.norm == "pre"
            else nn.Identity()
        )
        self.classifier = nn.Linear(config.width, vocabulary)

    def forward(
        self,
        tokens: Tensor,
        coordinates: Coordinates[Tensor],
        n_out: int,
        layers: int | None = None,
    ) -> Tensor:
        """tokens (b, j) -> logits (b, n_out, vocabulary); `layers` overrides the depth."""
        self.check_lengths(tokens, n_out)
        resampled = self.position(0).resample_coordinates(coordinates)
        x = self.embed(tokens, resampled)
        return self.depth.run(self, x, self.pairs(tokens, coordinates, resampled), n_out, layers)

    def embed(self, tokens: Tensor, coordinates: Coordinates[Tensor]) -> Tensor:
        """(b, j) -> (b, j, width): symbols with positions."""
        x = self.position(0).embed(self.symbols(tokens), coordinates)
        return self.project(self.dropout(self.embedding_norm(x)))

    def pairs(
        self, tokens: Tensor, coordinates: Coordinates[Tensor], resampled: Coordinates[Tensor]
    ) -> list[Pairs]:
        """What attention knows of pairs of tokens before it sees x, for each layer in turn."""
        attention = self.layer(0).attention
        pairs = replace(attention.pairs(tokens, coordinates), coordinates=resampled)
        turns = max(len(self.layers), len(self.positions))
        return [self.layer(i).attention.prepare(pairs, self.position(i)) for i in range(turns)]

    def apply_layer(
        self,
        i: int,
        x: Tensor,
        pairs: Sequence[Pairs],
        queries: int | None = None,
        reinjected: Tensor | None = None,
    ) -> Tensor:
        """One layer: (b, j, width) -> (b, queries, width), of all positions by default.

        `reinjected` is added to x, but not to what symbols are read from.
        """
        layer, own_pairs = self.layer(i), pairs[i % len(pairs)]
        if queries is not None:
            own_pairs = own_pairs.first(queries)
        read = self.read_symbols(x) if layer.attention.discrete_rows else None
        if reinjected is not None:
            x = x + reinjected
        return layer(x, self.position(i), own_pairs, read)

    def classify(self, x: Tensor) -> Tensor:
        """(b, i, width) -> logits (b, i, vocabulary)"""
        return self.classifier(self.final_norm(x))

    def read_symbols(self, x: Tensor) -> Tensor:
        """(b, j, width): at each token, the expected embedding of the symbol that is read there."""
        symbols = self.project(self.dropout(self.embedding_norm(self.symbols.weight)))
        return self.classify(x).softmax(-1) @ symbols

    def layer(self, i: int) -> Layer:
        """The layer applied i-th; shared layers take turns."""
        return self.layers[i % len(self.layers)]  # type: ignore[return-value]

    def position(self, i: int) -> Position:
        """The position embedding of the layer applied i-th."""
        return self.positions[i % len(self.positions)]  # type: ignore[return-value]

    @property
    def random(self) -> bool:
        """Whether training draws random numbers in it."""
        dropout = self.config.dropout or self.config.attention_dropout
        return bool(dropout) or self.position(0).random

    def check_lengths(self, tokens: Tensor, n_out: int) -> None:
        length, longest = tokens.shape[1], self.position(0).longest
        if longest and length > longest:
            raise UsageError(
                f"the problem has {length} tokens, but the model's position embedding takes"
                f" {longest}; one without a table of positions, or with a clip, takes any length"
            )
        if n_out > length:
            raise UsageError(f"{n_out} positions can't be read: the problem has {length} tokens")

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Gaussian weights, zero biases; layer norms keep PyTorch's ones and zeros."""
        std = self.config.init_std or 1 / math.sqrt(self.config.width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0, std, generator=rng)
            if isinstance(module, nn.Linear):
                module.bias.zero_()


def make_activation(name: str) -> nn.Module:
    if name == "relu":
        return nn.ReLU()
    return nn.GELU(approximate="tanh" if name == "gelu-tanh" else "none")
