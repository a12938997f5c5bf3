"""Solvers: reading problems, answers and their confidence, any length, saving and loading."""

import io
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import label
from known import CONFIDENCE, KnownSolver, add, answering, make_solver, speechless, untrained
from pairwise import pairwise

from lengthwise.arithmetic.digits import Numbers
from lengthwise.base import UsageError
from lengthwise.problems.batch import Batch
from lengthwise.problems.layouts import PAD
from lengthwise.problems.training_set import Examples
from lengthwise.solver import Solver

TWO_DIGITS = {"kind": "multiplication", "second_digits": 2}
OVER_BANDS = {"kind": "relative-bias", "clip": 1, "by_operands": True, "coordinate": "significance"}


def numbers(*columns: list[int]) -> tuple[Numbers, ...]:
    return tuple(Numbers.from_ints(column) for column in columns)


def digits_solver() -> KnownSolver:
    return answering(add)


@pytest.mark.parametrize(
    "problem", ["12+34", " 12 + 34 ", "12+34=", "012 + 0000000034 =", "\t12+34\n"]
)
def test_problems_are_read_as_people_write_them(problem: str) -> None:
    (solution,) = digits_solver().explain(problem)
    assert (solution.problem, solution.answer, solution.correct) == (problem, 46, 46)
    assert solution.right
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
        ("elementwise-addition", "99+15", 4),
        ("addition", "0+0", 0),
    ],
    ids=label,
)
def test_correct_answers_of_each_operation(task: object, problem: str, answer: int) -> None:
    assert answering(lambda *_: "7", task).explain([problem])[0].correct == answer


def test_answers_that_are_not_numbers_are_none(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, int | None]] = [
        ("46", 46),
        ("47", 47),
        ("0", 0),
        ("046", None),
        ("4 <PAD> 6", None),
        ("4 +", None),
        ("<PAD> <PAD>", None),
    ]
    for symbols, answer in cases:
        with subtests.test(symbols):
            solver = answering(lambda a, b, symbols=symbols: symbols)
            assert solver.solve(["12+34"]) == [answer]
            assert solver.explain(["12+34"])[0].right is (symbols == "46")


def test_elementwise_answers_may_start_with_zero() -> None:
    solver = answering(lambda a, b: "04" if a == "99" else "4", "elementwise-addition")
    solutions = solver.explain(["99+15", "98+16"])
    assert [(s.answer, s.right) for s in solutions] == [(4, True), (4, False)]


def test_many_problems_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.solver.solver.SYMBOLS_AT_ONCE", {"cpu": 30})  # three at a time
    problems = [f"{n}+1" for n in range(95, 105)]
    solver = digits_solver()
    assert solver.solve(problems) == [n + 1 for n in range(95, 105)]
    assert [solution.problem for solution in solver.explain(problems)] == problems
    assert solver.solve([]) == []


def test_confidences_are_the_probabilities_of_the_symbols() -> None:
    confidences = digits_solver().explain(["1+2"])[0].confidences
    assert confidences == pytest.approx((np.exp(CONFIDENCE) / (np.exp(CONFIDENCE) + 14),) * 6)


def test_bad_problems_are_refused_in_one_sentence(subtests: pytest.Subtests) -> None:
    cases: list[tuple[Any, str]] = [
        ("12", r"'12' is not a problem; write one such as 12 \+ 34"),
        ("", "is not a problem"),
        ("12+", "is not a problem"),
        ("+12", "is not a problem"),
        ("-1+2", "is not a problem"),
        ("1.5+2", r"'1.5\+2' "),
        ("12+3٣4", r"'12\+3٣4' "),
        ("1 2+3", "is not a problem"),
        ("12+34=46", "is not a problem"),
        ("1²+3", "is not a problem"),
        (12, "is not a problem"),
        ("12x34", r"operation ×, but this model was trained for addition, which is written \+"),
        ("1+2%3", r"operation % \+"),
        ("1+2+3", "3 operands, but this model takes 2"),
        ("123456+1", "operand 1 has 6 digits, but this model's layout has room for 5"),
        ("1+" + "9" * 5000, "operand 2 has 5000 digits"),
    ]
    for problem, sentence in cases:
        with subtests.test(problem):
            with pytest.raises(UsageError, match=sentence) as caught:
                digits_solver().solve(["1+1", problem])
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < 200


