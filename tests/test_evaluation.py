"""Accuracies and solutions of solvers whose answers are known in advance."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lengthwise.data import BLOCK, evaluation_set
from lengthwise.digits import Numbers
from lengthwise.errors import UsageError
from lengthwise.evaluation import Accuracy, accuracy, evaluate, wilson
from lengthwise.layout import PAD, VOCABULARY, Layout
from lengthwise.model import Knobs
from lengthwise.solver import Solver

TINY = {"layers": 1, "width": 4, "heads": 1, "position": "none"}


class Known(Solver):
    """A solver that says what `respond` says: symbols with spaces between them, or a number."""

    respond: Callable[..., str]

    def forward(self, operands: tuple[Numbers, ...], layout: Layout | None = None) -> torch.Tensor:
        layout, rows = layout or self.layout.fit(operands), []
        for texts in zip(*(numbers.to_text() for numbers in operands), strict=True):
            said = self.respond(*texts)
            symbols = said.split() if " " in said else list(said)
            symbols += ["<PAD>"] * (layout.n_out - len(symbols))
            rows.append([VOCABULARY.index(symbol) for symbol in symbols])
        return 5.0 * torch.nn.functional.one_hot(torch.tensor(rows), len(VOCABULARY))


def known(respond: Callable[..., str], task: Any = "addition", digits: int = 5, **layout: Any) -> Known:
    solver = Known(task=task, digits=digits, layout=layout, model=TINY)
    solver.respond = respond
    return solver


def untrained(layout: Any = None, task: Any = "addition", digits: int = 5, **model: Any) -> Solver:
    """A solver with random weights, which says digits only; some are right."""
    fields = {"layers": 2, "width": 16, "heads": 2, **model}
    solver = Solver(task=task, digits=digits, layout=layout or {}, model=fields)
    solver.encoder.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        solver.encoder.classifier.bias[10:] = -100
    return solver.eval()


def adds(a: str, b: str) -> str:
    return str(int(a) + int(b))


def problems(length: int, count: int) -> list[tuple[int, int]]:
    blocks = evaluation_set(known(adds).task, length, count, seed=0)
    return [pair for block in blocks for pair in zip(*(n.to_ints() for n in block.operands), strict=True)]


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    [(0, 10, 0, 0.2775), (1, 10, 0.0179, 0.4042), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)],
)
def test_wilson_has_the_published_values(correct, total, low, high):
    assert wilson(correct, total) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(("correct", "total"), [(0, 1), (1, 1), (3, 7), (499, 500), (2000, 10_000)])
def test_wilsons_bounds_solve_its_equation(correct, total):
    """The bounds p are where the observed share is z standard deviations away: (share − p)² = z² p (1 − p) / n."""
    z = 1.96
    share = correct / total
    roots = np.roots([1 + z * z / total, -(2 * share + z * z / total), share**2])
    assert wilson(correct, total, z) == pytest.approx(tuple(sorted(roots.real)), abs=1e-7)


def test_perfect_and_hopeless_solvers():
    for length, result in enumerate(evaluate(known(adds), examples=20), start=1):
        assert result == Accuracy(length, 20, 20, (1.0,) * (length + 1))
        assert result.exact_match == 1
    for result in evaluate(known(lambda a, b: "+"), lengths="2:4", examples=20):
        assert result.correct == result.exact_match == 0


@pytest.mark.parametrize("order", ["most-significant-first", "least-significant-first"])
def test_accuracies_count_what_is_right(order):
    """The last digit is wrong where the second operand is even: as often as that happens in the test set."""

    def respond(a: str, b: str) -> str:
        right = adds(a, b)
        wrong = right[:-1] + str((int(right[-1]) + 1) % 10)
        said = right if int(b) % 2 else wrong
        return said if order == "most-significant-first" else said[::-1]

    count = BLOCK + 50
    result = evaluate(known(respond, order=order), [3], count)[0]
    rows = problems(3, count)
    odd = sum(b % 2 for _, b in rows)
    assert 0 < odd < count
    assert (result.length, result.examples, result.correct) == (3, count, odd)
    if order == "least-significant-first":
        expected = (odd / count, 1.0, 1.0, 1.0)
    else:  # a sum of three digits ends in the third symbol, one of four in the fourth
        short = sum(1 - b % 2 for a, b in rows if a + b < 1000)
        expected = (1.0, 1.0, 1 - short / count, 1 - (count - odd - short) / count)
    assert result.digits == pytest.approx(expected)
    record = result.to_json()
    assert (record["exact_match"], record["low"], record["high"]) == (odd / count, *wilson(odd, count))


def test_padding_is_part_of_the_answer():
    """A digit too many makes an answer wrong, though it is beyond the digits that are counted."""
    result = evaluate(known(lambda a, b: adds(a, b).ljust(5, "0")), [2], 30)[0]
    assert result.correct == 0
    assert result.digits[:2] == (1.0, 1.0)


def test_evaluation_leaves_the_mode_as_it_was_and_runs_without_dropout():
    solver = Solver(task="addition", digits=3, layout={}, model={**TINY, "width": 8, "dropout": 0.5})
    for training in (True, False):
        solver.train(training)
        blocks = list(evaluation_set(solver.task, 3, 200, seed=0))
        results = [accuracy(solver, 3, blocks) for _ in range(2)]
        solver.explain(["1+2"])
        assert results[0] == results[1]
        assert solver.training is training


@pytest.mark.parametrize("sampling", ["exact", "uniform-length", "problem-length"])
@pytest.mark.parametrize("order", ["most-significant-first", "least-significant-first"])
@pytest.mark.parametrize("task", ["addition", "multiplication", "elementwise-addition"])
def test_evaluation_in_portions_equals_evaluation_at_once(task, order, sampling, monkeypatch):
    solver = untrained({"order": order}, task, position={"kind": "relative-key", "coordinate": "significance"})
    at_once = evaluate(solver, [3, 5], 40, sampling=sampling)
    assert len({accuracy for result in at_once for accuracy in result.digits}) > 2
    sizes = []
    solver.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    for symbols, most in [(1, 1), (70, 70 // solver.layout.length), (10**6, 40)]:
        monkeypatch.setattr("lengthwise.solver.SYMBOLS_AT_ONCE", {"cpu": symbols})
        sizes.clear()
        assert evaluate(solver, [3, 5], 40, sampling=sampling) == at_once
        assert max(sizes) == most
        assert sum(sizes) == 80


@pytest.mark.parametrize("sampling", ["exact", "uniform-length", "problem-length", "uniform-integer"])
def test_portions_of_shorter_problems_count_as_much_where_the_layout_is_fitted(sampling, monkeypatch):
    """A digit that a short answer hasn't is padding, which is right where the model says no more."""
    solver = known(adds, fitted=True)
    at_once = evaluate(solver, [9], 40, sampling=sampling)
    assert at_once == [Accuracy(9, 40, 40, (1.0,) * 10)]
    monkeypatch.setattr("lengthwise.solver.SYMBOLS_AT_ONCE", {"cpu": 1})
    assert evaluate(solver, [9], 40, sampling=sampling) == at_once


