"""The paper's tables: numbers against its LaTeX, settings against its captions, claims on hand-made results."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from lengthwise.errors import UsageError
from lengthwise.paper import ARTEFACTS
from lengthwise.paper.artefact import SCALES, Artefact, Record, Results, ScaleName, Table
from lengthwise.paper.figure_finetuning_priming import BASE, tuned
from lengthwise.paper.records import Planned, in_domain, load_results, plan, record_path
from lengthwise.paper.running import cost
from lengthwise.paper.scales import variants
from lengthwise.report import MISSING, draw, grid_rows, seeds_read, write_report
from lengthwise.runs import read_json, write_json

PAPER = Path(__file__).parent.parent.parent / "shared" / "paper" / "paper.tex"
TABLES = {name: artefact for name, artefact in ARTEFACTS.items() if isinstance(artefact, Table)}
LABELS = {
    "table-addition": "tab:addition_results",
    "table-modular-addition": "tab:modular_addition",
    "table-modular-multiplication": "tab:modular_multiplication",
    "table-modular-addition-full": "tab:modular_addition_final",
    "table-modular-multiplication-full": "tab:modular_multiplication_final",
    "table-multiplication": "tab:multiplication_base",
    "table-elementwise": "tab:ewise",
}
every_artefact = pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=ARTEFACTS)
every_table = pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
every_scale = pytest.mark.parametrize("scale", SCALES)


def printed(label: str) -> tuple[tuple[int, ...], dict[tuple[str, ...], tuple[float, ...]]]:
    """The lengths and the rows of the table with this label: its last `tabular` before the label."""
    if not PAPER.exists():
        pytest.skip("the paper's LaTeX isn't beside the repository")
    tex = PAPER.read_text()
    start = tex.rindex(r"\begin{tabular}", 0, tex.index(rf"\label{{{label}}}"))
    body = tex[start : tex.index(r"\end{tabular}", start)]
    for variant in ("k,q", "k"):
        body = body.replace(f"RPE$_{{{variant}}}$", f"RPE_{variant}").replace(f"RPE$_{variant}$", f"RPE_{variant}")
    body = re.sub(r"\\multirow{\d+}{\*}{([^{}]*)}|\\textbf{([^{}]*)}", r"\1\2", body)
    lines = [[cell.strip() for cell in line.split("&")] for line in re.sub(r"\\\w+rule", "", body).split(r"\\")]
    header = next(i for i, line in enumerate(lines) if "PE" in line)
    numbers = [i for i, cell in enumerate(lines[header]) if cell.isdecimal()]
    names = [i for i, cell in enumerate(lines[header]) if cell and not cell.isdecimal()]
    rows: dict[tuple[str, ...], tuple[float, ...]] = {}
    name = [""] * len(names)
    for line in lines[header + 1 : -1]:  # after the last \\ there is nothing
        name = [line[i] or before for i, before in zip(names, name, strict=True)]  # a \multirow goes on
        assert tuple(name) not in rows
        rows[tuple(name)] = tuple(float(line[i]) for i in numbers)
    return tuple(int(lines[header][i]) for i in numbers), rows


def label_of(artefact: str, name: tuple[str, ...]) -> str:
    """Our label for a row by the names that the paper gives it."""
    if "modular" in artefact:
        name = (f"c={name[0]}", *name[1:])
    return " ".join({"Base": "B", "Large": "L"}.get(part, part) for part in name)


@pytest.mark.parametrize("name", [name for name in LABELS if name != "table-modular-addition-full"])
def test_published_numbers_are_those_of_the_paper(name):
    lengths, rows = printed(LABELS[name])
    table = TABLES[name]
    assert tuple(table.lengths["paper"]) == lengths
    expected = {label_of(name, row): values for row, values in rows.items()}
    if name == "table-modular-addition":  # with rows of Table 1 to compare with
        _, addition = printed(LABELS["table-addition"])
        for pe in ("APE", "RPE_k", "RPE_k,q"):
            expected[f"no modulus {pe}"] = (100, *addition["UTransformer", pe, "B"])
    assert {label: tuple(values) for label, values in table.published.items()} == expected


def test_the_full_table_of_modular_addition_repeats_that_of_multiplication():
    """So it counts as unpublished; it has the paper's rows and columns."""
    name = "table-modular-addition-full"
    lengths, rows = printed(LABELS[name])
    assert (lengths, rows) == printed(LABELS["table-modular-multiplication-full"])
    assert tuple(TABLES[name].lengths["paper"]) == lengths
    assert set(TABLES[name].published) == {label_of(name, row) for row in rows}
    assert {value for row in TABLES[name].published.values() for value in row} == {None}


