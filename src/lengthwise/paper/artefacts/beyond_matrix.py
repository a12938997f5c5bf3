"""Beyond the paper: every position embedding over every coordinate, for sums and for products."""

from itertools import product
from typing import Any, get_args

import numpy as np

from lengthwise.model.positions import POSITIONS
from lengthwise.paper.artefact import Artefact, Claim, Grid, accuracy_grid, artefact
from lengthwise.paper.drawing import panels
from lengthwise.paper.results import Results
from lengthwise.paper.scales import SMOKE_LENGTHS, Overrides, ScaleName, base_keys
from lengthwise.paper.verdicts import greater
from lengthwise.problems.layouts import Coordinate

LONGEST = 20
PROBLEMS: dict[str, Overrides] = {
    "sum": {"task": "addition"},
    "n×1": {"task": {"kind": "multiplication", "second_digits": 1}, "layout": "compact"},
}


def lengths(scale: ScaleName) -> tuple[int, ...]:
    return SMOKE_LENGTHS if scale == "smoke" else (5, 6, 10, 15, LONGEST)


def embeddings(longest: int) -> dict[str, Overrides]:
    """Every registered embedding, over each coordinate that it supports."""
    options: dict[str, Overrides] = {
        "abacus": {"offset": longest},
        "alibi": {"signed": True},
        "coupled": {"offset": longest},
        "fire": {"signed": True},
        "randomised": {"reach": 8 * longest},
    }
    found: dict[str, Overrides] = {}
    for kind, position in POSITIONS.items():
        choice = {"kind": kind, **options.get(kind, {})}
        if "coordinate" in POSITIONS.options_of(position).model_fields:
            for coordinate in get_args(Coordinate):
                found[f"{kind} over {coordinate}"] = {**choice, "coordinate": coordinate}
        else:
            found[kind] = choice
    return found


def matrix_run(scale: ScaleName, problem: str, embedding: str) -> Overrides:
    """One cell of the matrix."""
    longest = lengths(scale)[-1]
    return {
        **base_keys(scale, "survey", size="B"),
        **PROBLEMS[problem],
        "layout.order": "least-significant-first",
        "data.test_digits": longest,
        "evaluation.final_lengths": list(lengths(scale)),
        "model.position": embeddings(longest)[embedding],
    }


def further_by_significance(kind: str, problem: str) -> Claim:
    return Claim(
        f"{kind} over significance beats {kind} over the index at 20 digits ({problem})",
        lambda results: greater(
            *(
                results.accuracy(f"{problem}, {kind} over {coordinate}", LONGEST)
                for coordinate in ("significance", "index")
            )
        ),
    )


@artefact("beyond-matrix", "Beyond the paper", "Every position embedding over every coordinate")
class BeyondMatrix(Artefact):
    claims = tuple(
        further_by_significance(kind, problem)
        for kind, problem in product(("relative-key", "rope"), PROBLEMS)
    )
    notes = (
        "Nothing here is in the paper. Digits are written least significant first; all embeddings"
        " have the same model, budget and learning rate.",
        "Training shifts Abacus and coupled positions by up to the longest length. Randomised"
        " positions are around relative-key, chosen from eight times the longest length. ALiBi and"
        " FIRE have their signed forms, because an encoder needs to tell left from right.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {
            f"{problem}, {name}": matrix_run(scale, problem, name)
            for problem, name in product(PROBLEMS, embeddings(LONGEST))
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        return {
            f"Exact match (%) by number of digits, {problem}": accuracy_grid(
                results,
                [f"{problem}, {name}" for name in embeddings(LONGEST)],
                lengths(results.scale),
            )
            for problem in PROBLEMS
        }

    def draw(self, results: Results, figure: Any) -> None:
        columns, names = lengths(results.scale), list(embeddings(LONGEST))
        for axis, problem in zip(panels(figure, *PROBLEMS), PROBLEMS, strict=True):
            shares = [
                [results.exact_match(f"{problem}, {name}", n) for n in columns] for name in names
            ]
            means = [[100 * np.mean(s) if s else float("nan") for s in row] for row in shares]
            axis.imshow(means, vmin=0, vmax=100, cmap="viridis", aspect="auto")
            axis.set(xlabel="digits", xticks=range(len(columns)), xticklabels=columns)
            axis.set(yticks=range(len(names)), yticklabels=names)
            for (i, j), value in np.ndenumerate(means):
                text = "–" if np.isnan(value) else f"{value:.0f}"  # a cell without a run
                colour = "white" if value < 60 else "black"  # an empty cell is white
                axis.text(j, i, text, ha="center", va="center", color=colour, fontsize=7)
