"""Figure 6: where sums longer than trained fail: carries, wrong digits and their positions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lengthwise.evaluation.analysis import failure_study
from lengthwise.paper.artefact import Artefact, Claim, Grid, artefact
from lengthwise.paper.drawing import BLUE, POSITION, RED, bars, finish, panels, percent, say
from lengthwise.paper.experiments import addition
from lengthwise.paper.published import statement
from lengthwise.paper.results import Cell, Record, Results
from lengthwise.paper.scales import SMOKE_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import (
    Judgement,
    Measurement,
    all_of,
    at_least,
    at_most,
    greater,
)
from lengthwise.training.runs import Run

# Encoder and size: the caption's, and at cpu scale Table 1's Transformer of size Base.
MODELS: dict[ScaleName, tuple[str, str]] = {
    "smoke": ("UTransformer", "S"),
    "cpu": ("Transformer", "B"),
    "paper": ("UTransformer", "S"),
}
# Digits of the sums. At cpu scale sums of 20 digits, which fill their layout, fail for another
# reason (`beyond-room`): hardly any is solved, and most of their digits are wrong.
LENGTHS: dict[ScaleName, int] = {"smoke": SMOKE_DIGITS, "cpu": 19, "paper": 20}
NAME = "figure-failures"
PROBLEMS: dict[ScaleName, int] = {"smoke": 50, "cpu": 5000, "paper": 10_000}
ALMOST_ALL = 0.9
CARRIES = int(statement("carries in almost all failures"))
CHAIN = int(statement("consecutive carries in almost all failures"))
Counts = Mapping[int, float]


def study_label(scale: ScaleName) -> str:
    """The label of the model whose failures are studied."""
    encoder, size = MODELS[scale]
    return f"{encoder} RPE_k {size}"


def measure_study(
    results: Results, quantity: Callable[[Record], float | None], name: str
) -> Measurement:
    """A number of each seed's failure study. Seeds differ in accuracy, so they are never pooled."""

    def of_record(record: Record) -> float | None:
        study = record["measures"].get(NAME)
        return None if study is None else quantity(study)

    return results.measure(study_label(results.scale), of_record, name)


def by_outcome(study: Record, name: str) -> tuple[dict[int, int], dict[int, int]]:
    """Failed and solved sums by their number of carries."""
    table = {int(value): pair for value, pair in study[name].items()}
    failed = {value: total - correct for value, (correct, total) in table.items()}
    return failed, {value: correct for value, (correct, _) in table.items()}


def share(counts: Counts, chosen: Callable[[int], bool]) -> float | None:
    """The part of all counts that some values have; None where there is no count."""
    total = sum(counts.values())
    return sum(n for value, n in counts.items() if chosen(value)) / total if total else None


def claims_about_carries(name: str, least: int, noun: str) -> list[Claim]:
    """The paper's claim that almost all failures have many carries, and a stricter one."""

    def share_of(results: Results, outcome: int) -> Measurement:
        of = ("failures", "solved sums")[outcome]
        return measure_study(
            results,
            lambda study: share(by_outcome(study, name)[outcome], lambda n: n >= least),
            f"share of {of} with {least} {noun} or more",
        )

    text = f"almost all failures (90 %) have at least {least} {noun}"
    return [
        Claim(text, lambda results: at_least(share_of(results, 0), ALMOST_ALL)),
        Claim(
            f"{text}, and a larger part of them than of the solved sums",
            lambda results: all_of(
                [
                    at_least(share_of(results, 0), ALMOST_ALL),
                    greater(share_of(results, 0), share_of(results, 1)),
                ]
            ),
        ),
    ]


def further_impact(study: Record, name: str, least: int) -> float | None:
    """Among sums with that many carries, the difference in accuracy between fewer and more."""
    table = {int(v): pair for v, pair in study[name].items() if int(v) >= least}
    middle = median({value: total for value, (_, total) in table.items()})
    halves = [[v for v in table if v <= middle], [v for v in table if v > middle]]
    if not all(halves):
        return None
    fewer, more = (np.sum([table[value] for value in half], axis=0) for half in halves)
    return float(abs(fewer[0] / fewer[1] - more[0] / more[1]))


def no_further_impact(results: Results, name: str, least: int, noun: str) -> Judgement:
    difference = measure_study(
        results,
        lambda study: further_impact(study, name, least),
        f"difference between fewer and more {noun}, from {least} on",
    )
    return at_most(difference, 0.1)


def median(counts: Counts) -> int:
    """The median of values that occur so often.

    >>> median({3: 10, 4: 30, 5: 20})
    4
    """
    values = sorted(counts)
    passed = np.cumsum([counts[value] for value in values])
    return values[int(np.argmax(passed * 2 >= passed[-1]))] if values else 0


def small_share(results: Results, name: str, most: int, noun: str) -> Measurement:
    """The share of failures with a small value."""
    return measure_study(
        results, lambda study: share(integer_keys(study[name]), lambda n: n <= most), noun
    )


