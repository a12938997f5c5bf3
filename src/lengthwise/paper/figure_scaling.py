"""Figure 2: how far addition extrapolates, by width and by depth."""

from typing import Any

import numpy as np

from lengthwise.analysis import largest_length
from lengthwise.paper.artefact import (
    TRAINED,
    Artefact,
    Claim,
    Grid,
    Missing,
    Results,
    ScaleName,
    Setting,
    artefact,
    every,
)
from lengthwise.paper.drawing import BLUE, ORANGE, finish, level, line, panels, ticks
from lengthwise.paper.scales import ENCODERS
from lengthwise.paper.table_addition import DIGITS, addition

WIDTHS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (16, 32),
    "cpu": (32, 64, 128, 192),
    "paper": (64, 128, 256, 512, 1024),
}
DEPTHS: dict[ScaleName, tuple[int, ...]] = {"smoke": (1, 2), "cpu": (2, 3, 4, 6), "paper": (2, 4, 6, 8)}
STANDARD: dict[ScaleName, tuple[int, int]] = {"smoke": (32, 2), "cpu": (128, 4), "paper": (1024, 6)}
LEVEL = 0.75


def label(encoder: str, width: int, depth: int) -> str:
    return f"{encoder}, width {width}, {depth} layers"


def by_width(encoder: str, scale: ScaleName) -> dict[int, str]:
    return {width: label(encoder, width, STANDARD[scale][1]) for width in WIDTHS[scale]}


def by_depth(encoder: str, scale: ScaleName) -> dict[int, str]:
    return {depth: label(encoder, STANDARD[scale][0], depth) for depth in DEPTHS[scale]}


def reach(results: Results, run: str) -> list[int]:
    """The largest length with enough accuracy, one a seed; 0 where even the training length hasn't."""
    lengths = [{a["length"]: a["exact_match"] for a in record["evaluation"]} for record in results.of(run)]
    return [largest_length(accuracies, LEVEL) for accuracies in lengths]


def mean_reach(results: Results, run: str) -> float:
    if not (found := reach(results, run)):
        raise Missing(run)
    return float(np.mean(found))


def extrapolates(results: Results, run: str) -> bool:
    return mean_reach(results, run) > TRAINED


def only_the_largest(results: Results, runs: dict[int, str]) -> bool:
    """Of runs by size, the smallest doesn't extrapolate and the largest does."""
    return every(lambda size: extrapolates(results, runs[size]) == (size == max(runs)), (min(runs), max(runs)))


def least_width(results: Results, encoder: str) -> float:
    """The smallest width that extrapolates; infinite if none does."""
    far = [width for width, run in by_width(encoder, results.scale).items() if extrapolates(results, run)]
    return min(far, default=float("inf"))


def grows_past_least(results: Results, encoder: str) -> bool:
    """From the least width that extrapolates on, the reach never falls, and the widest has the largest."""
    least = least_width(results, encoder)
    reaches = [mean_reach(results, run) for w, run in by_width(encoder, results.scale).items() if w >= least]
    return len(reaches) > 1 and reaches == sorted(reaches) and reaches[-1] > reaches[0]


@artefact("figure-scaling", "§3, Figure 2", "Addition: how far models extrapolate, by width and by depth")
class FigureScaling(Artefact):
    notes = (
        "The caption gives the standard size as d_model = 16; it is read as 1024, with one dimension varied at a time.",
        "The largest length is that of each run, averaged over seeds; 0 stands for a run below 75 % at 5 digits.",
        "Published in the text: at least 512 dimensions for Transformers and 256 for UTransformers; 17 digits with 1024"
        " dimensions; 10 digits for Transformers of 2 layers, and at least 6 layers for UTransformers.",
    )
    claims = (
        Claim(
            "a minimal width is needed: the narrowest models don't extrapolate, the widest do",
            lambda results: every(
                lambda encoder: only_the_largest(results, by_width(encoder, results.scale)), ENCODERS
            ),
        ),
        Claim(
            "UTransformers need less width than Transformers to extrapolate",
            lambda results: least_width(results, "UTransformer") < least_width(results, "Transformer"),
        ),
        Claim(
            "past the minimal width, extrapolation grows with the width",
            lambda results: every(lambda encoder: grows_past_least(results, encoder), ENCODERS),
        ),
        Claim(
            "Transformers with the fewest layers extrapolate",
            lambda results: extrapolates(results, by_depth("Transformer", results.scale)[DEPTHS[results.scale][0]]),
        ),
        Claim(
            "UTransformers need depth: those with the fewest layers don't extrapolate, those with the most do",
            lambda results: only_the_largest(results, by_depth("UTransformer", results.scale)),
        ),
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        width, depth = STANDARD[scale]
        sizes = dict.fromkeys([*((w, depth) for w in WIDTHS[scale]), *((width, d) for d in DEPTHS[scale])])
        return {
            label(encoder, w, d): {
                **addition(scale, encoder, "RPE_k", "S"),
                "data.train_size": 50000,
                "model.width": w,
                "model.layers": d,
            }
            for encoder in ENCODERS
            for w, d in sizes
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = sorted({5, 6, 7, 8, 10, 15, 17, DIGITS[results.scale]} & set(range(DIGITS[results.scale] + 1)))
        rows = {
            run: [(results.exact_match(run, length), None) for length in lengths]
            for run in self.settings(results.scale)
        }
        return {"Exact match (%) by number of digits": Grid([f"{length}" for length in lengths], rows)}

    def draw(self, results: Results, figure: Any) -> None:
        axes = panels(figure, "by width (d_model)", "by depth (layers)")
        for encoder, colour, marker in zip(ENCODERS, (ORANGE, BLUE), "so", strict=True):
            for axis, runs in zip(
                axes, (by_width(encoder, results.scale), by_depth(encoder, results.scale)), strict=True
            ):
                line(axis, {x: reach(results, run) for x, run in runs.items()}, encoder, colour, marker, factor=1)
        ticks(axes[0], WIDTHS[results.scale])
        axes[1].set_xticks(DEPTHS[results.scale])
        axes[0].set(xlabel="width", ylabel=f"largest length with {100 * LEVEL:.0f} % exact match")
        axes[1].set(xlabel="layers")
        for axis in axes:
            level(axis, TRAINED, "trained on")
            axis.set_ylim(-0.5, DIGITS[results.scale] + 0.5)
        finish(figure)
