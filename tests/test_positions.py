"""Every registered position embedding keeps the contract; ours equal the papers' formulas, one number at a time."""

import cmath
import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from torch import Tensor

from lengthwise import kernels
from lengthwise.data import draw
from lengthwise.digits import Numbers
from lengthwise.errors import UsageError
from lengthwise.layout import VOCABULARY, Coordinates, Layout, LayoutConfig
from lengthwise.model import Encoder, ModelConfig
from lengthwise.positions import POSITIONS, Position, Shape, View, view_band, view_window
from lengthwise.tasks import Addition, Multiplication, Task

MOST_FIRST, LEAST_FIRST = ORDERS = ["most-significant-first", "least-significant-first"]
TASKS = [Addition(), Addition(operands=3), Multiplication(second_digits=2)]


def choices(kind: str) -> list[dict[str, Any]]:
    """An embedding with its defaults, and with each option changed.

    To each of its names, to true, to a small and a large number if it is off, and around each other embedding.
    """
    variants: list[dict[str, Any]] = [{"kind": kind}]
    for option, field in POSITIONS.options_of(POSITIONS[kind]).model_fields.items():
        values: tuple[Any, ...] = ()
        if get_origin(field.annotation) is Literal:
            values = get_args(field.annotation)
        elif field.annotation is bool:
            values = (False, True)
        elif int in (field.annotation, *get_args(field.annotation)) and not field.default:
            values = (2, 30)
        elif isinstance(field.default, str) and field.default in POSITIONS:
            values = tuple(inner for other in POSITIONS if other != kind for inner in choices(other))
        variants += [{"kind": kind, option: value} for value in values if value != field.default]
    return variants


def label(value: object) -> str:
    return "-".join(map(label, value.values())) if isinstance(value, dict) else str(value)


CHOICES = [choice for kind in POSITIONS for choice in choices(kind)]
SIMPLE = [choice for choice in CHOICES if "inner" not in choice]
ALONE = [choice for choice in CHOICES if "inner" not in POSITIONS.options_of(POSITIONS[choice["kind"]]).model_fields]


@pytest.fixture(params=CHOICES, ids=label)
def choice(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=TASKS, ids=["addition", "three-operands", "multiplication"])
def task(request: pytest.FixtureRequest) -> Task:
    return request.param


def encoder_with(choice: dict[str, Any], max_length: int = 32, operands: int = 2, **fields: Any) -> Encoder:
    config = {"layers": 2, "width": 8, "heads": 2, "position": choice, **fields}
    encoder = Encoder(ModelConfig.model_validate(config), max_length, operands=operands)
    encoder.initialise(torch.Generator().manual_seed(0))
    return encoder.eval()


def position_of(
    choice: dict[str, Any], max_length: int = 32, heads: int = 2, operands: int = 2, scaled: bool = False
) -> Position:
    """An embedding alone, for heads of width 4, with random parameters."""
    options = POSITIONS.parse(choice)
    position = POSITIONS[options.kind](options, Shape(4 * heads, 8, heads, max_length, operands, scaled))
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in position.parameters():
            parameter.normal_(generator=rng)
    return position.eval()


def problems(
    order: str, count: int = 5, task: Task = TASKS[0], digits: int = 4
) -> tuple[Tensor, Coordinates[Tensor], int]:
    """Tokens and coordinates of problems of different lengths, and n_out."""
    several = isinstance(task, Multiplication) and order == "least-significant-first"
    rows = {"long_multiplication": True} if several else {}
    layout = Layout(task, digits, LayoutConfig(order=order, compact=True, **rows))
    rng = np.random.default_rng(0)
    operands = tuple(draw(rng, "uniform-length", np.full(count, most)) for most in task.operand_digits(digits))
    at = layout.coordinates(operands).map(torch.from_numpy)
    return torch.from_numpy(layout.encode(operands)), at, layout.n_out


@pytest.mark.parametrize("encoder_kind", ["transformer", "universal-transformer"])
def test_each_works_in_an_encoder(choice, encoder_kind, order):
    encoder = encoder_with(choice, encoder=encoder_kind)
    tokens, at, n_out = problems(order)
    logits = encoder(tokens, at, n_out)
    assert logits.shape == (5, n_out, 15)
    # Only the positions that are read are computed: they are as if all were.
    torch.testing.assert_close(logits, encoder(tokens, at, tokens.shape[1])[:, :n_out])


