"""Experiments from dotted keys: nested mappings, YAML files, command-line words, and their help."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from pydantic import BaseModel, ValidationError

from lengthwise.base import Registry, UsageError, explain, show
from lengthwise.base.trees import check_tree
from lengthwise.training.experiment import Experiment
from lengthwise.training.yaml import parse_scalar, read_yaml


def load(path: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Experiment:
    """An experiment from a YAML file or the defaults, changed by keys: {"model.width": 64}."""
    fields = read_yaml(Path(path)) if path is not None else {}
    return parse(nest(fields, overrides))


def parse(fields: Mapping[str, Any]) -> Experiment:
    """An experiment from nested mappings; an error is one sentence."""
    check_tree(fields)
    nested = nest(fields)
    for section in sections() & nested.keys():
        if not isinstance(nested[section], Mapping | BaseModel):
            raise UsageError(explain_section(section, nested[section]))
    return Experiment(**add_default_kinds(nested))


def explain_section(section: str, value: object) -> str:
    """What to write instead of `--model rope`."""
    owners = [key for key, registry in Registry.all.items() if value in list(registry)]
    inside = [key for key in owners if key.startswith(f"{section}.")]
    known = sorted(key.name for key in all_keys() if key.name.startswith(f"{section}."))
    if inside:
        return f"{section} is {show(value)}; did you mean '{inside[0]}'?"
    return f"{section} is {show(value)}, but it holds keys such as '{known[0]}'"


def explain_invalid(error: ValidationError) -> str:
    """Why an experiment is not valid, in one sentence."""
    unknown = next((e for e in error.errors() if e["type"] == "extra_forbidden"), None)
    if unknown:
        return explain_unknown(".".join(map(str, unknown["loc"])))
    return explain(error)


def nest(fields: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Nested mappings from dotted keys: {"model.width": 64} becomes {"model": {"width": 64}}."""
    if not isinstance(fields, Mapping):
        raise UsageError(
            f"an experiment is a mapping of keys such as task and model, not {show(fields)}"
        )
    check_given_once(fields)
    result: dict[str, Any] = {}
    for key, value in [*fields.items(), *(overrides or {}).items()]:
        set_key(result, str(key), value)
    return result


def check_given_once(fields: Mapping[str, Any]) -> None:
    """Raise a UsageError if a key is given both nested and dotted."""
    given: set[str] = set()
    for key in leaves(fields):
        if key in given:
            raise UsageError(f"'{key}' is given twice")
        given.add(key)


