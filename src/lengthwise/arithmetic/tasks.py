"""What is computed: each task is a short class over digit arrays, without tokens (paper, §2.1)."""

import re
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BeforeValidator, Field, SerializeAsAny

from lengthwise.arithmetic import digits
from lengthwise.arithmetic.digits import Numbers
from lengthwise.base import Choice, Registry, UsageError

SYMBOL = r"[^0-9\s=.,_]"  # the characters that may stand for an operation


class Task(Choice):
    """An operation on integers ≥ 0. Its fields are its configuration (`task.modulus`, …).

    A subclass sets `symbol`, the operation's token (one character), and defines `answer` and
    `answer_digits`. It overrides the rest where it differs.
    """

    symbol: ClassVar[str]

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        symbol = getattr(cls, "symbol", "+")  # abstract bases have none
        if not isinstance(symbol, str) or not re.fullmatch(SYMBOL, symbol):
            raise UsageError(
                f"the symbol of {cls.__name__} is {symbol!r}, but it must be one character that is"
                " neither a digit nor a space nor one of = . , _"
            )

    @property
    def leading_zeros(self) -> bool:
        """Whether an answer may start with 0: only where its length is fixed."""
        return False

    def admit(self, *operands: Numbers) -> tuple[Numbers, ...]:
        """Sampled operands changed to a problem of this task, such as the larger one first."""
        return operands

    def answer(self, *operands: Numbers) -> Numbers:
        raise NotImplementedError

    def operand_digits(self, n: int) -> tuple[int, ...]:
        """The digits of each operand in a problem of length n; the first has n."""
        return (n, n)

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        """The most digits that an answer can have for operands of at most these digits."""
        raise NotImplementedError


TASKS: Registry[Task] = Registry("task", "task")


@TASKS.register("addition")
class Addition(Task):
    """x₁ + x₂, or a sum of more operands.

    >>> Addition().answer(Numbers.from_ints([999]), Numbers.from_ints([345])).to_ints()
    [1344]
    >>> Addition(operands=3).answer_digits((2, 2, 2))  # 99 + 99 + 99 = 297
    3
    """

    symbol: ClassVar[str] = "+"
    operands: int = Field(2, ge=2, le=100, description="how many numbers are added")

    def answer(self, *operands: Numbers) -> Numbers:
        return digits.add(*operands)

    def operand_digits(self, n: int) -> tuple[int, ...]:
        return (n,) * self.operands

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits) + len(str(self.operands - 1))


@TASKS.register("elementwise-addition")
class ElementwiseAddition(Task):
    """x₁ ⊕ x₂, addition of each digit without carries, written + (paper, §6.1 and appendix A.2).

    The answer has as many digits as the longer operand, so it may start with 0.

    >>> ElementwiseAddition().answer(Numbers.from_ints([99]), Numbers.from_ints([35])).to_text()
    ['24']
    """

    symbol: ClassVar[str] = "+"

    @property
    def leading_zeros(self) -> bool:
        return True

    def answer(self, *operands: Numbers) -> Numbers:
        return digits.add_elementwise(*operands)

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return max(operand_digits)


class Modular(Task):
    """What the modular tasks share: the modulus, and how a remainder is written."""

    modulus: int = Field(100, gt=1, description="the modulus c")
    constant_length: bool = Field(
        False, description="write answers as long as c − 1, with leading zeros"
    )

    @property
    def leading_zeros(self) -> bool:
        return self.constant_length

    def remainder(self, numbers: Numbers) -> Numbers:
        rest = digits.remainder(numbers, self.modulus)
        return (
            Numbers(rest.digits, np.full(len(rest), rest.width)) if self.constant_length else rest
        )

    def remainder_digits(self, digits: int) -> int:
        """The most digits of the remainder of a number of at most this many digits."""
        longest = len(str(self.modulus - 1))
        return longest if self.constant_length else min(longest, digits)


@TASKS.register("modular-addition")
class ModularAddition(Modular):
    """x₁ + x₂ mod c.

    >>> a, b = Numbers.from_ints([99]), Numbers.from_ints([8])
    >>> ModularAddition(modulus=101).answer(a, b).to_ints()
    [6]
    >>> ModularAddition(modulus=100, constant_length=True).answer(a, b).to_text()
    ['07']
    """

    symbol: ClassVar[str] = "%"

    def answer(self, *operands: Numbers) -> Numbers:
        return self.remainder(digits.add(*operands))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return self.remainder_digits(max(operand_digits) + 1)


class Product(Task):
    """What multiplications share: a second operand with a length of its own."""

    base: ClassVar[int] = 10  # in which numbers are written
    second_digits: int | None = Field(
        3, ge=1, description="digits of the second operand; null: as many as the first"
    )

    def operand_digits(self, n: int) -> tuple[int, ...]:
        return (n, self.second_digits or n)

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return sum(operand_digits)


@TASKS.register("multiplication")
class Multiplication(Product):
    """x₁ × x₂, where x₂ has 3 digits unless said otherwise.

    >>> Multiplication().answer(Numbers.from_ints([535]), Numbers.from_ints([257])).to_ints()
    [137495]
    """

    symbol: ClassVar[str] = "×"

    def answer(self, *operands: Numbers) -> Numbers:
        return digits.multiply(*operands)


@TASKS.register("binary-multiplication")
class BinaryMultiplication(Product):
    """x₁ × x₂ in base 2: all numbers are written with the digits 0 and 1.

    >>> six, five = Numbers.from_text(["110"]), Numbers.from_text(["101"])
    >>> BinaryMultiplication().answer(six, five).to_text()
    ['11110']
    """

    symbol: ClassVar[str] = "×"
    base: ClassVar[int] = 2

    def admit(self, *operands: Numbers) -> tuple[Numbers, ...]:
        """Odd digits become 1, even ones 0; a leading digit stays what it is, 0 or not."""

        def to_bits(numbers: Numbers) -> Numbers:
            leading = np.arange(numbers.width) == numbers.lengths[:, None] - 1
            bits = np.where(leading, numbers.digits > 0, numbers.digits % 2)
            return Numbers(bits, numbers.lengths)

        return tuple(map(to_bits, operands))

    def answer(self, *operands: Numbers) -> Numbers:
        return digits.multiply(*operands, base=self.base)


@TASKS.register("modular-multiplication")
class ModularMultiplication(Modular, Product):
    """x₁ × x₂ mod c.

    >>> a, b = Numbers.from_ints([535]), Numbers.from_ints([257])
    >>> ModularMultiplication(modulus=128).answer(a, b).to_ints()
    [23]
    """

    symbol: ClassVar[str] = "*"

    def answer(self, *operands: Numbers) -> Numbers:
        return self.remainder(digits.multiply(*operands))

    def answer_digits(self, operand_digits: tuple[int, ...]) -> int:
        return self.remainder_digits(sum(operand_digits))


AnyTask = Annotated[SerializeAsAny[Task], BeforeValidator(TASKS.parse)]
