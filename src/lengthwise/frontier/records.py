"""Length records: trained on numbers of up to five digits, tested on very long ones, with the stress suite beside them.

A record is one or more settings, each trained with several seeds. What counts is the mean over seeds with the worst one
beside it, on fresh problems of each length. No checkpoint is chosen: the model is the one at the end of training.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import numpy as np

from lengthwise import experiment as configuration
from lengthwise import machine
from lengthwise.data import TrainingSet
from lengthwise.digits import carries, longest_run
from lengthwise.display import Display
from lengthwise.errors import UsageError, nearest
from lengthwise.evaluation import evaluate, wilson
from lengthwise.experiment import Experiment
from lengthwise.record_page import draw, page
from lengthwise.runs import Run, read_json, write_atomically, write_json, writing
from lengthwise.solver import Solver
from lengthwise.stress import CASES, stress
from lengthwise.sweep import run_all
from lengthwise.tasks import Addition

Setting = dict[str, Any]  # dotted keys of a configuration
OCCASION = 2**31  # of the test sets: none that training has
MOST_FAILURES = 3  # kept of a case

# A digit attends to its neighbours only, those of its own power of ten and of one more and one less, each by where it
# is and not by what it says. So what is learned is one rule for all places; and as a carry moves on with every layer,
# layers that are applied until the answer settles carry as far as they must.
LOCAL: Setting = {
    "layout.order": "least-significant-first",
    "layout.fitted": True,
    "layout.answer_room": True,
    "data.sampling": "uniform-length",
    "data.train_size": 100000,
    "data.padding": 2,
    "data.repeats": 0.2,
    "model.width": 64,
    "model.heads": 8,
    "model.layers": 5,
    "model.content": False,
    "model.sink": True,
    "model.window": 1,
    "model.recall": True,
    "model.patience": 3,
    "model.position.kind": "relative-bias",
    "model.position.coordinate": "significance",
    "model.position.clip": 1,
    "model.position.by_operands": True,
    "model.position.strength": 16,
    "training.more_layers": 4,
    "training.batch_size": 64,
    "evaluation.every": 1000,
    "evaluation.lengths": [5],
    "evaluation.final_lengths": [5],
}


# A row for each product by one digit, and a row for each sum of them: what is learned is a rule for each of both.
LONG_MULTIPLICATION: Setting = {
    "task": {"kind": "multiplication", "second_digits": 3},
    **LOCAL,
    "layout.answer_room": False,
    "layout.compact": True,
    "layout.long_multiplication": True,
    "model.read_rows": True,
    "data.repeats": 0.1,
    "data.zeros": 0.2,
    "model.layers": 6,
    "training.more_layers": 8,
    "training.batch_size": 16,
    "training.steps": 24000,
}

# The paper's way to long products: its embedding, and 50 long examples. Its layout but for the second operand, which is
# no wider than three digits; lengths are drawn uniformly. An hour on a core.
PRIMED: Setting = {
    "task": {"kind": "multiplication", "second_digits": 3},
    "layout.compact": True,
    "data.test_digits": 35,
    "data.sampling": "uniform-length",
    "data.priming": {35: 50},
    "training.batch_size": 16,
    "training.learning_rate": 1e-3,
    "training.steps": 44000,
    "evaluation.every": 2000,
    "evaluation.lengths": [5],
    "evaluation.final_lengths": [5],
}


@dataclass(frozen=True)
class Trial:
    """One part of a record: how a model is trained, where it is tested, and what is aimed at."""

    setting: Setting
    tests: Mapping[int, int]  # problems by length
    goals: Mapping[int, float] = field(default_factory=dict)  # exact match by length
    stressed: Mapping[int, int] = field(default_factory=dict)  # the stress suite's problems a case, by length
    second_digits: int | Literal["same", "as trained"] = "as trained"  # of the products that are asked

    def load(self, run: Run) -> Solver:
        """The trained model, for the problems of this trial."""
        model = run.load()
        return model if self.second_digits == "as trained" else model.multiplying_by(self.second_digits)


@dataclass(frozen=True)
class LengthRecord:
    """What `lengthwise record NAME` trains and tests."""

    title: str
    trials: Mapping[str, Trial]


RECORDS: dict[str, LengthRecord] = {
    "addition": LengthRecord(
        "sums, trained on 1 to 5 digits",
        {
            "sum": Trial(
                {"task": "addition", **LOCAL, "data.chains": 0.3, "training.steps": 5000},
                {5: 1000, 20: 1000, 100: 1000, 1000: 1000, 10000: 20},
                {100: 0.995, 1000: 0.99},
                {5: 200, 20: 200, 100: 100, 1000: 3},
            )
        },
    ),
    "multiplication": LengthRecord(
        "products of long numbers, trained on 1 to 5 digits by 1 to 3",
        {
            **{
                f"n×{digits}": Trial(
                    LONG_MULTIPLICATION,
                    {5: 1000, 20: 1000, 35: 1000, 100: 1000},
                    {100: 0.99} if digits == 1 else {35: 0.9},
                    {5: 100, 20: 100, 35: 100},
                    digits,
                )
                for digits in (1, 2, 3)
            },
            "n×n": Trial(
                LONG_MULTIPLICATION,
                {5: 1000, 10: 1000, 20: 1000, 35: 100, 50: 50, 100: 5},
                {},
                {5: 100, 10: 100, 20: 20},
                "same",
            ),
        },
    ),
    "priming": LengthRecord(
        "products of long numbers, primed: trained on 1 to 5 digits by 1 to 3 and on 50 examples of 35 digits",
        {
            f"n×{digits}": Trial(
                PRIMED,
                {5: 1000, 6: 1000, 10: 1000, 20: 1000, 34: 1000, 35: 1000},
                stressed={5: 100, 35: 100},
                second_digits=digits,
            )
            for digits in (1, 2, 3)
        },
    ),
}


def make(name: str, seeds: Sequence[int], jobs: int, root: Path, results: Path, display: Display) -> dict[str, Any]:
    """Train what isn't trained yet, test it, write results/records/NAME.json, .md and .png; returns what is written.

    What has been measured of a run is kept beside it, so that this can be stopped and gone on with at any time.
    """
    if name not in RECORDS:
        raise UsageError(f"there is no record '{name}': {nearest(name, RECORDS)}")
    chosen, folder = RECORDS[name], results / "records"
    with writing(folder):  # before hours of training
        folder.mkdir(parents=True, exist_ok=True)
    runs = {
        (label, seed): Run.create(configuration.load(None, {**trial.setting, "seed": seed}), root)
        for label, trial in chosen.trials.items()
        for seed in seeds
    }
    trained = {run.path.name: run for run in runs.values()}  # trials may share a model
    display.labels = {run.path.name: f"{label}, seed {seed}" for (label, seed), run in reversed(runs.items())}
    for run, failure in run_all(list(trained.values()), jobs, display):
        if failure:
            raise UsageError(f"{run.path} failed: {failure}")
    trials: dict[str, dict[str, Any]] = {}
    sights = {name: seen(run.experiment) for name, run in trained.items() if run.experiment.seed == seeds[0]}
    with ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent) as pool:
        for label, trial in chosen.trials.items():
            mine = [runs[label, seed] for seed in seeds]
            found = list(pool.map(partial(measured, trial), [run.path for run in mine]))
            trials[label] = summary(trial, mine, found, sights[mine[0].path.name])
    written = {"record": name, "title": chosen.title, "trials": trials}
    write_json(folder / f"{name}.json", written)
    write_atomically(folder / f"{name}.md", "\n".join(page(written)).encode())
    draw(written, folder / f"{name}.png")
    return written


def end_with_parent() -> None:
    """Don't go on in a process whose parent was killed."""

    def watch() -> None:
        if (parent := parent_process()) is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


