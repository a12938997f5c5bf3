"""The stress suite: special problems that a model solves if it has learned the algorithm."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lengthwise.arithmetic.digits import Numbers, random_numbers
from lengthwise.arithmetic.tasks import Addition, Multiplication, Task
from lengthwise.base import UsageError, generator
from lengthwise.base.errors import shorten
from lengthwise.base.progress import show_progress
from lengthwise.evaluation.accuracy import Score, check_lengths
from lengthwise.problems.training_set import Examples
from lengthwise.solver import Solver

Rng = np.random.Generator
# The digits of each operand, as from `task.operand_digits(n)`; the first has n.
Lengths = tuple[int, ...]
ColumnSums = NDArray[np.int64]  # of the digits in each column, (count, n)
Operands = tuple[Numbers, ...]
Problems = Iterator[tuple[str, Operands]]  # batches, each with the detail that sets it apart
Sample = Callable[[Rng, int, Lengths], Problems]

EVERY_CHAIN = 10  # up to this length, carry chains of every length
MOST_FAILURES = 3  # that are kept of each batch


@dataclass(frozen=True)
class Case:
    """Problems of one kind, for the tasks to which it applies."""

    name: str
    description: str
    of: type[Task]
    most_operands: float
    sample: Sample

    def applies(self, task: Task) -> bool:
        return isinstance(task, self.of) and len(task.operand_digits(1)) <= self.most_operands

    def problems(self, task: Task, length: int, examples: int, seed: int) -> Problems:
        """Batches of up to `examples` different problems; none where a length is too short."""
        rng = generator(seed, "stress", self.name, length)
        for detail, operands in self.sample(rng, examples, task.operand_digits(length)):
            texts = list(zip(*(numbers.to_text() for numbers in operands), strict=True))
            first = {text: row for row, text in reversed(list(enumerate(texts)))}
            yield detail, tuple(numbers[np.array(sorted(first.values()))] for numbers in operands)


CASES: dict[str, Case] = {}


def case(
    name: str, of: type[Task] = Task, most_operands: float = math.inf
) -> Callable[[Sample], Sample]:
    """Register a function that samples a case's problems; its docstring describes them to users."""

    def register(sample: Sample) -> Sample:
        known = CASES.get(name)
        # A notebook's cell may define a case again.
        if known and known.sample.__qualname__ != sample.__qualname__:
            raise UsageError(f"there is a stress case '{name}' already")
        description = (sample.__doc__ or "").partition("\n")[0]
        CASES[name] = Case(name, description, of, most_operands, sample)
        return sample

    return register


def sample_operands(rng: Rng, count: int, lengths: Sequence[int]) -> Operands:
    return tuple(random_numbers(rng, np.full(count, n)) for n in lengths)


def sample_column_sums(rng: Rng, low: ColumnSums, high: ColumnSums, operands: int) -> Operands:
    """Numbers whose digits in each column add up to low … high; none starts with 0."""
    leading = np.arange(low.shape[1]) == low.shape[1] - 1
    rest = rng.integers(np.maximum(low, operands * leading), high + 1)
    numbers = []
    for left in reversed(range(operands)):  # operands that still come
        least = np.maximum(leading, rest - 9 * left)
        digits = rng.integers(least, np.minimum(9, rest - leading * left) + 1)
        rest = rest - digits
        numbers.append(Numbers.of(digits))
    return tuple(numbers)


def sample_hollow(rng: Rng, count: int, n: int) -> Numbers:
    """Numbers such as 7000203: between the first and the last digit at most one is not 0."""
    column, spared = np.arange(n), rng.integers(0, max(1, n - 2), (count, 1))
    kept = (column == 0) | (column == n - 1) | (column == spared)
    return Numbers.of(rng.integers(1, 10, (count, n)) * kept)


def problem(*texts: str) -> Operands:
    return tuple(Numbers.from_text([text]) for text in texts)