def test_table_2b_is_the_base_rows_of_the_full_table():
    full = TABLES["table-modular-multiplication-full"].published
    assert all(full[f"{label} B"] == row for label, row in TABLES["table-modular-multiplication"].published.items())


@every_artefact
@every_scale
def test_settings_are_valid_experiments(artefact: Artefact, scale: ScaleName):
    planned = list(plan(artefact, scale, range(2), Path("runs")))
    assert [(p.label, p.seed) for p in planned] == [(label, s) for s in range(2) for label in artefact.settings(scale)]
    assert len({p.label for p in planned}) >= 1
    by_label = {(p.label, p.seed): p.identity for p in planned}
    assert all(by_label[label, 0] != by_label[label, 1] for label, _ in by_label)


RATES, DECAYS = {1e-4, 3e-5, 1e-5}, {1e-5, 1e-4, 1e-3, 1e-2}  # section 2.2, the ends of the former and one between


@every_artefact
def test_at_paper_scale_every_pair_of_the_ranges_is_trained(artefact: Artefact, tmp_path: Path):
    planned = [p for v in variants("paper") for p in plan(artefact, "paper", range(2), Path("runs"), variant=v)]
    by_identity = {p.identity: p for p in planned}
    assert len(by_identity) == len(planned) == cost(artefact, "paper", 2, tmp_path, Path("runs")).runs
    settings = product(artefact.settings("paper"), range(2), RATES, DECAYS)
    assert {
        (p.label, p.seed, p.experiment.training.learning_rate, p.experiment.training.weight_decay) for p in planned
    } == set(settings)
    for p in planned:
        if p.origin:
            assert (by_identity[p.origin].variant, by_identity[p.origin].seed) == (p.variant, p.seed)
        else:
            assert p.experiment.data.train_digits in p.experiment.lengths, "what decides between variants is measured"


def test_the_smaller_scales_have_one_variant():
    assert variants("smoke") == variants("cpu") == [{}]


@every_table
def test_a_table_has_the_same_rows_and_columns_at_every_scale(table: Table):
    assert set(table.lengths) == set(SCALES)
    assert len({len(lengths) for lengths in table.lengths.values()}) == 1
    for scale in SCALES:
        assert set(table.settings(scale)) == set(table.published)
    assert {len(row) for row in table.published.values()} == {len(table.lengths["paper"])}


@every_table
@every_scale
def test_every_cell_of_a_table_is_measured(table: Table, scale: ScaleName):
    for planned in plan(table, scale, range(1), Path("runs")):
        assert set(table.lengths[scale]) <= set(planned.experiment.final_lengths)


SIZES = {"B": (6, 512, 8), "S": (6, 1024, 16), "L": (10, 1024, 16)}  # section 2.2: layers, width, heads
CAPTIONS = {  # n_test, N_train, size where the label has none, test examples
    "table-addition": (20, 5000, None, 100_000),
    "table-modular-addition": (20, 5000, "B", 100_000),
    "table-modular-multiplication": (35, 5000, "B", 100_000),
    "table-modular-addition-full": (35, 5000, None, 100_000),
    "table-modular-multiplication-full": (35, 5000, None, 100_000),
    "table-multiplication": (35, 5000, "S", 100_000),
    "table-elementwise": (20, 50_000, "B", 10_000),
    "sampling": (20, 5000, "B", 100_000),
}
TASKS = {
    "table-addition": "addition",
    "table-modular-addition-full": "modular-addition",
    "table-modular-multiplication": "modular-multiplication",
    "table-modular-multiplication-full": "modular-multiplication",
    "table-multiplication": "multiplication",
    "table-elementwise": "elementwise-addition",
    "sampling": "addition",
}
JUDGED = (*CAPTIONS, "digit-order")
POSITIONS = {"APE": "absolute", "RPE_k": "relative-key", "RPE_k,q": "relative-key-query"}


