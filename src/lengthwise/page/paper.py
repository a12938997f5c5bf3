"""The paper's tables, figures and claims as JSON and images, from the records alone."""

import io
from pathlib import Path
from typing import Any

from lengthwise.base import UsageError
from lengthwise.paper import ARTEFACTS, find_artefact
from lengthwise.paper.artefact import Artefact, Grid
from lengthwise.paper.records import load_results, record_path
from lengthwise.paper.report import CELLS, RULE, count_seeds, draw, headline_row
from lengthwise.paper.results import Cell, Results
from lengthwise.paper.scales import SCALES, check_scale

Json = dict[str, Any]


def report(results: Path, root: Path, scale: str) -> Json:
    """Headlines, and each artefact with its tables, claims and notes."""
    checked = check_scale(scale)
    loaded = {a: load_results(a, checked, results, root) for a in ARTEFACTS.values()}
    headlines, sections = [], []
    for artefact, found in loaded.items():
        judged = [(claim, claim.judgement(found)) for claim in artefact.claims]
        for claim, judgement in judged:
            if claim.headline:
                published, digits, ours, condition = headline_row(claim.headline, found)
                headlines.append({
                    "text": artefact.qualify(claim.headline.text, checked),
                    "published": published,
                    "digits": digits,
                    "ours": ours,
                    "condition": condition,
                    "verdict": judgement.verdict,
                    "seeds": count_seeds(judgement),
                })  # fmt: skip
        claims = [
            {
                "text": artefact.qualify(claim.text, checked),
                "verdict": judgement.verdict,
                "seeds": count_seeds(judgement),
                "evidence": list(judgement.evidence),
            }
            for claim, judgement in judged
        ]
        sections.append(describe(artefact, found, claims))
    runs = record_path(results, checked, "").parent
    return {
        "scale": checked,
        "scales": list(SCALES),
        "records": len(list(runs.glob("*.json"))),
        "rule": RULE,
        "cells": CELLS,
        "headlines": headlines,
        "artefacts": sections,
    }


def describe(artefact: Artefact, found: Results, claims: list[Json]) -> Json:
    conditions = artefact.conditions(found.scale)
    done = sum(label in found.records for label in conditions)
    return {
        "name": artefact.name,
        "where": artefact.where,
        "title": artefact.title,
        "notes": list(artefact.notes),
        "conditions": len(conditions),
        "done": done,
        "figure": artefact.has_figure and bool(found.records),
        "tables": [{"title": title, **describe_grid(grid)}
                   for title, grid in artefact.grids(found).items()],
        "claims": claims,
    }  # fmt: skip


def describe_grid(grid: Grid) -> Json:
    rows = [
        {"label": label, "cells": [describe_cell(cell) for cell in cells]}
        for label, cells in grid.rows.items()
    ]
    return {"columns": list(grid.columns), "rows": rows}


def describe_cell(cell: Cell) -> Json:
    mean = sum(cell.shares) / len(cell.shares) if cell.shares else None
    text = cell.ours() if cell.shares else ""
    return {"share": mean, "ours": text, "published": cell.published, "seeds": len(cell.shares)}


def figure(results: Path, root: Path, scale: str, artefact: str) -> bytes:
    """An artefact's figure as PNG."""
    chosen = find_artefact(artefact)
    found = load_results(chosen, check_scale(scale), results, root)
    drawing = draw(chosen, found)
    if drawing is None:
        raise UsageError(f"there is nothing to draw of {artefact} at {scale} scale yet")
    image = io.BytesIO()
    drawing.savefig(image, format="png")
    return image.getvalue()
