"""Beyond the paper: does priming help other tasks, and embeddings that already generalise?"""

from collections.abc import Sequence
from typing import Any

from lengthwise.data import one_length
from lengthwise.paper.artefact import MARGIN, Artefact, Claim, Grid, Results, ScaleName, Setting, artefact
from lengthwise.paper.beyond_matrix import LENGTHS, PROBLEMS, matrix_run
from lengthwise.paper.drawing import BLUE, ORANGE, finish, panels, percent
from lengthwise.paper.figure_finetuning_priming import PRIMED

EMBEDDINGS = ("absolute over index", "relative-key over index", "relative-key over significance", "alibi over index")


def label(problem: str, embedding: str, primed: bool) -> str:
    return f"{problem}, {embedding}{f', primed with {PRIMED}' if primed else ''}"


def gain(results: Results, problem: str, embedding: str) -> float:
    """How much more is right at the longest length, which is the primed one."""
    longest = LENGTHS[results.scale][-1]
    without, primed = (results.mean(label(problem, embedding, on), longest) for on in (False, True))
    return primed - without


def helps(problem: str, embedding: str) -> Claim:
    return Claim(
        f"priming helps {problem} with {embedding} at the primed length",
        lambda results: gain(results, problem, embedding) > MARGIN,
    )


@artefact("beyond-priming", "Beyond the paper", "Priming by task and by position embedding")
class BeyondPriming(Artefact):
    claims = tuple(helps(problem, embedding) for problem in PROBLEMS for embedding in EMBEDDINGS)
    notes = (
        "The paper primes products only, and asks whether priming helps other tasks. Nothing here is in it.",
        "The runs without priming are those of beyond-matrix; the primed ones have 50 problems of the longest length"
        " among 5000.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        priming = {True: {"data.priming": one_length(LENGTHS[scale][-1], PRIMED)}, False: {}}
        return {
            label(problem, embedding, primed): {**matrix_run(scale, problem, embedding), **priming[primed]}
            for problem in PROBLEMS
            for embedding in EMBEDDINGS
            for primed in (False, True)
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths: Sequence[int] = LENGTHS[results.scale]
        rows = {name: [(results.exact_match(name, n), None) for n in lengths] for name in self.settings(results.scale)}
        return {"Exact match (%) by number of digits": Grid([f"{n}" for n in lengths], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        longest = LENGTHS[results.scale][-1]
        for axis, problem in zip(panels(figure, *PROBLEMS), PROBLEMS, strict=True):
            for offset, primed, colour in ((-0.2, False, ORANGE), (0.2, True, BLUE)):
                seeds = [results.exact_match(label(problem, e, primed), longest) for e in EMBEDDINGS]
                for i, values in enumerate(seeds):
                    if values:
                        axis.bar(i + offset, 100 * sum(values) / len(values), 0.4, color=colour)
                axis.bar(0, 0, color=colour, label=f"primed with {PRIMED}" if primed else "not primed")
            axis.set_xticks(range(len(EMBEDDINGS)), [e.replace(" over ", "\nover ") for e in EMBEDDINGS], fontsize=7)
            percent(axis, f"exact match at {longest} digits (%)")
        finish(figure)
