"""Figure 3: fine-tuning on long products against priming with them."""

from typing import Any

from lengthwise.paper.artefact import Artefact, Claim, Grid, Headline, accuracy_grid, artefact
from lengthwise.paper.drawing import BLUE, RED, finish, learning_curve, line, panels, percent, ticks
from lengthwise.paper.experiments import (
    BY_ONE_DIGIT,
    LEVEL,
    LONG,
    PRIMED,
    PRODUCTS_NOTE,
    UNPRIMED,
    fine_tuned_label,
    fine_tuned_products,
    long_length,
    primed_label,
    primed_products,
    products,
)
from lengthwise.paper.learning import short_before_long
from lengthwise.paper.published import statement
from lengthwise.paper.results import Results
from lengthwise.paper.scales import TRAIN_DIGITS, Overrides, ScaleName
from lengthwise.paper.verdicts import all_of, at_least, at_most, greater, less

WITH_PRIMING = primed_label(PRIMED)
ENOUGH = int(statement("fine-tuning examples"))
TIMES = int(statement("fine-tuning examples for one primed example"))
TEN_TIMES = 10 * PRIMED
UNSEEN = (7, 10, 20, LONG)  # where products fail without priming
FINE_TUNING_COUNTS: dict[ScaleName, tuple[int, ...]] = {
    "smoke": (20, ENOUGH),
    "cpu": (50, 100, TEN_TIMES, ENOUGH),
    "paper": (50, 100, 250, TEN_TIMES, ENOUGH, 2000),
}


