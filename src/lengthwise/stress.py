"""The stress suite: problems of special kinds, each of which a model must solve that has learned the algorithm."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lengthwise.data import example_batch, generator
from lengthwise.digits import Numbers, random_numbers
from lengthwise.evaluation import Scored, answered, check_lengths
from lengthwise.solver import Solver, shortened
from lengthwise.tasks import Addition, Multiplication, Task

Rng = np.random.Generator
Lengths = tuple[int, ...]  # the most digits of each operand, as from `task.operand_digits(n)`; the first is n
Sums = NDArray[np.int64]  # of the digits in each column, (count, n)
Operands = tuple[Numbers, ...]
Problems = Iterator[tuple[str, Operands]]  # each batch with the detail that sets it apart from the case's others
Draw = Callable[[Rng, int, Lengths], Problems]

EVERY_CHAIN = 10  # up to this length, carry chains of every length
MOST_FAILURES = 3  # kept of each batch


@dataclass(frozen=True)
class Case:
    """Problems of one kind, for the tasks to which it applies."""

    name: str
    description: str
    of: type[Task]
    most_operands: float
    draw: Draw

    def applies(self, task: Task) -> bool:
        return isinstance(task, self.of) and len(task.operand_digits(1)) <= self.most_operands

    def problems(self, task: Task, length: int, examples: int, seed: int) -> Problems:
        """Batches of up to `examples` problems that all differ; none where a length is too short for the case."""
        rng = generator(seed, "stress", self.name, length)
        for detail, operands in self.draw(rng, examples, task.operand_digits(length)):
            texts = list(zip(*(numbers.to_text() for numbers in operands), strict=True))
            first = {text: row for row, text in reversed(list(enumerate(texts)))}
            yield detail, tuple(numbers[np.array(sorted(first.values()))] for numbers in operands)


CASES: dict[str, Case] = {}


def case(name: str, of: type[Task] = Task, most_operands: float = math.inf) -> Callable[[Draw], Draw]:
    """Register what draws the problems of a case; its docstring tells users what they are."""

    def register(draw: Draw) -> Draw:
        assert name not in CASES, f"case '{name}' is registered twice"
        CASES[name] = Case(name, (draw.__doc__ or "").partition("\n")[0], of, most_operands, draw)
        return draw

    return register


def drawn(rng: Rng, count: int, lengths: Sequence[int]) -> Operands:
    return tuple(random_numbers(rng, np.full(count, n)) for n in lengths)


def adding_up(rng: Rng, low: Sums, high: Sums, operands: int) -> Operands:
    """Numbers whose digits add up, in each column, to something from low to high; none starts with 0."""
    leading = np.arange(low.shape[1]) == low.shape[1] - 1
    rest = rng.integers(np.maximum(low, operands * leading), high + 1)
    numbers = []
    for left in reversed(range(operands)):  # operands that are still to come, and what they can take of the rest
        digits = rng.integers(np.maximum(leading, rest - 9 * left), np.minimum(9, rest - leading * left) + 1)
        rest = rest - digits
        numbers.append(Numbers.of(digits))
    return tuple(numbers)


def hollow(rng: Rng, count: int, n: int) -> Numbers:
    """Numbers such as 7000203: zeros between the first and the last digit, save one at most if there are several."""
    column, spared = np.arange(n), rng.integers(0, max(1, n - 2), (count, 1))
    return Numbers.of(rng.integers(1, 10, (count, n)) * ((column == 0) | (column == n - 1) | (column == spared)))


def problem(*texts: str) -> Operands:
    return tuple(Numbers.from_text([text]) for text in texts)


@case("random")
def random_operands(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """digits drawn at random"""
    yield "", drawn(rng, count, lengths)


@case("all carries", Addition)
def all_carries(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """9…9 and 1, so that one carry goes through all columns"""
    ones = len(lengths) - 1
    yield "9…9" + " + 1" * ones, problem("9" * lengths[0], *"1" * ones)
    yield "1 + " * ones + "9…9", problem(*"1" * ones, "9" * lengths[0])


@case("carry chain", Addition, most_operands=2)
def carry_chain(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """one carry that goes through so many columns, and no other"""
    n = lengths[0]
    for k in [n, *(range(1, n) if n <= EVERY_CHAIN else (2**i for i in range((n - 1).bit_length())))]:
        place = np.arange(n) - rng.integers(0, n - k + 1, (count, 1))  # in the chain, which starts at 0
        kinds = [place == 0, (place > 0) & (place < k)]  # what makes the carry, and what hands it on
        low, high = np.select(kinds, [10, 9], 0), np.select(kinds, [18, 9], 8)
        yield f"{'n' if k == n else k} in a row", adding_up(rng, low, high, 2)


@case("no carries", Addition, most_operands=9)
def no_carries(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """digits that add up to 9 at most"""
    low = np.zeros((count, lengths[0]), np.int64)
    yield "", adding_up(rng, low, low + 9, len(lengths))


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
            yield detail, drawn(rng, count, shape)


@case("zeros inside")
def zeros_inside(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """almost only zeros between the first and the last digit"""
    if max(lengths) > 2:
        yield "", tuple(hollow(rng, count, n) for n in lengths)


@case("palindromes")
def palindromes(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """numbers that read the same from both ends"""
    mirrors = [np.maximum(np.arange(n), np.arange(n)[::-1]) for n in lengths]
    halves = zip(drawn(rng, count, lengths), mirrors, strict=True)
    yield "random", tuple(Numbers.of(half.digits[:, mirror]) for half, mirror in halves)
    yield "one digit repeated", tuple(Numbers.of(rng.integers(1, 10, (count, 1)).repeat(n, axis=1)) for n in lengths)


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
    (first, *rest), nothing = drawn(rng, count, lengths), Numbers.from_text(["0"] * count)
    yield "0 and random", (nothing, *rest)
    yield "random and 0", (first, *(nothing for _ in rest))
    yield "0 and 0", problem(*("0" for _ in lengths))


@case("simple factors", Multiplication)
def simple_factors(rng: Rng, count: int, lengths: Lengths) -> Problems:
    """a random number with 1, with a power of ten, or with zeros inside"""
    first, second = drawn(rng, count, lengths)
    n, m = lengths
    yield "random × 1", (first, Numbers.from_text(["1"] * count))
    if n > 1:
        yield "10…0 × random", (Numbers.from_text(["1".ljust(n, "0")] * count), second)
    if m > 1:
        power = np.arange(m) == rng.integers(1, m, (count, 1))
        yield "random × 10…0", (first, Numbers.of(power.astype(np.int64)))
    if m > 2:
        yield "random × zeros inside", (first, hollow(rng, count, m))


class Failure(NamedTuple):
    """A problem that a model got wrong, as decimal texts."""

    problem: str
    answer: str | None  # None where the model's output is no number
    correct: str


@dataclass(frozen=True)
class Outcome(Scored):
    """How a model did on one case's problems of one length and detail."""

    case: str
    detail: str
    length: int
    examples: int
    correct: int
    failures: tuple[Failure, ...]

    def to_json(self) -> dict[str, Any]:
        low, high = self.interval
        failures = [failure._asdict() for failure in self.failures]
        return {**vars(self), "exact_match": self.exact_match, "low": low, "high": high, "failures": failures}


