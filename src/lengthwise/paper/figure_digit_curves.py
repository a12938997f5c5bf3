"""Figure 7: whether a model learns the digits of an answer one at a time or all at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.paper.artefact import MARGIN, Artefact, Claim, Missing, Results, ScaleName, Setting, artefact
from lengthwise.paper.drawing import digit_curves, finish, panels, percent
from lengthwise.paper.figure_finetuning_priming import BASE, PRIMED, SECOND, SHORT, multiplication, primed, with_priming
from lengthwise.paper.table_addition import addition

ABSOLUTE, RELATIVE = "addition, APE", "addition, RPE_k"
APART = 0.1  # of accuracy: what makes digits that are learned apart differ from those that are learned together
POSITION = "position in the answer (1: the largest power of ten)"
Digits = tuple[list[int], NDArray[np.float64]]  # examples seen, and accuracy (seeds, points, digits)


def on_test(results: Results, run: str, length: int) -> Digits:
    """The accuracy of each digit of the answer on fresh problems, while the model was trained."""
    seeds = [
        [a["digits"] for e in record["curve"] for a in e["evaluation"] if a["length"] == length]
        for record in results.of(run)
    ]
    return results.curve(run, length)[0], stacked(seeds)


def on_training(results: Results, run: str, digits: int) -> Digits:
    """The same on the training examples of usual length, for as many digits as their answers have."""
    seeds = [[point for point in record["training"] if "train" in point] for record in results.of(run)]
    examples = [point["examples"] for point in seeds[0]] if seeds else []
    return examples, stacked([[point["train"][:digits] for point in seed] for seed in seeds])


def stacked(seeds: Sequence[Sequence[Sequence[float]]]) -> NDArray[np.float64]:
    return np.array([seed for seed in seeds if seed]) if any(seeds) else np.zeros((0, 0, 0))


def draw_digits(axis: Any, curves: Digits, most: int) -> None:
    digit_curves(axis, *curves, most)
    percent(axis, "accuracy of the digit (%)")


def at_short(results: Results, run: str) -> NDArray[np.float64]:
    """The digits' accuracies on problems of the training length: (seeds, points, digits)."""
    _, digits = on_test(results, run, SHORT)
    if not digits.size:
        raise Missing(run)
    return digits


def gap(results: Results, run: str) -> float:
    """How far the digits between the first and the last are apart: the largest difference in accuracy at one time."""
    return float(np.ptp(at_short(results, run)[:, :, 1:-1], axis=2).max(1).mean())


def learned_together(results: Results, run: str, other: str) -> bool:
    """All digits are learned, and closer together than another run's."""
    together, apart = gap(results, run), gap(results, other)
    return bool(at_short(results, run)[:, -1].mean(0).min() >= 0.75) and together < apart - APART


def ends_first(results: Results, run: str) -> bool:
    """The first and the last digit are, on average over training, better than each of the others."""
    first, *middle, last = at_short(results, run).mean((0, 1))
    return bool(min(first, last) > max(middle) + MARGIN)


@artefact("figure-digit-curves", "§6, Figure 7", "Learning curves digit by digit")
class FigureDigitCurves(Artefact):
    notes = (
        "The caption says training accuracy, and the text speaks of 5-digit problems. Accuracy is on fresh problems of"
        " exactly 5 digits: on the training examples, most of which are shorter where lengths are uniform, the last"
        " positions are mostly padding. Curves on the training examples are in Figure 10.",
        "Digits are numbered from the left. 6 is the units of a sum only if it has six digits; else it is padding.",
        "The text refers to Figure 7a twice, for absolute and for relative embeddings; the second is read as 7b.",
        "The text has unprimed 5×3 multiplication learned over 1000 epochs (5 million examples) here, and after a few"
        " hundred thousand examples in §5.2, with priming.",
        "How far apart a model learns digits is the largest difference between their accuracies at one time, without"
        f" the first and the last digit. It is smaller than another model's if {100 * APART:.0f} points are between.",
    )
    claims = (
        Claim(
            "in sums, relative-key models learn the inner digits simultaneously, absolute ones each on its own",
            lambda results: learned_together(results, RELATIVE, ABSOLUTE),
        ),
        Claim(
            "relative-key models learn the first and the last digit of sums before the others",
            lambda results: ends_first(results, RELATIVE),
        ),
        Claim(
            "in multiplication, digits are learned one at a time without priming, and concurrently with it",
            lambda results: learned_together(results, with_priming(PRIMED), BASE),
        ),
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {
            ABSOLUTE: addition(scale, "UTransformer", "APE", "S"),
            RELATIVE: addition(scale, "UTransformer", "RPE_k", "S"),
            BASE: multiplication(scale),
            with_priming(PRIMED): primed(scale, PRIMED),
        }

    def draw(self, results: Results, figure: Any) -> None:
        titles = (
            "addition, absolute",
            "addition, relative-key",
            "multiplication, not primed",
            f"multiplication, {PRIMED} primed",
        )
        axes = panels(figure, *titles)
        for axis, run in zip(axes, self.settings(results.scale), strict=True):
            draw_digits(axis, on_test(results, run, SHORT), SHORT + SECOND[results.scale])
        finish(figure, POSITION)
