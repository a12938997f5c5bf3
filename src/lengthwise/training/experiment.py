"""The typed configuration of a run: the same keys in YAML, on the command line and in Python."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from lengthwise.arithmetic.tasks import AnyTask
from lengthwise.base import Choice, Config, UsageError
from lengthwise.base.choices import differs
from lengthwise.base.manifest import MANIFEST, read_if_there
from lengthwise.model import ModelConfig, PositionalAttention
from lengthwise.problems.layouts import LAYOUTS, AnyLayout, Layout
from lengthwise.problems.lengths import Lengths
from lengthwise.problems.sampling import Sampling
from lengthwise.problems.training_set import DataConfig
from lengthwise.solver import Solver, saved
from lengthwise.training import memory
from lengthwise.training.optimizers import AnyOptimizer
from lengthwise.training.own_code import own_code
from lengthwise.training.yaml import write_yaml

CONFIG, IDENTITY = "config.yaml", "identity"  # in a run's directory
DEFAULT_STEPS = 3000
POWERS_OF_TWO = "powers-of-two"
Beta = Annotated[float, Field(ge=0, lt=1)]
# Options that don't matter for the result: what a run is called, how it is cut, what it keeps.
NOT_IN_IDENTITY = {
    "model": {"preset"},
    "training": {
        *("steps", "epochs", "examples"),  # the identity has the budget in steps instead
        *("checkpoint_every", "keep_checkpoints", "keep_optimizer"),
    },
}


def parse_betas(value: object) -> object:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise UsageError(f"training.betas is {value!r}, but AdamW has two, such as [0.9, 0.98]")
    return tuple(value)


def parse_kept_steps(value: object) -> object:
    """The steps whose weights are kept: a number, a list, or powers-of-two."""
    if value is None or value == POWERS_OF_TWO:
        return value
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    steps: list[Any] = list(value) if is_list else [value]  # type: ignore[call-overload]
    least = 0 if is_list else 1
    if not steps or not all(type(step) is int and step >= least for step in steps):
        raise UsageError(
            f"training.keep_checkpoints is {value!r}, but it is a number of steps such as 1000,"
            f" a list such as [100, 1000], or {POWERS_OF_TWO}"
        )
    return sorted(set(steps)) if is_list else value


def parse_origin(value: object) -> object:
    """The path of a run, which may be given as a `Run` or a `Path`."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


class TrainingConfig(Config):
    """How a model is trained. The budget is one of `steps`, `epochs` and `examples`."""

    steps: int | None = Field(
        None, ge=1, description=f"the budget in steps; {DEFAULT_STEPS} if none is given"
    )
    epochs: float | None = Field(
        None, gt=0, le=1e9, description="the budget in passes over data.train_size examples"
    )
    examples: int | None = Field(None, ge=1, description="the budget in examples")
    batch_size: int = Field(32, ge=1, description="examples a step")
    optimizer: AnyOptimizer = Field("adamw", validate_default=True)
    learning_rate: float = Field(2e-3, gt=0, description="its highest value")
    warmup_steps: int = Field(100, ge=0, description="steps over which the learning rate rises")
    schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="of the learning rate after the warm-up"
    )
    betas: Annotated[tuple[Beta, Beta], BeforeValidator(parse_betas)] = Field(
        (0.9, 0.98), description="AdamW's"
    )
    weight_decay: float = Field(0.01, ge=0, description="of all parameters")
    clip: float | None = Field(
        1.0, gt=0, description="largest norm of the gradient; null: no limit"
    )
    ema: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="decay of an average of the weights, which is tested and kept",
    )
    log_every: int = Field(50, ge=1, description="steps between records of the loss")
    checkpoint_every: int = Field(500, ge=1, description="steps between checkpoints")
    keep_checkpoints: Annotated[
        int | list[int] | Literal["powers-of-two"] | None, BeforeValidator(parse_kept_steps)
    ] = Field(
        None,
        description="weights to keep: every n steps, a list, powers-of-two",
    )
    keep_optimizer: bool = Field(
        False, description="keep the optimiser's state at the end, for `extend`"
    )

    @model_validator(mode="after")
    def _check_budget(self) -> "TrainingConfig":
        budgets = ("steps", "epochs", "examples")
        given = [key for key in budgets if getattr(self, key) is not None]
        if len(given) > 1:
            names = " and ".join(f"training.{key}" for key in given)
            raise UsageError(f"a run has one budget, but {names} are given")
        return self

    def keeps(self, step: int) -> bool:
        """Whether the weights of a step are kept."""
        kept = self.keep_checkpoints
        if isinstance(kept, int):
            return step % kept == 0
        if isinstance(kept, list):
            return step in kept
        return kept == POWERS_OF_TWO and step & (step - 1) == 0


