"""The data file of published numbers: pinned in every clone, and equal to the paper's LaTeX."""

import hashlib
import json
import re
import warnings
from pathlib import Path

import pytest

from lengthwise import paper
from lengthwise.paper import ARTEFACTS
from lengthwise.paper.artefact import Table
from lengthwise.paper.published import contents, statement, statements, table

PAPER = Path(__file__).parent.parent.parent / "shared" / "paper" / "paper.tex"
# Of the tables as they were compared with the LaTeX; a change must be compared again.
CHECKSUMS = {
    "addition": "e6c2728a93ec4571",
    "modular-addition": "7adb0381f7f6a1f4",
    "modular-multiplication": "da40e898ccb11dad",
    "multiplication": "e75b4aa8a4a52c92",
    "modular-addition-full": "c121e4c4f39b0341",
    "modular-multiplication-full": "2fdc71c38364e407",
    "elementwise": "93e6f9966015599d",
}
STATEMENTS = "d63893ea7212d61e"
SHAPES = {  # rows and columns
    "addition": (12, 4),
    "modular-addition": (6, 5),
    "modular-multiplication": (6, 5),
    "multiplication": (9, 3),
    "modular-addition-full": (24, 5),
    "modular-multiplication-full": (24, 5),
    "elementwise": (2, 5),
}


def checksum(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_data_file_is_the_one_that_was_compared() -> None:
    """Runs in a clone without the paper, too."""
    assert {name: checksum(fields) for name, fields in contents()["tables"].items()} == CHECKSUMS
    assert checksum(contents()["statements"]) == STATEMENTS


def test_tables_are_percentages_in_rows_and_columns(subtests: pytest.Subtests) -> None:
    for name in SHAPES:
        with subtests.test(name):
            rows, columns = SHAPES[name]
            found = table(name)
            assert len(found.rows) == rows
            assert {len(row) for row in found.rows.values()} == {len(found.lengths)} == {columns}
            assert list(found.lengths) == sorted(set(found.lengths))
            assert all(0 <= value <= 100 for row in found.rows.values() for value in row)


def test_statements_have_a_value_a_place_and_a_quote() -> None:
    for name, fields in contents()["statements"].items():
        assert set(fields) in ({"where", "value", "quote"}, {"where", "values", "quote"}), name
        numbers = statements(name).values() if "values" in fields else [statement(name)]
        for number in numbers:
            digits = f"{number:g}" if number < 1e6 else f"{number / 1e6:g}"
            words = {"2": "two", "3": "three"}
            quote = fields["quote"]
            assert digits in quote or words[digits] in quote, f"{name}: {number} isn't in its quote"


def test_every_statement_is_used() -> None:
    """By a claim, a headline or an experiment; some are named by their encoder or length."""
    code = "\n".join(path.read_text() for path in Path(paper.__file__).parent.rglob("*.py"))
    for name in contents()["statements"]:
        part = r"U?Transformer(?=s$)|\d+(?= digits$)"
        pattern = re.sub(part, lambda found: rf"({found[0]}|{{\w+}})", name)
        assert re.search(f"[\"']{pattern}[\"']", code), name


def test_repeated_tables() -> None:
    """Table 2b is part of the full table; that of modular addition is the same one, misprinted."""
    full = table("modular-multiplication-full")
    for row, values in table("modular-multiplication").rows.items():
        assert full.rows[f"{row} B"] == values
    assert table("modular-addition-full").rows == full.rows
    assert "unpublished" in table("modular-addition-full").note


def test_artefacts_show_the_published_numbers() -> None:
    """In every row with such numbers, and nowhere else."""
    shown = {
        "table-addition": "addition",
        "table-modular-addition": "modular-addition",
        "table-modular-multiplication": "modular-multiplication",
        "table-multiplication": "multiplication",
        "table-modular-multiplication-full": "modular-multiplication-full",
        "table-elementwise": "elementwise",
    }
    for name, artefact in ARTEFACTS.items():
        if not isinstance(artefact, Table):
            continue
        if name not in shown:
            assert not artefact.published, f"{name} publishes numbers that the paper doesn't"
            continue
        found = table(shown[name])
        assert artefact.lengths == found.lengths
        conditions = artefact.conditions("cpu")
        for row, values in found.rows.items():
            labels = [x for x in conditions if x == row or x.startswith(f"{row}, ")]
            assert labels
            assert {tuple(artefact.published[label]) for label in labels} == {values}
        assert set(artefact.published) <= set(conditions)


def printed(tex: str, label: str) -> tuple[list[int], dict[tuple[str, ...], list[float]]]:
    """The lengths and the rows of the LaTeX table with a label: the last `tabular` before it."""
    start = tex.rindex(r"\begin{tabular}", 0, tex.index(rf"\label{{{label}}}"))
    body = tex[start : tex.index(r"\end{tabular}", start)]
    body = re.sub(r"RPE\$_{?(k(?:,q)?)}?\$", r"RPE_\1", body)
    body = re.sub(r"\\multirow{\d+}{\*}{([^{}]*)}|\\textbf{([^{}]*)}", r"\1\2", body)
    body = re.sub(r"\\\w+rule", "", body)
    lines = [[cell.strip() for cell in line.split("&")] for line in body.split(r"\\")]
    header = next(i for i, line in enumerate(lines) if "PE" in line)
    numbers = [i for i, cell in enumerate(lines[header]) if cell.isdecimal()]
    names = [i for i, cell in enumerate(lines[header]) if cell and not cell.isdecimal()]
    rows: dict[tuple[str, ...], list[float]] = {}
    name = [""] * len(names)
    for line in lines[header + 1 : -1]:  # nothing follows the last \\
        name = [line[i] or before for i, before in zip(names, name, strict=True)]  # \multirow
        assert tuple(name) not in rows
        rows[tuple(name)] = [float(line[i]) for i in numbers]
    return [int(lines[header][i]) for i in numbers], rows


def row_name(table_name: str, name: tuple[str, ...]) -> str:
    if "modular" in table_name:
        name = (f"c={name[0]}", *name[1:])
    return " ".join({"Base": "B", "Large": "L"}.get(part, part) for part in name)


def test_the_data_file_is_the_papers() -> None:
    """Where the LaTeX is beside the clone; the checksums above stand for it elsewhere."""
    if not PAPER.exists():
        warnings.warn(f"{PAPER} isn't here; checked by checksums only", stacklevel=1)
        return
    tex = PAPER.read_text()
    for name in CHECKSUMS:
        found = table(name)
        lengths, rows = printed(tex, found.label)
        assert list(found.lengths) == lengths
        expected = {row_name(name, row): tuple(values) for row, values in rows.items()}
        assert dict(found.rows) == expected
    assert tex.count(r"\begin{tabular}") == len(CHECKSUMS), "every table is in the data file"
    text = " ".join(tex.split())
    for name, fields in contents()["statements"].items():
        assert " ".join(fields["quote"].split()) in text, name


def test_a_changed_number_is_noticed() -> None:
    fields = json.loads(json.dumps(contents()["tables"]["addition"]))
    fields["rows"]["UTransformer RPE_k L"][2] = 98.4
    assert checksum(fields) != CHECKSUMS["addition"]
