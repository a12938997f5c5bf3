"""Accuracies of solvers whose answers are known in advance."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import label
from known import add, answering, known, make_solver, speechless, untrained
from pairwise import pairwise

from lengthwise.base import UsageError
from lengthwise.evaluation.accuracy import Accuracy, evaluate, measure_accuracy, wilson
from lengthwise.problems.evaluation_set import BLOCK, evaluation_set

ORDERS = ["most-significant-first", "least-significant-first"]
SAMPLINGS: list[Any] = ["exact", "uniform-length", "problem-length", "uniform-integer"]
AT_ONCE = "lengthwise.solver.solver.SYMBOLS_AT_ONCE"


def problems(length: int, count: int) -> list[tuple[int, int]]:
    blocks = evaluation_set(answering(add).task, length, count, seed=0)
    columns = ([n.to_ints() for n in block.operands] for block in blocks)
    return [(a, b) for first, second in columns for a, b in zip(first, second, strict=True)]


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    [(0, 10, 0, 0.2775), (1, 10, 0.0179, 0.4042), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)],
)
def test_wilson_has_the_published_values(correct: int, total: int, low: float, high: float) -> None:
    assert wilson(correct, total) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("correct", "total"), [(0, 1), (3, 7), (499, 500), (2000, 10_000)])
def test_wilsons_bounds_solve_its_equation(correct: int, total: int) -> None:
    """At a bound p the share is z deviations away: (share − p)² = z²·p·(1 − p)/n."""
    z = 1.96
    share = correct / total
    roots = np.roots([1 + z * z / total, -(2 * share + z * z / total), share**2])
    assert wilson(correct, total, z) == pytest.approx(tuple(sorted(roots.real)), abs=1e-7)


def test_perfect_and_hopeless_solvers() -> None:
    for length, result in enumerate(evaluate(answering(add), examples=20), start=1):
        assert result == Accuracy(length, 20, 20, (1.0,) * (length + 1))
        assert result.exact_match == 1
    for result in evaluate(known(speechless), lengths="2:4", examples=20):
        assert result.correct == result.exact_match == 0


@pytest.mark.parametrize("order", ORDERS)
def test_accuracies_count_right_symbols(order: str) -> None:
    """The last digit is wrong for even second operands, as often as the test set has them."""

    def answer(a: str, b: str) -> str:
        right = add(a, b)
        wrong = right[:-1] + str((int(right[-1]) + 1) % 10)
        written = right if int(b) % 2 else wrong
        return written if order == ORDERS[0] else written[::-1]

    count = BLOCK + 50
    (result,) = evaluate(answering(answer, layout={"kind": "paper", "order": order}), [3], count)
    rows = problems(3, count)
    odd = sum(b % 2 for _, b in rows)
    assert 0 < odd < count
    assert (result.length, result.examples, result.correct) == (3, count, odd)
    if order == ORDERS[1]:
        expected = (odd / count, 1.0, 1.0, 1.0)
    else:  # a sum of three digits ends in the third symbol, one of four in the fourth
        short = sum(1 - b % 2 for a, b in rows if a + b < 1000)
        expected = (1.0, 1.0, 1 - short / count, 1 - (count - odd - short) / count)
    assert result.digits == pytest.approx(expected)
    record = result.to_json()
    shares = record["exact_match"], record["low"], record["high"]
    assert shares == (odd / count, *wilson(odd, count))
    assert Accuracy.from_json(record) == result


def test_padding_is_part_of_the_answer() -> None:
    """A digit too many makes an answer wrong, though it is beyond the digits that are counted."""
    (result,) = evaluate(answering(lambda a, b: add(a, b).ljust(5, "0")), [2], 30)
    assert result.correct == 0
    assert result.digits[:2] == (1.0, 1.0)


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_has_no_dropout_and_restores_the_mode(training: bool) -> None:
    solver = make_solver(digits=3, layers=1, width=8, heads=1, dropout=0.5).train(training)
    blocks = list(evaluation_set(solver.task, 3, 200, seed=0))
    assert measure_accuracy(solver, 3, blocks) == measure_accuracy(solver, 3, blocks)
    assert solver.training is training


@pytest.mark.parametrize(
    ("task", "layout", "order", "sampling"),
    pairwise(
        ["addition", "multiplication", "elementwise-addition"],
        ["paper", "compact", "fitted"],
        ORDERS,
        SAMPLINGS,
    ),
)
def test_portions_give_the_same_accuracy_as_all_at_once(
    task: str, layout: str, order: str, sampling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding matters to a model, so a problem's layout must not depend on the portion."""
    written = {"kind": layout, "order": order}
    solver = untrained(task, written, position={"kind": "alibi", "coordinate": "significance"})
    at_once = evaluate(solver, [3, 5], 40, sampling=sampling)
    assert len({share for result in at_once for share in result.digits}) > 2
    sizes: list[int] = []
    solver.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    for symbols in (1, 70, 10**6):
        monkeypatch.setattr(AT_ONCE, {"cpu": symbols})
        sizes.clear()
        assert evaluate(solver, [3, 5], 40, sampling=sampling) == at_once
        assert sum(sizes) == 80
        assert max(sizes) == {1: 1, 10**6: 40}.get(symbols, max(sizes))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_short_answers_of_a_fitted_layout_count_as_much(
    sampling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digit beyond a short answer is padding, and right where the model has no more."""
    solver = answering(add, layout="fitted")
    for symbols in (6000, 1):
        monkeypatch.setattr(AT_ONCE, {"cpu": symbols})
        for seed in range(5):  # a single problem is often shorter than nine digits
            for count in (40, 1):
                results = evaluate(solver, [9], count, seed, sampling=sampling)
                assert results == [Accuracy(9, count, count, (1.0,) * 10)]


def test_a_fitted_layout_takes_any_length() -> None:
    solver = answering(add, layout="fitted")
    assert [result.length for result in evaluate(solver, examples=3)] == [1, 2, 3, 4, 5]
    expected = [Accuracy(n, 20, 20, (1.0,) * (n + 1)) for n in (7, 40)]
    assert evaluate(solver, "7,40", 20) == expected


@pytest.mark.parametrize("layout", ["compact", "long-multiplication"])
def test_products_by_other_lengths(layout: str) -> None:
    """The answer has the digits of both operands."""
    solver = untrained({"kind": "multiplication", "second_digits": 2}, layout, position="alibi")
    by_one = evaluate(solver.with_second_digits(1), [2, 4], 3)
    assert [len(result.digits) for result in by_one] == [3, 5]
    if layout == "long-multiplication":
        for second, expected in ((3, [5, 7]), ("same", [4, 8])):
            results = evaluate(solver.with_second_digits(second), [2, 4], 3)  # type: ignore[arg-type]
            assert [len(result.digits) for result in results] == expected


@pytest.mark.parametrize("depth", ["fixed", {"kind": "until-stable", "stable_for": 1}], ids=label)
def test_evaluation_with_other_layers_and_sharpness(depth: object) -> None:
    solver = untrained(depth=depth)
    usual = evaluate(solver, [4], 100)
    deep = evaluate(solver, [4], 100, layers=6)
    assert deep == evaluate(untrained(layers=6), [4], 100)
    sharp = evaluate(solver, [4], 100, layers=6, sharpness=4.0)
    with torch.no_grad():  # queries four times as long have scores four times as large
        solver.get_parameter("encoder.layers.0.attention.query.weight").mul_(4)
    assert sharp == evaluate(solver, [4], 100, layers=6)
    assert len({result.digits for result in (usual[0], deep[0], sharp[0])}) == 3


def test_bad_options_are_refused_in_one_sentence(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"layers": 0}, "layers are applied at least once and at most"),
        ({}, {"sharpness": 0.0}, "the sharpness of attention is a positive number, not 0"),
        ({"encoder": "transformer"}, {"layers": 3}, "only shared layers can be applied another"),
        ({}, {"lengths": [6]}, r"length 6 .* 1 to 5 digits"),
        ({}, {"lengths": "0:3"}, "length 0 "),
        ({}, {"lengths": "x"}, "is not a list of lengths"),
        ({}, {"lengths": []}, "an evaluation needs a length"),
        ({}, {"lengths": [2.5]}, "lengths and examples are integers"),
        ({}, {"lengths": [True]}, "lengths and examples are integers"),
        ({}, {"examples": 0}, "at least 1 example"),
        ({}, {"sampling": "exakt"}, "there is no sampling 'exakt': did you mean 'exact'?"),
        ({}, {"seed": -1}, "a seed is an integer ≥ 0, not -1"),
    ]
    for model, options, sentence in cases:
        with subtests.test(str(model)):
            solver = untrained(**model).train()
            with pytest.raises(UsageError, match=sentence) as caught:
                evaluate(solver, **{"lengths": [2], "examples": 2, **options})
            assert "\n" not in str(caught.value)
            assert solver.training
            assert solver.encoder.layer(0).attention.sharpness == 1


def test_only_models_are_evaluated() -> None:
    with pytest.raises(UsageError, match="a model is tested, such as"):
        evaluate("runs/sum")  # type: ignore[arg-type]