def test_an_examples_logits_are_its_own_whatever_else_is_in_the_batch(choice, order):
    encoder = encoder_with(choice, operands=4)
    for task in TASKS:
        tokens, at, n_out = problems(order, task=task)
        logits = encoder(tokens, at, n_out)
        for row in (0, 4):
            one = at.map(lambda c, row=row: c[row : row + 1] if c.dim() == 2 else c)
            torch.testing.assert_close(logits[row : row + 1], encoder(tokens[row : row + 1], one, n_out))


@pytest.mark.parametrize("choice", SIMPLE, ids=label)
@pytest.mark.parametrize(("encoder_kind", "bfloat16"), [("transformer", False), ("universal-transformer", True)])
def test_gradients_reach_every_parameter(choice, encoder_kind, bfloat16):
    encoder = encoder_with(choice, encoder=encoder_kind, embedding_width=6).train()
    torch.manual_seed(0)
    tokens, at, n_out = problems(MOST_FIRST)
    with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        logits = encoder(tokens, at, n_out)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, :n_out].flatten())
    loss.backward()
    for name, parameter in encoder.positions.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_initial_weights_come_from_the_generator_alone(choice):
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states.append(encoder_with(choice).state_dict())
    for name, weights in states[0].items():
        torch.testing.assert_close(weights, states[1][name], rtol=0, atol=0, msg=name)


def test_options_survive_json(choice):
    options = POSITIONS.parse(choice)
    assert options.kind == choice["kind"]
    parsed = POSITIONS.parse(json.loads(json.dumps(options.model_dump(mode="json"))))
    assert parsed == options
    assert type(parsed) is type(options)
    config = ModelConfig(position=choice)
    assert ModelConfig.model_validate(json.loads(config.model_dump_json())) == config


@pytest.mark.parametrize("kind", POSITIONS)
def test_each_says_what_it_is(kind):
    assert (POSITIONS[kind].__dict__.get("__doc__") or "").strip()


@pytest.mark.parametrize("kind", POSITIONS)
def test_only_without_position_is_the_input_a_bag_of_symbols(kind):
    """Swapping two keys beyond the positions that are read changes the answer, unless there is no embedding."""
    encoder = encoder_with({"kind": kind})
    tokens, at, _ = problems(MOST_FIRST)
    swapped = tokens.clone()
    swapped[:, [-2, -1]] = tokens[:, [-1, -2]]
    assert (swapped != tokens).any()
    difference = (encoder(tokens, at, 4) - encoder(swapped, at, 4)).abs().max()
    assert difference < 1e-6 if kind == "none" else difference > 1e-4


def test_every_length_up_to_the_longest_works_and_the_next_is_the_users_business(choice, order):
    """What has no longest takes ten times what it was made for."""
    made_for = 9
    encoder = encoder_with(choice, max_length=made_for)
    longest = encoder.position(0).longest
    assert longest is None or longest >= made_for
    digits = (min(10 * made_for, longest or math.inf) - 1) // 2
    for n in {4, digits}:
        operands = Numbers.from_text(["9" * n, "7", "12"]), Numbers.from_text(["8", "9" * n, "3"])
        layout = Layout(Addition(), n, LayoutConfig(order=order))
        tokens, at = layout.encode(operands), layout.coordinates(operands).map(torch.from_numpy)
        assert encoder(torch.from_numpy(tokens), at, layout.n_out).isfinite().all()
    if longest is not None:
        index = torch.arange(longest + 1)
        at = Coordinates(index, index, index, index, index < 0, index * 0)
        with pytest.raises(UsageError, match=f"has {longest + 1} tokens, .* takes {longest};") as caught:
            encoder(index[None] % 10, at, 3)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("choice", ALONE, ids=label)
