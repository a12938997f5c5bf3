"""The report, from the records alone: headlines, every claim with its verdict, tables, figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.paper.artefact import Artefact, Claim, Grid, Headline
from lengthwise.paper.document import Document
from lengthwise.paper.records import commits, load_results
from lengthwise.paper.results import Results
from lengthwise.paper.scales import ScaleName, describe_variant
from lengthwise.paper.verdicts import LEARNED, SEEDS_NEEDED, Judgement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = "missing"
CHANCE_OF_TWO, CHANCE_AT_LEVEL = 5, 9  # percent, as simulated in tests/test_paper_verdicts.py
RULE = (
    f"A verdict needs {SEEDS_NEEDED} seeds that agree, and a difference larger than two standard"
    " errors over seeds; seeds are never pooled. Where seeds disagree or the difference is smaller,"
    " the claim depends on the seed. No difference at all contradicts “more than” and meets “at"
    f" least”. Where a model is below {100 * LEARNED:.0f} % at the trained length, a claim about"
    " longer numbers can't be judged. Neither can a claim about a number that a seed doesn't have,"
    " such as the carries of solved sums where none is solved. Without runs a claim is not run;"
    f" with fewer than {SEEDS_NEEDED} common seeds it has too few. A claim of several parts holds"
    " if all parts do, and one part that doesn't hold settles it, even if runs of others are"
    " missing. A claim about the best holds as soon as one condition makes it hold. Chance alone"
    " gives verdicts, too. With three seeds and no true difference, a comparison of two conditions"
    f" holds in {CHANCE_OF_TWO} % of cases, and of a condition with a level in {CHANCE_AT_LEVEL} %;"
    " as many don't hold."
)
CELLS = (
    "A cell has the mean over seeds with Student's 95 % interval, or of one model with Wilson's,"
    " and after the dot the published number. Bands and whiskers in figures go from the worst to"
    " the best seed."
)


def write_report(
    scale: ScaleName, results: Path, root: Path, out: Path, artefacts: Sequence[Artefact]
) -> None:
    """Write tables, figures and verdicts of artefacts at one scale as report.md and report.html."""
    out.mkdir(parents=True, exist_ok=True)
    document = Document(f"Length Generalization in Arithmetic Transformers, at {scale} scale")
    loaded = {artefact: load_results(artefact, scale, results, root) for artefact in artefacts}
    judged = {
        (artefact, claim): claim.judgement(loaded[artefact])
        for artefact in artefacts
        for claim in artefact.claims
    }
    document.heading("Headlines")
    headline_table(document, loaded, judged)
    document.paragraph(
        f"Every number here is at {scale} scale and comes from the records in {results / scale}."
        f" `lengthwise paper report --scale {scale}` writes this report. {CELLS}"
    )
    document.heading("Claims")
    document.paragraph(RULE)
    rows = [
        [artefact.where, artefact.qualify(claim.text, scale), found.verdict, count_seeds(found)]
        for (artefact, claim), found in judged.items()
    ]
    document.table(["where", "claim", f"verdict at {scale} scale", "seeds"], rows)
    for artefact, found in loaded.items():
        own = {c.text: j for (a, c), j in judged.items() if a is artefact}
        section(document, artefact, found, own, out)
    document.heading("Records")
    record_table(document, loaded)
    document.write(out)


def headline_table(
    document: Document,
    loaded: Mapping[Artefact, Results],
    judged: Mapping[tuple[Artefact, Claim], Judgement],
) -> None:
    """One row for each headline: at what length it holds, with how many seeds."""
    rows = []
    for (artefact, claim), judgement in judged.items():
        if claim.headline:
            text = artefact.qualify(claim.headline.text, loaded[artefact].scale)
            shown = headline_row(claim.headline, loaded[artefact])
            rows.append([text, *shown, judgement.verdict, count_seeds(judgement)])
    columns = ["headline", "published", "digits", "ours (%)", "condition", "verdict", "seeds"]
    document.table(columns, rows)


def headline_row(headline: Headline, results: Results) -> list[str]:
    """The published number, the lengths, and the accuracy of the best condition."""
    lengths = ", ".join(map(str, headline.lengths))
    if headline.ours:
        return [headline.published, lengths, headline.ours(results) or MISSING, ""]

    def mean(label: str) -> float:
        shares = results.exact_match(label, headline.lengths[-1])
        return float(np.mean(shares)) if shares else -1.0

    best = max(headline.conditions, key=mean)
    cells = [results.cell(best, length).ours() for length in headline.lengths]
    if set(cells) == {MISSING}:
        return [headline.published, lengths, MISSING, ""]
    return [headline.published, lengths, "; ".join(cells), best]


def count_seeds(judgement: Judgement) -> str:
    """The fewest and the most seeds that a verdict rests on, or the missing condition."""
    missing = [label for label, count in judgement.conditions.items() if not count]
    if missing:
        return f"{MISSING}: {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else "")
    counts = set(judgement.conditions.values())
    return "–".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


def section(
    document: Document,
    artefact: Artefact,
    results: Results,
    judgements: Mapping[str, Judgement],
    out: Path,
) -> None:
    document.heading(f"{artefact.where}: {artefact.title}")
    document.paragraph(summarise_runs(artefact, results))
    chosen = [f"{name}: {describe_variant(v)}" for name, v in results.variants.items() if v]
    if chosen:
        document.paragraph(
            "Hyperparameters are chosen for each condition by its first seed's accuracy at the"
            " trained length in the last evaluation during training; ties go to the higher average"
            " over training. A condition that starts from another has the same as that one. Chosen"
            " are:"
        )
        document.bullets(chosen)
    for title, grid in artefact.grids(results).items():
        document.paragraph(title)
        document.table(["", *grid.columns], grid_rows(grid))
    if figure := draw(artefact, results):
        figure.savefig(out / f"{artefact.name}.png")
        # Without the date, the file has the same bytes every time.
        figure.savefig(out / f"{artefact.name}.pdf", metadata={"CreationDate": None})
        text = f"{artefact.where}: {artefact.title}, {results.scale} scale"
        document.figure(f"{artefact.name}.png", text)
    if judgements:
        document.paragraph("Claims, with the shares that were compared:")
        document.nested_bullets(
            {f"{text}: {j.verdict}": j.evidence for text, j in judgements.items()}
        )
    if artefact.notes:
        document.paragraph("Notes:")
        document.bullets(artefact.notes)


def summarise_runs(artefact: Artefact, results: Results) -> str:
    """How many conditions have runs, with how many seeds, by which command and commits."""
    conditions = artefact.conditions(results.scale)
    done = sum(label in results.records for label in conditions)
    seeds = sorted({len(records) for records in results.records.values()})
    text = (
        f"{artefact.name}, {results.scale} scale: {done} of {len(conditions)} conditions have runs"
    )
    if seeds:
        text += f", with {' or '.join(map(str, seeds))} seed{'' if seeds == [1] else 's'}"
    text += f". Command: lengthwise paper run {artefact.name} --scale {results.scale}"
    text += f" --seeds {max([SEEDS_NEEDED, *seeds])}."
    counts = commits([r for by_seed in results.records.values() for r in by_seed.values()])
    if counts:
        named = (f"{name} ({n} record{'' if n == 1 else 's'})" for name, n in counts.items())
        text += f" Commits: {', '.join(named)}."
    return text


def grid_rows(grid: Grid) -> list[list[str]]:
    return [[label, *(cell.text() for cell in cells)] for label, cells in grid.rows.items()]


def draw(artefact: Artefact, results: Results) -> "Figure | None":
    """The artefact's figure, if it has one and there are runs to draw."""
    if not artefact.has_figure or not results.records:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained", dpi=130)
    artefact.draw(results, figure)
    figure.suptitle(f"{artefact.where}, {results.scale} scale", fontsize=10, color="0.4")
    return figure


def record_table(document: Document, loaded: Mapping[Artefact, Results]) -> None:
    """Every record with its seed, date and commit; a run that artefacts share has one row."""
    rows: dict[str, list[str]] = {}
    for artefact, results in loaded.items():
        for label, by_seed in results.records.items():
            for seed, record in by_seed.items():
                name = str(record["identity"])[:16]
                started = str(record["sessions"][0].get("started", "unknown"))
                commit = str(record["commit"] or "unknown")
                row = [name, artefact.name, label, str(seed), started, commit]
                rows.setdefault(name, row)
    if not rows:
        document.paragraph("There are none.")
        return
    columns = ["record", "artefact", "condition", "seed", "started", "commit"]
    document.table(columns, list(rows.values()))
