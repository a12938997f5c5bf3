"""Beyond the paper: every position embedding over every coordinate, for sums and for products."""

from collections.abc import Sequence
from typing import Any, get_args

from lengthwise.paper.artefact import MARGIN, Artefact, Claim, Grid, Results, ScaleName, Setting, artefact
from lengthwise.paper.scales import budget, model, setting
from lengthwise.positions import POSITIONS, Coordinate

LENGTHS: dict[ScaleName, Sequence[int]] = {"smoke": (5, 8), "cpu": (5, 6, 7, 8, 9, 10), "paper": (5, 6, 10, 15, 20)}
PROBLEMS: dict[str, Setting] = {
    "sum": {"task": "addition"},
    "n×1": {"task": {"kind": "multiplication", "second_digits": 1}, "layout.compact": True},
}


def embeddings(longest: int) -> dict[str, Setting]:
    """All that are registered, with positions of numbers so long, over each coordinate that they can work over."""
    options: dict[str, Setting] = {
        "abacus": {"offset": longest},
        "coupled": {"offset": longest},
        "randomised": {"reach": 8 * longest},
    }
    found: dict[str, Setting] = {}
    for kind, position in POSITIONS.items():
        chosen = {"kind": kind, **options.get(kind, {})}
        if "coordinate" in POSITIONS.options_of(position).model_fields:
            found |= {f"{kind} over {over}": {**chosen, "coordinate": over} for over in get_args(Coordinate)}
        else:
            found[kind] = chosen
    return found


def matrix_run(scale: ScaleName, problem: str, embedding: str) -> Setting:
    """One cell of the matrix."""
    longest = LENGTHS[scale][-1]
    common: Setting = {
        "layout.order": "least-significant-first",
        "data.test_digits": longest,
        "evaluation.final_lengths": list(LENGTHS[scale]),
        "model.position": embeddings(longest)[embedding],
    }
    rate: Setting = {"training.learning_rate": 1e-3} if scale == "cpu" else {}
    base = model(scale, "UTransformer", "B")
    return setting(scale, PROBLEMS[problem], base, common, rate, budget(scale, 2500))


def further_by_significance(kind: str, problem: str) -> Claim:
    def holds(results: Results) -> bool:
        longest = LENGTHS[results.scale][-1]
        index, significance = (
            results.mean(f"{problem}, {kind} over {over}", longest) for over in ("index", "significance")
        )
        return significance > index + MARGIN

    return Claim(f"{kind} over significance beats {kind} over the index at the longest length ({problem})", holds)


@artefact("beyond-matrix", "Beyond the paper", "Every position embedding over every coordinate")
class BeyondMatrix(Artefact):
    claims = tuple(further_by_significance(kind, problem) for kind in ("relative-key", "rope") for problem in PROBLEMS)
    notes = (
        "Nothing here is in the paper. Digits are written least significant first; all embeddings have the same model,"
        " budget and learning rate.",
        "Abacus and coupled positions are moved by up to the longest length in training, and randomised positions are"
        " around relative-key, chosen from eight times the longest length.",
    )

    def settings(self, scale: ScaleName) -> dict[str, Setting]:
        names = embeddings(LENGTHS[scale][-1])
        return {f"{problem}, {name}": matrix_run(scale, problem, name) for problem in PROBLEMS for name in names}

    def grids(self, results: Results) -> dict[str, Grid]:
        lengths = LENGTHS[results.scale]
        columns = [f"{n}" for n in lengths]

        def row(label: str) -> list[tuple[list[float], float | None]]:
            return [(results.exact_match(label, n), None) for n in lengths]

        names = embeddings(lengths[-1])
        return {
            f"Exact match (%) by number of digits, {problem}": Grid(
                columns, {name: row(f"{problem}, {name}") for name in names}
            )
            for problem in PROBLEMS
        }

    def draw(self, results: Results, figure: Any) -> None:
        from lengthwise.paper.drawing import panels

        lengths, names = LENGTHS[results.scale], list(embeddings(LENGTHS[results.scale][-1]))
        for axis, problem in zip(panels(figure, *PROBLEMS), PROBLEMS, strict=True):
            shares = [[results.exact_match(f"{problem}, {name}", n) for n in lengths] for name in names]
            means = [[100 * sum(s) / len(s) if s else float("nan") for s in row] for row in shares]
            axis.imshow(means, vmin=0, vmax=100, cmap="viridis", aspect="auto")
            axis.set(xlabel="digits", xticks=range(len(lengths)), xticklabels=lengths)
            axis.set(yticks=range(len(names)), yticklabels=names)
            for i, row in enumerate(means):
                for j, value in enumerate(row):
                    shown = "–" if value != value else f"{value:.0f}"  # a cell without a run
                    axis.text(
                        j, i, shown, ha="center", va="center", color="white" if value < 60 else "black", fontsize=7
                    )