@pytest.mark.parametrize("name", CAPTIONS)
def test_paper_scale_is_as_the_captions_say(name):
    digits, train_size, size, final_examples = CAPTIONS[name]
    for planned in plan(TABLES[name], "paper", range(1), Path("runs")):
        experiment, words = planned.experiment, planned.label.split()
        model = experiment.model
        assert (model.layers, model.width, model.heads) == SIZES[size or words[-1]]
        assert model.encoder == ("transformer" if "Transformer" in words else "universal-transformer")
        assert model.position.kind == next((POSITIONS[word] for word in words if word in POSITIONS), "relative-key")
        assert (experiment.data.train_digits, experiment.data.test_digits) == (5, digits)
        assert experiment.data.train_size == train_size
        assert (experiment.layout.order, experiment.layout.compact) == ("most-significant-first", False)
        assert experiment.evaluation.final_examples == final_examples
        assert experiment.training.epochs == 15_000
        assert experiment.data.sampling == next((w for w in words if "-length" in w), "uniform-integer")
        task = experiment.task.model_dump()
        if "no modulus" in planned.label:
            assert task["kind"] == "addition"
        elif words[0].startswith("c="):
            assert task["modulus"] == int(words[0].removeprefix("c="))
            assert task.get("second_digits", 3) == 3
        elif "digit" in words[0]:
            assert task["second_digits"] == int(words[0][0])
        assert task["kind"] == TASKS.get(name, task["kind"])


@pytest.mark.parametrize("name", CAPTIONS)
def test_smoke_is_tiny(name):
    for planned in plan(TABLES[name], "smoke", range(1), Path("runs")):
        assert planned.experiment.steps == 4
        assert planned.experiment.data.test_digits <= 8


def identities(name: str, scale: ScaleName) -> dict[str, str]:
    return {p.label: p.identity for p in plan(TABLES[name], scale, range(1), Path("runs"))}


@every_scale
def test_shared_runs_are_trained_once(scale: ScaleName):
    table_1, part_a, part_b, sampling = (
        identities(name, scale)
        for name in ("table-addition", "table-modular-addition", "table-modular-multiplication", "sampling")
    )
    full = identities("table-modular-multiplication-full", scale)
    assert all(full[f"{label} B"] == identity for label, identity in part_b.items())
    shared = scale == "paper"  # where the modular tables have the same order of digits
    assert all((part_a[f"no modulus {pe}"] == table_1[f"UTransformer {pe} B"]) is shared for pe in POSITIONS)
    if scale != "paper":  # where the full table goes on to 35 digits, in a wider layout
        full = identities("table-modular-addition-full", scale)
        assert all(full[f"{label} B"] == run for label, run in part_a.items() if label.startswith("c="))
    reading = "uniform-integer" if scale == "paper" else "problem-length"
    for encoder in ("Transformer", "UTransformer"):
        assert sampling[f"{encoder} {reading}"] == table_1[f"{encoder} RPE_k B"]
    assert len(set(sampling.values())) == 6
    order, first = identities("digit-order", scale), "most" if scale == "paper" else "least"
    for what, table_2 in (("sums", part_a), ("products", part_b)):
        assert all(order[f"{what}, {pe}, {first} significant first"] == table_2[f"c=100 {pe}"] for pe in POSITIONS)
    assert len(set(order.values())) == 12


Rows = Mapping[str, Sequence[float | None]]  # percent


