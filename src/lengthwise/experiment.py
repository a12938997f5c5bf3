"""The typed configuration of a run: the same keys in YAML, on the command line and in Python."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from lengthwise.data import DataConfig, Sampling, parse_lengths
from lengthwise.errors import UsageError, explain
from lengthwise.layout import Layout, LayoutConfig
from lengthwise.model import ModelConfig
from lengthwise.positions import POSITIONS
from lengthwise.registry import Config, Registry
from lengthwise.solver import Solver
from lengthwise.tasks import TASKS, AnyTask

CONFIG, IDENTITY = "config.yaml", "identity"  # in a run's directory
CHOICES = ("task", "position", "inner")  # keys whose value is a name, or a mapping with `kind` and options
Lengths = Annotated[list[int], BeforeValidator(parse_lengths), Field(min_length=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


def parse_betas(value: object) -> object:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise UsageError(f"training.betas is {value!r}, but AdamW has two, such as [0.9, 0.98]")
    return tuple(value)


class TrainingConfig(Config):
    """How long and how a model is trained. The budget is one of `steps`, `epochs` and `examples`."""

    steps: int | None = Field(None, ge=1, description="the budget in steps; 3000 if no budget is given")
    epochs: float | None = Field(None, gt=0, le=1e9, description="the budget in passes over data.train_size examples")
    examples: int | None = Field(None, ge=1, description="the budget in examples")
    batch_size: int = Field(32, ge=1, description="examples a step")
    learning_rate: float = Field(2e-3, gt=0, description="AdamW's, at its highest")
    warmup_steps: int = Field(100, ge=0, description="steps over which the learning rate rises")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="the learning rate after the warm-up")
    betas: Annotated[tuple[Beta, Beta], BeforeValidator(parse_betas)] = Field((0.9, 0.98), description="AdamW's")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's")
    clip: float | None = Field(1.0, gt=0, description="the largest norm of a gradient; null: no limit")
    more_layers: int = Field(0, ge=0, description="apply shared layers up to so many times more, drawn for each batch")
    log_every: int = Field(50, ge=1, description="steps between records of the loss")
    checkpoint_every: int = Field(500, ge=1, description="steps between checkpoints")

    @model_validator(mode="after")
    def _one_budget(self) -> "TrainingConfig":
        given = [key for key in ("steps", "epochs", "examples") if getattr(self, key) is not None]
        if len(given) > 1:
            raise UsageError(f"a run has one budget, but training.{' and training.'.join(given)} are given")
        return self


class EvaluationConfig(Config):
    """What a model is tested on, now and then during training and at its end."""

    every: int = Field(500, ge=1, description="steps between evaluations")
    lengths: Lengths | None = Field(None, description="tested during training; null: train, train + 1, test digits")
    examples: int = Field(500, ge=1, description="problems of each length during training")
    final_lengths: Lengths | None = Field(None, description="tested at the end; null: from train to test digits")
    final_examples: int = Field(2000, ge=1, description="problems of each length at the end")
    sampling: Sampling = Field("exact", description="how test operands of n digits are drawn")


class Experiment(Config):
    """All that a run is made of."""

    task: AnyTask = Field("addition", validate_default=True)
    layout: LayoutConfig = LayoutConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    seed: int = Field(0, ge=0, description="of weights, data, dropout and test sets, each by a generator of its own")
    start_from: str | None = Field(None, description="a run whose weights are the start: fine-tuning")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="bfloat16 is torch's autocast")
    device: str = Field("cpu", description="cpu, cuda or mps")
    threads: int = Field(1, ge=1, description="CPU threads")

    @model_validator(mode="after")
    def _lengths_fit(self) -> "Experiment":
        Layout(self.task, self.data.test_digits, self.layout)  # complains if the answers don't fit
        if self.training.more_layers and self.model.encoder == "transformer":
            raise UsageError("training.more_layers needs layers that are shared: model.encoder universal-transformer")
        if self.model.read_rows and not self.layout.long_multiplication:
            raise UsageError("model.read_rows needs rows: layout.long_multiplication true")
        if self.data.padding and not self.layout.fitted:
            raise UsageError("data.padding needs a layout that is fitted: layout.fitted true")
        if (self.data.train_operands or 0) > (most := len(self.task.operand_digits(1))):
            raise UsageError(f"data.train_operands is {self.data.train_operands}, but the task has {most} operands")
        for key in ("lengths", "final_lengths"):
            for length in getattr(self.evaluation, key) or []:
                if not 1 <= length <= self.data.test_digits:
                    raise UsageError(
                        f"evaluation.{key} has {length}, but lengths go from 1 to data.test_digits,"
                        f" which is {self.data.test_digits}"
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
        return training.steps or 3000

    @property
    def lengths(self) -> list[int]:
        """The lengths tested during training."""
        data = self.data
        ends = {data.train_digits, min(data.train_digits + 1, data.test_digits), data.test_digits}
        return self.evaluation.lengths or sorted(ends)

    @property
    def final_lengths(self) -> list[int]:
        """The lengths tested at the end."""
        return self.evaluation.final_lengths or list(range(self.data.train_digits, self.data.test_digits + 1))

    def build(self) -> Solver:
        """The model, not yet initialised."""
        fields = self.model_dump(mode="json", include={"task", "layout", "model"})
        return Solver(digits=self.data.test_digits, **fields)

    def identity(self, origin: str | None = None) -> str:
        """A hash of what matters for the result. Where it is computed doesn't, nor does a preset's name.

        Options at their defaults are left out, so that an experiment stays the same when later versions have more of
        them; a default must never change. `origin` is the identity of `start_from`, if it isn't to be read there.
        """
        left_out = {"model": {"preset"}, "training": {"steps", "epochs", "examples", "checkpoint_every"}}
        fields: dict[str, Any] = {"seed": self.seed, "precision": self.precision}
        for name in ("task", "layout", "data", "model", "training", "evaluation"):
            section: BaseModel = getattr(self, name)
            fields[name] = section.model_dump(mode="json", exclude_defaults=True, exclude=left_out.get(name))
        fields["steps"] = self.steps
        fields["start_from"] = origin or (identity_of(self.start_from) if self.start_from else None)
        text = json.dumps(fields, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def name(self) -> str:
        """A name for the run's directory that people can read and that no other experiment has."""
        return f"{self.task.kind}-{self.model.position.kind}-{self.identity()[:8]}"

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def identity_of(run: Path | str) -> str:
    """That of a run's experiment, as it was when the run was made: what it starts from may have moved since."""
    path = Path(run) / IDENTITY
    if not path.is_file():
        raise UsageError(f"{run} is no run: it has no file {IDENTITY}")
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} can't be read: {error}") from None


