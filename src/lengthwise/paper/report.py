"""The report: ours beside the published number in every cell, figures, and the claims with their verdicts."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lengthwise.paper.artefact import Artefact, Claim, Grid, Results, ScaleName
from lengthwise.paper.records import load_results
from lengthwise.paper.scales import spelled
from lengthwise.runs import write_atomically

MISSING = "missing"


@dataclass
class Document:
    """A sequence of blocks, written as Markdown and as HTML alike."""

    title: str
    markdown: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self.markdown.append(f"## {text}")
        self.body.append(f"<h2>{html.escape(text)}</h2>")

    def paragraph(self, text: str) -> None:
        self.markdown.append(text)
        self.body.append(f"<p>{html.escape(text)}</p>")

    def bullets(self, items: Sequence[str]) -> None:
        self.markdown.append("\n".join(f"- {item}" for item in items))
        self.body.append("<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>")

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [headings, ["---"] * len(headings), *rows]
        self.markdown.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in headings)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        self.body.append(f"<table><tr>{head}</tr>{body}</table>")

    def figure(self, file: str, text: str) -> None:
        self.markdown.append(f"![{text}]({file})")
        self.body.append(f'<figure><img src="{html.escape(file)}" alt="{html.escape(text)}"></figure>')

    def write(self, folder: Path) -> None:
        style = (
            "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
            "table{border-collapse:collapse}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
            "img{max-width:100%}"
        )
        page = (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(self.title)}</title>'
            f"<style>{style}</style><h1>{html.escape(self.title)}</h1>{''.join(self.body)}</html>"
        )
        write_atomically(folder / "report.md", "\n\n".join([f"# {self.title}", *self.markdown, ""]).encode())
        write_atomically(folder / "report.html", page.encode())


def cell(ours: list[float], published: float | None) -> str:
    """Mean over seeds with its spread and their number, and the published value.

    >>> cell([0.5, 0.7, 0.6], 98.9), cell([0.25], None), cell([], 100)
    ('60.0 ± 10.0 (3 seeds) · 98.9', '25.0 (1 seed)', 'missing · 100')
    """
    if not ours:
        shown = MISSING
    elif len(ours) == 1:
        shown = f"{100 * ours[0]:.1f} (1 seed)"
    else:
        shown = f"{100 * np.mean(ours):.1f} ± {100 * np.std(ours, ddof=1):.1f} ({len(ours)} seeds)"
    return shown if published is None else f"{shown} · {published:g}"


def write_report(scale: ScaleName, results: Path, root: Path, out: Path, artefacts: Sequence[Artefact]) -> None:
    """Tables, figures and verdicts of all artefacts at one scale, from the records alone."""
    out.mkdir(parents=True, exist_ok=True)
    document = Document(f"Length Generalization in Arithmetic Transformers, at {scale} scale")
    document.paragraph(
        f"Every number here is at {scale} scale and comes from the records in {results / scale}. A cell has the mean"
        " over seeds, their standard deviation and number, and after the dot what the paper published (at its own,"
        " larger scale; table columns say which length). A cell without a run says so. A verdict is a comparison of"
        " means over the seeds that there are of the settings that it is about, which may be one: the last column of"
        " the claims has their fewest and most. It can't be judged where the runs are there but say nothing about it:"
        " what a model hasn't learnt, it can't generalise."
    )
    loaded = {artefact: load_results(artefact, scale, results, root) for artefact in artefacts}
    rows = [
        [artefact.where, claim.text, claim.verdict(loaded[artefact]), seeds_read(claim, loaded[artefact])]
        for artefact in artefacts
        for claim in artefact.claims
    ]
    document.heading("Claims")
    document.table(["where", "claim", f"verdict at {scale} scale", "seeds"], rows)
    for artefact in artefacts:
        section(document, artefact, loaded[artefact], out)
    document.write(out)


def seeds_read(claim: Claim, results: Results) -> str:
    """The fewest and the most seeds of the settings that a claim asks about and that have any, or what is missing."""
    seeds = claim.seeds(results)
    missing = [label for label, count in seeds.items() if not count]
    if claim.verdict(results) == "not enough runs" and missing:
        return f"{MISSING}, such as {missing[0]}"  # a claim asks no further once one is
    there = [count for count in seeds.values() if count]  # none at smoke scale, where no claim is asked
    return "–".join(map(str, sorted({min(there), max(there)}))) if there else ""


def section(document: Document, artefact: Artefact, results: Results, out: Path) -> None:
    document.heading(f"{artefact.where}: {artefact.title}")
    wanted = artefact.settings(results.scale)
    have = sum(label in results.records for label in wanted)
    seeds = sorted({len(records) for records in results.records.values()})
    counted = f"{' or '.join(map(str, seeds))} seed{'' if seeds == [1] else 's'}"
    document.paragraph(
        f"{artefact.name}, {results.scale} scale: {have} of {len(wanted)} settings have runs"
        + (f", with {counted}." if seeds else ".")
        + f" Made by: lengthwise paper run {artefact.name} --scale {results.scale}"
        + (f" --seeds {seeds[-1]}" if seeds else "")
    )
    kept = [f"{label}: {spelled(variant)}" for label, variant in results.kept.items() if variant]
    if kept:
        document.paragraph(
            "Of each setting's runs, those are shown whose hyperparameters are best in domain: by the accuracy at the"
            " trained length in the last evaluation during training, averaged over seeds. What starts from another"
            " setting has the same as that one. Kept are:"
        )
        document.bullets(kept)
    for title, grid in artefact.grids(results).items():
        document.paragraph(title)
        document.table(["", *grid.columns], grid_rows(grid))
    if draw(artefact, results, out):
        document.figure(f"{artefact.name}.png", f"{artefact.where}: {artefact.title}, {results.scale} scale")
    if artefact.claims:
        document.bullets([f"{claim.text}: {claim.verdict(results)}" for claim in artefact.claims])
    if artefact.notes:
        document.bullets(artefact.notes)


def grid_rows(grid: Grid) -> list[list[str]]:
    return [[label, *(cell(ours, published) for ours, published in cells)] for label, cells in grid.rows.items()]


def draw(artefact: Artefact, results: Results, out: Path) -> bool:
    """Save the artefact's figure as PNG and PDF, if it has one and there are runs to draw."""
    if type(artefact).draw is Artefact.draw or not results.records:
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    artefact.draw(results, figure)
    figure.suptitle(f"{artefact.where}, {results.scale} scale", fontsize=10, color="0.4")
    for kind in ("png", "pdf"):
        metadata = {"CreationDate": None} if kind == "pdf" else None  # the same bytes from the same records
        figure.savefig(out / f"{artefact.name}.{kind}", dpi=130, metadata=metadata)
    return True
