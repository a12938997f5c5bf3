"""Which code of a user's own an experiment uses: it counts for the identity of a run."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lengthwise.base import Choice, Registry
from lengthwise.base.code import digest, find_file, is_own
from lengthwise.problems.mixtures import MIXTURES

if TYPE_CHECKING:
    from lengthwise.training.experiment import Experiment

CODE = "code.json"  # in a run's directory
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"  # bytecode differs between them


def own_code(experiment: "Experiment") -> dict[str, str]:
    """Digests of the classes and functions of the user's own, such as {"task larger": "3f…"}."""
    return {label: digest(value) for label, value in own_parts(experiment).items()}


def own_parts(experiment: "Experiment") -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for key, registry in Registry.all.items():
        value: Any = experiment
        for name in key.split("."):
            value = getattr(value, name)
        for choice in walk(value):
            parts[f"{registry.noun} {choice.kind}"] = registry[choice.kind]
    parts |= {f"mixture {name}": MIXTURES[name] for name in experiment.data.mixture}
    return {label: value for label, value in parts.items() if is_own(value)}


def walk(choice: Choice) -> Iterator[Choice]:
    """A choice, and those among its options, such as the embedding that another one randomises."""
    yield choice
    for name in type(choice).model_fields:
        if isinstance(inner := getattr(choice, name), Choice):
            yield from walk(inner)


def record_code(experiment: "Experiment") -> dict[str, Any]:
    """What a run keeps of the user's own code: digests, and the files to import."""
    return {"python": PYTHON, "digests": own_code(experiment), "files": code_files(experiment)}


def code_files(experiment: "Experiment") -> dict[str, str | None]:
    """The files of the user's own code; None for what was defined in a notebook."""
    return {label: find_file(value) for label, value in own_parts(experiment).items()}


def changed_parts(experiment: "Experiment", recorded: Mapping[str, Any]) -> list[str]:
    """The parts whose code is another one than recorded, as far as this Python can tell."""
    if recorded.get("python") != PYTHON:
        return []
    now = own_code(experiment)
    return [label for label, before in recorded["digests"].items() if now.get(label) != before]


def missing_code(recorded: Mapping[str, Any]) -> str | None:
    """The user's own code that a run needs and that isn't loaded, in words; None: nothing."""
    loaded = {f"{r.noun} {kind}" for r in Registry.all.values() for kind in r}
    loaded |= {f"mixture {name}" for name in MIXTURES}
    files = {label: file for label, file in recorded["files"].items() if label not in loaded}
    if not files:
        return None
    options = dict.fromkeys(f"--import {shlex.quote(file)}" for file in files.values() if file)
    where = [*options] or ["defined in a notebook"]
    return f"code that is not imported: the {', the '.join(files)} ({' '.join(where)})"