def integer_keys(table: Mapping[str, int]) -> dict[int, int]:
    return {int(value): count for value, count in table.items()}


@artefact(NAME, "§6, Figure 6", "Addition: where long sums fail")
class FigureFailures(Artefact):
    notes = (
        "The caption's model solves 57 % of 20-digit sums, where the best in Table 1 solves 21.3"
        " %. The standard size isn't in Table 1, and the paper doesn't explain the difference.",
        f"At cpu scale sums of {LENGTHS['cpu']} digits are studied, the longest that don't fill the"
        " layout. Nearly all of 20 digits fail, whatever their carries. The model is Table 1's"
        " Transformer with relative-key embeddings, size Base.",
        "At that length nearly all sums have three carries and two consecutive ones, so almost all"
        " failures of any model have them. The stricter claims ask that failures have them more"
        " often than solved sums do.",
        "Every claim is judged seed by seed; the figure shows the mean over seeds.",
    )
    claims = (
        *claims_about_carries("by_carries", CARRIES, "carries"),
        *claims_about_carries("by_chain", CHAIN, "consecutive carries"),
        Claim(
            "more than three carries have no further impact (10 points at most between fewer and"
            " more)",
            lambda results: no_further_impact(results, "by_carries", CARRIES, "carries"),
        ),
        Claim(
            "more than two consecutive carries have no further impact (10 points at most between"
            " fewer and more)",
            lambda results: no_further_impact(results, "by_chain", CHAIN, "consecutive carries"),
        ),
        Claim(
            "wrong answers usually have just a few wrong digits (most have at most three)",
            lambda results: greater(
                small_share(results, "wrong_symbols", 3, "failures with at most 3 wrong digits"),
                0.5,
            ),
        ),
        Claim(
            "single errors concentrate on the first and second positions (more than half)",
            lambda results: greater(
                small_share(results, "wrong_position", 2, "single errors at positions 1 and 2"), 0.5
            ),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        encoder, size = MODELS[scale]
        return {study_label(scale): addition(scale, "RPE_k", encoder, size)}

    def measure(self, scale: ScaleName, run: Run) -> Record:
        solver = run.load(run.experiment.device)
        return failure_study(solver, LENGTHS[scale], PROBLEMS[scale], run.experiment.seed).to_json()

    def grids(self, results: Results) -> dict[str, Grid]:
        found = studies(results)
        published = statement("20-digit sums in the study of failures")
        cell = Cell(
            tuple(study["correct"] / study["examples"] for study in found),
            published if LENGTHS[results.scale] == LENGTHS["paper"] else None,
            found[0]["examples"] if found else None,
        )
        grid = Grid([f"{LENGTHS[results.scale]}"], {study_label(results.scale): [cell]})
        return {"Exact match (%) of the sums that are studied": grid}

    def draw(self, results: Results, figure: Any) -> None:
        length, found = LENGTHS[results.scale], studies(results)
        titles = (
            "by number of carries",
            "by longest carry chain",
            "number of wrong digits",
            "position of a single wrong digit",
        )
        axes = panels(figure, *titles)
        names = {"by_carries": "carries", "by_chain": "consecutive carries"}
        for axis, (name, noun) in zip(axes, names.items(), strict=False):
            bars(axis, by_value([accuracies(study[name]) for study in found]), "", BLUE)
            percent(axis, f"exact match at {length} digits (%)")
            axis.set_xlabel(noun)
        for axis, name, noun in (
            (axes[2], "wrong_symbols", "wrong digits in the answer"),
            (axes[3], "wrong_position", POSITION),
        ):
            bars(axis, by_value([shares(study[name]) for study in found], absent=0.0), "", RED)
            axis.set(xlabel=noun, ylim=(0, None))
            if found and not axis.has_data():
                say(axis, "there are none")
        axes[2].set_ylabel("share of wrong answers (%)")
        axes[3].set_ylabel("share of answers with one wrong digit (%)")
        for axis in axes:
            axis.locator_params(axis="x", integer=True)
        finish(figure)


def studies(results: Results) -> list[Record]:
    """The failure study of each seed."""
    measures = [record["measures"] for record in results.of(study_label(results.scale)).values()]
    return [measure[NAME] for measure in measures if NAME in measure]


def accuracies(table: Mapping[str, Sequence[int]]) -> dict[int, float]:
    return {int(value): correct / total for value, (correct, total) in table.items()}


def shares(table: Mapping[str, int]) -> dict[int, float]:
    return {int(value): count / sum(table.values()) for value, count in table.items()}


def by_value(
    seeds: Sequence[Mapping[int, float]], absent: float | None = None
) -> dict[int, list[float]]:
    """Each value's numbers over seeds; a seed without the value counts as `absent`, if given."""
    values = sorted({value for seed in seeds for value in seed})
    numbers = {value: [seed.get(value, absent) for seed in seeds if seed] for value in values}
    return {value: [n for n in found if n is not None] for value, found in numbers.items()}
