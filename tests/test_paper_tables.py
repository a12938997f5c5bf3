"""The claims of the paper's tables, on the published numbers and on contradicting ones."""

import pytest
from paper_fixtures import (
    Rows,
    at,
    published_rows,
    record,
    results,
    table,
    table_results,
    verdicts,
    without,
)

from lengthwise.paper import ARTEFACTS
from lengthwise.paper.artefact import Table
from lengthwise.paper.results import Results
from lengthwise.paper.scales import EMBEDDINGS, SCALES

MOST, LEAST = "most significant first", "least significant first"
TABLES = [name for name, artefact in ARTEFACTS.items() if isinstance(artefact, Table)]
JUDGED = [name for name in TABLES if not name.startswith("beyond-")]


def digits_of(label: str) -> list[float]:
    """Of sums without carries: absolute embeddings know the trained digits only."""
    return [0.99] * 5 + [0.12 if label == "APE" else 0.99] * 15


def like_the_paper(name: str) -> Rows:
    """The published numbers, or where there are none what the text or our notes say."""
    rows = published_rows(table(name))
    for label in table(name).conditions("cpu"):
        if name == "table-modular-addition-full":
            easy: dict[int, float] = {5: 100, 10: 80} if "RPE_k,q" in label else {5: 100, 10: 40}
            rows[label] = easy if label.startswith(("c=100 ", "c=1000 ")) else {5: 6, 10: 2}
        elif label.startswith("sums, c="):
            rows[label] = {5: 6, 10: 2}
        elif name == "sampling":
            rows[label] = {5: 97, 6: 81} if "problem-length" in label else {5: 97, 6: 1}
        elif name == "digit-order":
            rows[label] = {5: 100, 6: 98, 10: 90} if LEAST in label else {5: 96, 6: 1, 10: 1}
    return rows


def make(name: str, rows: Rows, **options: object) -> Results:
    if name != "table-elementwise":
        return table_results(rows)
    records = {
        label: record(at(cells), digits=lambda n, label=label: digits_of(label)[:n])  # type: ignore[misc]
        for label, cells in rows.items()
    }
    return results(records)


# Claims that the rule can't judge on the published numbers: a model is below 90 % in domain.
UNJUDGED = {
    "table-modular-multiplication": {
        "c = 1000: absolute embeddings generalise",
        "c = 1000: relative embeddings (RPE_k,q) improve",
    },
    "table-modular-multiplication-full": {
        "c = 128: length generalisation still happens",
        "c = 128: relative embeddings facilitate",
        "c = 128: larger models facilitate",
    },
}


def test_claims_hold_on_the_published_numbers(subtests: pytest.Subtests) -> None:
    for name in JUDGED:
        with subtests.test(name):
            artefact = table(name)
            assert set(like_the_paper(name)) == set(artefact.conditions("cpu"))
            found = verdicts(artefact, make(name, like_the_paper(name)))
            open_claims = {text for text, verdict in found.items() if verdict == "can't be judged"}
            assert all(any(t.startswith(u) for u in UNJUDGED.get(name, ())) for t in open_claims)
            assert len(open_claims) == 2 * len(UNJUDGED.get(name, ()))  # in both orders of digits
            assert {found[text] for text in found.keys() - open_claims} == {"holds"}


