"""Conditions, plans, variants, records and the report: what is trained, chosen and shown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from paper_fixtures import record as make_record
from paper_fixtures import table

from lengthwise.base import UsageError
from lengthwise.base.files import read_json, write_json
from lengthwise.paper import ARTEFACTS, scales
from lengthwise.paper.artefact import Artefact, Table
from lengthwise.paper.artefacts import figure_digit_curves as digit_curves
from lengthwise.paper.artefacts import figure_overspill
from lengthwise.paper.artefacts import figure_priming_ablations as ablations
from lengthwise.paper.artefacts import figure_priming_absolute as absolute
from lengthwise.paper.artefacts import figure_priming_lengths as priming_lengths
from lengthwise.paper.artefacts import figure_scaling as scaling
from lengthwise.paper.experiments import UNPRIMED, fine_tuned_label, primed_label
from lengthwise.paper.records import PlannedRun, load_results, plan, plan_seed, record_path
from lengthwise.paper.report import write_report
from lengthwise.paper.running import choose_variants, cost
from lengthwise.paper.scales import EMBEDDINGS, RECIPES, SCALES, Overrides, ScaleName, variants
from lengthwise.training.experiment import Experiment

every_artefact = pytest.mark.parametrize("artefact", ARTEFACTS.values(), ids=ARTEFACTS)
every_scale = pytest.mark.parametrize("scale", SCALES)
ROOT = Path("runs")
MOST, LEAST = "most significant first", "least significant first"


def experiments(name: str, scale: ScaleName) -> dict[str, Experiment]:
    planned = plan_seed(ARTEFACTS[name], scale, 0, ROOT)
    return {label: run.experiment for label, run in planned.items()}


def identities(name: str, scale: ScaleName) -> dict[str, str]:
    return {
        label: run.identity for label, run in plan_seed(ARTEFACTS[name], scale, 0, ROOT).items()
    }


@every_artefact
def test_conditions_are_different_experiments_that_test_every_cell(artefact: Artefact) -> None:
    for scale in SCALES:
        first, second = (plan_seed(artefact, scale, seed, ROOT) for seed in (0, 1))
        assert list(first) == list(artefact.conditions(scale))
        by_identity = {run.identity for run in (*first.values(), *second.values())}
        # At smoke scale all sizes are one.
        assert scale == "smoke" or len(by_identity) == 2 * len(first)
        for label, run in first.items():
            tested, during = run.experiment.final_lengths, run.experiment.lengths
            assert run.experiment.data.train_digits in tested
            assert run.experiment.data.train_digits in during, "it chooses between variants"
            assert run.origin is None or run.origin in by_identity
            if isinstance(artefact, Table) and not label.startswith("sums, c="):
                assert set(artefact.columns(scale)) <= set(tested)


def test_the_cpu_scale_has_the_papers_lengths() -> None:
    """20 digits for sums and modular sums, 35 for products; columns as published."""
    lengths = {
        "addition": 20,
        "elementwise-addition": 20,
        "modular-addition": 20,
        "multiplication": 35,
        "modular-multiplication": 35,
    }
    for name in ARTEFACTS:
        if name.startswith("beyond-"):
            continue
        for cpu, paper in zip(
            experiments(name, "cpu").values(), experiments(name, "paper").values(), strict=False
        ):
            assert cpu.data.test_digits == paper.data.test_digits == lengths[cpu.task.kind]
    for name in ("table-addition", "table-multiplication", "table-modular-multiplication-full"):
        assert table(name).columns("cpu") == table(name).columns("paper") == table(name).lengths


def test_cpu_recipes_stand_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of a recipe changes every experiment of its family, and nothing else."""
    sums = experiments("table-addition", "cpu")["UTransformer RPE_k B"]
    assert sums.model.layers == RECIPES["sums"].base["model.layers"]
    assert sums.steps * sums.training.batch_size == RECIPES["sums"].examples
    products = experiments("figure-finetuning-priming", "cpu")[UNPRIMED]
    assert products.steps * products.training.batch_size == RECIPES["products"].examples
    longer = {**RECIPES, "products": replace(RECIPES["products"], examples=64_000)}
    monkeypatch.setattr(scales, "RECIPES", longer)
    monkeypatch.setattr("lengthwise.paper.experiments.RECIPES", longer)
    assert experiments("figure-finetuning-priming", "cpu")[UNPRIMED].steps == 2000
    assert experiments("table-addition", "cpu")["UTransformer RPE_k B"] == sums


