"""Experiment trackers: TensorBoard and Weights & Biases, fed from a run's own records.

A run's metrics.jsonl and result.json stay the truth. A tracker gets a copy of them, while the run
trains or afterwards, and is imported only when it is asked for. A new one is a class with the
decorator `@tracker("name")`.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, ClassVar

from lengthwise.base import UsageError, nearest
from lengthwise.training.differences import flatten
from lengthwise.training.runs import METRICS, Run


class Tracker:
    """Where copies of a run's records go."""

    package: ClassVar[str]  # that it needs

    def __init__(self, run: Run):
        """Begin a record of this run, without what an earlier session sent."""
        raise NotImplementedError

    def write(self, step: int, values: Mapping[str, float]) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


TRACKERS: dict[str, type[Tracker]] = {}


def tracker(name: str) -> Callable[[type[Tracker]], type[Tracker]]:
    """Register a tracker under a name."""

    def register(cls: type[Tracker]) -> type[Tracker]:
        TRACKERS[name] = cls
        return cls

    return register


def find_tracker(name: str | None) -> type[Tracker] | None:
    """The tracker of this name, if its package is installed; None for None."""
    if name is None:
        return None
    if name not in TRACKERS:
        raise UsageError(f"there is no tracker '{name}': {nearest(name, TRACKERS)}")
    package = TRACKERS[name].package
    if find_spec(package) is None:
        raise UsageError(
            f"the tracker '{name}' needs the package {package}: pip install 'lengthwise[{name}]'"
        )
    return TRACKERS[name]


@tracker("tensorboard")
class TensorBoard(Tracker):
    """Event files in the run's directory; `tensorboard --logdir runs` shows all runs."""

    package = "tensorboard"

    def __init__(self, run: Run):
        from torch.utils.tensorboard import SummaryWriter

        folder = run.path / "tensorboard"
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = SummaryWriter(str(folder))
        self.writer.add_text("config", f"```\n{run.experiment.to_yaml()}```")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


@tracker("wandb")
class WeightsAndBiases(Tracker):
    """A run of the project WANDB_PROJECT, or lengthwise; WANDB_MODE=offline needs no account."""

    package = "wandb"

    def __init__(self, run: Run):
        import wandb

        self.session = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "lengthwise"),
            name=run.path.name,
            id=run.identity[:16],
            resume="allow",
            config=flatten(run.experiment),
            dir=str(run.path),
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self.session.log(dict(values), step=step)

    def close(self) -> None:
        self.session.finish()


class TrackerFeed:
    """Sends a run's records to a tracker, each once, as they are written."""

    def __init__(self, run: Run, kind: type[Tracker]):
        self.run, self.kind = run, kind
        self.tracker: Tracker | None = None
        self.is_refused = False  # the tracker can't be used
        self.position = 0  # in metrics.jsonl

    def update(self) -> None:
        """Send what is new. The first time that is all that there is, of earlier sessions, too."""
        if self.tracker is None:
            self.tracker = self.start()
        by_step: dict[int, dict[str, float]] = {}
        for record in self.new_records():
            by_step.setdefault(record["step"], {}).update(scalars(record))
        for step, values in by_step.items():
            self.tracker.write(step, values)

    def start(self) -> Tracker:
        try:
            return self.kind(self.run)
        except Exception as error:  # whatever the tracker's client raises, as without an account
            self.is_refused = True
            raise UsageError(
                f"{self.kind.package} can't be used: {str(error).rstrip('.')};"
                f" `lengthwise resume {self.run.path}` goes on without it"
            ) from None

    def new_records(self) -> Iterator[dict[str, Any]]:
        path = self.run.path / METRICS
        if not path.exists() or path.stat().st_size == self.position:
            return
        with open(path, "rb") as file:
            file.seek(self.position)
            for line in file:
                if line.endswith(b"\n"):
                    self.position += len(line)
                    yield json.loads(line)

    def close(self) -> None:
        """Send the rest, and the final accuracies if the run has finished."""
        if self.is_refused:
            return
        self.update()
        assert self.tracker is not None
        if (result := self.run.result) is not None:
            final = {f"final/{a['length']} digits": a["exact_match"] for a in result["evaluation"]}
            self.tracker.write(result["steps"], final)
        self.tracker.close()


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record of metrics.jsonl, by the name that a tracker shows.

    >>> scalars({"step": 5, "loss": 2.5, "train": {"exact_match": 0.5, "digits": [1.0, 0.5]}})
    {'loss': 2.5, 'exact_match/train': 0.5}
    """
    values = {name: record[name] for name in ("loss", "learning_rate") if name in record}
    for name in ("train", "primed"):
        if name in record:
            values[f"exact_match/{name}"] = record[name]["exact_match"]
    for accuracy in record.get("evaluation", ()):
        values[f"exact_match/{accuracy['length']} digits"] = accuracy["exact_match"]
    return values


def send(run: Run, kind: type[Tracker]) -> None:
    """Send all records of a run."""
    run.metrics  # noqa: B018  # a damaged file is refused before anything is sent
    TrackerFeed(run, kind).close()