def test_a_fitted_layout_fits_the_block_whatever_is_worked_on_at_once(monkeypatch):
    """Padding matters to a model, so that what it is asked mustn't depend on the machine."""
    solver = untrained({"fitted": True}, digits=30, position="alibi")
    at_once = evaluate(solver, [30], 100, sampling="uniform-length")
    monkeypatch.setattr("lengthwise.solver.SYMBOLS_AT_ONCE", {"cpu": 1})
    one_by_one = evaluate(solver, [30], 100, sampling="uniform-length")
    assert one_by_one == at_once
    assert any(0 < share < 1 for share in at_once[0].digits)


def test_long_multiplication_asks_for_the_sums_of_all_rows_in_training():
    layout = {"fitted": True, "compact": True, "long_multiplication": True}
    task = {"kind": "multiplication", "second_digits": 2}
    solver = untrained({**layout, "order": "least-significant-first"}, task, layers=2, position="alibi").train()
    operands = Numbers.from_ints([123, 0]), Numbers.from_ints([45, 6])
    answer = solver.task.answer(*operands)
    written = solver.write(operands, answer, padding=2)
    logits, targets, answer_at = solver.supervised(written), written.targets, written.answer_at
    assert len(answer_at) == 7  # five digits, and two of padding
    assert targets[:, answer_at].tolist() == solver.targets(answer, 7).tolist()
    rows = [[5, 1, 6], [3, 5, 5], [5, 1, 6], [2, 9, 4]]  # 123 × 5 and 123 × 45 from its tens on; 123 × 5 and 123 × 4
    assert targets[0].tolist() == [symbol for row in rows for symbol in row + [PAD] * (7 - len(row))]
    assert targets[1].tolist() == ([0, *[PAD] * 6] + [PAD] * 7) * 2
    assert logits.shape == (2, 28, 15)
    with solver.testing():
        assert solver(operands).shape == (2, 5, 15)