def test_priming_at_cpu_scale_is_literal_in_length() -> None:
    tuning = experiments("figure-finetuning-priming", "cpu")
    assert {UNPRIMED, primed_label(50)} < set(tuning)
    assert {fine_tuned_label(n) for n in (50, 100, 500, 1000)} < set(tuning)
    for label, experiment in tuning.items():
        assert experiment.layout.kind == "compact"
        assert experiment.task.operand_digits(35) == (35, 1)
        if label.startswith("fine"):
            assert (experiment.data.sampling, experiment.data.train_digits) == ("exact", 35)
    varied = experiments("figure-priming-ablations", "cpu")
    assert {experiment.data.train_size for experiment in varied.values()} == {1000, 5000, 20_000}
    epochs = {e.steps * e.training.batch_size / e.data.train_size for e in varied.values()}
    assert epochs == {RECIPES["products"].examples / 5000}, "train set sizes have equal epochs"
    assert {n for e in varied.values() for n, _ in e.data.priming} >= {6, 10, 20, 35}
    assert varied[ablations.TWO_LONGEST].data.priming == ((34, 25), (35, 25))
    assert {
        e.data.primed_count for e in experiments("figure-priming-absolute", "cpu").values()
    } == {
        0,
        50,
        500,
    }
    spread = experiments("figure-priming-lengths", "cpu")
    alone, primed = spread[priming_lengths.ALONE], spread[priming_lengths.ALL]
    assert alone.data.priming == primed.data.priming
    assert (alone.data.train_size, alone.steps) == (501, primed.steps)
    every, even = (
        dict(spread[x].data.priming) for x in (priming_lengths.ALL, priming_lengths.EVEN)
    )
    assert (min(every), max(every), sum(every.values())) == (6, 35, 500)
    assert sum(even.values()) == 500
    assert all(n % 2 == 0 for n in even)


SIZES = {"B": (6, 512, 8), "S": (6, 1024, 16), "L": (10, 1024, 16)}  # §2.2: layers, width, heads
CAPTIONS = {  # size where the label has none, N_train, test examples
    "table-addition": (None, 5000, 100_000),
    "table-modular-addition": ("B", 5000, 100_000),
    "table-modular-multiplication": ("B", 5000, 100_000),
    "table-modular-addition-full": (None, 5000, 100_000),
    "table-modular-multiplication-full": (None, 5000, 100_000),
    "table-multiplication": ("S", 5000, 100_000),
    "table-elementwise": ("B", 50_000, 10_000),
    "figure-finetuning-priming": ("S", 5000, 100_000),
    "figure-priming-lengths": ("S", 5000, 100_000),
    "figure-failures": ("S", 5000, 100_000),
}


def test_paper_scale_is_as_the_captions_say(subtests: pytest.Subtests) -> None:
    for name in CAPTIONS:
        with subtests.test(name):
            size, train_size, final_examples = CAPTIONS[name]
            for label, experiment in experiments(name, "paper").items():
                words = (
                    label.partition(",  ")[0]
                    .replace(f", {MOST}", "")
                    .replace(f", {LEAST}", "")
                    .split()
                )
                own_size = next((word for word in words if word in SIZES), size)
                model = experiment.model
                assert (model.layers, model.width, model.heads) == SIZES[own_size or ""]
                assert model.encoder == (
                    "transformer" if "Transformer" in words else "universal-transformer"
                )
                embedding = next(
                    (EMBEDDINGS[word] for word in words if word in EMBEDDINGS), "relative-key"
                )
                assert model.position.kind == embedding
                assert experiment.layout.kind == "paper"
                order = experiment.layout.model_dump()["order"]
                assert order.replace("-", " ") == (LEAST if LEAST in label else MOST)
                assert experiment.evaluation.final_examples == final_examples
                if label.startswith("fine-tuned"):
                    assert (experiment.data.sampling, experiment.training.examples) == (
                        "exact",
                        7_500_000,
                    )
                    continue
                if label == priming_lengths.ALONE:
                    assert experiment.training.examples == 15_000 * 5000
                    continue
                assert experiment.data.train_size == train_size
                assert experiment.training.epochs == 15_000
                assert experiment.data.sampling == "uniform-integer"
                task = experiment.task.model_dump()
                if words[0].startswith("c="):
                    assert task["modulus"] == int(words[0].removeprefix("c="))
                if "digit" in words[0]:
                    assert task["second_digits"] == int(words[0][0])


