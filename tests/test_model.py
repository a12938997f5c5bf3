"""The encoder against naive loops and PyTorch's own layers, and what its configuration promises."""

from itertools import product
from typing import Any

import naive
import numpy as np
import pytest
import torch
from conftest import label
from encoders import Problems, encoder_of, problems
from pairwise import pairwise
from torch import Tensor, nn

from lengthwise.base import UsageError, generator
from lengthwise.base.code import is_own
from lengthwise.model import ModelConfig, local
from lengthwise.model.attention import ATTENTIONS
from lengthwise.model.depth import DEPTHS
from lengthwise.problems.layouts import PAD, Coordinates

LOCAL = {"kind": "local", "window": 2}
POSITIONAL = {"kind": "positional", "window": 2}
DISCRETE = {"kind": "positional", "discrete_rows": True}
STABLE = {"kind": "until-stable", "stable_for": 2}
REINJECTED = {"kind": "until-stable", "stable_for": 1, "reinject_input": True}
SIGNIFICANCE = {"coordinate": "significance"}
BY_COLUMN = {"kind": "relative-bias", **SIGNIFICANCE}
# Encoders and depths go together, since only shared layers can iterate.
STACKS: list[dict[str, Any]] = [
    {"encoder": "transformer"},
    {"encoder": "universal-transformer"},
    {"encoder": "universal-transformer", "depth": STABLE},
    {"encoder": "universal-transformer", "depth": REINJECTED},
]
INNER: list[dict[str, Any]] = [
    {"activation": "relu"},
    {"activation": "gelu", "norm": "pre"},
    {"activation": "gelu-tanh", "embedding_width": 6, "feedforward_width": 10},
]
# Each kind of problem with content or with positions; tests/test_positions.py has all embeddings.
BY_CONTENT = pairwise(
    [
        {"kind": "full"},
        {"kind": "full", "mask_padding": True},
        LOCAL,
        {"kind": "local", "window": 1, "over": "index"},
    ],
    [{"kind": "relative-key-query", **SIGNIFICANCE}, "rope", "absolute", "relative-bias"],
    STACKS,
    INNER,
    ["sum", "running-sums", "product", "rows", "sum-from-units"],
)
BY_POSITION = pairwise(
    [POSITIONAL, {"kind": "positional", "over": "index"}],
    [{"kind": "relative-bias", **SIGNIFICANCE}, {"kind": "randomised", "inner": "alibi"}, "fire"],
    STACKS,
    INNER,
    ["sum", "three", "product-from-units", "grid"],
)
ROWS = {"kind": "relative-bias", "clip": 1, "by_operands": True, **SIGNIFICANCE}
BY_ROWS = [
    (DISCRETE, ROWS, stack, inner, "rows") for stack, inner in zip(STACKS[1:], INNER, strict=True)
]
ROW_NUMBERS = ({"kind": "full"}, {**ROWS, "row_clip": 1}, STACKS[0], INNER[0], "rows")


