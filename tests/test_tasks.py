"""Every registered task keeps the contract; the six concrete ones compute what Python's integers do."""

import json
import re
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.digits import Numbers, random_numbers
from lengthwise.errors import UsageError
from lengthwise.registry import Registry
from lengthwise.tasks import (
    SYMBOL,
    TASKS,
    Addition,
    ElementwiseAddition,
    ModularAddition,
    ModularMultiplication,
    Multiplication,
    Task,
)

MODULI = [2, 100, 101, 128, 1000, 10**20]


def operands_of(task: Task, digits: int, count: int = 50) -> tuple[Numbers, ...]:
    """Random operands of up to so many digits, with all nines, all ones and as small as can be among them."""
    rng = np.random.default_rng(digits)
    operands = []
    for most in task.operand_digits(digits):
        drawn = random_numbers(rng, rng.integers(1, most + 1, count)).to_text()
        operands.append(Numbers.from_text([*drawn, "9" * most, "1" * most, "1"]))
    return task.arranged(*operands)


@pytest.mark.parametrize("digits", [1, 2, 5, 35])
def test_answers_fit_and_have_the_right_lengths(task, digits):
    answer = task.answer(*operands_of(task, digits))
    assert answer.lengths.max() <= task.answer_digits(task.operand_digits(digits))
    needed = np.array([len(str(value)) for value in answer.to_ints()])
    assert (answer.lengths >= needed if task.leading_zeros else answer.lengths == needed).all()


def test_first_operand_has_the_problems_length(task):
    assert [task.operand_digits(n)[0] for n in (1, 7, 50)] == [1, 7, 50]


def test_operands_are_arranged_once_and_for_all(task):
    operands = operands_of(task, 6)
    assert [n.to_text() for n in task.arranged(*operands)] == [n.to_text() for n in operands]


def test_an_answer_depends_on_its_operands_alone(task):
    """Not on the rest of the batch, nor on how wide the arrays are; and the operands stay as they were."""
    operands = operands_of(task, 6)
    before = [numbers.digits.copy() for numbers in operands]
    together = task.answer(*operands).to_text()
    wider = tuple(Numbers(numbers.widened(numbers.width + 9), numbers.lengths) for numbers in operands)
    assert task.answer(*wider).to_text() == together
    assert [task.answer(*(n[i : i + 1] for n in operands)).to_text()[0] for i in range(len(together))] == together
    for numbers, digits in zip(operands, before, strict=True):
        np.testing.assert_array_equal(numbers.digits, digits)


@pytest.mark.parametrize("kind", TASKS)
def test_a_task_has_an_operators_token_and_says_what_it_is(kind):
    assert re.fullmatch(SYMBOL, TASKS[kind].symbol)
    assert (TASKS[kind].__dict__.get("__doc__") or "").strip()


@pytest.mark.parametrize("symbol", ["", "<>", "7", "=", " ", "_", None])
def test_an_operation_that_cannot_be_written_in_a_problem_is_an_error(symbol):
    with pytest.raises(UsageError, match="it has to be one character, no digit"):
        type("Odd", (Task,), {"symbol": symbol, "__module__": __name__, "__annotations__": {"symbol": ClassVar[str]}})


def test_a_name_is_given_once_but_a_class_may_be_defined_again():
    def define() -> type[Task]:
        class Again(Addition):
            """x₁ + x₂"""

        return Again

    names: Registry[Task] = Registry("task")
    names.register("again")(define())
    last = names.register("again")(define())
    assert names["again"] is last
    with pytest.raises(UsageError, match=r"there is a task 'again' already: .*Again"):
        names.register("again")(ModularAddition)


def test_options_survive_json(task):
    parsed = TASKS.parse(json.loads(json.dumps(task.model_dump(mode="json"))))
    assert parsed == task
    assert type(parsed) is type(task)
    assert TASKS.parse(task.model_dump()) == task


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in TASKS for option in TASKS[kind].model_fields])
def test_a_misspelt_option_names_the_nearest(kind, option):
    with pytest.raises(UsageError, match=f"'{option[:-1]}'.*did you mean '{option}'"):
        TASKS.parse({"kind": kind, option[:-1]: 2})


def test_other_bad_choices_are_told_in_a_sentence():
    with pytest.raises(UsageError, match=r"'adition'.*did you mean 'addition'"):
        TASKS.parse("adition")
    with pytest.raises(UsageError, match="'elementwise-addition' has no option 'modulus'"):
        TASKS.parse({"kind": "elementwise-addition", "modulus": 7})
    with pytest.raises(UsageError, match=r"modulus.* 1, .*greater than 1"):
        TASKS.parse({"kind": "modular-addition", "modulus": 1})
    with pytest.raises(UsageError, match="kind"):
        TASKS.parse({"modulus": 7})


def positive(most_digits: int) -> st.SearchStrategy[int]:
    return st.one_of(
        st.integers(1, most_digits).flatmap(lambda n: st.integers(10 ** (n - 1), 10**n - 1)),
        st.integers(1, most_digits).map(lambda n: 10**n - 1),
    )


def answers(task: Task, rows: list[tuple[int, ...]]) -> list[str]:
    return task.answer(*(Numbers.from_ints(column) for column in zip(*rows, strict=True))).to_text()


def pairs(second_digits: int = 40) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(positive(40), positive(second_digits)), min_size=1, max_size=6)


@pytest.mark.parametrize("operands", [2, 3, 100])
@given(data=st.data())
def test_addition(operands, data):
    row = data.draw(st.lists(positive(40), min_size=operands, max_size=operands))
    assert answers(Addition(operands=operands), [tuple(row)]) == [str(sum(row))]


@given(pairs())
def test_elementwise_addition(rows):
    texts = answers(ElementwiseAddition(), rows)
    for text, (a, b) in zip(texts, rows, strict=True):
        assert len(text) == max(len(str(a)), len(str(b)))
        for power, digit in enumerate(reversed(text)):
            assert int(digit) == (a // 10**power + b // 10**power) % 10


def test_elementwise_addition_may_start_with_zero():
    assert answers(ElementwiseAddition(), [(55, 55), (99, 15)]) == ["00", "04"]


@pytest.mark.parametrize("modulus", MODULI)
@given(rows=pairs())
def test_modular_addition(modulus, rows):
    assert answers(ModularAddition(modulus=modulus), rows) == [str((a + b) % modulus) for a, b in rows]


@pytest.mark.parametrize("second_digits", [1, 2, 3, None])
@given(data=st.data())
def test_multiplication(second_digits, data):
    rows = data.draw(pairs(second_digits or 40))
    task = Multiplication(second_digits=second_digits)
    assert answers(task, rows) == [str(a * b) for a, b in rows]
    assert task.operand_digits(40) == (40, second_digits or 40)


@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("second_digits", [3, None])
@given(data=st.data())
def test_modular_multiplication(modulus, second_digits, data):
    rows = data.draw(pairs(second_digits or 40))
    task = ModularMultiplication(modulus=modulus, second_digits=second_digits)
    assert answers(task, rows) == [str(a * b % modulus) for a, b in rows]
    assert task.operand_digits(40) == (40, second_digits or 40)