def test_the_second_number_may_be_shorter_than_the_layouts_room_for_it():
    task = {"kind": "multiplication", "second_digits": 2}
    solver = untrained({"compact": True}, task)
    shorter = solver.multiplying_by(1)
    assert [len(a.digits) for a in evaluate(shorter, [2, 4], 3)] == [3, 5]
    problem = Numbers.from_ints([12]), Numbers.from_ints([3])
    with solver.testing(), shorter.testing():
        assert torch.equal(shorter(problem), solver(problem))
    for longer in (3, "same"):
        with pytest.raises(UsageError, match=r"up to 2 digits; only one with layout\.long_multiplication"):
            solver.multiplying_by(longer)
    anything = untrained({}, {"kind": "multiplication", "second_digits": None})
    assert [len(a.digits) for a in evaluate(anything.multiplying_by("same"), [2, 4], 3)] == [4, 8]


@pytest.mark.parametrize("fields", [{}, {"content": False, "read_rows": True}])
@pytest.mark.parametrize("second_digits", [1, None])
def test_long_multiplication_takes_numbers_of_any_length_on_both_sides(second_digits, fields):
    """And gives each problem the answer that it has alone, whatever is asked beside it."""
    layout = {"fitted": True, "compact": True, "long_multiplication": True}
    task = {"kind": "multiplication", "second_digits": second_digits}
    position = {"kind": "relative-bias", "clip": 1, "by_operands": True, "coordinate": "significance"}
    solver = untrained(
        {**layout, "order": "least-significant-first"}, task, window=1, patience=2, position=position, **fields
    )
    assert [len(a.digits) for n in (1, 3) for a in evaluate(solver.multiplying_by(n), [2, 4], 3)] == [3, 5, 5, 7]
    assert [len(a.digits) for a in evaluate(solver.multiplying_by("same"), [2, 4], 3)] == [4, 8]
    assert solver.task.second_digits == second_digits
    with pytest.raises(UsageError, match="1 digit or more, not 0"):
        solver.multiplying_by(0)
    with pytest.raises(UsageError, match="trained for addition, not for products"):
        known(adds).multiplying_by(2)
    asked = ["12 × 3456", "987654 × 1", "5 × 67", "34 × 5678", "987654321 × 123456789"]
    together = solver.explain(asked)
    assert [solution.symbols for solution in together] == [solver.explain([text])[0].symbols for text in asked]
    assert [len(solution.symbols) for solution in together] == [6, 7, 3, 6, 18]


def test_a_fitted_layout_takes_any_length():
    solver = known(adds, fitted=True)
    assert [result.length for result in evaluate(solver, examples=3)] == [1, 2, 3, 4, 5]
    assert evaluate(solver, "7,40", 20) == [Accuracy(7, 20, 20, (1.0,) * 8), Accuracy(40, 20, 20, (1.0,) * 41)]
    solution = solver.explain([f"{'9' * 30}+1"])[0]
    assert (solution.answer, solution.right, len(solution.symbols)) == (10**30, True, 31)
    with pytest.raises(UsageError, match="length 0 "):
        evaluate(solver, [0])
    with pytest.raises(UsageError, match=r"1234 has 4 digits, .* room for 3"):
        known(adds, "multiplication", fitted=True).solve(["123456789x1234"])


@pytest.mark.parametrize("position", ["relative-key", "absolute", "coupled", "abacus"])
def test_a_table_of_positions_has_its_limit_in_a_fitted_layout(position):
    solver = untrained({"fitted": True}, position=position)
    evaluate(solver, [5], 2)
    with pytest.raises(UsageError, match=r"has 13 tokens, .* takes 11;") as caught:
        evaluate(solver, [6], 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "problems"),
    [
        ("addition", ["1+2", "12345678+9", "1+87654321", "33+44"]),
        ("multiplication", ["7x123", "123x7", "9x1", "12345x6"]),
    ],
)
@pytest.mark.parametrize("fitted", [False, True])
def test_an_answer_doesnt_depend_on_the_other_problems(task, problems, fitted):
    solver = untrained({"fitted": fitted, "compact": True}, task, digits=8, position="alibi", patience=2)
    together = solver.explain(problems)
    for problem, solution in zip(problems, together, strict=True):
        alone = solver.explain([problem])[0]
        assert (alone.symbols, alone.answer, alone.correct) == (solution.symbols, solution.answer, solution.correct)
        assert alone.confidences == pytest.approx(solution.confidences, abs=1e-5)