def stress(
    model: Solver,
    lengths: str | Sequence[int] | None = None,
    examples: int = 200,
    seed: int = 0,
    layers: int | None = None,
    sharpness: float = 1.0,
) -> list[Outcome]:
    """How a model does on every case that applies to its task, at each length, with up to `examples` problems each."""
    chosen = check_lengths(model, lengths, examples)
    with model.testing(layers, sharpness):
        return [
            outcome(model, case.name, detail, length, operands)
            for length in chosen
            for case in CASES.values()
            if case.applies(model.task)
            for detail, operands in case.problems(model.task, length, examples, seed)
        ]


def outcome(solver: Solver, case: str, detail: str, length: int, operands: Operands) -> Outcome:
    examples, correct = len(operands[0]), 0
    failures: list[Failure] = []
    block = example_batch(solver.task, operands, np.zeros(examples, bool))
    for part, answer, symbols in answered(solver, block):
        right = (symbols == solver.layout.encode_answer(answer, symbols.shape[1])).all(1)
        correct += int(right.sum())
        wrong = np.flatnonzero(~right)[: MOST_FAILURES - len(failures)]
        said, valid = solver.layout.decode_answer(symbols[wrong])
        answers = [text if is_number else None for text, is_number in zip(said.to_text(), valid, strict=True)]
        asked = map(f" {solver.task.symbol} ".join, zip(*(numbers[wrong].to_text() for numbers in part), strict=True))
        failures += map(Failure, asked, answers, answer[wrong].to_text())
    return Outcome(case, detail, length, examples, correct, tuple(failures))


def table(outcomes: Sequence[Outcome]) -> Group:
    """Right answers by case and length, and below it one failure of each row, at the first length that has one."""
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
            said, truth = shortened(wrong.answer or "no number"), shortened(wrong.correct)
            asked = " ".join(map(shortened, wrong.problem.split()))
            alike = [*takewhile(lambda pair: pair[0] == pair[1], zip(wrong.answer or "", wrong.correct, strict=False))]
            place = f", from digit {len(alike) + 1} on" if said == truth else ""  # the … hides it
            failures.append(f"{', '.join(row)}:\n  {asked} = {said}, but it is {truth}{place}\n")
    return Group(shown, failures) if failures else Group(shown)
