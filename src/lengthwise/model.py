"""The encoder: a stack of attention layers, shared (Universal Transformer) or not, and the classifier (paper, §2.2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from lengthwise import kernels
from lengthwise.errors import UsageError, nearest
from lengthwise.kernels import ActivationName, Input, Linear, Norm
from lengthwise.layout import PAD, VOCABULARY, Coordinates
from lengthwise.positions import (
    POSITIONS,
    AnyPosition,
    Coordinate,
    Position,
    Relative,
    Shape,
    View,
    innermost,
    view_band,
    view_window,
)
from lengthwise.registry import Config

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
# Tokens up to which hiding what is outside a window is faster than a band, and where attention is by position alone.
LONGEST_DENSE, LONGEST_DENSE_BY_POSITION = 64, 128
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


class ModelConfig(Config):
    """The encoder. The defaults are those of the preset `cpu`."""

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
    activation: ActivationName = Field("relu", description="of the feed-forward network")
    norm: Literal["post", "pre"] = Field("post", description="layer norm after each sublayer or before it")
    norm_epsilon: float = Field(1e-12, gt=0, description="of the layer norms")
    dropout: float = Field(0.0, ge=0, lt=1, description="of hidden vectors")
    attention_dropout: float | None = Field(None, ge=0, lt=1, description="null: as dropout")
    init_std: float | None = Field(None, gt=0, description="of initial weights; null: 1/√width")
    scale_relative: bool = Field(False, description="divide a relative term by √d like the scores, as BERT does")
    mask_padding: bool = Field(False, description="hide <PAD> from attention, where the paper attends to it")
    content: bool = Field(True, description="whether attention scores have the term q·k; else only positions count")
    sink: bool = Field(False, description="let attention go nowhere: one more key, whose score and value are 0")
    window: int | None = Field(None, ge=1, description="attend only so far to either side; null: everywhere")
    window_over: Coordinate = Field("significance", description="what the window is measured over")
    recall: bool = Field(False, description="add the input embeddings again before every layer but the first")
    read_rows: bool = Field(
        False,
        description="in long multiplication, show a row no more of others than the symbols that would be read there;"
        " for shared layers that attend by position alone",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="in testing, apply shared layers until the answer (in long multiplication, all rows) hasn't changed"
        " for so many; null: `layers` times",
    )

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
    def _patience_needs_shared_layers(self) -> "ModelConfig":
        if self.patience and self.encoder == "transformer":
            raise UsageError("model.patience needs layers that are shared: model.encoder universal-transformer")
        return self

    @model_validator(mode="after")
    def _something_is_attended_to(self) -> "ModelConfig":
        kind = innermost(self.position).kind
        position = POSITIONS[kind]
        if not self.content and position.scores is Position.scores and position.relative is Position.relative:
            raise UsageError(f"model.content is false, but the position embedding '{kind}' has no scores of its own")
        return self

    @model_validator(mode="after")
    def _reading_needs_weights_by_position(self) -> "ModelConfig":
        position = POSITIONS[innermost(self.position).kind]
        embeds = position.embed is not Position.embed or position.added is not Position.added
        by_content = self.content or position.by_content or embeds
        if self.read_rows and (by_content or self.encoder == "transformer" or self.dropout):
            raise UsageError(
                "model.read_rows needs shared layers, no dropout, and attention by position alone: model.content false"
                " and an embedding such as relative-bias"
            )
        return self

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "ModelConfig":
        if self.width % self.heads:
            raise UsageError(
                f"model.width is {self.width}, which isn't divisible by model.heads, which is {self.heads}"
            )
        return self


@dataclass(frozen=True)
class Knobs:
    """What can be turned in testing, on a trained model."""

    layers: int | None = None  # how often shared layers are applied; null: as configured
    sharpness: float = 1.0  # factor of the attention scores

    def __post_init__(self) -> None:
        if self.layers is not None and (not isinstance(self.layers, int) or self.layers < 1):
            raise UsageError(f"layers are applied 1 or more times, not {self.layers}")
        if not isinstance(self.sharpness, int | float) or not 0 < self.sharpness < math.inf:
            raise UsageError(f"the sharpness of attention is a positive number, not {self.sharpness}")


# Queries, keys and values, each (b, …, width); by position alone, only values and, for reading, those of the symbols.
Projected = tuple[Tensor, ...]


class Attention(nn.Module):
    """Multi-head self-attention of the first positions (those that are read) to the keys in their view."""

    def __init__(self, config: ModelConfig, by_content: bool):
        super().__init__()
        self.heads, self.by_content = config.heads, by_content
        self.scale = 1 / math.sqrt(config.width // config.heads) if config.content else 0.0
        self.qkv = Linear(config.width, (3 if by_content else 1) * config.width)
        self.output = Linear(config.width, config.width)
        own = config.attention_dropout
        self.dropout = nn.Dropout(config.dropout if own is None else own)
        self.sink = config.sink

    def project(self, x: Tensor, queries: int) -> Projected:
        """Queries of the first positions, and keys and values of all; by position alone, only values."""
        width = x.shape[-1]
        if queries == x.shape[-2] or not self.by_content:
            return self.qkv(x).split(width, -1)
        weight, bias = self.qkv.weight, self.qkv.bias
        q = kernels.linear(x[:, :queries], weight[:width], bias[:width])
        return q, *kernels.linear(x, weight[width:], bias[width:]).split(width, -1)

    def forward(self, projected: Projected, view: View, position: Position, sharpness: float) -> Tensor:
        """What `project` gives -> (b, queries, width)"""
        if view.plain and kernels.native(*projected):
            q, k, v = projected
            return self.output(kernels.attend(q, k, v, self.heads, self.scale, view.relative))
        batch, _, width = projected[0].shape
        by_head = [y.view(batch, -1, self.heads, width // self.heads).transpose(1, 2) for y in projected]
        if view.weights is not None:
            mixed = self.mix(view.weights, by_head[0], view.band)
            if view.reading is not None:
                mixed = mixed + self.mix(view.reading, by_head[1], view.band)
            return self.output(mixed.reshape(batch, view.queries, width))
        q, k, v = by_head
        q, k = position.rotate(q, k, view.at)
        if view.band is None:
            scores = q @ k.mT
        else:
            k, v = k[:, :, view.band], v[:, :, view.band]
            scores = (k @ q[..., None])[..., 0]
        scores = scores * self.scale
        extra = position.scores(q, k, view)
        if extra is not None:
            scores = scores + extra
        weights = self.dropout(self.weigh(scores, view, sharpness))
        mixed = weights @ v if view.band is None else (weights[..., None, :] @ v)[..., 0, :]
        return self.output(mixed.transpose(1, 2).reshape(batch, view.queries, width))

    def weigh(self, scores: Tensor, view: View, sharpness: float) -> Tensor:
        """Attention weights, in the shape of the scores."""
        if sharpness != 1:
            scores = scores * sharpness
        if view.hidden is not None:
            scores = scores.masked_fill(view.hidden, torch.finfo(scores.dtype).min)  # a query may see nothing at all
        return F.pad(scores, (0, 1)).softmax(-1)[..., :-1] if self.sink else scores.softmax(-1)

    def mix(self, weights: Tensor, v: Tensor, band: Tensor | None) -> Tensor:
        """Values (b, h, j, d) by weights (h, i, j) or (b, h, i, j) of positions alone: (b, i, h, d)"""
        if self.training and self.dropout.p:
            weights = self.dropout(weights.expand(len(v), *weights.shape[-3:]))
        if band is None:
            return torch.einsum(f"{'hij' if weights.dim() == 3 else 'bhij'},bhjd->bihd", weights, v)
        return (weights.movedim(-3, -1)[..., None] * v.transpose(1, 2)[:, band]).sum(-3)


class Layer(nn.Module):
    """Attention and a feed-forward network, each with a residual connection and a layer norm."""

    def __init__(self, config: ModelConfig, by_content: bool):
        super().__init__()
        inner = config.feedforward_width or 4 * config.width
        self.attention = Attention(config, by_content)
        self.attention_norm = Norm(config.width, config.norm_epsilon)
        self.widen = Linear(config.width, inner)
        self.activation = kernels.Activation(config.activation)
        self.narrow = Linear(inner, config.width)
        self.feedforward_norm = Norm(config.width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def project(self, x: Tensor, queries: int) -> Projected:
        """What attention needs of x."""
        return self.attention.project(self.attention_norm(x) if self.pre_norm else x, queries)

    def project_rows(self, rows: Tensor) -> Tensor:
        """The same of rows (n, width), side by side."""
        return cast(Tensor, self.attention.qkv(self.attention_norm(rows) if self.pre_norm else rows))

    def forward(
        self, x: Tensor, projected: Projected | None, view: View, position: Position, sharpness: float
    ) -> Tensor:
        """x (b, j, width), and what `project` makes of it if that is known -> (b, queries, width)"""
        if projected is None:
            y = by_kernels([self], Input(x), [view], 1, view.queries)
            if y is not None:
                return y
            projected = self.project(x, view.queries)
        x, attended = x[:, : view.queries], self.dropout(self.attention(projected, view, position, sharpness))
        if self.pre_norm:
            x = x + attended
            return x + self.feedforward(self.feedforward_norm(x))
        x = self.attention_norm(x, attended)
        return cast(Tensor, self.feedforward_norm(x, self.feedforward(x)))

    @property
    def own_parameters(self) -> list[Tensor]:
        """In the order of `kernels.PARTS`."""
        attention = self.attention
        parts = attention.qkv, attention.output, self.attention_norm, self.widen, self.narrow, self.feedforward_norm
        return [parameter for part in parts for parameter in (part.weight, part.bias)]

    @property
    def form(self) -> kernels.Form | None:
        """What `kernels` must know to do it as a whole; None if a part is dropped, replaced or looked at."""
        parts = list(self.modules())[1:]
        if type(self) is not Layer or any(type(part) not in PLAIN_PARTS or kernels.altered(part) for part in parts):
            return None
        if self.pre_norm or any(dropout.training and dropout.p for dropout in (self.dropout, self.attention.dropout)):
            return None
        width, inner, epsilon = self.widen.in_features, self.widen.out_features, self.attention_norm.eps
        form = kernels.Form(width, inner, self.attention.heads, self.attention.scale, self.activation.name, epsilon)
        shapes = [tuple(parameter.shape) for parameter in self.own_parameters]
        alike = epsilon == self.feedforward_norm.eps and shapes == form.shapes and width % form.heads == 0
        return form if alike and width <= kernels.WIDEST else None

    def feedforward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.dropout(self.narrow(self.activation(self.widen(x)))))


PLAIN_PARTS = {Attention, Linear, Norm, kernels.Activation, nn.Dropout}  # of a layer


def by_kernels(
    layers: Sequence[Layer],
    start: Input,
    views: Sequence[View],
    depth: int,
    queries: int,
    classifier: Linear | None = None,
) -> Tensor | None:
    """Through so many layers, taken in turns as their views are, to (b, queries, width), or to what a classifier says.

    None if it can't be done in one call of `kernels`, which takes plain layers of one form.
    """
    by_key = {view.relative and view.relative.by_key for view in views}
    if len(by_key) > 1 or not all(view.plain for view in views):
        return None
    form, *others = {layer.form for layer in layers}
    rows = start.table if start.norm is None else start.rows
    if form is None or others or rows.shape[-1] != form.width:
        return None
    parameters = [layer.own_parameters for layer in layers]
    ends = [parameter for part in (start.norm, classifier) if part for parameter in (part.weight, part.bias)]
    if not kernels.native(rows, *chain(*parameters), *ends):
        return None
    return kernels.layers(start, [view.relative for view in views], parameters, form, depth, queries, classifier)


def fits(part: Linear | Norm, shape: tuple[int, ...]) -> bool:
    """Whether its weight has this shape, and there is a bias."""
    return part.bias is not None and part.weight.shape == shape and part.bias.shape == shape[:1]


class Encoder(nn.Module):
    """Symbols and their coordinates in, logits over the vocabulary at the first n_out positions out."""

    def __init__(self, config: ModelConfig, max_length: int, vocabulary: int = len(VOCABULARY), operands: int = 2):
        super().__init__()
        self.config, self.knobs = config, Knobs()
        input_width = config.embedding_width or config.width
        shape = Shape(config.width, input_width, config.heads, max_length, operands, config.scale_relative)
        own_layers = 1 if config.encoder == "universal-transformer" else config.layers
        position = POSITIONS[config.position.kind]

        self.symbols = nn.Embedding(vocabulary, input_width)
        self.positions = nn.ModuleList([position(config.position, shape)])
        if self.position(0).per_layer:
            self.positions.extend(position(config.position, shape) for _ in range(own_layers - 1))
        self.embedding_norm = Norm(input_width, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.project = Linear(input_width, config.width) if config.embedding_width else nn.Identity()
        self.by_content = config.content or self.position(0).by_content
        self.layers = nn.ModuleList(Layer(config, self.by_content) for _ in range(own_layers))
        self.final_norm = Norm(config.width, config.norm_epsilon) if config.norm == "pre" else nn.Identity()
        self.classifier = Linear(config.width, vocabulary)

    @property
    def random(self) -> bool:
        """Whether training draws random numbers in it."""
        config = self.config
        return bool(config.dropout or config.attention_dropout) or self.position(0).random

    def position(self, layer: int) -> Position:
        return cast(Position, self.positions[layer % len(self.positions)])

    def forward(self, tokens: Tensor, at: Coordinates[Tensor], n_out: int, layers: int | None = None) -> Tensor:
        """tokens (b, j) -> logits (b, n_out, vocabulary); `layers` is for training shared layers at several depths."""
        longest = self.position(0).longest
        if longest and tokens.shape[1] > longest:
            raise UsageError(
                f"the problem has {tokens.shape[1]} tokens, but the model's position embedding takes {longest};"
                " one without a table of positions, or with a clip, takes any length"
            )
        if n_out > tokens.shape[1]:
            raise UsageError(f"{n_out} positions can't be read: the problem has {tokens.shape[1]} tokens")
        moved = self.position(0).moved(at)
        start = self.embed(tokens, moved)
        views = self.weighed(replace(self.view(tokens, at), at=moved))
        if not self.training:
            layers = self.knobs.layers
            if layers is None and self.config.patience:
                return self.settle(start, views[0], n_out)
        layers = layers or self.config.layers
        if layers > 1 and not self.one_by_one:
            own = cast(list[Layer], list(self.layers)[:layers])
            y = by_kernels(own, start, views[:layers], layers, n_out, classifier := self.plain_classifier)
            if y is not None:
                return y if classifier else self.classify(y)
        x = start.x
        for i in range(layers - 1):
            x = self.apply_layer(i, x, start, views[i % len(views)])
        # The last layer is computed only where the answer is read.
        last = views[(layers - 1) % len(views)].of_first(n_out)
        return self.classify(self.apply_layer(layers - 1, x, start, last))

    def embed(self, tokens: Tensor, at: Coordinates[Tensor]) -> Input:
        """The input of the first layer: symbols with their positions."""

        def embedded(vectors: Tensor) -> Tensor:
            return cast(Tensor, self.project(self.dropout(self.embedding_norm(vectors))))

        position, first = self.position(0), cast(Layer, self.layers[0])
        parts = self.symbols, self.embedding_norm, self.dropout, self.project, first.attention_norm, first.attention.qkv
        looked_at = any(map(kernels.altered, (*parts, *position.modules()))) and not self.config.read_rows
        if position.has_own("embed") or looked_at or (self.training and self.config.dropout):
            return Input(embedded(position.embed(self.symbols(tokens), at)))
        # All that the first layer projects are a few symbols, or symbols with positions: each is projected once.
        added = position.added(at)
        if added is None:
            which, rows = tokens, self.symbols.weight
        elif added.shape[:-1] == tokens.shape[1:] and tokens.is_cpu and not kernels.transformed():
            which, rows = self.distinct(tokens, added)
        else:  # positions differ from example to example, or it is a GPU, which would wait for which rows there are
            return Input(embedded(self.symbols(tokens) + added))
        return Input(rows, which, embedded, first.project_rows, self.plain_norm)

    @property
    def plain_norm(self) -> Norm | None:
        """That of the embedding, if there is nothing else to it."""
        norm, dropout, width = self.embedding_norm, self.dropout, (self.config.width,)
        alone = (
            type(self.project) is nn.Identity and type(dropout) is nn.Dropout and not (dropout.training and dropout.p)
        )
        return norm if alone and type(norm) is Norm and fits(norm, width) else None

    @property
    def plain_classifier(self) -> Linear | None:
        """The classifier, if nothing comes before it or looks at it."""
        classifier, before = self.classifier, self.final_norm
        alone = type(before) is nn.Identity and not kernels.altered(before) and not kernels.altered(classifier)
        if not alone or type(classifier) is not Linear:
            return None
        return classifier if fits(classifier, (len(classifier.weight), self.config.width)) else None

    def distinct(self, tokens: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
        """Symbols with a vector of their position, from (j, width): which each token is (b, j), and each once."""
        many = len(self.symbols.weight)
        kernels.check_rows(tokens, many)
        pair = tokens.numpy() + many * np.arange(len(added))  # numpy, as torch takes longer for so little
        there = np.zeros(many * len(added), bool)
        there[pair] = True
        pairs, which = torch.from_numpy(there.nonzero()[0]), torch.from_numpy((there.cumsum() - 1)[pair])
        return which, self.symbols(pairs % many) + F.embedding(pairs // many, added)

    def view(self, tokens: Tensor, at: Coordinates[Tensor]) -> View:
        """What each position attends to."""
        config, length = self.config, tokens.shape[1]
        if config.window is None:
            view = View(at, length)
        else:
            longest = LONGEST_DENSE if self.by_content else LONGEST_DENSE_BY_POSITION
            banded = length > longest and getattr(at, config.window_over).dim() == 1 and not config.mask_padding
            view = (view_band if banded else view_window)(at, config.window, config.window_over)
        if config.mask_padding:
            padding = (tokens == PAD)[:, None, None, :]
            view = replace(view, hidden=padding if view.hidden is None else padding | view.hidden)
        return view

    def weighed(self, view: View) -> list[View]:
        """The view of every layer, in turns, with what depends on positions alone, computed once."""
        if self.by_content:
            return [self.plainly(view, cast(Position, position)) for position in self.positions]
        nothing = self.symbols.weight.new_empty(0)  # for queries and keys
        sharpness = 1.0 if self.training else self.knobs.sharpness
        attention = cast(Layer, self.layers[0]).attention
        views = []
        for position in self.positions:
            scores = cast(Position, position).scores(nothing, nothing, view)
            assert scores is not None, "an embedding whose by_content is false has scores"
            weights, reading = attention.weigh(scores, view, sharpness), None
            if self.config.read_rows:
                row, other = view.ends("row")
                weights, reading = weights * (row == other), weights * (row != other)
            views.append(replace(view, weights=weights, reading=reading))
        return views

    def plainly(self, view: View, position: Position) -> View:
        """The view, marked if attention, or a whole layer, can be left to `kernels`."""
        attention = cast(Layer, self.layers[0]).attention
        altered = attention.dropout.p if self.training else self.knobs.sharpness != 1
        everywhere = view.band is None and view.hidden is None and not self.config.sink
        by_products = not position.has_own("scores") and not position.has_own("rotate")
        if altered or not everywhere or not by_products or not kernels.native(self.symbols.weight):
            return view
        relative = position.relative(view)
        if relative is not None:
            # A vector for each pair, which all examples share; whatever else there is, torch knows what to make of it.
            usual = type(relative) is Relative and relative.rows.shape == (view.queries, view.queries)
            head_width = self.config.width // attention.heads
            if not usual or relative.table.shape[1:] != (head_width,) or not kernels.native(relative.table):
                return view
        return replace(view, plain=True, relative=relative)

    @property
    def one_by_one(self) -> bool:
        """Whether something is done, or looked at, between layers."""
        between = self.config.recall or type(self).apply_layer is not Encoder.apply_layer
        return between or any(type(layer) is not Layer or kernels.altered(layer) for layer in self.layers)

    def apply_layer(self, i: int, x: Tensor, start: Input, view: View) -> Tensor:
        read = None if view.reading is None else self.classify(x).softmax(-1)
        if self.config.recall and i:
            x = x + start.x
        sharpness = 1.0 if self.training else self.knobs.sharpness
        layer = cast(Layer, self.layers[i % len(self.layers)])
        width = self.config.width
        projected = None if i or start.projected is None else start.looked_up(start.projected).split(width, -1)
        if projected and self.by_content:
            q, *kv = projected
            projected = q[:, : view.queries], *kv
        if read is not None:
            assert start.projected is not None, "symbols have values where attention is by position alone"
            projected = *(projected or layer.project(x, view.queries)), read @ start.projected[:, -width:]
        return cast(Tensor, layer(x, projected, view, self.position(i), sharpness))

    def classify(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.classifier(self.final_norm(x)))

    def settle(self, start: Input, view: View, n_out: int) -> Tensor:
        """Apply the shared layer until an answer hasn't changed for `patience` times.

        At most once more for each position of a row, and as often as in training for each row. An example that has
        settled is left alone, so that its answer doesn't depend on those beside it.
        """
        patience, x = self.config.patience or 0, start.x
        rows = int(view.at.row.max()) + 1
        going_on = torch.arange(len(x), device=x.device)
        logits = x.new_zeros(len(x), n_out, self.classifier.out_features)
        unchanged = torch.zeros_like(going_on)
        for i in range(self.config.layers * rows + x.shape[1] // rows):
            x = self.apply_layer(i, x, start, view)
            new = self.classify(x[:, :n_out])
            same = (new.argmax(-1) == logits[going_on].argmax(-1)).all(1)
            unchanged = torch.where(same, unchanged + 1, 0) if i else unchanged
            logits[going_on] = new.to(logits.dtype)
            left = (unchanged < patience).nonzero()[:, 0]
            if i + 1 >= self.config.layers and len(left) < len(going_on):
                if not len(left):
                    break
                going_on, unchanged, x = going_on[left], unchanged[left], x[left]
                start = start.of_examples(left)
                view = view.of_examples(left)
        return logits

    @torch.no_grad()
    def initialise(self, rng: torch.Generator) -> None:
        """Gaussian weights, zero biases, unit norms."""
        std = self.config.init_std or 1 / math.sqrt(self.config.width)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0, std, generator=rng)
            if isinstance(module, nn.Linear):
                module.bias.zero_()
