"""Problems of the stress suite are what their names say, and scores of known solvers are right."""

import io
import json
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import label
from known import computing, known, make_solver, speechless
from pairwise import pairwise
from rich.console import Console

from lengthwise.arithmetic import digits
from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import TASKS, Task
from lengthwise.base import UsageError
from lengthwise.evaluation.accuracy import wilson
from lengthwise.evaluation.stress import CASES, Failure, Outcome, stress, table

GENERIC = {
    "random",
    "unequal lengths",
    "zeros inside",
    "palindromes",
    "largest and smallest",
    "zero",
}
SUMS = {"all carries", "carry chain", "no carries"}
COUNT = 60
Problem = tuple[int, ...]


def parse_task(value: object) -> Task:
    task = TASKS.parse(value)
    assert isinstance(task, Task)
    return task


def without_carries(*operands: Numbers) -> Numbers:
    width = max(n.width for n in operands)
    return Numbers.of(np.sum([n.pad_to(width) for n in operands], axis=0) % 10)


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
    """Neither end is 0, and at most one digit between them is not."""
    inside = str(number)[1:-1]
    few = len(inside) - inside.count("0") <= 1
    return number % 10 > 0 and few and (not inside or "0" in inside)


def is_chain(detail: str, p: Problem, room: tuple[int, ...]) -> bool:
    """One carry that starts in one column and runs through the next ones."""
    size, marks = chain_of(detail, room[0]), carries_of(p)
    columns = zip(*([int(digit) for digit in str(n)] for n in p), strict=True)
    starts = sum(a + b >= 10 for a, b in columns)
    in_a_row = [True] * size in [marks[i : i + size] for i in range(room[0])]
    return lengths_of(p) == room and sum(marks) == size and in_a_row and starts == 1


# What holds for each problem: its detail, the numbers, and the most digits that each may have.
def name_carries(operands: Problem) -> str:
    name = " + ".join("1" if number == 1 else "9…9" for number in operands)
    ones = " + ".join("1" * (len(operands) - 1))
    return name.replace(ones, "1 + … + 1") if len(operands) > 4 else name


