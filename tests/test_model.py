"""The encoder against torch's own layers, and what its configuration promises."""

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from lengthwise.errors import explain
from lengthwise.layout import PAD, Coordinates
from lengthwise.model import PRESETS, Encoder, ModelConfig

SMALL = {"layers": 3, "width": 16, "heads": 2}
LENGTH = 9


def encoder_of(**fields: Any) -> Encoder:
    encoder = Encoder(ModelConfig(**{**SMALL, **fields}), max_length=LENGTH)
    encoder.initialise(torch.Generator().manual_seed(0))
    return encoder.eval()


def tokens_and_coordinates(batch: int = 4) -> tuple[torch.Tensor, Coordinates[torch.Tensor]]:
    """Digits, with padding at the end of both operands of all but the first row."""
    tokens = torch.randint(0, 10, (batch, LENGTH), generator=torch.Generator().manual_seed(1))
    tokens[:, 4] = 10
    for row in range(1, batch):
        tokens[row, 4 - row : 4] = tokens[row, LENGTH - row :] = PAD
    index = torch.arange(LENGTH)
    return tokens, Coordinates(index, index, index, index // 5, index < 0)


CASE = tokens_and_coordinates()


def parameters(encoder: Encoder) -> int:
    return sum(parameter.numel() for parameter in encoder.parameters())


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid(preset):
    tokens, at = CASE
    with torch.device("meta"):  # shapes only: the large ones have 10⁸ parameters
        encoder = Encoder(ModelConfig(preset=preset), max_length=LENGTH)
        logits = encoder(tokens.to("meta"), at.map(lambda c: c.to("meta")), 5)
    assert logits.shape == (4, 5, 15)


@pytest.mark.parametrize(
    ("size", "shape"), [("base", (6, 512, 8)), ("standard", (6, 1024, 16)), ("large", (10, 1024, 16))]
)
def test_the_papers_sizes(size, shape):
    bert, albert = ModelConfig(preset=f"bert-{size}"), ModelConfig(preset=f"albert-{size}")
    assert (bert.layers, bert.width, bert.heads) == (albert.layers, albert.width, albert.heads) == shape
    assert (bert.encoder, albert.encoder) == ("transformer", "universal-transformer")
    assert bert.position.kind == albert.position.kind == "relative-key"


def test_given_fields_win_over_the_preset():
    config = ModelConfig(preset="bert-base", width=64, dropout=0)
    assert (config.width, config.layers, config.dropout, config.init_std) == (64, 6, 0, 0.02)
    assert ModelConfig.model_validate(config.model_dump()) == config


@pytest.mark.parametrize("position", ["absolute", "relative-key", "relative-key-query"])
def test_a_universal_transformer_is_a_transformer_of_equal_layers(position):
    shared = encoder_of(encoder="universal-transformer", position=position)
    own = encoder_of(encoder="transformer", position=position)
    assert len(shared.layers) == 1
    assert parameters(own) - parameters(shared) == 2 * parameters(shared.layers[0]) + (
        0 if position == "absolute" else 2 * parameters(shared.positions[0])
    )
    tokens, at = CASE
    assert (own(tokens, at, 5) - shared(tokens, at, 5)).abs().max() > 1e-2
    for i in range(3):
        own.layers[i].load_state_dict(shared.layers[0].state_dict())
    for copy in own.positions:
        copy.load_state_dict(shared.positions[0].state_dict())
    for part in ("symbols", "embedding_norm", "classifier"):
        getattr(own, part).load_state_dict(getattr(shared, part).state_dict())
    torch.testing.assert_close(own(tokens, at, 5), shared(tokens, at, 5))


def torchs_layer(config: ModelConfig, layer: nn.Module) -> nn.TransformerEncoderLayer:
    """torch's own encoder layer with the weights of one of ours."""
    theirs = nn.TransformerEncoderLayer(
        config.width,
        config.heads,
        config.feedforward_width or 4 * config.width,
        dropout=0.0,
        activation={"gelu": "gelu", "relu": "relu", "gelu-tanh": nn.GELU("tanh")}[config.activation],
        layer_norm_eps=config.norm_epsilon,
        batch_first=True,
        norm_first=config.norm == "pre",
    )
    names = {
        "attention.qkv.": "self_attn.in_proj_",
        "attention.output.": "self_attn.out_proj.",
        "widen.": "linear1.",
        "narrow.": "linear2.",
        "attention_norm.": "norm1.",
        "feedforward_norm.": "norm2.",
    }
    weights = {}
    for name, value in layer.state_dict().items():
        ours = next(prefix for prefix in names if name.startswith(prefix))
        weights[name.replace(ours, names[ours])] = value
    theirs.load_state_dict(weights)
    return theirs


@pytest.mark.parametrize("mask_padding", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "relu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("encoder_kind", ["transformer", "universal-transformer"])
def test_the_encoder_equals_torchs_own_layers(encoder_kind, norm, activation, mask_padding):
    encoder = encoder_of(
        encoder=encoder_kind,
        norm=norm,
        activation=activation,
        mask_padding=mask_padding,
        position="absolute",
        embedding_width=6,
        feedforward_width=20,
        norm_epsilon=1e-5,
    )
    with torch.no_grad():  # so that biases and norms count, too
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    tokens, at = CASE
    x = encoder.symbols.weight[tokens] + encoder.positions[0].table.weight[: tokens.shape[1]]
    x = encoder.project(encoder.embedding_norm(x))
    for i in range(3):
        theirs = torchs_layer(encoder.config, encoder.layers[i if encoder_kind == "transformer" else 0])
        x = theirs(x, src_key_padding_mask=tokens == PAD if mask_padding else None)
    if norm == "pre":
        x = encoder.final_norm(x)
    torch.testing.assert_close(encoder(tokens, at, 5), encoder.classifier(x)[:, :5], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask_padding", [False, True])
def test_masked_padding_is_seen_by_no_other_token(mask_padding):
    encoder = encoder_of(mask_padding=mask_padding)
    tokens, at = CASE
    before = encoder(tokens, at, LENGTH)
    with torch.no_grad():
        encoder.symbols.weight[PAD] = -encoder.symbols.weight[PAD]
    change = (encoder(tokens, at, LENGTH) - before).abs().amax(-1)
    padding = tokens == PAD
    beside = ~padding & padding.any(1, keepdim=True)
    assert change[padding].min() > 1e-3  # what stands on padding itself still knows it
    assert change[~padding.any(1)].max() == 0
    assert change[beside].max() < 1e-6 if mask_padding else change[beside].min() > 1e-4


@pytest.mark.parametrize(("init_std", "expected"), [(None, 1 / math.sqrt(64)), (0.02, 0.02)])
@pytest.mark.parametrize("position", ["absolute", "relative-key"])
def test_initial_weights(position, init_std, expected):
    encoder = encoder_of(width=64, embedding_width=48, position=position, init_std=init_std, norm="pre")
    for name, weights in encoder.named_parameters():
        if "norm" in name:
            assert weights.unique().tolist() == [float(name.endswith("weight"))], name
        elif name.endswith("bias"):
            assert not weights.any(), name
        else:
            tolerance = 5 / math.sqrt(2 * weights.numel())  # of a sample's standard deviation
            assert weights.std().item() == pytest.approx(expected, rel=tolerance), name
            assert abs(weights.mean().item()) < 5 * expected / math.sqrt(weights.numel()), name


@pytest.mark.parametrize("fields", [{"dropout": 0.5}, {"attention_dropout": 0.5}])
def test_dropout_is_for_training_only(fields):
    encoder = encoder_of(**fields)
    tokens, at = CASE
    torch.testing.assert_close(encoder(tokens, at, 5), encoder_of()(tokens, at, 5))
    encoder.train()
    assert (encoder(tokens, at, 5) - encoder(tokens, at, 5)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"width": 100, "heads": 3}, "model.width is 100, which isn't divisible by model.heads, which is 3"),
        ({"preset": "bert-bsae"}, "there is no preset 'bert-bsae': did you mean 'bert-base'?"),
        ({"preset": "huge"}, "known: "),
        ({"position": "relativ-key"}, "there is no position embedding 'relativ-key': did you mean 'relative-key'?"),
        ({"position": {"kind": "relative-key", "clipp": 3}}, "did you mean 'clip'?"),
        ({"position": {"kind": "relative-key", "clip": 0}}, "clip of the position embedding 'relative-key' is 0"),
        ({"layers": 0}, "layers is 0"),
        ({"widht": 64}, "widht"),
    ],
)
def test_bad_configurations_are_told_in_a_sentence(fields, sentence):
    with pytest.raises(ValidationError) as caught:
        ModelConfig(**fields)
    assert sentence in explain(caught.value)
    assert "\n" not in explain(caught.value)
