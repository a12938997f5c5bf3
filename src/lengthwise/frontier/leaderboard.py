"""The leaderboard: a page of Markdown and HTML from the reports of `lengthwise verify`."""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from lengthwise.base import UsageError
from lengthwise.base.files import read_json, write_atomically
from lengthwise.frontier.record_page import table
from lengthwise.frontier.verify import FORMAT, UNREAD, UNVERIFIED, is_intact

HEADINGS = (
    "model",
    "parameters",
    "claim",
    "verdict",
    "no error up to",
    "errors",
    "worst case",
    "arithmetic outside",
    "trained on, as declared",
    "time, memory at the longest",
    "seed",
    "date",
)
EXPLANATION = (
    "Every row is a report of `lengthwise verify`: fresh random problems and the stress suite, in a"
    " process of its own. Where the verifier can't see how a model finds its answers, the row"
    " says so. A digest shows whether a report was changed by accident; it doesn't prove who"
    " made it, so run a claim again before you rely on it."
)
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;font-size:14px}th,td{border-bottom:1px solid #ccc;"
    "padding:.4rem .6rem;text-align:left;vertical-align:top}th{background:#f4f4f4}"
    ".holds{color:#0a6b2d}.refuted{color:#a11}"
    "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}th{background:#262626}"
    "th,td{border-color:#444}.holds{color:#6fd08c}.refuted{color:#ff8a80}}"
)
ORDER = {"holds": 0, UNREAD: 1, UNVERIFIED: 2}
Report = Mapping[str, Any]


def read_reports(paths: Iterable[Path]) -> list[Report]:
    """Reports from files and folders; one that was changed since it was written is an error."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(path.glob("*.json"))
        elif path.is_file():
            files.append(path)
        else:
            raise UsageError(f"there is no report at {path}")
    reports = []
    for file in files:
        report = read_json(file)
        if not isinstance(report, dict) or report.get("format") != FORMAT:
            raise UsageError(f"{file} is not a report of `lengthwise verify`")
        if not is_intact(report):
            raise UsageError(f"{file} was changed after it was written: its digest differs")
        reports.append(report)
    if not reports:
        raise UsageError("there are no reports; `lengthwise verify` writes them")
    return sorted(reports, key=rank)


def rank(report: Report) -> tuple[Any, ...]:
    """Best first: the task, the verdict, the longest numbers, the fewest parameters."""
    parameters = report["model"]["parameters"]
    longest = -report["tested digits"][0] * report["tested digits"][1]
    return (
        report["task"],
        ORDER.get(report["verdict"], len(ORDER)),
        longest,
        parameters is None,
        parameters or 0,
    )


def row(report: Report) -> list[str]:
    """The cells of one report."""
    model, worst, last = report["model"], report["worst case"], report["tests"][-1]
    perfect = list(takewhile(lambda test: test["right"] == test["problems"], report["tests"]))
    memory = last["peak megabytes"]
    origin = "" if report["seed drawn after the model was fixed"] else " (given)"
    worst_case = f"{worst['right']}/{worst['problems']}: {worst['kind']}, {worst['digits']} digits"
    return [
        model["source"],
        f"{model['parameters']:,}" if model["parameters"] else "not checkable",
        report["claim"],
        report["verdict"],
        f"{perfect[-1]['digits']} digits" if perfect else "none",
        f"{report['errors']:,} of {report['problems']:,}",
        worst_case if report["errors"] else "none",
        report["arithmetic outside of the network"]["verdict"],
        model["trained on, as declared"],
        f"{last['seconds']:g} s" + (f", {memory:,} MB" if memory else ""),
        f"{report['seed']}{origin}",
        report["date"],
    ]


def markdown(reports: Sequence[Report]) -> Iterator[str]:
    """The leaderboard as lines of Markdown, a table for each task."""
    yield "# Leaderboard\n"
    yield f"{EXPLANATION}\n"
    for task in dict.fromkeys(report["task"] for report in reports):
        yield f"## {task}\n"
        own = [report for report in reports if report["task"] == task]
        yield from table(HEADINGS, ([cell.replace("|", "\\|") for cell in row(r)] for r in own))
        yield ""


def web_page(reports: Sequence[Report]) -> str:
    """The leaderboard as a page of HTML that needs nothing else."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>lengthwise leaderboard</title>",
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>",
        f"<h1>Leaderboard</h1><p>{html.escape(EXPLANATION)}</p>",
    ]
    for task in dict.fromkeys(report["task"] for report in reports):
        head = "".join(f"<th scope=col>{html.escape(heading)}</th>" for heading in HEADINGS)
        parts.append(f"<h2>{html.escape(task)}</h2><table><thead><tr>{head}</tr></thead><tbody>")
        for report in reports:
            if report["task"] == task:
                kind = report["verdict"].partition(":")[0]
                cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row(report))
                parts.append(f"<tr class={kind}>{cells}</tr>")
        parts.append("</tbody></table>")
    return "\n".join([*parts, "</html>", ""])


def write_leaderboard(reports: Sequence[Report], folder: Path) -> None:
    """Write leaderboard.md and leaderboard.html."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "leaderboard.md", "\n".join(markdown(reports)).encode())
    write_atomically(folder / "leaderboard.html", web_page(reports).encode())
