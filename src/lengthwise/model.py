"""The encoder: a stack of attention layers, shared (Universal Transformer) or not, and the classifier (paper, §2.2)."""

import math
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from lengthwise.errors import UsageError, nearest
from lengthwise.layout import PAD, VOCABULARY, Coordinates
from lengthwise.positions import POSITIONS, AnyPosition, Position, Shape

SIZES = {
    "base": {"layers": 6, "width": 512, "heads": 8},
    "standard": {"layers": 6, "width": 1024, "heads": 16},
    "large": {"layers": 10, "width": 1024, "heads": 16},
}
HUGGING_FACE = {
    "bert": {
        "encoder": "transformer",
        "feedforward_width": 3072,
        "activation": "gelu",
        "dropout": 0.1,
        "scale_relative": True,
    },
    "albert": {
        "encoder": "universal-transformer",
        "embedding_width": 128,
        "feedforward_width": 16384,
        "activation": "gelu-tanh",
        "dropout": 0.0,
        "scale_relative": False,
    },
}
# A preset fills the fields that aren't given. tiny, small and cpu are for the CPU; base, standard and large are the
# paper's sizes; bert-… and albert-… are those with every other value as Hugging Face has it, as the paper did.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 32, "heads": 2},
    "small": {"layers": 4, "width": 64, "heads": 2},
    "cpu": {"layers": 4, "width": 128, "heads": 4},
    **SIZES,
    **{
        f"{family}-{size}": {**dimensions, **defaults, "init_std": 0.02}
        for family, defaults in HUGGING_FACE.items()
        for size, dimensions in SIZES.items()
    },
}


