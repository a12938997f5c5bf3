"""What a script or a notebook calls: train, load, evaluate."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from lengthwise import experiment as configuration
from lengthwise import machine
from lengthwise.display import Display
from lengthwise.errors import NOT_IMPORTED, UsageError
from lengthwise.evaluation import evaluate
from lengthwise.experiment import CONFIG, Experiment
from lengthwise.runs import Run, load_tensors
from lengthwise.solver import Solver
from lengthwise.training import origin_of, training_layout
from lengthwise.training import train as steps

__all__ = ["Experiment", "UsageError", "evaluate", "load", "resume", "train"]


def train(
    config: Experiment | Mapping[str, Any] | str | Path,
    root: str | Path = "runs",
    name: str | None = None,
    again: bool = False,
    progress: bool = True,
) -> Run:
    """Train an experiment, or go on with it; a finished one isn't trained again unless asked.

    `config` is an Experiment, a mapping such as {"task": "addition", "model": {"width": 64}}, or a YAML file.
    """
    if isinstance(config, str | Path):
        config = configuration.load(config)
    elif not isinstance(config, Experiment):
        config = configuration.parse(config)
    return resume(make_run(config, root, name, again), progress)


def make_run(experiment: Experiment, root: str | Path, name: str | None, again: bool) -> Run:
    """The experiment's run, after what can be checked before there is a directory."""
    machine.check(experiment.device, experiment.threads)
    with torch.device("meta"):  # without memory for it
        longest = experiment.build().encoder.position(0).longest
    if longest and (length := training_layout(experiment).length) > longest:
        padded = " with data.padding" if experiment.data.padding else ""
        raise UsageError(f"training problems have up to {length} tokens{padded}, but the embedding takes {longest}")
    if experiment.start_from:
        origin_of(experiment)
    run = Run.create(experiment, root, name)
    if again:
        run.clear()
    return run


def resume(run: Run | str | Path, progress: bool = True) -> Run:
    """Train a run to its end from wherever it is."""
    run = run if isinstance(run, Run) else Run(run)
    threads = torch.get_num_threads()
    try:
        with Display() if progress else nullcontext() as display:
            for state in steps(run):
                if display:
                    display.show(state)
    finally:
        torch.set_num_threads(threads)
    return run


def load(source: str | Path, device: str = "cpu") -> Solver:
    """A trained model, from a run's directory, a directory of `save_pretrained`, or a repository on the Hub."""
    if not isinstance(source, str | Path) or not str(source):
        raise UsageError(f"a model is loaded from a path or a Hub id, not from {source!r}")
    machine.find_device(device)
    path = Path(source)
    if (path / CONFIG).is_file():
        return Run(path).load(device)
    # A Hub id is user/name, with no such directory here.
    if path.exists() or path.is_absolute() or path.parent.exists() or len(path.parts) != 2:
        if not (path / "config.json").is_file():
            raise UsageError(f"there is no run and no saved model at {path}; `lengthwise runs` lists the runs")
        for needed in ("config.json", "model.safetensors"):
            if not (path / needed).is_file():
                raise UsageError(f"{path} has no {needed}")
        load_tensors(path / "model.safetensors")  # which checks them
    try:
        with redirect_stdout(sys.stderr):  # where the Hub's client tells what it does
            solver: Solver = Solver.from_pretrained(str(source), map_location=device)
    except Exception as error:  # whatever the Hub's client or a damaged file makes of it
        reason = str(error).strip().partition("\n")[0]
        damaged = f"{path / 'model.safetensors'} or its config.json is damaged, or of {NOT_IMPORTED}"
        place = damaged if path.exists() else "not on the Hub, or the Hub is out of reach"
        raise UsageError(f"can't load '{source}', {place}: {reason}") from None
    return solver.to(device).eval()
