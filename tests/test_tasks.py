"""Every registered task keeps the contract; the package's compute what Python's integers do."""

import re
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.arithmetic.digits import Numbers, random_numbers
from lengthwise.arithmetic.tasks import (
    SYMBOL,
    Addition,
    BinaryMultiplication,
    ElementwiseAddition,
    ModularAddition,
    ModularMultiplication,
    Multiplication,
    Task,
)
from lengthwise.base import UsageError

MODULI = [2, 100, 101, 128, 1000, 10**20]


def operands_of(task: Task, digits: int, count: int = 50) -> tuple[Numbers, ...]:
    """Random operands of up to this many digits, with all nines, all ones and 1 among them."""
    rng = np.random.default_rng(digits)
    operands = []
    for most in task.operand_digits(digits):
        texts = random_numbers(rng, rng.integers(1, most + 1, count)).to_text()
        operands.append(Numbers.from_text([*texts, "9" * most, "1" * most, "1"]))
    return task.admit(*operands)


def test_answers_fit_and_have_the_right_lengths(task: Task) -> None:
    for digits in (1, 2, 5, 35):
        answer = task.answer(*operands_of(task, digits))
        assert answer.lengths.max() <= task.answer_digits(task.operand_digits(digits))
        needed = np.array([len(str(value)) for value in answer.to_ints()])
        fits = answer.lengths >= needed if task.leading_zeros else answer.lengths == needed
        assert fits.all()


def test_a_task_has_a_token_and_its_first_operand_has_the_problems_length(task: Task) -> None:
    assert re.fullmatch(SYMBOL, task.symbol)
    assert [task.operand_digits(n)[0] for n in (1, 7, 50)] == [1, 7, 50]


def test_admitted_operands_are_admitted_unchanged(task: Task) -> None:
    operands = operands_of(task, 6)
    again = task.admit(*operands)
    assert [n.to_text() for n in again] == [n.to_text() for n in operands]


def test_an_answer_depends_on_its_operands_alone(task: Task) -> None:
    """Neither the batch nor the arrays' width matters, and the operands stay as they were."""
    operands = operands_of(task, 6)
    before = [numbers.digits.copy() for numbers in operands]
    together = task.answer(*operands).to_text()
    wider = tuple(Numbers(n.pad_to(n.width + 9), n.lengths) for n in operands)
    assert task.answer(*wider).to_text() == together
    rows = range(len(together))
    alone = [task.answer(*(n[i : i + 1] for n in operands)).to_text()[0] for i in rows]
    assert alone == together
    for numbers, digits in zip(operands, before, strict=True):
        np.testing.assert_array_equal(numbers.digits, digits)


def test_a_symbol_that_no_problem_can_contain_is_an_error(subtests: pytest.Subtests) -> None:
    cases: list[str | None] = ["", "<>", "7", "=", " ", "_", None]
    for symbol in cases:
        with subtests.test(symbol):
            annotations = {"symbol": ClassVar[str]}
            with pytest.raises(
                UsageError, match="it must be one character that is neither a digit"
            ):
                type(
                    "Odd",
                    (Task,),
                    {"symbol": symbol, "__module__": __name__, "__annotations__": annotations},
                )


def positive(most_digits: int) -> st.SearchStrategy[int]:
    return st.one_of(
        st.integers(1, most_digits).flatmap(lambda n: st.integers(10 ** (n - 1), 10**n - 1)),
        st.integers(1, most_digits).map(lambda n: 10**n - 1),
    )


def answers(task: Task, rows: list[tuple[int, ...]]) -> list[str]:
    columns = zip(*rows, strict=True)
    return task.answer(*(Numbers.from_ints(column) for column in columns)).to_text()


def pairs(second_digits: int = 40) -> st.SearchStrategy[list[tuple[int, ...]]]:
    return st.lists(st.tuples(positive(40), positive(second_digits)), min_size=1, max_size=6)


@given(st.sampled_from([2, 3, 100]), st.data())
def test_addition(operands: int, data: Any) -> None:
    row = data.draw(st.lists(positive(40), min_size=operands, max_size=operands))
    assert answers(Addition(operands=operands), [tuple(row)]) == [str(sum(row))]


@given(pairs())
def test_elementwise_addition(rows: list[tuple[int, ...]]) -> None:
    expected = []
    for a, b in rows:
        width = max(len(str(a)), len(str(b)))
        columns = zip(str(a).zfill(width), str(b).zfill(width), strict=True)
        expected.append("".join(str((int(x) + int(y)) % 10) for x, y in columns))
    assert answers(ElementwiseAddition(), rows) == expected


@given(st.sampled_from(MODULI), st.booleans(), pairs())
def test_modular_addition(modulus: int, constant: bool, rows: list[tuple[int, ...]]) -> None:
    task = ModularAddition(modulus=modulus, constant_length=constant)
    width = len(str(modulus - 1)) if constant else 1
    assert answers(task, rows) == [str((a + b) % modulus).zfill(width) for a, b in rows]


@given(st.sampled_from([1, 2, 3, None]), st.sampled_from(MODULI), st.data())
def test_products(second_digits: int | None, modulus: int, data: Any) -> None:
    rows = data.draw(pairs(second_digits or 40))
    task = Multiplication(second_digits=second_digits)
    modular = ModularMultiplication(modulus=modulus, second_digits=second_digits)
    assert answers(task, rows) == [str(a * b) for a, b in rows]
    assert answers(modular, rows) == [str(a * b % modulus) for a, b in rows]
    assert task.operand_digits(40) == modular.operand_digits(40) == (40, second_digits or 40)


@given(st.lists(st.tuples(positive(40), positive(40)), min_size=1, max_size=20))
def test_binary_products(rows: list[tuple[int, ...]]) -> None:
    """Decimal digits become bits of the same lengths, whose products are those of integers."""
    task = BinaryMultiplication(second_digits=None)
    sampled = [Numbers.from_ints(column) for column in zip(*rows, strict=True)]
    operands = task.admit(*sampled)
    for before, after in zip(sampled, operands, strict=True):
        assert list(map(len, after.to_text())) == list(map(len, before.to_text()))
    texts = zip(*(numbers.to_text() for numbers in operands), strict=True)
    assert task.answer(*operands).to_text() == [f"{int(a, 2) * int(b, 2):b}" for a, b in texts]
