"""A length record as people read it: a page of Markdown, and a figure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lengthwise.display import percent
from lengthwise.paper import drawing
from lengthwise.solver import shortened

MOST_SHOWN = 12  # failures


def draw(written: Mapping[str, Any], path: Path) -> None:
    """Exact match by number of digits: the mean over seeds, with a band from the worst to the best."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    trials = written["trials"]
    for i, (label, trial) in enumerate(trials.items()):
        seeds = {int(n): tested["by seed"] for n, tested in trial["lengths"].items()}
        told = f"{label} ({len(trial['seeds'])} seed{'s' * (len(trial['seeds']) > 1)})"
        width = 1.5 + 1.4 * (len(trials) - 1 - i)  # so that lines on top of each other are all seen
        drawing.line(axis, seeds, told, drawing.COLOURS[i % len(drawing.COLOURS)], width=width)
    longest = max(trial["config"]["data"]["train_digits"] for trial in trials.values())
    axis.axvspan(1, longest, color="0.93", zorder=0)
    axis.text(longest, 3, "trained ", ha="right", color="0.4")
    lengths = sorted({1, *(int(n) for trial in trials.values() for n in trial["lengths"])})
    drawing.ticks(axis, [n for n, following in pairwise([*lengths, 2 * lengths[-1]]) if following > 1.1 * n])
    drawing.percent(axis)
    axis.set(xlabel="digits of the first number", xlim=(1, None))
    axis.set_title(written["title"], fontsize=10, wrap=True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=130)


def page(written: Mapping[str, Any]) -> Iterator[str]:
    """The record as Markdown."""
    yield f"# Record: {written['title']}\n"
    yield f"![exact match by number of digits]({written['record']}.png)\n"
    before: Sequence[str] = ()
    for label, trial in written["trials"].items():
        yield f"## {label}\n"
        if trial["runs"] == before:
            yield "The same models.\n"
        else:
            yield from training_of(trial, written["record"])
        before = trial["runs"]
        yield "| digits | exact match, mean over seeds | worst seed | 95 % interval | problems a seed | aim |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for n, a in trial["lengths"].items():
            goal = a["goal"]
            aim = "" if goal is None else f"{percent(goal)}: {'reached' if a['mean'] >= goal else 'missed'}"
            interval = f"{100 * a['low']:.2f}–{100 * a['high']:.2f} %"
            cells = [f"{n}", percent(a["mean"]), percent(a["worst"]), interval, f"{a['problems a seed']}", aim]
            yield f"| {' | '.join(cells)} |"
        if trial["stress"]:
            yield "\n### Stress\n"
            shallow = (
                "; then the mean of the same models with their layers applied"
                f" {trial['config']['model']['layers']} times only, the least in training"
            )
            told = shallow if trial["stress, no deeper than trained"] else ""
            yield f"Exact match, mean over seeds, with the worst seed where it differs{told}.\n"
            yield from stress_table(trial["stress"], trial["stress, no deeper than trained"])
            yield from failure_list(trial["stress"])
        yield ""


def training_of(trial: Mapping[str, Any], name: str) -> Iterator[str]:
    seeds = ", ".join(map(str, trial["seeds"]))
    minutes = ", ".join(f"{m:g}" for m in trial["minutes of training"])
    yield (
        f"{trial['parameters']:,} parameters; seeds {seeds}; {minutes} minutes of training, each on one core beside"
        f" whatever else ran. Made by `lengthwise record {name} --seed {trial['seeds'][0]} --seeds"
        f" {len(trial['seeds'])}`. The model is the one at the end of training; no checkpoint is chosen.\n"
    )
    yield "Seen in training: " + "; ".join(f"{k} {v}" for k, v in trial["seen in training"].items()) + ".\n"


def failure_list(cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    failures = [(c["case"], f) for c in cases for f in c["failures"]][:MOST_SHOWN]
    if failures:
        yield "\nSome of what it gets wrong:\n"
    for case, f in failures:
        problem = " ".join(map(shortened, f["problem"].split()))
        yield f"- {case}: {problem} is {shortened(f['correct'])}, not {shortened(f['answer'] or 'a number at all')}"


def stress_table(deep: Sequence[Mapping[str, Any]], shallow: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    lengths = sorted({c["length"] for c in deep})
    yield "| case | " + " | ".join(f"{n} digits" for n in lengths) + " |"
    yield "| --- |" + " --- |" * len(lengths)
    rows: dict[str, dict[int, str]] = {}
    for c, s in zip(deep, shallow or [{}] * len(deep), strict=True):
        worst = "" if c["worst"] == c["mean"] else f" (worst {percent(c['worst'])})"
        row = rows.setdefault(f"{c['case']} {c['detail']}".strip(), {})
        row[c["length"]] = f"{percent(c['mean'])}{worst}" + (f" / {percent(s['mean'])}" if s else "")
    for name, row in rows.items():
        yield f"| {name} | " + " | ".join(row.get(n, "") for n in lengths) + " |"
