"""Every registered position embedding keeps the contract; ours equal the papers' formulas."""

import cmath
from dataclasses import replace
from itertools import pairwise as neighbours
from typing import Any, Literal, get_args, get_origin

import naive
import numpy as np
import pytest
import torch
from conftest import label
from encoders import PROBLEMS, Problems, encoder_of, problems
from torch import Tensor

from lengthwise.base import UsageError
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import POSITIONS, ModelShape, Position, Randomised
from lengthwise.problems.layouts import VOCABULARY, Coordinates

NAMES = list(PROBLEMS)
ADDED = ["absolute", "coupled", "abacus"]  # to the input
MORE: list[dict[str, Any]] = [
    {"kind": "relative-key", "coordinate": "significance"},
    {"kind": "relative-key", "clip": 3},
    {"kind": "relative-key", "by_operands": True},
    {"kind": "t5-bias", "buckets": 8, "longest": 6},
    {"kind": "alibi", "signed": True},
    {"kind": "fire", "threshold": 1},
    {"kind": "rope", "base": 3.0},
    # Inner embeddings that are added to the input, add to scores, and rotate.
    *({"kind": "randomised", "inner": inner} for inner in ("absolute", "relative-key", "rope")),
]


def variants(kind: str) -> list[dict[str, Any]]:
    """An embedding with its defaults, and with all of its options changed."""
    changed: dict[str, Any] = {}
    for option, field in POSITIONS.options_of(POSITIONS[kind]).model_fields.items():
        values: tuple[Any, ...] = ()
        if get_origin(field.annotation) is Literal:
            values = get_args(field.annotation)
        elif field.annotation is bool:
            values = (False, True)
        elif int in (field.annotation, *get_args(field.annotation)) and not field.default:
            values = (3,)
        elif option == "inner":
            values = ("alibi",)
        changed.update((option, value) for value in values if value != field.default)
    return [{"kind": kind}, *([{"kind": kind, **changed}] if changed else [])]