def test_figure_2_varies_one_dimension_and_its_learning_rate() -> None:
    figure = ARTEFACTS["figure-scaling"]
    for scale in ("cpu", "paper"):
        found = experiments("figure-scaling", scale)
        assert {e.data.train_size for e in found.values()} == {50_000}
        width, depth = scaling.STANDARD[scale]
        assert all(e.model.width == width or e.model.layers == depth for e in found.values())
    rates = [variant["training.learning_rate"] for variant in figure.variants("cpu")]
    assert len(set(rates)) == 3
    assert rates[0] == RECIPES["sums"].base["training.learning_rate"]


@every_scale
def test_shared_runs_are_trained_once(scale: ScaleName) -> None:
    tuning, varied, curves = (
        identities(name, scale)
        for name in (
            "figure-finetuning-priming",
            "figure-priming-ablations",
            "figure-digit-curves",
        )
    )
    long = 8 if scale == "smoke" else 35
    fifty = tuning[primed_label(50)]
    assert tuning[UNPRIMED] == varied[UNPRIMED] == curves[UNPRIMED]
    assert fifty == varied[ablations.label(50, long)] == curves[primed_label(50)]
    assert fifty == identities("figure-priming-lengths", scale)[priming_lengths.ONE]
    assert fifty == identities("figure-priming-absolute", scale)[absolute.RELATIVE]
    reading = "integers uniform" if scale == "paper" else "lengths even"
    second = 3 if scale == "paper" else 1
    assert fifty == identities("figure-overspill", scale)[figure_overspill.label(reading, second)]
    for name in ("figure-digits-training", "figure-digits-test"):
        assert set(identities(name, scale).values()) <= set(varied.values())
    table_1, part_a = (
        identities("table-addition", scale),
        identities("table-modular-addition", scale),
    )
    (studied,) = identities("figure-failures", scale).values()
    row = table_1["Transformer RPE_k B"] if scale == "cpu" else curves[digit_curves.RELATIVE]
    assert studied == row
    for embedding in EMBEDDINGS:
        assert part_a[f"no modulus {embedding}, {MOST}"] == table_1[f"UTransformer {embedding} B"]
    full_a = identities("table-modular-addition-full", scale)
    assert full_a[f"c=100 APE B, {LEAST}"] == part_a[f"c=100 APE, {LEAST}"]
    part_b = identities("table-modular-multiplication", scale)
    full_b = identities("table-modular-multiplication-full", scale)
    assert full_b[f"c=100 APE B, {LEAST}"] == part_b[f"c=100 APE, {LEAST}"]
    assert full_b[f"sums, c=128 APE B, {MOST}"] == full_a[f"c=128 APE B, {MOST}"]
    orders = identities("digit-order", scale)
    assert orders[f"products, APE, {LEAST}"] == part_b[f"c=100 APE, {LEAST}"]
    if scale == "cpu":  # where the standard size is the base size
        assert curves[digit_curves.RELATIVE] == table_1["UTransformer RPE_k B"]


# Variants of the hyperparameters.

RATES, DECAYS = {1e-4, 3e-5, 1e-5}, {1e-5, 1e-4, 1e-3, 1e-2}  # §2.2