def digitwise(length: int) -> list[float]:
    """The trained positions right, the others not."""
    return [0.99] * 5 + [0.12] * (length - 5)


def record(lengths: Sequence[int], row: Sequence[float | None]) -> Record:
    cells = dict(zip(lengths, row, strict=True))
    return {
        "evaluation": [
            {"length": n, "exact_match": value / 100, "digits": digitwise(n)}
            for n, value in cells.items()
            if value is not None
        ]
    }


def results_with(table: Table, scale: ScaleName, rows: Rows) -> Results:
    """Two seeds around each number (in percent, column by column)."""
    return Results(scale, {label: [record(table.lengths[scale], row)] * 2 for label, row in rows.items()})


def pattern(name: str) -> dict[str, list[float | None]]:
    """Results as the paper has them: the published numbers, or for tables without any what the text says."""
    rows = {label: list(row) for label, row in TABLES[name].published.items()}
    for label in rows:
        if name == "table-modular-addition-full":
            easy = [100, 99, 80, 40, 10] if "RPE_k,q" in label else [100, 49, 30, 20, 5]
            rows[label] = easy if label.startswith(("c=100 ", "c=1000 ")) else [6, 3, 2, 1, 1]
        elif name == "sampling":
            rows[label] = [97, 81, 73, 58, 0] if "length" in label else [97, 0, 0, 0, 0]
        elif name == "digit-order":
            rows[label] = [100, 98, 96, 88, 77] if "least" in label else [96, 1, 1, 1, 1]
    return rows


def verdicts(table: Table, results: Results) -> dict[str, str]:
    return {claim.text: claim.verdict(results) for claim in table.claims}


@every_artefact
@every_scale
def test_without_runs_no_verdict_and_no_number(artefact: Artefact, scale: ScaleName):
    nothing = Results(scale)
    assert {claim.verdict(nothing) for claim in artefact.claims} <= {"not enough runs"}
    for grid in artefact.grids(nothing).values():
        rows = grid_rows(grid)
        assert {len(row) for row in rows} <= {1 + len(grid.columns)}
        assert all(cell.startswith(MISSING) for _, *cells in rows for cell in cells)


@pytest.mark.parametrize("name", JUDGED)
@pytest.mark.parametrize("scale", ["cpu", "paper"])
def test_claims_hold_for_the_published_numbers(name, scale):
    """At cpu scale, for the same numbers in the columns of that scale: no claim looks at a length that isn't there."""
    table = TABLES[name]
    assert table.claims
    assert set(verdicts(table, results_with(table, scale, pattern(name))).values()) == {"holds"}


@pytest.mark.parametrize("name", JUDGED)
def test_smoke_gives_no_verdict(name):
    table = TABLES[name]
    assert set(verdicts(table, results_with(table, "smoke", pattern(name))).values()) == {"not enough runs"}


@pytest.mark.parametrize("name", JUDGED)
def test_a_missing_run_leaves_no_wrong_verdict(name):
    table, rows = TABLES[name], pattern(name)
    open_claims = set()
    for label in rows:
        found = verdicts(table, results_with(table, "cpu", {k: v for k, v in rows.items() if k != label}))
        assert set(found.values()) <= {"holds", "not enough runs"}
        open_claims |= {text for text, verdict in found.items() if verdict == "not enough runs"}
    assert open_claims == {claim.text for claim in table.claims}


