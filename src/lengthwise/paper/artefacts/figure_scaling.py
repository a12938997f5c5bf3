"""Figure 2: how far addition extrapolates, by width and by depth."""

from collections.abc import Mapping
from typing import Any

from lengthwise.evaluation.analysis import largest_length
from lengthwise.paper.artefact import Artefact, Claim, Grid, accuracy_grid, artefact
from lengthwise.paper.drawing import BLUE, ORANGE, finish, level, line, panels, ticks
from lengthwise.paper.experiments import addition, room
from lengthwise.paper.published import statement
from lengthwise.paper.results import Record, Results
from lengthwise.paper.scales import (
    CPU_LEARNING_RATES,
    ENCODERS,
    TRAIN_DIGITS,
    Overrides,
    ScaleName,
    variants,
)
from lengthwise.paper.verdicts import (
    Judgement,
    Measurement,
    all_of,
    at_least,
    at_most,
    greater,
    less,
)

WIDTHS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (16, 32),
    "cpu": (32, 64, 128, 192),
    "paper": (64, 128, 256, 512, 1024),
}
DEPTHS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (1, 2),
    "cpu": (2, 4, 6, 8),
    "paper": (2, 4, 6, 8),
}
STANDARD: dict[ScaleName, tuple[int, int]] = {
    "smoke": (32, 2),
    "cpu": (128, 6),
    "paper": (1024, 6),
}
LEVEL = statement("accuracy that counts as extrapolation") / 100
LEAST_WIDTHS = {encoder: statement(f"least width of {encoder}s") for encoder in ENCODERS}
LEAST_LAYERS = int(statement("least layers of UTransformers"))
WIDEST, SHALLOW = (
    statement("reach of the widest models"),
    statement("reach of Transformers with 2 layers"),
)


def label(encoder: str, width: int, depth: int) -> str:
    return f"{encoder}, width {width}, {depth} layers"


def by_width(encoder: str, scale: ScaleName) -> dict[int, str]:
    return {width: label(encoder, width, STANDARD[scale][1]) for width in WIDTHS[scale]}


def by_depth(encoder: str, scale: ScaleName) -> dict[int, str]:
    return {depth: label(encoder, STANDARD[scale][0], depth) for depth in DEPTHS[scale]}


def reach(record: Record) -> int:
    """The largest length with enough accuracy; 0 where even the trained length hasn't."""
    accuracies = {a["length"]: a["exact_match"] for a in record["evaluation"]}
    return largest_length(accuracies, LEVEL)


def reach_of(results: Results, run: str) -> Measurement:
    return results.measure(run, reach, f"reach of {run}")


def needs_width(results: Results, encoder: str) -> Judgement:
    """The narrowest doesn't extrapolate and the widest does; the least as published, if tried."""
    runs = by_width(encoder, results.scale)
    parts = [
        at_most(reach_of(results, runs[min(runs)]), TRAIN_DIGITS),
        greater(reach_of(results, runs[max(runs)]), TRAIN_DIGITS),
    ]
    if results.scale == "paper":
        least = least_width(results, encoder)
        parts += [judge(least, LEAST_WIDTHS[encoder]) for judge in (at_least, at_most)]
    return all_of(parts)


def needs_layers(results: Results) -> Judgement:
    """UTransformers with fewer layers than the paper's least don't extrapolate; that many do."""
    reaches = {
        layers: reach_of(results, run)
        for layers, run in by_depth("UTransformer", results.scale).items()
        if layers <= LEAST_LAYERS
    }
    enough = greater(reaches.pop(LEAST_LAYERS), TRAIN_DIGITS)
    return all_of([*(at_most(few, TRAIN_DIGITS) for few in reaches.values()), enough])


def least_width(results: Results, encoder: str) -> Measurement:
    """The smallest width that extrapolates, seed by seed; None where none does."""
    runs = by_width(encoder, results.scale)

    def smallest(records: Mapping[str, Record]) -> float | None:
        widths = [width for width, run in runs.items() if reach(records[run]) > TRAIN_DIGITS]
        return min(widths, default=None)

    name = f"least width of {encoder}s that extrapolates"
    return results.measure_together(list(runs.values()), smallest, name, gated=False)


def growth(results: Results, encoder: str) -> Measurement:
    """How much further the widest reaches than the least width that extrapolates, seed by seed.

    None where no narrower one extrapolates: then there is nothing to compare with.
    """
    runs = by_width(encoder, results.scale)

    def difference(records: Mapping[str, Record]) -> float | None:
        reaches = [reach(records[run]) for run in runs.values()]
        first = next((far for far in reaches[:-1] if far > TRAIN_DIGITS), None)
        return None if first is None else reaches[-1] - first

    name = f"growth of the reach of {encoder}s with the width"
    return results.measure_together(list(runs.values()), difference, name, gated=False)


