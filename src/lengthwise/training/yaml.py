"""YAML in which 1e-3 is a number, 6:35 and dates are text, and no key is given twice."""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from lengthwise.base import UsageError
from lengthwise.base.trees import MOST_VALUES, check_tree

MOST_BYTES = 1_000_000  # of a configuration; those that runs write have about 2,000


class Rules(yaml.constructor.SafeConstructor):
    """YAML 1.1 but for numbers: there 1e-3 is text, and 6:35 is 6·60 + 35."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        line, before = node.start_mark.line + 1, set()
        for key in keys:
            if not isinstance(key, Hashable):
                raise yaml.YAMLError(f"a key is {key!r} in the mapping that starts in line {line}")
            if key in before:
                raise UsageError(
                    f"'{key}' is given twice in the mapping that starts in line {line}"
                )
            before.add(key)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MOST_VALUES:  # merge keys (<<) can multiply
            raise yaml.YAMLError("it has too many values")


class Loader(Rules, yaml.SafeLoader):
    """Reads what people write: whatever is wrong with it is explained."""


class FastLoader(Rules, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads the same, in C where PyYAML has it, for what lengthwise wrote itself."""


FastDumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C where PyYAML has it
NUMBERS = {
    "int": r"[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][-+]?[0-9]+)?",
}
REPLACED = (*NUMBERS, "timestamp")  # nothing here is a date
for loader in (Loader, FastLoader):
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in REPLACED]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for name, pattern in NUMBERS.items():
        first = list("-+.0123456789")
        loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"{pattern}$"), first)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)  # a device may have no end
    except OSError as error:
        raise UsageError(f"can't read the configuration {path}: {error.strerror}") from None
    return parse_yaml(content, str(path))


def parse_yaml(
    content: bytes, source: str, loader: type[Loader | FastLoader] = Loader
) -> dict[str, Any]:
    """The mapping in the content of a YAML file; `source` names it in errors."""
    if len(content) > MOST_BYTES:
        raise UsageError(f"{source} has more than {MOST_BYTES} bytes, so it is no configuration")
    try:
        fields = load(content.decode(), loader)
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not YAML: {error}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{source} is not YAML: {' '.join(str(error).split())}") from None
    if fields is not None and not isinstance(fields, dict):
        raise UsageError(f"{source} should be a mapping of keys such as task and model")
    return fields or {}


def parse_scalar(text: str) -> Any:
    """A value as YAML reads it; anything else is text."""
    try:
        return load(text)
    except yaml.YAMLError:
        return text


def load(text: str, loader: type[Loader | FastLoader] = Loader) -> Any:
    """The value that YAML describes; whatever goes wrong is a `yaml.YAMLError`."""
    try:
        value = yaml.load(text, loader)
    except (yaml.YAMLError, UsageError):
        raise
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None
    except Exception as error:  # a constructor's: of `!!int x`, `!!timestamp 2001-99-99`, …
        raise yaml.YAMLError(str(error)) from None
    check_tree(value)
    return value


def write_yaml(fields: dict[str, Any]) -> str:
    text: str = yaml.dump(fields, Dumper=FastDumper, sort_keys=False, allow_unicode=True)
    return text
