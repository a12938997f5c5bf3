"""The door: the C code gives what PyTorch gives, or says why it does not compute."""

import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import label
from edits import (
    assert_in_c,
    assert_near,
    batch_for,
    is_sentence,
    measure,
    pytorch_alone,
    reason_for,
    solver_of,
)
from encoders import PROBLEMS, Problems, encoder_of, problems
from pairwise import pairwise
from torch import Tensor

from lengthwise import fast
from lengthwise.base import UsageError
from lengthwise.fast import door, verify
from lengthwise.model import Encoder
from lengthwise.model.attention import ATTENTIONS
from lengthwise.model.depth import DEPTHS
from lengthwise.model.positions import POSITIONS
from lengthwise.problems.evaluation_set import evaluation_set
from lengthwise.problems.layouts import Coordinates
from lengthwise.training.experiment import Experiment

SIGNIFICANCE = {"coordinate": "significance"}
SUPPORTED: list[dict[str, Any]] = [
    {"kind": "none"},
    {"kind": "absolute"},
    {"kind": "absolute", **SIGNIFICANCE},
    {"kind": "coupled", "offset": 2},
    {"kind": "abacus"},
    {"kind": "relative-key"},
    {"kind": "relative-key", "clip": 2, "by_operands": True},
    {"kind": "relative-key", **SIGNIFICANCE},
    {"kind": "relative-key-query"},
    {"kind": "relative-key-query", "by_operands": True, **SIGNIFICANCE},
]
SHAPES = [(16, 2, None), (24, 3, 7), (64, 4, 100), (32, 1, None), (40, 5, 33)]
# The C code gets inputs with positions added, or vectors of all pairs, and goes by query or also
# by key; what makes them is PyTorch's. So some embeddings meet all sizes, and each meets some.
OPTIONS: list[Sequence[Any]] = [
    SHAPES,
    ["transformer", "universal-transformer"],
    ["relu", "gelu", "gelu-tanh"],
    [(1, None), (3, None), (3, 1), (2, 5)],  # layers, and another depth
    [("sum-from-units", 1), ("sum-from-units", 4), ("product-from-units", 13), ("rows", 4)],
    [1, 7, 33],  # examples
    [{}, {"embedding_width": 10, "scale_relative": True, "norm_epsilon": 1e-5}],
]
MET_BY_ALL = [SUPPORTED[i] for i in (1, 6, 7, 9)]
CASES = pairwise(MET_BY_ALL, *OPTIONS)
CASES += [
    (position, *CASES[number][1:])
    for number, position in enumerate(p for p in SUPPORTED if p not in MET_BY_ALL)
]


@pytest.fixture(autouse=True)
def with_the_c_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LENGTHWISE_FAST", "on")


def results(
    encoder: Encoder, given: Problems, layers: int | None, logits: Callable[..., Tensor]
) -> dict[str, Tensor]:
    """Logits and gradients of a random sum of them."""
    torch.manual_seed(0)  # of offsets
    found = logits(*given, layers)
    rng = torch.Generator().manual_seed(1)
    weights = torch.randn(found.shape, generator=rng).to(found.dtype)
    parameters = dict(encoder.named_parameters())
    slopes = torch.autograd.grad(
        found, list(parameters.values()), weights, allow_unused=True, materialize_grads=True
    )
    return {"logits": found.detach(), **dict(zip(parameters, slopes, strict=True))}


def relative_error(found: Tensor, exact: Tensor, least: float) -> float:
    """The root of the mean square of the error, relative to that of the values."""
    size = exact.square().mean().sqrt().clamp(min=least)
    return float((found - exact).square().mean().sqrt() / size)


