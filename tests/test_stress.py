"""Problems of the stress suite are what their names say; verdicts on solvers whose answers are known are right."""

import io
import json
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console

from lengthwise import digits
from lengthwise.digits import Numbers
from lengthwise.errors import UsageError
from lengthwise.evaluation import wilson
from lengthwise.layout import Layout
from lengthwise.solver import Solver
from lengthwise.stress import CASES, Failure, Outcome, stress, table
from lengthwise.tasks import TASKS, Task

TINY = {"layers": 1, "width": 4, "heads": 1, "position": "none"}
GENERIC = {"random", "unequal lengths", "zeros inside", "palindromes", "largest and smallest", "zero"}
SUMS = {"all carries", "carry chain", "no carries"}
LENGTHS = [1, 2, 5, 40]
COUNT = 60

Problem = tuple[int, ...]


class Known(Solver):
    """A solver whose answers are `respond(*operands)`; where that is None, it says what is no number."""

    respond: Callable[..., Numbers | None]

    def forward(self, operands: tuple[Numbers, ...], layout: Layout | None = None) -> torch.Tensor:
        layout = layout or self.layout.fit(operands)
        answers = self.respond(*operands)
        if answers is None:
            tokens = np.full((len(operands[0]), layout.n_out), layout.vocabulary.index(self.task.symbol))
        else:
            tokens = layout.encode_answer(answers)
        return torch.nn.functional.one_hot(torch.from_numpy(tokens), len(layout.vocabulary)).float()


def known(respond: Callable[..., Numbers | None] | None, task: Any = "addition", size: int = 5, **layout: Any) -> Known:
    """The task's own answers, unless `respond` gives others."""
    solver = Known(task=task, digits=size, layout=layout, model=TINY)
    solver.respond = respond or solver.task.answer
    return solver


def without_carries(*operands: Numbers) -> Numbers:
    return Numbers.of(sum(n.widened(max(n.width for n in operands)) for n in operands) % 10)


