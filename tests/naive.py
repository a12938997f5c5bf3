"""The encoder once more, one number at a time: loops over examples, heads, queries and keys.

It shares no code with `lengthwise.model`. It takes an encoder's weights and options, and computes
in double precision with NumPy and Python's numbers what the papers' formulas say.
"""

import cmath
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from encoders import Problems
from numpy.typing import NDArray

from lengthwise.model import Encoder
from lengthwise.model.positions import Randomised
from lengthwise.problems.layouts import PAD

Array = NDArray[np.float64]
SUM = 2  # the operand number of partial sums


def logits(encoder: Encoder, problems: Problems, layers: int | None = None) -> Array:
    """What `encoder(tokens, coordinates, n_out, layers)` gives in testing, example by example."""
    at = problems.coordinates
    resampled = encoder.position(0).resample_coordinates(at)
    examples = []
    for b, tokens in enumerate(problems.tokens.tolist()):
        true, shown = (
            {name: c.expand(len(problems.tokens), -1)[b].tolist() for name, c in vars(c).items()}
            for c in (at, resampled)
        )
        examples.append(Example(encoder, tokens, true, shown).logits(problems.n_out, layers))
    return np.stack(examples)


@dataclass
class Pair:
    """A query and a key in a head, in plain numbers."""

    q: Sequence[float]
    k: Sequence[float]
    distance: int
    query_position: int
    operands: tuple[int, int]
    rows: int  # the query's minus the key's
    head: int


