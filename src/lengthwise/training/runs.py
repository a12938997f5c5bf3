"""The run directory: every file is written whole, and the directory is locked while in use.

runs/addition-relative-key-1f2e3d4c/
    manifest.json             a digest of every other file; any changed byte is noticed
    config.yaml               the whole configuration
    identity                  a hash of what matters in it
    code.json                 digests and files of the user's own classes, if it has any
    environment.json          versions, commit and machine of every session
    metrics.jsonl             a line for each record of the loss and for each evaluation
    checkpoint.safetensors    all that is needed to go on; removed when the run has finished
    model.safetensors         the trained weights, with config.json for `Solver.from_pretrained`
    result.json               the final evaluation; its presence says that the run has finished
    weights-1000.safetensors  those of a step that is kept (training.keep_checkpoints)
    optimizer.safetensors     the optimiser's state at the end (training.keep_optimizer)
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.base.errors import NOT_IMPORTED
from lengthwise.base.files import PARTIAL, parse_json, sync_directory, to_json, writing
from lengthwise.base.manifest import MANIFEST, Manifest
from lengthwise.base.tensors import check_finite, pack_tensors, restore, unpack_tensors
from lengthwise.evaluation.accuracy import Accuracy
from lengthwise.evaluation.analysis import LearningCurves, learning_curves
from lengthwise.solver import Solver
from lengthwise.training import keys
from lengthwise.training.experiment import (
    CONFIG,
    IDENTITY,
    Experiment,
    hash_identity,
    read_identity,
)
from lengthwise.training.journal import Journal, last_record, parse_record, read_lines, read_records
from lengthwise.training.locks import LOCK, InUse, hold, is_held
from lengthwise.training.own_code import CODE, changed_parts, missing_code, own_code, record_code
from lengthwise.training.yaml import FastLoader, parse_yaml

Status = Literal["finished", "running", "interrupted", "failed"]
NAME = re.compile(r"\w[\w.+=,-]{0,199}")
CHECKPOINT, WEIGHTS = "checkpoint.safetensors", "model.safetensors"
METRICS, RESULT, FAILURE = "metrics.jsonl", "result.json", "failure.json"
ENVIRONMENT = "environment.json"
TRAINING_FILES = {CHECKPOINT, WEIGHTS, METRICS, RESULT, FAILURE, ENVIRONMENT}
FIRST_FILES = {CONFIG, IDENTITY, CODE}  # that make a directory a run
SECONDS_FOR_CREATION = 20.0  # at most, while other processes create the same run
SECONDS_FOR_STATUS = 0.5  # another process may hold a run only to ask for its status
OPTIMIZER = "optimizer.safetensors"
KEPT_NAME = re.compile(r"weights-(\d+)\.safetensors")  # of a step
SEED = re.compile(rb"^seed: (0|[1-9][0-9]{0,17})$", re.MULTILINE)  # in config.yaml
# How the names of the model's tensors in a checkpoint begin, and those of its averaged weights.
MODEL, AVERAGE = "model.", "average."


class NotImported(UsageError):
    """The run needs code of the user's own that isn't imported."""


class ConfigReader:
    """Reads configurations of runs. Those that differ in their seeds only are parsed once."""

    def __init__(self) -> None:
        self.known: dict[bytes, tuple[Experiment, dict[str, Any]]] = {}

    def read(self, config: bytes) -> tuple[Experiment, dict[str, Any]]:
        """An experiment, and the fields of its identity but for the user's own code."""
        seeds = SEED.findall(config)
        rest = SEED.sub(b"seed:", config) if len(seeds) == 1 else config
        if rest not in self.known:
            parsed = keys.parse(parse_yaml(config, "it", FastLoader))
            self.known[rest] = parsed, {**parsed.identity_fields(), "start_from": None}
        experiment, fields = self.known[rest]
        if len(seeds) == 1:
            experiment = experiment.model_copy(update={"seed": int(seeds[0])})
        return experiment, {**fields, "seed": experiment.seed}