@artefact(
    "figure-finetuning-priming", "§5, Figure 3", "Multiplication: fine-tuning and train set priming"
)
class FigureFinetuningPriming(Artefact):
    difference = BY_ONE_DIGIT
    notes = (
        "The paper doesn't say how long it fine-tunes. Here every sample size has the same budget:"
        " 7.5 million examples at paper scale, which is how long priming takes to learn 35 digits,"
        " and 160,000 at cpu scale, a sixth of the first training. The learning rate starts again,"
        " with a warm-up and a cosine of its own.",
        "This budget favours fine-tuning at 35 digits, and favours forgetting: it is of 35 digits"
        " alone. A primed run sees about 9,600 such examples at cpu scale, and 75,000 until it has"
        " learned them at paper scale.",
        "The paper has “a fixed sample of 35 × 3 examples”, yet generates second operands online"
        " in all procedures. Here first operands are fixed and second operands sampled online.",
        f"“Learned” is {100 * LEVEL:.0f} % at the long length, as in Figure 4.",
        PRODUCTS_NOTE,
    )
    claims = (
        Claim(
            "with 50 primed examples, accuracy is close to 100 % (at least 95 %) at 5 and 35"
            " digits",
            lambda results: all_of(
                at_least(results.accuracy(WITH_PRIMING, n, gated=False), 0.95)
                for n in (TRAIN_DIGITS, LONG)
            ),
            Headline(
                "50 primed examples carry products from 5 digits to 35",
                [LONG],
                [WITH_PRIMING],
                f"close to {statement('primed multiplication'):g} %",
            ),
        ),
        Claim(
            "without priming, 35 digits aren't learned (at most 5 %)",
            lambda results: at_most(results.accuracy(UNPRIMED, LONG), 0.05),
        ),
        Claim(
            "without priming, products fail from 7 digits on (at most 5 % at 7, 10, 20 and 35)",
            lambda results: all_of(at_most(results.accuracy(UNPRIMED, n), 0.05) for n in UNSEEN),
            Headline("Without priming, products fail from 7 digits on", UNSEEN, [UNPRIMED], "0 %"),
        ),
        Claim(
            "priming with 50 examples beats no priming at 35 digits",
            lambda results: greater(
                results.accuracy(WITH_PRIMING, LONG), results.accuracy(UNPRIMED, LONG)
            ),
        ),
        Claim(
            "fine-tuning needs far more examples: with ten times as many it stays below priming at"
            " 35 digits",
            lambda results: less(
                results.accuracy(fine_tuned_label(TEN_TIMES), LONG),
                results.accuracy(WITH_PRIMING, LONG),
            ),
            Headline(
                "Fine-tuning with ten times as many examples is worse than priming",
                [LONG],
                [fine_tuned_label(TEN_TIMES)],
                f"{ENOUGH} examples needed",
            ),
        ),
        Claim(
            "35 digits can be learned by fine-tuning on 1000 examples",
            lambda results: at_least(results.accuracy(fine_tuned_label(ENOUGH), LONG), LEVEL),
        ),
        Claim(
            f"to equal {PRIMED} primed examples, fine-tuning needs {TIMES} times as many: with"
            f" fewer it stays below priming at 35 digits, with {TIMES * PRIMED} it learns them"
            f" ({100 * LEVEL:.0f} %)",
            lambda results: all_of(
                at_least(results.accuracy(fine_tuned_label(count), LONG), LEVEL)
                if count == TIMES * PRIMED
                else less(
                    results.accuracy(fine_tuned_label(count), LONG),
                    results.accuracy(WITH_PRIMING, LONG),
                )
                for count in FINE_TUNING_COUNTS[results.scale]
                if count <= TIMES * PRIMED
            ),
        ),
        Claim(
            "fine-tuning on 1000 examples forgets 5 digits (less than half of the accuracy is"
            " left)",
            lambda results: less(
                results.accuracy(fine_tuned_label(ENOUGH), TRAIN_DIGITS),
                results.in_domain(UNPRIMED).map(lambda share: share / 2, "half of the accuracy"),
            ),
        ),
        Claim(
            "priming doesn't forget: 5 digits are as good as without priming (within 5 points)",
            lambda results: at_least(
                results.accuracy(WITH_PRIMING, TRAIN_DIGITS, gated=False),
                results.accuracy(UNPRIMED, TRAIN_DIGITS).map(
                    lambda share: share - 0.05, f"{UNPRIMED} at 5 digits, less 5 points,"
                ),
            ),
        ),
        Claim(
            "in primed training, 5 digits are learned first and 35 digits follow",
            lambda results: greater(short_before_long(results, WITH_PRIMING, LONG), 0),
        ),
    )

    def conditions(self, scale: ScaleName) -> dict[str, Overrides]:
        counts = FINE_TUNING_COUNTS[scale]
        return {
            UNPRIMED: products(scale),
            WITH_PRIMING: primed_products(scale, PRIMED),
            **{fine_tuned_label(count): fine_tuned_products(scale, count) for count in counts},
        }

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = (TRAIN_DIGITS, long_length(results.scale))
        labels = list(self.conditions(results.scale))
        return {"Exact match (%) by number of digits": accuracy_grid(results, labels, lengths)}

    def draw(self, results: Results, figure: Any) -> None:
        counts = FINE_TUNING_COUNTS[results.scale]
        axes = panels(figure, "fine-tuning", f"priming with {PRIMED} examples")
        lengths = (TRAIN_DIGITS, long_length(results.scale))
        for length, colour, marker in zip(lengths, (BLUE, RED), "oD", strict=True):
            name = f"{length} digits"
            points = {n: results.exact_match(fine_tuned_label(n), length) for n in counts}
            line(axes[0], points, name, colour, marker)
            learning_curve(axes[1], results, WITH_PRIMING, length, name, colour)
        before = {n: results.exact_match(UNPRIMED, TRAIN_DIGITS) for n in (counts[0], counts[-1])}
        name = f"{TRAIN_DIGITS} digits, before fine-tuning"
        line(axes[0], before, name, BLUE, marker="", style=":")
        ticks(axes[0], counts)
        axes[0].set(xlabel="fine-tuning examples")
        for axis in axes:
            percent(axis)
        finish(figure)
