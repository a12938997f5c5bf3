"""The run directory: config, environment, metrics, checkpoint, weights, result. Atomic, and locked while in use.

runs/addition-relative-key-1f2e3d4c/
    config.yaml               the whole configuration, and identity: a hash of what of it matters
    environment.json          versions, commit and machine of every session
    metrics.jsonl             a line for each record of the loss and for each evaluation
    checkpoint.safetensors    all that is needed to go on; removed when the run has finished
    model.safetensors         the trained weights, and config.json: what `Solver.from_pretrained` reads
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
from zlib import crc32

import safetensors.torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lengthwise import experiment as configuration
from lengthwise.errors import NOT_IMPORTED, UsageError
from lengthwise.evaluation import Accuracy
from lengthwise.experiment import CONFIG, IDENTITY, Experiment, identity_of
from lengthwise.solver import Solver

Status = Literal["finished", "running", "interrupted", "failed"]
NAME = re.compile(r"\w[\w.+=,-]{0,199}")
# All that training writes into a run's directory, the sign of having finished first.
MADE = (
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
            raise UsageError(f"there is no run at {self.path} (it has no {CONFIG}); `lengthwise runs` lists the runs")
        try:
            if not (self.path / CONFIG).stat().st_size:
                raise UsageError("it is empty")
            self.experiment = configuration.load(self.path / CONFIG)
            self.identity = identity_of(self.path)  # as it was when the run was made
            if not self.experiment.start_from and self.experiment.identity() != self.identity:
                raise UsageError("it isn't the experiment of the file identity beside it")
        except UsageError as error:
            damaged = f"{self.path / CONFIG} is damaged, of another version, or of {NOT_IMPORTED}"
            raise UsageError(f"{damaged}: {error}") from None
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.weights = self.path / "model.safetensors"

    @classmethod
    def create(cls, experiment: Experiment, root: Path | str = "runs", name: str | None = None) -> "Run":
        """The experiment's run: the one that there is, or a new one."""
        if not isinstance(root, str | Path):
            raise UsageError(f"runs are in a directory, not in {root!r}")
        if name is not None and (not isinstance(name, str) or not NAME.fullmatch(name) or len(name.encode()) > 200):
            raise UsageError(
                f"--name is {name!r}, but a run's name is made of up to 200 letters, digits and . _ + = , -"
            )
        identity = experiment.identity()
        path = Path(root) / (name or experiment.name())
        if experiment.start_from:  # so that the run can be gone on with from anywhere
            experiment = experiment.model_copy(update={"start_from": str(Path(experiment.start_from).resolve())})
        if not (path / CONFIG).exists() or cls(path).untouched(identity):
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
            write_atomically(path / IDENTITY, f"{identity}\n".encode())
            write_atomically(path / CONFIG, experiment.to_yaml().encode())
        run = cls(path)
        if run.identity != identity:
            raise UsageError(f"{path} holds another experiment; give this one another --name")
        run.experiment = experiment  # the same but for device and threads
        return run

    def untouched(self, identity: str) -> bool:
        """Whether this is the run of another experiment for which nothing was done, as it failed before its start."""
        made = any((self.path / name).exists() for name in MADE)
        return self.identity != identity and not made and self.status != "running"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run; no other process can. The system lets go of it when the process ends, however it ends."""
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
                    time.sleep(0.1)  # somebody may only be looking whether it is in use
            self.lock = os.fstat(lock.fileno()).st_ino
            self.check_held()
            yield

    def check_held(self) -> None:
        """The directory may have been deleted meanwhile, and another run made in its place."""
        lock = self.path / "lock"
        if not lock.exists() or lock.stat().st_ino != self.lock or identity_of(self.path) != self.identity:
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

    def keep_metrics(self, step: int, size: int) -> IO[str]:
        """The file of metrics, open for more, without what was recorded after this step, when it had so many bytes."""
        kept = "".join(as_line(record) for record in self.metrics() if record["step"] <= step).encode()
        path = self.path / "metrics.jsonl"
        if len(kept) != size:
            raise UsageError(f"{path} is damaged: it has {len(kept)} bytes up to step {step} instead of {size}")
        write_atomically(path, kept)
        return open(path, "a")

    def record_session(self, environment: Mapping[str, Any], step: int) -> None:
        """Note the machine that goes on with the run at this step."""
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
        fields = self.experiment.model_dump(mode="json", include={"task", "layout", "model"})
        write_json(self.path / "config.json", {"digits": self.experiment.data.test_digits, **fields})
        write_json(self.path / "result.json", result)
        self.checkpoint.unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget all that the run has done, to train it again."""
        with self.locked():
            for name in MADE:
                with writing(self.path / name):
                    (self.path / name).unlink(missing_ok=True)

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
            tensors = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
        else:
            again = "" if self.result is None else "; `lengthwise train … --again` trains it again"
            files = f"neither {self.weights.name} nor {self.checkpoint.name}"
            raise UsageError(f"{self.path} has no weights: {files}{again}")
        restore(solver.state_dict(), tensors, self.weights if self.weights.exists() else self.checkpoint)
        return solver.to(device).eval()