# For every artefact: cells (label, column) with another number, and how the claims start that then don't hold.
CONTRADICTIONS: dict[str, list[tuple[dict[tuple[str, int], float], list[str]]]] = {
    "table-addition": [
        ({("Transformer RPE_k B", 0): 3, ("Transformer RPE_k B", 3): 0}, ["Transformers with relative-key"]),
        ({("UTransformer RPE_k B", 0): 3, ("UTransformer RPE_k B", 3): 0}, ["UTransformers with relative-key"]),
        ({("UTransformer APE B", 0): 6}, ["models with absolute embeddings that"]),
        ({("UTransformer RPE_k B", 3): 92}, ["accuracy drops"]),
        ({("Transformer APE L", 0): 99}, ["Transformers with relative-key", "models with absolute embeddings that"]),
        ({("Transformer RPE_k L", 3): 98}, ["accuracy drops"]),
    ],
    "table-modular-addition": [
        ({("c=1000 RPE_k,q", 2): 49}, ["models with relative embeddings generalise"]),
        ({("no modulus RPE_k", 2): 86}, ["models with relative embeddings extrapolate better"]),
        ({("c=100 APE", 2): 49}, ["models with absolute embeddings generalise"]),
    ],
    "table-modular-multiplication": [
        ({("c=100 APE", 2): 49}, ["c = 100: models"]),
        ({("c=100 RPE_k,q", 4): 94}, ["c = 100: the best embedding"]),
        ({("c=1000 RPE_k,q", 2): 44}, ["c = 1000: relative embeddings"]),
    ],
    "table-modular-addition-full": [
        ({(f"c=1000 {pe} B", 1): 49 for pe in POSITIONS}, ["models manage to extrapolate"]),
        ({("c=101 RPE_k,q B", 0): 99.1}, ["c = 128 and 101: no Base model"]),
        ({("c=128 APE L", 0): 50}, ["c = 128 and 101: larger models"]),
    ],
    "table-modular-multiplication-full": [
        ({("c=100 APE L", 4): 94}, ["c = 100: Large"]),
        ({("c=100 APE B", 0): 15}, ["c = 128: performance"]),
        ({("c=128 APE B", 1): 5.5}, ["c = 128: length generalisation still happens"]),
        ({("c=128 APE B", 1): 12}, ["c = 128: length generalisation is facilitated by relative"]),
        ({("c=128 RPE_k L", 4): 3}, ["c = 128: length generalisation is facilitated by larger"]),
        ({("c=101 RPE_k,q B", 0): 49}, ["c = 101: models can learn"]),
        ({("c=101 RPE_k,q B", 1): 6}, ["c = 101: Base models that have learnt it consistently fail"]),
    ],
    "table-multiplication": [
        ({("1-digit RPE_k", 0): 94}, ["all models"]),
        ({("3-digits APE", 1): 6}, ["multiplication by 3 digits"]),
        ({("2-digits RPE_k", 1): 2}, ["by 1 and 2 digits, relative-key"]),
        ({("2-digits RPE_k,q", 2): 6}, ["by 1 and 2 digits, relative embeddings fail"]),
    ],
    "table-elementwise": [
        ({("RPE_k", 1): 49}, ["models with relative embeddings generalise"]),
        ({("APE", 1): 96}, ["models with relative embeddings beat", "models with absolute embeddings fail"]),
        ({("APE", 1): 11}, ["models with absolute embeddings fail"]),
    ],
    "sampling": [
        ({("Transformer problem-length", 1): 19}, ["Transformers generalise"]),
        ({("UTransformer uniform-integer", 1): 6}, ["UTransformers generalise"]),
    ],
    "digit-order": [
        ({("sums, APE, least significant first", 2): 49}, ["models with absolute embeddings generalise in sums"]),
        ({("sums, APE, most significant first", 1): 11}, ["models with absolute embeddings generalise in sums"]),
        (
            {("products, APE, most significant first", 1): 11},
            ["models with absolute embeddings generalise in products"],
        ),
        (
            {("products, APE, least significant first", 2): 49},
            ["models with absolute embeddings generalise in products"],
        ),
    ],
}


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize(
    ("name", "cells", "expected"), [(name, *case) for name, cases in CONTRADICTIONS.items() for case in cases]
)
def test_a_contradicted_claim_does_not_hold_and_the_others_do(name, cells, expected, scale):
    table, rows = TABLES[name], pattern(name)
    for (label, column), value in cells.items():
        rows[label][column] = value
    found = verdicts(table, results_with(table, scale, rows))
    assert "not enough runs" not in found.values()
    contradicted = [text for text, verdict in found.items() if verdict == "does not hold"]
    assert len(contradicted) == len(expected)
    assert all(text.startswith(start) for text, start in zip(contradicted, expected, strict=True))


