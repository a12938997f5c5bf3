"""`lengthwise list`: the registered choices."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from lengthwise.cli.arguments import add_json
from lengthwise.cli.command import Command, Parser, command
from lengthwise.cli.output import print_json, print_table

Entry = dict[str, Any]  # name, description, options with their defaults


@command
class List(Command):
    """List what can be chosen: tasks, layouts, position embeddings, …"""

    name = "list"
    example = "lengthwise list positions"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument(
            "what", nargs="?", help="such as tasks or positions (default: show all these words)"
        )
        add_json(parser)

    def run(self, chosen: argparse.Namespace) -> None:
        from lengthwise.base import UsageError, nearest

        lists = find_lists()
        if chosen.what is None:
            print("\n".join(lists))
            return
        if chosen.what not in lists:
            raise UsageError(f"there is no list '{chosen.what}': {nearest(chosen.what, lists)}")
        entries = lists[chosen.what]()
        if chosen.json:
            print_json(entries)
            return
        rows = [[entry["name"], describe(entry)] for entry in entries]
        print_table([chosen.what.removesuffix("s"), "what it is"], rows)


def find_lists() -> dict[str, Callable[[], list[Entry]]]:
    """The lists by name: one for each registry of choices, and those of plain functions."""
    from functools import partial

    from lengthwise.base import Registry
    from lengthwise.evaluation.stress import CASES
    from lengthwise.frontier.records import RECORDS
    from lengthwise.model import PRESETS
    from lengthwise.problems.mixtures import MIXTURES
    from lengthwise.sweep import ENGINES
    from lengthwise.training import experiment  # noqa: F401  # defines the last registries

    lists: dict[str, Callable[[], list[Entry]]] = {
        f"{key.rpartition('.')[2]}s": partial(list_registry, registry)
        for key, registry in Registry.all.items()
    }
    descriptions: dict[str, Mapping[str, str]] = {
        "mixtures": {name: summary(rewrite) for name, rewrite in MIXTURES.items()},
        "cases": {name: case.description for name, case in CASES.items()},
        "records": {name: record.title for name, record in RECORDS.items()},
    }
    for name, entries in descriptions.items():
        lists[name] = partial(list_descriptions, entries)
    lists["engines"] = lambda: [
        {"name": name, "description": summary(cls), "options": cls.defaults()}
        for name, cls in ENGINES.items()
    ]
    lists["presets"] = lambda: [
        {"name": name, "description": "", "options": fields} for name, fields in PRESETS.items()
    ]
    return lists


def list_registry(registry: Any) -> list[Entry]:
    return [
        {
            "name": name,
            "description": summary(cls),
            "options": {
                option: field.default
                for option, field in registry.options_of(cls).model_fields.items()
            },
        }
        for name, cls in registry.items()
    ]


def list_descriptions(descriptions: Mapping[str, str]) -> list[Entry]:
    return [
        {"name": name, "description": text, "options": {}} for name, text in descriptions.items()
    ]


def describe(entry: Entry) -> str:
    options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
    if entry["description"] and options:
        return f"{entry['description']} Options: {options}."
    return entry["description"] or options


def summary(documented: object) -> str:
    """The first line of a docstring."""
    return (documented.__doc__ or "").strip().partition("\n")[0]
