"""The paper in miniature: five short runs, one table, one figure, three conclusions."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lengthwise.base import UsageError
from lengthwise.paper.scales import Overrides
from lengthwise.sweep import Local, run_all
from lengthwise.training import keys
from lengthwise.training.display import Display, percent
from lengthwise.training.runs import Run

SUMS: Overrides = {
    "task": "addition",
    "data.test_digits": 20,
    "training.steps": 3000,
    "evaluation.lengths": "5,6,15",
    "evaluation.final_lengths": "4,5,6,8,10,15,20",
}
PRODUCTS: Overrides = {
    "task": {"kind": "multiplication", "second_digits": 1},
    "layout": "compact",
    "training.steps": 2700,
    "evaluation.final_lengths": "4,5,6,8,10",
}
PRIMED = 50
FAR = 15  # digits
COMMON: Overrides = {
    "model.heads": 8,
    "training.optimizer": "muon",
    "training.learning_rate": 4e-3,  # as in the cpu scale's sums (paper/scales.py)
    "evaluation.final_examples": 500,
    "evaluation.every": 500,
    "evaluation.examples": 200,
}
SMOKE: Overrides = {
    "model.preset": "tiny",
    "training.steps": 20,
    "evaluation.examples": 20,
    "evaluation.final_examples": 50,
}
RELATIVE, ABSOLUTE = "sum, relative-key", "sum, absolute"
UNPRIMED, WITH_PRIMING, FINE_TUNED = "n×1, no priming", "n×1, primed", "n×1, fine-tuned"
EXPERIMENTS: dict[str, Overrides] = {
    RELATIVE: {**SUMS, "model.position": "relative-key"},
    ABSOLUTE: {**SUMS, "model.position": "absolute"},
    UNPRIMED: PRODUCTS,
    WITH_PRIMING: {**PRODUCTS, "data.priming": {10: PRIMED}},
    FINE_TUNED: {
        **PRODUCTS,
        "start_from": UNPRIMED,  # by its name here
        "data.train_digits": 10,
        "data.sampling": "exact",
        "data.train_size": PRIMED,
        "training.steps": 200,
        "evaluation.lengths": "5,6,10",
    },
}
Accuracies = Mapping[
    int, Mapping[str, Any]
]  # by length: exact_match with its interval, low to high


def demo(root: Path, jobs: int, again: bool, smoke: bool) -> None:
    """Train the runs that aren't finished, then show all."""
    console = Console()
    runs = create_runs(root, again, smoke)
    console.print(
        "Trained on numbers of 1 to 5 digits, tested on sums of up to 20 and products of up to 10."
        f" Five small models (200,000 parameters each), {jobs} at a time, a few minutes in all;"
        " finished ones aren't trained again.\n"
    )
    with Display({run.path.name: name for name, run in runs.items()}) as display:
        for run, failure in run_all(list(runs.values()), Local(jobs), display):
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
    for name, problem in {RELATIVE: "999999999999999 + 1", WITH_PRIMING: "1234567890 x 7"}.items():
        line = f'  {command} solve {runs[name].path} "{problem}"'
        console.print(line, highlight=False, soft_wrap=True)


def create_runs(root: Path, again: bool, smoke: bool) -> dict[str, Run]:
    """The five runs by name; those that are compared have the same budget."""
    runs: dict[str, Run] = {}
    for name, overrides in EXPERIMENTS.items():
        fields = {**COMMON, **overrides, **(SMOKE if smoke else {})}
        if "start_from" in fields:
            fields["start_from"] = str(runs[fields["start_from"]].path)
        runs[name] = Run.create(keys.load(None, fields), root)
        if again:
            runs[name].clear()
    return runs


def by_length(run: Run) -> Accuracies:
    assert run.result is not None
    return {a["length"]: a for a in run.result["evaluation"]}


def table(accuracies: Mapping[str, Accuracies]) -> Table:
    title = "Exact match (%) by number of digits: up to 5 in domain, from 6 on beyond"
    shown = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    lengths = sorted({length for tested in accuracies.values() for length in tested})
    shown.add_column("digits", no_wrap=True)
    for length in lengths:
        shown.add_column(str(length), justify="right")
    for name in sorted(accuracies, reverse=True):
        tested = accuracies[name]
        cells = [f"{100 * tested[n]['exact_match']:.1f}" if n in tested else "" for n in lengths]
        shown.add_row(name, *cells)
    problems = {a["examples"] for tested in accuracies.values() for a in tested.values()}
    shown.caption = f"one seed; {' or '.join(map(str, problems))} random problems a cell"
    shown.caption_justify = "left"
    return shown