@pytest.mark.parametrize(
    ("name", "label", "start"),
    [
        ("table-multiplication", "3-digits APE", "multiplication by 3 digits doesn't generalise"),
        ("table-elementwise", "APE", "models with absolute embeddings fail"),
        ("sampling", "UTransformer uniform-integer", "UTransformers generalise"),
        ("digit-order", "sums, APE, most significant first", "models with absolute embeddings generalise in sums"),
    ],
)
def test_a_model_that_has_not_learnt_says_nothing_about_generalisation(name, label, start):
    table, rows = TABLES[name], pattern(name)
    rows[label][0] = 40
    found = verdicts(table, results_with(table, "cpu", rows))
    (open_claim,) = [text for text, verdict in found.items() if verdict == "can't be judged"]
    assert open_claim.startswith(start)


@pytest.mark.parametrize(
    ("in_domain", "beyond", "verdict"),
    [
        ({}, {}, "holds"),
        ({"RPE_k": 40}, {}, "can't be judged"),
        ({"APE": 40}, {"RPE_k": 49}, "does not hold"),
        ({"RPE_k": 40}, {"APE": 49}, "does not hold"),
        ({"APE": None}, {"RPE_k": 49}, "does not hold"),
        ({"APE": None, "RPE_k": 40}, {}, "not enough runs"),
        ({"APE": 40, "RPE_k": None}, {}, "not enough runs"),
    ],
)
def test_a_contradiction_settles_a_claim_and_then_what_is_missing(in_domain, beyond, verdict):
    gone = next((embedding for embedding, value in in_domain.items() if value is None), "")
    table, rows = TABLES["table-modular-multiplication"], pattern("table-modular-multiplication")
    for column, cells in ((0, in_domain), (2, beyond)):
        for embedding, value in cells.items():
            if value is None:
                del rows[f"c=100 {embedding}"]
            else:
                rows[f"c=100 {embedding}"][column] = value
    claim, results = table.claims[0], results_with(table, "cpu", rows)
    assert claim.verdict(results) == verdict
    assert set(claim.seeds(results)) == {f"c=100 {pe}" for pe in POSITIONS}
    assert seeds_read(claim, results) == (f"{MISSING}, such as c=100 {gone}" if verdict == "not enough runs" else "2")


@pytest.mark.parametrize(
    ("rows", "verdict"),
    [
        ({"RPE_k": [100, 100, 100, 100, 96]}, "holds"),  # whatever is missing
        ({"RPE_k": [40, 0, 0, 0, 0], "APE": [100, 100, 100, 100, 96]}, "holds"),
        ({"APE": [100, 0, 0, 0, 0]}, "not enough runs"),
        ({pe: [100, 0, 0, 0, 94] for pe in POSITIONS}, "does not hold"),
        ({"APE": [40, 0, 0, 0, 0], "RPE_k": [100, 0, 0, 0, 0], "RPE_k,q": [100, 0, 0, 0, 0]}, "can't be judged"),
    ],
)
def test_one_settles_a_claim_on_some(rows, verdict):
    table = TABLES["table-modular-multiplication"]
    results = results_with(table, "cpu", {f"c=100 {pe}": row for pe, row in rows.items()})
    assert table.claims[1].verdict(results) == verdict


def test_every_claim_is_contradicted_once():
    for name, cases in CONTRADICTIONS.items():
        starts = tuple(start for _, expected in cases for start in expected)
        left = [claim.text for claim in TABLES[name].claims if not claim.text.startswith(starts)]
        assert all(text.startswith("at the longest length") for text in left)  # that on digits, below


@pytest.mark.parametrize("name", JUDGED)
def test_cells_have_ours_and_the_published_number(name):
    table, rows = TABLES[name], pattern(name)
    grid, *_ = table.grids(results_with(table, "cpu", rows)).values()
    for label, *cells in grid_rows(grid):
        for cell, ours, published in zip(cells, rows[label], table.published[label], strict=True):
            shown = MISSING if ours is None else f"{ours:.1f} ± 0.0 (2 seeds)"
            assert cell == (shown if published is None else f"{shown} · {published:g}")


