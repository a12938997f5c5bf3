"""§5.3: does priming with 35 digits spill over to other lengths, and what decides that?"""

from itertools import product
from typing import Any

from lengthwise.paper.artefact import Artefact, Claim, Grid, accuracy_grid, artefact
from lengthwise.paper.drawing import COLOURS, finish, line, panels, percent
from lengthwise.paper.experiments import LONG, PRIMED, long_length, products
from lengthwise.paper.results import Results
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import Measurement, all_of, at_least, at_most, greater
from lengthwise.problems.priming import one_length

BETWEEN = range(TRAIN_DIGITS + 1, LONG)
READINGS = {"lengths even": "problem-length", "integers uniform": "uniform-integer"}
SECONDS = {1: "by 1 digit", 3: "by 3 digits"}


def label(reading: str, second_digits: int) -> str:
    return f"{reading}, {SECONDS[second_digits]}"


def mean_between(results: Results, run: str) -> Measurement:
    """The mean accuracy from 6 to 34 digits, which were never trained."""
    return results.mean_accuracy(run, BETWEEN, "6 to 34 digits")


@artefact(
    "figure-overspill", "§5.3, two readings", "Priming with 35 digits: are others learned, too?"
)
class FigureOverspill(Artefact):
    notes = (
        f"The paper primes {PRIMED} examples of 35 digits and finds no overspill to other lengths."
        " Training lengths from 1 to 5 can be even (Table 1's caption) or follow from uniform"
        " integers (§2.1), of which 90 % have five digits; the second operand has three digits in"
        " the paper and one in our cpu scale. This compares the four combinations. The claims are"
        " ours.",
        "Products by three digits say something only once they are learned in domain.",
    )
    claims = (
        Claim(
            "with even training lengths and one digit, every length between 5 and 35 is learned,"
            " too (at least half right on average)",
            lambda results: at_least(mean_between(results, label("lengths even", 1)), 0.5),
        ),
        Claim(
            "with uniform integers and one digit, there is no overspill (at most 10 % on average,"
            " where 35 digits are learned)",
            lambda results: all_of(
                [
                    at_least(results.accuracy(label("integers uniform", 1), LONG), 0.5),
                    at_most(mean_between(results, label("integers uniform", 1)), 0.1),
                ]
            ),
        ),
        Claim(
            "even training lengths cause overspill: more is learned between 5 and 35 digits than"
            " with uniform integers (by 1 digit)",
            lambda results: greater(
                *(mean_between(results, label(reading, 1)) for reading in READINGS)
            ),
        ),
        Claim(
            "three digits prevent overspill: less is learned between 5 and 35 digits than by one"
            " digit (lengths even)",
            lambda results: greater(
                mean_between(results, label("lengths even", 1)),
                mean_between(results, label("lengths even", 3)),
            ),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        priming = one_length(long_length(scale), PRIMED)
        return {
            label(reading, second): {
                **products(scale, second, priming=priming),
                "data.sampling": sampling,
            }
            for second, (reading, sampling) in product(SECONDS, READINGS.items())
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        shown = (5, 6, 7, 10, 15, 20, 25, 30, 33, 34, 35)
        lengths = [n for n in shown if n <= long_length(results.scale)]
        conditions = list(self.conditions(results.scale))
        return {"Exact match (%) by number of digits": accuracy_grid(results, conditions, lengths)}

    def draw(self, results: Results, figure: Any) -> None:
        lengths = range(TRAIN_DIGITS, long_length(results.scale) + 1)
        for axis, second in zip(panels(figure, *SECONDS.values()), SECONDS, strict=True):
            for reading, colour in zip(READINGS, COLOURS, strict=False):
                run = label(reading, second)
                points = {n: results.exact_match(run, n) for n in lengths}
                line(axis, points, reading, colour)
            axis.set_xlabel("digits of the first operand")
            percent(axis)
        finish(figure)
