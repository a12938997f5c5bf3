"""A length record for readers: a page of Markdown and a figure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from lengthwise.base.errors import shorten
from lengthwise.training.display import percent

MOST_FAILURES = 12  # listed for each trial
OUTSIDE = """
### What the program does outside of the network

It writes the problem as tokens with coordinates, and reads the answer back. It gives the model the
symbols that the model wrote, until none changes, and visits each token after those that it depends
on. It asks about each distinct neighbourhood in a batch once. It does no arithmetic on digits."""


def draw(contents: Mapping[str, Any], path: Path) -> None:
    """Exact match by length: the mean over seeds, with a band from the worst to the best."""
    from matplotlib.figure import Figure

    from lengthwise.paper import drawing

    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    trials = contents["trials"]
    for i, (label, trial) in enumerate(trials.items()):
        lengths = trial["lengths"].items()
        seeds = {int(n): [a["exact_match"] for a in tested["by seed"]] for n, tested in lengths}
        legend = f"{label} ({len(trial['seeds'])} seed{'s' * (len(trial['seeds']) > 1)})"
        width = 1.5 + 1.4 * (len(trials) - 1 - i)  # lines on top of each other stay visible
        colour = drawing.COLOURS[i % len(drawing.COLOURS)]
        drawing.line(axis, seeds, legend, colour, width=width)
    longest = max(trial["config"]["data"]["train_digits"] for trial in trials.values())
    axis.axvspan(1, longest, color="0.93", zorder=0)
    axis.text(longest, 3, "trained ", ha="right", color="0.4")
    ticks = sorted({1, *(int(n) for trial in trials.values() for n in trial["lengths"])})
    apart = [n for n, following in pairwise([*ticks, 2 * ticks[-1]]) if following > 1.1 * n]
    drawing.ticks(axis, apart)
    drawing.percent(axis)
    axis.set(xlabel="digits of the first number", xlim=(1, None))
    axis.set_title(contents["title"], fontsize=10, wrap=True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    figure.savefig(path, dpi=130)


def markdown(contents: Mapping[str, Any]) -> Iterator[str]:
    """The page of a record, or of its ablations, as lines of Markdown."""
    if contents.get("ablations"):
        yield from ablation_page(contents)
        return
    yield f"# Record: {contents['title']}\n"
    yield f"![exact match by number of digits]({contents['record']}.png)\n"
    previous_runs: Sequence[str] = ()
    for label, trial in contents["trials"].items():
        yield f"## {label}\n"
        if trial["runs"] == previous_runs:
            yield "The same models.\n"
        else:
            yield from training_section(
                trial, contents["record"], contents.get("most long problems")
            )
        previous_runs = trial["runs"]
        yield from accuracy_table(trial)
        if trial["config"]["model"]["depth"]["kind"] == "rewrite":
            yield OUTSIDE
        yield from rule_section(trial)
        if trial["stress"]:
            yield from stress_section(trial)
        yield ""


def file_name(contents: Mapping[str, Any]) -> str:
    """The name of a record's files in results/records, without their suffixes."""
    return f"{contents['record']}{'-ablations' * contents.get('ablations', False)}"


def ablation_page(contents: Mapping[str, Any]) -> Iterator[str]:
    """A row for each ablation, with every seed's results."""
    trials = contents["trials"]
    seeds = next(iter(trials.values()))["seeds"]
    commits = {commit or "unknown" for trial in trials.values() for commit in trial["commits"]}
    yield f"# Ablations: {contents['title']}\n"
    command = f"lengthwise record {contents['record']} --ablations"
    yield f"Made by `{command} --seed {seeds[0]} --seeds {len(seeds)}`, every seed alone: mean"
    yield "exact match, with the worst and the best seed where they differ. A wrong neighbourhood"
    yield "may be rare, so a model can solve all problems that were drawn. Where there are no"
    yield "neighbourhoods, the proof by cases does not apply."
    yield f"Commit: {', '.join(sorted(commits))}.\n"
    lengths = sorted({int(n) for trial in trials.values() for n in trial["lengths"]})
    headings = ["taken away", "parameters", "neighbourhoods wrong, by seed"]
    yield from table(
        [*headings, *(f"{n} digits" for n in lengths)],
        ([label, *ablation_cells(trial, lengths)] for label, trial in trials.items()),
    )


def ablation_cells(trial: Mapping[str, Any], lengths: Sequence[int]) -> Iterator[str]:
    yield f"{trial['parameters']:,}"
    yield ", ".join(f"{rule['wrong']:,}" for rule in trial["rule"])
    tested = {int(n): found["by seed"] for n, found in trial["lengths"].items()}
    for n in lengths:
        shares = [accuracy["exact_match"] for accuracy in tested.get(n, [])]
        yield describe_spread(shares) if shares else ""


def describe_spread(shares: Sequence[float]) -> str:
    """The mean over seeds, with the worst and the best where they differ.

    >>> describe_spread([1.0, 1.0]), describe_spread([1.0, 0.5])
    ('100 %', '75.0 % (50.0 %–100 %)')
    """
    low, high = min(shares), max(shares)
    return percent(mean(shares)) + ("" if low == high else f" ({percent(low)}–{percent(high)})")


