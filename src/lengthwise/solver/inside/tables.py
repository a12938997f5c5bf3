"""Traces as text."""

from collections.abc import Sequence

from lengthwise.solver.inside.trace import Trace
from lengthwise.solver.tokens import Token

STRONGEST = 3  # keys that are named of each query
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def answers(trace: Trace, problem: int) -> str:
    """What would be read at each point of the residual stream, and the least sure symbol of it."""
    row = trace.find("problem", problem)
    headings = ["", "answer", "least sure", "symbols (· is padding)"]
    lines = []
    for point, answer, symbols, shares in zip(
        trace.points,
        trace.answers[row],
        trace.symbols[row],
        trace.confidences[row],
        strict=True,
    ):
        written = [trace.layout.vocabulary[symbol] for symbol in symbols]
        text = " ".join("·" if symbol == "<PAD>" else symbol for symbol in written)
        number = "not a number" if answer is None else str(answer)
        lines.append([point, number, f"{100 * shares.min():.0f} %", text])
    return align([headings, *lines])


def pattern(trace: Trace, layer: int, head: int, problem: int) -> str:
    """The keys to which each query attends most."""
    weights = trace.select("patterns", problem=problem, layer=layer, head=head)
    tokens = trace.tokens[problem]
    lines = [["query", *(f"{n}. key" for n in range(1, STRONGEST + 1))]]
    for token, row in zip(tokens, weights, strict=True):
        keys = (-row).argsort(kind="stable")[:STRONGEST]
        named = [f"{describe(tokens[key])} {100 * row[key]:.0f} %" for key in keys]
        lines.append([describe(token), *named])
    return align(lines)


def describe(token: Token) -> str:
    """A token with its index and, of digits, its operand and power of ten.

    >>> describe(Token("7", 3, 2, 1, 0, False, 0, None))
    '3: 7 (x₁, 10^2)'
    >>> describe(Token("7", 3, 2, 1, 9, False, 0, None))
    '3: 7 (x₁₀, 10^2)'
    """
    if not token.place:
        return f"{token.index}: {token}"
    number = str(token.operand + 1).translate(SUBSCRIPTS)
    return f"{token.index}: {token} (x{number}, 10^{token.significance})"


def align(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells, in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ("  ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(row.rstrip() for row in rows)
