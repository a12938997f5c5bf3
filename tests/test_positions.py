"""Every registered position embedding keeps the contract; the relative ones equal a double loop."""

import json
import math
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch

from lengthwise.data import draw
from lengthwise.layout import Coordinates, Layout, LayoutConfig
from lengthwise.model import Encoder, ModelConfig
from lengthwise.positions import POSITIONS, Position, Shape, View
from lengthwise.tasks import Addition

RELATIVE = ["relative-key", "relative-key-query"]


def choices(kind: str) -> list[dict[str, Any]]:
    """An embedding with its defaults, and with each other value of its options that have named values."""
    variants: list[dict[str, Any]] = [{"kind": kind}]
    for option, field in POSITIONS.options_of(POSITIONS[kind]).model_fields.items():
        values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        values = (False, True) if field.annotation is bool else values
        variants += [{"kind": kind, option: value} for value in values if value != field.default]
    return variants


@pytest.fixture(
    params=[choice for kind in POSITIONS for choice in choices(kind)],
    ids=lambda choice: "-".join(map(str, choice.values())),
)
def choice(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


def encoder_with(choice: dict[str, Any], **fields: Any) -> Encoder:
    config = {"layers": 2, "width": 8, "heads": 2, "position": choice, **fields}
    encoder = Encoder(ModelConfig.model_validate(config), max_length=20)
    encoder.initialise(torch.Generator().manual_seed(0))
    return encoder.eval()


def problems(order: str, count: int = 5) -> tuple[torch.Tensor, Coordinates[torch.Tensor], int]:
    """Tokens and coordinates of additions of different lengths, and n_out."""
    layout = Layout(Addition(), 4, LayoutConfig(order=order))
    rng = np.random.default_rng(0)
    operands = tuple(draw(rng, "uniform-length", np.full(count, 4)) for _ in range(2))
    at = layout.coordinates(operands).map(torch.from_numpy)
    return torch.from_numpy(layout.encode(operands)), at, layout.n_out


@pytest.mark.parametrize("order", ["most-significant-first", "least-significant-first"])
@pytest.mark.parametrize("encoder_kind", ["transformer", "universal-transformer"])
def test_each_works_in_an_encoder(choice, encoder_kind, order):
    encoder = encoder_with(choice, encoder=encoder_kind)
    tokens, at, n_out = problems(order)
    logits = encoder(tokens, at, n_out)
    assert logits.shape == (5, n_out, 15)
    # Only the positions that are read are computed: they are as if all were.
    torch.testing.assert_close(logits, encoder(tokens, at, tokens.shape[1])[:, :n_out])
    # An example's logits are its own, whatever else is in the batch.
    one = at.map(lambda c: c[2:3] if c.dim() == 2 else c)
    torch.testing.assert_close(logits[2:3], encoder(tokens[2:3], one, n_out))


@pytest.mark.parametrize("encoder_kind", ["transformer", "universal-transformer"])
def test_gradients_reach_every_parameter(choice, encoder_kind):
    encoder = encoder_with(choice, encoder=encoder_kind, embedding_width=6).train()
    tokens, at, n_out = problems("most-significant-first")
    logits = encoder(tokens, at, n_out)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :n_out].flatten()).backward()
    for name, parameter in encoder.positions.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_initial_weights_come_from_the_generator_alone(choice):
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(encoder_with(choice).state_dict())
    for name, weights in states[0].items():
        torch.testing.assert_close(weights, states[1][name], rtol=0, atol=0, msg=name)


def test_options_survive_json(choice):
    options = POSITIONS.parse(choice)
    assert options.kind == choice["kind"]
    parsed = POSITIONS.parse(json.loads(json.dumps(options.model_dump(mode="json"))))
    assert parsed == options
    assert type(parsed) is type(options)
    config = ModelConfig(position=choice)
    assert ModelConfig.model_validate(json.loads(config.model_dump_json())) == config


@pytest.mark.parametrize("kind", POSITIONS)
def test_each_says_what_it_is(kind):
    assert (POSITIONS[kind].__dict__.get("__doc__") or "").strip()


def naive_scores(position: Position, q: torch.Tensor, k: torch.Tensor, where: torch.Tensor, reach: int) -> torch.Tensor:
    """q_i · r(i − j), for relative-key-query with k_j · r(i − j) added, one number at a time."""
    batch, heads, queries, width = q.shape
    by_key = position.options.kind == "relative-key-query"
    scale = math.sqrt(width) if position.shape.scale_relative else 1
    scores = torch.zeros(batch, heads, queries, k.shape[2])
    for b in range(batch):
        places = (where[b] if where.dim() == 2 else where).tolist()
        for h in range(heads):
            for i in range(queries):
                for j in range(k.shape[2]):
                    distance = max(-reach, min(reach, places[i] - places[j]))
                    vector = position.table.weight[distance + reach].tolist()
                    x = [a + c for a, c in zip(q[b, h, i].tolist(), k[b, h, j].tolist(), strict=True)]
                    x = x if by_key else q[b, h, i].tolist()
                    scores[b, h, i, j] = sum(a * c for a, c in zip(x, vector, strict=True)) / scale
    return scores


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("clip", [None, 1, 3])
@pytest.mark.parametrize("coordinate", ["index", "significance", "significance of each example"])
@pytest.mark.parametrize("kind", RELATIVE)
def test_relative_scores_equal_a_double_loop(kind, coordinate, clip, scaled):
    order = "least-significant-first" if coordinate == "significance" else "most-significant-first"
    tokens, at, n_out = problems(order, count=3)
    length = tokens.shape[1]
    options = POSITIONS.parse({"kind": kind, "coordinate": coordinate.split()[0], "clip": clip})
    position = POSITIONS[kind](options, Shape(8, 8, 2, length, 2, scale_relative=scaled))
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        position.table.weight.normal_(generator=rng)
    q, k = torch.randn(3, 2, n_out, 4, generator=rng), torch.randn(3, 2, length, 4, generator=rng)
    where = getattr(at, options.coordinate)
    assert where.dim() == (2 if "each" in coordinate else 1)
    expected = naive_scores(position, q, k, where, reach=position.reach)
    torch.testing.assert_close(position.scores(q, k, View(at, n_out)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kind", "changes"), [("none", False), ("absolute", True), *((k, False) for k in RELATIVE)])
def test_what_a_shift_of_all_positions_changes(kind, changes):
    encoder = encoder_with({"kind": kind})
    tokens, at, n_out = problems("most-significant-first")
    shifted = replace(at, index=at.index + 3)
    difference = (encoder(tokens, at, n_out) - encoder(tokens, shifted, n_out)).abs().max()
    assert difference > 1e-2 if changes else difference < 1e-6


@pytest.mark.parametrize("kind", POSITIONS)
def test_only_without_position_is_the_input_a_bag_of_symbols(kind):
    """Swapping two keys beyond the positions that are read changes the answer, unless there is no embedding."""
    encoder = encoder_with({"kind": kind})
    tokens, at, _ = problems("most-significant-first")
    swapped = tokens.clone()
    swapped[:, [-2, -1]] = tokens[:, [-1, -2]]
    assert (swapped != tokens).any()
    difference = (encoder(tokens, at, 4) - encoder(swapped, at, 4)).abs().max()
    assert difference < 1e-6 if kind == "none" else difference > 1e-4