def test_the_first_seed_tries_every_pair_and_the_others_have_the_best(tmp_path: Path) -> None:
    artefact = ARTEFACTS["figure-finetuning-priming"]
    first = list(plan(artefact, "paper", 3, ROOT))
    rates = {
        (p.experiment.training.learning_rate, p.experiment.training.weight_decay) for p in first
    }
    assert rates == set(product(RATES, DECAYS))
    assert {(p.seed, p.origin) for p in first} == {(0, None)}, "fine-tuning waits for a choice"
    best = variants("paper")[5]
    chosen = dict.fromkeys(artefact.conditions("paper"), best)
    later = [p for p in plan(artefact, "paper", 3, ROOT, chosen=chosen) if p not in first]
    assert {p.variant == best for p in later} == {True}
    tuned = [p for p in later if p.origin]
    assert {p.seed for p in tuned} == {0, 1, 2}
    everything = {p.identity for p in (*first, *later)}
    assert all(p.origin in everything for p in tuned)
    assert cost(artefact, "paper", 3, tmp_path, ROOT).runs == len(everything)


def test_one_pair_instead_of_all(tmp_path: Path) -> None:
    artefact = ARTEFACTS["table-addition"]
    assert cost(artefact, "paper", 3, tmp_path, ROOT, search=False).runs == 3 * 12
    assert cost(artefact, "paper", 3, tmp_path, ROOT).runs == (12 + 2) * 12
    chosen = choose_variants(artefact, "paper", tmp_path, ROOT, search=False)
    assert {json.dumps(variant) for variant in chosen.values()} == {
        json.dumps(variants("paper")[0])
    }
    assert cost(artefact, "cpu", 3, tmp_path, ROOT).runs == 3 * 12


def save(
    results: Path,
    planned: PlannedRun,
    curve: Sequence[float],
    tests: Mapping[int, float],
    scale: ScaleName = "paper",
) -> Path:
    """A record whose accuracy in domain went through `curve` while the model was trained."""
    trained = planned.experiment.data.train_digits

    def tested(length: int, share: float) -> dict[str, object]:
        counts = {"length": length, "examples": 100, "correct": round(100 * share)}
        return {**counts, "exact_match": share, "digits": [share] * length}

    made = {
        **make_record(lambda n: 0.0),
        "identity": planned.identity,
        "config": planned.experiment.model_dump(mode="json"),
        "curve": [{"examples": i, "evaluation": [tested(trained, s)]} for i, s in enumerate(curve)],
        "evaluation": [tested(n, share) for n, share in tests.items()],
    }
    path = record_path(results, scale, planned.identity)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, made)
    return path


def planned_runs(name: str, variant: Overrides, seed: int = 0) -> dict[str, PlannedRun]:
    return plan_seed(ARTEFACTS[name], "paper", seed, ROOT, variant=variant)


@pytest.mark.parametrize(
    ("first", "last", "winner"),
    [
        ((0.99, 0.90), (0.10, 0.97), "last"),  # the end of training decides, not its beginning
        ((0.50, 1.00), (0.90, 1.00), "last"),  # then the average over training
        ((0.50, 1.00), (0.50, 1.00), "first"),
    ],
)
def test_the_variant_that_is_best_in_domain_is_chosen(
    first: tuple[float, ...], last: tuple[float, ...], winner: str, tmp_path: Path
) -> None:
    """Whatever longer numbers say, and whatever other seeds say."""
    options = {"first": variants("paper")[0], "last": variants("paper")[-1]}
    for name, curve in (("first", first), ("last", last)):
        beyond = 0.2 if name == winner else 1.0
        runs = planned_runs("table-elementwise", options[name])
        save(tmp_path, runs["RPE_k"], curve, {5: beyond, 6: beyond, 20: 0.0})
    later = planned_runs("table-elementwise", options[winner], seed=1)
    save(tmp_path, later["RPE_k"], (0.0, 0.0), {5: 0.3, 6: 0.3})
    found = load_results(ARTEFACTS["table-elementwise"], "paper", tmp_path, ROOT)
    assert found.variants == {"RPE_k": options[winner]}
    assert found.exact_match("RPE_k", 6) == [0.2, 0.3]


