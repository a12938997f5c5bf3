"""What the tests of edits share: a small solver, its results, and the check that an edit counts."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise import fast
from lengthwise.fast import compiled
from lengthwise.model import Encoder
from lengthwise.problems.batch import TrainingBatch
from lengthwise.problems.training_set import TrainingSet
from lengthwise.solver import Solver
from lengthwise.training.experiment import Experiment

SMALL = {"layers": 3, "width": 16, "heads": 2}


@dataclass(frozen=True)
class Found:
    """What a solver computes: logits in training mode and in testing mode, and all gradients."""

    logits: Tensor
    tested: Tensor
    gradients: dict[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        return {"logits": self.logits, "tested": self.tested, **self.gradients}


def solver_of(seed: int = 0, **model: Any) -> Solver:
    """A small solver of the default kind, in which every bias and norm has an effect."""
    fields = {"data": {"test_digits": 4, "train_digits": 4}, "model": {**SMALL, **model}}
    solver = Experiment.model_validate(fields).build()
    rng = torch.Generator().manual_seed(seed)
    solver.encoder.initialise(rng)
    with torch.no_grad():
        for parameter in solver.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng), alpha=0.2)
    return solver.train()


def batch_for(solver: Solver, size: int = 5) -> TrainingBatch:
    config = Experiment.model_validate({"data": {"test_digits": 4, "train_digits": 4}}).data
    return solver.training_batch(TrainingSet(solver.task, config, seed=0).batch(0, size))


def loss_of(solver: Solver, batch: TrainingBatch) -> Tensor:
    return F.cross_entropy(solver(batch).flatten(0, 1), batch.targets.flatten())


def measure(solver: Solver) -> Found:
    """Modules keep their modes for the training part; the testing part has dropout off."""
    batch = batch_for(solver)
    solver.zero_grad()
    torch.manual_seed(0)
    logits = solver(batch)
    F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()).backward()
    names = solver.named_parameters()
    gradients = {name: p.grad.clone() for name, p in names if p.grad is not None}
    modes = {module: module.training for module in solver.modules()}
    solver.eval()
    with torch.no_grad():
        tested = solver(batch)
    for module, training in modes.items():
        module.training = training
    return Found(logits.detach(), tested, gradients)


@contextmanager
def pytorch_alone() -> Iterator[None]:
    """As `LENGTHWISE_FAST=off` in the shell."""
    before = os.environ.get("LENGTHWISE_FAST")
    os.environ["LENGTHWISE_FAST"] = "off"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LENGTHWISE_FAST"]
        else:
            os.environ["LENGTHWISE_FAST"] = before


def both(found: Callable[[], Any]) -> tuple[Any, Any]:
    """With the C code allowed, and with PyTorch alone."""
    allowed = found()
    with pytorch_alone():
        return allowed, found()


def train_step(solver: Solver, size: int = 2) -> None:
    loss_of(solver, batch_for(solver, size)).backward()


def reason_for(solver: Solver) -> str | None:
    """Why PyTorch computes a batch; None if the C code does."""
    batch = batch_for(solver)
    return fast.decline_reason(solver.encoder, batch.tokens, batch.coordinates)


def assert_in_c(solver: Solver) -> None:
    """The C code computes this solver, unless the machine has no compiler."""
    reason, library = reason_for(solver), compiled.load()
    if isinstance(library, compiled.Unavailable):
        assert not shutil.which("cc"), f"there is a compiler, but: {library.reason}"
        assert reason == library.reason
    else:
        assert reason is None


def assert_near(found: Found, expected: Found) -> None:
    """Equal but for the rounding of float32."""
    ours, theirs = found.tensors(), expected.tensors()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        scale = tensor.abs().max().clamp(min=1e-2)
        torch.testing.assert_close(
            ours[name] / scale, tensor / scale, rtol=0, atol=3e-5, equal_nan=True, msg=name
        )


def assert_same_bits(found: Found, expected: Found) -> None:
    ours, theirs = found.tensors(), expected.tensors()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(
            ours[name], tensor, rtol=0, atol=0, equal_nan=True, msg=f"{name} differs"
        )


def assert_far(found: Found, other: Found) -> None:
    """Logits and gradients differ by more than any rounding."""
    assert (found.logits - other.logits).abs().max() > 1e-3
    common = found.gradients.keys() & other.gradients.keys()
    pairs = [(found.gradients[name], other.gradients[name]) for name in common]
    assert max(float((a - b).abs().max()) for a, b in pairs if a.shape == b.shape) > 1e-4


def check_edit(edit: Callable[[Encoder], object], **model: Any) -> None:
    """An edit of an encoder has the effect that it has by PyTorch alone, and it has one."""
    solver, other = solver_of(**model), solver_of(**model)
    assert_in_c(solver)
    before = measure(solver)
    with pytorch_alone():
        assert_near(before, measure(other))
    for each in (solver, other):
        torch.manual_seed(0)
        edit(each.encoder)
    after, reason = measure(solver), reason_for(solver)
    with pytorch_alone():
        assert_same_bits(after, measure(other))
    assert_far(after, before)
    assert is_sentence(reason), reason


def is_sentence(reason: str | None) -> bool:
    """A clear reason: words in one line."""
    return reason is not None and len(reason.split()) >= 3 and "\n" not in reason
