"""What a script or a notebook calls: train, resume, extend, load, evaluate."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from lengthwise.base import UsageError
from lengthwise.evaluation import accuracy
from lengthwise.evaluation.accuracy import Accuracy
from lengthwise.problems.sampling import Sampling
from lengthwise.solver import Solver
from lengthwise.training import distributed, keys, loop, machine, memory, origin
from lengthwise.training.display import Display
from lengthwise.training.experiment import Experiment
from lengthwise.training.runs import Run, is_run
from lengthwise.training.trackers import TrackerFeed, find_tracker


def train(
    config: Experiment | Mapping[str, Any] | str | Path,
    root: str | Path = "runs",
    name: str | None = None,
    again: bool = False,
    progress: bool = True,
    log: str | None = None,
) -> Run:
    """Train an experiment, or go on with it; a finished one is trained again only if asked.

    `config` is an Experiment, a mapping such as {"task": "addition", "model": {"width": 64}}, or a
    YAML file. `log` sends the records to a tracker, too: "tensorboard" or "wandb".
    """
    find_tracker(log)  # before a run is made
    return resume(create_run(read_experiment(config), root, name, again), progress, log)


def read_experiment(config: Experiment | Mapping[str, Any] | str | Path) -> Experiment:
    """An experiment as such, as a mapping of keys, or from a YAML file."""
    if isinstance(config, Experiment):
        return config
    return keys.load(config) if isinstance(config, str | Path) else keys.parse(config)


def create_run(experiment: Experiment, root: str | Path, name: str | None, again: bool) -> Run:
    """The experiment's run, after all checks that need no directory."""
    check(experiment)
    group = distributed.join(torch.device(experiment.device).type)
    with group.first_goes_first():
        run = Run.create(experiment, root, name)
        if again and group.leads:
            run.clear()
    return run


def check(experiment: Experiment, here: bool = True) -> None:
    """Raise a UsageError if an experiment can't be trained; `here` asks this machine, too."""
    if here:
        machine.check(experiment.device, experiment.threads)
        memory.check_training(experiment)
    longest = experiment.build().encoder.position(0).longest
    length = experiment.training_layout().length
    if longest and length > longest:
        padding = " with layout.extra_padding" if experiment.extra_padding else ""
        raise UsageError(
            f"training problems have up to {length} tokens{padding}, but the position embedding"
            f" takes {longest}"
        )
    if experiment.start_from:
        origin.load_origin(experiment)
    if experiment.start_optimizer:
        origin.load_optimizer(experiment)


def resume(run: Run | str | Path, progress: bool = True, log: str | None = None) -> Run:
    """Train a run to its end from wherever it is; a finished one is left as it is."""
    run = run if isinstance(run, Run) else Run(run)
    if run.result is not None:
        run.manifest.verify()
        run.tidy()
        if progress:
            print(f"{run.path} has finished already", file=sys.stderr)
        return run
    threads = torch.get_num_threads()
    group = distributed.join(torch.device(run.experiment.device).type)
    tracker = find_tracker(log)
    feed = TrackerFeed(run, tracker) if tracker and group.leads else None
    try:
        with Display(quiet=not (progress and group.leads)) as display:
            for state in loop.train(run, group):
                display.show(state)
                if feed:
                    feed.update()
    finally:
        torch.set_num_threads(threads)
        if feed:
            feed.close()
    return run


def extend(
    run: Run | str | Path,
    steps: int,
    changes: Mapping[str, Any] | None = None,
    fresh_optimizer: bool = False,
    root: str | Path = "runs",
    name: str | None = None,
    progress: bool = True,
    log: str | None = None,
) -> Run:
    """Train a finished run for more steps, as a new run that goes on with its optimiser.

    The new run has the configuration of the old one, with these `changes` of keys. Its learning
    rate rises and falls anew, and its batches are others.
    """
    find_tracker(log)  # before a run is made
    experiment = extension(Run(run), steps, changes or {}, fresh_optimizer)
    return resume(create_run(experiment, root, name, again=False), progress, log)


def extension(
    run: Run, steps: int, changes: Mapping[str, Any], fresh_optimizer: bool
) -> Experiment:
    """The experiment that goes on with a run for some steps more."""
    before = run.experiment.model_dump(mode="json", exclude_defaults=True)
    for budget in ("steps", "epochs", "examples"):
        before.get("training", {}).pop(budget, None)
    start = {"start_from": str(run.path), "start_optimizer": not fresh_optimizer}
    return keys.parse(keys.nest(before, {"training.steps": steps, **start, **changes}))


def load(source: Run | str | Path, device: str = "cpu", step: int | None = None) -> Solver:
    """A trained model from a run, a directory of `save_pretrained`, or a repository on the Hub.

    `step` loads the weights of a run at that step (training.keep_checkpoints).
    """
    if not isinstance(source, str | os.PathLike) or not str(source):
        raise UsageError(f"a model is loaded from a path or a Hub id, not from {source!r}")
    machine.find_device(device)
    if is_run(Path(source)):
        return Run(source).load(device, step)
    if step is not None:
        raise UsageError(f"{source} is not a run, and only a run has weights by step")
    return Solver.from_pretrained(os.fspath(source), map_location=device)


def evaluate(
    model: Solver | Run | str | Path,
    lengths: str | Sequence[int] | None = None,
    examples: int = 1000,
    seed: int = 0,
    occasion: int = 0,
    sampling: Sampling = "exact",
    layers: int | None = None,
    sharpness: float = 1.0,
    progress: bool = False,
    step: int | None = None,
) -> list[Accuracy]:
    """Accuracy on fresh problems of each length; by default of all that the layout has room for.

    The model may be given as a run or a path. `step` tests a run's weights at that step. `layers`
    applies shared layers that often, `sharpness` multiplies the attention scores. With `progress`,
    a terminal shows a bar.
    """
    if isinstance(model, Run | str | Path):
        model = load(model, step=step)
    elif step is not None:
        raise UsageError("a step is one of a run, and not of a model")
    return accuracy.evaluate(
        model, lengths, examples, seed, occasion, sampling, layers, sharpness, progress
    )
