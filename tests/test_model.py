"""The encoder against torch's own layers, and what its configuration promises."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from lengthwise import model
from lengthwise.data import draw
from lengthwise.errors import UsageError, explain
from lengthwise.layout import PAD, Coordinates, Layout, LayoutConfig
from lengthwise.model import PRESETS, Encoder, Knobs, ModelConfig
from lengthwise.positions import View, view_window
from lengthwise.tasks import Addition, Multiplication, Task

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
    return tokens, Coordinates(index, index, index, index // 5, index < 0, index * 0)


CASE = tokens_and_coordinates()
MOST_FIRST, LEAST_FIRST = ORDERS = ["most-significant-first", "least-significant-first"]


def problems(
    order: str, task: Task | None = None, digits: int = 4, count: int = 6, **layout_fields: bool
) -> tuple[Tensor, Coordinates[Tensor], int]:
    """Tokens and coordinates of problems of different lengths, and n_out."""
    task = task or Addition()
    layout = Layout(task, digits, LayoutConfig(order=order, compact=True, **layout_fields))
    rng = np.random.default_rng(0)
    operands = tuple(draw(rng, "uniform-length", np.full(count, most)) for most in task.operand_digits(digits))
    at = layout.coordinates(operands).map(torch.from_numpy)
    return torch.from_numpy(layout.encode(operands)), at, layout.n_out


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


@pytest.mark.parametrize("recall", [False, True])
@pytest.mark.parametrize("mask_padding", [False, True])
@pytest.mark.parametrize("activation", ["gelu", "gelu-tanh", "relu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("encoder_kind", ["transformer", "universal-transformer"])
@pytest.mark.parametrize("position", ["absolute", "none"])
def test_the_encoder_equals_torchs_own_layers(position, encoder_kind, norm, activation, mask_padding, recall):
    encoder = encoder_of(
        encoder=encoder_kind,
        norm=norm,
        activation=activation,
        mask_padding=mask_padding,
        recall=recall,
        position=position,
        embedding_width=6,
        feedforward_width=20,
        norm_epsilon=1e-5,
    )
    with torch.no_grad():  # so that biases and norms count, too
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    tokens, at = CASE
    x = encoder.symbols.weight[tokens]
    if position == "absolute":
        x = x + encoder.positions[0].table.weight[: tokens.shape[1]]
    x = start = encoder.project(encoder.embedding_norm(x))
    for i in range(3):
        theirs = torchs_layer(encoder.config, encoder.layers[i if encoder_kind == "transformer" else 0])
        x = x + start if recall and i else x
        x = theirs(x, src_key_padding_mask=tokens == PAD if mask_padding else None)
    if norm == "pre":
        x = encoder.final_norm(x)
    torch.testing.assert_close(encoder(tokens, at, 5), encoder.classifier(x)[:, :5], rtol=1e-4, atol=1e-5)


def test_gradients_in_bfloat16_are_near_those_in_float32():
    """A symbol's gradient is a sum over all of its tokens, which bfloat16 would round away."""
    encoder = encoder_of(position="none").train()
    tokens = torch.randint(10, (400, 9), generator=torch.Generator().manual_seed(0))
    index = torch.arange(9)
    at = Coordinates(index, index, index, index // 5, index < 0, index * 0)
    found = []
    for enabled in (False, True):
        encoder.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = encoder(tokens, at, 9)
        torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
        found.append(encoder.symbols.weight.grad.clone())
    assert (found[1] - found[0]).norm() < 0.1 * found[0].norm()


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


@pytest.mark.parametrize("task", [Addition(), Addition(operands=3), Multiplication(second_digits=2)])
@pytest.mark.parametrize(
    ("order", "over"),
    [(MOST_FIRST, "index"), (MOST_FIRST, "significance"), (LEAST_FIRST, "index"), (LEAST_FIRST, "significance")],
)
def test_a_token_is_felt_one_window_further_with_each_layer(order, over, task, monkeypatch):
    """Another symbol changes the output where steps through windows lead, and nowhere else; in a band as well."""
    tokens, at, _ = problems(order, task, count=2)
    (where, shared), length = (c.expand(2, -1).tolist() for c in (getattr(at, over), at.shared)), tokens.shape[1]

    def sees(b: int, i: int, j: int) -> bool:
        return shared[b][j] if shared[b][i] or shared[b][j] else abs(where[b][i] - where[b][j]) <= 2

    for layers in (1, 2, 3):
        encoder = encoder_of(layers=layers, window=2, window_over=over, position="none")
        for longest_dense in (64, 0):
            monkeypatch.setattr(model, "LONGEST_DENSE", longest_dense)
            logits = encoder(tokens, at, length)
            for changed in range(0, length, 3):
                others = tokens.clone()
                others[:, changed] = (tokens[:, changed] + 1) % 15
                change = (encoder(others, at, length) - logits).abs().amax(-1)
                for b in range(2):
                    felt = {changed}
                    for _ in range(layers):
                        felt |= {i for i in range(length) if any(sees(b, i, j) for j in felt)}
                    assert [bool(x > 1e-5) for x in change[b]] == [i in felt for i in range(length)]


@pytest.mark.parametrize("position", ["none", "relative-key", {"kind": "relative-key", "coordinate": "significance"}])
def test_long_problems_are_attended_to_in_a_band(position):
    """Beyond LONGEST_DENSE tokens, where the window is the same for all examples; elsewhere, all pairs are there."""
    for order, over, digits, mask_padding, banded in [
        (LEAST_FIRST, "significance", 32, False, True),
        (LEAST_FIRST, "significance", 31, False, False),
        (LEAST_FIRST, "significance", 32, True, False),
        (MOST_FIRST, "significance", 32, False, False),
        (MOST_FIRST, "index", 32, False, True),
    ]:
        tokens, at, n_out = problems(order, digits=digits, count=3)
        fields = {"window": 2, "window_over": over, "position": position, "mask_padding": mask_padding}
        encoder = Encoder(ModelConfig(**SMALL, **fields), tokens.shape[1]).eval()
        view = encoder.view(tokens, at)
        assert (view.band is not None) is banded
        if banded:
            assert view.band.shape[1] <= 2 * (2 * 2 + 1)  # keys a query, whatever the length
            assert encoder(tokens, at, n_out).isfinite().all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("over", ["index", "significance"])
def test_masked_padding_in_a_window_is_seen_by_no_other_token(over, order):
    """Even where a window holds nothing but padding, there is an answer."""
    tokens, at, _ = problems(order, digits=7)
    encoder = encoder_of(window=1, window_over=over, mask_padding=True, position="none")
    before = encoder(tokens, at, tokens.shape[1])
    assert before.isfinite().all()
    with torch.no_grad():
        encoder.symbols.weight[PAD] = -encoder.symbols.weight[PAD]
    change = (encoder(tokens, at, tokens.shape[1]) - before).abs().amax(-1)
    assert change[tokens != PAD].max() < 1e-6
    assert change[tokens == PAD].min() > 1e-3


def with_knobs(encoder: Encoder, tokens: Tensor, at: Coordinates[Tensor], n_out: int, **knobs: Any) -> Tensor:
    encoder.knobs = Knobs(**knobs)
    logits = encoder(tokens, at, n_out)
    encoder.knobs = Knobs()
    return logits


@pytest.mark.parametrize("fields", [{}, {"recall": True}, {"window": 1}, {"patience": 2}, {"norm": "pre"}])
def test_shared_layers_can_be_applied_another_number_of_times(fields):
    """In testing by a knob and in training by an argument; as if it had been configured so."""
    tokens, at, n_out = problems(MOST_FIRST)
    encoder = encoder_of(**fields)
    for layers in (1, 2, 5):
        expected = encoder_of(layers=layers, **{**fields, "patience": None})(tokens, at, n_out)
        torch.testing.assert_close(with_knobs(encoder, tokens, at, n_out, layers=layers), expected)
        torch.testing.assert_close(encoder.train()(tokens, at, n_out, layers), expected)
        encoder.eval()
    trained = encoder.train()(tokens, at, n_out)
    torch.testing.assert_close(trained, encoder_of(**{**fields, "patience": None})(tokens, at, n_out))
    torch.testing.assert_close(with_knobs(encoder, tokens, at, n_out, layers=5, sharpness=3.0), trained)


@pytest.mark.parametrize("position", ["none", "relative-key", "t5-bias"])
@pytest.mark.parametrize("window", [None, 2])
def test_sharpness_is_a_factor_of_all_that_attention_weighs(window, position):
    """It is the same as queries so many times longer; a bias that doesn't depend on them grows with it."""
    tokens, at, n_out = problems(MOST_FIRST)
    encoder = encoder_of(position=position, window=window)
    with torch.no_grad():  # biases count, too
        encoder.layers[0].attention.qkv.bias.normal_(generator=torch.Generator().manual_seed(1))
    as_it_is = encoder(tokens, at, n_out)
    torch.testing.assert_close(with_knobs(encoder, tokens, at, n_out, sharpness=1.0), as_it_is, rtol=0, atol=0)
    sharp = with_knobs(encoder, tokens, at, n_out, sharpness=2.5)
    assert (sharp - as_it_is).abs().max() > 1e-2
    with torch.no_grad():
        encoder.layers[0].attention.qkv.weight[:16] *= 2.5
        encoder.layers[0].attention.qkv.bias[:16] *= 2.5
        if position == "t5-bias":
            encoder.positions[0].table.weight *= 2.5
    torch.testing.assert_close(encoder(tokens, at, n_out), sharp)


def settling(encoder: Encoder, tokens: Tensor, at: Coordinates[Tensor], n_out: int, patience: int) -> list[int]:
    """How often each example's layers are applied, found by applying them once, twice, … in all."""
    least, most = encoder.config.layers, encoder.config.layers + tokens.shape[1]
    answers = [with_knobs(encoder, tokens, at, n_out, layers=n).argmax(-1).tolist() for n in range(1, most + 1)]
    times = []
    for row in range(len(tokens)):
        said = [answer[row] for answer in answers]
        enough = range(max(least, patience + 1), most + 1)
        times.append(next((n for n in enough if said[n - 1 - patience : n] == [said[n - 1]] * (patience + 1)), most))
    return times


@pytest.mark.parametrize("patience", [1, 2, 4, 100])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"window": 1, "position": {"kind": "relative-key", "coordinate": "significance"}},
        {"mask_padding": True, "recall": True, "norm": "pre"},
        {"content": False, "position": {"kind": "relative-bias", "coordinate": "significance"}},
    ],
    ids=["plain", "window", "masked", "by position"],
)
@pytest.mark.parametrize("order", ORDERS)
def test_layers_are_applied_until_each_examples_answer_has_settled(order, fields, patience):
    """Each example is as if it were alone and its layers had been configured; none is computed in vain."""
    tokens, at, n_out = problems(order, count=8)
    encoder = encoder_of(layers=2, patience=patience, **fields).double()
    times = settling(encoder, tokens, at, n_out, patience)
    computed = []
    encoder.layers[0].register_forward_hook(lambda module, inputs, output: computed.append(len(output)))
    logits = encoder(tokens, at, n_out)
    assert sum(computed) == sum(times)
    assert len(computed) == max(times)
    for row, n in enumerate(times):
        one = at.map(lambda c, row=row: c[row : row + 1] if c.dim() == 2 else c)
        expected = with_knobs(encoder, tokens[row : row + 1], one, n_out, layers=n)
        torch.testing.assert_close(logits[row : row + 1], expected)
    if patience == 100:
        assert set(times) == {2 + tokens.shape[1]}  # at most once more a position
    elif patience == 2:
        assert len(set(times)) > 1


