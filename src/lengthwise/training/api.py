"""What a script or a notebook calls: train, resume, load."""

import sys
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from lengthwise.base import UsageError
from lengthwise.base.errors import NOT_IMPORTED
from lengthwise.solver import Solver
from lengthwise.training import keys, loop, machine
from lengthwise.training.display import Display
from lengthwise.training.experiment import CONFIG, Experiment
from lengthwise.training.files import load_tensors
from lengthwise.training.runs import Run


def train(
    config: Experiment | Mapping[str, Any] | str | Path,
    root: str | Path = "runs",
    name: str | None = None,
    again: bool = False,
    progress: bool = True,
) -> Run:
    """Train an experiment, or go on with it; a finished one is trained again only if asked.

    `config` is an Experiment, a mapping such as {"task": "addition", "model": {"width": 64}}, or a
    YAML file.
    """
    if isinstance(config, str | Path):
        config = keys.load(config)
    elif not isinstance(config, Experiment):
        config = keys.parse(config)
    return resume(create_run(config, root, name, again), progress)


def create_run(experiment: Experiment, root: str | Path, name: str | None, again: bool) -> Run:
    """The experiment's run, after all checks that need no directory."""
    machine.check(experiment.device, experiment.threads)
    longest = experiment.build().encoder.position(0).longest
    length = experiment.training_layout().length
    if longest and length > longest:
        raise UsageError(
            f"training problems have up to {length} tokens with layout.extra_padding,"
            f" but the position embedding takes {longest}"
        )
    if experiment.start_from:
        loop.find_origin(experiment)
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
            for state in loop.train(run):
                if display:
                    display.show(state)
    finally:
        torch.set_num_threads(threads)
    return run


def load(source: str | Path, device: str = "cpu") -> Solver:
    """A trained model from a run, a directory of `save_pretrained`, or a repository on the Hub."""
    if not isinstance(source, str | Path) or not str(source):
        raise UsageError(f"a model is loaded from a path or a Hub id, not from {source!r}")
    machine.find_device(device)
    path = Path(source)
    if (path / CONFIG).is_file():
        return Run(path).load(device)
    # A Hub id is user/name, and no such directory exists.
    is_local = path.exists() or path.is_absolute() or path.parent.exists()
    if is_local or len(path.parts) != 2:
        if not (path / "config.json").is_file():
            raise UsageError(
                f"there is no run and no saved model at {path}; `lengthwise runs` lists the runs"
            )
        for needed in ("config.json", "model.safetensors"):
            if not (path / needed).is_file():
                raise UsageError(f"{path} has no {needed}")
        load_tensors(path / "model.safetensors")  # verifies the checksum
    try:
        with redirect_stdout(sys.stderr):  # the Hub's client prints its progress
            solver: Solver = Solver.from_pretrained(str(source), map_location=device)
    except Exception as error:  # from the Hub's client or a damaged file
        reason = str(error).strip().partition("\n")[0]
        files = f"{path / 'model.safetensors'} or its config.json"
        damaged = f"{files} is damaged, or of {NOT_IMPORTED}"
        where = damaged if path.exists() else "not on the Hub, or the Hub is out of reach"
        raise UsageError(f"can't load '{source}', {where}: {reason}") from None
    return solver.to(device).eval()
