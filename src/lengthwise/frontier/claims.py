"""Claims such as addition:5->1000, and the problems that test them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MAX_PREC, Context, Decimal

from lengthwise.arithmetic.tasks import Addition, Multiplication, Task
from lengthwise.base import UsageError, generator
from lengthwise.evaluation.stress import CASES, sample_operands

NUMBER = r"[1-9][0-9]{0,6}"
SHAPE = rf"({NUMBER})(?:[x×]({NUMBER}))?"
CLAIM = re.compile(rf"(addition|multiplication):{SHAPE}->{SHAPE}(?:@([0-9]+(?:[.][0-9]+)?)%)?")
EXAMPLES = "addition:5->1000, multiplication:5x3->20x20 or addition:5->100@99%"
TESTED_LENGTHS = 5  # the trained and the claimed length included
EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX)


@dataclass(frozen=True)
class LengthClaim:
    """That a model trained on short numbers solves long ones, all of them or a share."""

    text: str
    task: str
    trained: tuple[int, int]  # digits of the first and the second operand
    tested: tuple[int, int]
    share: float  # of right answers, at every length and in every case

    def lengths(self) -> list[tuple[int, int]]:
        """The lengths to test: from training's to the claimed one, in even ratios."""
        steps = TESTED_LENGTHS - 1
        ends = list(zip(self.trained, self.tested, strict=True))
        ladder = [
            tuple(round(low * (high / low) ** (i / steps)) for low, high in ends)
            for i in range(TESTED_LENGTHS)
        ]
        return list(dict.fromkeys(ladder))

    def make_task(self, digits: tuple[int, int]) -> Task:
        if self.task == "addition":
            return Addition()
        same = digits[0] == digits[1]
        return Multiplication(second_digits=None if same else digits[1])


@dataclass(frozen=True)
class Problem:
    """A problem as text, the kind that it belongs to, and its answer."""

    text: str
    kind: str  # "random", or a case of the stress suite
    digits: tuple[int, int]
    answer: str


def parse_claim(text: str) -> LengthClaim:
    """A claim from its text.

    >>> claim = parse_claim("multiplication:5x3->20")
    >>> claim.trained, claim.tested, claim.share
    ((5, 3), (20, 20), 1.0)
    """
    found = CLAIM.fullmatch(text.replace(" ", "").replace("→", "->"))
    if not found:
        raise UsageError(f"'{text}' is not a claim; write one such as {EXAMPLES}")
    task, *numbers, share = found.groups()
    trained, trained_second, tested, tested_second = (int(n) if n else None for n in numbers)
    assert trained is not None
    assert tested is not None
    if task == "addition" and (trained_second or tested_second):
        raise UsageError(f"'{text}' is not a claim: sums have one length, as in addition:5->1000")
    if tested < trained:
        raise UsageError(f"'{text}' claims shorter numbers than those of training")
    accepted = float(share) / 100 if share else 1.0
    if not 0 < accepted <= 1:
        raise UsageError(f"'{text}' claims {share} %, but a share is above 0 and up to 100 %")
    return LengthClaim(
        text,
        task,
        (trained, trained_second or trained),
        (tested, tested_second or tested),
        accepted,
    )


def draw_problems(
    claim: LengthClaim, digits: tuple[int, int], count: int, stress: int, seed: int
) -> list[Problem]:
    """Random problems and the stress suite at one length, each once, in random order."""
    rng = generator(seed, "verify", *digits)
    task = claim.make_task(digits)
    batches = [("random", sample_operands(rng, count, digits))]
    for case in CASES.values():
        if stress and case.applies(task) and case.name != "random":
            drawn = case.problems(task, digits[0], stress, int(rng.integers(2**31)))
            batches += [(f"{case.name} {detail}".strip(), operands) for detail, operands in drawn]
    kinds: dict[str, str] = {}
    for kind, operands in batches:
        for texts in zip(*(numbers.to_text() for numbers in operands), strict=True):
            kinds.setdefault(f" {task.symbol} ".join(texts), kind)
    problems = [Problem(text, kind, digits, solve_exactly(text)) for text, kind in kinds.items()]
    return [problems[i] for i in rng.permutation(len(problems))]


def solve_exactly(problem: str) -> str:
    """The answer to a problem of two numbers, by Python's decimal arithmetic.

    >>> solve_exactly("99 + 1"), solve_exactly("12 × 34")
    ('100', '408')
    """
    first, symbol, second = problem.split()
    operation = EXACT.add if symbol == "+" else EXACT.multiply
    return f"{operation(Decimal(first), Decimal(second)):f}"


def group_by_kind(problems: Sequence[Problem]) -> Iterator[tuple[str, list[int]]]:
    """Each kind of problem, with the indices of its problems."""
    kinds = dict.fromkeys(problem.kind for problem in problems)
    for kind in kinds:
        yield kind, [i for i, problem in enumerate(problems) if problem.kind == kind]
