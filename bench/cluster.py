"""Engines against the local one, and two processes against one: `make bench-cluster`.

It prints ratios, each of times measured one after the other on this machine. Leave it alone
meanwhile. SLURM is measured where its commands reach one (`python tests/slurm_here.py DIR`).
`python bench/cluster.py PART ...` measures some parts only.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console

from lengthwise.fast import use_pytorch
from lengthwise.sweep import Engine, build_engine, run_all
from lengthwise.sweep.ray import OWN_CLUSTER
from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.loop import train
from lengthwise.training.runs import Run
from lengthwise.training.seeds import train_seeds

SHORT = {"model.preset": "tiny", "training.steps": 20, "evaluation.final_examples": 50}
LONG = {"model.preset": "cpu", "training.steps": 400, "evaluation.final_examples": 50}
BASE: dict[str, Any] = {
    "model.preset": "base",
    "training.batch_size": 32,
    "evaluation.final_examples": 50,
}
SEEDS: dict[str, Any] = {
    "model.preset": "tiny",
    "training.steps": 200,
    "evaluation.examples": 1,
    "evaluation.final_examples": 1,
}
SEED_COUNT = 8
BASE_STEPS = 60, 10  # of the run, and of the start that is left out
RUNS = 16


def sweep_seconds(engine: Engine, settings: dict[str, Any], count: int) -> float:
    """How long a sweep takes once its workers have started, which the first runs do."""
    display = Display(console=Console(file=open(os.devnull, "w")))  # noqa: SIM115
    with tempfile.TemporaryDirectory() as folder:
        runs = create(settings, range(count), Path(folder))
        warm_up = create(SHORT, range(count, count + 2), Path(folder))
        started = 0.0
        for number, (_, reason) in enumerate(run_all([*warm_up, *runs], engine, display), 1):
            assert reason is None, reason
            if number == len(warm_up):
                started = time.monotonic()
        return time.monotonic() - started


def create(settings: dict[str, Any], seeds: Sequence[int], root: Path) -> list[Run]:
    return [Run.create(keys.load(None, {**settings, "seed": seed}), root) for seed in seeds]


def two_nodes_seconds(settings: dict[str, Any], count: int) -> float:
    """The same on a Ray cluster of two nodes of one core."""
    from ray.cluster_utils import Cluster

    os.environ |= OWN_CLUSTER
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    try:
        engine = build_engine("ray", None, {"ray": {"address": cluster.address}})
        return sweep_seconds(engine, settings, count)
    finally:
        cluster.shutdown()


def examples_per_second(processes: int) -> float:
    """The speed of one run at Base on some processes of one thread, between two of its records."""
    steps, first = BASE_STEPS
    words = [f"--{key}={value}" for key, value in BASE.items()]
    words += [f"--training.steps={steps}", f"--training.log_every={first}", "--name", "run"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        command = [*torchrun, "--master-port", port, "-m", "lengthwise", "train", *words]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
        times: list[float] = []
        metrics = Path(folder) / "runs" / "run" / "metrics.jsonl"
        while process.poll() is None and len(times) < steps // first:
            time.sleep(0.01)
            lines = metrics.read_text().count('"learning_rate"') if metrics.exists() else 0
            times += [time.monotonic()] * (lines - len(times))
        process.wait()
    return (steps - first) * BASE["training.batch_size"] / (times[-1] - times[0])


def seeds_seconds(together: bool, plain: bool = False) -> float:
    """CPU time of several seeds, of one thread: as one batched model, or one after the other."""
    with tempfile.TemporaryDirectory() as folder, use_pytorch() if plain else nullcontext():
        runs = create(SEEDS, range(SEED_COUNT), Path(folder))
        steps = train_seeds(runs, {}) if together else chain.from_iterable(map(train, runs))
        started = time.process_time()
        for _ in steps:
            pass
        return time.process_time() - started


def measure_engines() -> None:
    local = sweep_seconds(build_engine("local", 2), SHORT, RUNS)
    print(f"local: {1000 * local / RUNS:.0f} ms for a run of {SHORT['training.steps']} steps")
    for name in ["ray", *(["slurm"] if is_slurm_here() else [])]:
        other = sweep_seconds(build_engine(name, 2), SHORT, RUNS)
        print(f"{name}: {1000 * other / RUNS:.0f} ms, {other / local:.2f} of local")


def is_slurm_here() -> bool:
    return shutil.which("sinfo") is not None and subprocess.run(["sinfo"]).returncode == 0


def measure_nodes() -> None:
    one_machine = sweep_seconds(build_engine("local", 2), LONG, 8)
    two_nodes = two_nodes_seconds(LONG, 8)
    print(f"one machine of two cores: {one_machine:.1f} s; two Ray nodes of one: {two_nodes:.1f} s")
    print(f"two Ray nodes of one core against one machine of two: {one_machine / two_nodes:.2f}")


def measure_processes() -> None:
    two, one = examples_per_second(2), examples_per_second(1)
    print(f"Base: {one:.1f} examples a second by one process, {two:.1f} by two: {two / one:.2f}")


def measure_seeds() -> None:
    seconds = {
        "one batched model": seeds_seconds(together=True),
        "one after the other, by PyTorch": seeds_seconds(together=False, plain=True),
        "one after the other, in C": seeds_seconds(together=False),
    }
    for name, value in seconds.items():
        print(
            f"{SEED_COUNT} seeds of {SEEDS['training.steps']} steps, {name}: {value:.1f} s of CPU"
        )


PARTS = {
    "engines": measure_engines,
    "nodes": measure_nodes,
    "processes": measure_processes,
    "seeds": measure_seeds,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()
