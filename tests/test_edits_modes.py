"""Whatever PyTorch can do with a model, it still does.

Each case is compared with PyTorch alone.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
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
    batch_for,
    both,
    check_edit,
    is_sentence,
    loss_of,
    measure,
    pytorch_alone,
    reason_for,
    solver_of,
    train_step,
)
from pairwise import pairwise
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils import parametrize, prune
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from lengthwise.model import Encoder
from lengthwise.problems.batch import TrainingBatch
from lengthwise.solver import Solver


@pytest.fixture(autouse=True)
def with_the_c_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_FAST", "on")


def test_dropout_left_on_in_testing_takes_effect() -> None:
    solver = solver_of().eval()
    batch = batch_for(solver)
    before = solver(batch)
    for probability in (None, 0.5):  # with p 0 it drops nothing, but it is not what was verified
        dropout: Any = solver.encoder.layer(0).attention.get_submodule("dropout")
        dropout.train()
        assert is_sentence(reason_for(solver))
        if probability:
            dropout.p = probability
            torch.manual_seed(0)
            first, second = solver(batch), solver(batch)
            assert (first - second).abs().max() > 1e-3
            with pytorch_alone():
                torch.manual_seed(0)
                assert torch.equal(first, solver(batch))
        else:
            torch.testing.assert_close(solver(batch), before, rtol=1e-5, atol=1e-5)


def test_dropout_in_training_takes_effect() -> None:
    fields: list[dict[str, Any]] = [{"dropout": 0.3}, {"attention_dropout": 0.3}]
    for field in fields:
        solver = solver_of(**field)
        reason = reason_for(solver)
        allowed, alone = both(lambda: measure(solver))  # noqa: B023
        assert_near(allowed, alone)
        assert torch.equal(allowed.logits, alone.logits)
        assert is_sentence(reason)
        assert (allowed.logits - allowed.tested).abs().max() > 1e-3
        assert_in_c(solver.eval())


@pytest.mark.parametrize(
    ("position", "path"),
    [
        ("absolute", "symbols"),
        ("absolute", "positions.0.table"),
        ("relative-key", "positions.0.table"),
    ],
)
def test_a_norm_limit_of_an_embedding_takes_effect(position: str, path: str) -> None:
    """PyTorch shortens the vectors in place when they are looked up."""

    def edit(encoder: Encoder) -> None:
        embedding: Any = encoder.get_submodule(path)
        embedding.max_norm = 0.1

    check_edit(edit, position=position)


@pytest.mark.parametrize(
    ("position", "encoder", "layers"),
    pairwise(
        ["relative-key", "relative-key-query", "absolute"],
        ["transformer", "universal-transformer"],
        [None, 5],
    ),
)
def test_a_gradient_penalty_has_the_gradients_of_pytorch(
    position: str, encoder: str, layers: int | None
) -> None:
    solver = solver_of(position=position, encoder=encoder, activation="gelu-tanh")
    assert_in_c(solver)
    batch = batch_for(solver)

    def penalty() -> list[Tensor]:
        solver.zero_grad()
        loss = F.cross_entropy(solver(batch, layers).flatten(0, 1), batch.targets.flatten())
        slopes = torch.autograd.grad(
            loss, list(solver.parameters()), create_graph=True, materialize_grads=True
        )
        sum((slope.square().sum() for slope in slopes), loss).backward()
        return [p.grad.clone() for p in solver.parameters() if p.grad is not None]

    ours, theirs = both(penalty)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, b.abs().max().item()))


def test_a_graph_can_be_gone_through_twice() -> None:
    solver = solver_of()
    loss, parameters = loss_of(solver, batch_for(solver)), list(solver.parameters())
    first, second = (torch.autograd.grad(loss, parameters, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    torch.autograd.grad(loss, parameters)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, parameters)


def test_weights_changed_before_the_backward_pass_are_an_error_as_by_pytorch() -> None:
    solver = solver_of()

    def step() -> str:
        loss = loss_of(solver, batch_for(solver))
        with torch.no_grad():
            solver.encoder.layer(0).widen.weight.mul_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            loss.backward()
        return type(caught.value).__name__

    assert both(step)[0] == "RuntimeError"


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_gives_the_same_gradients(reentrant: bool) -> None:
    solver = solver_of()
    expected = measure(solver)
    batch = batch_for(solver)

    def gradients() -> dict[str, Tensor]:
        solver.zero_grad()
        anchor = torch.zeros((), requires_grad=True)  # the reentrant kind needs one

        def forward(nothing: Tensor) -> Tensor:
            return solver(batch) + nothing

        logits = checkpoint(forward, anchor, use_reentrant=reentrant)
        assert isinstance(logits, Tensor)
        F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
        return {name: p.grad for name, p in solver.named_parameters() if p.grad is not None}

    for found in both(gradients):
        assert found.keys() == expected.gradients.keys()
        for name, gradient in found.items():
            torch.testing.assert_close(gradient, expected.gradients[name], rtol=1e-4, atol=1e-5)


def test_saved_tensors_go_through_their_hooks() -> None:
    solver = solver_of()

    def saved() -> int:
        seen: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            seen.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            train_step(solver)
        return len(seen)

    allowed, alone = both(saved)
    assert allowed == alone > 10


def test_other_precisions_are_pytorchs() -> None:
    for dtype in (torch.float64, torch.bfloat16):
        solver = solver_of().to(dtype)
        reason = reason_for(solver)
        allowed, alone = both(lambda: measure(solver))  # noqa: B023
        assert_same_bits(allowed, alone)
        assert allowed.logits.dtype == dtype
        assert reason == "tensors are not float32 on the CPU"
    solver = solver_of()
    with torch.no_grad():
        solver.encoder.classifier.weight.data = solver.encoder.classifier.weight.data.double()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="dtype"):
            solver(batch_for(solver))


def test_autocast_is_pytorchs() -> None:
    solver = solver_of()
    before = measure(solver)

    def cast() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return measure(solver)

    allowed, alone = both(cast)
    assert_same_bits(allowed, alone)
    assert allowed.logits.dtype == torch.bfloat16
    assert (allowed.logits - before.logits).abs().max() > 1e-3


def functional_loss(solver: Solver, batch: TrainingBatch) -> Callable[..., Tensor]:
    def loss(parameters: dict[str, Tensor]) -> Tensor:
        logits: Any = torch.func.functional_call(solver, parameters, (batch,))
        return F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())

    return loss


def test_many_gradients_at_once_are_pytorchs() -> None:
    solver = solver_of()
    weight = solver.encoder.layer(0).widen.bias

    def rows() -> Tensor:
        logits = solver(batch_for(solver)).flatten()[:3]
        return torch.autograd.grad(logits, weight, torch.eye(3), is_grads_batched=True)[0]

    torch.testing.assert_close(*both(rows), rtol=1e-4, atol=1e-5)


def test_a_lower_precision_of_products_is_pytorchs() -> None:
    solver = solver_of()
    torch.set_float32_matmul_precision("medium")
    try:
        allowed, alone = both(lambda: measure(solver))
        assert is_sentence(reason_for(solver))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert_same_bits(allowed, alone)


@pytest.mark.parametrize(("n_out", "layers"), [(0, None), (-1, None), (3, -1), (3, True)])
def test_odd_sizes_give_what_they_give_by_pytorch(n_out: int, layers: int | None) -> None:
    solver = solver_of().eval()
    batch = replace(batch_for(solver), n_out=n_out)
    allowed, alone = both(lambda: solver(batch, layers))
    assert allowed.shape == alone.shape
    torch.testing.assert_close(allowed, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make", [Tensor.to_sparse, lambda _: torch._efficientzerotensor((64, 16))], ids=["sparse", "0"]
)
def test_tensors_without_memory_of_their_own_are_pytorchs(make: Callable[[Tensor], Tensor]) -> None:
    solver = solver_of().eval()
    widen = solver.encoder.layer(0).widen
    widen.weight = nn.Parameter(make(widen.weight.detach()), requires_grad=False)
    allowed, alone = both(lambda: solver(batch_for(solver)))
    assert torch.equal(allowed, alone)
    assert is_sentence(reason_for(solver))


def test_function_transforms_are_pytorchs() -> None:
    """grad, vmap over stacked models, jvp, and other parameters in a call."""
    solver = solver_of()
    expected = measure(solver).gradients
    loss = functional_loss(solver, batch_for(solver))
    parameters = {name: p.detach() for name, p in solver.named_parameters()}
    gradients = torch.func.grad(loss)(parameters)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-5)
    others = {name: p.detach() for name, p in solver_of(seed=1).named_parameters()}
    stacked = {name: torch.stack([p, others[name]]) for name, p in parameters.items()}
    losses = torch.func.vmap(loss)(stacked)
    torch.testing.assert_close(losses, torch.stack([loss(parameters), loss(others)]))
    tangents = {name: torch.ones_like(p) for name, p in parameters.items()}
    slope = torch.func.jvp(loss, (parameters,), (tangents,))[1]
    torch.testing.assert_close(
        slope, sum(g.sum() for g in gradients.values()), rtol=1e-3, atol=1e-3
    )


def test_gradients_of_each_example_by_a_transform() -> None:
    solver = solver_of()
    batch = batch_for(solver)
    parameters = {name: p.detach() for name, p in solver.named_parameters()}

    def size(parameters: dict[str, Tensor], tokens: Tensor) -> Tensor:
        one = TrainingBatch(**{**vars(batch), "tokens": tokens[None]})
        logits: Any = torch.func.functional_call(solver, parameters, (one,))
        return logits.square().sum()

    each = torch.func.vmap(torch.func.grad(size), in_dims=(None, 0))(parameters, batch.tokens)
    solver.zero_grad()
    solver(batch).square().sum().backward()
    for name, parameter in solver.named_parameters():
        torch.testing.assert_close(each[name].sum(0), parameter.grad, rtol=1e-3, atol=1e-3)


def test_forward_mode_differentiation_is_pytorchs() -> None:
    solver = solver_of()
    batch, weight = batch_for(solver), solver.encoder.layer(0).widen.weight

    def slope() -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(weight.detach(), torch.ones_like(weight))
            given = {"encoder.layers.0.widen.weight": dual}
            logits: Any = torch.func.functional_call(solver, given, (batch,))
            tangent = torch.autograd.forward_ad.unpack_dual(logits).tangent
            assert tangent is not None
            return tangent

    allowed, alone = both(slope)
    assert torch.equal(allowed, alone)
    assert allowed.abs().max() > 1e-3


class Names(TorchFunctionMode):
    """Collects the functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen[getattr(function, "__name__", str(function))] += 1
        return function(*args, **(kwargs or {}))


