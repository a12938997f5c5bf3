"""Rewriting: rounds that see written symbols only, and the neighbourhoods that make them quick."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders import Problems, encoder_of, problems

import lengthwise
from lengthwise.arithmetic.digits import Numbers, add, multiply, random_numbers
from lengthwise.base import UsageError
from lengthwise.frontier import rule
from lengthwise.frontier.records import (
    DECIMAL_GRID,
    GRID,
    LONG_MULTIPLICATION,
    RUNNING_SUMS,
    SUM,
)
from lengthwise.frontier.rule import check_rule
from lengthwise.model import Encoder, neighbourhoods
from lengthwise.model.rewrite import Rewrite
from lengthwise.solver import Solver
from lengthwise.training import keys
from lengthwise.training.loop import batches, initial_solver

POSITION = {
    "kind": "relative-bias",
    "coordinate": "significance",
    "clip": 1,
    "by_operands": True,
}
SEQUENCES = ["rows", "running-sums", "grid", "sum-from-units", "three", "product-from-units"]


def rewriter(layers_per_round: int = 2, **fields: Any) -> Encoder:
    depth = {"kind": "rewrite", "layers_per_round": layers_per_round}
    return encoder_of(attention="columns", depth=depth, position=POSITION, **fields)


@torch.no_grad()
def whole_rounds(encoder: Encoder, given: Problems, rounds: int) -> torch.Tensor:
    """The same rounds over the whole sequence, as in training."""
    try:
        return encoder.train()(*given, rounds)
    finally:
        encoder.eval()


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("few", [0, 10**6])
def test_neighbourhoods_give_what_whole_rounds_give(
    name: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each round, and when no symbol changes; token by token, and as arrays."""
    monkeypatch.setattr(neighbourhoods, "FEW", few)
    given, encoder = problems(name, count=6, digits=5), rewriter()
    for rounds in (1, 2, 3, 5):
        torch.testing.assert_close(encoder(*given, rounds), whole_rounds(encoder, given, rounds))
    final = whole_rounds(encoder, given, given.length)
    torch.testing.assert_close(encoder(*given), final)
    changed = whole_rounds(encoder, given, 1).argmax(-1) != final.argmax(-1)
    assert changed.any(), "else rounds would not matter"


def test_digits_from_the_left_take_whole_rounds() -> None:
    """Where the coordinates differ from problem to problem."""
    given, encoder = problems("sum"), rewriter()
    assert given.coordinates.significance.dim() == 2
    torch.testing.assert_close(encoder(*given), whole_rounds(encoder, given, given.length))


def test_each_neighbourhood_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbourhoods, "FEW", 0)
    encoder, asked = rewriter(1), list[int]()
    ask_about = neighbourhoods.Neighbourhoods.ask_about

    def count(found: neighbourhoods.Neighbourhoods, keys: neighbourhoods.Ints) -> torch.Tensor:
        asked.append(len(keys))
        return ask_about(found, keys)

    monkeypatch.setattr(neighbourhoods.Neighbourhoods, "ask_about", count)  # hooks see whole rounds
    given = problems("sum-from-units", count=1, digits=4)
    encoder(*given)
    once, copies = sum(asked), given.tokens.expand(50, -1)
    asked.clear()
    encoder(copies, given.coordinates, given.n_out)
    assert sum(asked) == once


@pytest.mark.parametrize("name", ["rows", "running-sums", "sum-from-units"])
def test_a_round_sees_two_columns_and_no_higher_one(name: str) -> None:
    """In the first round, a token is seen from its own column and the next higher one only.

    In rows, the next digit of the first operand is seen from the row above, too.
    """
    given, encoder = problems(name, count=1, digits=5), rewriter()
    at, before = given.coordinates, whole_rounds(encoder, given, 1)
    for token in range(given.length):
        other = given.tokens.clone()
        other[0, token] = (other[0, token] + 1) % 10
        after = whole_rounds(encoder, given._replace(tokens=other), 1)
        for read in torch.nonzero((before != after).any(-1)[0])[:, 0].tolist():
            distance = int(at.significance[read] - at.significance[token])
            rows = int(at.row[read] - at.row[token])
            assert distance in (0, 1) or bool(at.shared[token])
            assert rows in (0, 1)


def test_a_training_step_has_gradients_of_its_last_round() -> None:
    given, encoder = problems("rows"), rewriter().train()
    calls: list[bool] = []
    encoder.layers[0].register_forward_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    encoder(*given, 3).sum().backward()
    assert calls == [False] * 4 + [True] * 2