Check = Callable[[str, Problem, tuple[int, ...]], bool]
PROPERTIES: dict[str, Check] = {
    "random": lambda detail, p, room: lengths_of(p) == room,
    "all carries": lambda detail, p, room: (
        sorted(p) == [1] * (len(p) - 1) + [10 ** room[0] - 1]
        and detail == name_carries(p)
        and carries_of(p) == [True] * room[0]
    ),
    "carry chain": is_chain,
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


def problems(
    task: Task, case: str, length: int, count: int = COUNT, seed: int = 0
) -> dict[str, list[Problem]]:
    """By detail."""
    batches = list(CASES[case].problems(task, length, count, seed))
    assert len({detail for detail, _ in batches}) == len(batches)
    return {d: list(zip(*(n.to_ints() for n in p), strict=True)) for d, p in batches}


def test_problems_are_what_their_case_says(task: Task) -> None:
    """Allowed numbers, different problems, at most as many as given, the same for the same seed."""
    applying = [name for name, case in CASES.items() if case.applies(task)]
    for case, length in pairwise(applying, [1, 2, 5, 40]):
        room = task.operand_digits(length)
        for detail, operands in CASES[case].problems(task, length, COUNT, 0):
            assert len(operands) == len(room)
            for numbers, most in zip(operands, room, strict=True):
                assert numbers.lengths.tolist() == [len(str(n)) for n in numbers.to_ints()]
                assert max(numbers.lengths) <= most
                assert min(numbers.to_ints()) > 0 or case == "zero"
            rows = list(zip(*(n.to_ints() for n in operands), strict=True))
            assert 1 <= len(rows) == len(set(rows)) <= COUNT
            assert all(PROPERTIES[case](detail, row, room) for row in rows), (case, detail)
        assert problems(task, case, length) == problems(task, case, length)


def test_which_cases_apply() -> None:
    def applying(task: object) -> set[str]:
        return {name for name, case in CASES.items() if case.applies(parse_task(task))}

    assert applying("addition") == GENERIC | SUMS
    nine, ten = ({"kind": "addition", "operands": n} for n in (9, 10))
    assert applying(nine) == GENERIC | {"all carries", "no carries"}
    assert applying(ten) == GENERIC | {"all carries"}
    assert applying("multiplication") == GENERIC | {"simple factors"}
    for kind in ("elementwise-addition", "modular-addition", "modular-multiplication"):
        assert applying(kind) == GENERIC
    assert all(case.description and "\n" not in case.description for case in CASES.values())


def test_problems_vary_with_the_seed() -> None:
    """Where there are enough problems of a kind, there are as many as asked for."""
    task = parse_task("addition")
    few = ("one digit repeated", "0 and 0")
    for name in [name for name, case in CASES.items() if case.applies(task)]:
        sampled, again = problems(task, name, 40), problems(task, name, 40, seed=1)
        sizes = {detail: len(rows) for detail, rows in sampled.items()}
        if name in ("all carries", "largest and smallest"):
            assert set(sizes.values()) == {1}
            assert sampled == again
        else:
            assert all(sampled[d] != again[d] for d in sampled if d != "0 and 0")
            assert all(size == COUNT for detail, size in sizes.items() if detail not in few)
    assert len(problems(task, "palindromes", 40, 2000)["one digit repeated"]) == 81
    assert len(problems(task, "random", 1, 2000)[""]) == 81
    assert len(problems(task, "carry chain", 1, 2000)["n in a row"]) == 45
    assert len(problems(task, "no carries", 1, 2000)[""]) == 36


@pytest.mark.parametrize(
    ("length", "chains"),
    [(1, {1}), (10, set(range(1, 11))), (11, {1, 2, 4, 8, 11}), (33, {1, 2, 4, 8, 16, 32, 33})],
)
def test_chains_of_every_length(length: int, chains: set[int]) -> None:
    """Each starts at every place at which it can."""
    sampled = problems(parse_task("addition"), "carry chain", length, 1000)
    assert {chain_of(detail, length) for detail in sampled} == chains
    for detail, rows in sampled.items():
        starts = {carries_of(row).index(True) for row in rows}
        assert starts == set(range(length - chain_of(detail, length) + 1))


def test_a_perfect_solver_solves_everything(task: Task) -> None:
    for outcome in stress(computing(task=task), [1, 2, 5], 20):
        assert outcome.correct == outcome.examples > 0
        assert outcome.exact_match == 1
        assert outcome.interval == wilson(outcome.examples, outcome.examples)
        assert outcome.failures == ()


@pytest.mark.parametrize(
    ("task", "layout"),
    [
        ("addition", "fitted"),
        ("multiplication", "fitted"),
        ({"kind": "multiplication", "second_digits": None}, "long-multiplication"),
    ],
    ids=label,
)
def test_layouts_that_fit_any_length_are_stressed_at_any(task: object, layout: str) -> None:
    outcomes = stress(computing(task=task, digits=3, layout=layout), [2, 12], 10)
    assert {outcome.length for outcome in outcomes} == {2, 12}
    assert all(outcome.correct == outcome.examples for outcome in outcomes)


@pytest.mark.parametrize("operands", [2, 3])
def test_a_solver_that_ignores_carries_fails_where_there_are_some(operands: int) -> None:
    task = parse_task({"kind": "addition", "operands": operands})
    outcomes = stress(computing(without_carries, task, digits=20), [1, 2, 5, 20], COUNT)
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


def test_failures_are_texts() -> None:
    def first(solver: Any, case: str, length: int) -> Failure:
        return next(o for o in stress(solver, [length], 2) if o.case == case).failures[0]

    summing = computing(without_carries)
    assert first(summing, "all carries", 5) == ("99999 + 1", "99990", "100000")
    assert first(known(speechless), "all carries", 3) == ("999 + 1", None, "1000")
    seven = Numbers(np.array([[7, 0]]), np.array([2]))
    elementwise = computing(lambda a, b: seven[np.zeros(len(a), int)], "elementwise-addition")
    assert first(elementwise, "largest and smallest", 2) == ("99 + 99", "07", "88")
    failure = first(known(speechless, "multiplication"), "largest and smallest", 4)
    assert failure == ("9999 × 999", None, "9989001")


def test_failures_are_the_first_wrong_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few problems are solved at a time."""
    solver = computing(without_carries)
    outcomes = stress(solver, [4], 50)
    monkeypatch.setattr("lengthwise.solver.solver.SYMBOLS_AT_ONCE", {"cpu": 24})
    assert stress(solver, [4], 50) == outcomes
    rows = problems(solver.task, "random", 4, 50)[""]
    wrong = [f"{a} + {b}" for a, b in rows if any(carries_of((a, b)))][:3]
    random = next(o for o in outcomes if o.case == "random")
    assert [failure.problem for failure in random.failures] == wrong


def test_numbers_of_thousands_of_digits() -> None:
    """Longer than Python converts at once."""
    outcomes = stress(computing(without_carries, digits=5000), [5000], 2)
    failure = next(o for o in outcomes if o.case == "all carries").failures[0]
    assert failure == ("9" * 5000 + " + 1", "9" * 4999 + "0", "1" + "0" * 5000)
    assert len(show(outcomes)) < 20_000


class Difference(Task):
    """|x₁ − x₂|."""

    symbol: ClassVar[str] = "-"

    def answer(self, *operands: Numbers) -> Numbers:
        width = max(n.width for n in operands)
        a, b = (n.pad_to(width) for n in operands)
        larger = digits.at_least(a, b)[:, None]
        return Numbers.of(digits.resolve_carries((a - b) * (2 * larger - 1)))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits)


def test_a_users_task_has_the_generic_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TASKS, "_classes", dict(TASKS._classes))
    TASKS.register("stress-difference")(Difference)
    outcomes = stress(computing(task="stress-difference"), "1,4", 10)
    assert {o.case for o in outcomes} == GENERIC
    assert all(o.exact_match == 1 for o in outcomes)
    wrong = stress(known(speechless, "stress-difference"), [4], 10)
    assert Failure("9999 - 9999", None, "0") in [failure for o in wrong for failure in o.failures]


def test_options_are_checked() -> None:
    solver = computing()
    options: list[tuple[Any, int, str]] = [
        ([6], 1, "length 6 "),
        ("x", 1, "not a list"),
        ([5], 0, "at least 1 example"),
    ]
    for lengths, examples, sentence in options:
        with pytest.raises(UsageError, match=sentence):
            stress(solver, lengths, examples)
    own_layers = make_solver(digits=2, layers=1, width=4, heads=1, encoder="transformer")
    with pytest.raises(UsageError, match="only shared layers"):
        stress(own_layers, [2], 1, layers=3)


def test_layers_and_sharpness_reach_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = computing()
    seen = set()
    respond = solver.answer_logits

    def observe(operands: Any, layout: Any, layers: int | None = None) -> Any:
        seen.add((layers, solver.encoder.layer(0).attention.sharpness))
        return respond(operands, layout, layers)

    monkeypatch.setattr(solver, "answer_logits", observe)
    stress(solver, [2], 1, layers=3, sharpness=2.0)
    assert seen == {(3, 2.0)}


def test_an_untrained_model_is_tested_without_dropout() -> None:
    solver = make_solver(digits=3, layers=1, width=8, heads=1, dropout=0.5).train()
    assert stress(solver, [3], 20) == stress(solver, [3], 20)
    assert solver.training


def test_outcomes_as_json() -> None:
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


def show(outcomes: list[Outcome]) -> str:
    file = io.StringIO()
    Console(file=file, width=160).print(table(outcomes))
    return "\n".join(line.rstrip() for line in file.getvalue().split("\n"))


def test_the_table_has_a_row_a_case_and_a_column_a_length() -> None:
    solver = computing(without_carries, digits=50)
    outcomes = [o for length in (3, 50) for o in stress(solver, [length], 20)]
    lines = [line.split("  ") for line in show(outcomes).splitlines()]
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
    assert "\nall carries, 9…9 + 1:\n  999 + 1 = 990, but it is 1000\n" in show(outcomes)
    assert "\nno carries, " not in show(outcomes)


def test_the_table_shortens_long_failures() -> None:
    outcomes = stress(computing(without_carries, digits=50), [50], 2)
    nines = "9" * 20 + "…" + "9" * 20
    wrong, right = f"{'9' * 20}…{'9' * 19}0", f"1{'0' * 19}…{'0' * 20}"
    assert f"{nines} + 1 = {wrong}, but it is {right}" in show(outcomes)
    failure = Failure("1 + 2", "1" * 50, "1" * 25 + "2" + "1" * 24)
    same = f"{'1' * 20}…{'1' * 20}"
    inside = show([Outcome("random", "", 50, 1, 0, (failure,))])
    assert f"  1 + 2 = {same}, but it is {same}, from digit 26 on" in inside
    assert "99 + 1 = not a number, but it is 100" in show(stress(known(speechless), [2], 1))
    assert "but it is" not in show(stress(computing(), [2], 1))
