"""The kernels in C do what torch does: each of them, every kind of model, and where there are none."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise import kernels
from lengthwise.data import TrainingSet
from lengthwise.errors import UsageError
from lengthwise.experiment import Experiment, load
from lengthwise.model import Encoder, Layer
from lengthwise.positions import POSITIONS, Relative
from lengthwise.training import initial_solver

CLOSE = {"rtol": 1e-4, "atol": 2e-6}


pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")


@pytest.fixture(autouse=True)
def compiled():
    assert kernels.available(), kernels.library()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def with_gradients(function, *inputs: Tensor, of=torch.float32) -> list[Tensor]:
    """What a function gives, and the gradients of a random sum of that."""
    given = [x.to(of).requires_grad_() for x in inputs]
    y = function(*given)
    return [y, *torch.autograd.grad(y, given, random(*y.shape, seed=9).to(of))]


def check(ours, theirs, *inputs: Tensor) -> None:
    """Ours equals theirs in double precision, relative to the largest value, with all gradients."""
    exact = with_gradients(theirs, *inputs, of=torch.float64)
    for found, true in zip(with_gradients(ours, *inputs), exact, strict=True):
        scale = true.abs().max().clamp(min=1e-3)
        torch.testing.assert_close(found / scale, (true / scale).float(), **CLOSE)


# Sizes with and without a remainder in rows, columns and depth; from 48 rows on, and with columns by 32, by pairs.
SIZES = [(1, 1, 1), (7, 15, 128), (33, 5, 3), (96, 48, 32), (97, 50, 61), (120, 16, 100)]
SIZES += [(80, 64, 64), (83, 128, 5), (121, 64, 131), (200, 192, 3), (48, 32, 6), (51, 96, 1024)]


@pytest.mark.parametrize("size", SIZES)
def test_linear_maps(size: tuple[int, int, int]):
    m, n, k = size
    check(kernels.linear, F.linear, random(m, k), random(n, k, seed=1), random(n, seed=2))


def test_a_linear_map_is_as_exact_in_small_numbers_as_in_large_ones():
    """Each row and column relative to its own size, also where others are of another, or are no numbers."""
    sizes = 10.0 ** torch.arange(-12, 12, 0.2)[:, None]
    x, weight = random(120, 100) * sizes, random(128, 100, seed=1) * sizes[-1 - torch.arange(128) % 120]
    x[7, 3], x[9], x[119], weight[5] = torch.nan, torch.inf, 0, 0
    found, true = kernels.linear(x, weight, torch.zeros(128)), x.double() @ weight.double().T
    finite = x.isfinite().all(1)
    size = x[finite].double().norm(dim=1, keepdim=True) * weight.double().norm(dim=1)
    assert ((found[finite] - true[finite]).abs() <= 1e-6 * size).all()
    assert not found[~finite].isfinite().any()


def test_a_linear_map_is_as_exact_where_all_numbers_are_alike():
    """As tokens are in a gradient of weights, which is a sum over them."""
    x, weight, dy = 3 + random(2000, 64) / 100, random(64, 64, seed=1).requires_grad_(), random(2000, 64, seed=2)
    kernels.linear(x, weight, torch.zeros(64)).backward(dy)
    true = dy.double().T @ x.double()
    assert (weight.grad - true).abs().max() <= 1e-5 * true.abs().max()


@pytest.mark.parametrize("name", kernels.ACTIVATIONS)
def test_activations(name: kernels.ActivationName):
    theirs = {"relu": F.relu, "gelu": F.gelu, "gelu-tanh": lambda x: F.gelu(x, approximate="tanh")}[name]
    check(kernels.Activation(name), theirs, torch.linspace(-30, 30, 10_007))


@pytest.mark.parametrize("width", [3, 32, 37])
def test_norms(width: int):
    def ours(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return kernels.NormFunction.apply(x, more, weight, bias, 1e-5)

    def theirs(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x + more, (width,), weight, bias, 1e-5)

    tokens = random(5, 9, width), 5 + random(5, 9, width, seed=1)
    check(ours, theirs, *tokens, random(width, seed=2), random(width, seed=3))


@dataclass(frozen=True)
class Vectors:
    vectors: Tensor
    by_key: bool


@pytest.mark.parametrize("vectors", ["none", "by query", "by key too"])
@pytest.mark.parametrize("size", [(1, 1, 1, 1, 1), (3, 2, 5, 9, 7), (4, 3, 33, 40, 20), (2, 8, 16, 16, 16)])
def test_attention(size: tuple[int, ...], vectors: str):
    b, heads, i, j, d = size

    def ours(q: Tensor, k: Tensor, v: Tensor, relative: Tensor) -> Tensor:
        used = None if vectors == "none" else Vectors(relative, vectors == "by key too")
        return kernels.attend(q, k, v, heads, 0.3, used) + 0 * relative.sum()

    def theirs(q: Tensor, k: Tensor, v: Tensor, relative: Tensor) -> Tensor:
        q, k, v = (x.unflatten(2, (heads, d)).transpose(1, 2) for x in (q, k, v))
        scores = 0.3 * q @ k.mT + 0 * relative.sum()
        if vectors != "none":
            scores = scores + torch.einsum("bhid,ijd->bhij", q, relative)
        if vectors == "by key too":
            scores = scores + torch.einsum("bhjd,ijd->bhij", k, relative)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)

    tokens = [random(b, n, heads * d, seed=s) for s, n in enumerate((i, j, j))]
    check(ours, theirs, *tokens, random(i, j, d, seed=3))


@pytest.fixture(autouse=True)
def products_of_any_size_by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SMALL", 0)


def experiment(**settings: object) -> Experiment:
    # Not relu, whose slope jumps: a number that rounding moves across zero would change all gradients.
    sizes = {"model.layers": 3, "model.width": 24, "model.heads": 3, "model.activation": "gelu-tanh"}
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    return load(None, {"task": "addition", "data.test_digits": 7, **sizes, **dotted})


def logits_and_gradients(experiment: Experiment) -> tuple[Tensor, Tensor, dict[str, Tensor | None]]:
    """In training and in testing, and the gradients of all parameters."""
    solver = initial_solver(experiment).train()
    examples = TrainingSet(experiment.task, experiment.data, 0).batch(0, 8)
    torch.manual_seed(0)
    written = solver.write(examples.operands, examples.answer)
    logits, targets = solver.supervised(written), written.targets
    F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    with solver.testing():
        tested = solver(examples.operands)
    return logits.detach(), tested, {name: p.grad for name, p in solver.named_parameters()}


def compare(experiment: Experiment) -> None:
    ours = logits_and_gradients(experiment)
    with kernels.by_torch():
        theirs = logits_and_gradients(experiment)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("encoder", ["transformer", "universal-transformer"])
@pytest.mark.parametrize("position", POSITIONS)
def test_every_embedding_gives_what_it_gives_by_torch(position: str, encoder: str, norm: str):
    compare(experiment(model__position=position, model__encoder=encoder, model__norm=norm))


@pytest.mark.parametrize(
    "settings",
    [
        {"model__layers": 1},
        {"model__layers": 1, "model__activation": "relu"},
        {"model__activation": "gelu"},
        {"model__mask_padding": True},
        {"model__sink": True},
        {"model__dropout": 0.2},
        {"model__attention_dropout": 0.2},
        {"model__embedding_width": 10},
        {"model__recall": True},
        {"model__window": 2},
        {"model__scale_relative": True, "model__position": "relative-key-query"},
        {"model__position": {"kind": "relative-key", "coordinate": "significance"}},
        {"precision": "bfloat16"},
        {"model__width": kernels.WIDEST + 8, "model__heads": 4, "model__layers": 1},
        {"model__width": 64, "model__heads": 4},
        {"model__width": 64, "model__heads": 4, "model__feedforward_width": 100, "model__encoder": "transformer"},
    ],
    ids=str,
)
def test_every_kind_of_layer_gives_what_it_gives_by_torch(settings: dict[str, object]):
    compare(experiment(**settings))


def test_a_result_depends_on_no_number_of_threads():
    tried = experiment(model__position="relative-key-query", model__width=64, model__heads=4)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(logits_and_gradients(tried))
        finally:
            torch.set_num_threads(1)
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("looked_up", [True, False])
@pytest.mark.parametrize("position", ["absolute", "relative-key-query"])
def test_problems_are_solved_as_if_each_were_alone(position: str, looked_up: bool):
    """More than go through all layers at a time; their input looked up, or as it is if something looks at it."""
    solver = initial_solver(experiment(model__position=position, model__width=64, model__heads=4))
    if not looked_up:
        solver.encoder.symbols.register_forward_hook(lambda module, inputs, output: None)
    operands = TrainingSet(solver.task, experiment().data, 0).batch(0, 100).operands
    with solver.testing():
        alone = [solver(tuple(numbers[i : i + 1] for numbers in operands)) for i in range(100)]
        torch.testing.assert_close(solver(operands), torch.cat(alone), rtol=0, atol=1e-5)  # one by one without pairs


@pytest.mark.parametrize("where", ["activation", "attention.output", "attention", ""])
def test_a_hook_sees_what_goes_through_and_changes_nothing(where: str):
    solver = initial_solver(experiment()).eval()
    (layer,) = solver.encoder.layers
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)
    before, seen = solver(examples.operands), []
    hook = layer.get_submodule(where).register_forward_hook(lambda module, inputs, output: seen.append(output))
    torch.testing.assert_close(solver(examples.operands), before)
    assert [output.shape[-1] for output in seen] == 3 * [4 * 24 if where == "activation" else 24]
    hook.remove()
    assert torch.equal(solver(examples.operands), before)
    assert len(seen) == 3


@pytest.mark.parametrize("position", ["absolute", "relative-key"])
@pytest.mark.parametrize("where", ["symbols", "embedding_norm", "layers.0.attention.qkv"])
def test_a_hook_on_the_input_sees_every_token(where: str, position: str):
    """Where nothing looks, each symbol is projected once."""
    solver = initial_solver(experiment(model__position=position)).eval()
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)
    before, seen = solver(examples.operands), []
    part = solver.encoder.get_submodule(where)
    part.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    torch.testing.assert_close(solver(examples.operands), before)
    assert seen[0][:2] == (4, solver.layout.length)


class Louder(kernels.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


class Wrapped(torch.nn.Module):
    def __init__(self, inside: torch.nn.Module):
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x) * 2


class Feedforward(Layer):
    def feedforward(self, x: Tensor) -> Tensor:
        return super().feedforward(x) * 2


class Between(Encoder):
    def apply_layer(self, i: int, x: Tensor, *rest: object) -> Tensor:
        return super().apply_layer(i, x * (1 + i), *rest)


def without_position() -> torch.nn.Module:
    return initial_solver(experiment(model__position="none")).encoder.positions[0]


def set_on(module: torch.nn.Module, **values: object) -> None:
    for name, value in values.items():
        setattr(module, name, value)


@pytest.mark.parametrize(
    "alter",
    [
        lambda encoder: set_on(encoder.layers[1], narrow=Louder(4 * 24, 24)),
        lambda encoder: set_on(encoder.layers[1], narrow=Wrapped(encoder.layers[1].narrow)),
        lambda encoder: set_on(encoder.layers[1], __class__=Feedforward),
        lambda encoder: set_on(encoder, __class__=Between),
        lambda encoder: set_on(encoder.layers[1].narrow, forward=lambda x: x[..., :24]),
        lambda encoder: set_on(encoder.layers[1], activation=kernels.Activation("relu")),
        lambda encoder: set_on(encoder.layers[1], widen=kernels.Linear(24, 7), narrow=kernels.Linear(7, 24)),
        lambda encoder: set_on(encoder.layers[1].attention, scale=2.0),
        lambda encoder: set_on(encoder.layers[0].feedforward_norm, eps=1.0),
        lambda encoder: set_on(encoder.layers[1].attention_norm, eps=1.0),
        lambda encoder: encoder.positions.__setitem__(0, without_position()),
        lambda encoder: encoder.positions.__setitem__(1, without_position()),
        lambda encoder: set_on(encoder.embedding_norm, eps=1.0),
        lambda encoder: set_on(encoder, embedding_norm=Wrapped(encoder.embedding_norm)),
        lambda encoder: set_on(encoder.embedding_norm, bias=None),
        lambda encoder: set_on(encoder, project=kernels.Linear(24, 24)),
        lambda encoder: set_on(encoder, dropout=torch.nn.Tanh()),
        lambda encoder: set_on(encoder, classifier=Louder(24, len(encoder.symbols.weight))),
        lambda encoder: set_on(encoder, classifier=Wrapped(encoder.classifier)),
        lambda encoder: set_on(encoder.classifier, bias=None),
        lambda encoder: set_on(encoder, final_norm=torch.nn.Tanh()),
        lambda encoder: encoder.final_norm.register_forward_hook(lambda module, inputs, output: output * 2),
        lambda encoder: encoder.classifier.register_forward_hook(lambda module, inputs, output: output * 2),
    ],
    ids=[
        *("part", "wrapped part", "kind of layer", "kind of encoder", "method", "activation", "sizes", "scale"),
        *("epsilon in a layer", "epsilon of a layer", "first position", "other position"),
        *("epsilon of the embedding", "embedding norm", "embedding norm's bias", "projection", "kind of dropout"),
        *(
            "classifier",
            "wrapped classifier",
            "classifier's bias",
            "final norm",
            "hook before the classifier",
            "hook on the classifier",
        ),
    ],
)
def test_what_somebody_has_changed_in_a_model_is_used(alter):
    solver = initial_solver(experiment(model__encoder="transformer")).eval()
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)

    def answers() -> Tensor:
        generator = torch.Generator().manual_seed(0)
        for parameter in solver.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
        return solver(examples.operands)

    before = answers()
    alter(solver.encoder)
    found = answers()
    with kernels.by_torch():
        torch.testing.assert_close(found, answers(), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, before, rtol=0, atol=1e-3)


class LouderRelative(Relative):
    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return 2 * super().scores(q, k)


def own_relative(change: Callable[[Relative], Relative]) -> Callable[[Encoder], None]:
    """An embedding whose vectors are changed so."""

    def alter(encoder: Encoder) -> None:
        position = encoder.positions[0]
        relative = position.relative
        position.relative = lambda view: change(relative(view))

    return alter


@pytest.mark.parametrize(
    "alter",
    [
        own_relative(lambda relative: replace(relative, rows=relative.rows[:1])),
        own_relative(lambda relative: replace(relative, rows=relative.rows[:, :1])),
        own_relative(lambda relative: replace(relative, table=relative.table[:, :1])),
        own_relative(lambda relative: LouderRelative(relative.table, relative.rows)),
        lambda encoder: set_on(encoder.positions[0], scores=lambda q, k, view: 3 * view.distance("index").tanh()),
        lambda encoder: set_on(encoder.positions[0], rotate=lambda q, k, at: (q * 2, k)),
        lambda encoder: set_on(encoder.positions[0], embed=lambda x, at: x + x.roll(1, -1) * at.index[:, None]),
    ],
    ids=["by key", "by query", "one number", "own product", "own scores", "own rotation", "own embedding"],
)
def test_what_an_embedding_does_its_own_way_is_done_so(alter):
    solver = initial_solver(experiment()).eval()
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)
    before = solver(examples.operands)
    alter(solver.encoder)
    found = solver(examples.operands)
    with kernels.by_torch():
        torch.testing.assert_close(found, solver(examples.operands), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, before, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    "alter",
    [
        own_relative(lambda relative: replace(relative, table=relative.table.double())),
        own_relative(lambda relative: replace(relative, table=relative.table.repeat(1, 2))),
        own_relative(lambda relative: replace(relative, table=relative.table[:, None].repeat(1, 3, 1))),
        lambda encoder: set_on(encoder.positions[0], embed=lambda x, at: x[..., :-1]),
        lambda encoder: set_on(encoder.positions[0], embed=lambda x, at: torch.cat([x, x], -1)),
        lambda encoder: set_on(encoder.layers[0], widen=kernels.Linear(24, 95)),
        lambda encoder: set_on(encoder.layers[0].attention, heads=5),
        lambda encoder: set_on(encoder.layers[0], attention_norm=kernels.Norm(23)),
    ],
    ids=["type", "width", "dimensions", "narrow input", "wide input", "inner width", "heads", "norm"],
)
def test_what_does_not_fit_is_an_error_as_with_torch(alter):
    solver = initial_solver(experiment()).eval()
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)
    alter(solver.encoder)
    for by in (nullcontext, kernels.by_torch):
        with by(), pytest.raises(RuntimeError):
            solver(examples.operands)


def test_tokens_that_do_not_fit_are_an_error():
    q, narrow = random(2, 5, 8), random(2, 5, 6)
    for given in ((q, narrow, q), (q, q, narrow), (narrow, q, q), (q, q[:1], q)):
        with pytest.raises(ValueError, match="don't fit"):
            kernels.attend(*given, 2, 1.0)
    with pytest.raises(ValueError, match="don't fit"):
        kernels.attend(q, q, q, 3, 1.0)
    for module in (kernels.Linear(6, 3), kernels.Norm(6)):
        with pytest.raises(RuntimeError):
            module(q)


def test_a_hook_on_the_way_back_is_called():
    solver = initial_solver(experiment()).train()
    (layer,) = solver.encoder.layers
    examples, called = TrainingSet(solver.task, experiment().data, 0).batch(0, 4), []
    for module in (layer, layer.narrow):
        module.register_full_backward_pre_hook(lambda module, gradients: called.append(type(module)))
    solver.supervised(solver.write(examples.operands, examples.answer)).sum().backward()
    assert sorted(map(str, called)) == sorted(3 * [str(kernels.Linear)] + 3 * [str(Layer)])


def test_dropout_in_testing_is_used():
    solver = initial_solver(experiment(model__dropout=0.5)).eval()
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)
    assert torch.equal(solver(examples.operands), solver(examples.operands))
    solver.encoder.layers[0].dropout.train()
    assert not torch.equal(solver(examples.operands), solver(examples.operands))


@pytest.mark.parametrize("by", [nullcontext, kernels.by_torch])
def test_more_positions_than_there_are_cannot_be_read(by):
    solver = initial_solver(experiment()).eval()
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)
    with by(), pytest.raises(UsageError, match="100 positions can't be read"):
        solver.logits(solver.layout, examples.operands, 100)


def test_gradients_and_tokens_that_lie_otherwise_in_memory():
    q = random(8, 21, 32).requires_grad_()
    (found,) = torch.autograd.grad(kernels.attend(q, q, q, 4, 0.3).sum(), q)  # whose gradient is one number, expanded
    (same,) = torch.autograd.grad((kernels.attend(q, q, q, 4, 0.3) * torch.ones(8, 21, 32)).sum(), q)
    assert torch.equal(found, same)
    x = random(1, 5, 12).transpose(0, 1)  # one token in each example, and a stride between tokens of 60
    torch.testing.assert_close(kernels.attend(x, x, x, 2, 0.3), x)


def test_a_graph_can_be_gone_through_twice():
    solver = initial_solver(experiment()).train()
    examples = TrainingSet(solver.task, experiment().data, 0).batch(0, 4)
    loss = solver.supervised(solver.write(examples.operands, examples.answer)).square().sum()
    first, second = (torch.autograd.grad(loss, list(solver.parameters()), retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_a_number_that_is_none_stays_so():
    bad = torch.tensor([[float("nan"), *7 * [1.0]]])
    for name in kernels.ACTIVATIONS:
        assert kernels.Activation(name)(bad).isnan().tolist() == [[True, *7 * [False]]]
    tokens = torch.ones(1, 2, 8)
    assert kernels.attend(tokens, tokens * float("inf"), tokens, 2, 1.0).isnan().all()


def test_second_derivatives_are_refused_and_torch_has_them():
    x, weight, bias = (random(*shape).requires_grad_() for shape in ((2, 3), (4, 3), (4,)))
    for by_torch in (False, True):
        with kernels.by_torch() if by_torch else nullcontext():
            loss = kernels.linear(x, weight, bias).pow(3).sum()
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            with nullcontext() if by_torch else pytest.raises(RuntimeError, match="once_differentiable"):
                slope.sum().backward()


@pytest.mark.parametrize("clip", [None, 0.5, 1e6], ids=["not clipped", "clipped", "within the norm"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_optimiser_is_torchs(clip: float | None, threads: int):
    """Tensors smaller and larger than what a thread takes at a time; one has no gradient in some steps."""
    shapes = [(3,), (130, 127), (5, 7), (40_000,)]
    ours, theirs = ([random(*shape, seed=n).requires_grad_() for n, shape in enumerate(shapes)] for _ in range(2))
    options = {"lr": 0.01, "betas": (0.9, 0.98), "weight_decay": 0.3, "fused": True}
    optimizers = [torch.optim.AdamW(parameters, **options) for parameters in (ours, theirs)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for step in range(6):
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
            for n, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                given = n != 2 or step not in (0, 3)
                a.grad, b.grad = (random(*a.shape, seed=10 * step + n) if given else None for _ in range(2))
            kernels.adamw(optimizers[0], clip)
            with kernels.by_torch():
                kernels.adamw(optimizers[1], clip)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
        for key in ("step", "exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(optimizers[0].state[a][key], optimizers[1].state[b][key], rtol=1e-5, atol=1e-7)


def test_a_gradient_that_is_no_number_makes_weights_that_are_none():
    weights = random(40).requires_grad_()
    optimizer = torch.optim.AdamW([weights], fused=True)
    for value in (1.0, float("nan")):
        weights.grad = torch.full((40,), value)
        kernels.adamw(optimizer, 1.0)
    assert weights.isnan().all()


def test_a_graph_from_before_a_step_of_the_optimiser_is_refused():
    weights = random(40).requires_grad_()
    optimizer = torch.optim.AdamW([weights], fused=True)
    for _ in range(2):
        old = weights.square().sum()
        weights.grad = torch.ones(40)
        kernels.adamw(optimizer, 1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old.backward()


def test_transforms_of_functions_are_by_torch():
    solver = initial_solver(experiment()).eval()
    layer = solver.encoder.layers[0]
    x, stacked = random(5, 24), random(3, 5, 24)
    torch.testing.assert_close(torch.func.vmap(layer.feedforward)(stacked)[0], layer.feedforward(stacked[0]))
    assert torch.func.jacrev(layer.feedforward)(x).shape == (5, 24, 5, 24)


@pytest.mark.parametrize("position", ["absolute", "relative-key"])
def test_gradients_of_each_example_by_a_transform(position: str):
    solver = initial_solver(experiment(model__position=position))
    operands = TrainingSet(solver.task, experiment().data, 0).batch(0, 4).operands
    tokens = torch.from_numpy(solver.layout.encode(operands))
    at, encoder = solver.layout.coordinates(operands).map(torch.from_numpy), solver.encoder

    def size(parameters: dict[str, Tensor], some: Tensor) -> Tensor:
        return torch.func.functional_call(encoder, parameters, (some, at, 5)).square().sum()

    parameters = dict(encoder.named_parameters())
    of_each = torch.func.vmap(torch.func.grad(size), in_dims=(None, 0))(parameters, tokens[:, None])
    encoder(tokens, at, 5).square().sum().backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(of_each[name].sum(0), parameter.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("settings", "kernels", "told"),
    [
        ({}, "C", ""),
        ({"LENGTHWISE_KERNELS": "torch"}, "torch", ""),
        ({"CC": "no-such-compiler"}, "torch", "slower: no-such-compiler didn't compile kernels.c"),
        ({"CC": ""}, "C", ""),
        ({"CC": "false"}, "torch", "slower: false didn't compile kernels.c: Command"),
        ({"CC": "'"}, "torch", "slower: ' didn't compile kernels.c: No closing quotation"),
    ],
    ids=["usual", "not wanted", "no compiler", "no name", "broken compiler", "broken name"],
)
def test_without_a_compiler_torch_does_it_and_says_so(settings: dict[str, str], kernels: str, told: str, tmp_path):
    code = "from lengthwise import machine; machine.prepare('cpu', 1); print(machine.describe('cpu')['kernels'])"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), **settings}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    assert done.stdout.strip() == kernels
    assert told in done.stderr if told else not done.stderr
    assert len(list(tmp_path.glob("lengthwise/*.so"))) == (kernels == "C")


@pytest.mark.parametrize("paired", [0, 1])
def test_products_are_right_with_pairs_and_without_them(paired: int, tmp_path):
    """Whichever of both this processor has."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CC": f"cc -DPAIRED={paired}"}
    chosen = [__file__, "-k", "linear_map or every_kind_of_layer or number_of_threads"]
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout


def test_a_damaged_library_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = kernels.compiled(["cc"])
    whole, made = kept.read_bytes(), kept.stat().st_mtime_ns
    assert kernels.compiled(["cc"]) == kept
    assert kept.stat().st_mtime_ns == made
    kept.write_bytes(whole[: len(whole) // 2])
    again = kernels.compiled(["cc"])
    assert again.stem.endswith(kernels.digest(again.read_bytes()))
    assert len(again.read_bytes()) == len(whole)


def test_other_kernels_than_there_are_is_an_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "lengthwise", "train", "--training.steps", "1"],
        capture_output=True,
        text=True,
        env={**os.environ, "LENGTHWISE_KERNELS": "numpy"},
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert done.stderr == "lengthwise: LENGTHWISE_KERNELS is 'numpy'; it can be C, as it is by default, or torch\n"
