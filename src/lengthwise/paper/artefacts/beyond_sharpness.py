"""Beyond the paper: why long sums fail: attention is diluted, and sharper attention helps."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.evaluation.accuracy import evaluate
from lengthwise.paper.artefact import Artefact, Claim, Grid, artefact
from lengthwise.paper.drawing import COLOURS, finish, line, panels, percent
from lengthwise.paper.experiments import addition, roomy_addition
from lengthwise.paper.results import Cell, Record, Results
from lengthwise.paper.scales import SMOKE_DIGITS, TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import Judgement, greater, less
from lengthwise.problems.evaluation_set import evaluation_set
from lengthwise.solver import Solver
from lengthwise.training.runs import Run

NAME = "beyond-sharpness"
LARGE, ROOMY = "UTransformer RPE_k L", "UTransformer RPE_k B, n_test 25"
FACTORS = (0.8, 1.0, 1.25, 1.5, 2.0)  # of all attention scores, in testing only
SHARPER = 1.25
LENGTHS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (TRAIN_DIGITS, SMOKE_DIGITS),
    "cpu": (TRAIN_DIGITS, 10, 15, 18, 20),
    "paper": (TRAIN_DIGITS, 10, 15, 18, 20),
}
FAR = 18
TRACED = 100  # problems of each length whose patterns are looked at
Quantity = Callable[[Record], float | None]  # of one run
POINTING = 0.8  # weight of the strongest key, at the trained length, of a head that points


def strongest_weights(solver: Solver, length: int, seed: int) -> NDArray[np.float64]:
    """(layer, head): the weight of the strongest key, on average over digits of first operands."""
    (examples,) = evaluation_set(solver.task, length, TRACED, seed, block=TRACED)
    pairs = zip(*(numbers.to_ints() for numbers in examples.operands), strict=True)
    patterns = solver.trace([f"{a} + {b}" for a, b in pairs]).patterns
    return patterns[..., :length, :].max(-1).mean((0, 3), dtype=np.float64)


def pointing_weight(solver: Solver, lengths: tuple[int, ...], seed: int) -> dict[str, float]:
    """By length, the mean strongest weight of the heads that point at the trained length."""
    weights = {length: strongest_weights(solver, length, seed) for length in lengths}
    pointing = weights[TRAIN_DIGITS] >= POINTING
    if not pointing.any():
        return {}
    return {str(length): float(found[pointing].mean()) for length, found in weights.items()}


def accuracy_with(factor: float, length: int) -> Quantity:
    return lambda record: measure_of(record, "accuracy").get(f"{factor:g}", {}).get(str(length))


def weight_at(length: int) -> Quantity:
    return lambda record: measure_of(record, "weight").get(str(length))


def measure_of(record: Record, name: str) -> Record:
    found: Record = record["measures"].get(NAME, {})
    return found.get(name, {})


def sharper_helps(label: str) -> Claim:
    def judge(results: Results) -> Judgement:
        sharper, trained = (
            results.measure(label, accuracy_with(f, FAR), f"scores × {f:g}, {FAR} digits")
            for f in (SHARPER, 1.0)
        )
        return greater(sharper, trained)

    return Claim(
        f"{label}: scores × {SHARPER:g} in testing carry sums further ({FAR} digits)", judge
    )


def is_diluted(label: str) -> Claim:
    def judge(results: Results) -> Judgement:
        far, near = (
            results.measure(label, weight_at(n), f"weight of the strongest key at {n} digits")
            for n in (15, TRAIN_DIGITS)
        )
        return less(far, near)

    return Claim(
        f"{label}: heads that point at one token at {TRAIN_DIGITS} digits point less at 15", judge
    )


@artefact(NAME, "Beyond the paper", "Addition: attention is diluted; sharper attention helps")
class BeyondSharpness(Artefact):
    claims = (
        *(is_diluted(label) for label in (LARGE, ROOMY)),
        *(sharper_helps(label) for label in (LARGE, ROOMY)),
    )
    notes = (
        "Errors in long sums are single carries that a digit misses. A head finds the digit below"
        " by its distance. Softmax gives every other key a little weight; in training most other"
        " keys are padding, in long sums they are digits. A factor on all attention scores, in"
        " testing only, takes that weight away. Nothing is trained again.",
        f"A head points if its strongest key has at least {100 * POINTING:.0f} % of the weight at"
        f" {TRAIN_DIGITS} digits, on average over {TRACED} sums and the digits of the first"
        " operand.",
        "The factor was found on long sums of one other model (`examples/adder`), not on these.",
        "Scaling attention scores with the length is known to help transformers generalise"
        " (Chiang and Cholak, 2022).",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {LARGE: addition(scale, "RPE_k", size="L"), ROOMY: roomy_addition(scale)}

    def measure(self, scale: ScaleName, run: Run) -> Record:
        """Accuracy by factor and length, and how much heads that point still point."""
        solver, experiment = run.load(run.experiment.device), run.experiment
        count, seed = experiment.evaluation.final_examples, experiment.seed
        occasion = experiment.steps + 2
        accuracy = {
            f"{factor:g}": {
                str(a.length): a.exact_match
                for a in evaluate(solver, LENGTHS[scale], count, seed, occasion, sharpness=factor)
            }
            for factor in FACTORS
        }
        return {"accuracy": accuracy, "weight": pointing_weight(solver, LENGTHS[scale], seed)}

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = LENGTHS[results.scale]
        rows = {
            f"{label}, scores × {factor:g}": [
                Cell(shares(results, label, factor, n)) for n in lengths
            ]
            for label in self.conditions(results.scale)
            for factor in FACTORS
        }
        return {"Exact match (%) by number of digits": Grid([f"{n}" for n in lengths], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        lengths = LENGTHS[results.scale]
        labels = list(self.conditions(results.scale))
        axes = panels(figure, *labels, "heads that point", columns=3)
        for axis, label in zip(axes, labels, strict=False):
            for factor, colour in zip(FACTORS, COLOURS, strict=False):
                points = {n: shares(results, label, factor, n) for n in lengths}
                line(axis, points, f"scores × {factor:g}", colour)
            percent(axis)
        for label, style in zip(labels, ("-", "--"), strict=True):
            points = {n: results.measure(label, weight_at(n)).known_values() for n in lengths}
            line(axes[2], points, label, "0.3", style=style)
        percent(axes[2], "weight of the strongest key (%)")
        for axis in axes:
            axis.set(xlabel="digits", xticks=lengths)
        finish(figure)


def shares(results: Results, label: str, factor: float, length: int) -> tuple[float, ...]:
    """Each seed's accuracy with a factor on the scores."""
    return results.measure(label, accuracy_with(factor, length)).known_values()
