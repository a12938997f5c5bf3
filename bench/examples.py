"""Examples to accuracy: our initialisation, optimiser and schedule against the defaults.

`make bench-examples` trains each pair on the same model and data until an accuracy is reached. The
second may take MOST_BUDGET times as long as the first's whole budget. It writes
results/bench-examples.json. Runs are kept in runs/bench and gone on with.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from lengthwise.base.files import write_json
from lengthwise.training import keys, machine
from lengthwise.training.experiment import Experiment
from lengthwise.training.loop import train
from lengthwise.training.runs import Run

ROOT = Path(__file__).parents[1]
MOST_BUDGET = 2
# Hugging Face's initial weights and AdamW's own betas, with the largest learning rate that the
# paper names, constant as there. The Trainer's default, 5e-5, is lower still.
DEFAULTS: dict[str, Any] = {
    "model.init_std": 0.02,
    "training.learning_rate": 1e-4,
    "training.schedule": "constant",
    "training.warmup_steps": 0,
    "training.betas": [0.9, 0.999],
}
SHARED = {"model.preset": "cpu", "data.test_digits": 10, "training.steps": 3000}


class Goal(NamedTuple):
    """An experiment, and the accuracy at a length that ends it."""

    settings: dict[str, Any]
    length: int
    accuracy: float


GOALS = {
    "sums of 5 digits, as in training": Goal({**SHARED, "task": "addition"}, 5, 0.9),
    "element-wise sums of 10 digits, trained on 5": Goal(
        {**SHARED, "task": "elementwise-addition"}, 10, 0.5
    ),
    "products of 10 digits by 1, primed with 50": Goal(
        {
            **SHARED,
            "task": "multiplication",
            "task.second_digits": 1,
            "layout": "compact",
            "data.priming": "10=50",
            "training.steps": 10_000,
        },
        10,
        0.5,
    ),
}


def make_pair(goal: Goal, seed: int) -> list[Experiment]:
    """The same experiment with our training and with the defaults."""
    lengths = {"evaluation.lengths": [goal.length], "evaluation.final_lengths": [goal.length]}
    tests = {"evaluation.every": 50, "evaluation.examples": 250, **lengths}
    ours = keys.load(None, {**goal.settings, **tests, "seed": seed})
    steps = {"training.steps": MOST_BUDGET * ours.steps}
    return [ours, keys.load(None, {**goal.settings, **tests, "seed": seed, **DEFAULTS, **steps})]


def examples_needed(level: float, run: Run) -> int | None:
    """The examples until a test on fresh problems reached the level; None: it never did."""
    if first_at(run, level) is None:
        for progress in train(run):
            if max(progress.accuracy.values(), default=0.0) >= level:
                break
    return first_at(run, level)


def first_at(run: Run, level: float) -> int | None:
    records = run.evaluations()
    reached = (r["examples"] for r in records if r["evaluation"][0]["exact_match"] >= level)
    return next(reached, None)


def summarise(
    goal: str, seeds: Sequence[int], needed: Sequence[Sequence[int | None]], most: int
) -> dict[str, Any]:
    return {
        "goal": goal,
        "exact match": GOALS[goal].accuracy,
        "seeds": list(seeds),
        "examples, ours": [ours for ours, _ in needed],
        "examples, defaults": [
            f"more than {most}" if theirs is None else theirs for _, theirs in needed
        ],
        "times fewer, at least": [
            ours and round((theirs or most) / ours, 1) for ours, theirs in needed
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench-examples.json")
    chosen = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for name, goal in GOALS.items():
            pairs = [make_pair(goal, seed) for seed in range(chosen.seeds)]
            runs = [Run.create(experiment, chosen.runs) for both in pairs for experiment in both]
            found = list(pool.map(partial(examples_needed, goal.accuracy), runs))
            needed = list(zip(found[::2], found[1::2], strict=True))
            most = pairs[0][1].steps * pairs[0][1].training.batch_size
            rows.append(summarise(name, range(chosen.seeds), needed, most))
            print(*(f"{key}: {value}" for key, value in rows[-1].items()), sep="; ", flush=True)
    write_json(chosen.out, {"machine": machine.describe("cpu"), "defaults": DEFAULTS, "rows": rows})
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