def test_answers_settle_in_bfloat16():
    tokens, at, n_out = problems(MOST_FIRST)
    with torch.autocast("cpu", torch.bfloat16):
        logits = encoder_of(layers=2, patience=2)(tokens, at, n_out)
    assert logits.isfinite().all()


@pytest.mark.parametrize("symbol", [0, 3, PAD])
def test_an_answer_that_never_changes_settles_after_as_many_layers_whatever_it_is(symbol):
    tokens, at, n_out = problems(MOST_FIRST)
    encoder = encoder_of(layers=1, patience=2)
    with torch.no_grad():
        encoder.classifier.bias[symbol] = 1000
    expected = with_knobs(encoder, tokens, at, n_out, layers=3)
    torch.testing.assert_close(encoder(tokens, at, n_out), expected)


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"layers": 0}, "layers are applied 1 or more times, not 0"),
        ({"layers": -3}, "layers are applied 1 or more times, not -3"),
        *(({"sharpness": s}, f"a positive number, not {s}") for s in (0.0, -1.0, math.nan, math.inf)),
    ],
)
def test_bad_knobs_are_told_in_a_sentence(knobs, sentence):
    with pytest.raises(UsageError) as caught:
        Knobs(**knobs)
    assert sentence in str(caught.value)


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


BY_POSITION = {"content": False, "position": "relative-bias"}


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
        ({"window": 0}, "window is 0"),
        ({"window_over": "place"}, "window_over is 'place'"),
        ({"patience": 0}, "patience is 0"),
        ({"patience": 1, "encoder": "transformer"}, "model.patience needs layers that are shared"),
        ({"preset": "bert-base", "patience": 1}, "model.patience needs layers that are shared"),
        *(
            ({"read_rows": True, **BY_POSITION, key: value}, "model.read_rows needs shared layers, no dropout, and")
            for key, value in [
                ("content", True),
                ("encoder", "transformer"),
                ("dropout", 0.1),
                ("position", "relative-key"),
            ]
        ),
        *(
            ({"content": False, "position": {"kind": "randomised", "inner": inner}}, f"'{inner}' has no scores of its")
            for inner in ("none", "rope")
        ),
        ({"widht": 64}, "widht"),
    ],
)
def test_bad_configurations_are_told_in_a_sentence(fields, sentence):
    with pytest.raises(ValidationError) as caught:
        ModelConfig(**fields)
    assert sentence in explain(caught.value)
    assert "\n" not in explain(caught.value)