class Run:
    """One run's directory."""

    def __init__(self, path: "Run | Path | str", reader: "ConfigReader | None" = None):
        """`reader` spares those who open many runs the time to parse similar configurations."""
        if not isinstance(path, str | os.PathLike):
            raise UsageError(f"a run is the path of its directory, not {path!r}")
        self.path = Path(path)
        if not is_run(self.path):
            raise UsageError(
                f"there is no run at {self.path} (it has no {CONFIG}); `lengthwise runs` lists runs"
            )
        self.manifest = Manifest.load(self.path)
        config = self.manifest.read(CONFIG) or b""
        self.identity = (self.manifest.read(IDENTITY) or b"").decode().strip()
        self.code = self.read_json(CODE) or {"digests": {}, "files": {}}
        try:
            self.experiment, fields = (reader or ConfigReader()).read(config)
            if code := self.code["digests"]:
                fields = {**fields, "code": code}
            if not self.experiment.start_from and hash_identity(fields) != self.identity:
                raise UsageError("it isn't the experiment of the file identity beside it")
        except UsageError as error:
            if missing := missing_code(self.code):
                raise NotImported(f"{self.path} needs {missing}") from None
            damaged = f"{self.path / CONFIG} is damaged, of another version, or of {NOT_IMPORTED}"
            raise UsageError(f"{damaged}: {error}") from None
        self.checkpoint = self.path / CHECKPOINT
        self.weights = self.path / WEIGHTS

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        experiment = self.experiment
        what = f"{experiment.task!r}, {experiment.model.position!r}, seed {experiment.seed}"
        return f"<Run {self.path}: {self.status}, {what}>"

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
        deadline = time.monotonic() + SECONDS_FOR_CREATION
        while is_free(path, identity):
            try:
                make_directory(path, experiment, identity)
            except InUse:  # another process creates it, and may train it before this one looks
                if time.monotonic() > deadline:
                    raise
        run = cls(path)
        if run.identity != identity:
            changed = changed_parts(experiment, run.code)
            what = f"other code of the {changed[0]}" if changed else "another experiment"
            raise UsageError(f"{path} holds {what}; choose another --name")
        is_changed = run.experiment.training != experiment.training  # in what is kept
        run.experiment = experiment  # the same but for that, the device and the threads
        if is_changed and run.status in ("interrupted", "failed"):
            with run.locked():
                run.write({CONFIG: experiment.to_yaml().encode()})
        return run

    def check_code(self) -> None:
        """Raise a UsageError if the user's own code has changed since the run was made."""
        if changed := changed_parts(self.experiment, self.code):
            raise UsageError(
                f"{self.path} was started with other code of the {changed[0]};"
                " `lengthwise train` makes a new run"
            )

    @contextmanager
    def locked(self, patience: float = SECONDS_FOR_STATUS) -> Iterator[None]:
        """Hold the run, so that no other process can; only then may files be written."""
        with hold(self.path, patience) as self.lock:
            self.check_held()
            self.manifest.reload()
            self.manifest.settle()
            remove_partial_files(self.path)  # of processes that were killed
            yield

    def check_held(self) -> None:
        """The directory may have been deleted meanwhile, and another run made in its place."""
        lock = self.path / LOCK
        same_lock = lock.exists() and lock.stat().st_ino == self.lock
        if not same_lock or read_identity(self.path) != self.identity:
            raise UsageError(f"{self.path} was deleted or replaced by another process")

    def write(self, files: Mapping[str, bytes | None]) -> None:
        """Write files, in this order, and remove those that are None; the run must be locked."""
        self.check_held()
        self.manifest.replace(files)

    def read_json(self, name: str) -> Any:
        """What a JSON file of the run holds; None if there is none."""
        content = self.manifest.read(name)
        return None if content is None else parse_json(content, self.path / name)

    @property
    def status(self) -> Status:
        if self.result is not None:
            return "finished"
        if is_held(self.path):
            return "running"
        return "failed" if self.manifest.read(FAILURE) is not None else "interrupted"

    @property
    def result(self) -> dict[str, Any] | None:
        result = self.read_json(RESULT)
        if result is None:
            return None
        try:
            for accuracy in result["evaluation"]:
                Accuracy.from_json(accuracy)
        except (TypeError, KeyError) as error:
            damaged = f"{self.path / RESULT} is damaged"
            raise UsageError(f"{damaged}: it has no evaluation ({error})") from None
        return dict(result)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records so far, without a last line that is still being written."""
        return read_records(self.manifest.read(METRICS) or b"", self.path / METRICS)

    def evaluations(self) -> list[dict[str, Any]]:
        """The records that have an evaluation."""
        return read_records(self.manifest.read(METRICS) or b"", self.path / METRICS, "evaluation")

    def last_record(self, key: str = "") -> dict[str, Any] | None:
        """The last record that has a key; the others are not parsed."""
        return last_record(self.manifest.read(METRICS) or b"", self.path / METRICS, key)

    def curves(self) -> LearningCurves:
        """How accuracy rose, by length, and on training and primed examples."""
        return learning_curves(self.metrics, self.experiment.answer_symbols())

    def plot(self, out: str | Path | None = None) -> Any:
        """A matplotlib figure: accuracy by length, and learning curves; `out` saves it."""
        from lengthwise.training.comparison import Comparison

        return Comparison([self]).plot(out)

    def last_accuracy(self) -> dict[int, float]:
        """Exact match by length in the last evaluation."""
        last = self.last_record("evaluation") or {"evaluation": []}
        return {a["length"]: a["exact_match"] for a in last["evaluation"]}

    def open_metrics(self, step: int) -> Journal:
        """metrics.jsonl, open for appending, without records behind this step."""
        path, content = self.path / METRICS, self.manifest.read(METRICS) or b""
        lines = read_lines(content, path)
        sizes = [size for line, size in lines if parse_record(line, path)["step"] <= step]
        kept = content[: sizes[-1] if sizes else 0]
        self.manifest.replace({METRICS: kept}, grows=[METRICS])
        return Journal(path, kept)

    def sessions(self) -> list[dict[str, Any]]:
        """The machines that have trained the run, with the step at which each began."""
        environment = self.read_json(ENVIRONMENT) or {"sessions": []}
        return list(environment["sessions"])

    def record_session(self, environment: Mapping[str, Any], step: int) -> None:
        """Add the machine that goes on with the run at this step to environment.json."""
        now = {"started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "step": step, **environment}
        self.write({ENVIRONMENT: to_json({"sessions": [*self.sessions(), now]})})

    def finish(self, solver: Solver, result: Mapping[str, Any], metrics: Journal) -> None:
        """Keep the weights and the result; the checkpoint has served its purpose."""
        parts = self.experiment.model_dump(mode="json", include={"task", "layout", "model"})
        config = {"digits": self.experiment.data.test_digits, **parts}
        self.manifest.contents[METRICS] = [metrics.close()]
        files = {
            WEIGHTS: pack_tensors(solver.state_dict(), {}),
            "config.json": to_json(config),
            RESULT: to_json(result),
            CHECKPOINT: None,
        }
        self.write(files)
        self.manifest.settle()

    def clean_up(self) -> None:
        """Remove what a process left that was killed between the result and its end."""
        if self.checkpoint.exists():
            self.write({CHECKPOINT: None})
        self.manifest.settle()

    def tidy(self) -> None:
        """Clean a finished run up, unless another process holds it."""
        if self.checkpoint.exists() or any(self.path.glob(f".*{PARTIAL}")):
            with suppress(InUse), self.locked():
                self.clean_up()

    def clear(self) -> None:
        """Forget all that the run has done, to train it again."""
        with self.locked():
            made = (self.manifest.contents.keys() | TRAINING_FILES) - FIRST_FILES
            # The sign of having finished goes first.
            self.write(dict.fromkeys(sorted(made, key=lambda name: name != RESULT)))
            self.write({CONFIG: self.experiment.to_yaml().encode()})  # it may keep other steps
            self.manifest.settle()

    def forget_failure(self) -> None:
        if self.manifest.read(FAILURE) is not None:
            self.write({FAILURE: None})

    def fail(self, reason: str, step: int) -> None:
        self.write({FAILURE: to_json({"step": step, "reason": reason})})

    def keep_weights(self, solver: Solver, step: int) -> None:
        """Keep the weights of a step."""
        metadata = {"step": str(step), "identity": self.identity}
        self.write({kept_name(step): pack_tensors(solver.state_dict(), metadata)})

    def kept_steps(self) -> list[int]:
        """The steps whose weights can be loaded: those that are kept, and the last one."""
        names = map(KEPT_NAME.fullmatch, self.manifest.contents)
        last = {self.experiment.steps} if WEIGHTS in self.manifest.contents else set()
        return sorted(last | {int(name[1]) for name in names if name})

    def large_files(self) -> set[str]:
        """Those that are not read when a run is listed."""
        return {name for name in self.manifest.contents if name.endswith(".safetensors")}

    def load(self, device: str = "cpu", step: int | None = None) -> Solver:
        """The model: its final weights, those of the last checkpoint, or of a step that is kept."""
        left_out = () if step is None else self.large_files()  # many steps may be kept
        self.manifest.verify(left_out=left_out)
        self.metrics  # noqa: B018  # verifies them: a file that grows has checksums of its own
        solver = self.experiment.build()
        path, tensors = self.read_weights() if step is None else self.read_kept(step)
        restore(solver.state_dict(), tensors, path)
        check_finite(tensors, path)
        return solver.to(device).eval()

    def read_weights(self) -> tuple[Path, dict[str, Tensor]]:
        """The file that has the model's weights, and these."""
        if (content := self.manifest.read(WEIGHTS)) is not None:
            return self.weights, unpack_tensors(content, self.weights)[0]
        if (content := self.manifest.read(CHECKPOINT)) is not None:
            tensors, _ = unpack_tensors(content, self.checkpoint)
            prefix = AVERAGE if self.experiment.training.ema else MODEL
            own = {name: t for name, t in tensors.items() if name.startswith(prefix)}
            return self.checkpoint, {name.removeprefix(prefix): t for name, t in own.items()}
        raise UsageError(f"{self.path} has no weights: neither {WEIGHTS} nor {CHECKPOINT}")

    def read_kept(self, step: int) -> tuple[Path, dict[str, Tensor]]:
        """The file that has the weights of a step, and these."""
        if step not in (known := self.kept_steps()):
            those = f"those of the steps {', '.join(map(str, known))}" if known else "none"
            raise UsageError(
                f"{self.path} has no weights of step {step}, but {those}"
                " (training.keep_checkpoints says which are kept)"
            )
        name = kept_name(step)
        if (content := self.manifest.read(name)) is None:
            return self.read_weights()  # of the last step
        return self.path / name, unpack_tensors(content, self.path / name)[0]


