"""Figure 3: fine-tuning on long products against priming with them; and the multiplications that figures share."""

from typing import Any

import numpy as np

from lengthwise.data import Priming, one_length
from lengthwise.paper import table_multiplication
from lengthwise.paper.artefact import MARGIN, Artefact, Claim, Grid, Missing, Results, ScaleName, Setting, artefact
from lengthwise.paper.drawing import BLUE, RED, finish, learning_curve, line, panels, percent, ticks
from lengthwise.paper.scales import setting

SHORT = 5
LONG = table_multiplication.DIGITS
SECOND: dict[ScaleName, int] = {"smoke": 1, "cpu": 1, "paper": 3}  # digits of the second operand
LEVEL = 0.9  # what counts as learned at the long length
FINE: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (20, 1000),
    "cpu": (50, 100, 500, 1000),
    "paper": (50, 100, 250, 500, 1000, 2000),
}
PRIMED = 50
N_TRAIN = 5000
BASE = "not primed"
SMALL_PRODUCTS = "At the smaller scales products are n×1 and compact, and the long length is 10 digits (smoke: 8)."


def multiplication(
    scale: ScaleName, priming: Priming = (), embedding: str = "RPE_k", train_size: int = N_TRAIN
) -> Setting:
    """A run of Table 3, with priming or another train set size."""
    examples = {"data.train_size": train_size, "data.priming": priming}
    return table_multiplication.multiplication(scale, SECOND[scale], embedding) | examples


def primed(scale: ScaleName, count: int) -> Setting:
    """So many examples of the long length among the training set."""
    return multiplication(scale, one_length(LONG[scale], count))


def fine_tuned(scale: ScaleName, count: int) -> Setting:
    """The run without priming, trained on with so many long examples alone."""
    budgets: dict[ScaleName, Setting] = {
        "smoke": {},
        "cpu": {"training.steps": 1000},
        "paper": {"training.examples": 7_500_000},
    }
    examples = {
        "data.train_digits": LONG[scale],
        "data.sampling": "exact",
        "data.train_size": count,
        "evaluation.final_lengths": [SHORT, LONG[scale]],
        "start_from": BASE,
    }
    return setting(scale, multiplication(scale), examples, budgets[scale])


def tuned(count: int) -> str:
    return f"fine-tuned on {count}"


def with_priming(count: int) -> str:
    return f"primed with {count}"


def reached_at(results: Results, label: str, length: int, level: float) -> float:
    """The examples seen when the mean over seeds first was at the level; infinite if it never was."""
    examples, seeds = results.curve(label, length)
    if not seeds:
        raise Missing(label)
    reached = np.mean(seeds, axis=0) >= level
    return float(examples[reached.argmax()]) if reached.any() else float("inf")


def short_comes_first(results: Results, label: str) -> bool:
    """Half of what is reached at the long length is reached earlier at the short one."""
    long = LONG[results.scale]
    level = results.mean(label, long) / 2
    first, then = (reached_at(results, label, length, level) for length in (SHORT, long))
    return level > MARGIN and first < then


@artefact("figure-finetuning-priming", "§5, Figure 3", "Multiplication: fine-tuning and train set priming")
class FigureFinetuningPriming(Artefact):
    notes = (
        "How long the paper fine-tunes isn't said. Here every sample size has the same budget: 7.5 million examples at"
        " paper scale, what priming takes to learn 35 digits, and 1000 steps after 5000 at cpu scale.",
        "“A fixed sample of 35 × 3 examples”, yet second operands are generated online in all procedures: the first"
        " operands are fixed, the second drawn online.",
        SMALL_PRODUCTS + f" “Learned” is {100 * LEVEL:.0f} % there.",
    )
    claims = (
        Claim(
            "the long length can be learned by fine-tuning on 1000 examples",
            lambda results: results.mean(tuned(1000), LONG[results.scale]) >= LEVEL,
        ),
        Claim(
            "fine-tuning on 1000 examples forgets 5 digits (less than half of the accuracy is left)",
            lambda results: results.mean(tuned(1000), SHORT) < results.mean(BASE, SHORT) / 2,
        ),
        Claim(
            "priming with 50 examples teaches the long length, which isn't learned without",
            lambda results: (
                results.mean(with_priming(PRIMED), LONG[results.scale])
                > results.mean(BASE, LONG[results.scale]) + MARGIN
            ),
        ),
        Claim(
            "with 50 primed examples, accuracy is close to 100 % (at least 95 %) at 5 digits and at the long length",
            lambda results: min(results.mean(with_priming(PRIMED), n) for n in (SHORT, LONG[results.scale])) >= 0.95,
        ),
        Claim(
            "priming doesn't forget: 5 digits are as good as without priming (within 5 points)",
            lambda results: results.mean(with_priming(PRIMED), SHORT) >= results.mean(BASE, SHORT) - 0.05,
        ),
        Claim(
            "fine-tuning needs far more examples: with ten times as many it stays below priming at the long length",
            lambda results: (
                results.mean(tuned(10 * PRIMED), LONG[results.scale])
                < results.mean(with_priming(PRIMED), LONG[results.scale]) - MARGIN
            ),
        ),
        Claim(
            "in primed training, 5 digits are learned first and the long length follows",
            lambda results: short_comes_first(results, with_priming(PRIMED)),
        ),
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {
            BASE: multiplication(scale),
            with_priming(PRIMED): primed(scale, PRIMED),
            **{tuned(count): fine_tuned(scale, count) for count in FINE[scale]},
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = (SHORT, LONG[results.scale])
        rows = {run: [(results.exact_match(run, n), None) for n in lengths] for run in self.settings(results.scale)}
        return {"Exact match (%) by number of digits": Grid([f"{n}" for n in lengths], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        counts = FINE[results.scale]
        axes = panels(figure, "fine-tuning", f"priming with {PRIMED} examples")
        for length, colour, marker in ((SHORT, BLUE, "o"), (LONG[results.scale], RED, "D")):
            name = f"{length} digits"
            line(axes[0], {n: results.exact_match(tuned(n), length) for n in counts}, name, colour, marker)
            learning_curve(axes[1], results, with_priming(PRIMED), length, name, colour)
        before = {n: results.exact_match(BASE, SHORT) for n in (counts[0], counts[-1])}
        line(axes[0], before, f"{SHORT} digits, before fine-tuning", BLUE, marker="", style=":")
        ticks(axes[0], counts)
        axes[0].set(xlabel="fine-tuning examples")
        for axis in axes:
            percent(axis)
        finish(figure)