CHOICES = [*(choice for kind in POSITIONS for choice in variants(kind)), *MORE]
KINDS = [{"kind": kind} for kind in POSITIONS]
# Each choice with one kind of problem and encoder, so that all kinds take their turns.
CASES = [
    (choice, NAMES[number % len(NAMES)], ("transformer", "universal-transformer")[number // 2 % 2])
    for number, choice in enumerate(CHOICES)
]


def position_of(choice: dict[str, Any], max_length: int = 32, heads: int = 2) -> Position:
    """An embedding alone, for heads of width 4, with random parameters."""
    shape = ModelShape(4 * heads, 8, heads, max_length, operands=4, scale_relative=False)
    position = POSITIONS.build(POSITIONS.parse(choice), shape)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in position.parameters():
            parameter.normal_(generator=rng)
    return position.eval()


def coordinates_of(index: Tensor, significance: Tensor | None = None) -> Coordinates[Tensor]:
    """Coordinates of one row of digits."""
    powers = index if significance is None else significance
    return Coordinates(index, powers, index + 1, index * 0, index < 0, index * 0)


@pytest.mark.parametrize("choice", KINDS, ids=label)
def test_an_encoder_with_it(choice: dict[str, Any]) -> None:
    """Logits don't depend on the batch, on how many positions are read, or on random numbers."""
    for name in ("sum", "rows"):
        encoder = encoder_of(position=choice)
        given = problems(name)
        before = torch.get_rng_state()
        logits = encoder(*given)
        assert logits.shape == (len(given.tokens), given.n_out, len(VOCABULARY))
        assert logits.isfinite().all()
        everywhere = encoder(given.tokens, given.coordinates, given.length)
        torch.testing.assert_close(logits, everywhere[:, : given.n_out])
        for i in (0, len(given.tokens) - 1):
            torch.testing.assert_close(logits[i : i + 1], encoder(*given.row(i)))
        if not encoder.random:
            torch.testing.assert_close(encoder.train()(*given), logits)
        assert torch.equal(torch.get_rng_state(), before)
        again = encoder_of(position=choice)  # weights come from the seed alone
        assert torch.equal(again(*given), logits)


@pytest.mark.parametrize(
    ("choice", "name", "encoder_kind"),
    [
        case
        for case in CASES
        if {case[0]["kind"], case[0].get("inner", "none")}
        <= {*naive.FORMULAS, *ADDED, "rope", "randomised", "none"}
    ],
    ids=label,
)
def test_logits_equal_naive_loops(choice: dict[str, Any], name: str, encoder_kind: str) -> None:
    """Over examples, heads, queries and keys, with the papers' formulas."""
    scaled = encoder_kind == "transformer"
    encoder = encoder_of(position=choice, encoder=encoder_kind, scale_relative=scaled).double()
    others = [other for other in NAMES if other != name]
    for each in (name, others[len(label(choice)) % len(others)]):
        given = problems(each, count=3)
        found = encoder(*given).detach().numpy()
        tolerance = 1e-6 if "rope" in label(choice) else 1e-11  # angles are single precision
        np.testing.assert_allclose(found, naive.logits(encoder, given), rtol=0, atol=tolerance)


@pytest.mark.parametrize("choice", KINDS, ids=label)
def test_gradients_reach_every_parameter(choice: dict[str, Any]) -> None:
    given = problems()
    targets = given.tokens[:, : given.n_out].flatten()
    for kind, bfloat16 in (("transformer", False), ("universal-transformer", True)):
        encoder = encoder_of(position=choice, encoder=kind, embedding_width=6).train()
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            logits = encoder(*given)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets)
        loss.backward()
        for name, parameter in encoder.positions.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("kind", POSITIONS)
def test_only_no_position_makes_the_input_a_bag_of_symbols(kind: str) -> None:
    """Otherwise, swapping two keys that are not read changes the answer."""
    encoder = encoder_of(position=kind)
    tokens, at, _ = problems()
    swapped = tokens.clone()
    swapped[:, [-2, -1]] = tokens[:, [-1, -2]]
    assert (swapped != tokens).any()
    difference = (encoder(tokens, at, 4) - encoder(swapped, at, 4)).abs().max()
    assert difference < 1e-6 if kind == "none" else difference > 1e-4


LIMITED = [{"kind": "relative-key", "clip": 3}, {"kind": "coupled", "offset": 3}]


@pytest.mark.parametrize("choice", [*KINDS, *LIMITED], ids=label)
def test_an_encoder_takes_every_length_up_to_the_longest(choice: dict[str, Any]) -> None:
    """Without a longest, it takes ten times what it was made for; beyond one is an error."""
    made_for = 9
    encoder = encoder_of(made_for, position=choice)
    longest = encoder.position(0).longest
    assert longest is None or longest >= made_for
    most = (min(10 * made_for, longest or 10 * made_for) - 1) // 2
    for digits in {4, most}:
        for name in ("sum", "sum-from-units"):
            assert encoder(*problems(name, digits=digits)).isfinite().all()
    if longest is not None:
        index = torch.arange(longest + 1)
        expected = f"has {longest + 1} tokens, .* takes {longest};"
        with pytest.raises(UsageError, match=expected) as caught:
            encoder(index[None] % 10, coordinates_of(index), 3)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("choice", [c for c in KINDS if c["kind"] != "randomised"], ids=label)
def test_a_shift_of_all_positions_changes_only_what_is_added_to_the_input(
    choice: dict[str, Any],
) -> None:
    """Scores and rotations know distances only."""
    position = position_of(choice)
    tokens, at, _ = problems()
    shifted = replace(
        at,
        index=at.index + 3,
        significance=at.significance + 3,
        place=torch.where(at.place > 0, at.place + 3, 0),
    )
    rng = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, len(tokens), 2, tokens.shape[1], 4, generator=rng)
    scores = []
    for coordinates in (at, shifted):
        pairs = Pairs(coordinates, tokens.shape[1])
        turned, keys = position.rotate(q, k, pairs)
        relative = position.scores(turned, keys, pairs)
        content = turned @ keys.mT
        scores.append(content if relative is None else content + relative)
    torch.testing.assert_close(*scores, rtol=0, atol=1e-5)
    x = torch.zeros(*tokens.shape, 8)
    same = torch.equal(position.embed(x, at), position.embed(x, shifted))
    assert same is (type(position).embed is Position.embed)


SILENT = [c for c in KINDS if POSITIONS[c["kind"]].scores is Position.scores]


def test_what_has_no_scores_is_not_content_free() -> None:
    for choice in SILENT:
        assert not position_of(choice).content_free, choice


