"""Hooks are called as often as by PyTorch alone, on any module and on parameters."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from edits import assert_in_c, both, check_edit, measure, solver_of, train_step
from torch import nn
from torch.testing import assert_close

from lengthwise.model import Encoder

MODULES = nn.modules.module
CALLED = ["", "symbols", "positions.0.table", "embedding_norm", "dropout", "project", "classifier"]
CALLED += ["layers.0", "layers.0.activation", "layers.0.narrow", "layers.0.feedforward_norm"]
CALLED += [f"layers.0.attention{part}" for part in ("", ".query", ".softmax", ".dropout")]


@pytest.fixture(autouse=True)
def with_the_c_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_FAST", "on")


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "kind", ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]
)
@pytest.mark.parametrize("encoder", ["transformer", "universal-transformer"])
def test_a_hook_on_any_module_is_called(kind: str, encoder: str) -> None:
    """As often as by PyTorch alone, one module at a time."""
    solver = solver_of(encoder=encoder)
    assert_in_c(solver)
    counts: Counter[str] = Counter()
    for name, module in solver.encoder.named_modules():
        register = getattr(module, f"register_{kind}")

        def call() -> int:
            seen: list[int] = []
            handle = register(lambda *_: seen.append(1))  # noqa: B023
            train_step(solver)
            handle.remove()
            return len(seen)

        allowed, alone = both(call)
        assert allowed == alone, name
        counts[name] = allowed
    last = len(solver.encoder.layers) - 1
    for name in {*CALLED, *(name.replace("layers.0", f"layers.{last}") for name in CALLED)}:
        assert counts[name] > 0, name
    assert_in_c(solver)  # all hooks are gone


def test_a_hook_may_change_what_a_module_gives() -> None:
    for name in CALLED:

        def edit(encoder: Encoder, name: str = name) -> None:
            module = encoder.get_submodule(name)
            module.register_forward_hook(lambda module, given, found: found.flip(-1))

        check_edit(edit)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    "register",
    [
        MODULES.register_module_forward_hook,
        MODULES.register_module_forward_pre_hook,
        MODULES.register_module_full_backward_hook,
        MODULES.register_module_full_backward_pre_hook,
    ],
    ids=lambda function: function.__name__,
)
def test_a_global_hook_sees_every_module(register: Callable[..., Any]) -> None:
    solver = solver_of()

    def see() -> Counter[str]:
        seen: Counter[str] = Counter()
        handle = register(lambda module, *_: seen.update([type(module).__name__]))
        train_step(solver)
        handle.remove()
        return seen

    allowed, alone = both(see)
    assert allowed == alone
    assert allowed.keys() >= {"Encoder", "Layer", "FullAttention", "Linear", "Softmax", "Dropout"}
    assert_in_c(solver)


def test_hooks_of_parameters_are_called() -> None:
    solver = solver_of()
    before = measure(solver)
    seen: list[str] = []
    for name, parameter in solver.named_parameters():
        parameter.register_hook(lambda gradient: 2 * gradient)
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(name))
    after = measure(solver)
    assert sorted(seen) == sorted(before.gradients)
    for name, gradient in after.gradients.items():
        assert_close(gradient, 2 * before.gradients[name])