Change = dict[tuple[str, int], float]  # percentages by condition and length
# For every claim: numbers that contradict it, and the claims that fail then, by their beginnings.
CONTRADICTIONS: dict[str, list[tuple[Change, list[str]]]] = {
    "table-addition": [
        (
            {(f"{encoder} RPE_k {size}", 6): 1.0 for encoder in ("Transformer",) for size in "BL"},
            ["Transformers with relative-key", "accuracy drops"],
        ),
        ({("UTransformer RPE_k L", 6): 3.0}, ["UTransformers with relative-key", "accuracy drops"]),
        ({("UTransformer APE L", 6): 5.5}, ["models with absolute embeddings fail"]),
        ({("UTransformer APE L", 10): 1.1}, ["models with absolute embeddings have 0 %"]),
        ({("Transformer RPE_k B", 20): 100}, ["accuracy drops"]),
        (
            {("Transformer RPE_k B", 20): 20.2},
            ["the best models with relative embeddings reach 21.3"],
        ),
        (
            {("UTransformer RPE_k L", 15): 97.2},
            ["the best models with relative embeddings reach 98.3"],
        ),
        (
            {
                ("UTransformer RPE_k L", 10): 98.8,
                ("Transformer RPE_k B", 10): 98.8,
                ("Transformer RPE_k,q L", 10): 98.8,
            },
            ["the best models with relative embeddings reach 99.9"],
        ),
        (
            {("UTransformer RPE_k L", 15): 89, ("Transformer RPE_k B", 15): 89},
            [
                "models with relative embeddings, trained",
                "the best models with relative embeddings reach 98",
            ],
        ),
        ({("Transformer RPE_k,q L", 15): 97.3}, ["relative-key is the crucial variant"]),
        ({("Transformer APE B", 5): 99.4}, ["all models are perfect"]),
    ],
    "table-modular-addition": [
        (
            {(f"c=100 RPE_k, {MOST}", 10): 49},
            [
                "models with relative embeddings generalise",
                "models with relative embeddings extrapolate",
            ],
        ),
        ({(f"no modulus RPE_k, {MOST}", 10): 87}, ["models with relative embeddings extrapolate"]),
        ({(f"c=1000 APE, {MOST}", 10): 49}, ["models with absolute embeddings generalise"]),
        ({(f"c=100 APE, {MOST}", 10): 72.2}, ["models with absolute embeddings reach"]),
    ],
    "table-modular-multiplication": [
        ({(f"c=100 APE, {MOST}", 20): 49}, ["c = 100: models with absolute"]),
        ({(f"c=100 RPE_k,q, {MOST}", 35): 98.9}, ["c = 100: the best embedding"]),
        (
            {(f"c=1000 APE, {MOST}", 5): 95, (f"c=1000 APE, {MOST}", 20): 41.9},
            ["c = 1000: absolute embeddings generalise"],
        ),
        ({(f"c=1000 RPE_k,q, {MOST}", 30): 53.9}, ["c = 1000: the better relative"]),
        ({(f"c=1000 RPE_k,q, {MOST}", 20): 81.9}, ["c = 1000: the better relative"]),
        (
            {(f"c=1000 APE, {MOST}", 5): 95, (f"c=1000 APE, {MOST}", 20): 83},
            ["c = 1000: relative embeddings (RPE_k,q) improve"],
        ),
    ],
    "table-modular-addition-full": [
        ({(f"c=1000 RPE_k,q B, {MOST}", 10): 49}, ["models extrapolate when"]),
        ({(f"c=101 RPE_k,q B, {MOST}", 5): 99.1}, ["c = 128 and 101: no Base model"]),
        ({(f"c=128 APE L, {MOST}", 5): 50}, ["c = 128 and 101: larger models"]),
        ({(f"c=128 APE L, {MOST}", 5): 12}, ["c = 128 and 101: larger models"]),
    ],
    "table-modular-multiplication-full": [
        ({(f"c=100 APE L, {MOST}", 35): 94}, ["c = 100: Large"]),
        ({(f"c=100 APE B, {MOST}", 5): 14}, ["c = 128: performance"]),
        ({(f"c=128 APE B, {MOST}", n): p for n, p in ((5, 95), (10, 3))}, ["c = 128: length"]),
        (
            {
                **{(f"c=128 {pe} B, {MOST}", 5): 95 for pe in EMBEDDINGS},
                (f"c=128 APE B, {MOST}", 10): 22,
            },
            ["c = 128: relative embeddings facilitate"],
        ),
        (
            {
                **{(f"c=128 {pe} {size}, {MOST}", 5): 95 for pe in EMBEDDINGS for size in "BL"},
                (f"c=128 RPE_k L, {MOST}", 35): 1,
            },
            ["c = 128: larger models facilitate"],
        ),
        (
            {(f"c=101 RPE_k,q B, {MOST}", 5): 70},
            ["c = 101: models can learn"],
        ),
        ({(f"c=101 RPE_k,q B, {MOST}", 10): 6}, ["c = 101: Base models that have learned it fail"]),
        ({(f"sums, c=128 APE B, {MOST}", 5): 30}, ["modular multiplication is easier"]),
    ],
    "table-multiplication": [
        ({("1-digit RPE_k,q", 5): 94}, ["all models"]),
        ({("3-digits APE", 6): 6}, ["multiplication by 3 digits"]),
        ({("2-digits APE", 6): 15.6}, ["by 1 and 2 digits, relative embeddings generalise"]),
        ({("1-digit RPE_k,q", 6): 51}, ["by 1 and 2 digits, relative embeddings generalise"]),
        ({("2-digits RPE_k,q", 7): 6}, ["by 1 and 2 digits, relative embeddings fail"]),
    ],
    "table-elementwise": [
        ({("RPE_k", 20): 49}, ["models with relative embeddings generalise"]),
        ({("APE", 10): 91}, ["models with relative embeddings beat"]),
    ],
    "sampling": [
        ({("Transformer problem-length", 6): 49}, ["Transformers generalise"]),
        ({("UTransformer uniform-integer", 6): 11}, ["UTransformers generalise"]),
    ],
    "digit-order": [
        ({(f"sums, APE, {LEAST}", 10): 49}, ["models with absolute embeddings generalise in sums"]),
        (
            {(f"products, APE, {MOST}", 10): 11},
            ["models with absolute embeddings generalise in pro"],
        ),
    ],
}


