"""Optimisers, registered like tasks are."""

from collections.abc import Callable
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn

from lengthwise.base import Choice, Registry


class Optimizer(Choice):
    """An optimiser with its options; what all share is in `training`."""

    def build(
        self, model: nn.Module, betas: tuple[float, float], weight_decay: float
    ) -> torch.optim.Optimizer:
        raise NotImplementedError


OPTIMIZERS: Registry[Optimizer] = Registry("optimiser", "training.optimizer")
AnyOptimizer = Annotated[SerializeAsAny[Optimizer], BeforeValidator(OPTIMIZERS.parse)]


@OPTIMIZERS.register("adamw")
class AdamWChoice(Optimizer):
    """AdamW for all parameters, the paper's (Loshchilov and Hutter, 2019)."""

    def build(
        self, model: nn.Module, betas: tuple[float, float], weight_decay: float
    ) -> torch.optim.Optimizer:
        optimizer = torch.optim.AdamW(
            model.parameters(), betas=betas, weight_decay=weight_decay, fused=True
        )
        for parameter in model.parameters():
            step = torch.zeros((), device=parameter.device)  # where the fused kernel looks for it
            optimizer.state[parameter] = {"step": step, **moments(parameter)}
        return optimizer


@OPTIMIZERS.register("muon")
class MuonChoice(Optimizer):
    """Muon for the matrices of the layers, AdamW for the rest (Jordan et al., 2024)."""

    rate_factor: float = Field(
        0.2, gt=0, description="size of a matrix update against AdamW's (Liu et al., 2025)"
    )
    momentum: float = Field(0.95, ge=0, lt=1, description="of the matrices' gradients")

    def build(
        self, model: nn.Module, betas: tuple[float, float], weight_decay: float
    ) -> torch.optim.Optimizer:
        matrices: list[nn.Parameter] = []
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            is_matrix = parameter.dim() == 2 and ".layers." in name
            (matrices if is_matrix else others).append(parameter)
        return Muon(matrices, others, self.rate_factor, self.momentum, betas, weight_decay)


class Muon(torch.optim.Optimizer):
    """Momentum whose update is replaced by the nearest orthogonal matrix; AdamW for other tensors.

    An orthogonal update has singular values of 1. It is scaled so that its root mean square is
    `rate_factor` times the learning rate, AdamW's being about 0.2 to 0.4 times.
    """

    def __init__(
        self,
        matrices: list[nn.Parameter],
        others: list[nn.Parameter],
        rate_factor: float,
        momentum: float,
        betas: tuple[float, float],
        weight_decay: float,
    ):
        groups = [{"params": matrices, "muon": True}, {"params": others, "muon": False}]
        shared = {"lr": 1e-3, "betas": betas, "weight_decay": weight_decay, "eps": 1e-8}
        super().__init__(groups, {**shared, "rate_factor": rate_factor, "momentum": momentum})
        for parameter in matrices:
            self.state[parameter] = {"momentum": torch.zeros_like(parameter)}
        for parameter in others:
            self.state[parameter] = {"step": torch.zeros(()), **moments(parameter)}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            update = self.update_matrix if group["muon"] else self.update_other
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    update(parameter, parameter.grad, self.state[parameter], group)

    def update_matrix(
        self, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
        direction = orthogonalise(gradient.lerp(momentum, group["momentum"]))  # Nesterov's
        size = group["lr"] * group["rate_factor"] * max(parameter.shape) ** 0.5
        parameter.add_(direction, alpha=-size)

    def update_other(
        self, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]
    ) -> None:
        state["step"] += 1
        (beta1, beta2), step = group["betas"], state["step"].item()
        mean = state["exp_avg"].lerp_(gradient, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        deviation = (square / (1 - beta2**step)).sqrt_().add_(group["eps"])
        parameter.addcdiv_(mean, deviation, value=-group["lr"] / (1 - beta1**step))


def moments(parameter: Tensor) -> dict[str, Tensor]:
    return {
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def orthogonalise(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Nearly the orthogonal matrix nearest to this one: a quintic Newton–Schulz iteration.

    Each iteration multiplies by a polynomial in the Gram matrix x·xᵀ, and such matrices commute. So
    only small square matrices are iterated, and x is multiplied once. The coefficients (Jordan et
    al., 2024) bring singular values to between 0.7 and 1.2, which is close enough, in few
    iterations.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    gram = x @ x.mT
    identity = torch.eye(len(gram), device=x.device, dtype=x.dtype)
    product = identity
    for _ in range(iterations):
        factor = a * identity + torch.addmm(gram, gram, gram, beta=b, alpha=c)
        product, gram = factor @ product, factor @ gram @ factor
    x = product @ x
    return x.mT if matrix.shape[0] > matrix.shape[1] else x