@pytest.mark.parametrize("content", [True, False])
@pytest.mark.parametrize("sink", [True, False])
def test_attention_weighs_keys_by_content_or_by_position_alone_and_may_go_nowhere(content, sink):
    """One layer against its formula, written out; without content, two symbols at a place are weighed alike."""
    fields = {"layers": 1, "width": 8, "heads": 2, "content": content, "sink": sink, "position": "relative-bias"}
    encoder = Encoder(ModelConfig.model_validate(fields), 5).eval()
    encoder.initialise(torch.Generator().manual_seed(0))
    attention, position, index = encoder.layers[0].attention, encoder.position(0), torch.arange(5)
    view = View(Coordinates(index, index, index, index * 0, index < 0, index * 0), 5)
    x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(1))
    *qk, v = attention.qkv(x)[0].split(8, -1)
    mixed = torch.zeros(5, 8)
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        for i in range(5):
            scores = [position.table.weight[i - j + position.reach, head] for j in range(5)]
            if content:
                q, k = qk
                scores = [s + q[i, part] @ k[j, part] / 2 for j, s in enumerate(scores)]
            total = sum(s.exp() for s in scores) + (1 if sink else 0)
            mixed[i, part] = sum(s.exp() / total * v[j, part] for j, s in enumerate(scores))
    (view,) = encoder.weighed(view)
    assert (view.weights is None) is content
    torch.testing.assert_close(attention(attention.project(x, 5), view, position, 1.0)[0], attention.output(mixed))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["relative-bias", "t5-bias", "alibi", "fire", "randomised"])
