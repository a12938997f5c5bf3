"""The paper in miniature: five short runs, one table, one figure, and what the numbers say."""

import shutil
import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lengthwise import experiment as configuration
from lengthwise.display import Display, percent
from lengthwise.errors import UsageError
from lengthwise.runs import Run
from lengthwise.sweep import run_all

Setting = dict[str, Any]

MODEL: Setting = {"model.preset": "small", "evaluation.every": 1000, "evaluation.examples": 250}
ADDITION: Setting = {**MODEL, "task": "addition"}
MULTIPLICATION: Setting = {
    **MODEL,
    "task": {"kind": "multiplication", "second_digits": 1},
    "layout.compact": True,
}
PRIMED = 50
SMOKE: Setting = {"training.steps": 20, "evaluation.final_examples": 50, "evaluation.examples": 20}


def settings() -> dict[str, Setting]:
    """The five runs by name; the longest first, which keeps both cores busy to the end."""
    return {
        "n×1, no priming": {**MULTIPLICATION, "training.steps": 3000},
        "sum, relative-key": {**ADDITION, "model.position": "relative-key", "training.steps": 5000},
        "n×1, primed": {**MULTIPLICATION, "data.priming": {10: PRIMED}, "training.steps": 4000},
        "sum, absolute": {**ADDITION, "model.position": "absolute", "training.steps": 3000},
        "n×1, fine-tuned": {
            **MULTIPLICATION,
            "data.train_digits": 10,
            "data.sampling": "exact",
            "data.train_size": PRIMED,
            "evaluation.lengths": "5,6,10",
            "evaluation.final_lengths": "5:10",
            "training.steps": 500,
        },
    }


def demo(root: Path, jobs: int, again: bool, smoke: bool) -> None:
    """Train what isn't trained yet, then show all."""
    console = Console()
    runs: dict[str, Run] = {}
    for name, setting in settings().items():
        if "fine-tuned" in name:
            setting = {**setting, "start_from": str(runs["n×1, no priming"].path)}
        experiment = configuration.load(None, {**setting, **(SMOKE if smoke else {})})
        runs[name] = Run.create(experiment, root)
        if again:
            runs[name].clear()
    console.print(
        "Trained on numbers of 1 to 5 digits, tested on up to 10. Five small models (50,000 parameters),"
        f" {jobs} at a time; finished ones aren't trained again.\n"
    )
    with Display({run.path.name: name for name, run in runs.items()}) as display:
        failed = run_all(list(runs.values()), jobs, display)
    for path, reason in failed.items():
        raise UsageError(f"{path} failed: {reason}")
    accuracies = {name: by_length(run) for name, run in runs.items()}
    console.print(table(accuracies))
    figure = root / "demo.png"
    draw(accuracies, figure)
    for sentence in conclusions(accuracies):
        console.print(f"• {sentence}", highlight=False)
    command = "lengthwise" if shutil.which("lengthwise") else sys.argv[0]
    console.print(f"\nThe figure is {figure}. Ask the models yourself:", highlight=False)
    for name, problem in {"sum, relative-key": "999999 + 123456", "n×1, primed": "1234567890 x 7"}.items():
        console.print(f'  {command} solve {runs[name].path} "{problem}"', highlight=False, soft_wrap=True)
