"""One HTML file with models inside, which computes in the browser and fetches nothing."""

import base64
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.base import UsageError
from lengthwise.base.files import write_atomically
from lengthwise.solver import Solver
from lengthwise.training.experiment import Experiment
from lengthwise.training.runs import Run

STATIC = Path(__file__).parent / "static"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
# What the forward pass in JavaScript computes.
TASKS = ("addition", "elementwise-addition", "modular-addition", "multiplication",
         "modular-multiplication")  # fmt: skip
LAYOUTS = ("paper", "compact", "fitted", "long-multiplication")
POSITIONS = ("none", "absolute", "relative-key", "relative-key-query", "relative-bias")
ATTENTIONS = ("full", "local", "positional", "columns")
DEPTHS = ("fixed", "until-stable", "rewrite")
MOST_MODELS = 4
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; worker-src blob:;"
    " style-src 'unsafe-inline'; img-src data:"
)
STYLES = ("theme.css", "style.css")
IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
Json = dict[str, Any]


def export(runs: Sequence[Run], out: Path) -> int:
    """Write one file with the models of these runs; returns its size in bytes."""
    if len(runs) > MOST_MODELS:
        raise UsageError(f"a file holds up to {MOST_MODELS} models, not {len(runs)}")
    models = [describe_run(run) for run in runs]
    content = render(models).encode()
    write_atomically(out, content)
    return len(content)


def describe_run(run: Run) -> Json:
    """The model of a run, with the accuracy that was measured at its end."""
    check_support(run.path.name, run.experiment)
    evaluation = (run.result or {}).get("evaluation", [])
    kept = ("length", "examples", "exact_match", "low", "high")
    accuracy = [{key: a[key] for key in kept} for a in evaluation]
    return describe_model(run.path.name, run.experiment, run.load(), accuracy)


def describe_model(name: str, experiment: Experiment, solver: Solver, accuracy: list[Json]) -> Json:
    """A model as the JavaScript reads it: its configuration, and its weights in base64."""
    layout, tensors = solver.layout, solver.encoder.state_dict()
    flat = np.concatenate([tensor.numpy().ravel() for tensor in tensors.values()])
    if not np.isfinite(flat).all():
        raise UsageError(f"the weights of {name} are not finite numbers")
    return {
        "name": name,
        "task": experiment.task.model_dump(mode="json"),
        "symbol": experiment.task.symbol,
        "layout": experiment.layout.model_dump(mode="json"),
        "digits": experiment.data.test_digits,
        "trainDigits": experiment.data.train_digits,
        "vocabulary": list(layout.vocabulary),
        "operands": layout.n_operands,
        "maxLength": layout.length,
        "config": experiment.model.model_dump(mode="json"),
        "parameters": sum(p.numel() for p in solver.parameters()),
        "accuracy": accuracy,
        "tensors": [[key, tensor.numel()] for key, tensor in tensors.items()],
        "weights": base64.b64encode(flat.astype("<f4").tobytes()).decode(),
    }


def check_support(name: str, experiment: Experiment) -> None:
    """Raise a UsageError where the JavaScript would not compute what the model does."""
    model = experiment.model
    parts = {
        "task": (experiment.task.kind, TASKS),
        "layout": (experiment.layout.kind, LAYOUTS),
        "position embedding": (model.position.kind, POSITIONS),
        "attention": (model.attention.kind, ATTENTIONS),
        "depth": (model.depth.kind, DEPTHS),
    }
    for noun, (kind, supported) in parts.items():
        if kind not in supported:
            raise UsageError(
                f"{name} has the {noun} '{kind}', but a file computes only {', '.join(supported)}"
            )
    if experiment.layout.kind == "long-multiplication" and model.attention.kind != "columns":
        raise UsageError(
            f"{name} has the layout 'long-multiplication' and the attention"
            f" '{model.attention.kind}', but a file computes this layout with columns only"
        )
    coordinate = getattr(model.position, "coordinate", None)
    if model.attention.kind == "columns" and coordinate != "significance":
        raise UsageError(
            f"{name} has the attention 'columns' over {coordinate}, but a file computes it over"
            " significance only"
        )


def render(models: Sequence[Json]) -> str:
    """The file: style, models, the forward pass for a worker, and the page's code."""
    title = html.escape(" and ".join(model["name"] for model in models))
    # JSON in a script element must not contain the end of one.
    data = json.dumps(models, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    template = (STATIC / "exported.html").read_text()
    parts = {
        "{{policy}}": POLICY,
        "{{title}}": title,
        "{{style}}": "".join((STATIC / name).read_text() for name in STYLES),
        "{{models}}": data,
        "{{worker}}": bundle("worker.js"),
        "{{code}}": bundle("exported.js"),
    }
    return re.sub("|".join(map(re.escape, parts)), lambda match: parts[match[0]], template)


def bundle(entry: str) -> str:
    """A module and all that it imports, as one script: the text of each, without the imports.

    Every module is written so that this works: it imports names from files beside it, exports
    where it defines, and shares no name with another.
    """
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for imported in IMPORT.findall((STATIC / name).read_text()):
            visit(imported)
        order.append(name)

    visit(entry)
    texts = [IMPORT.sub("", (STATIC / name).read_text()) for name in order]
    return "\n".join(re.sub(r"^export (?=\w)", "", text, flags=re.MULTILINE) for text in texts)
