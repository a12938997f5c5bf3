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

MULTIPLICATION: Setting = {"task": {"kind": "multiplication", "second_digits": 1}, "layout.compact": True}
PRIMED = 50
STEPS = 2700  # of all but fine-tuning
TESTS: Setting = {
    "evaluation.final_lengths": "3:10",
    "evaluation.final_examples": 500,
    "evaluation.every": 500,
    "evaluation.examples": 200,
}
SMOKE: Setting = {
    "model.preset": "tiny",
    "training.steps": 20,
    "evaluation.examples": 20,
    "evaluation.final_examples": 50,
}


def settings() -> dict[str, Setting]:
    """The five runs by name; those that are compared have the same budget. `start_from` names another of them."""
    return {
        "sum, relative-key": {"task": "addition", "model.position": "relative-key", "training.steps": STEPS},
        "sum, absolute": {"task": "addition", "model.position": "absolute", "training.steps": STEPS},
        "n×1, no priming": {**MULTIPLICATION, "training.steps": STEPS},
        "n×1, primed": {**MULTIPLICATION, "data.priming": {10: PRIMED}, "training.steps": STEPS},
        "n×1, fine-tuned": {
            **MULTIPLICATION,
            "start_from": "n×1, no priming",
            "data.train_digits": 10,
            "data.sampling": "exact",
            "data.train_size": PRIMED,
            "training.steps": 200,
            "evaluation.lengths": "5,6,10",
        },
    }


def demo(root: Path, jobs: int, again: bool, smoke: bool) -> None:
    """Train what isn't trained yet, then show all."""
    console = Console()
    runs: dict[str, Run] = {}
    for name, setting in settings().items():
        if "start_from" in setting:
            setting = {**setting, "start_from": str(runs[setting["start_from"]].path)}
        experiment = configuration.load(None, {**TESTS, **setting, **(SMOKE if smoke else {})})
        runs[name] = Run.create(experiment, root)
        if again:
            runs[name].clear()
    console.print(
        "Trained on numbers of 1 to 5 digits, tested on up to 10. Five small models (200,000 parameters each),"
        f" {jobs} at a time, a few minutes in all; finished ones aren't trained again.\n"
    )
    with Display({run.path.name: name for name, run in runs.items()}) as display:
        for run, failure in run_all(list(runs.values()), jobs, display):
            if failure:
                raise UsageError(f"{run.path} failed: {failure}")
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


Accuracies = dict[int, dict[str, Any]]


def by_length(run: Run) -> Accuracies:
    assert run.result is not None
    return {a["length"]: a for a in run.result["evaluation"]}


def table(accuracies: dict[str, Accuracies]) -> Table:
    shown = Table(
        box=box.SIMPLE_HEAD,
        title="Exact match (%) by number of digits: 3 to 5 in domain, 6 to 10 beyond",
        title_justify="left",
    )
    lengths = sorted(next(iter(accuracies.values())))
    shown.add_column("digits", no_wrap=True)
    for length in lengths:
        shown.add_column(str(length), justify="right")
    for name in sorted(accuracies, reverse=True):
        shown.add_row(name, *(f"{100 * accuracies[name][length]['exact_match']:.1f}" for length in lengths))
    problems = {a["examples"] for by_length in accuracies.values() for a in by_length.values()}
    shown.caption = f"one seed; {' or '.join(map(str, problems))} random problems a cell"
    shown.caption_justify = "left"
    return shown


def draw(accuracies: dict[str, Accuracies], path: Path) -> None:
    """Accuracy by number of digits, a panel a task, with 95 % intervals."""
    from matplotlib.figure import Figure

    panels = {
        "Addition: the position embedding decides": ["sum, relative-key", "sum, absolute"],
        "Multiplication n×1: priming": ["n×1, primed", "n×1, fine-tuned", "n×1, no priming"],
    }
    colours = ["#0072B2", "#E69F00", "#D55E00"]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (title, names) in zip(axes, panels.items(), strict=True):
        axis.axvspan(0, 5.5, color="0.93", zorder=0)
        axis.text(5.45, 3, "trained", ha="right", color="0.4")
        for name, colour, marker in zip(names, colours, "osD", strict=False):
            lengths = sorted(accuracies[name])
            shares = [100 * accuracies[name][n]["exact_match"] for n in lengths]
            low = [100 * accuracies[name][n]["low"] for n in lengths]
            high = [100 * accuracies[name][n]["high"] for n in lengths]
            axis.plot(lengths, shares, color=colour, marker=marker, label=name.partition(", ")[2])
            axis.fill_between(lengths, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.set(title=title, xlabel="digits of the first operand", xlim=(2.6, 10.4), ylim=(-3, 103))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    axes[0].set_ylabel("exact match (%)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def conclusions(accuracies: dict[str, Accuracies]) -> list[str]:
    """What the numbers support: a difference is claimed only where the 95 % intervals are apart."""

    def share(name: str, length: int) -> str:
        return percent(accuracies[name][length]["exact_match"])

    relative, absolute = "sum, relative-key", "sum, absolute"
    plain, primed, tuned = "n×1, no priming", "n×1, primed", "n×1, fine-tuned"
    six = (
        f"sums of 5 digits: relative-key {share(relative, 5)}, absolute {share(absolute, 5)};"
        f" of 6, one more than trained: {share(relative, 6)} and {share(absolute, 6)}"
    )
    ten = (
        f"products of 10 digits: {share(plain, 10)} without priming, {share(primed, 10)} with {PRIMED} primed examples"
    )
    forgets = (
        f"fine-tuning on {PRIMED} products of 10 digits brings {share(tuned, 10)} there,"
        f" and takes 5 digits from {share(plain, 5)} to {share(tuned, 5)}"
    )
    return [
        f"{six}. {verdict_on_embeddings(accuracies[relative], accuracies[absolute])}",
        f"{ten}. {verdict_on_priming(accuracies[plain], accuracies[primed])}",
        f"{forgets}. {verdict_on_forgetting(accuracies[plain], accuracies[primed], accuracies[tuned])}",
    ]


def verdict_on_embeddings(relative: Accuracies, absolute: Accuracies) -> str:
    if relative[6]["low"] <= absolute[6]["high"]:
        return "Here that shows no advantage of relative embeddings."
    if absolute[5]["low"] > 0.5 and absolute[6]["high"] < 0.1:
        return "Only relative embeddings carry over to a length that was never trained."
    return "Relative embeddings do better at a length that was never trained."


def verdict_on_priming(plain: Accuracies, primed: Accuracies) -> str:
    if primed[10]["low"] <= plain[10]["high"]:
        return "Here that shows no effect of priming."
    if primed[10]["low"] > 0.3:
        return "A handful of long examples is enough for the model to learn the length."
    return "A handful of long examples helps the model to learn the length."


def verdict_on_forgetting(plain: Accuracies, primed: Accuracies, tuned: Accuracies) -> str:
    if plain[5]["low"] <= tuned[5]["high"]:
        return "Here that shows no forgetting."
    if primed[5]["low"] > tuned[5]["high"] and primed[5]["high"] >= plain[5]["low"]:
        return "Fine-tuning forgets; priming doesn't."
    return "Fine-tuning forgets."
