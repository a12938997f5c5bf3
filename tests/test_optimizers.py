"""Optimisers against PyTorch's AdamW, the singular value decomposition, and written-out updates."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lengthwise.solver import Solver
from lengthwise.training import keys
from lengthwise.training.loop import initial_solver
from lengthwise.training.optimizers import OPTIMIZERS, Muon, Optimizer, orthogonalise

BETAS, DECAY = (0.8, 0.9), 0.3
BAND = 0.65, 1.25  # where five iterations leave singular values


def make_solver(**model: Any) -> Solver:
    fields = {"preset": "tiny", "position": "relative-key-query", **model}
    return initial_solver(keys.parse({"model": fields}))


def make_optimizer(value: object, model: nn.Module, rate: float = 0.01) -> torch.optim.Optimizer:
    choice = OPTIMIZERS.parse(value)
    assert isinstance(choice, Optimizer)
    optimizer = choice.build(model, BETAS, DECAY)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return optimizer


def set_gradients(model: nn.Module, step: int) -> None:
    rng = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=rng)


def matrix_of(singular: Tensor, rows: int, columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A matrix with these singular values, and the orthogonal matrix nearest to it, U·Vᵀ."""
    rng = torch.Generator().manual_seed(seed)
    u, _ = torch.linalg.qr(torch.randn(rows, len(singular), generator=rng))
    v, _ = torch.linalg.qr(torch.randn(columns, len(singular), generator=rng))
    return u @ singular.diag() @ v.mT, u @ v.mT


def test_adamw_is_pytorchs() -> None:
    ours, theirs = make_solver(), make_solver()
    optimizer = make_optimizer("adamw", ours)
    reference = torch.optim.AdamW(
        theirs.parameters(), 0.01, BETAS, weight_decay=DECAY, foreach=False, fused=False
    )
    for step in range(5):
        for model, used in ((ours, optimizer), (theirs, reference)):
            set_gradients(model, step)
            used.step()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter, theirs.get_parameter(name), rtol=1e-5, atol=1e-7)


def test_muon_treats_all_but_the_matrices_of_layers_as_adamw_does() -> None:
    """Symbols, position tables, the classifier, biases and norms."""
    ours, theirs = make_solver(), make_solver()
    used = {"muon": make_optimizer("muon", ours), "adamw": make_optimizer("adamw", theirs)}
    for step in range(5):
        for model, optimizer in ((ours, used["muon"]), (theirs, used["adamw"])):
            set_gradients(model, step)
            optimizer.step()
    parts = ("query", "key", "value", "output")
    names = {f"attention.{part}" for part in parts} | {"widen", "narrow"}
    matrices = {f"encoder.layers.0.{name}.weight" for name in names}
    for name, parameter in ours.named_parameters():
        other = theirs.get_parameter(name)
        if name in matrices:
            assert (parameter - other).abs().max() > 1e-3, name
        else:
            torch.testing.assert_close(parameter, other, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (24, 8), (8, 24), (1, 5), (64, 256)])
def test_orthogonalising_keeps_singular_vectors_and_brings_values_near_1(
    rows: int, columns: int
) -> None:
    many = min(rows, columns)
    singular = torch.logspace(-1, 0.5, many) if many > 1 else torch.tensor([3.0])
    matrix, nearest = matrix_of(singular, rows, columns)
    found = orthogonalise(matrix)
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    core = u.mT @ found @ vt.mT  # diagonal where the singular vectors are the same
    torch.testing.assert_close(core, core.diag().diag(), rtol=0, atol=2e-4)
    assert BAND[0] < core.diag().min()
    assert core.diag().max() < BAND[1]
    torch.testing.assert_close(u @ core.diag().diag() @ vt, found, rtol=0, atol=2e-4)
    cosine = torch.nn.functional.cosine_similarity(found.flatten(), nearest.flatten(), 0)
    assert cosine > 0.97
    scaled = orthogonalise(1000 * matrix)
    torch.testing.assert_close(scaled, found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("decades", [1, 4, 8])
def test_orthogonalising_is_exact_enough_however_small_the_smallest_singular_value_is(
    decades: int,
) -> None:
    """Against the same iteration on each singular value, in float64."""
    singular = torch.logspace(0, -decades, 32)
    matrix, _ = matrix_of(singular, 48, 32)
    value = singular.double() / singular.double().norm()
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    expected, _ = matrix_of(value.float(), 48, 32)
    assert (orthogonalise(matrix) - expected).norm() < 1e-3 * expected.norm()


def test_orthogonalising_nothing_gives_nothing() -> None:
    assert torch.equal(orthogonalise(torch.zeros(3, 5)), torch.zeros(3, 5))


@pytest.mark.parametrize("shape", [(32, 128), (128, 32), (64, 64)])
def test_a_muon_update_is_as_large_as_its_factor_says(shape: tuple[int, int]) -> None:
    """The first update has a root mean square near rate_factor · learning rate, for every shape."""
    torch.manual_seed(0)
    matrix = nn.Parameter(torch.zeros(shape))
    optimizer = Muon([matrix], [], rate_factor=0.2, momentum=0.95, betas=BETAS, weight_decay=0.0)
    optimizer.param_groups[0]["lr"] = 0.01
    matrix.grad = torch.randn(shape)
    optimizer.step()
    size = matrix.detach().square().mean().sqrt().item() / (0.2 * 0.01)
    assert BAND[0] < size < BAND[1]


def test_muon_steps_are_those_written_out() -> None:
    """Decay apart from the gradient, a running mean, Nesterov's look ahead, and then U·Vᵀ."""
    rate, factor, momentum = 0.01, 0.3, 0.9
    start, _ = matrix_of(torch.linspace(0.5, 1, 6), 6, 10)
    matrix = nn.Parameter(start.clone())
    optimizer = Muon([matrix], [], factor, momentum, BETAS, DECAY)
    optimizer.param_groups[0]["lr"] = rate
    expected, mean = start.clone(), torch.zeros_like(start)
    for step in range(4):
        gradient, _ = matrix_of(torch.linspace(0.5, 1, 6), 6, 10, seed=step + 1)
        matrix.grad = gradient.clone()
        optimizer.step()
        mean = momentum * mean + (1 - momentum) * gradient
        ahead = momentum * mean + (1 - momentum) * gradient
        u, values, vt = torch.linalg.svd(ahead / ahead.norm(), full_matrices=False)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        direction = u @ values.diag() @ vt
        expected = expected * (1 - rate * DECAY) - rate * factor * 10**0.5 * direction
        torch.testing.assert_close(matrix.detach(), expected, rtol=1e-4, atol=1e-5)


def test_a_parameter_without_a_gradient_stays() -> None:
    solver = make_solver()
    optimizer = make_optimizer("muon", solver)
    before = {name: parameter.clone() for name, parameter in solver.named_parameters()}
    optimizer.step()
    assert all(torch.equal(before[name], p) for name, p in solver.named_parameters())