@case("random")
def random_operands(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """digits drawn at random"""
    yield "", sample_operands(rng, count, lengths)


@case("all carries", Addition)
def all_carries(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """9…9 and 1, so that one carry goes through all columns"""
    ones = len(lengths) - 1
    shown = " + ".join("1" * ones) if ones < 4 else "1 + … + 1"
    yield f"9…9 + {shown}", problem("9" * lengths[0], *"1" * ones)
    yield f"{shown} + 9…9", problem(*"1" * ones, "9" * lengths[0])


@case("carry chain", Addition, most_operands=2)
def carry_chain(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """one carry that goes through this many columns, and no other"""
    n = lengths[0]
    powers = (2**i for i in range((n - 1).bit_length()))
    for k in [n, *(range(1, n) if n <= EVERY_CHAIN else powers)]:
        place = np.arange(n) - rng.integers(0, n - k + 1, (count, 1))  # in the chain, from 0
        kinds = [place == 0, (place > 0) & (place < k)]  # starts the carry, passes it on
        low, high = np.select(kinds, [10, 9], 0), np.select(kinds, [18, 9], 8)
        yield f"{'n' if k == n else k} in a row", sample_column_sums(rng, low, high, 2)


@case("no carries", Addition, most_operands=9)
def no_carries(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """digits that add up to 9 at most"""
    low = np.zeros((count, lengths[0]), np.int64)
    yield "", sample_column_sums(rng, low, low + 9, len(lengths))


@case("unequal lengths")
def unequal_lengths(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """one operand much shorter than the other"""
    first, *rest = lengths
    shapes = {
        "first of 1 digit": (1, *rest),
        "first half as long": ((first + 1) // 2, *rest),
        "others of 1 digit": (first, *(1 for _ in rest)),
        "others half as long": (first, *((n + 1) // 2 for n in rest)),
    }
    for detail, shape in shapes.items():
        if shape != lengths:
            yield detail, sample_operands(rng, count, shape)


@case("zeros inside")
def zeros_inside(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """almost only zeros between the first and the last digit"""
    if max(lengths) > 2:
        yield "", tuple(sample_hollow(rng, count, n) for n in lengths)


@case("palindromes")
def palindromes(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """numbers that read the same from both ends"""
    mirrors = [np.maximum(np.arange(n), np.arange(n)[::-1]) for n in lengths]
    halves = zip(sample_operands(rng, count, lengths), mirrors, strict=True)
    yield "random", tuple(Numbers.of(half.digits[:, mirror]) for half, mirror in halves)
    repeated = [rng.integers(1, 10, (count, 1)).repeat(n, axis=1) for n in lengths]
    yield "one digit repeated", tuple(map(Numbers.of, repeated))


@case("largest and smallest")
def largest_and_smallest(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """nines only, or a one and then zeros only"""
    first, *rest = lengths
    yield "9…9 and 9…9", problem(*("9" * n for n in lengths))
    yield "9…9 and 9", problem("9" * first, *("9" for _ in rest))
    yield "10…0 and 10…0", problem(*("1".ljust(n, "0") for n in lengths))
    yield "10…0 and 1", problem("1".ljust(first, "0"), *("1" for _ in rest))


@case("zero")
def zero(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """0 as an operand, beside random numbers or another 0"""
    (first, *rest), nothing = sample_operands(rng, count, lengths), Numbers.from_text(["0"] * count)
    yield "0 and random", (nothing, *rest)
    yield "random and 0", (first, *(nothing for _ in rest))
    yield "0 and 0", problem(*("0" for _ in lengths))


@case("simple factors", Multiplication)
def simple_factors(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """a random number with 1, with a power of ten, or with zeros inside"""
    first, second = sample_operands(rng, count, lengths)
    n, m = lengths
    yield "random × 1", (first, Numbers.from_text(["1"] * count))
    if n > 1:
        yield "10…0 × random", (Numbers.from_text(["1".ljust(n, "0")] * count), second)
    if m > 1:
        power = np.arange(m) == rng.integers(1, m, (count, 1))
        yield "random × 10…0", (first, Numbers.of(power.astype(np.int64)))
    if m > 2:
        yield "random × zeros inside", (first, sample_hollow(rng, count, m))


class Failure(NamedTuple):
    """A problem that a model got wrong, as decimal text."""

    problem: str
    answer: str | None  # None where the output is not a number
    correct: str


@dataclass(frozen=True)
class Outcome(Score):
    """The score on one case's problems of one length and detail."""

    case: str
    detail: str
    length: int
    examples: int
    correct: int
    failures: tuple[Failure, ...]

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        failures = [failure._asdict() for failure in self.failures]
        shares = {"exact_match": self.exact_match, "low": low, "high": high}
        return {**vars(self), **shares, "failures": failures}


def stress(
    model: Solver,
    lengths: str | Sequence[int] | None = None,
    examples: int = 200,
    seed: int = 0,
    layers: int | None = None,
    sharpness: float = 1.0,
    progress: bool = False,
) -> list[Outcome]:
    """The score on every case of the model's task at each length, on up to `examples` problems.

    With `progress`, a terminal shows a bar.
    """
    chosen = check_lengths(model, lengths, examples)
    model.check_layers(layers)
    cases = [case for case in CASES.values() if case.applies(model.task)]
    tests = list(product(chosen, cases))
    with model.testing(sharpness):
        return [
            measure_case(model, case.name, detail, length, operands, layers)
            for length, case in (show_progress(tests, "stress") if progress else tests)
            for detail, operands in case.problems(model.task, length, examples, seed)
        ]


def measure_case(
    solver: Solver, case: str, detail: str, length: int, operands: Operands, layers: int | None
) -> Outcome:
    correct, layout = 0, solver.layout
    failures: list[Failure] = []
    block = Examples.of(solver.task, operands)
    for part, symbols in solver.predict(block, layers):
        right = (symbols == layout.encode_answer(part.answer, symbols.shape[1])).all(1)
        correct += int(right.sum())
        wrong = np.flatnonzero(~right)[: MOST_FAILURES - len(failures)]
        numbers, valid = layout.decode_answer(symbols[wrong])
        pairs = zip(numbers.to_text(), valid, strict=True)
        answers = [text if is_number else None for text, is_number in pairs]
        texts = zip(*(numbers[wrong].to_text() for numbers in part.operands), strict=True)
        problems = map(f" {solver.task.symbol} ".join, texts)
        failures += map(Failure, problems, answers, part.answer[wrong].to_text())
    return Outcome(case, detail, length, len(block), correct, tuple(failures))


def table(outcomes: Sequence[Outcome]) -> Group:
    """Right answers by case and length; below, each row's first failure."""
    rows: dict[tuple[str, str], dict[int, Outcome]] = {}
    for o in sorted(outcomes, key=lambda o: list(CASES).index(o.case)):
        rows.setdefault((o.case, o.detail or CASES[o.case].description), {})[o.length] = o
    lengths = list(dict.fromkeys(o.length for o in outcomes))
    shown = Table("case", "problems", *(f"{n} digits" for n in lengths), box=box.SIMPLE)
    failures = Text()
    for row, by_length in rows.items():
        cells = {n: f"{o.correct}/{o.examples}" for n, o in by_length.items()}
        shown.add_row(*map(Text, (*row, *(cells.get(n, "–") for n in lengths))))
        for wrong in [failure for o in by_length.values() for failure in o.failures][:1]:
            answer, correct = shorten(wrong.answer or "not a number"), shorten(wrong.correct)
            problem = " ".join(map(shorten, wrong.problem.split()))
            pairs = zip(wrong.answer or "", wrong.correct, strict=False)
            same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
            place = f", from digit {same + 1} on" if answer == correct else ""  # … hides it
            line = f"{problem} = {answer}, but it is {correct}{place}"
            failures.append(f"{', '.join(row)}:\n  {line}\n")
    return Group(shown, failures) if failures else Group(shown)
