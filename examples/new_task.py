"""A task of your own: the larger of two numbers. Train a model on it and ask it.

python examples/new_task.py --steps 500
"""

import argparse
from typing import ClassVar

import numpy as np

import lengthwise
from lengthwise.arithmetic import digits
from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import TASKS, Task


@TASKS.register("larger")
class Larger(Task):
    """The larger of two numbers.

    >>> Larger().answer(Numbers.from_ints([35]), Numbers.from_ints([117])).to_ints()
    [117]
    """

    symbol: ClassVar[str] = ">"

    def answer(self, *operands: Numbers) -> Numbers:
        width = max(numbers.width for numbers in operands)
        a, b = (numbers.pad_to(width) for numbers in operands)
        return Numbers.of(np.where(digits.at_least(a, b)[:, None], a, b))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500, help="of training (default: 500)")
    options = parser.parse_args()
    run = lengthwise.train(
        {
            "task": "larger",
            "data": {"sampling": "uniform-length"},
            "model": {"preset": "small"},
            "training": {"steps": options.steps},
            "evaluation": {"final_examples": 500},
        }
    )
    model = lengthwise.load(run.path)
    for solution in model.explain(["35 > 117", "90000 > 89999", "7 > 7"]):
        print(f"{solution.problem}: {solution.answer}, and {solution.correct} is right")
    for accuracy in lengthwise.evaluate(model, lengths="5:8", examples=500):
        print(f"{accuracy.length} digits: {accuracy.exact_match:.1%}")


if __name__ == "__main__":
    main()