@artefact(
    "figure-scaling", "§3, Figure 2", "Addition: how far models extrapolate, by width and depth"
)
class FigureScaling(Artefact):
    notes = (
        "The caption gives the standard size as d_model = 16; it is read as 1024, with one"
        " dimension varied at a time. Heads stay at 16 (cpu: 8).",
        "The largest length is that of each run, averaged over seeds; 0 stands for a run below 75"
        " % at 5 digits.",
        "The learning rate is chosen for every width and depth by the accuracy at 5 digits.",
        "The published least widths are far above the widths of the cpu scale, so they are judged"
        " at paper scale only. The published lengths are means over seeds, hence the digit less.",
    )
    claims = (
        Claim(
            "a minimal width is needed: the narrowest models learn 5 digits and don't extrapolate,"
            " the widest do; at paper scale the least widths are"
            + " and".join(f" {width:g} for {name}s" for name, width in LEAST_WIDTHS.items()),
            lambda results: all_of(needs_width(results, encoder) for encoder in ENCODERS),
        ),
        Claim(
            "UTransformers need less width than Transformers to extrapolate",
            lambda results: less(*(least_width(results, e) for e in reversed(ENCODERS))),
        ),
        Claim(
            "past the minimal width, extrapolation grows with the width",
            lambda results: all_of(greater(growth(results, encoder), 0) for encoder in ENCODERS),
        ),
        Claim(
            "Transformers with 2 layers extrapolate",
            lambda results: greater(
                reach_of(results, by_depth("Transformer", results.scale)[2]), TRAIN_DIGITS
            ),
        ),
        Claim(
            f"Transformers with 2 layers extrapolate to {SHALLOW:g} digits, within one (at least"
            f" {SHALLOW - 1:g})",
            lambda results: at_least(
                reach_of(results, by_depth("Transformer", results.scale)[2]), SHALLOW - 1
            ),
        ),
        Claim(
            f"the widest models reach {WIDEST:g} digits, within one (at least {WIDEST - 1:g})",
            lambda results: all_of(
                at_least(
                    reach_of(results, by_width(encoder, results.scale)[max(WIDTHS[results.scale])]),
                    WIDEST - 1,
                )
                for encoder in ENCODERS
            ),
        ),
        Claim(
            f"UTransformers need {LEAST_LAYERS} layers: those with fewer (2 and 4) don't"
            " extrapolate, those with as many do",
            needs_layers,
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        width, depth = STANDARD[scale]
        sizes = [*((w, depth) for w in WIDTHS[scale]), *((width, d) for d in DEPTHS[scale])]
        return {
            label(encoder, w, d): {
                **addition(scale, "RPE_k", encoder),
                "data.train_size": 50_000,
                "model.width": w,
                "model.layers": d,
            }
            for encoder in ENCODERS
            for w, d in dict.fromkeys(sizes)
        }

    def variants(self, scale: ScaleName) -> list[Overrides]:
        if scale == "cpu":
            return [{"training.learning_rate": rate} for rate in CPU_LEARNING_RATES]
        return variants(scale)

    def grids(self, results: Results) -> dict[str, Grid]:
        longest = room(results.scale, 20)
        lengths = [n for n in (5, 6, 7, 8, 10, 15, 17, 20) if n <= longest]
        conditions = list(self.conditions(results.scale))
        return {"Exact match (%) by number of digits": accuracy_grid(results, conditions, lengths)}

    def draw(self, results: Results, figure: Any) -> None:
        axes = panels(figure, "by width (d_model)", "by depth (layers)")
        for encoder, colour, marker in zip(ENCODERS, (ORANGE, BLUE), "so", strict=True):
            sides = by_width(encoder, results.scale), by_depth(encoder, results.scale)
            for axis, runs in zip(axes, sides, strict=True):
                points = {
                    size: [reach(record) for record in results.of(run).values()]
                    for size, run in runs.items()
                }
                line(axis, points, encoder, colour, marker, factor=1)
        ticks(axes[0], WIDTHS[results.scale])
        axes[1].set_xticks(DEPTHS[results.scale])
        axes[0].set(xlabel="width", ylabel=f"largest length with {100 * LEVEL:.0f} % exact match")
        axes[1].set(xlabel="layers")
        for axis in axes:
            level(axis, TRAIN_DIGITS, "trained on")
            axis.set_ylim(-0.5, room(results.scale, 20) + 0.5)
        finish(figure)
