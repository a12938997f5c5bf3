"""What every registered choice has in common, whoever registered it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import TASK_OPTIONS

from lengthwise.arithmetic.tasks import TASKS, Addition, ModularAddition, Task
from lengthwise.base import Registry, UsageError
from lengthwise.model import ModelConfig
from lengthwise.problems.mixtures import MIXTURES
from lengthwise.training.experiment import Experiment

TESTS = Path(__file__).parent
REGISTRIES = ["task", "layout", "model.position", "model.attention", "model.depth"]
CHOICES = [
    *(("task", options) for options in TASK_OPTIONS),
    *((key, {"kind": kind}) for key in REGISTRIES[1:] for kind in Registry.all[key]),
]


def test_options_survive_json() -> None:
    for key, value in CHOICES:
        registry = Registry.all[key]
        options = registry.parse(value)
        parsed = registry.parse(json.loads(json.dumps(options.model_dump(mode="json"))))
        assert parsed == options
        assert type(parsed) is type(options)
        assert options.kind == value["kind"]
        assert registry.parse(value["kind"]).kind == value["kind"]
        assert registry.parse(options) is options


def test_every_registry_stands_in_the_experiment() -> None:
    assert set(REGISTRIES) <= set(Registry.all)
    for key, registry in Registry.all.items():
        section: Any = Experiment()
        for name in key.split("."):
            section = getattr(section, name)
        assert section.kind in registry


@pytest.mark.parametrize("key", REGISTRIES)
def test_a_misspelt_name_or_option_gets_the_nearest(key: str) -> None:
    registry = Registry.all[key]
    for kind in registry:
        with pytest.raises(
            UsageError, match=f"there is no {registry.noun} '{kind}x': did you mean"
        ):
            registry.parse(f"{kind}x")
        for option in registry.options_of(registry[kind]).model_fields:
            with pytest.raises(UsageError, match=f"'{option}x'.*did you mean '{option}'"):
                registry.parse({"kind": kind, f"{option}x": 2})


IMPOSSIBLE: list[tuple[object, str]] = [
    ("sum", r"there is no task 'sum': known: addition, "),
    ({"kind": "elementwise-addition", "modulus": 7}, "has no option 'modulus': it has none"),
    ({"kind": "modular-addition", "modulus": 1}, r"modulus.* 1, .*greater than 1"),
    ({"kind": "addition", "operands": True}, r"operands.* True, but it can't be true"),
    ({"modulus": 7}, "task is a name or a mapping with 'kind', not"),
    (3, "task is a name or a mapping with 'kind', not 3"),
]


def test_an_impossible_choice_is_explained_in_a_sentence() -> None:
    for value, sentence in IMPOSSIBLE:
        with pytest.raises(UsageError, match=sentence) as caught:
            TASKS.parse(value)
        assert "\n" not in str(caught.value)


def test_a_name_belongs_to_one_class_which_may_be_defined_again() -> None:
    def define() -> type[Task]:
        class Again(Addition):
            """x₁ + x₂"""

        return Again

    names: Registry[Task] = Registry("task", "test-only")
    try:
        names.register("again")(define())
        last = names.register("again")(define())
        assert names["again"] is last
        with pytest.raises(UsageError, match=r"the task 'again' exists already: .*Again"):
            names.register("again")(ModularAddition)
    finally:
        del Registry.all["test-only"]


def test_a_choice_of_another_registry_is_an_error() -> None:
    attention = Registry.all["model.attention"].parse("full")
    with pytest.raises((UsageError, ValueError), match="position"):
        ModelConfig(position=attention)


def test_a_users_choices_get_the_same_contract_tests() -> None:
    """In a process of its own, since what a file registers stays."""
    environment = {**os.environ, "LENGTHWISE_IMPORT": str(TESTS / "own_choices.py")}
    options = ["-n", "0", "-p", "no:cacheprovider", "-q", "-k", "own-"]
    files = ["tasks", "problems", "layout", "positions", "model"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-rA", *(f"test_{name}.py" for name in files)],
        cwd=TESTS,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    passed = [line for line in done.stdout.splitlines() if line.startswith("PASSED")]
    for name in ("subtraction", "spacious", "distance", "capped", "linear", "averaged", "ones"):
        tests = {line.split("::")[1].split("[")[0] for line in passed if f"own-{name}" in line}
        assert len(tests) >= (1 if name in ("averaged", "ones") else 2), (name, tests)
    assert not MIXTURES.keys() & {"own-ones"}
