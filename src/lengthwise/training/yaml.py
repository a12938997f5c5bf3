"""YAML in which 1e-3 is a number, 6:35 is text, and no key is given twice."""

import re
from pathlib import Path
from typing import Any

import yaml

from lengthwise.base import UsageError


class Loader(yaml.SafeLoader):
    """YAML 1.1 but for numbers: there 1e-3 is text, and 6:35 is 6·60 + 35."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if isinstance(key, str) and keys.count(key) > 1:
                line = node.start_mark.line + 1
                raise UsageError(
                    f"'{key}' is given twice in the mapping that starts in line {line}"
                )
        return super().construct_mapping(node, deep)


NUMBERS = {
    "int": r"[-+]?(0|[1-9][0-9]*)",
    "float": r"[-+]?([0-9]+\.[0-9]*|\.?[0-9]+)([eE][-+]?[0-9]+)?",
}
Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if tag.rpartition(":")[2] not in NUMBERS]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for name, pattern in NUMBERS.items():
    first = list("-+.0123456789")
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"{pattern}$"), first)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        fields = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise UsageError(f"can't read the configuration {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if fields is not None and not isinstance(fields, dict):
        raise UsageError(f"{path} should be a mapping of keys such as task and model")
    return fields or {}


def parse_scalar(text: str) -> Any:
    """A value as YAML reads it; anything else is text."""
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError:
        return text


def write_yaml(fields: dict[str, Any]) -> str:
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