@pytest.mark.parametrize("setting", [SUM, LONG_MULTIPLICATION])
def test_teacher_forcing_is_the_last_round_of_a_right_answer(setting: dict[str, Any]) -> None:
    """With the targets as what the model wrote, a round gives the same logits."""
    experiment = keys.load(None, {**setting, "model.width": 8})
    solver = initial_solver(experiment).train()
    batch, _ = next(batches(experiment, solver, 0))
    logits = solver(batch)
    assert logits.requires_grad
    encoder, depth = solver.encoder, solver.encoder.depth
    assert isinstance(depth, Rewrite)
    start = encoder.embed(batch.tokens, batch.coordinates)
    found = depth.neighbourhoods(encoder, start, batch.coordinates, batch.n_out)
    state = np.zeros(found.static.shape, np.int64)
    state[:, : batch.n_out] = batch.targets.numpy()
    for query in range(batch.n_out):
        tokens = np.arange(len(state)) * len(found.queries) + query
        expected = found.logits_of(found.make_keys(state.ravel(), tokens))
        torch.testing.assert_close(logits[:, query], expected)


@pytest.mark.parametrize("name", SEQUENCES)
def test_levels_are_above_those_of_all_that_is_seen(name: str) -> None:
    given, encoder = problems(name, count=2, digits=6), rewriter()
    depth = encoder.depth
    assert isinstance(depth, Rewrite)
    start = encoder.embed(given.tokens, given.coordinates)
    found = depth.neighbourhoods(encoder, start, given.coordinates, given.n_out)
    levels = found.levels()
    seen = found.sources >= 0
    assert seen.any()
    assert (levels[found.sources] < levels[:, None])[seen].all()


@pytest.fixture(scope="module")
def adder(trained_adder: Path) -> Solver:
    return lengthwise.load(trained_adder)


def test_a_trained_model_is_right_in_every_neighbourhood(adder: Solver) -> None:
    found = check_rule(adder)
    assert found["wrong"] == 0
    assert found["least margin"] > 0
    assert found["neighbourhoods"] > 20_000


def test_carries_go_through_a_hundred_thousand_columns(adder: Solver) -> None:
    nines = "9" * 100_000
    first = Numbers.from_text([nines])
    layout = adder.layout.fit((first, first))
    for second, answer in (("1", "1" + "0" * 100_000), (nines, "1" + nines[1:] + "8")):
        operands = first, Numbers.from_text([second])
        with adder.testing():
            symbols = adder.answer_logits(operands, layout).argmax(-1).numpy()
        assert layout.decode_answer(symbols)[0].to_text() == [answer]


def neighbourhoods_of(solver: Solver, batches: Iterable[rule.Covering]) -> set[bytes]:
    depth = solver.encoder.depth
    assert isinstance(depth, Rewrite)
    return {key for batch in batches for key, _ in rule.ask_batch(solver, depth, batch)}


