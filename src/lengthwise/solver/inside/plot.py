"""Traces as figures."""

from typing import Any

import numpy as np

from lengthwise.base import UsageError, nearest
from lengthwise.base.picture import Picture
from lengthwise.solver.inside.trace import Trace

MOST_PANELS = 100
KINDS = ("patterns", "scores", "answers")


def draw(trace: Trace, layer: int | None, head: int | None, problem: int, what: str) -> Picture:
    if what not in KINDS:
        raise UsageError(f"there is no plot of '{what}': {nearest(str(what), KINDS)}")
    trace.find("problem", problem)
    if what == "answers":
        return draw_answers(trace, problem)
    return draw_patterns(trace, layer, head, problem, what)


def draw_patterns(
    trace: Trace, layer: int | None, head: int | None, problem: int, what: str
) -> Picture:
    """A panel for each layer (rows) and head (columns), queries down and keys across."""
    layers = list(trace.labels("layer")) if layer is None else [layer]
    heads = list(trace.labels("head")) if head is None else [head]
    if len(layers) * len(heads) > MOST_PANELS:
        raise UsageError(
            f"{len(layers)} layers with {len(heads)} heads are too many for one figure; choose a"
            " layer or a head"
        )
    tokens = [str(token) for token in trace.tokens[problem]]
    panel = max(1.6, min(9.0, len(tokens) * (0.16 if len(layers) * len(heads) == 1 else 0.06)))
    size = (panel * len(heads) + 0.8, panel * len(layers) + 0.6)
    picture = Picture(figsize=size, layout="constrained")
    grid = picture.subplots(len(layers), len(heads), squeeze=False)
    image: Any = None
    for row, layer_label in zip(grid, layers, strict=True):
        for axis, head_label in zip(row, heads, strict=True):
            chosen = {"problem": problem, "layer": layer_label, "head": head_label}
            values = trace.select(what, **chosen)
            image = show_matrix(axis, values, what)
            axis.set_title(f"layer {layer_label}, head {head_label}", fontsize=8)
            mark_tokens(axis, tokens, 72 * panel / len(tokens))
    if what == "patterns":
        picture.colorbar(image, ax=grid, label="attention weight", fraction=0.02, pad=0.01)
    picture.supxlabel("key", fontsize=8)
    picture.supylabel("query", fontsize=8)
    picture.suptitle(describe(trace, problem), fontsize=9)
    return picture


def show_matrix(axis: Any, values: Any, what: str) -> Any:
    if what == "patterns":
        return axis.imshow(values, vmin=0, vmax=1, cmap="Blues")
    axis.set_facecolor("0.85")  # of pairs that are not scored
    return axis.imshow(np.where(np.isfinite(values), values, np.nan), cmap="viridis")


def mark_tokens(axis: Any, tokens: list[str], room: float) -> None:
    """The tokens along both axes, as large as a cell of `room` points allows."""
    size = max(2.0, min(8.0, 0.75 * room))
    axis.set_xticks(range(len(tokens)), tokens, fontsize=size)
    axis.set_yticks(range(len(tokens)), tokens, fontsize=size)
    axis.tick_params(length=0, pad=1)


def draw_answers(trace: Trace, problem: int) -> Picture:
    """The symbol that would be read at each point, and its probability as a colour."""
    shares, symbols = trace.confidences[problem], trace.symbols[problem]
    points, positions = shares.shape
    size = (max(4.0, 0.28 * positions + 2.2), 0.24 * points + 1.0)
    picture = Picture(figsize=size, layout="constrained")
    axis = picture.subplots()
    image = axis.imshow(shares, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    correct = [trace.tokens[problem][i].correct for i in trace.answer_at]
    for point, position in np.ndindex(points, positions):
        written = trace.layout.vocabulary[symbols[point, position]]
        is_right = written == correct[position]
        dark = shares[point, position] > 0.6
        colour = ("white" if dark else "black") if is_right else ("#FFB3A0" if dark else "#C0392B")
        shown = "·" if written == "<PAD>" else written
        axis.text(position, point, shown, ha="center", va="center", fontsize=7, color=colour)
    axis.set_yticks(range(points), trace.points, fontsize=7)
    labels = ["·" if symbol == "<PAD>" else symbol for symbol in correct]
    axis.set_xticks(range(positions), labels, fontsize=7)
    axis.set_xlabel("correct symbol (wrong ones are red)", fontsize=8)
    axis.tick_params(length=0)
    picture.colorbar(image, ax=axis, label="probability", fraction=0.03, pad=0.01)
    picture.suptitle(describe(trace, problem), fontsize=9)
    return picture


def describe(trace: Trace, problem: int) -> str:
    """The problem, the model's answer, and whether it is right."""
    solution = trace.solutions[problem]
    answer = "not a number" if solution.answer is None else solution.answer
    verdict = "right" if solution.right else "wrong"
    return f"{solution.problem.strip(' =')} = {answer} ({verdict})"