def test_a_contradicted_claim_fails_and_no_other(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, Change, list[str]]] = [
        (name, *case) for name, cases in CONTRADICTIONS.items() for case in cases
    ]
    for name, change, expected in cases:
        with subtests.test(f"{name} {expected}"):
            rows = like_the_paper(name)
            for (label, length), value in change.items():
                rows[label][length] = value
            found = verdicts(table(name), make(name, rows))
            failed = [text for text, verdict in found.items() if verdict == "does not hold"]
            assert len(failed) == len(expected), failed
            for start in expected:
                assert any(text.startswith(start) for text in failed), (start, failed)


def test_every_claim_is_contradicted_once() -> None:
    for name in JUDGED:
        starts = tuple(start for _, expected in CONTRADICTIONS[name] for start in expected)
        left = [claim.text for claim in table(name).claims if not claim.text.startswith(starts)]
        by_digit = (
            "models with absolute embeddings fail",
            "models with absolute embeddings predict",
        )
        assert all(text.startswith(by_digit) for text in left), left


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ([1.0] * 5 + [0.1] * 15, ["holds", "holds"]),
        ([1.0] * 5 + [0.9] * 15, ["does not hold", "holds"]),
        ([0.8] * 5 + [0.0] * 15, ["holds", "does not hold"]),
        ([0.0] * 5 + [1.0] * 15, ["does not hold", "does not hold"]),  # rightmost digits instead
    ],
)
def test_absolute_embeddings_on_sums_without_carries_are_judged_by_digit(
    digits: list[float], expected: list[str]
) -> None:
    """At 6 digits exact match can't tell: a guessed sixth digit is right in 10 %."""
    absolute = record(at({5: 100, 6: 10, 10: 0}), digits=lambda n: digits[:n])
    found = verdicts(table("table-elementwise"), results({"APE": absolute}))
    judged = {
        text: verdict for text, verdict in found.items() if text.startswith("models with abs")
    }
    assert list(judged.values()) == expected


def test_a_missing_condition_never_turns_a_verdict(subtests: pytest.Subtests) -> None:
    """A claim that needs it is not run; every condition of a claim is needed by some claim."""
    for name in JUDGED:
        with subtests.test(name):
            whole = make(name, like_the_paper(name))
            before = verdicts(table(name), whole)
            for label in whole.records:
                after = verdicts(table(name), without(whole, label))
                assert all(after[text] in (before[text], "not run") for text in before), label
            assert set(verdicts(table(name), Results("cpu")).values()) == {"not run"}


def test_two_seeds_are_too_few(subtests: pytest.Subtests) -> None:
    for name in JUDGED:
        with subtests.test(name):
            whole = make(name, like_the_paper(name))
            two = {
                label: {s: r for s, r in seeds.items() if s < 2}
                for label, seeds in whole.records.items()
            }
            assert set(verdicts(table(name), Results("cpu", two)).values()) == {"too few seeds"}


def test_models_that_have_not_learned_decide_nothing_beyond(subtests: pytest.Subtests) -> None:
    """Not even a claim about failure; only what is said about the trained length is left."""
    for name in JUDGED:
        with subtests.test(name):
            rows = {label: {**cells, 5: 40.0} for label, cells in like_the_paper(name).items()}
            found = verdicts(table(name), make(name, rows))
            judged = [text for text, verdict in found.items() if verdict != "can't be judged"]
            about_learning = ("in domain", "learn modular", "easier", "don't learn")
            assert all(any(words in text for words in about_learning) for text in judged), judged


@pytest.mark.parametrize("name", JUDGED)
def test_cells_have_ours_and_the_published_number(name: str, subtests: pytest.Subtests) -> None:
    for scale in SCALES:
        with subtests.test(scale):
            artefact = table(name)
            rows = {label: {5: 50.0} for label in artefact.conditions(scale)}
            found = table_results(rows, scale, longest=8 if scale == "smoke" else 35)
            grids = artefact.grids(found)
            assert all(
                cell.shares == (0.5,) * 3
                for g in grids.values()
                for r in g.rows.values()
                for cell in r
            )
            shown = {label for grid in grids.values() for label in grid.rows}
            assert shown == {label for label in rows if not label.startswith("sums, c=")}
            for grid in artefact.grids(Results(scale)).values():
                assert all(cell.ours() == "missing" for row in grid.rows.values() for cell in row)
                for label, row in grid.rows.items():
                    published = [cell.published for cell in row if cell.published is not None]
                    expected = artefact.published.get(label, ()) if scale != "smoke" else ()
                    assert published in ([], [100.0], list(expected))