class Operations(TorchDispatchMode):
    """Collects the operations that are dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Names, Operations])
def test_modes_see_every_operation(mode: type[Names | Operations]) -> None:
    solver = solver_of()

    def see() -> Counter[str]:
        with mode() as active:
            train_step(solver)
        return active.seen

    allowed, alone = both(see)
    softmax = "softmax" if mode is Names else "aten._softmax.default"
    assert allowed[softmax] == alone[softmax] == 3
    matmul = "matmul" if mode is Names else "aten.bmm.default"
    assert allowed[matmul] == alone[matmul] > 0


def test_floating_point_operations_are_counted() -> None:
    solver = solver_of()

    def count() -> int:
        with FlopCounterMode(display=False) as counter:
            train_step(solver)
        return counter.get_total_flops()

    allowed, alone = both(count)
    assert allowed == alone > 10_000


def test_fake_tensors_have_shapes_only() -> None:
    solver = solver_of()
    batch = batch_for(solver)
    with FakeTensorMode(allow_non_fake_inputs=True):
        logits = solver(batch)
    assert isinstance(logits, FakeTensor)
    assert logits.shape == (5, batch.n_out, 15)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_is_a_function_of_its_input() -> None:
    solver = solver_of().eval().requires_grad_(False)
    batch, other = batch_for(solver), batch_for(solver).tokens.flip(0)

    def logits(tokens: Tensor) -> Tensor:
        return solver(TrainingBatch(**{**vars(batch), "tokens": tokens}))

    traced: Any = torch.jit.trace(logits, (batch.tokens,), check_trace=False)
    torch.testing.assert_close(traced(other), logits(other), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(traced(other), logits(batch.tokens))


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


REPARAMETRISED: dict[str, Callable[[nn.Module], object]] = {
    "parametrize": lambda part: parametrize.register_parametrization(part, "weight", Doubled()),
    "weight norm": lambda part: scale(torch.nn.utils.parametrizations.weight_norm(part)),
    "spectral norm": torch.nn.utils.parametrizations.spectral_norm,
    "pruning": lambda part: prune.l1_unstructured(part, "weight", amount=0.5),
}  # fmt: skip


def scale(part: nn.Module) -> None:
    """Weight norm alone changes no weight; its length does."""
    with torch.no_grad():
        part.get_parameter("parametrizations.weight.original0").mul_(2)


@pytest.mark.parametrize("name", REPARAMETRISED)
def test_a_reparametrised_weight_takes_effect(name: str) -> None:
    for path in ("layers.0.attention.query", "layers.0.widen", "classifier"):

        def edit(encoder: Encoder, path: str = path) -> None:
            REPARAMETRISED[name](encoder.get_submodule(path))

        check_edit(edit)


def test_frozen_parameters_have_no_gradients_and_the_others_keep_theirs() -> None:
    for frozen in ("layers.0.attention", "layers.0.widen", "positions", "symbols", "layers"):
        solver = solver_of(position="relative-key-query")
        expected = measure(solver)
        solver.encoder.get_submodule(frozen).requires_grad_(False)
        solver.zero_grad(set_to_none=True)
        found = measure(solver)
        names = {name for name, p in solver.named_parameters() if p.requires_grad}
        assert found.gradients.keys() == names
        for name in names:
            torch.testing.assert_close(
                found.gradients[name], expected.gradients[name], rtol=1e-4, atol=1e-6
            )
    solver.requires_grad_(False)
    assert not solver(batch_for(solver)).requires_grad


@pytest.mark.parametrize(
    ("value", "encoder"),
    [
        (1e15, "universal-transformer"),
        (1e19, "transformer"),
        (-1e25, "universal-transformer"),
        (1e30, "transformer"),
        (-1e38, "universal-transformer"),
        (float("inf"), "transformer"),
        (float("nan"), "universal-transformer"),
    ],
)
def test_an_extreme_weight_gives_what_it_gives_by_pytorch(value: float, encoder: str) -> None:
    """In each tensor: what is finite by PyTorch is, and logits have its values."""
    solver = solver_of(activation="gelu-tanh", encoder=encoder, layers=2)
    for name, parameter in solver.encoder.named_parameters():
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.view(-1)[5] = value
        allowed, alone = both(lambda: measure(solver).tensors())
        for part, tensor in alone.items():
            finite = tensor.isfinite()
            assert torch.equal(allowed[part].isfinite(), finite), (name, part)
        if alone["logits"].isfinite().all():
            scale = alone["logits"].abs().max()
            assert ((allowed["logits"] - alone["logits"]).abs() < 1e-3 * scale).all(), name
        parameter.data.copy_(kept)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.filterwarnings("ignore:Error detected in")
def test_anomalies_are_detected() -> None:
    solver = solver_of()
    with torch.no_grad():
        solver.encoder.layer(0).widen.weight[0, 0] = float("nan")

    def detect() -> str:
        detection = torch.autograd.set_detect_anomaly(True)
        with detection, pytest.raises(RuntimeError, match="returned nan values") as caught:
            train_step(solver)
        return type(caught.value).__name__

    both(detect)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, nullcontext])
def test_testing_modes_give_the_same_logits(context: Callable[[], Any]) -> None:
    solver = solver_of().eval()
    batch = batch_for(solver)
    with context():
        logits = solver(batch)
    assert torch.equal(logits, solver(batch))
    assert logits.requires_grad is (context is nullcontext)


def test_tensors_of_other_kinds_are_pytorchs() -> None:
    class Noted(nn.Parameter):
        pass

    class Logged(Tensor):
        pass

    solver = solver_of()
    expected = measure(solver)
    attention: Any = solver.encoder.layer(0).attention
    attention.query.weight = Noted(attention.query.weight.detach())
    assert is_sentence(reason_for(solver))
    assert_near(measure(solver), expected)
    solver, batch = solver_of(), batch_for(solver_of())
    logits = solver(TrainingBatch(**{**vars(batch), "tokens": batch.tokens.as_subclass(Logged)}))
    assert type(logits) is Logged
    far = measure(solver_of(seed=1))
    assert_far(far, expected)
