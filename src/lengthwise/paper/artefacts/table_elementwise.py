"""Appendix A.2: element-wise addition, and the accuracy of each digit with absolute embeddings."""

from typing import Any

import numpy as np

from lengthwise.paper.artefact import Claim, Table, artefact
from lengthwise.paper.drawing import BLUE, GREEN, say
from lengthwise.paper.experiments import elementwise, room
from lengthwise.paper.published import table
from lengthwise.paper.results import Record, Results, final_digits
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import Measurement, all_of, at_least, at_most, greater

PUBLISHED = table("elementwise")
LONGEST = 20
CHANCE = 0.1  # of one guessed digit


def digit_accuracy(
    results: Results, label: str, length: int, chosen: slice, name: str
) -> Measurement:
    """The mean accuracy of some digits of the answer."""

    def mean(record: Record) -> float | None:
        digits = final_digits(record, length)
        return None if digits is None else float(np.mean(digits[chosen]))

    return results.measure(label, mean, f"{name} digits of {label} at {length} digits")


def trained_digits(results: Results, label: str, length: int) -> Measurement:
    return digit_accuracy(results, label, length, slice(TRAIN_DIGITS), "trained")


def untrained_digits(results: Results, label: str, length: int) -> Measurement:
    return digit_accuracy(results, label, length, slice(TRAIN_DIGITS, None), "untrained")


@artefact(
    "table-elementwise", "A.2, table and Figure 8", "Element-wise addition, and its digits with APE"
)
class TableElementwise(Table):
    lengths = PUBLISHED.lengths
    published = PUBLISHED.rows
    claims = (
        Claim(
            "models with relative embeddings generalise (at least half right at 6, 10, 15 and 20"
            " digits)",
            lambda results: all_of(
                at_least(results.accuracy("RPE_k", n), 0.5) for n in (6, 10, 15, 20)
            ),
        ),
        Claim(
            "models with relative embeddings beat absolute ones at every length beyond training",
            lambda results: all_of(
                greater(results.accuracy("RPE_k", n), results.accuracy("APE", n))
                for n in (6, 10, 15, 20)
            ),
        ),
        Claim(
            "models with absolute embeddings fail: the digits beyond the fifth are at most 20 %"
            " right at 6 and 20 digits, where a guess is right in 10 %",
            lambda results: all_of(
                at_most(untrained_digits(results, "APE", n), 2 * CHANCE) for n in (6, LONGEST)
            ),
        ),
        Claim(
            "models with absolute embeddings predict the 5 leftmost digits, those seen in"
            " training, of sums of 20 digits (at least 90 % of them)",
            lambda results: at_least(trained_digits(results, "APE", LONGEST), 0.9),
        ),
    )
    notes = (
        "The curve of Figure 8 is only a picture in the paper. The last two claims are what the"
        " text says of it.",
        "Answers have n_out = n_test positions: a sum without carries is as long as its operands.",
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        return {embedding: elementwise(scale, embedding) for embedding in self.published}

    def draw(self, results: Results, figure: Any) -> None:
        axis = figure.subplots()
        n = room(results.scale, LONGEST)
        axis.set(
            title=f"element-wise addition of {n} digits, absolute embeddings",
            xlabel="digit of the answer (1 is the leftmost)",
            ylabel="accuracy (%)",
            xlim=(0.5, n + 0.5),
            ylim=(0, 105),
            xticks=range(1, n + 1),
        )
        axis.axvspan(0.5, TRAIN_DIGITS + 0.5, color=GREEN, alpha=0.1, label="seen in training")
        axis.axhline(100 * CHANCE, color="0.6", linestyle=":", label="chance")
        tested = [final_digits(record, n) for record in results.of("APE").values()]
        seeds = 100 * np.array([digits for digits in tested if digits is not None])
        if not len(seeds):
            say(axis, "no runs")
            return
        digit = np.arange(1, n + 1)
        axis.plot(digit, seeds.T, ".", color=BLUE, alpha=0.4)
        plural = "s" if len(seeds) > 1 else ""
        label = f"mean of {len(seeds)} seed{plural}"
        axis.plot(digit, seeds.mean(0), "o-", color=BLUE, label=label)
        axis.legend(loc="center right", frameon=False)
