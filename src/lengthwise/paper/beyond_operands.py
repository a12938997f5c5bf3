"""Beyond the paper: from sums of k numbers to sums of k + 1, which the paper leaves open, with and without priming."""

from typing import Any

from lengthwise.data import evaluation_set, one_length
from lengthwise.evaluation import accuracy
from lengthwise.paper.artefact import (
    MARGIN,
    Artefact,
    Claim,
    Grid,
    Missing,
    Record,
    Results,
    ScaleName,
    Setting,
    artefact,
)
from lengthwise.paper.drawing import BLUE, GREEN, ORANGE, RED, finish, line, percent
from lengthwise.paper.scales import budget, model, setting
from lengthwise.runs import Run

TRAINED, MOST, DIGITS = 3, 4, 5  # operands in training and in all, and their digits
OPERANDS = range(2, MOST + 1)
PRIMED = 50
OVER = {  # the coordinate, and the colours of runs without and with priming
    "relative-key over index": ("index", (BLUE, RED)),
    "relative-key over significance": ("significance", (GREEN, ORANGE)),
}
PRIMED_TOO = f", primed with {PRIMED} sums of {MOST}"
PRIMING = {"": False, PRIMED_TOO: True}


def solves_more(name: str) -> Claim:
    return Claim(
        f"trained on sums of 2 and {TRAINED} numbers, {name} solves sums of {MOST} (at least half right)",
        lambda results: share(results, name, MOST) >= 0.5,
    )


def helped(name: str) -> Claim:
    return Claim(
        f"{PRIMED} primed sums of {MOST} numbers help {name}",
        lambda results: share(results, name + PRIMED_TOO, MOST) > share(results, name, MOST) + MARGIN,
    )


@artefact("beyond-operands", "Beyond the paper", "Sums of more numbers than in training")
class BeyondOperands(Artefact):
    claims = (*map(solves_more, OVER), *map(helped, OVER))
    notes = (
        f"Sums of 2 to {TRAINED} numbers of up to {DIGITS} digits, in a layout with room for {MOST}; operands that"
        " aren't there are padding. All is written least significant digit first. The paper asks this question.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        common: Setting = {
            "task": {"kind": "addition", "operands": MOST},
            "layout.order": "least-significant-first",
            "data.test_digits": DIGITS,
            "data.train_operands": TRAINED,
        }
        primings: dict[bool, Setting] = {True: {"data.priming": one_length(DIGITS, PRIMED)}, False: {}}
        rate: Setting = {"training.learning_rate": 1e-3} if scale == "cpu" else {}
        return {
            f"{name}{primed}": setting(
                scale,
                common,
                model(scale, "UTransformer", "B"),
                {"model.position": {"kind": "relative-key", "coordinate": coordinate}},
                primings[on],
                rate,
                budget(scale, 3000),
            )
            for name, (coordinate, _) in OVER.items()
            for primed, on in PRIMING.items()
        }

    def measure(self, scale: ScaleName, run: Run) -> Record:
        """The accuracy by the number of operands."""
        solver, experiment = run.load(run.experiment.device), run.experiment
        problems, occasion = experiment.evaluation.final_examples, experiment.steps + 2
        found = {}
        for many in OPERANDS:
            blocks = evaluation_set(solver.task, DIGITS, problems, experiment.seed, occasion, operands=many)
            found[str(many)] = accuracy(solver, DIGITS, blocks).exact_match
        return found

    def grids(self, results: Results) -> dict[str, Grid]:
        rows = {
            label: [(shares(results, label, many), None) for many in OPERANDS] for label in self.settings(results.scale)
        }
        return {"Exact match (%) by number of operands": Grid([f"{many} operands" for many in OPERANDS], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        axis = figure.subplots()
        for name, (_, colours) in OVER.items():
            for primed, colour in zip(PRIMING, colours, strict=True):
                points = {many: shares(results, name + primed, many) for many in OPERANDS}
                line(axis, points, name + primed, colour)
        axis.set(xlabel=f"numbers of {DIGITS} digits that are added (trained on 2 to {TRAINED})", xticks=list(OPERANDS))
        percent(axis, "exact match (%)")
        finish(figure)


def shares(results: Results, label: str, many: int) -> list[float]:
    measured = (record["measures"].get(BeyondOperands.name) for record in results.of(label))
    return [by_operands[str(many)] for by_operands in measured if by_operands]


def share(results: Results, label: str, many: int) -> float:
    values = shares(results, label, many)
    if not values:
        raise Missing(label)
    return sum(values) / len(values)
