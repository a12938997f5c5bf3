"""From a grid to a list of experiments: every combination of the values of its axes.

On the command line a list (rope,alibi) or a range (0:2, both ends included) is an axis. Commas in
brackets, braces and quotes are part of a value. Keys whose own values are lists, such as
data.priming and evaluation.lengths, are separated by | only.
"""

import inspect
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from lengthwise.base import Registry, UsageError
from lengthwise.base.extensions import import_file, import_files
from lengthwise.problems.lengths import parse_lengths
from lengthwise.training import keys
from lengthwise.training.experiment import Experiment
from lengthwise.training.yaml import parse_scalar, read_yaml

Axes = Mapping[str, Sequence[Any]]
RANGE = re.compile(r"\d+:\d+(:\d+)?")
OPENING, CLOSING, QUOTES = "[{(", "]})", "\"'"
MOST_RUNS = 10_000
FUNCTION = "experiments"  # in a Python file


def expand(fields: Mapping[str, Any], axes: Axes) -> list[Experiment]:
    """An experiment for each combination of the values of the axes, the last one fastest.

    >>> [e.seed for e in expand({"model.position": "rope"}, {"seed": [0, 1]})]
    [0, 1]
    """
    for key, values in axes.items():
        check_axis(key, values)
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise UsageError(f"the grid has {count} runs, and the most are {MOST_RUNS}")
    combinations = itertools.product(*axes.values())
    return [
        keys.parse(keys.nest(fields, dict(zip(axes, values, strict=True))))
        for values in combinations
    ]


def check_axis(key: str, values: object) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence | range) or not values:
        raise UsageError(f"the axis {key} of the grid is a list of values, not {values!r}")
    for number, value in enumerate(values):
        if value in values[:number]:
            raise UsageError(f"the axis {key} of the grid has {value!r} twice")


def parse_axes(words: Sequence[str]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Fixed keys and axes from command-line words.

    >>> parse_axes(["--seed", "0:2", "--model.position", "rope,alibi", "--data.priming", "8=5,9=5"])
    ({'data.priming': '8=5,9=5'}, {'seed': [0, 1, 2], 'model.position': ['rope', 'alibi']})
    """
    fixed: dict[str, Any] = {}
    axes: dict[str, list[Any]] = {}
    for key, text in keys.split_overrides(words):
        values = split_values(key, text)
        if key in fixed or key in axes:
            raise UsageError(f"--{key} is given twice; one list has all values of an axis")
        if len(values) == 1:
            fixed[key] = values[0]
        else:
            axes[key] = values
    return fixed, axes


def split_values(key: str, text: str) -> list[Any]:
    """The values of a key that are written in one word."""
    separators = "|" if has_lists(key) else "|,"
    parts = list(split_outside(text, separators))
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise UsageError(f"--{key} has an empty value: {text}")
    if separators == "|":
        return [parse_scalar(part.strip()) for part in parts]
    return [value for part in parts for value in parse_part(part.strip())]


def parse_part(text: str) -> list[Any]:
    return list(parse_lengths(text)) if RANGE.fullmatch(text) else [parse_scalar(text)]


def split_outside(text: str, separators: str) -> Iterator[str]:
    """Parts of a text between separators that stand outside of brackets and quotes.

    >>> list(split_outside("rope,{kind: alibi, coordinate: index}", ","))
    ['rope', '{kind: alibi, coordinate: index}']
    """
    depth, quote, part = 0, "", ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in QUOTES:
            quote = sign
        depth += (sign in OPENING) - (sign in CLOSING)
        if sign in separators and not quote and depth == 0:
            yield part
            part = ""
        else:
            part += sign
    yield part


def has_lists(key: str) -> bool:
    """Whether the values of a key are lists or mappings, so that a comma does not separate them."""
    return any(is_list(field.annotation) for field in find_fields(key))


def find_fields(key: str) -> Iterator[FieldInfo]:
    """The field of a key; of an option, those of all kinds of the choice that have it."""
    section, _, name = key.rpartition(".")
    if section in Registry.all:
        registry = Registry.all[section]
        options = (registry.options_of(registry[kind]).model_fields for kind in registry)
        yield from (fields[name] for fields in options if name in fields)
        return
    config: Any = Experiment
    for part in filter(None, section.split(".")):
        field = config.model_fields.get(part) if keys.is_config(config) else None
        config = field.annotation if field else None
    if keys.is_config(config) and name in config.model_fields:
        yield config.model_fields[name]


def is_list(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    if origin in (UnionType, Union):
        return any(map(is_list, get_args(annotation)))
    if hasattr(annotation, "__metadata__"):
        return is_list(annotation.__origin__)
    return isinstance(origin, type) and issubclass(origin, list | tuple | dict)


def read_grid(path: Path) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Fixed keys and axes from a YAML file: a configuration whose key `grid` has the axes."""
    fields = read_yaml(path)
    grid = fields.pop("grid", {})
    if not isinstance(grid, dict):
        raise UsageError(f"{path}: grid is a mapping from keys to lists of values, not {grid!r}")
    return fields, {str(key): read_axis(str(key), values) for key, values in grid.items()}


def read_axis(key: str, values: Any) -> list[Any]:
    """The values of an axis: a list, or text such as 0:2 or rope,alibi."""
    found = split_values(key, values) if isinstance(values, str) else values
    check_axis(key, found)
    return list(found)


def call_function(path: Path, name: str = FUNCTION) -> list[Mapping[str, Any] | Experiment]:
    """The experiments that a function of a Python file returns."""
    import_files([str(path)])  # and let worker processes import it
    module = import_file(path.resolve())
    function = getattr(module, name, None)
    if not callable(function) or inspect.signature(function).parameters:
        raise UsageError(
            f"{path} has no function {name}() without arguments that returns experiments"
        )
    found = function()
    if isinstance(found, str | Mapping) or not isinstance(found, Iterable):
        raise UsageError(f"{name}() of {path} returns a list of experiments, not {found!r}")
    return list(found)


def change(experiment: Mapping[str, Any] | Experiment, overrides: Mapping[str, Any]) -> Experiment:
    """An experiment, or a mapping of keys, with some keys changed."""
    if isinstance(experiment, Experiment):
        if not overrides:
            return experiment
        experiment = experiment.model_dump(mode="json", exclude_defaults=True)
    if not isinstance(experiment, Mapping):
        raise UsageError(f"an experiment is a mapping of keys, not {experiment!r}")
    return keys.parse(keys.nest(experiment, overrides))