class ModelConfig(BaseModel):
    """The encoder. The defaults are those of the preset `cpu`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    preset: str | None = Field(None, description="fills what isn't given; see `lengthwise list presets`")
    encoder: Literal["transformer", "universal-transformer"] = Field(
        "universal-transformer", description="whether layers have weights of their own or share them"
    )
    layers: int = Field(4, ge=1, description="how many layers are applied (D)")
    width: int = Field(128, ge=1, description="of the hidden vectors (d_model)")
    heads: int = Field(4, ge=1, description="attention heads (h)")
    position: AnyPosition = Field("relative-key", validate_default=True, description="the position embedding")
    feedforward_width: int | None = Field(None, ge=1, description="null: 4·width")
    embedding_width: int | None = Field(None, ge=1, description="embed symbols so wide, then project (ALBERT)")
    activation: Literal["gelu", "gelu-tanh", "relu"] = Field("relu", description="of the feed-forward network")
    norm: Literal["post", "pre"] = Field("post", description="layer norm after each sublayer or before it")
    norm_epsilon: float = Field(1e-12, gt=0, description="of the layer norms")
    dropout: float = Field(0.0, ge=0, lt=1, description="of hidden vectors")
    attention_dropout: float | None = Field(None, ge=0, lt=1, description="null: as dropout")
    init_std: float | None = Field(None, gt=0, description="of initial weights; null: 1/√width")
    scale_relative: bool = Field(False, description="divide a relative term by √d like the scores, as BERT does")
    mask_padding: bool = Field(False, description="hide <PAD> from attention, where the paper attends to it")

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or fields.get("preset") is None:
            return fields
        preset = fields["preset"]
        if not isinstance(preset, str) or preset not in PRESETS:
            raise UsageError(f"there is no preset '{preset}': {nearest(str(preset), PRESETS)}")
        return {**PRESETS[preset], **fields}

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "ModelConfig":
        if self.width % self.heads:
            raise UsageError(
                f"model.width is {self.width}, which isn't divisible by model.heads, which is {self.heads}"
            )
        return self


class Attention(nn.Module):
    """Multi-head self-attention of the first positions (those that are read) to all positions."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.heads = config.heads
        self.scale = 1 / math.sqrt(config.width // config.heads)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.output = nn.Linear(config.width, config.width)
        own = config.attention_dropout
        self.dropout = nn.Dropout(config.dropout if own is None else own)

    def forward(
        self, x: Tensor, queries: int, position: Position, at: Coordinates[Tensor], hidden: Tensor | None
    ) -> Tensor:
        """(b, j, width) -> (b, queries, width)"""
        batch, length, width = x.shape
        if queries == length:
            q, k, v = self.qkv(x).split(width, -1)
        else:
            weight, bias = self.qkv.weight, self.qkv.bias
            q = F.linear(x[:, :queries], weight[:width], bias[:width])
            k, v = F.linear(x, weight[width:], bias[width:]).split(width, -1)
        q, k, v = (y.view(batch, -1, self.heads, width // self.heads).transpose(1, 2) for y in (q, k, v))
        q, k = position.rotate(q, k, at)
        scores = (q @ k.mT) * self.scale
        extra = position.scores(q, k, at)
        if extra is not None:
            scores = scores + extra
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        mixed = self.dropout(scores.softmax(-1)) @ v
        return self.output(mixed.transpose(1, 2).reshape(batch, queries, width))


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a residual connection and a layer norm."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        inner = config.feedforward_width or 4 * config.width
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.width, config.norm_epsilon)
        self.widen = nn.Linear(config.width, inner)
        self.activation = {"gelu": nn.GELU(), "gelu-tanh": nn.GELU("tanh"), "relu": nn.ReLU()}[config.activation]
        self.narrow = nn.Linear(inner, config.width)
        self.feedforward_norm = nn.LayerNorm(config.width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(
        self, x: Tensor, queries: int, position: Position, at: Coordinates[Tensor], hidden: Tensor | None
    ) -> Tensor:
        """(b, j, width) -> (b, queries, width)"""
        normed = self.attention_norm(x) if self.pre_norm else x
        y = x[:, :queries] + self.dropout(self.attention(normed, queries, position, at, hidden))
        if not self.pre_norm:
            y = self.attention_norm(y)
        normed = self.feedforward_norm(y) if self.pre_norm else y
        y = y + self.dropout(self.narrow(self.activation(self.widen(normed))))
        if not self.pre_norm:
            y = self.feedforward_norm(y)
        return y


class Encoder(nn.Module):
    """Symbols and their coordinates in, logits over the vocabulary at the first n_out positions out."""

    def __init__(self, config: ModelConfig, max_length: int, vocabulary: int = len(VOCABULARY)):
        super().__init__()
        self.config = config
        input_width = config.embedding_width or config.width
        shape = Shape(config.width, input_width, config.heads, max_length, config.scale_relative)
        own_layers = 1 if config.encoder == "universal-transformer" else config.layers
        position = POSITIONS[config.position.kind]

        self.symbols = nn.Embedding(vocabulary, input_width)
        self.positions = nn.ModuleList(
            position(config.position, shape) for _ in range(own_layers if position.per_layer else 1)
        )
        self.embedding_norm = nn.LayerNorm(input_width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.project = nn.Linear(input_width, config.width) if config.embedding_width else nn.Identity()
        self.layers = nn.ModuleList(Layer(config) for _ in range(own_layers))
        self.final_norm = nn.LayerNorm(config.width, config.norm_epsilon) if config.norm == "pre" else nn.Identity()
        self.classifier = nn.Linear(config.width, vocabulary)

    def forward(self, tokens: Tensor, at: Coordinates[Tensor], n_out: int) -> Tensor:
        """tokens (b, j) -> logits (b, n_out, vocabulary)"""
        x = cast(Position, self.positions[0]).embed(self.symbols(tokens), at)
        x = self.project(self.dropout(self.embedding_norm(x)))
        hidden = (tokens == PAD)[:, None, None, :] if self.config.mask_padding else None
        for i in range(self.config.layers):
            # The last layer is computed only where the answer is read.
            queries = n_out if i == self.config.layers - 1 else tokens.shape[1]
            layer, position = self.layers[i % len(self.layers)], self.positions[i % len(self.positions)]
            x = layer(x, queries, position, at, hidden)
        return self.classifier(self.final_norm(x))

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Gaussian weights, zero biases, unit norms."""
        std = self.config.init_std or 1 / math.sqrt(self.config.width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0, std, generator=rng)
            if isinstance(module, nn.Linear):
                module.bias.zero_()
