"""Examples to accuracy: our initialisation, optimiser and schedule against the defaults, on the same model and data.

`make bench-examples` trains each pair until the accuracy is reached, the second for at most MOST times as long as the
first's whole budget, and writes results/bench-examples.json. Runs are kept in runs/bench and gone on with.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from lengthwise import machine
from lengthwise.experiment import Experiment, load
from lengthwise.paper.figure_finetuning_priming import PRIMED, primed
from lengthwise.paper.scales import budget, model, setting
from lengthwise.paper.table_elementwise import elementwise
from lengthwise.runs import Run, write_json
from lengthwise.training import train

ROOT = Path(__file__).parents[1]
MOST = 2
# Hugging Face's initial weights and AdamW's own betas, with the largest learning rate that the paper names, constant
# as there. The Trainer's default, 5e-5, is lower still.
DEFAULTS: dict[str, Any] = {
    "model.init_std": 0.02,
    "training.learning_rate": 1e-4,
    "training.schedule": "constant",
    "training.warmup_steps": 0,
    "training.betas": [0.9, 0.999],
}
ADDITION = setting("cpu", {"data.test_digits": 10}, model("cpu", "UTransformer", "B"), budget("cpu", 3000))
TASKS: dict[str, tuple[dict[str, Any], int, float]] = {  # settings, length and accuracy
    "sums of 5 digits, as in training": (ADDITION, 5, 0.9),
    "element-wise sums of 10 digits, trained on 5": (elementwise("cpu", "RPE_k", 10), 10, 0.5),
    f"products of 10 digits by 1, primed with {PRIMED}": (primed("cpu", PRIMED), 10, 0.5),
}


def pair(settings: dict[str, Any], length: int, seed: int) -> list[Experiment]:
    """The same with our training and with the defaults."""
    lengths = {"evaluation.lengths": [length], "evaluation.final_lengths": [length]}
    tested = {**settings, **lengths, "evaluation.every": 50, "evaluation.examples": 250, "seed": seed}
    ours = load(None, tested)
    return [ours, load(None, {**tested, **DEFAULTS, "training.steps": MOST * ours.steps})]


def examples_needed(level: float, run: Run) -> int | None:
    """How many examples it took until a test on fresh problems reached the level; None: it never did."""
    if first_at(run, level) is None:
        for progress in train(run):
            if max(progress.accuracy.values(), default=0.0) >= level:
                break
    return first_at(run, level)


def first_at(run: Run, level: float) -> int | None:
    reached = (r["examples"] for r in run.evaluations() if r["evaluation"][0]["exact_match"] >= level)
    return next(reached, None)


def summary(task: str, seeds: Sequence[int], needed: Sequence[Sequence[int | None]], most: int) -> dict[str, Any]:
    at_least = [ours and round((theirs or most) / ours, 1) for ours, theirs in needed]
    return {
        "task": task,
        "exact match": TASKS[task][2],
        "seeds": list(seeds),
        "examples, ours": [ours for ours, _ in needed],
        "examples, defaults": [theirs if theirs is not None else f"not with {most}" for _, theirs in needed],
        "times fewer, at least": at_least,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "bench")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench-examples.json")
    chosen = parser.parse_args()
    rows = []
    with ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool:
        for task, (settings, length, level) in TASKS.items():
            pairs = [pair(settings, length, seed) for seed in range(chosen.seeds)]
            runs = [Run.create(experiment, chosen.runs) for both in pairs for experiment in both]
            found = list(pool.map(partial(examples_needed, level), runs))
            most = pairs[0][1].steps * pairs[0][1].training.batch_size
            rows.append(summary(task, range(chosen.seeds), list(zip(found[::2], found[1::2], strict=True)), most))
            print(*(f"{name}: {value}" for name, value in rows[-1].items()), sep="; ", flush=True)
    write_json(chosen.out, {"machine": machine.describe("cpu"), "defaults": DEFAULTS, "rows": rows})
    print(f"written to {chosen.out}")


if __name__ == "__main__":
    main()
