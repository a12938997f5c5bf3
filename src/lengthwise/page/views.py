"""What the page shows of runs, as JSON, read from their directories."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.arithmetic.tasks import TASKS
from lengthwise.base import UsageError
from lengthwise.evaluation.accuracy import Accuracy
from lengthwise.evaluation.analysis import Curve, learning_curves
from lengthwise.evaluation.stress import CASES
from lengthwise.model.positions import POSITIONS, OverCoordinate
from lengthwise.paper.records import thin
from lengthwise.problems.layouts import LAYOUTS
from lengthwise.training.experiment import CONFIG, Experiment
from lengthwise.training.runs import Run, is_name

MOST_POINTS = 240  # of a curve
Json = dict[str, Any]


def find_run(root: Path, name: str) -> Run:
    """A run of the directory by its name alone; a name is never a path."""
    if not is_name(name) or not (root / name / CONFIG).is_file():
        raise UsageError(f"there is no run '{name[:60]}' in {root}")
    return Run(root / name)


class RunList:
    """The runs of a directory. One that has not changed is not read again."""

    def __init__(self, root: Path):
        self.root = root
        self.known: dict[str, tuple[object, Json]] = {}

    def read(self) -> list[Json]:
        """Every run that can be read, the newest first."""
        if not self.root.is_dir():
            return []
        paths = [path for path in self.root.iterdir() if (path / CONFIG).is_file()]
        names = {path.name for path in paths if is_name(path.name)}
        self.known = {name: row for name, row in self.known.items() if name in names}
        for name in names:
            stamp = modified(self.root / name)
            if name not in self.known or self.known[name][0] != stamp:
                self.known[name] = stamp, self.describe(name)
        rows = sorted(self.known.values(), key=lambda item: item[1]["changed"], reverse=True)
        return [row for _, row in rows]

    def describe(self, name: str) -> Json:
        path = self.root / name
        stamps = (stamp for _, stamp in modified(path))
        row: Json = {"name": name, "changed": max(stamps, default=0)}  # none: just deleted
        try:
            run = Run(path)
            row |= {"status": run.status, "usable": has_weights(run), **summarise(run.experiment)}
        except (UsageError, OSError) as error:
            row |= {"status": "damaged", "usable": False, "reason": str(error)[:300]}
        return row


def has_weights(run: Run) -> bool:
    """Whether a model can be asked, finished or not."""
    return run.weights.exists() or run.checkpoint.exists()


def modified(path: Path) -> tuple[tuple[str, int], ...]:
    """When the files that decide what is shown of a run were written."""
    names = (CONFIG, "metrics.jsonl", "result.json", "checkpoint.safetensors", "failure.json")
    found = ((name, path / name) for name in names)
    return tuple((name, file.stat().st_mtime_ns) for name, file in found if file.exists())


def summarise(experiment: Experiment) -> Json:
    """What tells a run from others."""
    task, data, model = experiment.task, experiment.data, experiment.model
    layout = LAYOUTS.build(experiment.layout, task, data.test_digits)
    position = model.position.kind
    coordinate = getattr(model.position, "coordinate", "index")
    operands = task.operand_digits(data.test_digits)
    return {
        "task": task.kind,
        "symbol": task.symbol,
        "operands": len(operands),
        "operand_digits": list(task.operand_digits(data.train_digits)),
        "position": position + (f" over {coordinate}" if coordinate != "index" else ""),
        "encoder": model.encoder,
        "layers": model.layers,
        "depth": model.depth.kind,
        "heads": model.heads,
        "attention": model.attention.kind,
        "layout": layout.options.kind,
        "train_digits": data.train_digits,
        "test_digits": data.test_digits,
        "any_length": layout.fits_any_length,
        "priming": [list(pair) for pair in data.priming],
        "steps": experiment.steps,
        "seed": experiment.seed,
        "start_from": Path(experiment.start_from).name if experiment.start_from else None,
        "cases": [case.name for case in CASES.values() if case.applies(task)],
    }


def describe_run(run: Run) -> Json:
    """A run's accuracy by length, its curves and its loss, as far as it is trained."""
    metrics, result = run.metrics, run.result
    experiment = run.experiment
    evaluations = [record["evaluation"] for record in metrics if "evaluation" in record]
    tested = result["evaluation"] if result else (evaluations[-1] if evaluations else [])
    curves = learning_curves(metrics, experiment.answer_symbols())
    losses = [(m["examples"], m["loss"]) for m in metrics if "loss" in m]
    return {
        "name": run.path.name,
        "status": run.status,
        "usable": has_weights(run),
        **summarise(experiment),
        "step": metrics[-1]["step"] if metrics else 0,
        "parameters": (result or {}).get("parameters"),
        "seconds": (result or {}).get("seconds"),
        "final": result is not None,
        "accuracy": [to_row(Accuracy.from_json(a)) for a in tested],
        "loss": thin(losses, MOST_POINTS),
        "curves": {str(n): to_points(curve) for n, curve in sorted(curves.tested.items())},
        "train": to_digits(curves.train),
        "primed": to_digits(curves.primed),
        "config": experiment.to_yaml(),
    }


def to_row(accuracy: Accuracy) -> Json:
    row = accuracy.to_json()
    return {**row, "digits": [round(share, 4) for share in row["digits"]]}


def to_points(curve: Curve) -> list[Any]:
    """[examples, exact match] at each evaluation."""
    pairs = zip(curve.examples.tolist(), curve.exact_match.tolist(), strict=True)
    return thin(list(pairs), MOST_POINTS)


def to_digits(curve: Curve | None) -> Json | None:
    """The accuracy of each digit of the answer on training examples, as training went on."""
    if curve is None:
        return None
    pairs = zip(curve.examples.tolist(), np.round(curve.digits, 3).tolist(), strict=True)
    points = thin(list(pairs), MOST_POINTS)
    return {"examples": [seen for seen, _ in points], "digits": [shares for _, shares in points]}


def choices() -> Mapping[str, Any]:
    """What the form for training offers, from the registries."""
    simple = [kind for kind in POSITIONS if kind != "randomised"]
    return {
        "tasks": {kind: first_sentence(cls) for kind, cls in TASKS.items()},
        "positions": {
            kind: {
                "description": first_sentence(POSITIONS[kind]),
                "over_coordinate": issubclass(POSITIONS[kind], OverCoordinate),
            }
            for kind in simple
        },
        "cases": {case.name: case.description for case in CASES.values()},
    }


def first_sentence(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())