def test_a_shift_of_all_positions_changes_what_is_added_to_the_input_and_no_score(choice, order):
    """Scores and rotations are relative: they know distances only."""
    encoder = encoder_with(choice)
    tokens, at, n_out = problems(order)
    shifted = replace(
        at, index=at.index + 3, significance=at.significance + 3, place=torch.where(at.place > 0, at.place + 3, 0)
    )
    difference = (encoder(tokens, at, n_out) - encoder(tokens, shifted, n_out)).abs().max()
    absolute = encoder.position(0).has_own("embed") or encoder.position(0).has_own("added")
    assert difference > 1e-2 if absolute else difference < 1e-5


def test_what_is_said_to_look_at_no_content_gives_the_same_scores_for_any(choice, order):
    position = position_of(choice)
    tokens, at, _ = problems(order)
    view = View(position.moved(at), tokens.shape[1])
    rng = torch.Generator().manual_seed(0)
    shape = 2, len(tokens), 2, tokens.shape[1], 4  # queries and keys
    scores = [position.scores(*torch.randn(shape, generator=rng), view) for _ in range(2)]
    if position.by_content:
        assert scores == [None, None] or not torch.equal(*scores)
    else:
        assert torch.equal(*scores)
        nothing = torch.empty(0)  # as the encoder calls it
        assert torch.equal(position.scores(nothing, nothing, view), scores[0])


def test_random_numbers_are_drawn_in_training_only_and_only_where_it_is_said(choice):
    encoder = encoder_with(choice)
    tokens, at, n_out = problems(MOST_FIRST)
    for training in [False] if encoder.random else [False, True]:
        encoder.train(training)
        before = torch.get_rng_state()
        first, second = encoder(tokens, at, n_out), encoder(tokens, at, n_out)
        assert torch.equal(first, second)
        assert torch.equal(torch.get_rng_state(), before)


@dataclass
class Pair:
    """A query and a key, in plain numbers."""

    q: list[float]
    k: list[float]
    distance: int
    position: int  # of the query
    operands: tuple[int, int]
    head: int


def rows_of(at: Coordinates[Tensor], batch: int) -> dict[str, list[list[int]]]:
    """Every coordinate as nested lists, a line for each example."""
    return {name: c.expand(batch, -1).tolist() for name, c in vars(at).items()}


def naive_distance(where: dict[str, list[list[int]]], coordinate: str, b: int, i: int, j: int) -> int:
    """Query minus key; by significance, a shared operand is beside the number line, seen from the query's row."""
    query, key = where[coordinate][b][i], where[coordinate][b][j]
    shared = where["shared"][b]
    if coordinate == "significance" and shared[i] != shared[j]:
        row = where["row"][b]
        query, key = (query, row[j]) if shared[i] else (row[i], key)
    return query - key


def naive_operands(where: dict[str, list[list[int]]], b: int, i: int, j: int) -> tuple[int, int]:
    """Of query and key; another row of the query's operand counts as one more operand, after all others."""
    query, key = where["operand"][b][i], where["operand"][b][j]
    another = query == key and where["row"][b][i] != where["row"][b][j]
    return query, max(where["operand"][b]) + 1 if another else key


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def shaw(position: Position, pair: Pair) -> float:
    """q · r(i − j) (Shaw et al., 2018)."""
    return dot(pair.q, relative_vector(position, pair))


def huang(position: Position, pair: Pair) -> float:
    """q · r(i − j) + k · r(i − j) (Huang et al., 2020, method 4)."""
    vector = relative_vector(position, pair)
    return dot(pair.q, vector) + dot(pair.k, vector)


