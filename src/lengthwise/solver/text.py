"""Problems as people write them: "99999 + 1"."""

import re
from collections.abc import Iterable
from typing import Any

from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import SYMBOL
from lengthwise.base import UsageError, show
from lengthwise.base.errors import shorten
from lengthwise.problems.layouts import Layout

# Possessive: what was matched is never given back, so that refusing long text takes no time.
PROBLEM = re.compile(rf"\s*+[0-9]++(?:\s*+{SYMBOL}\s*+[0-9]++)*+\s*+=?+\s*+")
ALIASES = {"x": "×", "X": "×"}  # what people type for a symbol


def parse_problem(problem: str, layout: Layout) -> list[str]:
    """The operands of a problem, as decimal text without leading zeros."""
    task = layout.task
    shown, most_digits = shorten(show(problem)), task.operand_digits(layout.digits)
    if not is_problem(problem, len(most_digits)):
        raise UsageError(f"{shown} is not a problem; write one such as {example_problem(layout)}")
    operands = [text.lstrip("0") or "0" for text in re.findall("[0-9]+", problem)]
    found = re.findall(SYMBOL, problem)
    symbols = {s if s == task.symbol else ALIASES.get(s, s) for s in found}
    if not symbols <= {task.symbol}:
        raise UsageError(
            f"{shown} has the operation {' '.join(sorted(symbols))}, but this model was trained for"
            f" {task.kind}, which is written {task.symbol}"
        )
    if len(operands) != len(most_digits):
        raise UsageError(
            f"{shown} has {len(operands)} operands, but this model takes {len(most_digits)}"
        )
    layout.check_operands([len(operand) for operand in operands])
    admitted = task.admit(*(Numbers.from_text([operand]) for operand in operands))
    if [numbers.to_text()[0] for numbers in admitted] != operands:
        other = f" {task.symbol} ".join(shorten(numbers.to_text()[0]) for numbers in admitted)
        raise UsageError(f"{shown} is not a problem of the task {task.kind}, but {other} is")
    return operands


def example_problem(layout: Layout) -> str:
    """A problem that the task admits and the layout has room for, such as 12 + 34."""
    task = layout.task
    count = len(task.operand_digits(layout.digits))
    texts = (f"{2 * i + 1}{2 * i + 2}"[: layout.most_digits(i)] for i in range(count))
    admitted = task.admit(*(Numbers.from_text([text]) for text in texts))
    return f" {task.symbol} ".join(numbers.to_text()[0] for numbers in admitted)


def list_problems(problems: object) -> list[Any]:
    """One problem or several, as a list; `parse_problem` refuses what is not text."""
    is_list = isinstance(problems, Iterable) and not isinstance(problems, str)
    return list(problems) if is_list else [problems]  # type: ignore[call-overload]


def is_problem(problem: object, operands: int) -> bool:
    if not isinstance(problem, str) or not PROBLEM.fullmatch(problem):
        return False
    return operands == 1 or not problem.strip(" =").isdecimal()