def elementwise(*seeds: list[float]) -> Results:
    """Results at cpu scale with these accuracies of the ten digits."""
    results = results_with(TABLES["table-elementwise"], "cpu", pattern("table-elementwise"))
    made = [{"evaluation": [{"length": 10, "exact_match": 0.0, "digits": digits}]} for digits in seeds]
    return Results("cpu", {**results.records, "APE": made})


def last_claim(results: Results) -> str:
    return TABLES["table-elementwise"].claims[-1].verdict(results)


def test_the_claim_on_digits_is_about_the_mean_over_seeds():
    assert last_claim(elementwise([1] * 5 + [0] * 5)) == "holds"
    assert last_claim(elementwise([1] * 5 + [0.9] * 5, [1] * 5 + [0] * 5)) == "holds"
    assert last_claim(elementwise([1] * 5 + [0.9] * 5)) == "does not hold"
    assert last_claim(elementwise([0.8] * 5 + [0] * 5)) == "does not hold"
    assert last_claim(elementwise([0] * 5 + [1] * 5)) == "does not hold"  # rightmost digits right instead
    assert last_claim(elementwise()) == "not enough runs"


def test_the_figure_shows_the_mean_over_seeds_digit_by_digit():
    seeds = [1.0] * 5 + [0.2] * 5, [0.8] * 5 + [0.0] * 5
    figure = Figure()
    TABLES["table-elementwise"].draw(elementwise(*seeds), figure)
    (axes,) = figure.axes
    (mean,) = [line for line in axes.lines if "mean" in str(line.get_label())]
    assert list(mean.get_xdata()) == list(range(1, 11))
    assert np.allclose(mean.get_ydata(), [90] * 5 + [10] * 5)
    assert mean.get_label() == "mean of 2 seeds"


@pytest.mark.parametrize("name", JUDGED)
def test_a_table_that_draws_saves_its_figure(name, tmp_path: Path):
    table = TABLES[name]
    draws = type(table).draw is not Artefact.draw
    rows = {label: [50.0] * len(table.lengths["cpu"]) for label in table.published}
    results = results_with(table, "cpu", rows)
    assert draw(table, results, tmp_path) == draws
    saved = {path.name: path.read_bytes()[:4] for path in tmp_path.iterdir()}
    assert saved == ({f"{table.name}.png": b"\x89PNG", f"{table.name}.pdf": b"%PDF"} if draws else {})
    for label in results.records if draws else ():  # also if some runs are missing
        draw(table, Results("cpu", {label: results.of(label)}), tmp_path)


def write_record(results: Path, planned: Planned, end: float, tests: Mapping[int, float], start: float = 0.5) -> None:
    """What is kept of a run: in domain it went from one accuracy to another while it was trained."""

    def accuracy(length: int, share: float) -> Record:
        counts = {"length": length, "examples": 100, "correct": round(100 * share)}
        return {**counts, "exact_match": share, "digits": [share] * length}

    trained = planned.experiment.data.train_digits
    curve = [{"examples": i, "evaluation": [accuracy(trained, share)]} for i, share in enumerate((start, end))]
    made = {
        "config": planned.experiment.model_dump(mode="json"),
        "curve": curve,
        "evaluation": [accuracy(n, share) for n, share in tests.items()],
        "measures": {},
        "training": [],
    }
    path = record_path(results, "paper", planned.identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, made)