@pytest.mark.parametrize("encoder_kind", ["transformer", "universal-transformer"])
def test_weights_by_position_alone_are_those_of_attention_whose_content_counts_nothing(
    order, kind, encoder_kind, monkeypatch
):
    """Computed once, and for all examples where they agree; dense, in a window and in a band, and with sharpness."""
    monkeypatch.setattr(model, "LONGEST_DENSE_BY_POSITION", 20)
    position = {"kind": kind, "inner": {"kind": "alibi", "coordinate": "significance"}, "coordinate": "significance"}
    del position["coordinate" if kind == "randomised" else "inner"]
    for fields in [{}, {"window": 1, "sink": True}, {"window": 1, "mask_padding": True}]:
        for digits in (4, 12) if "window" in fields else (4,):
            tokens, at, n_out = problems(order, digits=digits)
            config = {**SMALL, "encoder": encoder_kind, "position": position, **fields}
            with_content = Encoder(ModelConfig.model_validate(config), tokens.shape[1]).eval()
            without = Encoder(ModelConfig.model_validate({**config, "content": False}), tokens.shape[1]).eval()
            with_content.initialise(torch.Generator().manual_seed(0))
            weights = with_content.state_dict()
            values = {name: weight.chunk(3)[2].clone() for name, weight in weights.items() if "qkv" in name}
            for name, value in values.items():
                weights[name][: -len(value)] = 0  # queries and keys
            without.load_state_dict({**weights, **values})
            for encoder in (with_content, without):
                encoder.knobs = Knobs(sharpness=1.5)
            torch.testing.assert_close(without(tokens, at, n_out), with_content(tokens, at, n_out))
            banded = digits == 12 and order == LEAST_FIRST and "mask_padding" not in fields
            assert (without.view(tokens, at).band is not None) is banded


