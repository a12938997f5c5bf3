"""A trace: everything that a model computed for some problems, by name and with labelled axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.base import UsageError, nearest
from lengthwise.base.errors import shorten
from lengthwise.problems.layouts import Layout
from lengthwise.solver.inside.sites import parse_site
from lengthwise.solver.tokens import Token

if TYPE_CHECKING:
    from lengthwise.base.picture import Picture
    from lengthwise.solver.solver import Solution

SUBLAYERS = ("attention", "feed-forward")
AXES: dict[str, tuple[str, ...]] = {
    "scores": ("problem", "layer", "head", "query", "key"),
    "patterns": ("problem", "layer", "head", "query", "key"),
    "head_outputs": ("problem", "layer", "head", "position", "head width"),
    "sublayer_outputs": ("problem", "layer", "sublayer", "position", "width"),
    "residual": ("problem", "point", "position", "width"),
    "logits": ("problem", "point", "position", "symbol"),
}
Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """What a model computed for some problems: `model.trace("99999 + 1")`.

    Arrays have labelled axes (`axes`, `labels`). Layers and heads are labelled from 1.
    """

    solutions: list["Solution"]  # the model's answers
    tokens: list[list[Token]]  # of each problem
    points: list[str]  # of the residual stream: "embedding", "after layer 1 attention", …
    heads: int
    layout: Layout  # in which the problems are written
    answer_at: NDArray[np.int64]  # the positions at which the answer is read
    arrays: dict[str, Array]  # by the names of `AXES`

    @property
    def scores(self) -> Array:
        """Attention scores as they enter the softmax, −inf where a query does not see a key."""
        return self["scores"]

    @property
    def patterns(self) -> Array:
        """Attention weights. Where they add up to less than 1, a null key takes the rest."""
        return self["patterns"]

    @property
    def head_outputs(self) -> Array:
        """The values that each head mixed, before the projection of all heads to the output."""
        return self["head_outputs"]

    @property
    def sublayer_outputs(self) -> Array:
        """What attention and feed-forward network gave, before the residual stream was added."""
        return self["sublayer_outputs"]

    @property
    def residual(self) -> Array:
        """The residual stream at each point; with layer norms behind sublayers, normalised."""
        return self["residual"]

    @property
    def logits(self) -> Array:
        """The classifier's logits at each point of the residual stream (the logit lens)."""
        return self["logits"]

    @property
    def probabilities(self) -> Array:
        """The softmax of `logits`."""
        shifted = np.exp(self.logits - self.logits.max(-1, keepdims=True))
        return shifted / shifted.sum(-1, keepdims=True)

    @property
    def symbols(self) -> NDArray[np.int64]:
        """(problem, point, answer position): the tokens that would be read at each point."""
        return self.logits[:, :, self.answer_at].argmax(-1)

    @property
    def confidences(self) -> Array:
        """(problem, point, answer position): the probability of each of `symbols`."""
        return self.probabilities[:, :, self.answer_at].max(-1)

    @property
    def answers(self) -> list[list[int | None]]:
        """For each problem the number that would be read at each point; None if it is none."""
        found = []
        for symbols in self.symbols:
            numbers, valid = self.layout.decode_answer(symbols)
            pairs = zip(numbers.to_ints(), valid, strict=True)
            found.append([number if is_number else None for number, is_number in pairs])
        return found

    @property
    def layers(self) -> int:
        """How often layers were applied."""
        return len(self.points) // 2

    @property
    def problems(self) -> list[str]:
        return [solution.problem for solution in self.solutions]

    def axes(self, name: str) -> tuple[str, ...]:
        """The names of an array's axes."""
        self[name]
        return AXES[name]

    def labels(self, axis: str) -> Sequence[Any]:
        """What the entries along an axis stand for."""
        positions = range(len(self.tokens[0]))
        known: Mapping[str, Sequence[Any]] = {
            "problem": range(len(self.solutions)),
            "layer": range(1, self.layers + 1),
            "head": range(1, self.heads + 1),
            "point": self.points,
            "sublayer": SUBLAYERS,
            "symbol": self.layout.vocabulary,
            **dict.fromkeys(("query", "key", "position"), positions),
            "width": range(self.residual.shape[-1]),
            "head width": range(self.residual.shape[-1] // self.heads),
        }
        if axis not in known:
            raise UsageError(f"there is no axis '{axis}': {nearest(axis, known)}")
        return known[axis]

    def select(self, name: str, **chosen: Any) -> Array:
        """An array at some labels: `trace.select("patterns", layer=2, head=1)`."""
        array, axes = self[name], self.axes(name)
        for axis in chosen:
            if axis not in axes:
                hint = nearest(axis, axes)
                raise UsageError(f"'{name}' has no axis '{axis}': {hint}")
        return array[tuple(self.find(a, chosen[a]) if a in chosen else slice(None) for a in axes)]

    def find(self, axis: str, label: Any) -> int:
        """The index of a label along an axis."""
        labels = list(self.labels(axis))
        if isinstance(label, bool) or label not in labels:
            known = f"from {labels[0]} to {labels[-1]}" if len(labels) > 1 else f"{labels[0]}"
            raise UsageError(f"there is no {axis} {label!r}; {axis} labels are {known}")
        return labels.index(label)

    def at(self, site: str) -> Array:
        """(problem, position, width): a named place, as in `trace.at("layer 2 head 1")`."""
        place = parse_site(site)
        if place.part in ("embedding", "after attention", "after layer"):
            last = {"after attention": " attention"}.get(place.part, "")
            name = f"after layer {place.layer}{last}" if place.layer else "embedding"
            return self.select("residual", point=name)
        if place.part == "head":
            return self.select("head_outputs", layer=place.layer, head=place.head)
        return self.select("sublayer_outputs", layer=place.layer, sublayer=place.part)

    def positions(self, problem: int = 0, **coordinates: Any) -> list[int]:
        """The positions of tokens by coordinate or symbol: `trace.positions(significance=2)`."""
        for name in coordinates:
            if name not in (known := [field.name for field in fields(Token)]):
                raise UsageError(f"tokens have no '{name}': {nearest(name, known)}")
        tokens = self.tokens[self.find("problem", problem)]
        wanted = coordinates.items()
        return [t.index for t in tokens if all(getattr(t, name) == v for name, v in wanted)]

    def table(self, layer: int | None = None, head: int | None = None, problem: int = 0) -> str:
        """Text: what would be read at each point or, of a head, each query's strongest keys."""
        from lengthwise.solver.inside import tables

        if layer is None and head is None:
            return tables.answers(self, problem)
        if layer is None or head is None:
            raise UsageError("a table of a pattern needs a layer and a head")
        return tables.pattern(self, layer, head, problem)

    def plot(
        self,
        layer: int | None = None,
        head: int | None = None,
        problem: int = 0,
        what: str = "patterns",
    ) -> "Picture":
        """A figure of `what`: patterns or scores of all heads, or of some, or answers by layer.

        A notebook shows it; its method `write` saves it.
        """
        from lengthwise.solver.inside import plot

        return plot.draw(self, layer, head, problem, what)

    def save(self, path: str | Path) -> None:
        """Write all arrays to a file that `numpy.load` reads (.npz)."""
        np.savez(path, **self.arrays)  # type: ignore[arg-type]

    def to_json(self, layer: int | None = None, head: int | None = None) -> list[dict[str, Any]]:
        """For each problem: tokens, answers at each point, and patterns of all heads or some.

        An attention without a softmax has no patterns, and they are left out.
        """
        chosen = {a: v for a, v in (("layer", layer), ("head", head)) if v is not None}
        left = [axis for axis in AXES["patterns"][1:] if axis not in chosen]
        described: list[dict[str, Any]] = [
            {
                "problem": solution.problem,
                "answer": solution.answer,
                "correct": solution.correct,
                "right": solution.right,
                "tokens": [vars(token) for token in self.tokens[i]],
                "points": [
                    {
                        "point": point,
                        "answer": answer,
                        "symbols": [self.layout.vocabulary[s] for s in symbols],
                        "confidences": confidences.tolist(),
                    }
                    for point, answer, symbols, confidences in zip(
                        self.points,
                        self.answers[i],
                        self.symbols[i],
                        self.confidences[i],
                        strict=True,
                    )
                ],
                **chosen,
            }
            for i, solution in enumerate(self.solutions)
        ]
        if chosen or "patterns" in self.arrays:
            for one, patterns in zip(described, self.select("patterns", **chosen), strict=True):
                one |= {"pattern axes": left, "patterns": patterns.tolist()}
        return described

    def __getitem__(self, name: str) -> Array:
        if name in self.arrays:
            return self.arrays[name]
        if name not in AXES:
            raise UsageError(f"a trace has no '{name}': {nearest(str(name), AXES)}")
        raise UsageError(
            f"'{name}' was not recorded, because this model's attention has no module"
            f" `{'output' if name == 'head_outputs' else 'softmax'}` that computes it"
        )

    def __repr__(self) -> str:
        first = self.solutions[0]
        more = f" and {len(self.solutions) - 1} more" if len(self.solutions) > 1 else ""
        size = f"{self.layers} layers, {len(self.tokens[0])} tokens"
        lines = [f"Trace of {shorten(repr(first.problem))}{more}: {size}"]
        for name, array in self.arrays.items():
            sizes = zip(AXES[name], array.shape, strict=True)
            lines.append(f"  {name:<17}" + " × ".join(f"{axis} {size}" for axis, size in sizes))
        return "\n".join(lines)