class Example:
    """One example and the weights that it goes through."""

    def __init__(
        self,
        encoder: Encoder,
        tokens: list[int],
        at: dict[str, list[int]],
        resampled: dict[str, list[int]],
    ):
        self.encoder, self.config, self.tokens = encoder, encoder.config, tokens
        self.at, self.resampled = at, resampled
        options: Any = self.config.position
        self.inner = "inner." if isinstance(options, Randomised.Options) else ""
        self.position = options.inner if self.inner else options
        state = encoder.state_dict().items()
        self.weights: dict[str, Array] = {name: w.double().numpy() for name, w in state}
        self.d = self.config.width // self.config.heads
        self.shape = encoder.position(0).shape

    def logits(self, n_out: int, layers: int | None) -> Array:
        symbols = np.stack([self.weights["symbols.weight"][token] for token in self.tokens])
        start = x = self.visit("embedding", self.project(self.embed(symbols)))
        if self.config.depth.kind == "until-stable" and layers is None:
            return self.until_stable(start, n_out)
        for i in range(layers or self.config.layers):
            x = self.layer(i, x, start)
        return self.classify(x)[:n_out]

    def until_stable(self, start: Array, n_out: int) -> Array:
        depth: Any = self.config.depth
        rows = max(self.at["row"]) + 1
        limit = self.config.layers * rows + len(self.tokens) // rows
        x, said = start, [self.classify(start)[:n_out]]
        for i in range(limit):
            x = self.layer(i, x, start)
            said.append(self.classify(x)[:n_out])
            answers = [logits.argmax(-1).tolist() for logits in said[-1 - depth.stable_for :]]
            stable = len(answers) > depth.stable_for and answers.count(answers[0]) == len(answers)
            if stable and i + 1 >= self.config.layers:
                break
        return said[-1]

    def embed(self, x: Array) -> Array:
        """Symbols with the vector of each token's position added."""
        kind = self.position.kind
        if kind not in ("absolute", "coupled", "abacus"):
            return x
        over = {"coupled": "significance", "abacus": "place"}.get(kind) or self.position.coordinate
        table = self.weights[f"positions.0.{self.inner}table.weight"]
        # Powers of ten below 0 come first in the table.
        longest = len(table) - getattr(self.position, "offset", 0)
        middle = longest // 2 if over == "significance" else 0
        return np.stack(
            [x[j] + table[value + middle] for j, value in enumerate(self.resampled[over])]
        )

    def project(self, x: Array) -> Array:
        x = self.norm("embedding_norm", x)
        return self.linear("project", x) if self.config.embedding_width else x

    def visit(self, place: str, x: Array) -> Array:
        """x at a named place; a subclass may look at it or give something else."""
        return x

    def layer(self, i: int, x: Array, start: Array) -> Array:
        name, here = f"layers.{i % len(self.encoder.layers)}", f"layer {i + 1}"
        depth: Any = self.config.depth
        read = self.read(x)
        if i and getattr(depth, "reinject_input", False):
            x = x + start
        if self.config.norm == "pre":
            x = x + self.attention(i, name, self.norm(f"{name}.attention_norm", x), read)
            x = self.visit(f"after {here} attention", x)
            x = x + self.feedforward(i, name, self.norm(f"{name}.feedforward_norm", x))
            return self.visit(f"after {here}", x)
        x = self.norm(f"{name}.attention_norm", x + self.attention(i, name, x, read))
        x = self.visit(f"after {here} attention", x)
        x = self.norm(f"{name}.feedforward_norm", x + self.feedforward(i, name, x))
        return self.visit(f"after {here}", x)

    def feedforward(self, i: int, name: str, x: Array) -> Array:
        hidden = self.linear(f"{name}.widen", x)
        activated = np.vectorize(ACTIVATIONS[self.config.activation])(hidden)
        return self.visit(f"layer {i + 1} feed-forward", self.linear(f"{name}.narrow", activated))

    def classify(self, x: Array) -> Array:
        x = self.norm("final_norm", x) if self.config.norm == "pre" else x
        return self.linear("classifier", x)

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Array) -> Array:
        rows = []
        for row in x:
            mean = sum(row) / len(row)
            variance = sum((v - mean) ** 2 for v in row) / len(row)
            rows.append((row - mean) / math.sqrt(variance + self.config.norm_epsilon))
        return np.stack(rows) * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def read(self, x: Array) -> Array:
        """At each token, the embeddings of symbols by the probability that they are read there."""
        chances = np.exp(self.classify(x))
        return (
            chances / chances.sum(-1, keepdims=True) @ self.project(self.weights["symbols.weight"])
        )

    def attention(self, i: int, layer: str, x: Array, read: Array) -> Array:
        options: Any = self.config.attention
        positional, name = options.kind == "positional", f"{layer}.attention"
        content = np.zeros_like(x)
        q, k = (content if positional else self.linear(f"{name}.{p}", x) for p in ("query", "key"))
        v = self.linear(f"{name}.value", x)
        discrete = positional and options.discrete_rows
        others = self.linear(f"{name}.value", read) if discrete else v  # seen of other rows
        mixed = np.zeros_like(x)
        length, row = len(self.tokens), self.at["row"]
        for h in range(self.config.heads):
            part = slice(h * self.d, (h + 1) * self.d)
            all_scores, pattern = np.full((length, length), -np.inf), np.zeros((length, length))
            for query in range(length):
                keys = [key for key in range(length) if self.sees(query, key)]
                scores = [
                    self.score(i, query, key, h, q[query, part], k[key, part]) for key in keys
                ]
                weights = np.exp(scores)
                total = weights.sum() + (1 if positional else 0)  # with the null key
                all_scores[query, keys], pattern[query, keys] = scores, weights / total
                for key, weight in zip(keys, weights / total, strict=True):
                    values = v if row[query] == row[key] else others
                    mixed[query, part] += weight * values[key, part]
            here = f"layer {i + 1} head {h + 1}"
            self.visit(f"{here} scores", all_scores)
            self.visit(f"{here} pattern", pattern)
            mixed[:, part] = self.visit(here, mixed[:, part])
        return self.visit(f"layer {i + 1} attention", self.linear(f"{name}.output", mixed))

    def sees(self, query: int, key: int) -> bool:
        options: Any = self.config.attention
        if options.kind == "full":
            return not (options.mask_padding and self.tokens[key] == PAD)
        at = self.at
        above = at["row"][query] - at["row"][key]
        sums = above == 1 and at["operand"][query] == at["operand"][key] == SUM
        if above and not sums:
            return False
        if at["shared"][query] or at["shared"][key]:
            return bool(at["shared"][key])
        return abs(at[options.over][query] - at[options.over][key]) <= options.window

    def score(self, i: int, query: int, key: int, head: int, q: Array, k: Array) -> float:
        """q·k/√d and what the position embedding adds to it."""
        options, positional = self.position, self.config.attention.kind == "positional"
        if options.kind == "rope":
            at = self.resampled[options.coordinate]
            q, k = self.turn(q, at[query]), self.turn(k, at[key])
        score = 0.0 if positional else dot(q, k) / math.sqrt(self.d)
        formula = FORMULAS.get(options.kind)
        if formula is not None:
            coordinate = options.coordinate
            pair = Pair(
                q.tolist(),
                k.tolist(),
                self.distance(coordinate, query, key),
                self.resampled[coordinate][query],
                self.operands(query, key),
                self.at["row"][query] - self.at["row"][key],
                head,
            )
            prefix = f"positions.{i % len(self.encoder.positions)}.{self.inner}"
            score += formula(self, prefix, pair)
        return score * self.encoder.layer(0).attention.sharpness

    def turn(self, x: Array, position: int) -> Array:
        half = self.d // 2
        turned = [
            complex(x[p], x[p + half])
            * cmath.exp(1j * position * self.position.base ** (-2 * p / self.d))
            for p in range(half)
        ]
        return np.array([z.real for z in turned] + [z.imag for z in turned])

    def distance(self, coordinate: str, query: int, key: int) -> int:
        """Query minus key; a shared operand is off the number line, seen from the query's row."""
        at, shared, row = self.resampled[coordinate], self.at["shared"], self.at["row"]
        if coordinate == "significance" and shared[query] != shared[key]:
            return at[query] - row[key] if shared[query] else row[query] - at[key]
        return at[query] - at[key]

    def operands(self, query: int, key: int) -> tuple[int, int]:
        """Another row of the query's operand counts as one more operand, after all others."""
        operand, row = self.at["operand"], self.at["row"]
        another = operand[query] == operand[key] and row[query] != row[key]
        return operand[query], max(operand) + 1 if another else operand[key]

    def relative_row(self, prefix: str, pair: Pair) -> Array:
        """The row of a table of distances, which are centred on 0."""
        table, options = self.weights[f"{prefix}table.weight"], self.position
        if options.by_operands:
            query, key = pair.operands
            tables = table.reshape(self.shape.operands**2, -1, table.shape[1])
            table = tables[query * self.shape.operands + key]
        clip, distance = options.clip, pair.distance
        distance = max(-clip, min(clip, distance)) if clip else distance
        return np.asarray(table[len(table) // 2 + distance])


def dot(a: Sequence[float] | Array, b: Sequence[float] | Array) -> float:
    return float(sum(x * y for x, y in zip(a, b, strict=True)))


def shaw(example: Example, prefix: str, pair: Pair) -> float:
    """q · r(i − j) (Shaw et al., 2018); BERT divides it by √d, ALBERT does not."""
    scale = math.sqrt(example.d) if example.config.scale_relative else 1
    return dot(pair.q, example.relative_row(prefix, pair)) / scale


def huang(example: Example, prefix: str, pair: Pair) -> float:
    """q · r(i − j) + k · r(i − j) (Huang et al., 2020, method 4)."""
    scale = math.sqrt(example.d) if example.config.scale_relative else 1
    return dot(np.add(pair.q, pair.k), example.relative_row(prefix, pair)) / scale


def bias(example: Example, prefix: str, pair: Pair) -> float:
    number, clip = example.relative_row(prefix, pair)[pair.head], example.position.row_clip
    if clip:
        rows = example.weights[f"{prefix}row_table.weight"]
        number += rows[clip + max(-clip, min(clip, pair.rows))][pair.head]
    return float(number) * example.position.strength


def raffel(example: Example, prefix: str, pair: Pair) -> float:
    options = example.position
    bucket = t5_bucket(-pair.distance, options.buckets, options.longest)
    return float(example.weights[f"{prefix}table.weight"][bucket, pair.head])


def t5_bucket(relative_position: int, buckets: int, longest: int) -> int:
    """The bucket of key − query as in T5's code, with the logarithms' inequality in whole numbers.

    exact + ⌊log(n / exact) / log(longest / exact) · (buckets − exact)⌋, at most buckets − 1.
    """
    buckets //= 2
    direction = buckets if relative_position > 0 else 0
    n, exact = abs(relative_position), buckets // 2
    if n < exact:
        return direction + n
    steps, above = buckets - exact, 0
    while above < steps - 1 and (
        n**steps * exact ** (above + 1) >= longest ** (above + 1) * exact**steps
    ):
        above += 1
    return direction + exact + above


def press(example: Example, prefix: str, pair: Pair) -> float:
    """−m·|i − j| (Press et al., 2022), where two heads have the slopes 1/16 and 1/256.

    In the signed form a head counts one direction twice: the first later keys, the second earlier.
    """
    is_later = pair.distance < 0
    is_earlier = pair.distance > 0
    counts_twice = example.position.signed and (is_later, is_earlier)[pair.head]
    return -abs(pair.distance) * (2 if counts_twice else 1) / (16, 256)[pair.head]


def li(example: Example, prefix: str, pair: Pair) -> float:
    """f(ψ(i − j) / ψ(max(L, i))) with ψ(x) = log(|c·x| + 1) (Li et al., 2024), f a network."""
    weights = {name.removeprefix(prefix): w for name, w in example.weights.items()}
    c, threshold = float(weights["c"]), abs(float(weights["factor"])) * example.position.threshold
    reach = max(threshold, pair.query_position)
    x = math.log(abs(c * pair.distance) + 1) / math.log(abs(c * reach) + 1)
    if example.position.signed and pair.distance < 0:
        x = -x
    columns = zip(weights["network.0.weight"][:, 0], weights["network.0.bias"], strict=True)
    hidden = [max(0.0, w * x + b) for w, b in columns]
    output = weights["network.2.weight"][pair.head], weights["network.2.bias"][pair.head]
    return dot(hidden, output[0]) + float(output[1])


FORMULAS = {
    "relative-key": shaw,
    "relative-key-query": huang,
    "relative-bias": bias,
    "t5-bias": raffel,
    "alibi": press,
    "fire": li,
}
ACTIVATIONS = {
    "relu": lambda x: max(0.0, x),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu-tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
}
