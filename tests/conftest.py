"""What all tests share: reproducible hypothesis, one thread, and the tasks over which contracts are tested."""

import hypothesis
import pytest
import torch

from lengthwise.extensions import import_files
from lengthwise.tasks import TASKS, Task

hypothesis.settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.load_profile("reproducible")
torch.set_num_threads(1)
import_files()  # those that LENGTHWISE_IMPORT names, whose contracts are then tested, too

collect_ignore = ["parity.py"]  # a script for an environment that has transformers

OPTIONS = [
    {"kind": "addition", "operands": 3},
    {"kind": "addition", "operands": 12},
    {"kind": "modular-addition", "modulus": 2},
    {"kind": "modular-addition", "modulus": 10**20},
    {"kind": "modular-addition", "modulus": 1000, "constant_length": True},
    {"kind": "multiplication", "second_digits": 1},
    {"kind": "multiplication", "second_digits": None},
    {"kind": "modular-multiplication", "modulus": 101, "second_digits": 2},
    {"kind": "modular-multiplication", "modulus": 128, "constant_length": True},
    {"kind": "modular-multiplication", "modulus": 10**20, "second_digits": None},
]


@pytest.fixture(
    params=[*({"kind": kind} for kind in TASKS), *OPTIONS], ids=lambda fields: "-".join(map(str, fields.values()))
)
def task(request: pytest.FixtureRequest) -> Task:
    """Every registered task with its defaults, and some with other options."""
    return TASKS.parse(request.param)