def relative_vector(position: Position, pair: Pair) -> list[float]:
    clip, count = position.options.clip, position.shape.operands
    tables = position.table.weight.view(count**2 if position.options.by_operands else 1, -1, 4)
    distance = max(-clip, min(clip, pair.distance)) if clip else pair.distance
    query, key = pair.operands
    table = tables[query * count + key if position.options.by_operands else 0]
    scale = math.sqrt(4) if position.shape.scale_relative else 1  # BERT divides by √d, ALBERT doesn't
    return [x / scale for x in table[len(table) // 2 + distance].tolist()]


def t5_bucket(relative_position: int, buckets: int, longest: int) -> int:
    """The bucket of key − query as in T5's code, with the logarithms' inequality in whole numbers.

    max_exact + ⌊log(n / max_exact) / log(longest / max_exact) · (buckets − max_exact)⌋, at most buckets − 1.
    """
    buckets //= 2
    direction = buckets if relative_position > 0 else 0
    n, exact = abs(relative_position), buckets // 2
    if n < exact:
        return direction + n
    steps, above = buckets - exact, 0
    while above < steps - 1 and n**steps * exact ** (above + 1) >= longest ** (above + 1) * exact**steps:
        above += 1
    return direction + exact + above


def raffel(position: Position, pair: Pair) -> float:
    bucket = t5_bucket(-pair.distance, position.options.buckets, position.options.longest)
    return position.table.weight[bucket, pair.head].item()


def press(position: Position, pair: Pair) -> float:
    """−m·|i − j| (Press et al., 2022), where two heads have the slopes 1/16 and 1/256."""
    return -abs(pair.distance) / (16, 256)[pair.head]


def li(position: Position, pair: Pair) -> float:
    """f(ψ(i − j) / ψ(max(L, i))) with ψ(x) = log(|c·x| + 1) (Li et al., 2024), where f is a network."""
    c, threshold = position.c.item(), abs(position.factor.item()) * position.options.threshold
    inner, _, outer = position.network
    x = math.log(abs(c * pair.distance) + 1) / math.log(abs(c * max(threshold, pair.position)) + 1)
    hidden = [max(0, w * x + b) for w, b in zip(inner.weight[:, 0].tolist(), inner.bias.tolist(), strict=True)]
    return dot(hidden, outer.weight[pair.head].tolist()) + outer.bias[pair.head].item()


FORMULAS: dict[str, tuple[Callable[[Position, Pair], float], list[dict[str, Any]]]] = {
    "relative-key": (shaw, [{}, {"clip": 1}, {"clip": 3}, {"by_operands": True}, {"by_operands": True, "clip": 2}]),
    "relative-key-query": (huang, [{}, {"clip": 3}, {"by_operands": True}]),
    "t5-bias": (raffel, [{}, {"buckets": 8, "longest": 6}]),
    "alibi": (press, [{}]),
    "fire": (li, [{}, {"threshold": 1}]),
}


@pytest.mark.parametrize("coordinate", ["index", "significance"])
@pytest.mark.parametrize(("kind", "options"), [(kind, options) for kind in FORMULAS for options in FORMULAS[kind][1]])
def test_scores_equal_a_double_loop_over_the_papers_formula(kind, options, coordinate, order, task):
    tokens, at, n_out = problems(order, 3, task)
    length, formula = tokens.shape[1], FORMULAS[kind][0]
    choice = {"kind": kind, "coordinate": coordinate, **options}
    position = position_of(choice, length, operands=4, scaled=order == MOST_FIRST)
    rng = torch.Generator().manual_seed(1)
    q, k = torch.randn(3, 2, n_out, 4, generator=rng), torch.randn(3, 2, length, 4, generator=rng)
    queries, keys, where = q.tolist(), k.tolist(), rows_of(at, 3)
    expected = torch.zeros(3, 2, n_out, length)
    for b, h, i, j in product(range(3), range(2), range(n_out), range(length)):
        distance = naive_distance(where, coordinate, b, i, j)
        operands = naive_operands(where, b, i, j)
        pair = Pair(queries[b][h][i], keys[b][h][j], distance, where[coordinate][b][i], operands, h)
        expected[b, h, i, j] = formula(position, pair)
    scores = position.scores(q, k, View(at, n_out)).expand_as(expected)
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("buckets", "longest"), [(32, 128), (8, 6), (4, 2), (6, 50), (64, 1000)])
def test_t5_buckets_are_those_of_its_paper(buckets, longest):
    position = position_of({"kind": "t5-bias", "buckets": buckets, "longest": longest})
    ahead = torch.arange(-2 * longest, 2 * longest + 1)
    expected = [t5_bucket(n, buckets, longest) for n in ahead.tolist()]
    assert position.bucket(ahead).tolist() == expected
    assert set(expected) >= {0, buckets // 2 - 1, buckets - 1}


@pytest.mark.parametrize(
    ("heads", "halvings"),
    [
        (1, [8]),
        (2, [4, 8]),
        (4, [2, 4, 6, 8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (6, [2, 4, 6, 8, 1, 3]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_alibi_has_the_published_slopes(heads, halvings):
    assert position_of({"kind": "alibi"}, heads=heads).slopes().tolist() == pytest.approx([2**-n for n in halvings])


@pytest.mark.parametrize("coordinate", ["index", "significance"])
@pytest.mark.parametrize("base", [10000.0, 3.0])
def test_rope_multiplies_by_complex_numbers_and_leaves_distances_only(base, coordinate, order):
    tokens, at, n_out = problems(order, 3)
    length = tokens.shape[1]
    position = position_of({"kind": "rope", "base": base, "coordinate": coordinate})
    rng = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 3, 2, 1, 4, generator=rng)
    turned = position.rotate(q.expand(-1, -1, n_out, -1), k.expand(-1, -1, length, -1), at)
    where = rows_of(at, 3)[coordinate]
    for before, after in zip((q, k), turned, strict=True):
        for b in range(3):
            for t in range(after.shape[2]):
                for pair in range(2):
                    turn = cmath.exp(1j * where[b][t] * base ** (-2 * pair / 4))
                    for x, y in zip(before[b, :, 0].tolist(), after[b, :, t].tolist(), strict=True):
                        expected = complex(x[pair], x[2 + pair]) * turn
                        assert complex(y[pair], y[2 + pair]) == pytest.approx(expected, abs=1e-5)
    scores = (turned[0] @ turned[1].mT).tolist()  # the same query and key everywhere: only distances differ
    for b in range(3):
        of_distance: dict[int, list[float]] = {}
        for i in range(n_out):
            for j in range(length):
                both = [scores[b][h][i][j] for h in range(2)]
                assert both == pytest.approx(of_distance.setdefault(where[b][i] - where[b][j], both), abs=1e-5)


ADDED = [
    ({"kind": "absolute"}, "index"),
    ({"kind": "absolute", "coordinate": "significance"}, "significance"),
    ({"kind": "coupled"}, "significance"),
    ({"kind": "abacus"}, "place"),
]


@pytest.mark.parametrize(("choice", "coordinate"), ADDED, ids=label)
def test_a_vector_for_each_value_of_the_coordinate_is_added_to_the_input(choice, coordinate, order, task):
    tokens, at, _ = problems(order, task=task)
    position = position_of(choice)
    x = torch.randn(*tokens.shape, 8)
    added = position.embed(torch.zeros_like(x), at)
    torch.testing.assert_close(position.embed(x, at), x + added)
    where, table = rows_of(at, len(tokens))[coordinate], position.table.weight.tolist()
    of_value: dict[int, list[float]] = {}
    for values, vectors in zip(where, added.tolist(), strict=True):
        for value, vector in zip(values, vectors, strict=True):
            assert of_value.setdefault(value, vector) == vector
    assert len({tuple(vector) for vector in of_value.values()}) == len(of_value)
    assert all(vector in table for vector in of_value.values())


@pytest.mark.parametrize("by_torch", [False, True], ids=["kernels", "torch"])
@pytest.mark.parametrize(("choice", "coordinate"), ADDED, ids=label)
def test_projecting_each_symbol_at_each_position_once_changes_nothing(choice, coordinate, order, by_torch):
    """Compared with an embedding of its own, whose input is projected as it is."""
    tokens, at, n_out = problems(order)
    plain, own = encoder_with(choice), encoder_with(choice)
    position = own.position(0)
    position.embed = lambda x, at: x + position.added(at)  # type: ignore[method-assign]
    weights = torch.randn(len(tokens), n_out, len(VOCABULARY), generator=torch.Generator().manual_seed(1))
    found = []
    for encoder in (plain, own):
        with kernels.by_torch() if by_torch else nullcontext():
            by_example = getattr(at, coordinate).dim() > 1
            assert (encoder.embed(tokens, at).which is None) == (encoder is own or by_example)
            logits = encoder(tokens, at, n_out)
            gradients = torch.autograd.grad((logits * weights).sum(), list(encoder.parameters()))
        found.append([logits, *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by_torch", [False, True], ids=["kernels", "torch"])
@pytest.mark.parametrize("kind", ["absolute", "relative-key", "none"])
@pytest.mark.parametrize("symbol", [-1, len(VOCABULARY)])
def test_a_symbol_that_there_is_not_is_an_error(kind, symbol, by_torch):
    tokens, at, n_out = problems("most-significant-first")
    tokens[1, 2] = symbol
    with kernels.by_torch() if by_torch else nullcontext(), pytest.raises(IndexError):
        encoder_with({"kind": kind})(tokens, at, n_out)


@pytest.mark.parametrize(("kind", "first_moved"), [("coupled", 0), ("abacus", 1)])
def test_an_offset_moves_all_positions_of_a_batch_alike_in_training_only(kind, first_moved, order):
    """Every offset from none to the largest is drawn. In abacus, what is no digit (place 0) isn't moved."""
    tokens, at, _ = problems(order)
    moving = at.place >= first_moved
    position = position_of({"kind": kind, "offset": 3})

    def rows() -> Tensor:
        """The table's row that is added to each token."""
        added = position.embed(torch.zeros(*tokens.shape, 8), at)
        return (added[..., None, :] == position.table.weight).all(-1).float().argmax(-1)

    still = rows()
    position.train()
    torch.manual_seed(0)
    seen = set()
    for _ in range(50):
        offset = rows() - still
        assert len(offset[moving].unique()) == 1
        assert not offset[~moving].any()
        seen.add(int(offset[moving][0]))
    assert seen == {0, 1, 2, 3}


def test_randomised_positions_are_a_sorted_random_choice_below_the_reach(order, task):
    _, at, _ = problems(order, task=task)
    position = position_of({"kind": "randomised", "reach": 64})
    for training in (False, True):
        position.train(training)
        moved = position.moved(at)
        for name in ("operand", "shared", "row"):
            assert torch.equal(getattr(moved, name), getattr(at, name))
        # A shared operand's digits stay at their places, as they are seen from rows and not from powers of ten.
        assert torch.equal(moved.significance[..., at.shared], at.significance[..., at.shared])
        for name in ("index", "significance"):
            moves = ~at.shared if name == "significance" else at.index >= 0
            old, new = (getattr(where, name)[..., moves].flatten().tolist() for where in (at, moved))
            pairs = sorted(set(zip(old, new, strict=True)))
            assert len(pairs) == len(set(old))  # the same position becomes the same one
            assert all(a < b for (_, a), (_, b) in pairwise(pairs))
            assert all(0 <= value < 64 for value in new)


def test_randomised_positions_are_always_the_same_in_testing_and_any_in_training():
    """All 20 choices of 3 out of 6 positions are drawn in training, and one in testing."""
    index = torch.arange(3)
    at = Coordinates(index, index, index, index, index < 0, index * 0)
    position = position_of({"kind": "randomised", "reach": 6})
    for training, choices in [(False, 1), (True, 20)]:
        torch.manual_seed(0)
        position.train(training)
        assert len({tuple(position.moved(at).index.tolist()) for _ in range(200)}) == choices
    position = position_of({"kind": "randomised"})
    index = torch.arange(position.longest)
    moved = position.moved(Coordinates(index, index - 500, index, index, index < 0, index * 0))
    assert len(moved.index.unique()) == len(moved.significance.unique()) == len(index)


@pytest.mark.parametrize("inner", ALONE, ids=label)
def test_randomised_positions_are_those_of_whatever_embedding_is_inside(inner, order):
    """In training, what the model says differs from draw to draw, unless the embedding knows no positions at all."""
    tokens, at, n_out = problems(order)
    encoder = encoder_with({"kind": "randomised", "inner": inner, "reach": 24}).train()
    torch.manual_seed(0)
    draws = torch.stack([encoder(tokens, at, n_out) for _ in range(8)])
    if inner["kind"] == "none":
        torch.testing.assert_close(draws, encoder_with(inner)(tokens, at, n_out).expand_as(draws))
    else:
        assert (draws - draws[0]).abs().max() > 1e-3


@pytest.mark.parametrize("over", ["index", "significance"])
def test_a_window_is_over_true_positions_where_those_of_the_embedding_are_randomised(over, order):
    tokens, at, n_out = problems(order)
    fields = {"window": 2, "window_over": over}
    expected = encoder_with({"kind": "none"}, **fields)(tokens, at, n_out)
    randomised = encoder_with({"kind": "randomised", "inner": "none"}, **fields)
    torch.testing.assert_close(randomised(tokens, at, n_out), expected)


@pytest.mark.parametrize("over", ["index", "significance"])
def test_a_window_hides_what_is_further_away_and_shared_operands_see_themselves_alone(over, order, task):
    """Against a double loop, and the band against the window. Shared operands are seen from everywhere; where there
    are rows, a query sees its own and what is shared in it, and a sum sees the sum below."""
    tokens, at, _ = problems(order, 3, task)
    batch, length = tokens.shape
    rows = rows_of(at, batch)
    where, shared = rows[over], rows["shared"]
    for reach in range(1, 5):
        expected = torch.zeros(batch, length, length, dtype=torch.bool)
        for b, i, j in product(range(batch), range(length), range(length)):
            near = abs(where[b][i] - where[b][j]) <= reach
            above = rows["row"][b][i] - rows["row"][b][j]
            sums = above == 1 and rows["operand"][b][i] == rows["operand"][b][j] == 2
            expected[b, i, j] = (shared[b][j] if shared[b][i] or shared[b][j] else near) and (above == 0 or sums)
        window = view_window(at, reach, over)
        assert (window.band, window.queries) == (None, length)
        assert torch.equal((~window.hidden).expand(batch, 1, length, length)[:, 0], expected)
        if getattr(at, over).dim() == 1:
            band = view_band(at, reach, over)
            for keys, hidden, sees in zip(band.band, band.hidden, expected[0], strict=True):
                assert sorted(keys[~hidden].tolist()) == sees.nonzero()[:, 0].tolist()


@pytest.mark.parametrize("choice", SIMPLE, ids=label)
@pytest.mark.parametrize(
    ("order", "over"), [(MOST_FIRST, "index"), (LEAST_FIRST, "index"), (LEAST_FIRST, "significance")]
)
def test_a_layer_gives_the_same_in_a_band_as_in_a_window(choice, order, over, task):
    tokens, at, n_out = problems(order, 3, task)
    encoder = encoder_with(choice, operands=4).double()
    position, layer = encoder.position(0), encoder.layers[0]
    moved = position.moved(at)
    x = torch.randn(*tokens.shape, 8, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    for reach in range(1, 5):
        window, band = (replace(view(at, reach, over), at=moved) for view in (view_window, view_band))
        expected = layer(x, layer.project(x, window.queries), window, position, 1.0)
        banded = layer(x, layer.project(x, band.queries), band, position, 1.0)
        torch.testing.assert_close(banded, expected, rtol=0, atol=1e-6)
        few = layer(x, layer.project(x, n_out), band.of_first(n_out), position, 1.0)
        torch.testing.assert_close(few, expected[:, :n_out], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("choice", "sentence"),
    [
        ({"kind": "rope"}, "rope turns pairs of dimensions, and a head has 3"),
        ({"kind": "t5-bias", "longest": 8}, "a T5 bias of 32 buckets needs a longest above 8"),
        ({"kind": "t5-bias", "buckets": 7}, "buckets of the position embedding 't5-bias' is 7"),
        ({"kind": "fire", "threshold": 0}, "threshold of the position embedding 'fire' is 0"),
        ({"kind": "coupled", "offset": -1}, "offset of the position embedding 'coupled' is -1"),
        ({"kind": "alibi", "coordinate": "place"}, "coordinate of the position embedding 'alibi' is 'place'"),
        ({"kind": "randomised", "reach": 1}, "reach of the position embedding 'randomised' is 1"),
        ({"kind": "randomised", "inner": "relativ-key"}, "did you mean 'relative-key'?"),
        ({"kind": "randomised", "inner": {"kind": "rope"}}, "a head has 3"),
        ({"kind": "randomised", "inner": "randomised"}, "around another embedding, not around themselves"),
        ({"kind": "randomised", "inner": {"kind": "rope", "bass": 3}}, "'rope' has no option 'bass': did you mean"),
    ],
    ids=label,
)
def test_bad_options_are_told_in_a_sentence(choice, sentence):
    shape = Shape(width=6, input_width=6, heads=2, max_length=9, operands=2, scale_relative=False)
    with pytest.raises(UsageError) as caught:
        POSITIONS[choice["kind"]](POSITIONS.parse(choice), shape)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