@pytest.mark.parametrize("layout", ["paper", "fitted"])
def test_a_short_second_operand_has_its_own_limit(layout: str) -> None:
    solver = answering(add, "multiplication", layout=layout)
    with pytest.raises(UsageError, match=r"operand 2 has 4 digits, .* room for 3"):
        solver.solve(["12345x1234"])


def test_numbers_of_thousands_of_digits() -> None:
    """Longer than Python converts at once."""
    nines = "9" * 5000
    solver = answering(lambda a, b: "1" + "0" * 5000, digits=5000)
    (solution,) = solver.explain(f"{nines}+1")
    assert solution.answer == solution.correct == 10**5000
    assert str(solver.solve(f"{nines}+1")) == f"[1{'0' * 5000}]"
    assert solution.right


PROBLEMS = {
    "addition": ["1+2", "12345678+9", "1+87654321", "33+44"],
    "multiplication": ["7x123", "123x7", "9x1", "12345x6"],
}


@pytest.mark.parametrize(
    ("task", "layout", "depth"),
    pairwise(list(PROBLEMS), ["paper", "compact", "fitted"], ["fixed", "until-stable"]),
)
def test_an_answer_does_not_depend_on_the_other_problems(
    task: str, layout: str, depth: str
) -> None:
    solver = untrained(task, layout, 8, position="alibi", depth=depth)
    together = solver.explain(PROBLEMS[task])
    for problem, solution in zip(PROBLEMS[task], together, strict=True):
        (alone,) = solver.explain(problem)
        assert (alone.symbols, alone.correct) == (solution.symbols, solution.correct)
        assert alone.confidences == pytest.approx(solution.confidences, abs=1e-5)


def test_training_may_have_more_padding_and_layers() -> None:
    """The answer has as many symbols more as there is more room."""
    solver, deeper = (untrained(layout="fitted", position="alibi", layers=n) for n in (2, 5))
    examples = Examples.of(solver.task, numbers([12, 345], [67, 8]))
    logits = {}
    for padding, room in ((0, 4), (3, 7)):
        batch = solver.training_batch(examples, padding)
        logits[padding] = solver(batch)
        assert logits[padding].shape[:2] == batch.targets.shape == (2, room)
        assert batch.answer_at == slice(room)
        assert batch.targets.tolist() == solver.layout.encode_answer(examples.answer, room).tolist()
    assert (logits[3][:, :4] - logits[0]).abs().max() > 1e-3
    torch.testing.assert_close(solver(batch, 5), deeper(batch))


def test_long_multiplication_is_trained_on_the_sums_of_all_rows() -> None:
    solver = untrained(TWO_DIGITS, "long-multiplication", position="alibi")
    examples = Examples.of(solver.task, numbers([123, 0], [45, 6]))
    batch = solver.training_batch(examples, padding=2)
    answer = solver.layout.encode_answer(examples.answer, 7)  # five digits and two of padding
    assert batch.targets[:, batch.answer_at].tolist() == answer.tolist()
    # 123 × 5; 123 × 45 from its tens on; 123 × 5; 123 × 4
    rows = [[5, 1, 6], [3, 5, 5], [5, 1, 6], [2, 9, 4]]
    padded = [row + [PAD] * (7 - len(row)) for row in rows]
    assert batch.targets[0].tolist() == [symbol for row in padded for symbol in row]
    assert batch.targets[1].tolist() == ([0, *[PAD] * 6] + [PAD] * 7) * 2
    assert solver(batch).shape == (2, 28, 15)
    layout = solver.layout.fit(examples.operands)
    assert solver.answer_logits(examples.operands, layout).shape == (2, 5, 15)


