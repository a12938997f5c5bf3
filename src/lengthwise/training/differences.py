"""What experiments have in common and what differs, by dotted keys."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lengthwise.base import Registry, UsageError
from lengthwise.training import keys
from lengthwise.training.experiment import NOT_IN_IDENTITY, Experiment

NOT_COMPARED = {f"{section}.{key}" for section, names in NOT_IN_IDENTITY.items() for key in names}
NOT_COMPARED |= {"device", "threads"}


def flatten(experiment: Experiment) -> dict[str, Any]:
    """All that matters, by dotted keys; a choice has its `kind` and its options.

    >>> flat = flatten(keys.parse({"model.position": "rope", "training.epochs": 2}))
    >>> flat["model.position.kind"], flat["model.position.base"], flat["training.steps"]
    ('rope', 10000.0, 312)
    """
    dumped = experiment.model_dump(mode="json")
    flat = {key: value for key, value in walk(dumped, "") if key not in NOT_COMPARED}
    return {**flat, "training.steps": experiment.steps}


def walk(fields: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and ("kind" in value or key in keys.sections()):
            yield from walk(value, f"{key}.")
        else:
            yield key, value


def differences(flats: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys in which flattened experiments differ.

    An option that only some kinds of a choice have counts only where two of the same kind differ.
    """
    names = dict.fromkeys(key for flat in flats for key in flat)
    return [key for key in names if differs(key, flats)]


def differs(key: str, flats: Sequence[Mapping[str, Any]]) -> bool:
    kind = f"{key.rpartition('.')[0]}.kind"
    by_kind: dict[Any, list[Any]] = {}
    for flat in flats:
        if key in flat:
            by_kind.setdefault(None if key == kind else flat.get(kind), []).append(flat[key])
    return any(values.count(values[0]) < len(values) for values in by_kind.values())


def label(flat: Mapping[str, Any], differing: Sequence[str]) -> str:
    """An experiment's values of the keys in which it differs from others, but for empty ones.

    >>> flat = flatten(keys.parse({"model.position": "rope"}))
    >>> label(flat, ["model.position.kind"]), label(flat, ["model.position.kind", "model.width"])
    ('rope', 'rope, width 128')
    """
    parts = []
    for key in differing:
        name, value = key.rpartition(".")[2], flat.get(key)
        if key == "start_from" and value:
            value = Path(value).name
        if value is not None and value is not False and value not in ([], {}):
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            parts.append(shown if name == "kind" else f"{name} {shown}")
    return ", ".join(parts)


def matches(flat: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Whether an experiment has these values; of a list of values, one of them."""
    for key, value in where.items():
        flat_key = key if key in flat or f"{key}.kind" not in flat else f"{key}.kind"
        values = value if isinstance(value, list | tuple | range) else [value]
        if flat_key not in flat or not any(flat[flat_key] == each for each in values):
            return False
    return True


def check_keys(where: Mapping[str, Any]) -> None:
    """Raise a UsageError if a key is none of any experiment."""
    known = {key.name for key in keys.all_keys()} | {f"{key}.kind" for key in Registry.all}
    for key in where:
        if key not in known:
            raise UsageError(keys.explain_unknown(key))