def test_of_the_variants_the_best_in_domain_is_kept(tmp_path: Path):
    """By the end of training's own evaluations and all seeds, whatever tests and earlier ones say."""
    table, (first, *_, last) = TABLES["table-elementwise"], variants("paper")
    for variant, ends, at_six, start in ((first, (1.0, 0.9), 1.0, 0.99), (last, (0.97, 0.96), 0.2, 0.1)):
        planned = [p for p in plan(table, "paper", range(2), tmp_path, variant=variant) if p.label == "RPE_k"]
        for p, end in zip(planned, ends, strict=True):
            write_record(tmp_path, p, end, {5: at_six, 6: at_six, 20: 0.0}, start)
    found = load_results(table, "paper", tmp_path, tmp_path)
    assert found.kept == {"RPE_k": last}
    assert found.exact_match("RPE_k", 6) == [0.2, 0.2]
    assert in_domain(found.of("RPE_k")) > in_domain(found.of("RPE_k")[:1])  # what diverged counts as nothing
    write_report("paper", tmp_path, tmp_path, tmp_path, [table])
    report = (tmp_path / "report.md").read_text()
    assert "- RPE_k: learning rate 1e-05, weight decay 1e-05\n" in report
    assert f"| {table.claims[0].text} | does not hold | 2 |" in report
    assert f"| {table.claims[1].text} | not enough runs | missing, such as APE |" in report


def test_a_seed_without_a_record_hides_no_other(tmp_path: Path):
    table = TABLES["table-elementwise"]
    for p in plan(table, "paper", range(5), tmp_path, variant=variants("paper")[0]):
        if p.label == "APE" and p.seed in (2, 4):
            write_record(tmp_path, p, 1.0, {5: p.seed / 10})
    assert load_results(table, "paper", tmp_path, tmp_path).exact_match("APE", 5) == [0.2, 0.4]


def test_fine_tuning_is_shown_in_the_variant_of_its_origin(tmp_path: Path):
    """It is in domain at a length that is tested, which must not decide."""
    figure, (first, *_, last) = ARTEFACTS["figure-finetuning-priming"], variants("paper")
    for variant, before, after in ((first, 0.9, 1.0), (last, 0.99, 0.3)):
        planned = {p.label: p for p in plan(figure, "paper", range(1), tmp_path, variant=variant)}
        write_record(tmp_path, planned[BASE], before, {5: before, 35: 0.0})
        write_record(tmp_path, planned[tuned(1000)], after, {5: 0.0, 35: after})
    found = load_results(figure, "paper", tmp_path, tmp_path)
    assert found.kept == {BASE: last, tuned(1000): last}
    assert found.exact_match(tuned(1000), 35) == [0.3]


def test_a_verdict_has_the_seeds_of_the_settings_that_it_rests_on():
    table = TABLES["table-elementwise"]
    whole = results_with(table, "cpu", pattern("table-elementwise")).records
    uneven = Results("cpu", {"APE": whole["APE"][:1], "RPE_k": [*whole["RPE_k"], whole["RPE_k"][0]]})
    assert [seeds_read(claim, uneven) for claim in table.claims] == ["3", "1–3", "1", "1"]
    part = Results("cpu", {"RPE_k": whole["RPE_k"]})
    assert [seeds_read(claim, part) for claim in table.claims] == ["2", *[f"{MISSING}, such as APE"] * 3]
    assert {seeds_read(claim, Results("smoke", whole)) for claim in table.claims} == {""}


@pytest.mark.parametrize(
    "damage",
    [
        *("{}", "[]", "null", "{"),
        *({"evaluation": [{"length": 5}]}, {"evaluation": None}, {"config": {"task": "nope"}}, {"curve": "x"}),
    ],
    ids=str,
)
def test_a_damaged_record_is_told_with_what_to_do(damage, tmp_path: Path):
    table = TABLES["table-elementwise"]
    planned = next(plan(table, "paper", range(1), tmp_path, variant=variants("paper")[0]))
    path = record_path(tmp_path, "paper", planned.identity)
    write_record(tmp_path, planned, 1.0, {5: 1.0})
    assert load_results(table, "paper", tmp_path, tmp_path).of(planned.label)
    path.write_text(damage if isinstance(damage, str) else json.dumps({**read_json(path), **damage}))
    with pytest.raises(UsageError, match=r"is damaged"):
        load_results(table, "paper", tmp_path, tmp_path)
