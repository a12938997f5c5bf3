"""Speed against Hugging Face's BERT and ALBERT and against the machine's limit: `make bench`.

Every contender is a process of its own, or two: the same work may be half as fast again in one of them, by how memory
happens to be given out. They take turns, a short while each, for several rounds; what counts are the ratios within a
round, because the speed of a shared machine changes from minute to minute. Writes results/bench.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contender import SQUARE
from environment import huggingface_python

from lengthwise import machine
from lengthwise.experiment import TrainingConfig
from lengthwise.runs import write_json

ROOT = Path(__file__).parents[1]
POSITIONS = ("absolute", "relative-key", "relative-key-query")
UNIVERSAL = {"model.encoder": "universal-transformer", "model.activation": "gelu-tanh"}  # as ALBERT has it
TRANSFORMER = {"model.encoder": "transformer", "model.activation": "gelu", "model.scale_relative": True}  # BERT
SIZES: dict[str, dict[str, Any]] = {
    "cpu": {"model.preset": "cpu", "training.batch_size": 32, "evaluation.examples": 1000},
    "base": {"model.preset": "base", "training.batch_size": 32, "evaluation.examples": 64},
    "standard": {"model.preset": "standard", "training.batch_size": 8, "evaluation.examples": 16},
}
MODELS: dict[str, dict[str, Any]] = {
    "cpu size, 21 tokens": {**SIZES["cpu"], "data.test_digits": 10, **UNIVERSAL},
    "cpu size with relu, 21 tokens": {**SIZES["cpu"], "data.test_digits": 10},
    "cpu size, 41 tokens": {**SIZES["cpu"], "data.test_digits": 20, **UNIVERSAL},
    "Base UTransformer, 41 tokens": {**SIZES["base"], "data.test_digits": 20, **UNIVERSAL},
    "Base Transformer, 41 tokens": {**SIZES["base"], "data.test_digits": 20, **TRANSFORMER},
    "Standard UTransformer, 71 tokens": {**SIZES["standard"], "data.test_digits": 35, **UNIVERSAL},
}
EXAMPLES = {"training": "training.batch_size", "evaluation": "evaluation.examples"}  # of one unit of work
WHATS = ("training", "evaluation")
ROUNDS, TURN = 8, 0.4  # at least so many seconds a turn
MANY = 1500  # steps, over which memory is watched
COMMANDS = {
    "`lengthwise --help`": [sys.executable, "-m", "lengthwise", "--help"],
    "`import lengthwise`": [sys.executable, "-c", "import lengthwise"],
    "`import torch`, for comparison": [sys.executable, "-c", "import torch"],
}


class Contender:
    """A process that works when it is its turn."""

    def __init__(self, who: str, settings: dict[str, Any]):
        command = [huggingface_python(), ROOT / "bench" / "contender.py", who, json.dumps(settings)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.units: dict[str, int] = {}
        self.flops: dict[str, float] = {}

    def start(self, what: str, units: int | None = None) -> None:
        """Begin a turn, of about TURN seconds unless its length is given."""
        if what not in self.units:
            self._ask(what, 1)
            first = self.finish()
            self.flops[what] = first["flops"]
            self.units[what] = max(1, round(TURN / first["seconds"]))
        self._ask(what, units or self.units[what])

    def finish(self) -> dict[str, float]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[2]} ended with {self.process.wait()}")
        return json.loads(line)

    def turn(self, what: str, units: int | None = None) -> dict[str, float]:
        self.start(what, units)
        return self.finish()

    def _ask(self, what: str, units: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps([what, units]) + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


@contextmanager
def contest(names: Sequence[str], settings: dict[str, Any]) -> Iterator[list[Contender]]:
    """Contenders, one process each, which end with it."""
    running: list[Contender] = []
    try:
        for who in names:
            running.append(Contender(who, settings))
        yield running
    finally:
        for contender in running:
            contender.close()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4)}


def duel(settings: dict[str, Any], compiled: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Ours, theirs and the machine's limit in turns, for training and then for evaluation."""
    names = ["ours", "Hugging Face", *(["Hugging Face, compiled"] if compiled else [])]
    for what in WHATS:
        with contest([*names, *names[:2], "the machine"], settings) as (*contenders, limit):
            groups = contenders[: len(names)], contenders[len(names) :]
            rounds = [
                ([contender.turn(what) for contender in group], limit.turn("products"))
                for _ in range(ROUNDS // len(groups))
                for group in groups
            ]
            faster = {
                f"times faster than {name}": spread(
                    [turns[i]["seconds"] / turns[0]["seconds"] for turns, _ in rounds if i < len(turns)]
                )
                for i, name in enumerate(names)
                if i
            }
            ours = [turns[0]["seconds"] for turns, _ in rounds]
            most = [2 * SQUARE**3 / product["seconds"] for _, product in rounds]
            flops = contenders[0].flops[what]
            yield (
                what,
                {
                    **faster,
                    "share of the limit": spread(ratios([flops / s for s in ours], most)),
                    "limit, Gflop/s": round(statistics.median(most) / 1e9, 1),
                    "examples a second": round(settings[EXAMPLES[what]] / statistics.median(ours), 1),
                    "megabytes": {name: round(rounds[-len(groups)][0][i]["megabytes"]) for i, name in enumerate(names)},
                },
            )


def overheads() -> dict[str, Any]:
    """What isn't the model's arithmetic: data, checkpoints, memory, start-up; and two runs at once."""
    settings = {**MODELS["cpu size with relu, 21 tokens"], "threads": 1}
    with contest(["ours", "ours"], settings) as (one, two):
        parts = ("training", "data", "saving")
        step, drawn, saved = zip(*([one.turn(p)["seconds"] for p in parts] for _ in range(ROUNDS)), strict=True)
        alone, together = [], []
        for _ in range(ROUNDS):
            alone += [contender.turn("training")["seconds"] for contender in (one, two)]
            one.start("training")
            two.start("training")
            together += [one.finish()["seconds"], two.finish()["seconds"]]
        before = two.turn("training")["megabytes"]
        growth = two.turn("training", MANY)["megabytes"] - before
    every = TrainingConfig().checkpoint_every
    return {
        "data generation, share of a step": spread(ratios(drawn, step)),
        f"a checkpoint each {every} steps, share of training": spread(
            [(with_ - without) / (every * without) for with_, without in zip(saved, step, strict=True)]
        ),
        "two runs at once, against each alone": spread(ratios(alone, together)),
        f"megabytes more after {MANY} more steps": round(growth, 1),
        **{f"seconds of {name}": spread([timed(command) for _ in range(ROUNDS)]) for name, command in COMMANDS.items()},
    }


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def timed(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def cases(quick: bool) -> Iterator[tuple[str, str, int]]:
    """Model, position embedding, threads."""
    for model in MODELS:
        for position in POSITIONS:
            yield model, position, 1
        if (os.cpu_count() or 1) > 1 and not quick:
            yield model, "relative-key", 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="only models whose name has this text (or another)")
    parser.add_argument("--quick", action="store_true", help="without compiled models and second threads")
    parser.add_argument("--out", type=Path, help="default: results/bench.json, if nothing is left out")
    chosen = parser.parse_args()
    out = chosen.out or (None if chosen.only or chosen.quick else ROOT / "results" / "bench.json")
    rows: list[dict[str, Any]] = []
    asked = [case for case in cases(chosen.quick) if not chosen.only or any(text in case[0] for text in chosen.only)]
    rest = overheads()
    for name, value in rest.items():
        print(f"{name}: {shown(value)}", flush=True)
    for i, (model, position, threads) in enumerate(asked):
        print(f"{i + 1} of {len(asked)}: {model}, {position}", file=sys.stderr, flush=True)
        settings = {**MODELS[model], "model.position": position, "threads": threads}
        compiled = position == "relative-key" and threads == 1 and not chosen.quick
        for what, found in duel(settings, compiled):
            rows.append({"model": model, "position": position, "what": what, "threads": threads, **found})
            print(line(rows[-1]), flush=True)
        save(out, rows, rest)  # so that nothing is lost if it is stopped
    if out:
        print(f"written to {out}")


def save(out: Path | None, rows: Sequence[dict[str, Any]], rest: dict[str, Any]) -> None:
    if out:
        write_json(out, {"machine": machine.describe("cpu"), "rows": rows, "overheads": rest})


def line(row: dict[str, Any]) -> str:
    cells = [
        f"{row['model']:33} {row['position']:19} {row['what']:11} {row['threads']} thread{'s' * (row['threads'] > 1)}"
    ]
    cells += [f"{name} {shown(value)}" for name, value in row.items() if isinstance(value, dict) and "median" in value]
    return "; ".join([*cells, f"{row['examples a second']:g} examples/s"])


def shown(value: dict[str, float] | float) -> str:
    if not isinstance(value, dict):
        return f"{value:g}"
    return f"{value['median']:.3g} ({value['low']:.3g}–{value['high']:.3g})"


if __name__ == "__main__":
    main()