def measured(trial: Trial, run_path: Path) -> dict[str, Any]:
    """What is measured of a trained run: accuracy by length, and the stress suite.

    Where layers are applied until the answer settles, it is measured with those of training alone, too.
    """
    machine.prepare("cpu", threads=1)
    run = Run(run_path)
    path = run.path / "record.json"
    found: dict[str, Any] = read_json(path) if path.exists() else {}
    if found.get("identity") != run.identity:
        found = {"identity": run.identity}
    model, seed, layers = trial.load(run), run.experiment.seed, run.experiment.model.layers
    settles = run.experiment.model.patience is not None
    asked = "" if trial.second_digits == "as trained" else f" by {trial.second_digits}"
    cases = sum(case.applies(model.task) for case in CASES.values())

    def key(part: str, length: int, many: int) -> str:
        suite = "" if part == "evaluation" else f" in {cases} cases"  # there may be more since
        return f"{part}{suite}: {length} digits{asked}, {many} problems"

    def accuracy(length: int, many: int) -> dict[str, Any]:
        (tested,) = evaluate(model, [length], many, seed, OCCASION)
        return {key: value for key, value in tested.to_json().items() if key != "digits"}

    def stressed(depth: int | None, length: int, many: int) -> list[dict[str, Any]]:
        return [outcome.to_json() for outcome in stress(model, [length], many, seed, layers=depth)]

    parts: dict[str, tuple[Mapping[int, int], Callable[[int, int], Any]]] = {
        "evaluation": (trial.tests, accuracy),
        "stress": (trial.stressed, partial(stressed, None)),
        "stress, no deeper than trained": (trial.stressed if settles else {}, partial(stressed, layers)),
    }
    for part, (tests, measure) in parts.items():
        for length, many in tests.items():
            if (name := key(part, length, many)) not in found:
                print(f"seed {seed}, {name}", file=sys.stderr, flush=True)
                found[name] = measure(length, many)
                write_json(path, found)
    return {
        part: {length: found[key(part, length, many)] for length, many in tests.items()}
        for part, (tests, _) in parts.items()
    }