def parse(fields: Mapping[str, Any]) -> Experiment:
    """An experiment from plain nested mappings; what is wrong with them is told in one sentence."""
    try:
        return Experiment.model_validate(with_default_kinds(nested(fields)))
    except ValidationError as error:
        unknown = next((e for e in error.errors() if e["type"] == "extra_forbidden"), None)
        if unknown:
            raise UsageError(unknown_key(".".join(map(str, unknown["loc"])))) from None
        raise UsageError(explain(error)) from None


def nested(fields: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Nested mappings from some that may have dotted keys: {"model.width": 64} is {"model": {"width": 64}}."""
    if not isinstance(fields, Mapping):
        raise UsageError(f"an experiment is a mapping of keys such as task and model, not {fields!r}")
    result: dict[str, Any] = {}
    for key, value in [*fields.items(), *(overrides or {}).items()]:
        set_key(result, str(key), value)
    return result


def with_default_kinds(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Options without a `kind` are those of the default: {"position": {"clip": 3}} clips relative-key."""

    def completed(value: Any, default: str) -> Any:
        return {"kind": default, **value} if isinstance(value, Mapping) else value

    filled = dict(fields)
    if "task" in filled:
        filled["task"] = completed(filled["task"], Experiment.model_fields["task"].default)
    if isinstance(model := filled.get("model"), Mapping) and "position" in model:
        default = ModelConfig.model_fields["position"].default
        filled["model"] = {**model, "position": completed(model["position"], default)}
    return filled


def unknown_key(key: str) -> str:
    known = [known for known, *_ in keys()]
    leaves = [k for k in known if k.rpartition(".")[2] == key.rpartition(".")[2]]
    known += {k.rpartition(".")[0] for k in known if "." in k}  # the sections
    close = leaves if len(leaves) == 1 else get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else "`lengthwise train --keys` lists all"
    return f"there is no key '{key}': {hint}"


class Loader(yaml.SafeLoader):
    """YAML in which 1e-3 is a number, 6:35 isn't one (to YAML 1.1 that is 6·60 + 35), and no key is given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if isinstance(key, str) and keys.count(key) > 1:
                raise UsageError(f"'{key}' is given twice in line {node.start_mark.line + 1} and after it")
        return super().construct_mapping(node, deep)


NUMBERS = {"int": r"[-+]?(0|[1-9][0-9]*)", "float": r"[-+]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][-+]?[0-9]+)?"}
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in NUMBERS]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for name, pattern in NUMBERS.items():
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"{pattern}$"), list("-+.0123456789"))


def load(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """An experiment from a YAML file (or the defaults), changed by dotted keys: {"model.width": 64}."""
    fields = read_yaml(Path(path)) if path is not None else {}
    return parse(nested(fields, overrides))


def read_yaml(path: Path) -> dict[str, Any]:
    try:
        fields = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise UsageError(f"can't read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if fields is not None and not isinstance(fields, dict):
        raise UsageError(f"{path} should be a mapping of keys such as task and model")
    return fields or {}


def set_key(fields: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key; a choice's name and its options go together: `task: addition` and then `task.operands: 3`."""
    *parents, leaf = key.split(".")
    for parent in parents:
        inner = fields.get(parent, {})
        if isinstance(inner, str) and parent in CHOICES:
            inner = {"kind": inner}
        if not isinstance(inner, Mapping):
            raise UsageError(f"'{key}' can't be set, since {parent} is {inner!r}")
        fields[parent] = dict(inner)
        fields = fields[parent]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        value = nested(value)
    before = fields.get(leaf)
    if leaf in CHOICES and isinstance(value, str) and isinstance(before, Mapping) and "kind" not in before:
        value = {"kind": value, **before}
    fields[leaf] = value


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """Dotted keys from command-line words; values are YAML.

    >>> parse_overrides(["--model.width", "64", "--data.priming={10: 50}", "--layout.compact"])
    {'model.width': 64, 'data.priming': {10: 50}, 'layout.compact': True}
    """
    overrides: dict[str, Any] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise UsageError(
                f"'{word}' is neither a key such as --model.width nor a configuration file in front of them"
            )
        key, equals, text = word[2:].partition("=")
        key = key.replace("-", "_")
        if not equals and words and not words[0].startswith("--"):
            text = words.pop(0)
        elif not equals and key in switches():
            text = "true"
        if not text.strip():
            raise UsageError(f"--{key} needs a value")
        overrides[key] = scalar(text)
    return overrides


def switches() -> set[str]:
    """The keys that are true or false, which need no value to be true."""
    return {key for key, default, _ in keys() if default in ("true", "false")}


def scalar(text: str) -> Any:
    """A value as YAML reads it; what is none is a text."""
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError:
        return text


def keys() -> Iterator[tuple[str, str, str]]:
    """Every configuration key, with its default and its description."""
    yield from _keys(Experiment, "")


def _keys(config: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str]]:
    choices: dict[str, Registry[Any]] = {"task": TASKS, "model.position": POSITIONS}
    for name, field in config.model_fields.items():
        key, inner = prefix + name, field.annotation
        if key in choices:
            yield f"{key}.kind", str(field.default), "one of " + ", ".join(choices[key])
            options = {kind: choices[key].options_of(choice).model_fields for kind, choice in choices[key].items()}
            for option in dict.fromkeys(option for fields in options.values() for option in fields):
                kinds = [kind for kind, fields in options.items() if option in fields]
                what = options[kinds[0]][option]
                yield f"{key}.{option}", as_yaml(what.default), f"{what.description} ({', '.join(kinds)})"
        elif isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _keys(inner, f"{key}.")
        else:
            yield key, as_yaml(field.default), field.description or ""


def as_yaml(value: Any) -> str:
    return json.dumps(value).strip('"')
