"""What a script or a notebook calls: train, resume, load."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from lengthwise.base import UsageError
from lengthwise.solver import Solver
from lengthwise.training import distributed, keys, loop, machine
from lengthwise.training.display import Display
from lengthwise.training.experiment import Experiment
from lengthwise.training.runs import Run, is_run


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
    group = distributed.join(torch.device(experiment.device).type)
    with group.first_goes_first():
        run = Run.create(experiment, root, name)
        if again and group.leads:
            run.clear()
    return run


def resume(run: Run | str | Path, progress: bool = True) -> Run:
    """Train a run to its end from wherever it is."""
    run = run if isinstance(run, Run) else Run(run)
    threads = torch.get_num_threads()
    group = distributed.join(torch.device(run.experiment.device).type)
    try:
        with Display() if progress and group.leads else nullcontext() as display:
            for state in loop.train(run, group):
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
    if is_run(Path(source)):
        return Run(source).load(device)
    return Solver.from_pretrained(source, map_location=device)