def test_training_may_have_more_padding_and_layers():
    """An answer of as many symbols more as there is more room; the layers as if they were configured so."""
    operands = Numbers.from_ints([12, 345]), Numbers.from_ints([67, 8])
    solver, deeper = (untrained({"fitted": True}, position="alibi", layers=n).train() for n in (2, 5))
    answer = solver.task.answer(*operands)
    for padding, room in ((0, 4), (3, 7)):
        written = solver.write(operands, answer, padding)
        logits = solver.supervised(written)
        assert logits.shape[:2] == written.targets.shape == (2, room)
        assert written.answer_at == slice(room)
        assert written.targets.tolist() == solver.targets(answer, room).tolist()
    assert (logits[:, :4] - solver(operands)).abs().max() > 1e-3
    torch.testing.assert_close(solver.supervised(written, 5), deeper.supervised(written))


def test_knobs_are_turned_in_testing_and_then_back():
    solver = untrained().train()
    for inner in ({}, {"layers": 3}, {"sharpness": 2.0}):
        with solver.testing(layers=7, sharpness=0.5):
            with solver.testing(**inner):
                assert solver.encoder.knobs == Knobs(**inner)
            assert (solver.encoder.knobs, solver.training) == (Knobs(7, 0.5), False)
        assert (solver.encoder.knobs, solver.training) == (Knobs(), True)
    with pytest.raises(ZeroDivisionError), solver.testing(layers=7):
        raise ZeroDivisionError
    assert (solver.encoder.knobs, solver.training) == (Knobs(), True)


@pytest.mark.parametrize("patience", [None, 1])
def test_evaluation_turns_the_knobs(patience):
    solver = untrained(patience=patience)
    usual = evaluate(solver, [4], 100)
    deep = evaluate(solver, [4], 100, layers=6)
    assert deep == evaluate(untrained(layers=6), [4], 100)
    sharp = evaluate(solver, [4], 100, layers=6, sharpness=4.0)
    with torch.no_grad():
        solver.encoder.layers[0].attention.qkv.weight[:16] *= 4
    assert sharp == evaluate(solver, [4], 100, layers=6)
    assert len({result.digits for result in (usual[0], deep[0], sharp[0])}) == 3


@pytest.mark.parametrize(
    ("model", "knobs", "sentence"),
    [
        ({}, {"layers": 0}, "layers are applied 1 or more times, not 0"),
        ({}, {"sharpness": 0.0}, "the sharpness of attention is a positive number, not 0"),
        ({}, {"sharpness": float("nan")}, "the sharpness of attention is a positive number, not nan"),
        ({"encoder": "transformer"}, {"layers": 3}, "only a universal transformer can apply its layers another"),
    ],
)
def test_bad_knobs_are_told_in_a_sentence_and_leave_all_as_it_was(model, knobs, sentence):
    solver = untrained(**model).train()
    with pytest.raises(UsageError, match=sentence):
        evaluate(solver, [2], 2, **knobs)
    assert (solver.encoder.knobs, solver.training) == (Knobs(), True)


def test_lengths_and_counts_are_checked():
    for lengths, sentence in [([6], "length 6 .* 1 to 5 digits"), ("0:3", "length 0 "), ("x", "no list of lengths")]:
        with pytest.raises(UsageError, match=sentence):
            evaluate(known(adds), lengths)
    with pytest.raises(UsageError, match="at least 1 example"):
        evaluate(known(adds), examples=0)


@pytest.mark.parametrize("problem", ["12+34", " 12 + 34 ", "12+34=", "012 + 0000000034 =", "\t12+34\n"])
def test_problems_are_read_as_people_write_them(problem):
    solution = known(adds).explain([problem])[0]
    assert (solution.problem, solution.answer, solution.correct, solution.right) == (problem, 46, 46, True)
    assert solution.symbols == ("4", "6", "<PAD>", "<PAD>", "<PAD>", "<PAD>")


@pytest.mark.parametrize(
    ("task", "problem", "answer"),
    [
        ("multiplication", "535x257", 137495),
        ("multiplication", "535 X 257", 137495),
        ("multiplication", "535×257", 137495),
        ({"kind": "modular-multiplication", "modulus": 128}, "535*257", 23),
        ({"kind": "modular-addition", "modulus": 101}, "99%45", 43),
        ({"kind": "addition", "operands": 3}, "99+99+99", 297),
        ("elementwise-addition", "99+35", 24),
        ("elementwise-addition", "99+15", 4),
        ("addition", "0+0", 0),
    ],
)
def test_correct_answers_of_each_operation(task, problem, answer):
    assert known(lambda *_: "7", task).explain([problem])[0].correct == answer


