"""The tokens of problems, with their coordinates."""

from dataclasses import dataclass, fields

import numpy as np

from lengthwise.arithmetic.digits import Numbers
from lengthwise.problems.layouts import Coordinates, Layout


@dataclass(frozen=True)
class Token:
    """A token of a problem, with its coordinates."""

    symbol: str
    index: int  # 0, 1, 2, … in the sequence
    significance: int  # the power of ten; padding and operators continue it
    place: int  # in its number as written, from 1; 0 for padding and operators
    operand: int  # 0 for the first operand and the operator behind it, 1 for the second, …
    shared: bool
    row: int
    correct: str | None  # the symbol that should be read here; None where none is read

    def __str__(self) -> str:
        return "·" if self.symbol == "<PAD>" else self.symbol


def tokens_of(layout: Layout, operands: tuple[Numbers, ...]) -> list[list[Token]]:
    """The tokens of some problems, with their coordinates."""
    encoded = layout.encode(operands)
    coordinates = layout.coordinates(operands)
    columns = {
        field.name: np.broadcast_to(getattr(coordinates, field.name), encoded.shape)
        for field in fields(Coordinates)
    }
    answers = layout.encode_answer(layout.task.answer(*operands))
    answer_at = np.arange(layout.n_supervised)[layout.answer_at].tolist()
    found = []
    for row, tokens in enumerate(encoded):
        correct = dict(zip(answer_at, answers[row], strict=True))
        found.append(
            [
                Token(
                    symbol=layout.vocabulary[token],
                    correct=layout.vocabulary[correct[i]] if i in correct else None,
                    **{name: column[row, i].item() for name, column in columns.items()},
                )
                for i, token in enumerate(tokens)
            ]
        )
    return found