@pytest.mark.parametrize(
    "choice",
    [*(c for c in KINDS if c not in SILENT), {"kind": "randomised", "inner": "alibi"}],
    ids=label,
)
def test_content_free_scores_ignore_queries_and_keys(choice: dict[str, Any]) -> None:
    position = position_of(choice)
    tokens, at, _ = problems()
    pairs = Pairs(position.resample_coordinates(at), tokens.shape[1])
    rng = torch.Generator().manual_seed(0)
    shape = 2, len(tokens), 2, tokens.shape[1], 4  # queries and keys
    contents = [torch.randn(shape, generator=rng) for _ in range(2)]
    first, second = (position.scores(q, k, pairs) for q, k in contents)
    if first is None or second is None:  # around or of a kind without scores
        assert first is second
        assert not position.content_free
    elif position.content_free:
        assert torch.equal(first, second)
        nothing = torch.empty(0)  # as positional attention calls it
        alone = position.scores(nothing, nothing, pairs)
        assert alone is not None
        assert torch.equal(alone, first)
    else:
        assert not torch.equal(first, second)


def test_t5_buckets_are_those_of_its_paper() -> None:
    for buckets, longest in [(32, 128), (8, 6), (4, 2), (6, 50), (64, 1000)]:
        position: Any = position_of({"kind": "t5-bias", "buckets": buckets, "longest": longest})
        ahead = torch.arange(-2 * longest, 2 * longest + 1)
        expected = [naive.t5_bucket(n, buckets, longest) for n in ahead.tolist()]
        assert position.bucket(ahead).tolist() == expected
        assert set(expected) >= {0, buckets // 2 - 1, buckets - 1}


def test_alibi_has_the_published_slopes() -> None:
    halvings: dict[int, list[float]] = {
        1: [8],
        2: [4, 8],
        8: [1, 2, 3, 4, 5, 6, 7, 8],
        6: [2, 4, 6, 8, 1, 3],
        12: [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5],
    }
    for heads, expected in halvings.items():
        position: Any = position_of({"kind": "alibi"}, heads=heads)
        assert position.slopes().tolist() == pytest.approx([2**-n for n in expected])


def test_rope_multiplies_by_complex_numbers() -> None:
    """Each pair of dimensions p and p + d/2 turns by position·base^(−2p/d)."""
    _, at, n_out = problems()
    q, k = torch.randn(2, 4, 2, at.index.shape[0], 4, generator=torch.Generator().manual_seed(1))
    for base, coordinate in ((10000.0, "significance"), (3.0, "index")):
        position = position_of({"kind": "rope", "base": base, "coordinate": coordinate})
        where = getattr(at, coordinate).expand(4, -1).tolist()
        turned = position.rotate(q[:, :, :n_out], k, Pairs(at, n_out))
        for before, after in zip((q, k), turned, strict=True):
            for b, h, t, p in np.ndindex(4, 2, after.shape[2], 2):
                x, y = before[b, h, t].tolist(), after[b, h, t].tolist()
                turn = cmath.exp(1j * where[b][t] * base ** (-2 * p / 4))
                expected = complex(x[p], x[2 + p]) * turn
                assert complex(y[p], y[2 + p]) == pytest.approx(expected, abs=1e-5)


def test_an_unknown_symbol_is_an_error() -> None:
    for symbol in (-1, len(VOCABULARY)):
        tokens, at, n_out = problems()
        tokens[1, 2] = symbol
        with pytest.raises(IndexError):
            encoder_of()(tokens, at, n_out)


@pytest.mark.parametrize(("kind", "first_shifted"), [("coupled", 0), ("abacus", 1)])
def test_an_offset_shifts_all_positions_alike_in_training(kind: str, first_shifted: int) -> None:
    """Every offset from none to the largest is drawn. In abacus, place 0 is not shifted."""
    tokens, at, _ = problems()
    shifts = at.place >= first_shifted
    position: Any = position_of({"kind": kind, "offset": 3})

    def rows() -> Tensor:
        """The table's row that is added to each token."""
        added = position.embed(torch.zeros(*tokens.shape, 8), at)
        return (added[..., None, :] == position.table.weight).all(-1).float().argmax(-1)

    unshifted = rows()
    position.train()
    torch.manual_seed(0)
    seen = set()
    for _ in range(50):
        offset = rows() - unshifted
        assert len(offset[shifts].unique()) == 1
        assert not offset[~shifts].any()
        seen.add(int(offset[shifts][0]))
    assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["sum", "rows"])