def kept_name(step: int) -> str:
    return f"weights-{step}.safetensors"


def is_run(path: Path) -> bool:
    """Whether a directory is a run, even if its configuration was lost."""
    if (path / CONFIG).is_file():
        return True
    if not (path / MANIFEST).is_file():
        return False
    return None not in Manifest.load(path).contents.get(CONFIG, [None])


def make_directory(path: Path, experiment: Experiment, identity: str) -> None:
    """Write a new run's first files, unless another process does or has done that."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent)
    with hold(path, SECONDS_FOR_STATUS):
        if is_free(path, identity):
            remove_partial_files(path)
            manifest = Manifest(path)
            files = {IDENTITY: f"{identity}\n".encode()}
            if own_code(experiment):
                files[CODE] = to_json(record_code(experiment))
            manifest.replace({**files, CONFIG: experiment.to_yaml().encode()})
            manifest.settle()


def is_free(path: Path, identity: str) -> bool:
    """Whether a run can be made here: there is none, or another experiment's without any work."""
    if not is_run(path):
        return True
    if Manifest.load(path).read(IDENTITY) == f"{identity}\n".encode():
        return False
    run = Run(path)
    return run.identity != identity and run.manifest.contents.keys() <= FIRST_FILES


def remove_partial_files(path: Path) -> None:
    """Remove files that a killed process was writing; nobody else may be writing any."""
    for partial in path.glob(f".*{PARTIAL}"):
        with writing(partial):
            partial.unlink(missing_ok=True)


def is_name(name: object) -> bool:
    return isinstance(name, str) and bool(NAME.fullmatch(name)) and len(name.encode()) <= 200
