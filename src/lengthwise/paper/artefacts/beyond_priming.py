"""Beyond the paper: does priming help other tasks, and embeddings that already generalise?"""

from itertools import product
from typing import Any

import numpy as np

from lengthwise.paper.artefact import Artefact, Claim, Grid, accuracy_grid, artefact
from lengthwise.paper.artefacts.beyond_matrix import LONGEST, PROBLEMS, lengths, matrix_run
from lengthwise.paper.drawing import BLUE, ORANGE, finish, panels, percent
from lengthwise.paper.experiments import PRIMED
from lengthwise.paper.results import Results
from lengthwise.paper.scales import Overrides, ScaleName
from lengthwise.paper.verdicts import greater
from lengthwise.problems.priming import one_length

EMBEDDINGS = (
    "absolute over index",
    "relative-key over index",
    "relative-key over significance",
    "alibi over index",
)


def label(problem: str, embedding: str, primed: bool) -> str:
    return f"{problem}, {embedding}{f', primed with {PRIMED}' if primed else ''}"


def helps(problem: str, embedding: str) -> Claim:
    return Claim(
        f"priming helps {problem} with {embedding} at 20 digits, the primed length",
        lambda results: greater(
            *(
                results.accuracy(label(problem, embedding, primed), LONGEST)
                for primed in (True, False)
            )
        ),
    )


@artefact("beyond-priming", "Beyond the paper", "Priming by task and by position embedding")
class BeyondPriming(Artefact):
    claims = tuple(
        helps(problem, embedding) for problem, embedding in product(PROBLEMS, EMBEDDINGS)
    )
    notes = (
        "The paper primes products only, and asks whether priming helps other tasks. Nothing here"
        " is in it.",
        "The runs without priming are those of beyond-matrix. The primed ones have 50 problems of"
        " the longest length among 5000.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        priming = {True: {"data.priming": one_length(lengths(scale)[-1], PRIMED)}, False: {}}
        return {
            label(problem, embedding, primed): {
                **matrix_run(scale, problem, embedding),
                **priming[primed],
            }
            for problem, embedding, primed in product(PROBLEMS, EMBEDDINGS, (False, True))
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        conditions = list(self.conditions(results.scale))
        grid = accuracy_grid(results, conditions, lengths(results.scale))
        return {"Exact match (%) by number of digits": grid}

    def draw(self, results: Results, figure: Any) -> None:
        longest = lengths(results.scale)[-1]
        for axis, problem in zip(panels(figure, *PROBLEMS), PROBLEMS, strict=True):
            for offset, primed, colour in ((-0.2, False, ORANGE), (0.2, True, BLUE)):
                name = f"primed with {PRIMED}" if primed else "not primed"
                for i, embedding in enumerate(EMBEDDINGS):
                    values = results.exact_match(label(problem, embedding, primed), longest)
                    if values:
                        axis.bar(i + offset, 100 * np.mean(values), 0.4, color=colour, label=name)
            names = [embedding.replace(" over ", "\nover ") for embedding in EMBEDDINGS]
            axis.set_xticks(range(len(EMBEDDINGS)), names, fontsize=7)
            percent(axis, f"exact match at {longest} digits (%)")
        finish(figure)