@pytest.mark.parametrize(
    ("second_digits", "attention"),
    pairwise([1, None], ["full", "local", {"kind": "positional", "discrete_rows": True}]),
    ids=label,
)
def test_long_multiplication_takes_any_length_on_both_sides(
    second_digits: int | None, attention: object
) -> None:
    """Each problem has the answer that it has alone."""
    solver = untrained(
        {"kind": "multiplication", "second_digits": second_digits},
        "long-multiplication",
        attention=attention,
        depth={"kind": "until-stable", "stable_for": 2},
        position=OVER_BANDS,
    )
    problems = ["12 × 3456", "987654 × 1", "5 × 67", "34 × 5678", "987654321 × 123456789"]
    together = solver.explain(problems)
    alone = [solver.explain(problem)[0] for problem in problems]
    assert [s.symbols for s in together] == [s.symbols for s in alone]
    assert [len(s.symbols) for s in together] == [6, 7, 3, 6, 18]
    assert solver.with_second_digits("same").task.operand_digits(4) == (4, 4)
    assert solver.task.model_dump()["second_digits"] == second_digits


def test_second_operands_may_be_shorter_than_in_training() -> None:
    solver = untrained(TWO_DIGITS, "compact")
    shorter = solver.with_second_digits(1)
    problem = numbers([12], [3])
    with solver.testing(), shorter.testing():
        expected = solver.answer_logits(problem, solver.layout)
        assert torch.equal(shorter.answer_logits(problem, shorter.layout), expected)
    longer: list[Any] = [3, "same"]
    for digits in longer:
        with pytest.raises(UsageError, match="up to 2 digits; the layout 'long-multiplication'"):
            solver.with_second_digits(digits)
    with pytest.raises(UsageError, match="at least 1 digit, not 0"):
        solver.with_second_digits(0)
    with pytest.raises(UsageError, match="trained for addition, not for products"):
        untrained().with_second_digits(2)


def test_running_sums_take_any_number_of_operands() -> None:
    three = {"kind": "addition", "operands": 3}
    solver = untrained(three, "running-sums")
    assert len(solver.explain("1 + 23 + 4")) == 1
    five = solver.with_operands(5)
    assert [solution.correct for solution in five.explain("1 + 23 + 4 + 9 + 99")] == [136]
    assert solver.task.model_dump()["operands"] == 3
    with pytest.raises(UsageError, match="adds 3 numbers; the layout 'running-sums'"):
        untrained(three, "fitted").with_operands(4)
    with pytest.raises(UsageError, match="trained for multiplication, not for sums"):
        untrained(TWO_DIGITS, "compact").with_operands(3)
    with pytest.raises(UsageError):
        solver.with_operands(1)


@pytest.mark.parametrize("position", ["relative-key", "absolute", "coupled", "abacus"])
def test_a_table_of_positions_limits_a_fitted_layout(position: str) -> None:
    solver = untrained(layout="fitted", position=position)
    solver.solve("12345+1")
    with pytest.raises(UsageError, match=r"has 14 tokens, .* takes 12;") as caught:
        solver.solve("123456+1")
    assert "\n" not in str(caught.value)


def test_testing_turns_dropout_off_and_restores_everything() -> None:
    solver = untrained(dropout=0.5).train()

    def state() -> tuple[float, bool]:
        return solver.encoder.layer(0).attention.sharpness, solver.training

    with solver.testing(sharpness=0.5):
        for inner in (1.0, 2.0):
            with solver.testing(inner):
                assert state() == (0.5 * inner, False)
            assert state() == (0.5, False)
        assert not torch.is_grad_enabled()
    assert state() == (1.0, True)
    with pytest.raises(ZeroDivisionError), solver.testing(2.0):
        raise ZeroDivisionError
    assert state() == (1.0, True)


