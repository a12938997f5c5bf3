"""Small encoders and problems for them, which several tests use."""

from typing import Any, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from lengthwise.arithmetic.tasks import TASKS, Task
from lengthwise.model import Encoder, ModelConfig
from lengthwise.problems.layouts import LAYOUTS, Coordinates, Layout
from lengthwise.problems.sampling import sample_numbers

MOST_FIRST, LEAST_FIRST = ORDERS = get_args(Layout.Options.model_fields["order"].annotation)
SMALL = {"layers": 2, "width": 8, "heads": 2}
LONGEST = 40  # tokens of the problems below

# Sums of two and three numbers, products whose second operand is shared, and rows.
PROBLEMS: dict[str, tuple[object, object]] = {
    "sum": ("addition", {"kind": "compact", "order": MOST_FIRST}),
    "sum-from-units": ("addition", {"kind": "compact", "order": LEAST_FIRST}),
    "three": ({"kind": "addition", "operands": 3}, {"kind": "fitted", "order": LEAST_FIRST}),
    "product": (
        {"kind": "multiplication", "second_digits": 2},
        {"kind": "compact", "order": MOST_FIRST},
    ),
    "product-from-units": (
        {"kind": "multiplication", "second_digits": 2},
        {"kind": "compact", "order": LEAST_FIRST},
    ),
    "running-sums": ({"kind": "addition", "operands": 3}, "running-sums"),
    "grid": ({"kind": "multiplication", "second_digits": 2}, "grid"),
    "rows": ({"kind": "multiplication", "second_digits": 2}, "long-multiplication"),
}


class Problems(NamedTuple):
    """What an encoder takes."""

    tokens: Tensor
    coordinates: Coordinates[Tensor]
    n_out: int

    def row(self, i: int) -> "Problems":
        """One example alone."""

        def cut(values: Tensor) -> Tensor:
            return values[i : i + 1] if values.dim() == 2 else values

        return Problems(self.tokens[i : i + 1], self.coordinates.map(cut), self.n_out)

    @property
    def length(self) -> int:
        return self.tokens.shape[1]


def problems(name: str = "sum", count: int = 4, digits: int = 4) -> Problems:
    """Problems whose operands have different lengths."""
    task_options, layout_options = PROBLEMS[name]
    task: Task = TASKS.parse(task_options)  # type: ignore[assignment]
    layout = LAYOUTS.build(LAYOUTS.parse(layout_options), task, digits)
    rng = np.random.default_rng(0)
    most_digits = task.operand_digits(digits)
    operands = tuple(sample_numbers(rng, "uniform-length", np.full(count, n)) for n in most_digits)
    coordinates = layout.coordinates(operands).map(torch.from_numpy)
    return Problems(torch.from_numpy(layout.encode(operands)), coordinates, layout.n_supervised)


def encoder_of(max_length: int = LONGEST, **fields: Any) -> Encoder:
    """An encoder in which every bias and norm has an effect, in testing mode."""
    config = ModelConfig.model_validate({**SMALL, **fields})
    encoder = Encoder(config, max_length, operands=4)
    rng = torch.Generator().manual_seed(0)
    encoder.initialise(rng)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng), alpha=0.2)
    return encoder.eval()