@pytest.mark.parametrize(
    ("position", "shape", "kind", "activation", "depth", "name", "count", "more"), CASES, ids=label
)
def test_logits_and_gradients_are_as_exact_as_pytorchs(
    position: dict[str, Any],
    shape: tuple[int, int, int | None],
    kind: str,
    activation: str,
    depth: tuple[int, int | None],
    name: tuple[str, int],
    count: int,
    more: dict[str, Any],
) -> None:
    """Against double precision, in which the C code may err about as much as PyTorch does."""
    width, heads, inner = shape
    fields = {"position": position, "encoder": kind, "activation": activation, "layers": depth[0]}
    fields |= {"width": width, "heads": heads, "feedforward_width": inner, **more}
    given = problems(name[0], count, name[1])
    encoder = encoder_of(given.length, **fields).train()
    assert in_c(encoder, given)
    ours = results(encoder, given, depth[1], lambda *a: fast.logits(encoder, *a))
    theirs = results(encoder, given, depth[1], encoder)
    exact = results(encoder.double(), given, depth[1], encoder)
    for part, true in exact.items():
        # A key's bias has no gradient but for rounding, which has no size to be relative to.
        least = 0.1 if part.endswith("key.bias") else 1e-12
        error = relative_error(ours[part], true, least)
        assert error <= 4 * relative_error(theirs[part], true, least) + 1e-6, part


def in_c(encoder: Encoder, given: Problems) -> bool:
    reason = fast.decline_reason(encoder, given.tokens, given.coordinates)
    return reason is None or reason == door.unavailable()


CHOICES = [
    *(("position", kind) for kind in POSITIONS),
    *(("attention", kind) for kind in ATTENTIONS),
    *(("attention", {"kind": "full", "mask_padding": True}),),
    *(("depth", kind) for kind in DEPTHS),
    ("norm", "pre"),
]
IN_C = {"none", "absolute", "coupled", "abacus", "relative-key", "relative-key-query", "full"}
IN_C |= {"fixed"}
BY_POSITION = ("positional", "columns", "rewrite")


@pytest.mark.parametrize(("option", "value"), CHOICES, ids=label)
def test_every_choice_is_computed_as_by_pytorch(option: str, value: Any) -> None:
    """In C, or not for a reason that names the option."""
    given = problems()
    fields: dict[str, Any] = {"position": "relative-key", option: value}
    if value in BY_POSITION:
        fields["position"] = {"kind": "relative-bias", "coordinate": "significance"}
    if value in ("columns", "rewrite"):  # they need each other
        fields |= {"attention": "columns", "depth": "rewrite"}
    encoder = encoder_of(**fields)
    reason = fast.decline_reason(encoder, given.tokens, given.coordinates)
    ours, theirs = fast.logits(encoder, *given), encoder(*given)
    if label(value) in IN_C:
        assert in_c(encoder, given)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    else:
        assert is_sentence(reason)
        assert option in str(reason) or value in BY_POSITION
        assert torch.equal(ours, theirs)


def test_positions_that_differ_from_example_to_example_are_pytorchs() -> None:
    """Whichever of the coordinates has a row for each example."""
    tokens, at, n_out = problems("rows")
    for position in ("relative-key", SUPPORTED[6], SUPPORTED[7], SUPPORTED[9]):
        encoder = encoder_of(position=position)
        expected = encoder(tokens, at, n_out)
        for name in ("index", "significance", "operand", "shared", "row"):
            values: Tensor = getattr(at, name).expand(len(tokens), -1)
            other: Coordinates[Tensor] = replace(at, **{name: values})
            found = fast.logits(encoder, tokens, other, n_out)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    given = problems("sum")  # most significant digit first
    encoder = encoder_of(position={"kind": "relative-key", **SIGNIFICANCE})
    reason = fast.decline_reason(encoder, given.tokens, given.coordinates)
    assert reason == "positions differ from example to example"


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p._replace(tokens=p.tokens[:0]),
        lambda p: p._replace(n_out=1),
        lambda p: p._replace(n_out=p.length),
        lambda p: p._replace(tokens=p.tokens.T.contiguous().T),
        lambda p: p._replace(tokens=p.tokens.int()),
        lambda p: p._replace(tokens=p.tokens[:1].expand(4, -1)),
    ],
    ids=["no examples", "one position", "all positions", "transposed", "int32", "expanded"],
)
def test_batches_of_all_kinds_are_computed_as_by_pytorch(
    change: Callable[[Problems], Problems],
) -> None:
    given, encoder = change(problems()), encoder_of(position="relative-key-query")
    found = fast.logits(encoder, *given)
    expected = encoder(*given)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_is_an_error_by_pytorch_is_the_same_error() -> None:
    tokens, at, n_out = problems()
    unknown, encoder = tokens.clone(), encoder_of(tokens.shape[1])
    unknown[1, 2] = 15
    longer = torch.cat([tokens, tokens], 1)
    for given, positions in ((unknown, n_out), (tokens, 100), (longer, n_out)):
        errors = []
        for logits in (encoder, lambda *a: fast.logits(encoder, *a)):
            with pytest.raises((IndexError, UsageError)) as caught:
                logits(given, at, positions)
            errors.append((caught.type, str(caught.value)))
        assert errors[0] == errors[1]