def test_the_rule_covers_every_neighbourhood_of_long_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in random sums is new, with few digits or many; an untrained model fails."""
    solver = initial_solver(keys.load(None, {**SUM, "model.width": 8}))
    with solver.testing():
        covered = neighbourhoods_of(solver, rule.covering_sum_batches(solver.layout))
        rng = np.random.default_rng(0)
        for digits in (3, 12, 40):
            lengths = rng.integers(1, digits + 1, (2, 300))
            numbers = tuple(random_numbers(rng, own) for own in lengths)
            nines = Numbers.of(np.where(numbers[1].digits > 4, 9, 0))  # many are 0
            for second in (numbers[1], nines):
                operands = numbers[0], second
                layout = solver.layout.fit(operands)
                symbols = layout.encode_targets(operands, add(*operands))
                batch = rule.Covering(layout, operands, symbols)
                assert neighbourhoods_of(solver, [batch]) <= covered
    monkeypatch.setattr(rule, "covering_numbers", lambda lowest: ["12", f"1{lowest}"])
    assert check_rule(solver)["wrong"] > 0


def test_the_rule_covers_every_neighbourhood_of_running_sums() -> None:
    """Two operands show all that any number of them can; what is behind the rows is left out."""
    solver = initial_solver(keys.load(None, {**RUNNING_SUMS, "model.width": 8}))
    two = solver.with_operands(2)
    with solver.testing():
        covered = neighbourhoods_of(two, rule.covering_sum_batches(two.layout))
        rng = np.random.default_rng(0)
        for count, digits in ((2, 7), (3, 3), (12, 2), (12, 9), (60, 4)):
            for zeros in (0.0, 0.7):
                drawn = [random_numbers(rng, rng.integers(1, digits + 1, 40)) for _ in range(count)]
                kept = [rng.random(numbers.digits.shape) >= zeros for numbers in drawn]
                pairs = zip(drawn, kept, strict=True)
                operands: Any = tuple(Numbers.of(numbers.digits * keep) for numbers, keep in pairs)
                many = solver.with_operands(count)
                layout = many.layout.fit(operands)
                symbols = layout.encode_targets(operands, add(*operands))
                inside = np.flatnonzero(layout.coordinates(operands).significance < layout.n_out)
                batch = rule.Covering(layout, operands, symbols, inside)
                assert neighbourhoods_of(many, [batch]) <= covered


def test_columns_are_over_powers_of_ten() -> None:
    """A neighbourhood has no index, so a bias over it would not be the one of training."""
    with pytest.raises(UsageError, match=r"needs model\.position\.coordinate significance"):
        keys.load(None, {**SUM, "model.position.coordinate": "index"})


def test_the_rule_is_for_digits_from_the_right_and_two_columns_of_two_operands() -> None:
    order = {**SUM, "layout.order": "most-significant-first"}
    three = {**SUM, "task": {"kind": "addition", "operands": 3}}
    no_rows = {**SUM, "task": "multiplication"}
    for setting in (order, three, no_rows):
        with pytest.raises(UsageError, match="the rule can be checked with the depth 'rewrite'"):
            check_rule(initial_solver(keys.load(None, setting)))


def test_the_rule_covers_every_neighbourhood_of_products() -> None:
    setting = {**LONG_MULTIPLICATION, "model.width": 8}
    solver = initial_solver(keys.load(None, setting)).with_second_digits("same")
    with solver.testing():
        covered = neighbourhoods_of(solver, rule.covering_product_batches(solver.layout))
        rng = np.random.default_rng(0)
        for digits in (2, 6, 12):
            for zeros in (0.0, 0.5):
                lengths = rng.integers(1, digits + 1, (2, 60))
                drawn = [random_numbers(rng, own) for own in lengths]
                kept = [rng.random(numbers.digits.shape) >= zeros for numbers in drawn]
                pairs = zip(drawn, kept, strict=True)
                operands = tuple(Numbers.of(numbers.digits * keep) for numbers, keep in pairs)
                layout = solver.layout.fit(operands)
                symbols = layout.encode_targets(operands, multiply(*operands))
                batch = rule.Covering(layout, (operands[0], operands[1]), symbols)
                assert neighbourhoods_of(solver, [batch]) <= covered


def test_the_rule_covers_every_neighbourhood_of_binary_grids() -> None:
    """Nothing in longer products is new, and an untrained model fails."""
    solver = initial_solver(keys.load(None, {**GRID, "model.width": 8}))
    with solver.testing():
        covered = neighbourhoods_of(solver, rule.covering_grids(solver.layout))
        rng = np.random.default_rng(0)
        for bits in (2, 9, 30):
            lengths = rng.integers(1, bits + 1, (2, 30))
            operands: Any = solver.task.admit(*(random_numbers(rng, own) for own in lengths))
            for padding in (0, 2):
                layout = solver.layout.fit(operands, padding)
                symbols = layout.encode_targets(operands, solver.task.answer(*operands))
                batch = rule.Covering(layout, operands, symbols)
                assert neighbourhoods_of(solver, [batch]) <= covered
    found = check_rule(solver)
    assert found["neighbourhoods"] == len(covered)
    assert found["wrong"] > 0


def test_the_rule_lists_every_neighbourhood_of_decimal_grids_and_no_other() -> None:
    """Nothing in random products is new; what the rule writes into rows of sums occurs in them."""
    solver = initial_solver(keys.load(None, {**DECIMAL_GRID, "model.width": 8}))
    solver = solver.with_second_digits("same")

    def random_problems() -> Iterator[rule.Covering]:
        rng = np.random.default_rng(0)
        for digits, count in ((2, 3000), (3, 6000), (9, 600), (150, 24)):
            for zeros, padding in ((0.0, 0), (0.0, 2), (0.5, 2)):
                if digits == 150 and padding:
                    continue  # long problems show all sums; they take seconds
                lengths = rng.integers(1, digits + 1, (2, count))
                lengths[:, ::2] = digits
                drawn = [random_numbers(rng, own) for own in lengths]
                kept = [rng.random(numbers.digits.shape) >= zeros for numbers in drawn]
                pairs = zip(drawn, kept, strict=True)
                operands: Any = tuple(Numbers.of(numbers.digits * keep) for numbers, keep in pairs)
                layout = solver.layout.fit(operands, padding)
                symbols = layout.encode_targets(operands, multiply(*operands))
                yield rule.Covering(layout, operands, symbols)

    with solver.testing():
        products = neighbourhoods_of(solver, rule.covering_grid_products(solver.layout))
        sums = neighbourhoods_of(solver, rule.covering_grid_sums(solver.layout))
        shown = neighbourhoods_of(solver, random_problems())
    assert shown <= products | sums
    assert sums <= products | shown
    # Products: 110 lowest cells, 4700 inner ones, 434 above the first operand, 27 above these. The
    # first sum: 10, 100 and 9. Other sums: 1000 lowest cells, 20,000 inner ones, 36 operators.
    assert len(products | sums) == 5271 + 119 + 21_036
    assert rule.can_check_rule(solver)
