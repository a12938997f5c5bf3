"""What there is to say about a run in one row, for lists and comparisons."""

from pathlib import Path
from typing import Any

from lengthwise.base import UsageError
from lengthwise.training.experiment import CONFIG, IDENTITY
from lengthwise.training.own_code import CODE
from lengthwise.training.runs import (
    ENVIRONMENT,
    METRICS,
    RESULT,
    ConfigReader,
    NotImported,
    Run,
    is_run,
)

FILES_READ = {CONFIG, IDENTITY, CODE, METRICS, RESULT, ENVIRONMENT}  # and so verified


def summarise_run(run: Run) -> dict[str, Any]:
    """Status, configuration in short, cost and accuracy of a run, as plain values."""
    run.manifest.verify(left_out=run.large_files() | FILES_READ)
    last, sessions = run.last_record(), run.sessions()
    experiment, result = run.experiment, run.result
    tested = {a["length"]: a["exact_match"] for a in (result or {}).get("evaluation", [])}
    accuracy = tested or run.last_accuracy()
    return {
        "run": str(run.path),
        "identity": run.identity,
        "status": "finished" if result is not None else run.status,
        "step": last["step"] if last else 0,
        "steps": experiment.steps,
        "task": repr(experiment.task),
        "layout": repr(experiment.layout),
        "position": repr(experiment.model.position),
        "seed": experiment.seed,
        "started": sessions[0]["started"] if sessions else None,
        "seconds": (result or {}).get("seconds"),
        "examples": (result or {}).get("examples"),
        "parameters": (result or {}).get("parameters"),
        "accuracy": accuracy,
        "headline": {n: accuracy[n] for n in experiment.lengths if n in accuracy},
    }


def overview(root: Path) -> list[dict[str, Any]]:
    """All runs in a directory; those that can't be read are listed with the reason.

    Weights and checkpoints are large and not verified here; `lengthwise check` does that.
    """
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a directory of runs")
    rows, reader = [], ConfigReader()
    for path in sorted(root.iterdir()) if root.exists() else ():
        row: dict[str, Any] = {"run": str(path), "step": 0, "steps": 0}
        row |= {"accuracy": {}, "headline": {}}
        try:
            if not is_run(path):
                continue
            row |= summarise_run(Run(path, reader))
        except NotImported as error:
            row |= {"status": "not imported", "reason": str(error)}
        except Exception as error:  # whatever it is: one damaged run never hides the others
            row |= {"status": "damaged", "reason": " ".join(str(error).split())}
        rows.append(row)
    return rows