def overview(root: Path) -> list[dict[str, Any]]:
    """All runs in a directory, with status and accuracy; one that can't be read is listed as damaged."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is no directory of runs")
    rows = []
    for path in sorted(root.iterdir()) if root.exists() else ():
        row: dict[str, Any] = {"run": str(path), "step": 0, "steps": 0, "accuracy": {}, "headline": {}}
        try:
            if not (path / CONFIG).exists():
                continue
            run = Run(path)
            records = run.metrics()
            tested = (run.result or {}).get("evaluation") or (run.evaluations() or [{}])[-1].get("evaluation", [])
            row |= {"status": run.status, "step": records[-1]["step"] if records else 0, "steps": run.experiment.steps}
            row["accuracy"] = {a["length"]: a["exact_match"] for a in tested}
            row["headline"] = {n: row["accuracy"][n] for n in run.experiment.lengths if n in row["accuracy"]}
        except (UsageError, OSError) as error:
            row |= {"status": "damaged", "reason": str(error)}
        rows.append(row)
    return rows


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors atomically, with a checksum that `load_tensors` verifies."""
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, safetensors.torch.save(stored, {**metadata, "crc32": checksum(stored)}))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
    except FileNotFoundError:
        raise UsageError(f"{'no permission to read' if path.exists() else 'there is no file'} {path}") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    if metadata.get("crc32", checksum(tensors)) != checksum(tensors):
        raise UsageError(f"{path} is damaged: its checksum doesn't match its contents")
    return tensors, metadata


def checksum(tensors: Mapping[str, Tensor]) -> str:
    value = 0
    for name in sorted(tensors):
        value = crc32(tensors[name].numpy().tobytes(), crc32(name.encode(), value))
    return f"{value:08x}"


def restore(into: Mapping[str, Tensor], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy loaded tensors into those of a model, in place: their alignment decides the last bits of later results."""
    for name, tensor in into.items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            found = tuple(tensors[name].shape) if name in tensors else "missing"
            raise UsageError(f"{path} doesn't fit the model: {name} should be {tuple(tensor.shape)} and is {found}")
        tensor.copy_(tensors[name])


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell what went wrong with writing a file in one sentence."""
    try:
        yield
    except OSError as error:
        intact = "; what was saved before is intact" if path.exists() else ""
        raise UsageError(f"can't write {path}: {(error.strerror or str(error)).lower()}{intact}") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that at every moment there is either the old one or the new one, whole."""
    temporary = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None


def as_line(record: Mapping[str, Any]) -> str:
    return json.dumps(record) + "\n"


def append(file: IO[str], record: Mapping[str, Any]) -> None:
    with writing(Path(file.name)):
        file.write(as_line(record))
        file.flush()