class EvaluationConfig(Config):
    """What a model is tested on, during training and at its end."""

    every: int = Field(500, ge=1, description="steps between evaluations")
    lengths: Lengths | None = Field(
        None, description="tested in training; null: train, train + 1 and test digits"
    )
    examples: int = Field(500, ge=1, description="problems of each length during training")
    final_lengths: Lengths | None = Field(
        None, description="tested at the end; null: from train to test digits"
    )
    final_examples: int = Field(2000, ge=1, description="problems of each length at the end")
    sampling: Sampling = Field("exact", description="how test operands of n digits are sampled")


class Experiment(Config):
    """All that a run consists of."""

    task: AnyTask = Field("addition", validate_default=True)
    layout: AnyLayout = Field("paper", validate_default=True)
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: int = Field(0, ge=0, description="of weights, data, dropout and test sets")
    start_from: Annotated[str | None, BeforeValidator(parse_origin)] = Field(
        None, description="a run or a saved model whose weights are the start"
    )
    start_optimizer: bool = Field(
        False, description="start from the state of that run's optimiser, too"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="bfloat16 is PyTorch's autocast"
    )
    device: str = Field("cpu", description="cpu, cuda or mps")
    compile: bool = Field(False, description="let torch.compile compile the encoder, for GPUs")
    threads: int = Field(1, ge=1, description="CPU threads")

    def __init__(self, **fields: Any):
        """Like any pydantic model, but an error is one sentence."""
        from lengthwise.training.keys import explain_invalid  # which lists the keys of this class

        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise UsageError(explain_invalid(error)) from None

    @model_validator(mode="after")
    def _check(self) -> "Experiment":
        LAYOUTS.build(self.layout, self.task, self.data.test_digits)  # answers must fit
        attention = self.model.attention
        discrete_rows = (
            isinstance(attention, PositionalAttention.Options) and attention.discrete_rows
        )
        if discrete_rows and self.layout.kind != "long-multiplication":
            raise UsageError("discrete_rows needs rows: the layout 'long-multiplication'")
        answer_alone = getattr(self.layout, "targets", None) == "answer"
        if answer_alone and getattr(self.model.depth, "teacher_forcing", False):
            raise UsageError("teacher forcing shows every row: it needs layout.targets rows")
        operands = len(self.task.operand_digits(1))
        if (self.data.train_operands or 0) > operands:
            raise UsageError(
                f"data.train_operands is {self.data.train_operands}, but the task has {operands}"
            )
        if self.start_optimizer and not self.start_from:
            raise UsageError("start_optimizer is true, but there is no start_from")
        for key in ("lengths", "final_lengths"):
            for length in getattr(self.evaluation, key) or []:
                if not 1 <= length <= self.data.test_digits:
                    raise UsageError(
                        f"evaluation.{key} has {length}, but lengths go from 1 to"
                        f" data.test_digits, which is {self.data.test_digits}"
                    )
        return self

    @property
    def steps(self) -> int:
        """The budget in steps."""
        training = self.training
        if training.epochs is not None:
            return max(1, round(training.epochs * self.data.train_size / training.batch_size))
        if training.examples is not None:
            return max(1, round(training.examples / training.batch_size))
        return training.steps or DEFAULT_STEPS

    @property
    def lengths(self) -> list[int]:
        """The lengths tested during training."""
        data = self.data
        ends = {
            data.train_digits,
            min(data.train_digits + 1, data.test_digits),
            data.test_digits,
        }
        return self.evaluation.lengths or sorted(ends)

    @property
    def final_lengths(self) -> list[int]:
        """The lengths tested at the end."""
        every = range(self.data.train_digits, self.data.test_digits + 1)
        return self.evaluation.final_lengths or list(every)

    @property
    def extra_padding(self) -> int:
        """The most padding that training adds, where the layout fits any length."""
        return getattr(self.layout, "extra_padding", 0)

    def answer_symbols(self) -> dict[str, int]:
        """The most symbols of answers in training, of unprimed and of primed examples."""
        primed = max((length for length, _ in self.data.priming), default=1)
        lengths = {"train": self.data.train_digits, "primed": primed}
        digits = {name: self.task.operand_digits(n) for name, n in lengths.items()}
        return {name: self.task.answer_digits(n) for name, n in digits.items()}

    def training_layout(self) -> Layout:
        """The largest layout of a training batch."""
        layout: Layout = LAYOUTS.build(self.layout, self.task, self.data.test_digits)
        longest = self.task.operand_digits(self.data.longest)
        return layout.for_lengths(longest, self.extra_padding)

    def build(self) -> Solver:
        """The model, not yet initialised."""
        memory.check_model(self)
        try:
            return Solver(self.task, self.data.test_digits, self.layout, self.model)
        except (RuntimeError, MemoryError, OverflowError) as error:  # of the allocator
            raise UsageError(f"a model of this size can't be made: {error}") from None

    def identity(self, origin: str | None = None, code: Mapping[str, str] | None = None) -> str:
        """A hash of all that matters for the result, which the device or a preset's name does not.

        Options at their defaults are left out, so that an experiment keeps its identity when later
        versions add options; a default must never change. `origin` is the identity of `start_from`
        where it can't be read there. `code` are the digests of the user's own classes; by default
        of those that are loaded.
        """
        fields = {**self.identity_fields(), "seed": self.seed}
        own_origin = read_identity(self.start_from) if self.start_from and not origin else None
        fields["start_from"] = origin or own_origin
        if code := own_code(self) if code is None else code:
            fields["code"] = dict(code)
        return hash_identity(fields)

    def identity_fields(self) -> dict[str, Any]:
        """What matters for the result, but for the seed, the origin and the user's own code."""
        fields: dict[str, Any] = {"precision": self.precision, "steps": self.steps}
        for name in ("task", "layout", "data", "model", "training", "evaluation"):
            section: BaseModel = getattr(self, name)
            dumped = section.model_dump(
                mode="json", exclude_defaults=True, exclude=NOT_IN_IDENTITY.get(name)
            )
            # A choice at its default is dumped as its kind; other defaults are left out already.
            options = type(section).model_fields.items()
            defaults = {key: {"kind": option.default} for key, option in options}
            fields[name] = {key: v for key, v in dumped.items() if v != defaults.get(key)}
        if self.start_optimizer:
            fields["start_optimizer"] = True
        return fields

    def name(self, identity: str | None = None) -> str:
        """A readable name for the run's directory that no other experiment has."""
        identity = identity or self.identity()
        return f"{self.task.kind}-{self.model.position.kind}-{identity[:8]}"

    def __repr__(self) -> str:
        """The choices, and the other keys that are not at their defaults."""
        shown = {"task": self.task, "layout": self.layout, "model.position": self.model.position}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            inner = value if isinstance(value, Config) and not isinstance(value, Choice) else self
            options = type(inner).model_fields if inner is not self else {name: field}
            for option, described in options.items():
                if differs(inner, option, described):
                    key = option if inner is self else f"{name}.{option}"
                    shown.setdefault(key, getattr(inner, option))
        return f"Experiment({', '.join(f'{key}={value!r}' for key, value in shown.items())})"

    def __str__(self) -> str:
        return repr(self)

    def to_yaml(self) -> str:
        return write_yaml(self.model_dump(mode="json"))


def hash_identity(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def is_saved_model(path: Path | str) -> bool:
    """Whether a directory has some of what `save_pretrained` writes, and is not a run."""
    folder, signs = Path(path), (saved.CONFIG, saved.WEIGHTS, MANIFEST)
    return not (folder / CONFIG).exists() and any((folder / sign).exists() for sign in signs)


def read_identity(run: Path | str) -> str:
    """The identity of a run's experiment as it was when the run was made; a saved model's hash."""
    path = Path(run) / IDENTITY
    try:
        if is_saved_model(run):
            weights = read_if_there(Path(run) / saved.WEIGHTS) or b""
            return hashlib.sha256(weights).hexdigest()
        if not path.is_file():
            raise UsageError(f"{run} is not a run: it has no file {IDENTITY}")
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {error}") from None
