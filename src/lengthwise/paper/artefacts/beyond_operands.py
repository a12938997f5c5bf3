"""Beyond the paper: from sums of k numbers to sums of k + 1, with and without priming."""

from itertools import product
from typing import Any

from lengthwise.evaluation.accuracy import measure_accuracy
from lengthwise.paper.artefact import Artefact, Claim, Grid, artefact
from lengthwise.paper.drawing import BLUE, GREEN, ORANGE, RED, finish, line, percent
from lengthwise.paper.experiments import PRIMED
from lengthwise.paper.results import Cell, Record, Results
from lengthwise.paper.scales import Overrides, ScaleName, base_keys
from lengthwise.paper.verdicts import Measurement, at_least, greater
from lengthwise.problems.evaluation_set import evaluation_set
from lengthwise.problems.priming import one_length
from lengthwise.training.runs import Run

NAME = "beyond-operands"
TRAINED_OPERANDS, MOST, DIGITS = 3, 4, 5
OPERANDS = range(2, MOST + 1)
# By coordinate, the colours of runs without and with priming.
COLOURS = {"index": (BLUE, RED), "significance": (GREEN, ORANGE)}
WITH_PRIMING = f", primed with {PRIMED} sums of {MOST}"


def label(coordinate: str, primed: bool) -> str:
    return f"relative-key over {coordinate}{WITH_PRIMING if primed else ''}"


def accuracy(results: Results, run: str, operands: int) -> Measurement:
    def of_record(record: Record) -> float | None:
        measured = record["measures"].get(NAME)
        return None if measured is None else float(measured[str(operands)])

    return results.measure(run, of_record, f"{run}, sums of {operands}", gated=False)


def shares(results: Results, run: str, operands: int) -> tuple[float, ...]:
    return accuracy(results, run, operands).known_values()


def solves_more(coordinate: str) -> Claim:
    return Claim(
        f"trained on sums of 2 and {TRAINED_OPERANDS} numbers, relative-key over {coordinate}"
        f" solves sums of {MOST} (at least half right)",
        lambda results: at_least(accuracy(results, label(coordinate, False), MOST), 0.5),
    )


def priming_helps(coordinate: str) -> Claim:
    return Claim(
        f"{PRIMED} primed sums of {MOST} numbers help relative-key over {coordinate}",
        lambda results: greater(
            *(accuracy(results, label(coordinate, primed), MOST) for primed in (True, False))
        ),
    )


@artefact(NAME, "Beyond the paper", "Sums of more numbers than in training")
class BeyondOperands(Artefact):
    claims = (*map(solves_more, COLOURS), *map(priming_helps, COLOURS))
    notes = (
        f"Sums of 2 to {TRAINED_OPERANDS} numbers of up to {DIGITS} digits, in a layout with room"
        f" for {MOST}; absent operands are padding. The least significant digit comes first. The"
        " paper asks this question and leaves it open.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        priming = {True: {"data.priming": one_length(DIGITS, PRIMED)}, False: {}}
        return {
            label(coordinate, primed): {
                **base_keys(scale, "survey", size="B"),
                "task": {"kind": "addition", "operands": MOST},
                "layout.order": "least-significant-first",
                "data.test_digits": DIGITS,
                "data.train_operands": TRAINED_OPERANDS,
                "model.position": {"kind": "relative-key", "coordinate": coordinate},
                **priming[primed],
            }
            for coordinate, primed in product(COLOURS, (False, True))
        }

    def measure(self, scale: ScaleName, run: Run) -> Record:
        """The accuracy by the number of operands."""
        solver, experiment = run.load(run.experiment.device), run.experiment
        count, occasion = experiment.evaluation.final_examples, experiment.steps + 2
        found = {}
        for operands in OPERANDS:
            blocks = evaluation_set(
                solver.task, DIGITS, count, experiment.seed, occasion, operands=operands
            )
            found[str(operands)] = measure_accuracy(solver, DIGITS, blocks).exact_match
        return found

    def grids(self, results: Results) -> dict[str, Grid]:
        rows = {
            run: [Cell(shares(results, run, n)) for n in OPERANDS]
            for run in self.conditions(results.scale)
        }
        columns = [f"{n} operands" for n in OPERANDS]
        return {"Exact match (%) by number of operands": Grid(columns, rows)}

    def draw(self, results: Results, figure: Any) -> None:
        axis = figure.subplots()
        for coordinate, colours in COLOURS.items():
            for primed, colour in zip((False, True), colours, strict=True):
                run = label(coordinate, primed)
                line(axis, {n: shares(results, run, n) for n in OPERANDS}, run, colour)
        xlabel = f"numbers of {DIGITS} digits that are added (trained on 2 to {TRAINED_OPERANDS})"
        axis.set(xlabel=xlabel, xticks=list(OPERANDS))
        percent(axis)
        finish(figure)