def test_a_sharpness_set_on_an_attention_takes_effect_in_testing() -> None:
    solver = untrained()
    problems = [f"{n}+{7 * n}" for n in range(1, 200)]
    before = solver.solve(problems)
    solver.encoder.layer(0).attention.sharpness = 50.0
    assert solver.solve(problems) != before


@pytest.mark.parametrize("sharpness", [0.0, -1.0, float("nan"), float("inf"), "high"])
def test_a_bad_sharpness_is_refused(sharpness: Any) -> None:
    solver = untrained().train()
    with pytest.raises(UsageError, match="sharpness of attention is a positive"):
        solver.testing(sharpness).__enter__()
    assert solver.training


def test_show_gives_symbols_coordinates_and_the_answer() -> None:
    tokens = make_solver(digits=2).show("12+9")
    assert [token["symbol"] for token in tokens] == ["1", "2", "+", "9", "<PAD>"]
    assert [token["significance"] for token in tokens] == [1, 0, -1, 0, -1]
    assert [token["answer read here"] for token in tokens] == ["2", "1", "<PAD>", "", ""]


def test_speechless_solvers_answer_none() -> None:
    solver = make_solver(kind=KnownSolver)
    assert isinstance(solver, KnownSolver)
    solver.respond = speechless
    assert solver.solve(["1+2", "3+4"]) == [None, None]


MODULAR = {"kind": "modular-multiplication", "modulus": 10**20, "second_digits": None}
LEAST = "least-significant-first"


@pytest.mark.parametrize(
    ("task", "layout", "position", "model"),
    pairwise(
        [MODULAR, TWO_DIGITS],
        [{"kind": "compact", "order": LEAST}, {"kind": "fitted", "extra_padding": 2}],
        [
            {"kind": "relative-key-query", "coordinate": "significance", "clip": 2},
            {"kind": "randomised", "reach": 90, "inner": {"kind": "fire", "hidden": 5}},
        ],
        [
            {"encoder": "transformer", "attention": "local"},
            {"depth": {"kind": "until-stable", "reinject_input": True}, "preset": "tiny"},
        ],
    ),
    ids=label,
)
def test_a_saved_solver_is_read_back(
    task: object, layout: object, position: object, model: dict[str, Any], tmp_path: Path
) -> None:
    fields = {"layers": 2, "width": 8, "heads": 2, "position": position, **model}
    solver = make_solver(task, layout, 4, **fields).eval()
    solver.save_pretrained(tmp_path)
    loaded: Solver = Solver.from_pretrained(tmp_path)
    assert loaded.task == solver.task
    assert loaded.encoder.config == solver.encoder.config
    assert loaded.layout.options == solver.layout.options
    problem = f"1234{solver.task.symbol}67"
    assert loaded.explain(problem) == solver.explain(problem)
    operands = numbers([1234, 5], [67, 8])
    batches = [Batch.of_problems(s.layout, operands, s.device) for s in (solver, loaded)]
    with torch.inference_mode():
        assert torch.equal(solver(batches[0]), loaded(batches[1]))


@pytest.mark.parametrize(
    ("task", "layout"),
    [("addition", "paper"), (TWO_DIGITS, "long-multiplication"), (MODULAR, "fitted")],
    ids=label,
)
def test_the_card_says_what_the_model_is_and_its_code_runs(
    task: object, layout: str, tmp_path: Path
) -> None:
    solver = untrained(task, layout, 4, position="alibi")
    solver.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "More Information Needed" not in card
    assert "library_name: lengthwise" in card
    for fact in (solver.task.kind, layout, "alibi", "16, 2"):
        assert fact in card
    assert f"{sum(p.numel() for p in solver.parameters()):,}" in card
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    with redirect_stdout(io.StringIO()) as printed:
        exec(code.replace("PATH", str(tmp_path)), {})
    assert "after layer 2" in printed.getvalue()
