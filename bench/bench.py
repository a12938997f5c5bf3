"""Speed against Hugging Face's BERT and ALBERT, PyTorch, and the machine's limit: `make bench`.

Every contender is two processes, because the speed of the same work differs between processes, by
how memory happens to be laid out. They take turns of a short while for several rounds, and their
order changes from round to round. The ratios within a round count, because the speed of a shared
machine changes from minute to minute. The result is written to results/bench.json.

All contenders solve the same problems with the same weights, batch sizes, threads, optimiser and
torch. Hugging Face's processes have the same memory settings as ours: glibc keeps freed memory
(`machine.keep_memory`), and garbage collection leaves out imported modules (`gc.freeze`).

One difference is Hugging Face's own: ALBERT's activation, gelu_new, is several PyTorch operations
there and one here. The rows with relu and with BERT's gelu do not have it.

Two limits of the machine are measured beside them. The share of the matmul limit is the operations
a second of our work, as PyTorch counts them for the plain encoder, against those of `torch.mm` on
large matrices. It can exceed 1 where `torch.mm` is far from what the processor can do: on a Zen 5
it reaches 0.42 of the peak. The share of the peak is against multiply-adds that don't wait for each
other, which nothing exceeds. All this needs a C compiler.
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

from lengthwise.base.files import write_json
from lengthwise.fast.door import VARIABLE
from lengthwise.training import machine
from lengthwise.training.experiment import TrainingConfig

ROOT = Path(__file__).parents[1]
CPU = {"model.preset": "cpu", "training.batch_size": 32, "evaluation.examples": 1000}
BASE = {"model.preset": "base", "training.batch_size": 32, "evaluation.examples": 64}
ALBERT = {"model.activation": "gelu-tanh"}
BERT = {
    "model.encoder": "transformer",
    "model.activation": "gelu",
    "model.scale_relative": True,
}
TOKENS_21, TOKENS_41 = {"data.test_digits": 10}, {"data.test_digits": 20}
MODELS: dict[str, dict[str, Any]] = {
    "cpu size, gelu, 21 tokens": {**CPU, **ALBERT, **TOKENS_21},
    "cpu size, gelu, 41 tokens": {**CPU, **ALBERT, **TOKENS_41},
    "cpu size, relu, 21 tokens": {**CPU, **TOKENS_21},
    "cpu size, relu, 41 tokens": {**CPU, **TOKENS_41},
    "Base UTransformer, 21 tokens": {**BASE, **ALBERT, **TOKENS_21},
    "Base UTransformer, 41 tokens": {**BASE, **ALBERT, **TOKENS_41},
    "Base Transformer, 41 tokens": {**BASE, **BERT, **TOKENS_41},
}
CASES: list[tuple[str, str]] = [
    *((model, "relative-key") for model in MODELS),
    ("cpu size, relu, 41 tokens", "absolute"),
    ("cpu size, relu, 41 tokens", "relative-key-query"),
]
EXAMPLES = {"training": "training.batch_size", "evaluation": "evaluation.examples"}  # of one unit
OURS, RIVALS = "C", ("PyTorch", "Hugging Face")
ROUNDS, TURN_SECONDS = 8, 0.4
GROWTH_STEPS = 1500  # over which memory is watched
COMMANDS = {
    "lengthwise --help": [sys.executable, "-m", "lengthwise", "--help"],
    "import lengthwise": [sys.executable, "-c", "import lengthwise"],
    "import torch": [sys.executable, "-c", "import torch"],
}


class Contender:
    """A process that works when it is its turn."""

    def __init__(self, who: str, settings: dict[str, Any]):
        script = ROOT / "bench" / "contender.py"
        command: list[str | Path] = [huggingface_python(), script, who, json.dumps(settings)]
        environment = {**os.environ, VARIABLE: "off" if who == "PyTorch" else "on"}
        self.who = who
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.units: dict[str, int] = {}
        self.facts: dict[str, dict[str, Any]] = {}

    def start(self, what: str, units: int | None = None) -> None:
        """Begin a turn, of about TURN_SECONDS unless its length is given."""
        if what not in self.units:
            self.send(what, 1)
            self.facts[what] = first = self.finish()
            self.units[what] = max(1, round(TURN_SECONDS / first["seconds"]))
        self.send(what, units or self.units[what])

    def finish(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.who} ended with {self.process.wait()}")
        return json.loads(line)

    def turn(self, what: str, units: int | None = None) -> dict[str, Any]:
        self.start(what, units)
        return self.finish()

    def send(self, what: str, units: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([what, units]) + "\n")
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
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


def compare(what: str, settings: dict[str, Any], rivals: Sequence[str]) -> dict[str, Any]:
    """Ours, the rivals and the machine's limit in turns, with two processes each."""
    names = [OURS, *rivals]
    with contest([*names, *names, "the machine"], settings) as (*contenders, limit):
        groups = contenders[: len(names)], contenders[len(names) :]
        rounds, products, peaks = [], [], []
        for number in range(ROUNDS):
            group = groups[number % 2]
            order = rotate(group, number // 2)
            turns = {contender.who: contender.turn(what) for contender in order}
            rounds.append(turns)
            products.append(2 * SQUARE**3 / limit.turn("products")["seconds"])
            second = limit.turn("peak")["seconds"] / settings["threads"]  # it has one thread
            peaks.append(limit.facts["peak"]["flops"] / second)
        facts = contenders[0].facts[what]
    seconds = {who: [turns[who]["seconds"] for turns in rounds] for who in names}
    speeds = [facts["flops"] / s for s in seconds[OURS]]
    return {
        **{
            f"times faster than {who}": spread(ratios(seconds[who], seconds[OURS]))
            for who in rivals
        },
        "share of the matmul limit": spread(ratios(speeds, products)),
        "share of the peak": spread(ratios(speeds, peaks)),
        "Gflop/s": {
            name: round(statistics.median(values) / 1e9, 1)
            for name, values in (("ours", speeds), ("torch.mm", products), ("peak", peaks))
        },
        "examples a second": {
            who: round(settings[EXAMPLES[what]] / statistics.median(seconds[who]), 1)
            for who in names
        },
        "megabytes": {who: round(rounds[-1][who]["megabytes"]) for who in names},
        "computed by": facts["computed by"],
    }


def overheads() -> dict[str, Any]:
    """What is not the model's arithmetic: data, checkpoints, memory, start-up, a second run."""
    settings = {**MODELS["cpu size, relu, 21 tokens"], "threads": 1}
    with contest([OURS, OURS], settings) as (one, two):
        parts = ("training", "data", "checkpoints")
        rounds = [{part: one.turn(part)["seconds"] for part in parts} for _ in range(ROUNDS)]
        alone, together = [], []
        for _ in range(ROUNDS):
            alone += [contender.turn("training")["seconds"] for contender in (one, two)]
            one.start("training")
            two.start("training")
            together += [one.finish()["seconds"], two.finish()["seconds"]]
        before = two.turn("training")["megabytes"]
        growth = two.turn("training", GROWTH_STEPS)["megabytes"] - before
    step, data, saved = ([turns[part] for turns in rounds] for part in parts)
    every = TrainingConfig().checkpoint_every
    extra = [with_save - plain for with_save, plain in zip(saved, step, strict=True)]
    return {
        "data generation, share of a step": spread(ratios(data, step)),
        f"a checkpoint every {every} steps, share of training": spread(
            [seconds / (every * plain) for seconds, plain in zip(extra, step, strict=True)]
        ),
        "two runs at once, speed of each against one alone": spread(ratios(alone, together)),
        f"megabytes more after {GROWTH_STEPS} steps": round(growth, 1),
        **{
            f"seconds of `{name}`": spread([time_command(command) for _ in range(ROUNDS)])
            for name, command in COMMANDS.items()
        },
    }


def rotate(items: Sequence[Contender], by: int) -> list[Contender]:
    by %= len(items)
    return [*items[by:], *items[:by]]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": round(middle, 4), "low": round(low, 4), "high": round(high, 4)}


def time_command(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def describe(value: dict[str, float] | float) -> str:
    if not isinstance(value, dict):
        return f"{value:g}"
    return f"{value['median']:.3g} ({value['low']:.3g}–{value['high']:.3g})"


def describe_row(row: dict[str, Any]) -> str:
    spreads = {k: v for k, v in row.items() if isinstance(v, dict) and "median" in v}
    cells = [f"{row['model']:30} {row['position']:19} {row['what']:11}"]
    cells += [f"{name} {describe(value)}" for name, value in spreads.items()]
    cells.append(f"{row['examples a second'][OURS]:g} examples/s")
    return "; ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", default=[], help="models whose name has this text"
    )
    parser.add_argument("--threads", type=int, default=1, help="of every contender (default: 1)")
    parser.add_argument(
        "--compiled", action="store_true", help="Hugging Face with torch.compile, too"
    )
    parser.add_argument(
        "--no-overheads", action="store_true", help="without data, checkpoints, memory, start-up"
    )
    parser.add_argument(
        "--out", type=Path, help="default: results/bench.json, if nothing is left out or changed"
    )
    chosen = parser.parse_args()
    whole = not chosen.only and not chosen.no_overheads and chosen.threads == 1
    out = chosen.out or (ROOT / "results" / "bench.json" if whole else None)
    cases = [c for c in CASES if not chosen.only or any(text in c[0] for text in chosen.only)]
    rivals = [*RIVALS, *(["Hugging Face, compiled"] if chosen.compiled else [])]
    rest = {} if chosen.no_overheads else overheads()
    for name, value in rest.items():
        print(f"{name}: {describe(value)}", flush=True)
    rows: list[dict[str, Any]] = []
    for model, position in cases:
        settings = {**MODELS[model], "model.position": position, "threads": chosen.threads}
        for what in EXAMPLES:
            row = {"model": model, "position": position, "what": what, "threads": chosen.threads}
            rows.append({**row, **compare(what, settings, rivals)})
            print(describe_row(rows[-1]), flush=True)
        if out:  # after each case, so that nothing is lost if it is stopped
            write_json(out, {"machine": machine.describe("cpu"), "rows": rows, "overheads": rest})
    if out:
        print(f"written to {out}")


if __name__ == "__main__":
    main()