def seen(experiment: Experiment) -> dict[str, Any]:
    """All that a model saw in training, measured on its very batches."""
    data = TrainingSet(experiment.task, experiment.data, experiment.seed)
    longest = np.zeros(len(experiment.task.operand_digits(1)), int)
    chain = 0
    for step in range(experiment.steps):
        operands = data.batch(step, experiment.training.batch_size).operands
        longest = np.maximum(longest, [numbers.lengths.max() for numbers in operands])
        if isinstance(experiment.task, Addition) and len(operands) == 2:
            chain = max(chain, int(longest_run(carries(*operands)).max()))
    least = experiment.model.layers
    return {
        "examples": experiment.steps * experiment.training.batch_size,
        "digits of the longest operands": longest.tolist(),
        **({"longest chain of carries": chain} if chain else {}),
        **({"asked for besides the answer": "all rows"} if experiment.layout.long_multiplication else {}),
        "padding beyond the longest of a batch, at most": experiment.data.padding,
        "times that the layers are applied": f"{least} to {least + experiment.training.more_layers}",
    }


def summary(
    trial: Trial, runs: Sequence[Run], found: Sequence[dict[str, Any]], sight: Mapping[str, Any]
) -> dict[str, Any]:
    """Over seeds: the mean, the worst, and the interval of all their problems together."""
    lengths = {}
    for n in trial.tests:
        tested = [f["evaluation"][n] for f in found]
        shares = [t["exact_match"] for t in tested]
        low, high = wilson(sum(t["correct"] for t in tested), sum(t["examples"] for t in tested))
        lengths[n] = {
            "problems a seed": trial.tests[n],
            "mean": float(np.mean(shares)),
            "worst": min(shares),
            "low": low,
            "high": high,
            "by seed": shares,
            "goal": trial.goals.get(n),
        }
    results = [run.result or {} for run in runs]
    return {
        "seeds": [run.experiment.seed for run in runs],
        "runs": [run.path.name for run in runs],
        "parameters": results[0]["parameters"],
        "minutes of training": [round(result["seconds"] / 60, 1) for result in results],
        "seen in training": sight,
        "digits of the second operand": trial.second_digits,
        "lengths": lengths,
        "stress": stress_summary([f["stress"] for f in found], MOST_FAILURES),
        "stress, no deeper than trained": stress_summary([f["stress, no deeper than trained"] for f in found], 0),
        "config": runs[0].experiment.model_dump(mode="json", exclude={"device", "threads", "start_from", "seed"}),
        "environment": read_json(runs[0].path / "environment.json")["sessions"][-1],
    }


def stress_summary(found: Sequence[Mapping[int, Sequence[Mapping[str, Any]]]], failures: int) -> list[dict[str, Any]]:
    """A case at one length over seeds, with so many of the problems that failed."""
    cases: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for seed in found:
        for length, outcomes in seed.items():
            for outcome in outcomes:
                cases.setdefault((outcome["case"], outcome["detail"], length), []).append(outcome)
    return [
        {
            "case": case,
            "detail": detail,
            "length": length,
            "problems": sum(o["examples"] for o in outcomes),
            "mean": float(np.mean([o["exact_match"] for o in outcomes])),
            "worst": min(o["exact_match"] for o in outcomes),
            "failures": [failure for o in outcomes for failure in o["failures"]][:failures],
        }
        for (case, detail, length), outcomes in cases.items()
    ]