def test_randomised_positions_are_sorted_random_ones_below_the_reach(name: str) -> None:
    at = problems(name).coordinates
    position = position_of({"kind": "randomised", "reach": 64})
    for training in (False, True):
        resampled = position.train(training).resample_coordinates(at)
        for coordinate in ("operand", "shared", "row"):
            assert torch.equal(getattr(resampled, coordinate), getattr(at, coordinate))
        # A shared operand's digits keep their places, which are seen from rows.
        shared = resampled.significance[..., at.shared]
        assert torch.equal(shared, at.significance[..., at.shared])
        for coordinate in ("index", "significance"):
            on_line = ~at.shared if coordinate == "significance" else at.index >= 0
            old, new = (
                getattr(c, coordinate)[..., on_line].flatten().tolist() for c in (at, resampled)
            )
            pairs = sorted(set(zip(old, new, strict=True)))
            assert len(pairs) == len(set(old))  # equal positions stay equal
            assert all(a < b for (_, a), (_, b) in neighbours(pairs))
            assert all(0 <= value < 64 for value in new)


def test_randomised_positions_are_always_the_same_in_testing_and_any_in_training() -> None:
    """All 20 choices of 3 out of 6 positions are drawn in training, and one in testing."""
    at = coordinates_of(torch.arange(3))
    position = position_of({"kind": "randomised", "reach": 6})
    for training, choices in [(False, 1), (True, 20)]:
        torch.manual_seed(0)
        position.train(training)
        drawn = {tuple(position.resample_coordinates(at).index.tolist()) for _ in range(200)}
        assert len(drawn) == choices
    position = position_of({"kind": "randomised"})
    assert isinstance(position, Randomised)
    index = torch.arange(position.longest)
    resampled = position.resample_coordinates(coordinates_of(index, index - 500))
    assert len(resampled.index.unique()) == len(resampled.significance.unique()) == len(index)


@pytest.mark.parametrize("inner", [kind for kind in POSITIONS if kind != "randomised"])
def test_randomised_positions_change_whatever_embedding_is_inside(inner: str) -> None:
    """In training, logits differ from draw to draw, unless the embedding knows no positions."""
    given = problems("sum-from-units")
    encoder = encoder_of(position={"kind": "randomised", "inner": inner, "reach": 24}).train()
    torch.manual_seed(0)
    draws = torch.stack([encoder(*given) for _ in range(8)])
    if inner == "none":
        torch.testing.assert_close(draws, encoder_of(position=inner)(*given).expand_as(draws))
    else:
        assert (draws - draws[0]).abs().max() > 1e-3


@pytest.mark.parametrize(("over", "name"), [("index", "sum-from-units"), ("significance", "sum")])
def test_a_window_is_over_true_positions_under_randomised_ones(over: str, name: str) -> None:
    given: Problems = problems(name)
    attention = {"kind": "local", "window": 2, "over": over}
    expected = encoder_of(position="none", attention=attention)(*given)
    around = {"kind": "randomised", "inner": "none"}
    randomised = encoder_of(position=around, attention=attention)
    torch.testing.assert_close(randomised(*given), expected)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"kind": "rope"}, "rope rotates pairs of dimensions, but a head has 3"),
    ({"kind": "t5-bias", "longest": 8}, "a T5 bias with 32 buckets needs a longest above 8"),
    ({"kind": "t5-bias", "buckets": 7}, "buckets of the position embedding 't5-bias' is 7"),
    ({"kind": "fire", "threshold": 0}, "threshold of the position embedding 'fire' is 0"),
    ({"kind": "coupled", "offset": -1}, "offset of the position embedding 'coupled' is -1"),
    ({"kind": "alibi", "coordinate": "place"}, "coordinate of the position embedding 'alibi'"),
    ({"kind": "randomised", "reach": 1}, "reach of the position embedding 'randomised' is 1"),
    ({"kind": "randomised", "inner": "relativ-key"}, "did you mean 'relative-key'?"),
    ({"kind": "randomised", "inner": {"kind": "rope"}}, "a head has 3"),
    ({"kind": "randomised", "inner": "randomised"}, "go around another embedding"),
    ({"kind": "randomised", "inner": {"kind": "rope", "bass": 3}}, "did you mean 'base'?"),
]


def test_bad_options_are_explained_in_a_sentence() -> None:
    shape = ModelShape(6, 6, heads=2, max_length=9, operands=2, scale_relative=False)
    for choice, sentence in BAD:
        with pytest.raises(UsageError) as caught:
            POSITIONS.build(POSITIONS.parse(choice), shape)
        assert sentence in str(caught.value)
        assert "\n" not in str(caught.value)