@pytest.mark.parametrize(
    ("said", "answer", "right"),
    [
        ("46", 46, True),
        ("47", 47, False),
        ("0", 0, False),
        ("046", None, False),
        ("4 <PAD> 6", None, False),
        ("4 +", None, False),
        ("<PAD> <PAD>", None, False),
    ],
)
def test_answers_that_are_no_numbers_are_none(said, answer, right):
    solver = known(lambda a, b: said)
    assert solver.solve(["12+34"]) == [answer]
    assert solver.explain(["12+34"])[0].right is right


def test_elementwise_answers_may_start_with_zero():
    solver = known(lambda a, b: "04" if a == "99" else "4", "elementwise-addition")
    solutions = solver.explain(["99+15", "98+16"])
    assert [(s.answer, s.right) for s in solutions] == [(4, True), (4, False)]


def test_many_problems_keep_their_order(monkeypatch):
    monkeypatch.setattr("lengthwise.solver.SYMBOLS_AT_ONCE", {"cpu": 30})  # solved three at a time
    numbers = range(95, 105)
    solver = known(adds)
    assert solver.solve([f"{n}+1" for n in numbers]) == [n + 1 for n in numbers]
    assert [s.problem for s in solver.explain([f"{n}+1" for n in numbers])] == [f"{n}+1" for n in numbers]
    assert solver.solve([]) == []


def test_confidences_are_the_probabilities_of_the_symbols_said():
    confidences = known(adds).explain(["1+2"])[0].confidences
    assert confidences == pytest.approx((np.exp(5) / (np.exp(5) + 14),) * 6)


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        ("12", "'12' is no problem; write one such as 12 \\+ 34"),
        ("", "is no problem"),
        ("12+", "is no problem"),
        ("+12", "is no problem"),
        ("-1+2", "is no problem"),
        ("1.5+2", "'1.5\\+2' "),
        ("12+3٣4", "'12\\+3٣4' "),
        ("1 2+3", "is no problem"),
        ("12+34=46", "is no problem"),
        ("١٢+٣٤", "is no problem"),
        ("1²+3", "is no problem"),
        (12, "is no problem"),
        ("12×34", "operation ×, but this model was trained for addition, which is written \\+"),
        ("12x34", "operation ×"),
        ("1+2%3", "operation % \\+"),
        ("1+2+3", "3 operands, but this model's layout has 2"),
        ("123456+1", "123456 has 6 digits, .* room for 5"),
        ("1+" + "9" * 5000, "…9999999999 has 5000 digits"),
    ],
)
def test_bad_problems_are_told_in_a_sentence(problem, sentence):
    with pytest.raises(UsageError, match=sentence) as caught:
        known(adds).solve(["1+1", problem])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_short_second_operand_has_its_own_limit():
    with pytest.raises(UsageError, match=r"1234 has 4 digits, .* room for 3"):
        known(adds, "multiplication").solve(["12345x1234"])


def test_numbers_of_thousands_of_digits():
    """Longer than what Python's own int and str convert."""
    nines = "9" * 5000
    solver = known(lambda a, b: "1" + "0" * 5000, digits=5000)
    solution = solver.explain([f"{nines}+1"])[0]
    assert solution.answer == solution.correct == 10**5000
    assert solution.right


@pytest.mark.parametrize(
    ("task", "layout", "position"),
    [
        ({"kind": "addition", "operands": 2}, {}, {"kind": "absolute"}),
        (
            {"kind": "modular-multiplication", "modulus": 10**20, "second_digits": None},
            {"order": "least-significant-first", "compact": True, "n_out": 9},
            {"kind": "relative-key-query", "coordinate": "significance", "clip": 2},
        ),
        (
            {"kind": "multiplication", "second_digits": 2},
            {"fitted": True, "answer_room": True, "compact": True},
            {"kind": "randomised", "reach": 90, "inner": {"kind": "fire", "coordinate": "significance", "hidden": 5}},
        ),
    ],
)
@pytest.mark.parametrize(
    "model", [{"encoder": "transformer", "window": 2}, {"patience": 2, "recall": True, "window_over": "index"}]
)
def test_a_saved_solver_is_read_back(task, layout, position, model, tmp_path):
    model = {"layers": 2, "width": 8, "heads": 2, "position": position, **model}
    solver = Solver(task=task, digits=4, layout=layout, model=model).eval()
    solver.save_pretrained(tmp_path)
    loaded = Solver.from_pretrained(tmp_path)
    assert loaded.task == solver.task
    assert loaded.encoder.config == solver.encoder.config
    operands = Numbers.from_ints([1234, 5]), Numbers.from_ints([67, 8])
    with torch.inference_mode():
        torch.testing.assert_close(loaded(operands), solver(operands), rtol=0, atol=0)
    problem = f"1234{solver.task.symbol}67"
    assert loaded.explain([problem]) == solver.explain([problem])