def leaves(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys of all values."""
    for key, value in fields.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and all(isinstance(inner, str) for inner in value):
            yield from leaves(value, f"{name}.")
        else:
            yield f"{name}.kind" if isinstance(value, str) and name in Registry.all else name


def set_key(fields: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key. Sections merge, and so do a choice's name and its options."""
    *parents, leaf = key.split(".")
    for parent in parents:
        inner = fields.get(parent, {})
        if isinstance(inner, str) and parent in choice_names():
            inner = {"kind": inner}
        if not isinstance(inner, Mapping):
            raise UsageError(f"'{key}' can't be set, because {parent} is {show(inner)}")
        fields[parent] = dict(inner)
        fields = fields[parent]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        value = nest(value)
    before = fields.get(leaf)
    if isinstance(before, Mapping) and isinstance(value, Mapping) and key in sections():
        value = nest(before, value)
    elif isinstance(before, Mapping) and isinstance(value, str) and leaf in choice_names():
        value = value if "kind" in before else {"kind": value, **before}
    fields[leaf] = value


def sections() -> set[str]:
    """The keys of an experiment that hold other keys and are not choices."""
    annotations = {name: field.annotation for name, field in Experiment.model_fields.items()}
    return {name for name, kind in annotations.items() if is_config(kind)} - Registry.all.keys()


def is_config(annotation: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def choice_names() -> set[str]:
    """The last words of keys whose value is a name, or a mapping with `kind` and options."""
    return {key.rpartition(".")[2] for key in Registry.all} | {"inner"}


def add_default_kinds(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Options without a kind belong to the default: {"position": {"clip": 3}} is relative-key's."""
    filled = dict(fields)
    for key in Registry.all:
        section, _, name = key.rpartition(".")
        owner = filled.get(section) if section else filled
        if isinstance(owner, Mapping) and isinstance(owner.get(name), Mapping):
            choice = {"kind": default_kind(key), **owner[name]}
            if section:
                filled[section] = {**owner, name: choice}
            else:
                filled[name] = choice
    return filled


def default_kind(key: str) -> str:
    config: type[BaseModel] = Experiment
    *parents, name = key.split(".")
    for parent in parents:
        config = config.model_fields[parent].annotation  # type: ignore[assignment]
    return str(config.model_fields[name].default)


def parse_overrides(arguments: Sequence[str]) -> dict[str, Any]:
    """Dotted keys from command-line words; values are YAML.

    >>> parse_overrides(["--model.width", "64", "--data.priming={10: 50}", "--layout", "compact"])
    {'model.width': 64, 'data.priming': {10: 50}, 'layout': 'compact'}
    """
    return {key: parse_scalar(text) for key, text in split_overrides(arguments)}


def split_overrides(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Dotted keys with the text of their values, from command-line words."""
    words = list(arguments)
    while words:
        word = words.pop(0)
        if not word.startswith("--") or word == "--":
            raise UsageError(
                f"'{word}' is neither a key such as --model.width nor a configuration file"
            )
        key, equals, text = word[2:].partition("=")
        key = key.replace("-", "_")
        if not equals and words and not words[0].startswith("--"):
            text = words.pop(0)
        elif not equals and key in switches():
            text = "true"
        if not text.strip():
            raise UsageError(f"--{key} needs a value")
        yield key, text


class Key(NamedTuple):
    """A configuration key, as help lists it."""

    name: str
    default: str
    description: str


def keys(chosen: Mapping[str, str] | None = None) -> Iterator[Key]:
    """The configuration keys; of a choice, the options of the kind that is chosen.

    >>> [key.name for key in keys({"layout": "fitted"}) if key.name.startswith("layout")]
    ['layout', 'layout.order', 'layout.extra_padding']
    """
    yield from section_keys(Experiment, "", chosen or {})


def chosen_kinds(fields: Mapping[str, Any]) -> dict[str, str]:
    """The kinds that nested mappings choose, for `keys`.

    >>> chosen_kinds({"task": "addition", "model": {"attention": {"kind": "local", "window": 3}}})
    {'task': 'addition', 'model.attention': 'local'}
    """
    kinds = {}
    for key, registry in Registry.all.items():
        value: Any = fields
        for name in key.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        kind = value.get("kind") if isinstance(value, Mapping) else value
        if kind is not None:
            kinds[key] = registry.parse(kind).kind
    return kinds


def section_keys(config: type[BaseModel], prefix: str, chosen: Mapping[str, str]) -> Iterator[Key]:
    for name, field in config.model_fields.items():
        key, inner = prefix + name, field.annotation
        if key in Registry.all:
            registry = Registry.all[key]
            kind = chosen.get(key, str(field.default))
            yield Key(key, kind, describe_choice(registry))
            yield from option_keys(registry, key, kind)
        elif is_config(inner):
            yield from section_keys(inner, f"{key}.", chosen)
        else:
            yield Key(key, as_json(field.default), field.description or "")


def describe_choice(registry: Registry[Any]) -> str:
    """The kinds of a choice, or where to find them if they are many."""
    if len(registry) <= 4:
        return f"one of {', '.join(registry)}"
    return f"one of {len(registry)} (`lengthwise list {registry.key.rpartition('.')[2]}s`)"


def option_keys(registry: Registry[Any], key: str, kind: str) -> Iterator[Key]:
    for option, field in registry.options_of(registry[kind]).model_fields.items():
        yield Key(f"{key}.{option}", as_json(field.default), field.description or "")


def all_keys() -> Iterator[Key]:
    """Every key, with the options of every choice."""
    yield from keys()
    for key, registry in Registry.all.items():
        for kind in registry:
            yield from option_keys(registry, key, kind)


def switches() -> set[str]:
    """The keys that are true or false; given without a value they are true."""
    return {key.name for key in all_keys() if key.default in ("true", "false")}


def explain_unknown(key: str) -> str:
    known = [known.name for known in all_keys()]
    alike = [k for k in known if k.rpartition(".")[2] == key.rpartition(".")[2]]
    known += {k.rpartition(".")[0] for k in known if "." in k}  # the sections
    close = alike[:1] if len(set(alike)) == 1 else get_close_matches(key, known, 1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'?" if close else "`lengthwise train --keys` lists all"
    return f"there is no key '{key}': {hint}"


def as_json(value: Any) -> str:
    return json.dumps(value).strip('"')