@pytest.mark.parametrize(
    ("attention", "position", "stack", "inner", "name"),
    [*BY_CONTENT, *BY_POSITION, *BY_ROWS, ROW_NUMBERS],
    ids=label,
)
def test_logits_equal_naive_loops(
    attention: dict[str, Any],
    position: object,
    stack: dict[str, Any],
    inner: dict[str, Any],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over examples, heads, queries and keys; with all pairs, and in a band."""
    encoder = encoder_of(attention=attention, position=position, **stack, **inner).double()
    given = problems(name, count=2)
    expected = naive.logits(encoder, given)
    tolerance = 1e-6 if position == "rope" else 1e-10  # whose angles are single precision
    np.testing.assert_allclose(encoder(*given).detach(), expected, rtol=0, atol=tolerance)
    for constant in ("LONGEST_DENSE", "LONGEST_DENSE_POSITIONAL"):
        monkeypatch.setattr(local, constant, 0)
    np.testing.assert_allclose(encoder(*given).detach(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("attention", [{"kind": "full"}, LOCAL, POSITIONAL], ids=label)
def test_sharpness_is_a_factor_of_all_scores(attention: dict[str, Any]) -> None:
    encoder = encoder_of(attention=attention, position="t5-bias").double()
    given = problems()
    before = encoder(*given)
    encoder.layer(0).attention.sharpness = 2.5
    sharp = encoder(*given)
    np.testing.assert_allclose(sharp.detach(), naive.logits(encoder, given), rtol=0, atol=1e-10)
    assert (sharp - before).abs().max() > 1e-3


def torchs_layer(config: ModelConfig, layer: nn.Module) -> nn.TransformerEncoderLayer:
    """PyTorch's own encoder layer with the weights of one of ours."""
    theirs = nn.TransformerEncoderLayer(
        config.width,
        config.heads,
        config.feedforward_width or 4 * config.width,
        dropout=0.0,
        activation={"gelu": nn.GELU(), "relu": nn.ReLU(), "gelu-tanh": nn.GELU("tanh")}[
            config.activation
        ],
        layer_norm_eps=config.norm_epsilon,
        batch_first=True,
        norm_first=config.norm == "pre",
    )
    names = {
        "self_attn.out_proj": "attention.output",
        "linear1": "widen",
        "linear2": "narrow",
        "norm1": "attention_norm",
        "norm2": "feedforward_norm",
    }
    ours, kinds = layer.state_dict(), ("weight", "bias")
    weights = {f"{a}.{kind}": ours[f"{b}.{kind}"] for a, b in names.items() for kind in kinds}
    for kind in kinds:
        parts = [ours[f"attention.{part}.{kind}"] for part in ("query", "key", "value")]
        weights[f"self_attn.in_proj_{kind}"] = torch.cat(parts)
    theirs.load_state_dict(weights)
    return theirs


@pytest.mark.parametrize(
    ("position", "encoder_kind", "norm", "activation", "mask_padding"),
    pairwise(
        ["absolute", "none"],
        ["transformer", "universal-transformer"],
        ["pre", "post"],
        ["gelu", "gelu-tanh", "relu"],
        [False, True],
    ),
)
def test_the_encoder_equals_pytorchs_own_layers(
    position: str, encoder_kind: str, norm: str, activation: str, mask_padding: bool
) -> None:
    encoder = encoder_of(
        encoder=encoder_kind,
        norm=norm,
        activation=activation,
        attention={"kind": "full", "mask_padding": mask_padding},
        position=position,
        embedding_width=6,
        feedforward_width=20,
        norm_epsilon=1e-5,
    )
    given = problems()
    padding = given.tokens == PAD
    table: Any = encoder.positions[0]
    x = encoder.symbols.weight[given.tokens]
    if position == "absolute":
        x = x + table.table.weight[: given.length]
    x = encoder.project(encoder.embedding_norm(x))
    for i in range(encoder.config.layers):
        theirs = torchs_layer(encoder.config, encoder.layer(i))
        x = theirs(x, src_key_padding_mask=padding if mask_padding else None)
    expected = encoder.classifier(encoder.final_norm(x))[:, : given.n_out]
    torch.testing.assert_close(encoder(*given), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("position", ["absolute", "relative-key-query"])
def test_a_universal_transformer_is_a_transformer_of_equal_layers(position: str) -> None:
    shared = encoder_of(encoder="universal-transformer", position=position)
    own = encoder_of(encoder="transformer", position=position)
    assert (len(shared.layers), len(own.layers)) == (1, 2)
    given = problems()
    assert (own(*given) - shared(*given)).abs().max() > 1e-2
    for layer in own.layers:
        layer.load_state_dict(shared.layers[0].state_dict())
    for table in own.positions:
        table.load_state_dict(shared.positions[0].state_dict())
    for part in ("symbols", "embedding_norm", "classifier"):
        getattr(own, part).load_state_dict(getattr(shared, part).state_dict())
    torch.testing.assert_close(own(*given), shared(*given))


def test_gradients_in_bfloat16_are_near_those_in_float32() -> None:
    """A symbol's gradient is a sum over all of its tokens, which bfloat16 would round away."""
    encoder = encoder_of(position="none", width=16).train()
    given = problems(count=400)
    targets = given.tokens[:, : given.n_out].flatten()
    found = []
    for enabled in (False, True):
        encoder.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = encoder(*given)
        nn.functional.cross_entropy(logits.float().flatten(0, 1), targets).backward()
        gradient = encoder.symbols.weight.grad
        assert gradient is not None
        found.append(gradient.clone())
    assert (found[1] - found[0]).norm() < 0.1 * found[0].norm()


@pytest.mark.parametrize("mask_padding", [False, True])
def test_masked_padding_is_seen_by_no_other_token(mask_padding: bool) -> None:
    encoder = encoder_of(attention={"kind": "full", "mask_padding": mask_padding}, norm="pre")
    tokens, at, _ = problems(count=6)
    before = encoder(tokens, at, tokens.shape[1])
    with torch.no_grad():
        encoder.symbols.weight[PAD] = -encoder.symbols.weight[PAD]
    change = (encoder(tokens, at, tokens.shape[1]) - before).abs().amax(-1)
    padding = tokens == PAD
    beside = ~padding & padding.any(1, keepdim=True)
    assert change[padding].min() > 1e-3  # the tokens of padding know themselves
    assert change[beside].max() < 1e-6 if mask_padding else change[beside].min() > 1e-5


@pytest.mark.parametrize(
    ("attention", "name", "digits", "banded"),
    [
        ("local", "sum-from-units", 32, True),
        ("local", "sum-from-units", 31, False),
        ("local", "sum", 32, False),  # powers of ten differ from example to example
        ({"kind": "local", "over": "index"}, "sum", 32, True),
        ("positional", "sum-from-units", 64, True),
        ("positional", "sum-from-units", 63, False),
    ],
    ids=str,
)
def test_long_problems_are_attended_to_in_a_band(
    attention: object, name: str, digits: int, banded: bool
) -> None:
    """A query then has a few keys, whatever the length."""
    tokens, at, n_out = problems(name, count=2, digits=digits)
    encoder = encoder_of(tokens.shape[1], attention=attention, position="relative-bias")
    pairs = encoder.layer(0).attention.pairs(tokens, at)
    assert (pairs.band is not None) is banded
    assert encoder(tokens, at, n_out).isfinite().all()
    if pairs.band is not None:
        assert pairs.band.shape[1] <= 2 * 3


def variants(kind: str) -> list[dict[str, Any]]:
    """An attention with its defaults, and with each switch on."""
    fields = ATTENTIONS.options_of(ATTENTIONS[kind]).model_fields.items()
    switches = [option for option, field in fields if field.annotation is bool]
    return [{"kind": kind}, *({"kind": kind, option: True} for option in switches)]


def position_for(attention: dict[str, Any]) -> Any:
    """An embedding with scores, or one without for a user's attention that refuses scores."""
    if is_own(ATTENTIONS[attention["kind"]]):
        try:
            encoder_of(attention=attention, position=BY_COLUMN)
        except ValueError:
            return "absolute"
    return BY_COLUMN


PAIRS = list(product([v for kind in ATTENTIONS for v in variants(kind)], DEPTHS))
# The attention to columns and the depth of rewriting need each other.
REFUSED = [(a, depth) for a, depth in PAIRS if (a["kind"] == "columns") != (depth == "rewrite")]


def fields_of(attention: dict[str, Any], depth: str) -> dict[str, Any]:
    return {"attention": attention, "depth": depth, "position": position_for(attention)}


def test_columns_and_rewriting_need_each_other() -> None:
    for attention, depth in REFUSED:
        with pytest.raises(ValueError, match=r"needs the (depth 'rewrite'|attention 'columns')"):
            encoder_of(**fields_of(attention, depth))


@pytest.mark.parametrize(
    ("attention", "depth", "name"),
    [
        (*pair, ("rows", "sum")[(number + number // 2) % 2])
        for number, pair in enumerate(pair for pair in PAIRS if pair not in REFUSED)
    ],
    ids=label,
)
def test_every_attention_and_depth_keeps_the_contract(
    attention: dict[str, Any], depth: str, name: str
) -> None:
    """Logits don't depend on the batch, or on how many positions are read; all weights learn."""
    fields = fields_of(attention, depth)
    encoder = encoder_of(**fields)
    given = problems(name)
    with torch.no_grad():
        logits = encoder(*given)
        assert logits.shape == (len(given.tokens), given.n_out, 15)
        for i in range(len(given.tokens)):
            torch.testing.assert_close(logits[i : i + 1], encoder(*given.row(i)))
        for layers in (1, 2, 3):
            few = encoder(given.tokens, given.coordinates, 3, layers)
            everywhere = encoder(given.tokens, given.coordinates, given.length, layers)
            torch.testing.assert_close(few, everywhere[:, :3])
            configured = encoder_of(**fields, layers=layers)
            torch.testing.assert_close(few, configured.train()(*given[:2], 3))
    sampled = encoder.depth.sample_layers(generator(0, "layers"), 2)
    encoder.train()(*given, sampled).square().sum().backward()
    for parameter, weights in encoder.named_parameters():
        assert weights.grad is not None, parameter
        assert weights.grad.isfinite().all(), parameter
        # A key's bias adds the same to all scores of a query, which softmax ignores.
        assert weights.grad.any() or parameter.endswith("key.bias"), parameter


def test_until_stable_samples_extra_layers_in_training() -> None:
    depth = DEPTHS.parse({"kind": "until-stable", "extra_layers": 3})
    assert isinstance(depth, DEPTHS["until-stable"])
    rng = generator(0, "layers")
    assert {depth.sample_layers(rng, 4) for _ in range(100)} == {4, 5, 6, 7}
    assert DEPTHS["fixed"]().sample_layers(rng, 4) == 4


@pytest.mark.parametrize("symbol", [0, 3, PAD])
def test_an_answer_that_never_changes_is_stable_whatever_it_is(symbol: int) -> None:
    given = problems()
    for layers, stable_for, expected in [(1, 2, 2), (3, 2, 3), (1, 1, 1)]:
        depth = {"kind": "until-stable", "stable_for": stable_for}
        encoder = encoder_of(layers=layers, depth=depth)
        with torch.no_grad():
            encoder.classifier.bias[symbol] = 1000
        applied: list[int] = []
        encoder.layers[0].register_forward_hook(lambda *_, seen=applied: seen.append(1))
        logits = encoder(*given)
        assert len(applied) == expected
        torch.testing.assert_close(logits, encoder(*given, expected))


def test_an_answer_that_keeps_changing_ends_at_the_limit() -> None:
    """One iteration for each position of a row, and a training depth for each row."""
    for name, rows in (("sum", 1), ("rows", 2)):
        given = problems(name)
        encoder = encoder_of(depth={"kind": "until-stable", "stable_for": 1000})
        applied: list[int] = []
        encoder.layers[0].register_forward_hook(lambda *_, seen=applied: seen.append(1))
        with torch.autocast("cpu", torch.bfloat16):
            assert encoder(*given).isfinite().all()
        assert len(applied) == 2 * rows + given.length // rows


def test_discrete_rows_hide_the_hidden_vectors_of_other_rows() -> None:
    given = problems("rows")
    fields: dict[str, Any] = {"position": ROWS, "depth": REINJECTED}
    discrete = encoder_of(attention=DISCRETE, **fields)
    seeing = encoder_of(attention={**DISCRETE, "discrete_rows": False}, **fields)
    assert (discrete(*given) - seeing(*given)).abs().max() > 1e-3
    one_row = problems("sum-from-units")
    torch.testing.assert_close(discrete(*one_row), seeing(*one_row))


@pytest.mark.parametrize(
    ("dropout", "attention"),
    [("dropout", "full"), *(("attention_dropout", kind) for kind in ATTENTIONS)],
)
def test_dropout_is_for_training_only(dropout: str, attention: str) -> None:
    """Each example has a mask of its own."""
    fields: dict[str, Any] = {"attention": attention, "position": position_for({"kind": attention})}
    if attention == "columns":
        fields["depth"] = "rewrite"
    without = encoder_of(**fields)
    fields[dropout] = 0.5
    encoder = encoder_of(**fields)
    given = problems()
    same = Problems(given.tokens[:1].expand(4, -1), given.row(0).coordinates, given.n_out)
    torch.testing.assert_close(encoder(*same), without(*same))
    encoder.train()
    assert encoder.random
    assert not without.random
    torch.manual_seed(0)
    first, second = encoder(*same), encoder(*same)
    assert (first - second).abs().max() > 1e-3
    assert (first[0] - first[1]).abs().max() > 1e-3


def test_attention_dropout_keeps_the_mean() -> None:
    attention = {"kind": "positional", "window": 3}
    fields: dict[str, Any] = {"attention": attention, "position": "relative-bias", "layers": 1}
    encoder = encoder_of(attention_dropout=0.5, **fields).train()
    given = problems(count=1)
    outputs: list[Tensor] = []
    encoder.layer(0).attention.register_forward_hook(lambda *args: outputs.append(args[2]))
    torch.manual_seed(0)
    for _ in range(400):
        encoder(*given)
    encoder.eval()(*given)
    *random, expected = outputs
    deviation = torch.stack(random).std(0) / 20
    assert ((torch.stack(random).mean(0) - expected).abs() <= 5 * deviation + 1e-6).all()


def test_more_positions_than_tokens_cannot_be_read() -> None:
    tokens, at, _ = problems()
    with pytest.raises(UsageError, match="100 positions can't be read"):
        encoder_of()(tokens, at, 100)


def test_coordinates_are_tensors_of_one_row_or_one_for_each_example() -> None:
    """An encoder gives the same for both."""
    tokens, at, n_out = problems("sum-from-units")
    expanded: Coordinates[Tensor] = at.map(lambda c: c.expand(len(tokens), -1))
    for position in ("relative-key-query", {"kind": "relative-key", **SIGNIFICANCE}, "t5-bias"):
        encoder = encoder_of(position=position)
        torch.testing.assert_close(encoder(tokens, at, n_out), encoder(tokens, expanded, n_out))