def training_section(trial: Mapping[str, Any], name: str, most_long: int | None) -> Iterator[str]:
    seeds, minutes = trial["seeds"], trial["minutes of training"]
    command = f"lengthwise record {name} --seed {seeds[0]} --seeds {len(seeds)}"
    command += f" --most-long {most_long}" if most_long else ""
    yield f"Made by `{command}`. The model is the one at the end of training.\n"
    given = {
        "parameters": f"{trial['parameters']:,}",
        "minutes of training, one core": ", ".join(
            f"{time:g} (seed {seed})" for seed, time in zip(seeds, minutes, strict=True)
        ),
        **trial["given"],
        "commit": ", ".join(dict.fromkeys(commit or "unknown" for commit in trial["commits"])),
    }
    yield from table(["what the model is given", ""], given.items())
    yield ""


def accuracy_table(trial: Mapping[str, Any]) -> Iterator[str]:
    """Every seed's result, and the worst with its interval, which is of that one model."""
    seeds = [f"seed {seed}" for seed in trial["seeds"]]
    measures = ["CPU seconds a problem", "peak MB", "goal"]
    headings = ["digits", "problems a seed", *seeds, "mean", "worst seed, 95 % interval", *measures]
    rows = []
    for n, tested in trial["lengths"].items():
        by_seed, worst = tested["by seed"], tested["worst"]
        rows.append(
            [
                f"{n}",
                f"{tested['problems a seed']}",
                *(percent(a["exact_match"]) for a in by_seed),
                percent(tested["mean"]),
                f"{100 * worst['low']:.2f}–{100 * worst['high']:.2f} %",
                f"{mean(a['seconds of CPU'] for a in by_seed) / tested['problems a seed']:.2g}",
                f"{max(a['peak megabytes'] for a in by_seed)}",
                describe_goal(tested["goal"], [a["exact_match"] for a in by_seed]),
            ]
        )
    yield from table(headings, rows)


def rule_section(trial: Mapping[str, Any]) -> Iterator[str]:
    """The proof by cases: whether each seed's model is right in every neighbourhood."""
    if not trial.get("rule"):
        return
    yield "\n### Every length\n"
    yield (
        "What is written at a token depends on its neighbourhood only: a few tokens and symbols in"
        " its column and the next lower one. The model is asked about every neighbourhood that a"
        " right answer can have. Where none is wrong, every answer of any length is right, by"
        " induction.\n"
    )
    rows = [
        [
            f"{seed}",
            f"{rule['neighbourhoods']:,}",
            f"{rule['wrong']:,}",
            f"{rule['least margin']:.2f}",
        ]
        for seed, rule in zip(trial["seeds"], trial["rule"], strict=True)
    ]
    yield from table(["seed", "neighbourhoods", "wrong", "least margin of the logits"], rows)


def describe_goal(goal: float | None, shares: Sequence[float]) -> str:
    """How many seeds reach a goal.

    >>> describe_goal(0.99, [1.0, 0.98, 0.995]), describe_goal(None, [1.0])
    ('99.0 %: 2 of 3 seeds', '')
    """
    if goal is None:
        return ""
    return f"{percent(goal)}: {sum(share >= goal for share in shares)} of {len(shares)} seeds"


def stress_section(trial: Mapping[str, Any]) -> Iterator[str]:
    full, fewest = trial["stress"], trial["stress, fewest iterations"]
    yield "\n### Stress\n"
    yield "Exact match, mean over seeds, with the worst seed where it differs.\n"
    if fewest:
        layers = trial["config"]["model"]["layers"]
        yield (
            "After the slash is the mean of the same models with their layers applied only"
            f" {layers} times, the fewest of training.\n"
        )
    lengths = sorted({case["length"] for case in full})
    few = {(c["case"], c["detail"], c["length"]): percent(mean(c["by seed"])) for c in fewest}
    rows: dict[str, dict[int, str]] = {}
    for case in full:
        row = rows.setdefault(f"{case['case']} {case['detail']}".strip(), {})
        cell = describe_seeds(case["by seed"])
        shallow = few.get((case["case"], case["detail"], case["length"]))
        row[case["length"]] = f"{cell} / {shallow}" if shallow else cell
    cells = [[name, *(row.get(n, "") for n in lengths)] for name, row in rows.items()]
    yield from table(["case", *(f"{n} digits" for n in lengths)], cells)
    yield from failure_list(full)


def describe_seeds(shares: Sequence[float]) -> str:
    """The mean over seeds, and the worst where it differs.

    >>> describe_seeds([1.0, 1.0]), describe_seeds([1.0, 0.5])
    ('100 %', '75.0 % (worst 50.0 %)')
    """
    average, worst = mean(shares), min(shares)
    return percent(average) + ("" if worst == average else f" (worst {percent(worst)})")


def failure_list(cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    failures = [(case["case"], failure) for case in cases for failure in case["failures"]]
    if failures:
        yield "\nSome failures:\n"
    for case, failure in failures[:MOST_FAILURES]:
        problem = " ".join(map(shorten, failure["problem"].split()))
        answer, correct = failure["answer"] or "not a number", failure["correct"]
        yield f"- {case}: {problem} = {shorten(answer)}, but it is {shorten(correct)}"


def table(headings: Sequence[str], rows: Any) -> Iterator[str]:
    """A table in Markdown."""
    for row in (headings, ["---"] * len(headings), *rows):
        yield f"| {' | '.join(row)} |"
