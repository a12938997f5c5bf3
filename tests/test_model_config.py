"""What the configuration of the encoder promises: presets, initial weights, errors."""

import math
from typing import Any

import pytest
import torch
from encoders import problems
from pydantic import ValidationError

from lengthwise.base import explain
from lengthwise.model import PRESETS, Encoder, ModelConfig

POSITIONAL = {"kind": "positional", "window": 2}
DISCRETE = {"kind": "positional", "discrete_rows": True}
STABLE = {"kind": "until-stable", "stable_for": 2}


def test_presets_are_valid() -> None:
    tokens, at, n_out = problems()
    for preset in PRESETS:
        with torch.device("meta"):  # shapes only: the large ones have 10⁸ parameters
            encoder = Encoder(ModelConfig(preset=preset), max_length=tokens.shape[1])
            logits = encoder(tokens.to("meta"), at.map(lambda c: c.to("meta")), n_out)
        assert logits.shape == (len(tokens), n_out, 15)


@pytest.mark.parametrize(
    ("size", "shape"),
    [("base", (6, 512, 8)), ("standard", (6, 1024, 16)), ("large", (10, 1024, 16))],
)
def test_the_papers_sizes(size: str, shape: tuple[int, int, int]) -> None:
    bert, albert = ModelConfig(preset=f"bert-{size}"), ModelConfig(preset=f"albert-{size}")
    assert (bert.encoder, albert.encoder) == ("transformer", "universal-transformer")
    for config in (bert, albert):
        assert (config.layers, config.width, config.heads) == shape
        assert config.position.kind == "relative-key"


def test_given_fields_win_over_the_preset() -> None:
    config = ModelConfig(preset="bert-base", width=64, dropout=0)
    assert (config.width, config.layers, config.dropout, config.init_std) == (64, 6, 0, 0.02)
    assert ModelConfig.model_validate(config.model_dump()) == config


@pytest.mark.parametrize(("init_std", "expected"), [(None, 1 / math.sqrt(64)), (0.02, 0.02)])
@pytest.mark.parametrize("position", ["absolute", "relative-key"])
def test_initial_weights(position: str, init_std: float | None, expected: float) -> None:
    fields = {"width": 64, "embedding_width": 48, "norm": "pre"}
    config = ModelConfig.model_validate({"position": position, "init_std": init_std, **fields})
    encoder = Encoder(config, max_length=9)
    encoder.initialise(torch.Generator().manual_seed(0))
    for name, weights in encoder.named_parameters():
        if "norm" in name:
            assert weights.unique().tolist() == [float(name.endswith("weight"))], name
        elif name.endswith("bias"):
            assert not weights.any(), name
        else:
            tolerance = 5 / math.sqrt(2 * weights.numel())  # of a sample's standard deviation
            assert weights.std().item() == pytest.approx(expected, rel=tolerance), name
            assert abs(weights.mean().item()) < 5 * expected / math.sqrt(weights.numel()), name


BAD: list[tuple[dict[str, Any], str]] = [
    ({"width": 100, "heads": 3}, "model.width is 100, which model.heads, 3, does not divide"),
    ({"preset": "bert-bsae"}, "there is no preset 'bert-bsae': did you mean 'bert-base'?"),
    ({"preset": "huge"}, "known: "),
    ({"position": "relativ-key"}, "no position embedding 'relativ-key': did you mean"),
    ({"position": {"kind": "relative-key", "clipp": 3}}, "did you mean 'clip'?"),
    ({"position": {"kind": "relative-key", "clip": 0}}, "clip of the position embedding"),
    ({"layers": 0}, "layers is 0"),
    ({"attention": {"kind": "local", "window": 0}}, "window of the attention 'local' is 0"),
    ({"attention": {"kind": "local", "over": "place"}}, "over of the attention 'local'"),
    ({"attention": "positional"}, "whose scores ignore content, such as relative-bias, not"),
    ({"depth": {"kind": "until-stable", "stable_for": 0}}, "stable_for of the depth"),
    ({"depth": STABLE, "encoder": "transformer"}, "'until-stable' needs shared layers"),
    ({"depth": STABLE, "preset": "bert-base"}, "'until-stable' needs shared layers"),
    *(
        (
            {"attention": DISCRETE, "position": "relative-bias", **more},
            "discrete_rows needs shared layers and no dropout",
        )
        for more in ({"encoder": "transformer"}, {"dropout": 0.1})
    ),
    *(
        (
            {"attention": POSITIONAL, "position": {"kind": "randomised", "inner": inner}},
            f"such as relative-bias, not {inner}",
        )
        for inner in ("none", "rope")
    ),
    ({"widht": 64}, "widht"),
]


def test_a_bad_configuration_is_explained_in_a_sentence() -> None:
    for fields, sentence in BAD:
        with pytest.raises(ValidationError) as caught:
            ModelConfig(**fields)
        assert sentence in explain(caught.value)
        assert "\n" not in explain(caught.value)
