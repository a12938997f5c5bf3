"""A proof by cases: a model that is right in every neighbourhood is right at every length.

With the depth `rewrite`, what is written at a token depends on its neighbourhood only: a few tokens
and written symbols in its column and the next lower one. There are finitely many neighbourhoods. If
a model writes the right symbol in each that right answers have, then every answer of any length
comes out right, by induction: from the lowest column up, and from each row to the next. This module
asks the model about all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from lengthwise.arithmetic.digits import Numbers, add, multiply
from lengthwise.arithmetic.tasks import Addition, BinaryMultiplication, Multiplication, Task
from lengthwise.base import UsageError
from lengthwise.model.neighbourhoods import Ints, Neighbourhoods
from lengthwise.model.rewrite import Rewrite
from lengthwise.problems.batch import Batch
from lengthwise.problems.layouts import (
    FittedLayout,
    GridLayout,
    Layout,
    LongMultiplicationLayout,
    RunningSumsLayout,
)
from lengthwise.solver import Solver

Operands = tuple[Numbers, Numbers]
AT_ONCE = 50_000  # problems
PADDED = 6  # digits of a layout with padding above every problem
AT_ONCE_ROWS = 10_000  # problems of long multiplication
BITS = 5  # of binary operands that show every neighbourhood of a grid
WITH_ZERO = [str(n) for n in range(2_000)]  # that are added to 0


class Covering(NamedTuple):
    """Problems with symbols written at each supervised token, and the tokens to ask about."""

    layout: Layout
    operands: Operands
    symbols: Ints  # (b, n_supervised)
    asked: Ints | None = None  # all tokens


def covering_numbers(lowest: int) -> list[str]:
    """Numbers of up to four digits that end in `lowest`, with every two digits above it.

    A fourth digit makes zeros possible in the places below.
    """
    pairs = [f"{high}{low}" for high in range(10) for low in range(10)]
    three = [f"{pair}{lowest}" for pair in pairs if pair[0] != "0"]
    two = [f"{digit}{lowest}" for digit in range(1, 10)]
    return [*(f"1{pair}{lowest}" for pair in pairs), *three, *two, f"{lowest}"]


def covering_sums() -> Iterator[Operands]:
    """Sums that show every neighbourhood that a sum can have.

    The lowest column carries, or doesn't. The next two have all digits, or end one or both of the
    numbers.
    """
    for lowest in (0, 9):
        texts = covering_numbers(lowest)
        first, second = np.divmod(np.arange(len(texts) ** 2), len(texts))
        numbers = Numbers.from_text(texts)
        yield numbers[first], numbers[second]
    digits = Numbers.from_text([str(n) for n in range(10)])
    first, second = np.divmod(np.arange(100), 10)
    yield digits[first], digits[second]  # in the lowest column, all digits
    # Zero is the only number whose highest digit is 0.
    numbers, zeros = Numbers.from_text(WITH_ZERO), Numbers.from_text(["0"] * len(WITH_ZERO))
    yield numbers, zeros
    yield zeros, numbers


def covering_sum_batches(layout: Layout) -> Iterator[Covering]:
    """The covering sums in layouts that they fill, and in one that leaves padding."""
    for first, second in covering_sums():
        longest = np.maximum(first.lengths, second.lengths)
        for length in np.unique(longest):
            rows = np.flatnonzero(longest == length)
            for part in np.array_split(rows, -(-len(rows) // AT_ONCE)):
                operands = first[part], second[part]
                answer = add(*operands)
                for digits in (int(length), int(length) + 1, PADDED):
                    fitted = layout.for_lengths([digits] * 2)
                    # What is written behind the rows of running sums is seen from there only.
                    ends = np.arange(fitted.n_supervised) % (fitted.fields[0].width + 1)
                    inside = np.flatnonzero(ends < fitted.fields[0].width)
                    targets = fitted.encode_targets(operands, answer)
                    yield Covering(fitted, operands, targets, inside)


def covering_products(layout: Layout) -> Iterator[Covering]:
    """Products that show every neighbourhood of a product by one digit.

    Such a row sees two digits of the first operand, its digit of the second, and the digit of the
    product below. A third digit below makes any carry. A fourth one above makes zeros possible.
    """
    numbers = Numbers.from_text([*map(str, range(1_000)), *(f"1{n:03}" for n in range(1_000))])
    three, four = np.arange(1_000), np.arange(1_000, 2_000)
    twice = [f"{digit}{digit}" for digit in range(1, 10)]  # the same digit in two rows
    digits = [str(digit) for digit in range(10)]
    sets = [
        *((second, three, [3, len(second)]) for second in [*digits, *twice, "100"]),
        *((second, four, [4, len(second)]) for second in [*digits, *twice, "100"]),
        # With padding, and with more rows than the second operand has digits.
        *((second, three, [4, len(second)]) for second in [*twice, "100"]),
        *((second, three, [PADDED, len(second)]) for second in [*twice, "100"]),
        *((second, three, [3, len(second) + 1]) for second in [*digits, "100"]),
        *((second, four, [4, len(second) + 1]) for second in [*digits, "100"]),
        *((second, three, [4, len(second) + 1]) for second in [*digits, "100"]),
        *((second, three, [PADDED, len(second) + 1]) for second in [*digits, "100"]),
    ]
    for second, rows, lengths in sets:
        fitted = layout.for_lengths(lengths)
        operands = numbers[rows], Numbers.from_text([second] * len(rows))
        targets = fitted.encode_targets(operands, multiply(*operands))
        yield Covering(fitted, operands, targets)


def can_meet(product: str, below: str) -> bool:
    """Whether a sum can add this product to the sum below, which starts one place higher.

    A product by a digit has no fewer digits than the first operand, unless it is 0. The sum below
    is less than ten times the first operand, and its lowest digit is left out. So it is not longer
    than the product. It is never 0.
    """
    return below != "0" and (len(below) <= len(product) or product in ("", "0"))


def covering_row_sums(layout: Layout) -> Iterator[Covering]:
    """Every neighbourhood of a row of sums, as written symbols: a product, and the sum below it.

    A row of sums sees written symbols only, so the problem around them does not matter. A product
    of one more digit than the first operand fills its row; there the sum below is shorter.
    """
    plain = [(p, t) for x in (0, 9) for p in covering_numbers(x) for t in covering_numbers(x)]
    alone = [(p, t) for x in (0, 9) for n in covering_numbers(x) for p, t in ((n, ""), ("", n))]
    zero = [("0", t) for t in WITH_ZERO]
    ends = ["", *map(str, range(20))]
    lowest = [(p, t) for p in ends for t in ends if can_meet(p, t)]
    pairs = [(p, t) for p, t in [*plain, *alone, *zero, *lowest] if can_meet(p, t)]
    filling = [(p, t) for p, t in pairs if len(p) == 4 and int(p) + int(t or 0) < 10**4]
    for below in range(10):  # the lowest digit of the sum below
        sets = [(3, lowest), (4, lowest), (PADDED, lowest)]
        if not below:
            sets += [(3, [(p, t) for p, t in filling if len(t) < 4]), (4, pairs)]
        for digits, shown in sets:
            for start in range(0, len(shown), AT_ONCE_ROWS):
                yield write_row_sums(layout, digits, below, shown[start : start + AT_ONCE_ROWS])


def write_row_sums(
    layout: Layout, digits: int, below: int, pairs: Sequence[tuple[str, str]]
) -> Covering:
    """Two rows in which these products and sums are written, with the right sum above."""

    def write(texts: Sequence[str]) -> Ints:
        lengths = np.array([len(text) for text in texts])
        numbers = Numbers.from_text([text or "0" for text in texts])
        return fitted.write(Numbers(numbers.digits, lengths), fitted.fields[0].width + 1)

    fitted = layout.for_lengths([digits, 2])
    products, sums = [p for p, _ in pairs], [t for _, t in pairs]
    totals = [str(int(p) + int(t or 0)) if p else t for p, t in pairs]
    rows = [write([f"{t}{below}" for t in sums]), write(totals), write(products), write(products)]
    one = Numbers.from_text(["11"] * len(pairs))
    width = rows[0].shape[1]
    return Covering(fitted, (one, one), np.concatenate(rows, axis=1), np.arange(width, 2 * width))


def covering_product_batches(layout: Layout) -> Iterator[Covering]:
    yield from covering_products(layout)
    yield from covering_row_sums(layout)


def covering_grids(layout: Layout) -> Iterator[Covering]:
    """All binary products of a few bits, with and without padding and rows without a digit."""
    numbers = Numbers.from_text([f"{n:b}" for n in range(2**BITS)])
    first, second = np.divmod(np.arange(len(numbers) ** 2), len(numbers))
    operands = numbers[first], numbers[second]
    answer = multiply(*operands, base=2)
    for lengths in ([BITS, BITS], [BITS + 1, BITS], [BITS + 3, BITS + 1]):
        fitted = layout.for_lengths(lengths)
        yield Covering(fitted, operands, fitted.encode_targets(operands, answer))


def covering_decimal_grids(layout: Layout) -> Iterator[Covering]:
    yield from covering_grid_products(layout)
    yield from covering_grid_sums(layout)


def covering_grid_products(layout: Layout) -> Iterator[Covering]:
    """Products that show every neighbourhood of a product by one digit, and of the first sum.

    A cell of a product sees its digit of the first operand, the digit of its row, those of the next
    lower cell, and the digit that was written there. A third digit below makes any carry. A fourth
    one above makes zeros possible. The first sum is the first product. The second operand 0 leaves
    a row without a digit; others fill the last row, which ends the sequence without an operator.
    """
    numbers = Numbers.from_text([str(n) for n in range(10_000)])
    for second in ("0", *(f"{digit}{digit}" for digit in range(1, 10))):
        fitted = layout.for_lengths([4, len(second)])
        operands = numbers, Numbers.from_text([second] * len(numbers))
        yield Covering(fitted, operands, fitted.encode_targets(operands, multiply(*operands)))


def covering_grid_sums(layout: Layout) -> Iterator[Covering]:
    """Every neighbourhood of a row of sums above the first, as written symbols.

    Zeros are written above numbers, so a sum does not see where the numbers that it adds end:

    - Its lowest cell sees any digit of the product and any two of the sum below.
    - A higher one sees any two digits of each, and the lower digit of their sum, with or without a
      carry into it.
    - The highest one is an operator. Below it, a product of the n digits of the first operand a has
      its digit n + 1, from 0 to 8. The sum below is less than 10 a, and its lowest digit is left
      out. So it has 0 there, and no cell any higher. The sum may have a carry there.
    """
    product, below = np.divmod(np.arange(1000), 100)
    yield write_grid_sums(layout, 3, product, below, asked=0)
    carry, product, below = np.indices((2, 100, 100)).reshape(3, -1)
    yield write_grid_sums(layout, 3, 10 * product + 5 * carry, 100 * below + 50 * carry, asked=2)
    carry, digit = np.divmod(np.arange(18), 9)
    for rows in (2, 3):  # the last row has one operator less than others
        yield write_grid_sums(layout, rows, 100 * digit + 50 * carry, 500 * carry, asked=3)


def write_grid_sums(
    layout: Layout, rows: int, products: Ints, sums_below: Ints, asked: int
) -> Covering:
    """Grids with these products in the second row and sums in the first; one cell is asked about.

    A row of sums sees written symbols only, so the problem around them does not matter.
    """
    fitted = layout.for_lengths([2, rows])
    width = fitted.n_supervised // (2 * rows)
    symbols = np.zeros((len(products), 2 * rows, width), np.int64)
    for row, values in (0, sums_below), (1, products + sums_below // 10), (rows + 1, products):
        symbols[:, row] = values[:, None] // 10 ** np.arange(width) % 10
    any_number = Numbers.from_text(["11"] * len(products))
    return Covering(
        fitted,
        (any_number, any_number),
        symbols.reshape(len(symbols), -1),
        np.array([width + asked]),
    )


COVERING: dict[tuple[type[Task], type[Layout]], Callable[[Layout], Iterator[Covering]]] = {
    (Addition, FittedLayout): covering_sum_batches,
    (Addition, RunningSumsLayout): covering_sum_batches,
    (Multiplication, LongMultiplicationLayout): covering_product_batches,
    (Multiplication, GridLayout): covering_decimal_grids,
    (BinaryMultiplication, GridLayout): covering_grids,
}


def can_check_rule(solver: Solver) -> bool:
    """Whether what is written at a token depends on a neighbourhood that can be listed."""
    layout = solver.layout
    known = isinstance(solver.encoder.depth, Rewrite)
    known &= (type(solver.task), type(layout)) in COVERING
    few = isinstance(layout, RunningSumsLayout) or len(layout.operand_digits) == 2
    return known and few and layout.least_first


def check_rule(solver: Solver) -> dict[str, Any]:
    """In how many neighbourhoods of right answers the model writes a wrong symbol.

    The margin is the logit of the right symbol minus the highest other one; the least is reported.
    """
    depth = solver.encoder.depth
    if not can_check_rule(solver):
        raise UsageError(
            "the rule can be checked with the depth 'rewrite' and the least significant digit"
            " first: for sums (layout fitted with two operands, or running-sums) and products"
            " (layout long-multiplication or grid)"
        )
    assert isinstance(depth, Rewrite)
    if isinstance(solver.layout, RunningSumsLayout):
        solver = solver.with_operands(2)  # a row sees itself and the one below
    margins: dict[bytes, float] = {}
    with solver.testing():
        for batch in COVERING[type(solver.task), type(solver.layout)](solver.layout):
            margins |= ask_batch(solver, depth, batch)
    return {
        "neighbourhoods": len(margins),
        "wrong": sum(margin <= 0 for margin in margins.values()),
        "least margin": min(margins.values()),
    }


def ask_batch(solver: Solver, depth: Rewrite, covering: Covering) -> Iterator[tuple[bytes, float]]:
    """Each distinct neighbourhood with these symbols written, and its margin."""
    batch = Batch.of_problems(covering.layout, covering.operands, solver.device)
    encoder = solver.encoder
    start = encoder.embed(batch.tokens, batch.coordinates)
    found = depth.neighbourhoods(encoder, start, batch.coordinates, batch.n_out)
    # Beyond the answer of a sum, the operator behind the first number writes what nobody sees.
    state = np.zeros(found.static.shape, np.int64)
    state[:, : batch.n_out] = covering.symbols
    keys = found.make_keys(state.ravel(), np.arange(state.size)).reshape(state.shape)
    asked = np.arange(batch.n_out) if covering.asked is None else covering.asked
    _, first = np.unique(keys[:, asked], return_index=True)
    example, place = np.divmod(first, len(asked))
    chosen = example, asked[place]
    logits = found.logits_of(keys[chosen])
    targets = torch.from_numpy(state[chosen])[:, None]
    others = logits.scatter(-1, targets, -torch.inf).amax(-1)
    margins = (logits.gather(-1, targets)[:, 0] - others).tolist()
    for row, margin in zip(
        describe(found, batch.tokens.numpy(), state, chosen), margins, strict=True
    ):
        yield row.tobytes(), margin


def describe(
    found: Neighbourhoods, tokens: Ints, state: Ints, chosen: tuple[Ints, Ints]
) -> NDArray[np.int8]:
    """(chosen, …): the tokens and written symbols of some neighbourhoods."""
    kinds = np.zeros(len(found.vectors), np.int64)
    kinds[found.kinds.ravel()] = tokens.ravel()  # each kind of vector is one symbol
    static = found.examples[found.static[chosen]]
    seen = static[:, 1:]
    codes = np.where(seen >= 2, 2 + kinds[np.maximum(seen - 2, 0)], seen)
    example, query = chosen
    sources = found.sources[query]
    symbols = np.where(sources >= 0, state[example[:, None], np.maximum(sources, 0)], -1)
    return np.concatenate([static[:, :1], codes, symbols], axis=1).astype(np.int8)
