"""A sweep: many experiments are trained, and compared."""

import hashlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.sweep.engine import Engine, build_engine
from lengthwise.sweep.inline import Inline
from lengthwise.sweep.schedule import run_all

if TYPE_CHECKING:
    from lengthwise.training.comparison import Comparison
    from lengthwise.training.display import Display
    from lengthwise.training.experiment import Experiment
    from lengthwise.training.runs import Run

SECONDS_BETWEEN_LOOKS = 1.0  # at runs that another process trains


def sweep(
    experiments: "Iterable[Experiment | Mapping[str, Any]] | Mapping[str, Any]" = (),
    grid: Mapping[str, Sequence[Any]] | None = None,
    root: str | Path = "runs",
    jobs: int | None = None,
    on: str | Engine = "local",
    retry: bool = False,
    progress: bool = True,
    batch_seeds: int = 1,
    log: str | None = None,
) -> "Comparison":
    """Train experiments, `jobs` at a time, and compare them; finished ones are not trained again.

    `experiments` is a list, or one mapping of keys for all of `grid`, which has a list of values
    for each of its keys: sweep({"training.steps": 500}, {"model.position": ["rope", "alibi"]}).
    `on` is an engine or its name. `retry` trains runs that failed again. `batch_seeds` trains up to
    this many seeds of an experiment as one batched model, for a GPU. `log` sends each run that has
    ended to a tracker: "tensorboard" or "wandb".
    """
    from lengthwise.base import UsageError
    from lengthwise.training.grid import change, expand, read_axis

    if isinstance(experiments, Mapping) or grid is not None:
        if not isinstance(experiments, Mapping) and experiments != ():
            raise UsageError("a grid goes with one mapping of keys, not with a list of experiments")
        axes = {key: read_axis(key, values) for key, values in (grid or {}).items()}
        chosen = expand(dict(experiments), axes)
    elif not isinstance(experiments, Iterable):
        raise UsageError(f"a sweep is of a list of experiments, not of {experiments!r}")
    else:
        chosen = [change(experiment, {}) for experiment in experiments]
    engine = on if isinstance(on, Engine) else build_engine(on, jobs, None, batch_seeds)
    return run_sweep(chosen, Path(root), engine, retry, progress, log)


def run_sweep(
    experiments: "Sequence[Experiment]",
    root: Path,
    engine: Engine,
    retry: bool = False,
    progress: bool = True,
    log: str | None = None,
) -> "Comparison":
    """Train what is not finished, and compare all; `log` is a tracker to send finished runs to."""
    from lengthwise.training.comparison import Comparison
    from lengthwise.training.display import Display
    from lengthwise.training.trackers import find_tracker, send

    tracker = find_tracker(log)  # before a run is made
    runs = create_runs(experiments, root, engine)
    engine = share_code(runs, engine)
    todo, reasons = split_failed(runs, retry)
    labels = {
        Path(record["run"]).name: f"{record['label']}, seed {record['seed']}"
        for record in Comparison(runs).records
    }
    with Display(labels, quiet=not progress) as display:
        for run, reason in train_all(todo, engine, display):
            if reason:
                reasons[run.path] = reason
            elif tracker:
                send(run, tracker)
    return Comparison(runs, reasons)


def create_runs(experiments: "Sequence[Experiment]", root: Path, engine: Engine) -> "list[Run]":
    """A run for each experiment; all are checked before the first is made."""
    from lengthwise.base import UsageError
    from lengthwise.training import api
    from lengthwise.training.runs import Run

    if not experiments:
        raise UsageError("a sweep needs at least one experiment")
    known = set()
    for experiment in experiments:
        api.check(experiment, here=engine.here)
        if (identity := experiment.identity()) in known:
            raise UsageError(f"the sweep has the same experiment twice: {experiment}")
        known.add(identity)
    return [Run.create(experiment, root) for experiment in experiments]


def share_code(runs: "Sequence[Run]", engine: Engine) -> Engine:
    """Let workers import the user's own classes; those of a notebook stay in this process."""
    from lengthwise.base import UsageError
    from lengthwise.base.extensions import share_files
    from lengthwise.training.own_code import code_files

    files = {label: file for run in runs for label, file in code_files(run.experiment).items()}
    share_files(file for file in files.values() if file)
    label = next((label for label, file in files.items() if file is None), None)
    if label is None or isinstance(engine, Inline):
        return engine
    why = f"the {label} is defined in a notebook, where no other process can import it"
    if not engine.here:
        raise UsageError(f"{why}; write it to a file, and import that in the notebook")
    print(f"{why}: this process trains one run after another", file=sys.stderr)
    return Inline(batch_seeds=engine.batch_seeds)


def split_failed(runs: "Sequence[Run]", retry: bool) -> "tuple[list[Run], dict[Path, str]]":
    """The runs to train, and the reasons of those that failed before and would fail again."""
    failed = [run for run in runs if run.status == "failed"]
    if retry:
        for run in failed:
            run.clear()
        return list(runs), {}
    again = "; --retry trains it again"
    reasons = {run.path: run.read_json("failure.json")["reason"] + again for run in failed}
    return [run for run in runs if run.path not in reasons], reasons


def train_all(
    runs: "Sequence[Run]", engine: Engine, display: "Display"
) -> "Iterator[tuple[Run, str | None]]":
    """Yield each run as it ends. A run that another process trains is waited for."""
    waiting, has_told = list(runs), False
    while waiting:
        free = [run for run in waiting if run.status != "running"]
        for run, reason in run_all(free, engine, display):
            if reason is None or run.status != "running":
                waiting.remove(run)
                yield run, reason
        if waiting and not free:
            if not has_told:
                print(f"waiting for {len(waiting)} runs of another process", file=sys.stderr)
                has_told = True
            time.sleep(SECONDS_BETWEEN_LOOKS)


def default_name(runs: "Iterable[Run]") -> str:
    """A name for the files of a sweep that no sweep of other runs has."""
    text = ",".join(sorted(run.identity for run in runs))
    return f"sweep-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
