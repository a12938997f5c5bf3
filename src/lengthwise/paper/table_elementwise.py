"""Appendix A.2: element-wise addition, and the accuracy of each digit with absolute embeddings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.paper.artefact import MARGIN, TRAINED, Claim, Missing, Results, ScaleName, Setting, Table, artefact
from lengthwise.paper.scales import budget, model, setting


def longest(results: Results) -> int:
    return TableElementwise.lengths[results.scale][-1]


def digitwise(results: Results, label: str) -> NDArray[np.float64]:
    """The accuracy of each digit at the longest length, leftmost first: a row a seed."""
    found = [a["digits"] for r in results.of(label) for a in r["evaluation"] if a["length"] == longest(results)]
    if not found:
        raise Missing(label)
    return np.array(found, float)


def trained_positions_only(results: Results) -> bool:
    by_digit = digitwise(results, "APE").mean(axis=0)
    return bool(by_digit[:TRAINED].mean() >= 0.9 and by_digit[TRAINED:].mean() <= 0.5)


@artefact("table-elementwise", "A.2, table and Figure 8", "Element-wise addition, and its digitwise accuracy with APE")
class TableElementwise(Table):
    lengths = {"smoke": (5, 6, 7, 8, 8), "cpu": (5, 6, 7, 8, 10), "paper": (5, 6, 10, 15, 20)}
    published = {
        "APE": (100, 5.3, 0.0, 0.0, 0.0),
        "RPE_k": (100, 97.5, 90.5, 86.2, 78.13),
    }
    claims = (
        Claim(
            "models with relative embeddings generalise (at least half right at 6 digits)",
            lambda results: results.mean("RPE_k", 6) >= 0.5,
        ),
        Claim(
            "models with relative embeddings beat those with absolute ones at 6 digits",
            lambda results: results.mean("RPE_k", 6) > results.mean("APE", 6) + MARGIN,
        ),
        Claim(
            "models with absolute embeddings fail (learnt at 5 digits, at most 10 % at 6)",
            lambda results: results.beyond("APE", 6) <= 0.1,
        ),
        Claim(
            "at the longest length, models with absolute embeddings almost always predict the 5 leftmost digits"
            " (90 % of them), those seen in training, and fail in the others (at most half right)",
            trained_positions_only,
        ),
    )
    notes = ("The figure's curve is only a picture in the paper; what the text says of it is the last claim.",)

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        return {pe: elementwise(scale, pe, self.lengths[scale][-1]) for pe in self.published}

    def draw(self, results: Results, figure: Any) -> None:
        axes = figure.subplots()
        n = longest(results)
        axes.set(
            title=f"element-wise addition of {n} digits, absolute embeddings",
            xlabel="digit of the answer (1 is the leftmost)",
            ylabel="accuracy (%)",
            xlim=(0.5, n + 0.5),
            ylim=(0, 105),
            xticks=range(1, n + 1),
        )
        axes.axvspan(0.5, TRAINED + 0.5, color="tab:green", alpha=0.1, label="seen in training")
        axes.axhline(10, color="0.6", linestyle=":", label="chance")
        try:
            seeds = 100 * digitwise(results, "APE")
        except Missing:
            axes.text(0.5, 0.5, "no runs with absolute embeddings", transform=axes.transAxes, ha="center", color="0.4")
        else:
            digit = np.arange(1, n + 1)
            axes.plot(digit, seeds.T, ".", color="tab:blue", alpha=0.4)
            plural = "s" if len(seeds) > 1 else ""
            axes.plot(digit, seeds.mean(0), "o-", color="tab:blue", label=f"mean of {len(seeds)} seed{plural}")
        axes.legend(loc="center right", frameon=False)


def elementwise(scale: ScaleName, embedding: str, digits: int) -> Setting:
    task = {"task": "elementwise-addition", "data.test_digits": digits, "data.train_size": 50000}
    tested = {"evaluation.final_examples": 10000} if scale == "paper" else {}
    # At the rates of the other tables, one seed in three doesn't learn it.
    rate = {"training.learning_rate": {"APE": 5e-4, "RPE_k": 1e-3}[embedding]} if scale == "cpu" else {}
    return setting(scale, task, tested, model(scale, "UTransformer", "B", embedding), rate, budget(scale, 2000))