def carries_of(problem: Problem) -> list[bool]:
    """Whether each column of a sum carries, by adding as at school."""
    numbers, carry, marks = list(problem), 0, []
    while any(numbers):
        carry = (sum(n % 10 for n in numbers) + carry) // 10
        marks.append(carry > 0)
        numbers = [n // 10 for n in numbers]
    return marks


def chain_of(detail: str, n: int) -> int:
    size = detail.removesuffix(" in a row")
    return n if size == "n" else int(size)


def lengths_of(problem: Problem) -> tuple[int, ...]:
    return tuple(len(str(number)) for number in problem)


def is_power_of_ten(number: int) -> bool:
    return str(number).strip("0") == "1" and number > 1


def is_hollow(number: int) -> bool:
    """Between the first and the last digit zeros and at most one other, and neither of those two is 0."""
    inside = str(number)[1:-1]
    return number % 10 > 0 and len(inside) - inside.count("0") <= 1 and (not inside or "0" in inside)


# What is true of each problem: of the detail, the numbers, and the most digits that each may have.
Check = Callable[[str, Problem, tuple[int, ...]], bool]
PROPERTIES: dict[str, Check] = {
    "random": lambda detail, p, room: lengths_of(p) == room,
    "all carries": lambda detail, p, room: (
        sorted(p) == [1] * (len(p) - 1) + [10 ** room[0] - 1]
        and detail == " + ".join("1" if number == 1 else "9…9" for number in p)
        and carries_of(p) == [True] * room[0]
    ),
    "carry chain": lambda detail, p, room: (
        lengths_of(p) == room
        and sum(carries_of(p)) == (k := chain_of(detail, room[0]))
        and [True] * k in [carries_of(p)[i : i + k] for i in range(room[0])]
        and sum(a + b >= 10 for a, b in zip(*([int(c) for c in str(n)] for n in p), strict=True)) == 1
    ),
    "no carries": lambda detail, p, room: lengths_of(p) == room and not any(carries_of(p)),
    "unequal lengths": lambda detail, p, room: (
        lengths_of(p) != room
        and lengths_of(p)
        == {
            "first of 1 digit": (1, *room[1:]),
            "first half as long": (-(-room[0] // 2), *room[1:]),
            "others of 1 digit": (room[0], *[1] * (len(room) - 1)),
            "others half as long": (room[0], *(-(-n // 2) for n in room[1:])),
        }[detail]
    ),
    "zeros inside": lambda detail, p, room: lengths_of(p) == room and all(map(is_hollow, p)),
    "palindromes": lambda detail, p, room: (
        lengths_of(p) == room
        and all(str(n) == str(n)[::-1] for n in p)
        and (detail == "random" or all(len(set(str(n))) == 1 for n in p))
    ),
    "largest and smallest": lambda detail, p, room: (
        p
        == {
            "9…9 and 9…9": tuple(10**n - 1 for n in room),
            "9…9 and 9": (10 ** room[0] - 1, *[9] * (len(room) - 1)),
            "10…0 and 10…0": tuple(10 ** (n - 1) for n in room),
            "10…0 and 1": (10 ** (room[0] - 1), *[1] * (len(room) - 1)),
        }[detail]
    ),
    "zero": lambda detail, p, room: {
        "0 and random": p[0] == 0 and all(p[1:]) and lengths_of(p)[1:] == room[1:],
        "random and 0": p[0] > 0 and not any(p[1:]) and lengths_of(p)[0] == room[0],
        "0 and 0": not any(p),
    }[detail],
    "simple factors": lambda detail, p, room: {
        "random × 1": p[1] == 1 and lengths_of(p)[0] == room[0],
        "10…0 × random": is_power_of_ten(p[0]) and lengths_of(p) == room,
        "random × 10…0": is_power_of_ten(p[1]) and lengths_of(p)[0] == room[0],
        "random × zeros inside": lengths_of(p) == room and is_hollow(p[1]),
    }[detail],
}


def problems(task: Task, case: str, length: int, count: int = COUNT, seed: int = 0) -> dict[str, list[Problem]]:
    """By detail."""
    batches = list(CASES[case].problems(task, length, count, seed))
    assert len({detail for detail, _ in batches}) == len(batches)
    return {d: list(zip(*(n.to_ints() for n in operands), strict=True)) for d, operands in batches}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("case", CASES)
def test_problems_are_what_the_case_says(task, case, length):
    """Numbers that the task allows, problems that all differ, no more than asked, the same for the same seed."""
    if not CASES[case].applies(task):
        pytest.skip(f"{task.kind} has no {case}")
    room = task.operand_digits(length)
    for detail, operands in CASES[case].problems(task, length, COUNT, 0):
        assert len(operands) == len(room)
        for numbers, most in zip(operands, room, strict=True):
            assert numbers.lengths.tolist() == [len(str(n)) for n in numbers.to_ints()]
            assert max(numbers.lengths) <= most
            assert min(numbers.to_ints()) > 0 or case == "zero"
        rows = list(zip(*(n.to_ints() for n in operands), strict=True))
        assert 1 <= len(rows) == len(set(rows)) <= COUNT
        assert all(PROPERTIES[case](detail, row, room) for row in rows)
    assert problems(task, case, length) == problems(task, case, length)


def test_which_cases_apply():
    def applying(task: Any) -> set[str]:
        return {name for name, case in CASES.items() if case.applies(TASKS.parse(task))}

    assert applying("addition") == GENERIC | SUMS
    assert applying({"kind": "addition", "operands": 9}) == GENERIC | {"all carries", "no carries"}
    assert applying({"kind": "addition", "operands": 10}) == GENERIC | {"all carries"}
    assert applying("multiplication") == GENERIC | {"simple factors"}
    for kind in ("elementwise-addition", "modular-addition", "modular-multiplication"):
        assert applying(kind) == GENERIC
    assert all(case.description and "\n" not in case.description for case in CASES.values())


def test_problems_vary():
    """Where there are many problems of a kind, there are as many as asked, and other seeds and lengths have others."""
    task = TASKS.parse("addition")
    fixed = ("all carries", "largest and smallest")
    for case in CASES:
        if CASES[case].applies(task):
            drawn, again = problems(task, case, 40), problems(task, case, 40, seed=1)
            sizes = {d: len(rows) for d, rows in drawn.items()}
            if case in fixed:
                assert set(sizes.values()) == {1}
                assert drawn == again
            else:
                assert all(drawn[d] != again[d] for d in drawn if d != "0 and 0")
                assert all(n == COUNT for d, n in sizes.items() if d not in ("one digit repeated", "0 and 0"))
    assert len(problems(task, "palindromes", 40, 2000)["one digit repeated"]) == 81
    assert len(problems(task, "random", 1, 2000)[""]) == 81
    assert len(problems(task, "carry chain", 1, 2000)["n in a row"]) == 45
    assert len(problems(task, "no carries", 1, 2000)[""]) == 36


@pytest.mark.parametrize(
    ("length", "chains"),
    [
        (1, {1}),
        (2, {1, 2}),
        (10, set(range(1, 11))),
        (11, {1, 2, 4, 8, 11}),
        (32, {1, 2, 4, 8, 16, 32}),
        (33, {1, 2, 4, 8, 16, 32, 33}),
    ],
)
def test_chains_of_every_length(length, chains):
    """And each starts at every place at which it can."""
    drawn = problems(TASKS.parse("addition"), "carry chain", length, 1000)
    assert {chain_of(detail, length) for detail in drawn} == chains
    for detail, rows in drawn.items():
        starts = {carries_of(row).index(True) for row in rows}
        assert starts == set(range(length - chain_of(detail, length) + 1))


def test_a_perfect_solver_solves_all(task):
    for outcome in stress(known(None, task), [1, 2, 5], 20):
        assert outcome.correct == outcome.examples > 0
        assert outcome.exact_match == 1
        assert outcome.interval == wilson(outcome.examples, outcome.examples)
        assert outcome.failures == ()


@pytest.mark.parametrize("task", ["addition", {"kind": "multiplication", "second_digits": None}, "multiplication"])
@pytest.mark.parametrize("compact", [False, True])
def test_fitted_layouts_solve_any_length(task, compact):
    """Also where the problems of a batch are shorter than the others, and longer than those of training."""
    outcomes = stress(known(None, task, size=3, fitted=True, compact=compact), [2, 12], 10)
    assert {outcome.length for outcome in outcomes} == {2, 12}
    assert all(outcome.correct == outcome.examples for outcome in outcomes)


@pytest.mark.parametrize("operands", [2, 3])
def test_a_solver_that_ignores_carries_fails_where_there_are_some(operands):
    task = TASKS.parse({"kind": "addition", "operands": operands})
    outcomes = stress(known(without_carries, task, size=20), [1, 2, 5, 20], COUNT)
    for o in outcomes:
        rows = problems(task, o.case, o.length)[o.detail]
        assert o.examples == len(rows)
        assert o.correct == sum(not any(carries_of(row)) for row in rows)
        assert len(o.failures) == min(3, o.examples - o.correct)
        if o.case in ("all carries", "carry chain"):
            assert o.exact_match == 0
        if o.case == "no carries":
            assert o.exact_match == 1
    assert 0 < next(o for o in outcomes if o.case == "random" and o.length == 1).exact_match < 1


def test_failures_are_told_as_texts():
    def first(solver: Solver, case: str, length: int) -> Failure:
        return next(o for o in stress(solver, [length], 2) if o.case == case).failures[0]

    assert first(known(without_carries), "all carries", 5) == ("99999 + 1", "99990", "100000")
    assert first(known(lambda *_: None), "all carries", 3) == ("999 + 1", None, "1000")
    seven = Numbers(np.array([[7, 0]]), np.array([2]))
    elementwise = known(lambda a, b: seven[np.zeros(len(a), int)], "elementwise-addition")
    assert first(elementwise, "largest and smallest", 2) == ("99 + 99", "07", "88")
    failure = first(known(lambda *_: None, "multiplication"), "largest and smallest", 4)
    assert failure == ("9999 × 999", None, "9989001")


def test_failures_of_a_case_are_its_first_wrong_problems(monkeypatch):
    """However few problems the memory allows at a time."""
    solver = known(lambda a, b: without_carries(a, b))
    outcomes = stress(solver, [4], 50)
    monkeypatch.setattr("lengthwise.solver.SYMBOLS_AT_ONCE", {"cpu": 24})
    assert stress(solver, [4], 50) == outcomes
    rows = problems(solver.task, "random", 4, 50)[""]
    wrong = [f"{a} + {b}" for a, b in rows if any(carries_of((a, b)))][:3]
    random = next(o for o in outcomes if o.case == "random")
    assert [failure.problem for failure in random.failures] == wrong


def test_numbers_of_thousands_of_digits():
    """Longer than what Python's own int and str convert."""
    outcomes = stress(known(without_carries, size=5000), [5000], 2)
    failure = next(o for o in outcomes if o.case == "all carries").failures[0]
    assert failure == ("9" * 5000 + " + 1", "9" * 4999 + "0", "1" + "0" * 5000)
    assert len(shown(outcomes)) < 20_000


class Difference(Task):
    """|x₁ − x₂|, as in docs/extending.md."""

    symbol: ClassVar[str] = "-"

    def answer(self, *operands: Numbers) -> Numbers:
        width = max(n.width for n in operands)
        a, b = (n.widened(width) for n in operands)
        larger = digits.at_least(a, b)[:, None]
        return Numbers.of(digits.carried((a - b) * (2 * larger - 1)))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits)


def test_a_strangers_task_has_the_generic_cases(monkeypatch):
    monkeypatch.setattr(TASKS, "_choices", dict(TASKS._choices))
    TASKS.register("stress-difference")(Difference)
    outcomes = stress(known(None, "stress-difference"), "1,4", 10)
    assert {o.case for o in outcomes} == GENERIC
    assert all(o.exact_match == 1 for o in outcomes)
    wrong = stress(known(lambda *_: None, "stress-difference"), [4], 10)
    assert Failure("9999 - 9999", None, "0") in [failure for o in wrong for failure in o.failures]


def test_options_are_checked_and_passed_on():
    solver = known(None)
    for lengths, examples, sentence in [([6], 1, "length 6 "), ("x", 1, "no list"), ([5], 0, "at least 1 example")]:
        with pytest.raises(UsageError, match=sentence):
            stress(solver, lengths, examples)
    plain = Solver(task="addition", digits=2, layout={}, model={**TINY, "encoder": "transformer"})
    with pytest.raises(UsageError, match="universal"):
        stress(plain, [2], 1, layers=3)
    seen = []
    solver.respond = lambda *operands: seen.append(solver.encoder.knobs) or solver.task.answer(*operands)
    stress(solver, [2], 1, layers=3, sharpness=2.0)
    assert {(knobs.layers, knobs.sharpness) for knobs in seen} == {(3, 2.0)}
    random = [stress(known(lambda *_: None), [5], 3, seed)[0].failures for seed in (0, 0, 1)]
    assert random[0] == random[1] != random[2]


def test_an_untrained_model_is_tested_without_dropout():
    solver = Solver(task="addition", digits=3, layout={}, model={**TINY, "width": 8, "dropout": 0.5})
    assert stress(solver, [3], 20) == stress(solver, [3], 20)
    assert solver.training


def test_records_are_json():
    outcome = Outcome("random", "", 5, 4, 3, (Failure("1 + 2", None, "3"),))
    low, high = wilson(3, 4)
    assert json.loads(json.dumps(outcome.to_json())) == {
        "case": "random",
        "detail": "",
        "length": 5,
        "examples": 4,
        "correct": 3,
        "exact_match": 0.75,
        "low": low,
        "high": high,
        "failures": [{"problem": "1 + 2", "answer": None, "correct": "3"}],
    }


def shown(outcomes: list[Outcome]) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(table(outcomes))
    return console.file.getvalue()


def without_margin(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n"))


def test_the_table_has_a_row_a_case_and_a_column_a_length():
    solver = known(without_carries, size=50)
    outcomes = [o for length in (3, 50) for o in stress(solver, [length], 20)]
    lines = [line.split("  ") for line in shown(outcomes).splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert rows[1] == ["case", "problems", "3 digits", "50 digits"]
    names = [row[0] for row in rows[3:] if len(row) == 4]
    assert names == sorted(names, key=list(CASES).index)
    assert ["all carries", "9…9 + 1", "0/1", "0/1"] in rows
    assert ["no carries", "digits that add up to 9 at most", "20/20", "20/20"] in rows
    assert [row[1:] for row in rows if row and row[0] == "carry chain" and len(row) == 4] == [
        ["n in a row", "0/20", "0/20"],
        ["1 in a row", "0/20", "0/20"],
        ["2 in a row", "0/20", "0/20"],
        *([f"{k} in a row", "–", "0/20"] for k in (4, 8, 16, 32)),
    ]
    assert "\nall carries, 9…9 + 1:\n  999 + 1 = 990, but it is 1000\n" in without_margin(shown(outcomes))
    assert "\nno carries, " not in shown(outcomes)

    long = shown([o for o in outcomes if o.length == 50])
    nines = "9" * 20 + "…" + "9" * 10
    assert f"{nines} + 1 = {'9' * 20}…{'9' * 9}0, but it is 1{'0' * 19}…{'0' * 10}" in long
    inside = shown([Outcome("random", "", 50, 1, 0, (Failure("1 + 2", "1" * 50, "1" * 30 + "2" + "1" * 19),))])
    assert f"  1 + 2 = {'1' * 20}…{'1' * 10}, but it is {'1' * 20}…{'1' * 10}, from digit 31 on" in inside
    nothing = shown(stress(known(lambda *_: None), [2], 1))
    assert "99 + 1 = no number, but it is 100" in nothing
    assert "but it is" not in shown(stress(known(None), [2], 1))