def test_a_result_does_not_depend_on_the_number_of_threads() -> None:
    encoder = encoder_of(position="relative-key-query", width=64, heads=4).train()
    given = problems(count=40)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(results(encoder, given, None, lambda *a: fast.logits(encoder, *a)))
        finally:
            torch.set_num_threads(1)
    # The gradients of the embedding norm are PyTorch's, which depend on it.
    names = [name for name in found[0] if name == "logits" or name.startswith("layers.")]
    assert all(torch.equal(found[0][name], found[1][name]) for name in names)


@pytest.mark.parametrize(
    ("position", "width"),
    [("absolute", 128), ("relative-key", 16), ("relative-key-query", 128)],
)
def test_a_problem_alone_has_the_bits_that_it_has_in_a_batch(position: str, width: int) -> None:
    given = problems(count=50, digits=9)
    encoder = encoder_of(given.length, position=position, width=width, heads=4)
    assert in_c(encoder, given)
    with torch.inference_mode():
        together = fast.logits(encoder, *given)
        for i in range(len(given.tokens)):
            assert torch.equal(together[i : i + 1], fast.logits(encoder, *given.row(i)))
        turned = given._replace(tokens=given.tokens.flip(0))
        assert torch.equal(fast.logits(encoder, *turned), together.flip(0))


def test_a_solver_gives_a_problem_the_same_confidence_alone_and_in_a_list() -> None:
    solver = solver_of(width=128, heads=4)
    (block,) = evaluation_set(solver.task, 4, 60, seed=0)
    rows = zip(*(numbers.to_text() for numbers in block.operands), strict=True)
    texts = [f" {solver.task.symbol} ".join(row) for row in rows]
    together = solver.explain(texts)
    alone = [solver.explain(text)[0] for text in texts]
    assert together == alone


def test_the_digests_are_those_of_the_verified_source() -> None:
    """A change of the model's mathematics has to be made in C, too, or the C code has to go."""
    found = {verify.short_name(m): verify.digest(inspect.getsource(m)) for m in verify.MODULES}
    changed = sorted(name for name in found if found[name] != verify.DIGESTS.get(name))
    assert found == verify.DIGESTS, (
        f"{', '.join(changed)} changed, so PyTorch computes everything. If the C code still"
        " computes the same (the other tests of this file pass with the new digests), run `python"
        " -c 'from lengthwise.fast import verify; verify.print_digests()'` and put what it prints"
        " into DIGESTS in src/lengthwise/fast/verify.py."
    )


def test_the_digest_ignores_comments_docstrings_and_formatting_only() -> None:
    source = 'def f(x: int) -> int:\n    """Doubles."""\n    return 2 * x\n'
    same = "# A comment.\ndef f(\n    x: int,\n) -> int:\n\n    return (2 * x)  # twice\n"
    assert verify.digest(source) == verify.digest(same)
    for other in ("3 * x", "2 * y", "2 + x", "2.0 * x", "x * 2", "-2 * x"):
        assert verify.digest(source.replace("2 * x", other)) != verify.digest(source)
    assert verify.digest(source.replace("x: int", "x: float")) != verify.digest(source)
    assert verify.digest(source.replace("f(x", "g(x")) != verify.digest(source)


