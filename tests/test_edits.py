"""Every edit takes effect: patched classes and functions, patched and replaced parts of a model.

Each case compares logits and gradients before and after an edit, and after it with PyTorch alone.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from edits import (
    assert_far,
    assert_in_c,
    assert_near,
    assert_same_bits,
    both,
    check_edit,
    is_sentence,
    measure,
    pytorch_alone,
    reason_for,
    solver_of,
)
from torch import Tensor, nn

from lengthwise.model.attention import Attention, FullAttention
from lengthwise.model.config import ModelConfig
from lengthwise.model.depth import DEPTHS, FixedDepth
from lengthwise.model.encoder import Encoder, Layer
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import NoPosition, Position, RelativeKey, relative


@pytest.fixture(autouse=True)
def with_the_c_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_FAST", "on")


Function = Callable[..., Any]


def double(function: Function) -> Function:
    def twice(*arguments: Any, **options: Any) -> Any:
        found = function(*arguments, **options)
        return tuple(2 * part for part in found) if isinstance(found, tuple) else 2 * found

    return twice


def negate(function: Function) -> Function:
    return lambda *arguments: -function(*arguments)


def hide_first_key(first: Function) -> Function:
    def hide(pairs: Pairs, queries: int) -> Pairs:
        hidden = torch.arange(pairs.coordinates.index.shape[-1]) == 0
        return replace(first(pairs, queries), hidden=hidden[None])

    return hide


class Doubling:
    """Stands for a method or a module, but is neither a function nor callable."""

    def __init__(self, original: Any):
        self.original = original

    def __get__(self, part: nn.Module, kind: object = None) -> Function:
        return double(self.original.__get__(part))

    def __getattr__(self, name: str) -> Any:
        return double(getattr(self.original, name))


# One function of each class and module of the model and all of PyTorch's that it calls; the check
# goes through a class as a whole, so that its other functions have nothing to add.
PATCHES: list[tuple[Any, str, Callable[[Any], Any]]] = [
    (FullAttention, "forward", double),
    (FullAttention, "__call__", double),
    (Attention, "split_heads", double),
    (Layer, "feedforward", double),
    (Encoder, "forward", double),
    (RelativeKey, "scores", double),
    (Position, "embed", lambda embed: lambda self, x, at: embed(self, x, at) + x.flip(-1)),
    (relative.OverDistance, "rows", lambda rows: lambda self, pairs: rows(self, pairs).flip(-1)),
    (relative, "multiply_by_query", double),
    (Pairs, "distance", negate),
    (Pairs, "first", hide_first_key),
    (FixedDepth, "run", double),
    (nn.Linear, "forward", double),
    (nn.LayerNorm, "forward", double),
    (nn.Softmax, "forward", double),
    (nn.ReLU, "forward", double),
    (nn.Embedding, "forward", negate),
    (nn.Dropout, "forward", double),
    (nn.Identity, "forward", double),
    (nn.Module, "__call__", double),
    (F, "linear", double),
    (F, "layer_norm", double),
    (F, "softmax", double),
    (F, "relu", double),
    (F, "dropout", double),
    (F, "embedding", negate),
    (torch, "einsum", double),
    (Tensor, "softmax", double),
    (Tensor, "__matmul__", double),
    (Tensor, "__truediv__", lambda _: Tensor.__mul__),
    (torch, "layer_norm", double),
    (torch, "relu", double),
    (torch._VF, "dropout", double),
    (math, "sqrt", double),
    (nn.Linear, "__call__", Doubling),
    (torch.nn.modules.normalization, "F", Doubling),
]


@pytest.mark.parametrize(
    ("owner", "name", "change"), PATCHES, ids=[f"{o.__name__}.{name}" for o, name, _ in PATCHES]
)
def test_a_patched_class_or_function_takes_effect(
    owner: Any, name: str, change: Callable[[Any], Any]
) -> None:
    """While it lasts."""
    solver = solver_of()
    assert_in_c(solver)
    before = measure(solver)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, change(getattr(owner, name)))
        after, reason = measure(solver), reason_for(solver)
        with pytorch_alone():
            assert_same_bits(after, measure(solver))
    assert_far(after, before)
    assert is_sentence(reason), reason
    assert_in_c(solver)
    assert_same_bits(measure(solver), before)


class Louder(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class LouderNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Negated(nn.Embedding):
    def forward(self, tokens: Tensor) -> Tensor:
        return -super().forward(tokens)


class LouderRelative(RelativeKey):
    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        return 2 * super().scores(q, k, pairs)


class Capped(FullAttention):
    def mask(self, scores: Tensor, pairs: Pairs) -> Tensor:
        return super().mask(scores.tanh(), pairs)


class Wider(Layer):
    def feedforward(self, x: Tensor) -> Tensor:
        return 2 * super().feedforward(x)


class Between(Encoder):
    def apply_layer(self, i: int, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        return super().apply_layer(i, x * (1 + i), *rest, **options)


def replace_class(path: str, kind: type[nn.Module]) -> Callable[[Encoder], None]:
    """The part with the same weights and another class."""

    def edit(encoder: Encoder) -> None:
        part = copy.copy(encoder.get_submodule(path))
        part.__class__ = kind
        encoder.set_submodule(path, part)

    return edit


def replace_part(path: str, make: Callable[[nn.Module], nn.Module]) -> Callable[[Encoder], None]:
    return lambda encoder: encoder.set_submodule(path, make(encoder.get_submodule(path)))


def set_value(path: str, value: object) -> Callable[[Encoder], None]:
    """An attribute of a part, or of the encoder itself."""
    *parents, name = path.rsplit(".", 1)
    return lambda encoder: setattr(encoder.get_submodule("".join(parents)), name, value)


def patch_method(path: str, change: Callable[[Function], Function]) -> Callable[[Encoder], None]:
    """A method of one instance."""
    *parents, name = path.rsplit(".", 1)

    def edit(encoder: Encoder) -> None:
        part = encoder.get_submodule("".join(parents))
        setattr(part, name, change(getattr(part, name)))

    return edit


def remove_position(encoder: Encoder) -> None:
    encoder.positions[0] = NoPosition(NoPosition.Options(), encoder.position(0).shape)


def change_heads(encoder: Encoder) -> None:
    remove_position(encoder)  # its vectors are as wide as a head
    attention = encoder.layer(0).attention
    attention.heads, attention.head_width = 4, 4


def add_layer(encoder: Encoder) -> None:
    encoder.layers.append(Layer(encoder.config))


NARROW = ModelConfig(layers=3, width=16, heads=2, feedforward_width=7)
ATTENTION, LAYER, POSITION = "layers.0.attention", "layers.0", "positions.0"
# Each kind of change in parts at each depth; the check goes through all parts alike.
INSTANCES: dict[str, Callable[[Encoder], object]] = {
    "encoder.apply_layer": patch_method("apply_layer", double),
    "layer.feedforward": patch_method(f"{LAYER}.feedforward", double),
    "attention.mask": patch_method(f"{ATTENTION}.mask", double),
    "query.forward": patch_method(f"{ATTENTION}.query.forward", double),
    "position.vectors": patch_method(f"{POSITION}.vectors", double),
    "position.table.forward": patch_method(f"{POSITION}.table.forward", double),
    "kind of query": replace_class(f"{ATTENTION}.query", Louder),
    "kind of widen": replace_class(f"{LAYER}.widen", Louder),
    "kind of classifier": replace_class("classifier", Louder),
    "kind of attention norm": replace_class(f"{LAYER}.attention_norm", LouderNorm),
    "kind of symbols": replace_class("symbols", Negated),
    "kind of position": replace_class(POSITION, LouderRelative),
    "kind of attention": replace_class(ATTENTION, Capped),
    "kind of layer": replace_class(LAYER, Wider),
    "kind of encoder": set_value("__class__", Between),
    "sigmoid for softmax": set_value(f"{ATTENTION}.softmax", nn.Sigmoid()),
    "softmax over queries": set_value(f"{ATTENTION}.softmax.dim", -2),
    "tanh for dropout of attention": set_value(f"{ATTENTION}.dropout", nn.Tanh()),
    "tanh for final norm": set_value("final_norm", nn.Tanh()),
    "another activation": set_value(f"{LAYER}.activation", nn.SiLU()),
    "a known activation": set_value(f"{LAYER}.activation", nn.GELU()),
    "epsilon of a layer's norm": set_value(f"{LAYER}.attention_norm.eps", 1.0),
    "heads": change_heads,
    "sharpness": set_value(f"{ATTENTION}.sharpness", 2.0),
    "no position": remove_position,
    "pre-norm": set_value(f"{LAYER}.pre_norm", True),
    "depth": set_value("depth", DEPTHS.parse({"kind": "until-stable", "reinject_input": True})),
    "config": set_value("config", ModelConfig(layers=2, width=16, heads=2)),
    "one more layer": add_layer,
    "wrapped part": replace_part(f"{LAYER}.narrow", lambda part: nn.Sequential(part, nn.Tanh())),
    "no bias": set_value(f"{ATTENTION}.value.bias", None),
    "another layer": replace_part(LAYER, lambda _: Layer(NARROW)),
}


@pytest.mark.parametrize("edit", INSTANCES.values(), ids=INSTANCES)
def test_a_changed_part_of_a_model_takes_effect(edit: Callable[[Encoder], object]) -> None:
    check_edit(edit)


@pytest.mark.parametrize(("name", "kind"), [("LayerNorm", LouderNorm), ("Softmax", nn.Softmin)])
def test_a_class_replaced_before_a_model_is_built_takes_effect(
    name: str, kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = measure(solver_of())
    monkeypatch.setattr(nn, name, kind)
    solver = solver_of()
    allowed, alone = both(lambda: measure(solver))
    assert_same_bits(allowed, alone)
    assert_far(allowed, before)
    assert kind.__name__ in str(reason_for(solver))


def run_twice(encoder: Encoder) -> None:
    run = encoder.depth.run
    vars(encoder.depth)["run"] = double(run)


@pytest.mark.parametrize(
    "edit",
    [
        lambda encoder: vars(encoder.config).update(layers=2),
        run_twice,
    ],
    ids=["config", "method"],
)
def test_a_configuration_that_is_edited_in_place_takes_effect(
    edit: Callable[[Encoder], object],
) -> None:
    """Although it is frozen."""
    check_edit(edit)


def test_a_configuration_edited_in_place_changes_no_part() -> None:
    """The activation is a module by then."""
    solver = solver_of()
    before = measure(solver)
    vars(solver.encoder.config)["activation"] = "gelu-tanh"
    assert_near(measure(solver), before)


def test_parts_of_the_last_layer_count_too() -> None:
    """Where layers have weights of their own."""
    for edit in (
        replace_class("layers.2.attention.query", Louder),
        replace_class("positions.2", LouderRelative),
        set_value("layers.2.feedforward_norm.eps", 1.0),
        patch_method("layers.2.feedforward", double),
        patch_method("layers.1.attention.forward", double),
    ):
        check_edit(edit, encoder="transformer")


@pytest.mark.parametrize(
    "edit",
    [
        set_value(f"{ATTENTION}.sink", True),
        set_value("classifier.scale", torch.ones(1)),
        lambda encoder: encoder.register_buffer("counts", torch.zeros(3)),
        lambda encoder: encoder.add_module("probe", nn.Linear(2, 2)),
        lambda encoder: delattr(encoder.layer(0).attention, "sharpness"),
    ],
    ids=["flag", "tensor", "buffer", "module", "missing"],
)
def test_an_attribute_that_nobody_knows_goes_to_pytorch(edit: Callable[[Encoder], object]) -> None:
    """It may mean something to a method that comes later."""
    solver = solver_of()
    assert_in_c(solver)
    edit(solver.encoder)
    assert is_sentence(reason_for(solver))


def test_embeddings_with_options_take_effect() -> None:
    """In gradients; `padding_idx` has none, and `scale_grad_by_freq` divides by the count."""
    for option in ("padding_idx", "scale_grad_by_freq"):
        for path in ("symbols", f"{POSITION}.table"):
            solver, name = solver_of(), f"encoder.{path}.weight"
            before = measure(solver)
            largest = int(before.gradients[name].abs().amax(1).argmax())
            value = largest if option == "padding_idx" else True
            set_value(f"{path}.{option}", value)(solver.encoder)
            after = measure(solver)
            with pytorch_alone():
                assert_same_bits(after, measure(solver))
            assert (after.gradients[name] - before.gradients[name]).abs().max() > 1e-4


def tie_weights(encoder: Encoder) -> None:
    attention: Any = encoder.layer(0).attention
    attention.key.weight = attention.query.weight


def tie_layers(encoder: Encoder) -> None:
    encoder.layers[1] = encoder.layers[0]


def replace_weight(encoder: Encoder) -> None:
    value: Any = encoder.get_submodule(f"{ATTENTION}.value")
    value.weight = nn.Parameter(value.weight.detach().flip(0))


def change_in_place(encoder: Encoder) -> None:
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(1.1)


def transpose_memory(encoder: Encoder) -> None:
    value: Any = encoder.get_submodule(f"{ATTENTION}.value")
    value.weight.data = value.weight.data.T.contiguous().T.flip(0).T


def load(encoder: Encoder) -> None:
    encoder.load_state_dict(solver_of(seed=1, encoder=encoder.config.encoder).encoder.state_dict())


@pytest.mark.parametrize(
    "edit", [tie_weights, tie_layers, replace_weight, change_in_place, transpose_memory, load]
)
def test_other_weights_take_effect(edit: Callable[[Encoder], None]) -> None:
    """In C or not, but at once, and with the gradients that they have by PyTorch."""
    solver = solver_of(encoder="transformer")
    before = measure(solver)
    edit(solver.encoder)
    after = measure(solver)
    with pytorch_alone():
        assert_near(after, measure(solver))
    assert_far(after, before)


def test_copies_of_an_edited_model_are_edited_and_the_original_is_not() -> None:
    solver = solver_of()
    before = measure(solver)
    copied = copy.deepcopy(solver)
    assert_in_c(copied)
    patch_method(f"{LAYER}.feedforward", double)(copied.encoder)
    assert is_sentence(reason_for(copied))
    assert_far(measure(copied), before)
    assert_in_c(solver)
    assert_same_bits(measure(solver), before)


def test_an_edit_that_is_undone_gives_the_c_code_back() -> None:
    solver = solver_of()
    before = measure(solver)
    attention: Any = solver.encoder.layer(0).attention
    softmax, attention.softmax = attention.softmax, nn.Sigmoid()
    assert is_sentence(reason_for(solver))
    attention.softmax = softmax
    attention.sink = True
    assert is_sentence(reason_for(solver))
    del attention.sink
    assert_in_c(solver)
    assert_same_bits(measure(solver), before)


@pytest.mark.parametrize(
    "edit",
    [
        replace_part(f"{LAYER}.widen", lambda _: nn.Linear(16, 63)),
        set_value(f"{ATTENTION}.heads", 5),
        replace_part(f"{LAYER}.attention_norm", lambda _: nn.LayerNorm(15)),
        patch_method("embed", lambda embed: lambda *a: embed(*a)[..., :-1]),
        patch_method(f"{POSITION}.vectors", lambda vectors: lambda p: vectors(p).double()),
        patch_method(f"{POSITION}.vectors", lambda vectors: lambda p: vectors(p).repeat(1, 1, 2)),
    ],
    ids=["inner width", "heads", "norm", "narrow input", "type", "width"],
)
def test_parts_that_do_not_fit_are_an_error_as_by_pytorch(
    edit: Callable[[Encoder], None],
) -> None:
    solver = solver_of()
    edit(solver.encoder)
    with pytest.raises(RuntimeError) as in_c:
        measure(solver)
    with pytorch_alone(), pytest.raises(RuntimeError) as by_pytorch:
        measure(solver)
    assert str(in_c.value) == str(by_pytorch.value)