def draw(accuracies: Mapping[str, Accuracies], path: Path) -> None:
    """Accuracy by number of digits, a panel for each task, with 95 % intervals."""
    from matplotlib.figure import Figure

    panels = {
        "Addition: the position embedding decides": [RELATIVE, ABSOLUTE],
        "Multiplication n×1: priming": [WITH_PRIMING, FINE_TUNED, UNPRIMED],
    }
    colours = ["#0072B2", "#E69F00", "#D55E00"]
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (title, names) in zip(axes, panels.items(), strict=True):
        axis.axvspan(0, 5.5, color="0.93", zorder=0)
        axis.text(5.45, 3, "trained", ha="right", color="0.4")
        for name, colour, marker in zip(names, colours, "osD", strict=False):
            tested = accuracies[name]
            lengths = sorted(tested)
            shares, low, high = (
                [100 * tested[n][key] for n in lengths] for key in ("exact_match", "low", "high")
            )
            label = name.partition(", ")[2]
            axis.plot(lengths, shares, color=colour, marker=marker, label=label)
            axis.fill_between(lengths, low, high, color=colour, alpha=0.2, linewidth=0)
        longest = max(accuracies[names[0]])
        axis.set(title=title, xlabel="digits", xlim=(3.6, longest + 0.4), ylim=(-3, 103))
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False)
    axes[0].set_ylabel("exact match (%)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def conclusions(accuracies: Mapping[str, Accuracies]) -> list[str]:
    """What the numbers support: a difference counts where the 95 % intervals are apart."""

    def share(name: str, length: int) -> str:
        return percent(accuracies[name][length]["exact_match"])

    embeddings = (
        f"Sums of 5 digits: relative-key {share(RELATIVE, 5)}, absolute {share(ABSOLUTE, 5)};"
        f" of {FAR}, three times as long: {share(RELATIVE, FAR)} and {share(ABSOLUTE, FAR)}"
    )
    priming = (
        f"Products of 10 digits: {share(UNPRIMED, 10)} without priming, {share(WITH_PRIMING, 10)}"
        f" with {PRIMED} primed examples"
    )
    forgetting = (
        f"Fine-tuning on {PRIMED} products of 10 digits brings {share(FINE_TUNED, 10)} there,"
        f" and takes 5 digits from {share(UNPRIMED, 5)} to {share(FINE_TUNED, 5)}"
    )
    unprimed, primed = accuracies[UNPRIMED], accuracies[WITH_PRIMING]
    return [
        f"{embeddings}. {conclude_embeddings(accuracies[RELATIVE], accuracies[ABSOLUTE])}",
        f"{priming}. {conclude_priming(unprimed, primed)}",
        f"{forgetting}. {conclude_forgetting(unprimed, primed, accuracies[FINE_TUNED])}",
    ]


def conclude_embeddings(relative: Accuracies, absolute: Accuracies) -> str:
    if relative[FAR]["low"] <= absolute[FAR]["high"]:
        return "Here that shows no advantage of relative embeddings."
    if absolute[5]["low"] > 0.5 and absolute[6]["high"] < 0.1:
        return "Only relative embeddings carry over to lengths that were never trained."
    return "Relative embeddings do better at lengths that were never trained."


def conclude_priming(unprimed: Accuracies, primed: Accuracies) -> str:
    if primed[10]["low"] <= unprimed[10]["high"]:
        return "Here that shows no effect of priming."
    if primed[10]["low"] > 0.3:
        return "A handful of long examples is enough for the model to learn the length."
    return "A handful of long examples helps the model to learn the length."


def conclude_forgetting(unprimed: Accuracies, primed: Accuracies, tuned: Accuracies) -> str:
    if unprimed[5]["low"] <= tuned[5]["high"]:
        return "Here that shows no forgetting."
    if primed[5]["low"] > tuned[5]["high"] and primed[5]["high"] >= unprimed[5]["low"]:
        return "Fine-tuning forgets; priming doesn't."
    return "Fine-tuning forgets."