def test_every_file_that_the_encoder_runs_is_verified() -> None:
    """For the options that the C code knows, traced by Python itself."""
    files = set()

    def trace(frame: Any, event: str, argument: Any) -> None:
        files.add(frame.f_code.co_filename)

    for position in SUPPORTED:
        encoder = encoder_of(position=position).train()
        given = problems("sum-from-units")
        sys.setprofile(trace)
        try:
            encoder(*given)
        finally:
            sys.setprofile(None)
    model = {name for name in files if "/lengthwise/model/" in name}
    assert model == {module.__file__ for module in verify.MODULES}


def test_the_c_code_is_on_by_default_where_it_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LENGTHWISE_FAST")
    assert fast.is_enabled() is door.MEASURED
    solver = solver_of()
    if door.MEASURED:
        assert_in_c(solver)
    monkeypatch.setattr(door, "MEASURED", False)
    assert not fast.is_enabled()
    assert reason_for(solver) == "the C code is switched off; LENGTHWISE_FAST=on tries it"
    monkeypatch.setenv("LENGTHWISE_FAST", "on")
    assert_in_c(solver)


def test_another_setting_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = solver_of()
    batch = batch_for(solver)
    for setting in ("", "On", "1", "torch", "off "):
        monkeypatch.setenv("LENGTHWISE_FAST", setting)
        sentence = f"LENGTHWISE_FAST is '{setting}', but it must be on or off"
        for use in (fast.is_enabled, lambda: solver(batch)):
            with pytest.raises(UsageError, match=sentence):
                use()


def test_pytorch_can_be_chosen_for_a_while() -> None:
    solver = solver_of()
    in_c = measure(solver)
    with pytorch_alone():
        assert reason_for(solver) == "the C code is switched off"
        alone = measure(solver)
    with fast.use_pytorch():
        with fast.use_pytorch():
            assert not fast.is_enabled()
        assert not fast.is_enabled()
        assert reason_for(solver) == "the C code is switched off"
        assert torch.equal(measure(solver).logits, alone.logits)
        elsewhere: list[bool] = []
        thread = threading.Thread(target=lambda: elsewhere.append(fast.is_enabled()))
        thread.start()
        thread.join()
        assert elsewhere == [True]  # the choice is the thread's own
    assert fast.is_enabled()
    assert torch.equal(measure(solver).logits, in_c.logits)
    assert_near(in_c, alone)


def test_without_a_compiler_pytorch_computes(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from edits import batch_for, reason_for, solver_of\n"
        "solver = solver_of(); print(solver(batch_for(solver)).shape, reason_for(solver))"
    )
    environment = {**os.environ, "CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("torch.Size([5, 5, 15]) There is no C compiler")
    assert "no-such-compiler" in done.stdout


def test_the_encoder_itself_is_always_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a solver goes through the door."""
    monkeypatch.setattr(door, "apply_stack", None)
    encoder, given = encoder_of(), problems()
    assert encoder(*given).isfinite().all()
    if in_c(encoder, given) and door.unavailable() is None:
        with pytest.raises(TypeError):
            fast.logits(encoder, *given)


def test_all_kinds_of_problems_are_computed_in_c_by_default() -> None:
    """The paper's layouts, with the default model."""
    for layout in ("paper", "compact", "fitted"):
        for order in ("most-significant-first", "least-significant-first"):
            fields = {"layout": {"kind": layout, "order": order}, "model": {"preset": "tiny"}}
            solver = Experiment.model_validate(fields).build()
            (block,) = evaluation_set(solver.task, 5, 4, seed=0)
            batch = solver.training_batch(block)
            reason = fast.decline_reason(solver.encoder, batch.tokens, batch.coordinates)
            assert reason == door.unavailable()
    assert set(PROBLEMS) >= {"sum", "rows"}
