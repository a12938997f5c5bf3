"""The run directory: every file is written whole, and the directory is locked while in use.

runs/addition-relative-key-1f2e3d4c/
    config.yaml               the whole configuration
    identity                  a hash of what matters in it
    environment.json          versions, commit and machine of every session
    metrics.jsonl             a line for each record of the loss and for each evaluation
    checkpoint.safetensors    all that is needed to go on; removed when the run has finished
    model.safetensors         the trained weights, with config.json for `Solver.from_pretrained`
    result.json               the final evaluation; its presence says that the run has finished
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from lengthwise.base import UsageError
from lengthwise.base.errors import NOT_IMPORTED
from lengthwise.evaluation.accuracy import Accuracy
from lengthwise.solver import Solver
from lengthwise.training import keys
from lengthwise.training.experiment import CONFIG, IDENTITY, Experiment, read_identity
from lengthwise.training.files import (
    load_tensors,
    read_json,
    restore,
    save_tensors,
    to_line,
    write_atomically,
    write_json,
    writing,
)

Status = Literal["finished", "running", "interrupted", "failed"]
NAME = re.compile(r"\w[\w.+=,-]{0,199}")
# All that training writes into a run's directory, the sign of having finished first.
WRITTEN = (
    "result.json",
    "failure.json",
    "checkpoint.safetensors",
    "model.safetensors",
    "config.json",
    "metrics.jsonl",
    "environment.json",
    "record.json",
)


class InUse(UsageError):
    """Another process holds the run."""


class Run:
    """One run's directory."""

    def __init__(self, path: Path | str):
        if not isinstance(path, str | Path):
            raise UsageError(f"a run is the path of its directory, not {path!r}")
        self.path = Path(path)
        if not (self.path / CONFIG).is_file():
            raise UsageError(
                f"there is no run at {self.path} (it has no {CONFIG}); `lengthwise runs` lists runs"
            )
        try:
            if not (self.path / CONFIG).stat().st_size:
                raise UsageError("it is empty")
            self.experiment = keys.load(self.path / CONFIG)
            self.identity = read_identity(self.path)  # as it was when the run was made
            if not self.experiment.start_from and self.experiment.identity() != self.identity:
                raise UsageError("it isn't the experiment of the file identity beside it")
        except UsageError as error:
            damaged = f"{self.path / CONFIG} is damaged, of another version, or of {NOT_IMPORTED}"
            raise UsageError(f"{damaged}: {error}") from None
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.weights = self.path / "model.safetensors"

    @classmethod
    def create(
        cls, experiment: Experiment, root: Path | str = "runs", name: str | None = None
    ) -> "Run":
        """The experiment's run: the existing one, or a new one."""
        if not isinstance(root, str | Path):
            raise UsageError(f"runs are in a directory, not in {root!r}")
        if name is not None and not is_name(name):
            raise UsageError(
                f"--name is {name!r}, but a name has up to 200 letters, digits and . _ + = , -"
            )
        identity = experiment.identity()
        path = Path(root) / (name or experiment.name())
        if experiment.start_from:  # an absolute path lets the run be resumed from anywhere
            absolute = str(Path(experiment.start_from).resolve())
            experiment = experiment.model_copy(update={"start_from": absolute})
        if not (path / CONFIG).exists() or cls(path).untouched(identity):
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
            write_atomically(path / IDENTITY, f"{identity}\n".encode())
            write_atomically(path / CONFIG, experiment.to_yaml().encode())
        run = cls(path)
        if run.identity != identity:
            raise UsageError(f"{path} holds another experiment; choose another --name")
        run.experiment = experiment  # the same but for the device and the threads
        return run

    def untouched(self, identity: str) -> bool:
        """Whether this is another experiment's run that failed before its start."""
        made = any((self.path / name).exists() for name in WRITTEN)
        return self.identity != identity and not made and self.status != "running"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, so that no other process can; the system releases it with the process."""
        with writing(self.path / "lock"):
            lock = open(self.path / "lock", "a+")  # noqa: SIM115  # closed below
        with lock:
            for attempt in range(5):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == 4:
                        raise InUse(f"{self.path} is in use by another process") from None
                    time.sleep(0.1)  # another process may only be asking for the status
            self.lock = os.fstat(lock.fileno()).st_ino
            self.check_held()
            yield

    def check_held(self) -> None:
        """The directory may have been deleted meanwhile, and another run made in its place."""
        lock = self.path / "lock"
        same_lock = lock.exists() and lock.stat().st_ino == self.lock
        if not same_lock or read_identity(self.path) != self.identity:
            raise UsageError(f"{self.path} was deleted or replaced by another process")

    @property
    def status(self) -> Status:
        if self.result is not None:
            return "finished"
        if (lock := self.path / "lock").is_file():
            with open(lock) as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return "running"
        return "failed" if (self.path / "failure.json").exists() else "interrupted"

    @property
    def result(self) -> dict[str, Any] | None:
        path = self.path / "result.json"
        if not path.exists():
            return None
        result = read_json(path)
        try:
            for accuracy in result["evaluation"]:
                Accuracy.from_json(accuracy)
        except (TypeError, KeyError) as error:
            raise UsageError(f"{path} is damaged: it has no evaluation ({error})") from None
        return result

    def metrics(self) -> list[dict[str, Any]]:
        """The records so far, without a last line that is still being written."""
        path = self.path / "metrics.jsonl"
        try:
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
            records = [json.loads(line) for line in lines if line.endswith("\n")]
            assert all(isinstance(record["step"], int) for record in records), "a step is no number"
            for record in records:
                for accuracy in record.get("evaluation", ()):
                    Accuracy.from_json(accuracy)
        except (OSError, ValueError, TypeError, KeyError, AssertionError) as error:
            raise UsageError(f"{path} is damaged: {error}") from None
        return records

    def evaluations(self) -> list[dict[str, Any]]:
        return [record for record in self.metrics() if "evaluation" in record]

    def last_accuracy(self) -> dict[int, float]:
        """Exact match by length in the last evaluation."""
        evaluations = self.evaluations()
        last = evaluations[-1]["evaluation"] if evaluations else []
        return {a["length"]: a["exact_match"] for a in last}

    def open_metrics(self, step: int, size: int) -> IO[str]:
        """metrics.jsonl, open for appending, without records behind this step; `size` checks it."""
        records = [record for record in self.metrics() if record["step"] <= step]
        kept = "".join(to_line(record) for record in records).encode()
        path = self.path / "metrics.jsonl"
        if len(kept) != size:
            raise UsageError(
                f"{path} is damaged: it has {len(kept)} bytes up to step {step} instead of {size}"
            )
        write_atomically(path, kept)
        return open(path, "a")

    def record_session(self, environment: Mapping[str, Any], step: int) -> None:
        """Add the machine that goes on with the run at this step to environment.json."""
        path = self.path / "environment.json"
        before = read_json(path) if path.exists() else {"sessions": []}
        if not isinstance(before, dict) or not isinstance(before.get("sessions"), list):
            raise UsageError(f"{path} is damaged: it has no list of sessions")
        now = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "step": step, **environment}
        sessions = [*before["sessions"], now]
        write_json(path, {"sessions": sessions})

    def finish(self, solver: Solver, result: Mapping[str, Any]) -> None:
        """Keep the weights and the result; the checkpoint has served its purpose."""
        self.check_held()
        save_tensors(self.weights, solver.state_dict(), {})
        parts = self.experiment.model_dump(mode="json", include={"task", "layout", "model"})
        digits = {"digits": self.experiment.data.test_digits}
        write_json(self.path / "config.json", {**digits, **parts})
        write_json(self.path / "result.json", result)
        self.checkpoint.unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget all that the run has done, to train it again."""
        with self.locked():
            for name in WRITTEN:
                with writing(self.path / name):
                    (self.path / name).unlink(missing_ok=True)

    def forget_failure(self) -> None:
        (self.path / "failure.json").unlink(missing_ok=True)

    def fail(self, reason: str, step: int) -> None:
        self.check_held()
        write_json(self.path / "failure.json", {"step": step, "reason": reason})

    def load(self, device: str = "cpu") -> Solver:
        """The model: its final weights, or those of the last checkpoint."""
        solver = self.experiment.build()
        if self.weights.exists():
            tensors, _ = load_tensors(self.weights)
        elif self.checkpoint.exists():
            tensors, _ = load_tensors(self.checkpoint)
            prefix = "model."
            own = {name: t for name, t in tensors.items() if name.startswith(prefix)}
            tensors = {name.removeprefix(prefix): tensor for name, tensor in own.items()}
        else:
            again = "" if self.result is None else "; `lengthwise train … --again` trains it again"
            files = f"neither {self.weights.name} nor {self.checkpoint.name}"
            raise UsageError(f"{self.path} has no weights: {files}{again}")
        source = self.weights if self.weights.exists() else self.checkpoint
        restore(solver.state_dict(), tensors, source)
        return solver.to(device).eval()


def overview(root: Path) -> list[dict[str, Any]]:
    """All runs in a directory, with status and accuracy; unreadable ones are listed as damaged."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is not a directory of runs")
    rows = []
    for path in sorted(root.iterdir()) if root.exists() else ():
        row: dict[str, Any] = {"run": str(path), "step": 0, "steps": 0}
        row |= {"accuracy": {}, "headline": {}}
        try:
            if not (path / CONFIG).exists():
                continue
            run = Run(path)
            records, result = run.metrics(), run.result
            step = records[-1]["step"] if records else 0
            row |= {"status": run.status, "step": step, "steps": run.experiment.steps}
            tested = {a["length"]: a["exact_match"] for a in (result or {}).get("evaluation", [])}
            accuracy = row["accuracy"] = tested or run.last_accuracy()
            lengths = run.experiment.lengths
            row["headline"] = {n: accuracy[n] for n in lengths if n in accuracy}
        except (UsageError, OSError) as error:
            row |= {"status": "damaged", "reason": str(error)}
        rows.append(row)
    return rows


def is_name(name: object) -> bool:
    return isinstance(name, str) and bool(NAME.fullmatch(name)) and len(name.encode()) <= 200