def test_fine_tuning_has_the_variant_of_its_origin(tmp_path: Path) -> None:
    """It is in domain at a length that is tested, which must not decide."""
    figure = ARTEFACTS["figure-finetuning-priming"]
    tuned = fine_tuned_label(1000)
    for variant, before, after in (
        (variants("paper")[0], 0.9, 1.0),
        (variants("paper")[-1], 0.99, 0.3),
    ):
        runs = planned_runs(figure.name, variant)
        save(tmp_path, runs[UNPRIMED], [before], {5: before, 35: 0.0})
        save(tmp_path, runs[tuned], [after], {5: 0.0, 35: after})
    found = load_results(figure, "paper", tmp_path, ROOT)
    assert found.variants[tuned] == found.variants[UNPRIMED] == variants("paper")[-1]
    assert found.exact_match(tuned, 35) == [0.3]
    assert found.origins[tuned] == UNPRIMED


def test_a_seed_without_a_record_hides_no_other(tmp_path: Path) -> None:
    artefact = ARTEFACTS["table-elementwise"]
    for seed in (2, 4):
        planned = plan_seed(artefact, "cpu", seed, ROOT)["APE"]
        save(tmp_path, planned, [1.0], {5: seed / 10}, "cpu")
    found = load_results(artefact, "cpu", tmp_path, ROOT)
    assert {seed: r["evaluation"][0]["exact_match"] for seed, r in found.of("APE").items()} == {
        2: 0.2,
        4: 0.4,
    }


@pytest.mark.parametrize(
    "damage",
    [
        *("{}", "[]", "null", "{"),
        *({"evaluation": [{"length": 5}]}, {"evaluation": None}, {"config": {}}, {"curve": "x"}),
        {"commit": ...},
    ],
    ids=str,
)
def test_a_damaged_record_is_named_with_a_remedy(damage: object, tmp_path: Path) -> None:
    artefact = ARTEFACTS["table-elementwise"]
    path = save(tmp_path, plan_seed(artefact, "cpu", 0, ROOT)["APE"], [1.0], {5: 1.0}, "cpu")
    assert load_results(artefact, "cpu", tmp_path, ROOT).of("APE")
    if isinstance(damage, dict):
        fields = {**read_json(path), **damage}
        damage = json.dumps({key: value for key, value in fields.items() if value is not ...})
    path.write_text(str(damage))
    with pytest.raises(UsageError, match="is damaged"):
        load_results(artefact, "cpu", tmp_path, ROOT)


def test_the_report_has_headlines_claims_cells_and_commits(tmp_path: Path) -> None:
    artefact = ARTEFACTS["table-addition"]
    for seed in range(3):
        for label, planned in plan_seed(artefact, "cpu", seed, ROOT).items():
            if label == "Transformer APE L":
                continue
            far = 0.0 if "APE" in label else 0.95
            save(tmp_path, planned, [1.0], {5: 1.0, 6: far, 10: far, 15: far, 20: far / 2}, "cpu")
    write_report("cpu", tmp_path, ROOT, tmp_path / "out", [artefact])
    report = (tmp_path / "out" / "report.md").read_text()
    headlines = report.split("## ")[1].splitlines()
    assert headlines[0] == "Headlines"
    cells = [cell.strip() for cell in headlines[4].split("|")]
    assert cells[2:5] == ["98.3 %", "15", "95.0 ± 0.0 (3 seeds)"]
    assert cells[6:8] == ["holds", "3"]
    cells = [cell.strip() for cell in headlines[5].split("|")]
    assert cells[6:8] == ["not run", "missing: Transformer APE L"]
    assert "| UTransformer RPE_k L | 95.0 ± 0.0 (3 seeds) · 100 |" in report
    assert "| Transformer APE L | missing · 1.9 |" in report
    assert "Commits: abcdef1234 (33 records)" in report
    assert report.count("| abcdef1234567890 |") == 33
    assert (tmp_path / "out" / "report.html").read_text().count("<h2>") == report.count("\n## ")
    before = report
    write_report("cpu", tmp_path, ROOT, tmp_path / "out", [artefact])
    assert (tmp_path / "out" / "report.md").read_text() == before
