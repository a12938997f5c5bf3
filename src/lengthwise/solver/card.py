"""The model card that is saved beside a model's weights, for its page on the Hub."""

from typing import TYPE_CHECKING

from huggingface_hub import ModelCard, ModelCardData

from lengthwise.solver.text import example_problem

if TYPE_CHECKING:
    from lengthwise.solver.solver import Solver

TAGS = ["arithmetic", "length-generalization", "transformer", "model_hub_mixin"]
TEXT = """---
{data}
---

# {title}

An encoder-only transformer that solves problems such as `{problem}`, trained from scratch with
`lengthwise`, a laboratory for length generalisation in arithmetic transformers. `config.json` has
every option of the model, its task and its layout.

| | |
| --- | --- |
| task | {task} |
| longest problem that the layout has room for | {digits} |
| layout | {layout} |
| position embedding | {position} |
| attention | {attention} |
| layers | {layers} |
| width, heads | {width}, {heads} |
| parameters | {parameters:,} |

```python
import lengthwise

model = lengthwise.load("PATH")  # this directory, or user/name on the Hub
print(model.solve("{problem}"))  # an integer, or None where the output is not a number
print(model.trace("{problem}").table())  # what would be read after each layer
for accuracy in lengthwise.evaluate(model, examples=100):
    print(accuracy.length, accuracy.exact_match, accuracy.interval)
```

The weights say nothing of the lengths that were seen in training. Accuracy falls beyond them, so
measure it at the lengths that you need.
"""


def make_card(solver: "Solver") -> ModelCard:
    """What the model is, its sizes, and how it is used."""
    task, layout, config = solver.task, solver.layout, solver.encoder.config
    shared = "shared weights" if config.encoder == "universal-transformer" else "own weights"
    text = TEXT.format(
        data=ModelCardData(library_name="lengthwise", tags=TAGS).to_yaml(),
        title=f"{task.kind}, {config.position.kind}, {config.layers} × {config.width}",
        problem=example_problem(layout),
        task=describe(task.kind, task.model_dump(mode="json")),
        digits="any" if layout.fits_any_length else f"{layout.digits} digits",
        layout=describe(layout.options.kind, layout.options.model_dump(mode="json")),
        position=describe(config.position.kind, config.position.model_dump(mode="json")),
        attention=config.attention.kind,
        layers=f"{config.layers}, {shared}, {config.depth.kind} depth",
        width=config.width,
        heads=config.heads,
        parameters=sum(parameter.numel() for parameter in solver.parameters()),
    )
    return ModelCard(text)


def describe(kind: str, options: dict[str, object]) -> str:
    """A choice with its options.

    >>> describe("multiplication", {"kind": "multiplication", "second_digits": 3})
    'multiplication (second_digits 3)'
    """
    shown = {n: v for n, v in options.items() if n != "kind" and v is not None}
    listed = ", ".join(f"{name} {value}" for name, value in shown.items())
    return f"{kind} ({listed})" if listed else kind