@pytest.mark.parametrize("longest_dense", [128, 0])
def test_a_row_sees_of_another_only_the_symbols_that_are_read_there(longest_dense, monkeypatch):
    """Two layers against their formula, written out, in a window and in a band."""
    monkeypatch.setattr(model, "LONGEST_DENSE_BY_POSITION", longest_dense)
    tokens, at, _ = problems(LEAST_FIRST, Multiplication(second_digits=3), 4, long_multiplication=True)
    position = {"kind": "relative-bias", "coordinate": "significance", "clip": 1, "by_operands": True}
    fields = {**SMALL, "layers": 2, "window": 1, "content": False, "recall": True, "position": position}
    reading, seeing = (
        Encoder(ModelConfig.model_validate({**fields, "read_rows": read}), tokens.shape[1], operands=4).eval()
        for read in (True, False)
    )
    reading.initialise(torch.Generator().manual_seed(0))
    seeing.load_state_dict(reading.state_dict())

    (layer,), heads, length = seeing.layers, fields["heads"], tokens.shape[1]
    (view,) = seeing.weighed(view_window(at, 1, "significance"))
    values_of_symbols = layer.attention.qkv(seeing.embedding_norm(seeing.symbols.weight))
    start = x = seeing.embed(tokens, at).x
    for again in (False, True):
        read = seeing.classify(x).softmax(-1) @ values_of_symbols
        x = x + start if again else x
        values = layer.attention.qkv(x)
        mixed = torch.zeros_like(x)
        for head, part in enumerate(torch.arange(x.shape[-1]).chunk(heads)):
            for i in range(length):
                for j in range(length):
                    seen = values if at.row[i] == at.row[j] else read
                    mixed[:, i, part] += view.weights[head, i, j] * seen[:, j][:, part]
        x = layer.attention_norm(x + layer.attention.output(mixed))
        x = layer.feedforward_norm(x + layer.narrow(layer.activation(layer.widen(x))))
    torch.testing.assert_close(reading(tokens, at, length), seeing.classify(x))
    assert (seeing(tokens, at, length) - reading(tokens, at, length)).abs().max() > 1e-3

    sums, at, n_out = problems(LEAST_FIRST)  # where there is one row only
    torch.testing.assert_close(reading(sums, at, n_out), seeing(sums, at, n_out))


@pytest.mark.parametrize("order", ORDERS)
def test_attention_by_position_alone_drops_weights_of_each_example_in_training(order):
    """As often as it is told, and others in each example."""
    position = {"kind": "relative-bias", "coordinate": "significance"}
    encoder = encoder_of(content=False, attention_dropout=0.5, layers=1, position=position).train()
    tokens, at, _ = problems(order)
    same = at.map(lambda c: c[:1].expand(len(tokens), -1) if c.dim() == 2 else c)
    tokens = tokens[:1].expand_as(tokens)
    torch.manual_seed(0)
    logits = encoder(tokens, same, LENGTH)
    assert (logits[0] != logits[1]).any(-1).all()
    mean = torch.stack([encoder(tokens, same, LENGTH).mean(0) for _ in range(300)]).mean(0)
    far = (mean - encoder.eval()(tokens, same, LENGTH)[0]).abs().max()
    assert far < 0.5 * (logits[0] - logits[1]).abs().max()
