"""The paper's figures on hand-made results: verdicts, thresholds and fits, drawing with gaps, shared runs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from lengthwise import paper
from lengthwise.paper import figure_digits_test, figure_digits_training, figure_failures, figure_finetuning_priming
from lengthwise.paper import figure_priming_ablations as ablations
from lengthwise.paper import figure_priming_absolute as absolute
from lengthwise.paper import figure_priming_lengths as priming_lengths
from lengthwise.paper import figure_scaling as scaling
from lengthwise.paper.artefact import SCALES, Artefact, Record, Results, ScaleName, Undecided
from lengthwise.paper.figure_digit_curves import ABSOLUTE, RELATIVE, gap, on_training
from lengthwise.paper.figure_failures import RUN
from lengthwise.paper.figure_finetuning_priming import BASE, LEVEL, LONG, SECOND, SHORT, tuned, with_priming
from lengthwise.paper.records import plan

matplotlib.use("Agg")

NAMES = (
    "figure-scaling",
    "figure-finetuning-priming",
    "figure-priming-ablations",
    "figure-priming-lengths",
    "figure-failures",
    "figure-digit-curves",
    "figure-priming-absolute",
    "figure-digits-training",
    "figure-digits-test",
)
FIGURES = [paper.ARTEFACTS[name] for name in NAMES]
POINTS = np.arange(1, 21) * 1000  # examples seen
Speed = Callable[[int, int], float]  # (digit, of digits) → the share of training after which it is learned


def at_once(digit: int, digits: int) -> float:
    return 0.3 if digit in (1, digits) else 0.5


def one_at_a_time(digit: int, digits: int) -> float:
    return 0.05 if digit in (1, digits) else 0.1 + 0.8 * (digit - 1) / digits


def record(
    accuracy: Callable[[int], float],
    longest: int,
    second: int = 1,
    speed: Speed = at_once,
    delay: float = 0.2,
    study: Record | None = None,
) -> Record:
    """A record as `records.keep` writes it, in which longer problems are learned later."""
    curve = []
    for examples in POINTS:
        done, tests = examples / POINTS[-1], []
        for length in (SHORT, longest):
            n = length + second
            late = delay * (length > SHORT)
            digits = [accuracy(length) * float(done >= min(1, speed(d, n) + late)) for d in range(1, n + 1)]
            tests.append({"length": length, "exact_match": min(digits), "digits": digits})
        curve.append({"examples": int(examples), "evaluation": tests})
    return {
        "evaluation": [{"length": n, "exact_match": accuracy(n)} for n in range(SHORT, longest + 1)],
        "curve": curve,
        "training": [
            {"examples": e["examples"], "loss": 1.0, "train": [*e["evaluation"][0]["digits"], 1.0, 1.0]} for e in curve
        ],
        "measures": {} if study is None else {figure_failures.NAME: study},
    }


def results(scale: ScaleName, records: dict[str, Record], seeds: int = 3) -> Results:
    return Results(scale, {label: [record] * seeds for label, record in records.items()})


def verdicts(figure: Artefact, results: Results) -> list[str]:
    return [claim.verdict(results) for claim in figure.claims]


def products(scale: ScaleName, accuracy: Callable[[int], float], **options: Any) -> Record:
    return record(accuracy, LONG[scale], SECOND[scale], **options)


def only(*good: int, high: float = 0.97) -> Callable[[int], float]:
    """A model that knows these lengths."""
    return lambda length: high if length in good else 0.0


def needing(enough: float, counts: Sequence[int], level: float) -> dict[int, float]:
    """Accuracies that rise with the count, and are at the level, by linear interpolation, with enough examples."""
    below, above = max(n for n in counts if n < enough), min(n for n in counts if n >= enough)
    before, after = enough - below, above - enough
    step = level if not below else min(level / 2, (1 - level) / 2 * before / after if after else 1)
    low, high = level - step, level + step * after / before
    return {n: low * (n / below) ** 3 if n < enough else high + (1 - high) * (1 - above / n) for n in counts if n}


# For each figure: results as the paper has them, and results that contradict every claim.


def scaling_results(scale: ScaleName, like_paper: bool) -> Results:
    """Widths and depths count, and Transformers need more width; or else the other way round."""
    _, narrow, *_ = widths = scaling.WIDTHS[scale]
    standard, depth = scaling.STANDARD[scale]

    def reach(encoder: str, width: int, layers: int) -> int:
        if not like_paper:
            return 7 if encoder == "Transformer" and layers > min(scaling.DEPTHS[scale]) and width < widths[-1] else 0
        if (width <= narrow and encoder == "Transformer") or width < narrow:
            return 5
        if encoder == "UTransformer" and layers < depth:
            return 5
        return 6 + widths.index(width) if width in widths else 7

    records = {
        scaling.label(encoder, w, d): record(only(*range(reach(encoder, w, d) + 1), high=0.8), 10)
        for encoder in ("Transformer", "UTransformer")
        for w, d in [*((w, depth) for w in widths), *((standard, d) for d in scaling.DEPTHS[scale])]
    }
    return results(scale, records)


def finetuning_results(scale: ScaleName, like_paper: bool) -> Results:
    long = LONG[scale]
    plain = products(scale, only(SHORT))
    primed = only(SHORT, long) if like_paper else lambda length: 0.6 if length == SHORT else 0.01
    counts = figure_finetuning_priming.FINE[scale]
    fine = needing(1000, counts, LEVEL) if like_paper else dict.fromkeys(counts, 0.2)
    return results(
        scale,
        {
            BASE: plain,
            with_priming(50): products(scale, primed),
            **{
                tuned(n): products(scale, lambda length, a=a: a if length == long else 0.1 if like_paper else 0.9)
                for n, a in fine.items()
            },
        },
    )


def ablation_results(scale: ScaleName, like_paper: bool) -> Results:
    """The sample needed grows with the logarithm of the size and linearly with the length; or else it falls."""
    long, level, records = LONG[scale], LEVEL, {BASE: products(scale, only(SHORT))}
    cases = [(size, long, runs) for size, runs in ablations.by_size(scale).items()]
    cases += [(5000, length, runs) for length, runs in ablations.by_length(scale).items() if length < long]
    for size, length, runs in cases:
        needed = expected_by_size(size) if length == long else expected_by_length(scale, length)
        rising = needing(needed, list(runs), level)
        for count, run in runs.items():
            if run == BASE:
                continue
            if like_paper:
                accuracy = rising[count]
            elif length < long or size == 1000:
                accuracy = level * (count == max(runs))
            else:
                accuracy = 0.95 * (size == 5000 or count > min(runs))
            records[run] = products(scale, only(length, high=accuracy))
    usual = records[ablations.label(50, long)]["evaluation"][-1]["exact_match"]
    better = min(1.0, usual + 0.05) if like_paper else usual / 2
    records[ablations.CURRICULUM] = products(scale, only(long, high=better), delay=0.0 if like_paper else 0.4)
    return results(scale, records)


def expected_by_size(size: int) -> float:
    return 20 + 35 * float(np.log10(size / 1000))


def expected_by_length(scale: ScaleName, length: int) -> float:
    """A line through what panel (b) has at the long length."""
    return 10 + (expected_by_size(5000) - 10) * (length - 6) / (LONG[scale] - 6)


def lengths_results(scale: ScaleName, like_paper: bool) -> Results:
    long = LONG[scale]
    even = [SHORT, *range(6, long + 1, 2)]
    good = {
        priming_lengths.ONE: only(SHORT, long) if like_paper else lambda n: 0.9,
        priming_lengths.ALL: only(*range(SHORT, long + 1)) if like_paper else lambda n: 0.9,
        priming_lengths.EVEN: only(*even) if like_paper else lambda n: 0.9,
    }
    return results(scale, {label: products(scale, accuracy) for label, accuracy in good.items()})


def failure_results(scale: ScaleName, like_paper: bool) -> Results:
    carries = {n: (100, 100) if n < 3 else (60, 100) for n in range(7)}
    chain = {n: (150, 150) if n < 2 else (60, 100) for n in range(7)}
    wrong, position = {1: 70, 2: 50, 6: 20}, {1: 40, 2: 20, 5: 10}
    if not like_paper:
        carries = {n: (100 - 10 * n, 100) for n in range(7)}
        chain = {n: (20, 100) if n < 2 else (120 - 10 * n, 100) for n in range(7)}
        wrong, position = {1: 30, 6: 40}, {1: 10, 5: 20}
    tables = {"by_carries": carries, "by_chain": chain, "wrong_symbols": wrong, "wrong_position": position}
    study = {name: {str(key): value for key, value in table.items()} for name, table in tables.items()}
    accuracy = only(SHORT, high=0.9)
    return results(scale, {RUN: record(accuracy, 10, study={**study, "correct": 57, "examples": 100})})


def digit_results(scale: ScaleName, like_paper: bool) -> Results:
    together, apart = (at_once, one_at_a_time) if like_paper else (one_at_a_time, lambda digit, digits: 0.5)
    known = only(SHORT)
    records = {
        ABSOLUTE: record(known, 10, speed=apart),
        RELATIVE: record(known, 10, speed=together if like_paper else apart),
        BASE: products(scale, known, speed=apart),
        with_priming(50): products(scale, only(SHORT, LONG[scale]), speed=together),
    }
    return results(scale, records)


def absolute_results(scale: ScaleName, like_paper: bool) -> Results:
    both = only(SHORT, LONG[scale])
    good = products(scale, both, delay=0.2 if like_paper else -0.1)
    bad = products(scale, only(SHORT), speed=one_at_a_time)
    if not like_paper:
        good, bad = products(scale, only(SHORT), speed=one_at_a_time), products(scale, both)
    return results(scale, {absolute.UNPRIMED: bad, absolute.PRIMED: good})


HAND_MADE: dict[str, Callable[[ScaleName, bool], Results]] = {
    "figure-scaling": scaling_results,
    "figure-finetuning-priming": finetuning_results,
    "figure-priming-ablations": ablation_results,
    "figure-priming-lengths": lengths_results,
    "figure-failures": failure_results,
    "figure-digit-curves": digit_results,
    "figure-priming-absolute": absolute_results,
}


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("name", HAND_MADE)
def test_claims_hold_on_results_like_the_papers_and_not_on_others(name: str, scale: ScaleName) -> None:
    figure = paper.ARTEFACTS[name]
    assert set(verdicts(figure, HAND_MADE[name](scale, True))) == {"holds"}
    assert set(verdicts(figure, HAND_MADE[name](scale, False))) == {"does not hold"}


@pytest.mark.parametrize("figure", FIGURES, ids=NAMES)
def test_without_runs_there_is_no_verdict(figure: Artefact) -> None:
    for scale in SCALES:
        assert set(verdicts(figure, Results(scale))) <= {"not enough runs"}


@pytest.mark.parametrize("name", HAND_MADE)
def test_a_missing_setting_never_turns_a_verdict(name: str) -> None:
    """Every claim that needs the setting says so."""
    figure, whole = paper.ARTEFACTS[name], HAND_MADE[name]("cpu", True)
    seen = set()
    for label in whole.records:
        part = Results("cpu", {other: records for other, records in whole.records.items() if other != label})
        assert set(verdicts(figure, part)) <= {"holds", "not enough runs"}, label
        seen |= set(verdicts(figure, part))
    assert "not enough runs" in seen


def any_results(figure: Artefact, scale: ScaleName) -> Results:
    if figure.name in HAND_MADE:
        return HAND_MADE[figure.name](scale, True)
    return results(scale, {label: products(scale, only(SHORT, LONG[scale])) for label in figure.settings(scale)})


@pytest.fixture
def canvas() -> Iterator[Any]:
    import matplotlib.pyplot as plt

    made = plt.figure(layout="constrained")
    yield made
    plt.close(made)


PANELS = {
    "figure-priming-absolute": 3,
    "figure-digits-training": 5,
    "figure-scaling": 2,
    "figure-finetuning-priming": 2,
}


@pytest.mark.parametrize("scale", ["cpu", "paper"])
@pytest.mark.parametrize("figure", FIGURES, ids=NAMES)
def test_whole_results_are_drawn_in_every_panel(figure: Artefact, scale: ScaleName, canvas: Any) -> None:
    whole = any_results(figure, scale)
    assert set(whole.records) == set(figure.settings(scale))  # hand-made results have the settings' labels
    figure.draw(whole, canvas)
    canvas.draw_without_rendering()
    assert len(canvas.axes) == PANELS.get(figure.name, 4)
    for axis in canvas.axes:
        assert axis.lines or axis.patches
        assert axis.get_xlabel()
        assert axis.get_ylabel() or axis is not canvas.axes[0]
        assert "no runs" not in [text.get_text() for text in axis.texts]


@pytest.mark.parametrize("figure", FIGURES, ids=NAMES)
def test_partial_results_are_drawn_and_gaps_told(figure: Artefact, canvas: Any) -> None:
    whole = any_results(figure, "cpu")
    for label in list(whole.records)[::4]:
        canvas.clear()
        figure.draw(Results("cpu", {label: whole.records[label][:1]}), canvas)
    canvas.clear()
    figure.draw(Results("cpu"), canvas)
    said = [text.get_text() for axis in canvas.axes for text in axis.texts]
    assert "no runs" in said
    for grid in figure.grids(Results("cpu")).values():
        assert all(ours == [] for cells in grid.rows.values() for ours, _ in cells)


def test_the_sample_needed_and_its_fits() -> None:
    """What hand-made accuracies were made from is found again."""
    whole = ablation_results("paper", like_paper=True)
    by_size, by_length = ablations.needed_by_size(whole), ablations.needed_by_length(whole)
    assert list(by_size) == [1000, 5000, 10000, 100000]
    assert list(by_length) == [6, 10, 15, 20, 25, 30, 35]
    for size, needed in by_size.items():
        assert needed.value == pytest.approx(expected_by_size(size))
    for length, needed in by_length.items():
        assert needed.value == pytest.approx(expected_by_length("paper", length))


def test_a_size_at_which_the_level_is_not_reached_is_left_out() -> None:
    whole = ablation_results("cpu", like_paper=True)
    fails = {run: [products("cpu", only(SHORT))] for run in ablations.by_size("cpu")[20000].values()}
    part = Results("cpu", {**whole.records, **fails})
    assert list(ablations.needed_by_size(part)) == [1000, 5000]
    decided = {claim.text: claim.verdict(part) for claim in ablations.FigurePrimingAblations.claims}
    assert decided["larger train sets need more primed examples"] == "can't be judged"
    assert decided["longer extrapolation needs more primed examples"] == "holds"


def test_a_level_that_is_reached_by_the_smallest_sample_sets_no_sample_needed() -> None:
    """It may be any smaller one; but no priming at all is a sample of 0."""
    high = products("cpu", lambda length: 0.9)
    found = results("cpu", dict.fromkeys([*ablations.by_size("cpu")[1000].values(), BASE], high))
    assert ablations.sample_needed(found, ablations.by_size("cpu")[1000], 10) is None
    free = ablations.sample_needed(found, ablations.by_count("cpu"), 10)
    assert free is not None
    assert free.value == 0


def test_what_needs_no_priming_decides_no_fit() -> None:
    assert ablations.best_fit([6, 7, 8, 9], [0, 10, 20, 30]) == "linear"
    with pytest.raises(Undecided):
        ablations.best_fit([6, 7, 8], [0, 10, 20])


def test_panels_say_why_they_are_empty(canvas: Any) -> None:
    fails = results("cpu", {label: products("cpu", only(SHORT)) for label in FIGURES[2].settings("cpu")})
    FIGURES[2].draw(fails, canvas)
    texts = [[text.get_text() for text in axis.texts] for axis in canvas.axes]
    assert texts == [[], *[["the level isn't crossed between tested samples"]] * 2, []]
    canvas.clear()
    study = {"by_carries": {"0": [0, 5]}, "by_chain": {"0": [0, 5]}, "wrong_symbols": {"3": 5}, "wrong_position": {}}
    FIGURES[4].draw(results("cpu", {RUN: record(only(), 10, study=study)}), canvas)
    assert [text.get_text() for text in canvas.axes[3].texts] == ["there are none"]


def test_reach_is_the_largest_length_of_each_seed() -> None:
    seeds = [record(lambda n, far=far: 0.75 if n <= far else 0.7, 10) for far in (4, 5, 8)]
    run = scaling.label("Transformer", 128, 4)
    found = Results("cpu", {run: seeds})
    assert scaling.reach(found, run) == [0, 5, 8]
    assert scaling.mean_reach(found, run) == pytest.approx(13 / 3)
    assert not scaling.extrapolates(found, run)


def test_the_least_width_is_the_smallest_that_extrapolates() -> None:
    reaches = {32: 5, 64: 7, 128: 5, 192: 8}
    runs = {scaling.label("Transformer", w, 4): record(lambda n, r=r: float(n <= r), 10) for w, r in reaches.items()}
    assert scaling.least_width(results("cpu", runs), "Transformer") == 64


def test_failures_are_summed_over_seeds_and_shares_averaged() -> None:
    tables = [{"1": 3, "4": 1}, {"1": 1}]
    seeds = [record(only(), 10, study={"wrong_symbols": table}) for table in tables]
    found = Results("cpu", {RUN: seeds})
    assert figure_failures.added(found, "wrong_symbols") == {1: 4, 4: 1}
    shares = [figure_failures.shares(table) for table in tables]
    assert figure_failures.by_value(shares, absent=0.0) == {1: [0.75, 1.0], 4: [0.25, 0.0]}
    assert figure_failures.by_value([{1: 0.5}, {2: 1.0}]) == {1: [0.5], 2: [1.0]}
    assert figure_failures.median({3: 10, 4: 30, 5: 20}) == 4


def test_the_gap_between_digits_leaves_out_the_first_and_the_last() -> None:
    curve = [
        {"examples": 10, "evaluation": [{"length": 5, "exact_match": 0, "digits": [1.0, 0.2, 0.3, 0.25, 0.2, 1.0]}]},
        {"examples": 20, "evaluation": [{"length": 5, "exact_match": 0, "digits": [1.0, 0.9, 0.5, 0.7, 0.9, 1.0]}]},
    ]
    assert gap(Results("cpu", {RELATIVE: [{"curve": curve}]}), RELATIVE) == pytest.approx(0.4)


def test_training_curves_keep_the_digits_that_answers_have() -> None:
    points = [{"examples": 32, "train": [0.1, 0.2, 1.0]}, {"examples": 64, "primed": [0.0] * 3}]
    examples, digits = on_training(Results("cpu", {"run": [{"training": points}]}), "run", 2)
    assert examples == [32]
    assert digits.tolist() == [[[0.1, 0.2]]]


def identities(name: str, scale: ScaleName) -> dict[str, str]:
    return {p.label: p.identity for p in plan(paper.ARTEFACTS[name], scale, range(1), Path("runs"))}


@pytest.mark.parametrize("scale", SCALES)
def test_every_setting_is_an_experiment_and_fine_tuning_starts_from_one(scale: ScaleName) -> None:
    for figure in FIGURES:
        planned = list(plan(figure, scale, range(1), Path("runs")))
        assert len({p.identity for p in planned}) == len(planned), f"{figure.name} has one run under two labels"
        names = {p.label: p.experiment.name() for p in planned if not p.experiment.start_from}
        for p in planned:
            if p.experiment.start_from:
                assert Path(p.experiment.start_from).name == names[BASE]
                assert p.experiment.data.sampling == "exact"
                assert p.experiment.data.train_digits == LONG[scale]
                assert {SHORT, LONG[scale]} <= {*p.experiment.lengths} & {*p.experiment.final_lengths}
            elif p.experiment.task.kind == "multiplication":
                assert {SHORT, LONG[scale]} <= set(p.experiment.lengths), "learning curves need both lengths"


@pytest.mark.parametrize("scale", SCALES)
def test_runs_are_shared(scale: ScaleName) -> None:
    tuning = identities("figure-finetuning-priming", scale)
    varied = identities("figure-priming-ablations", scale)
    curves = identities("figure-digit-curves", scale)
    assert tuning[BASE] == varied[BASE] == curves[BASE]
    fifty = tuning[with_priming(50)]
    assert fifty == varied[ablations.label(50, LONG[scale])] == curves[with_priming(50)]
    assert fifty == identities("figure-priming-lengths", scale)[priming_lengths.ONE]
    assert curves[RELATIVE] == identities("figure-failures", scale)[RUN]
    for digits in (figure_digits_training, figure_digits_test):
        name = digits.__name__.rpartition(".")[2].replace("_", "-")
        assert set(identities(name, scale).values()) <= set(varied.values())
    if scale == "cpu":  # where the standard size is the base size
        table = identities("table-addition", scale)
        assert curves[RELATIVE] == table["UTransformer RPE_k B"]
        assert curves[ABSOLUTE] == table["UTransformer APE B"]
    if scale == "paper":  # where both have the same layout
        table = identities("table-multiplication", scale)
        assert curves[BASE] == table["3-digits RPE_k"]
        assert identities("figure-priming-absolute", scale)[absolute.UNPRIMED] == table["3-digits APE"]


def test_paper_scale_is_literal() -> None:
    planned = {
        p.label: p.experiment for p in plan(paper.ARTEFACTS["figure-priming-ablations"], "paper", range(1), Path())
    }
    primed = planned[ablations.label(50, 35)]
    assert (primed.model.layers, primed.model.width, primed.model.heads) == (6, 1024, 16)
    assert (primed.data.test_digits, primed.data.train_size, primed.data.priming) == (35, 5000, ((35, 50),))
    assert (primed.task.operand_digits(5), primed.layout.compact, primed.training.epochs) == ((5, 3), False, 15000)
    assert planned[ablations.CURRICULUM].data.priming == ((34, 25), (35, 25))
    assert set(ablations.by_size("paper")) >= {1000, 10000, 100000}
    widest = {p.label: p.experiment for p in plan(paper.ARTEFACTS["figure-scaling"], "paper", range(1), Path())}
    assert {e.data.train_size for e in widest.values()} == {50000}
    assert widest[scaling.label("Transformer", 64, 6)].model.heads == 16
    lengths = dict(priming_lengths.primings("paper")[priming_lengths.ALL])
    assert (min(lengths), max(lengths), sum(lengths.values())) == (6, 35, 500)
    assert all(n % 2 == 0 for n, _ in priming_lengths.primings("paper")[priming_lengths.EVEN])
