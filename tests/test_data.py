"""Which problems are trained on and tested on."""

from collections import Counter
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lengthwise.data import (
    BLOCK,
    DataConfig,
    Examples,
    TrainingSet,
    all_lengths,
    curriculum,
    draw,
    evaluation_set,
    even_lengths,
    generator,
    one_length,
    parse_lengths,
    parse_priming,
    spread,
)
from lengthwise.digits import carries, concatenate, longest_run, significant_digits
from lengthwise.errors import UsageError, explain
from lengthwise.layout import Layout
from lengthwise.tasks import Addition, Multiplication

SAMPLINGS = ["uniform-length", "problem-length", "uniform-integer", "exact"]


def rows(examples: Examples) -> list[tuple[str, ...]]:
    """The operands of each example."""
    return list(zip(*(numbers.to_text() for numbers in examples.operands), strict=True))


def training_set(task=None, seed=0, **fields) -> TrainingSet:
    return TrainingSet(task or Addition(), DataConfig(**{"train_size": 100, **fields}), seed)


def test_generators_have_a_stream_for_each_purpose():
    purposes = [(0, "batch", 1), (0, "batch", 2), (0, "primed batch", 1), (1, "batch", 1)]
    draws = [tuple(generator(*purpose).integers(0, 10, 20)) for purpose in purposes]
    assert len(set(draws)) == len(draws)
    assert tuple(generator(*purposes[0]).integers(0, 10, 20)) == draws[0]


def test_batches_are_functions_of_seed_and_step(task):
    fields = {"task": task, "priming": "10=30"}
    first = training_set(**fields)
    for step in range(3):
        first.batch(step, 16)
    batch = first.batch(7, 64)
    again = training_set(**fields).batch(7, 64)
    assert rows(batch) == rows(again)
    assert batch.answer.to_text() == again.answer.to_text() == task.answer(*batch.operands).to_text()
    assert rows(batch) != rows(first.batch(8, 64))
    assert rows(batch) != rows(training_set(seed=1, **fields).batch(7, 64))


def test_first_operands_are_fixed_and_second_ones_are_not():
    data = training_set(train_size=3, sampling="exact")
    drawn = [row for step in range(20) for row in rows(data.batch(step, 10))]
    assert {first for first, _ in drawn} == set(data.first.to_text())
    assert len({second for _, second in drawn}) > 190  # of 200 draws from 90,000 numbers


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("priming_second", ["online", "fixed"])
@pytest.mark.parametrize("more", [{}, {"repeats": 0.3}, {"zeros": 0.3}, {"chains": 0.3}], ids=str)
@pytest.mark.parametrize("task", [Addition(), Multiplication()], ids=lambda task: task.kind)
def test_priming_leaves_the_usual_examples_as_they_were(task, sampling, more, priming_second):
    fields = {"task": task, "sampling": sampling, **more}
    plain = training_set(**fields).batch(3, 300)
    primed = training_set(priming="7=10,9=20", priming_second=priming_second, **fields).batch(3, 300)
    usual = np.flatnonzero(~primed.primed)
    assert 0 < len(usual) < 300
    assert [rows(plain)[i] for i in usual] == [rows(primed)[i] for i in usual]


def test_primed_problems_stay_as_they_are_whatever_is_done_to_the_usual_ones():
    fields = {"priming": {9: 3}, "priming_second": "fixed", "train_size": 10, "test_digits": 9}
    for more in ({"repeats": 1.0}, {"zeros": 1.0}, {"chains": 1.0}):
        data = training_set(**fields, **more)
        plain = training_set(**fields)
        for step in range(5):
            changed, same = data.batch(step, 20), plain.batch(step, 20)
            for i in np.flatnonzero(changed.primed):
                assert rows(changed)[i] == rows(same)[i]


def test_primed_problems_are_as_many_and_as_long_as_asked(task):
    data = training_set(task, priming={8: 5, 10: 20}, test_digits=12)
    lengths = np.array([len(text) for text in data.first.to_text()])
    assert Counter(lengths[data.primed].tolist()) == {8: 5, 10: 20}
    assert lengths[~data.primed].max() <= 5
    batch = data.batch(0, 400)
    assert batch.length.tolist() == [len(row[0]) for row in rows(batch)]
    assert batch.primed.tolist() == [len(row[0]) > 5 for row in rows(batch)]
    for row, primed in zip(rows(batch), batch.primed, strict=True):
        if primed:
            assert tuple(map(len, row)) == task.operand_digits(len(row[0]))
        else:
            assert all(len(text) <= most for text, most in zip(row, task.operand_digits(5), strict=True))


def test_a_length_primed_twice_gets_new_problems():
    """6:35=500,35=50 asks for more problems of 35 digits, not for copies of those that are there."""
    data = training_set(priming="10=20,10=20")
    endings = {text[1:] for text in data.first.to_text() if len(text) == 10}
    assert len(endings) == 40


def seconds_of_primed(data: TrainingSet) -> dict[str, list[str]]:
    """For each primed first operand, the second operands that it is seen with."""
    seen: dict[str, list[str]] = {}
    for step in range(30):
        batch = data.batch(step, 20)
        for (first, second), primed in zip(rows(batch), batch.primed, strict=True):
            if primed:
                seen.setdefault(first, []).append(second)
    return seen


def test_second_operands_of_primed_problems_are_online_or_fixed():
    fields = {"train_size": 20, "priming": "10=5"}
    online = seconds_of_primed(training_set(**fields))
    fixed = seconds_of_primed(training_set(priming_second="fixed", **fields))
    assert online.keys() == fixed.keys()
    assert len(online) == 5
    drawn = list(chain.from_iterable(online.values()))
    assert len(drawn) > 100
    assert len(set(drawn)) == len(drawn)  # of 9 billion numbers, none comes twice
    assert all(len(set(seconds)) == 1 for seconds in fixed.values())
    assert len(set(chain.from_iterable(fixed.values()))) == 5


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_samplings(sampling, operand):
    data = training_set(train_size=10_000, sampling=sampling)
    numbers = data.first if operand == 0 else data.batch(0, 10_000).operands[1]
    counts = Counter(map(len, numbers.to_text()))
    expected = {
        "uniform-length": dict.fromkeys(range(1, 6), 2000),
        "problem-length": dict.fromkeys(range(1, 6), 2000),
        "uniform-integer": {n: 9 * 10 ** (n - 1) / 10 for n in range(1, 6)},
        "exact": {5: 10_000},
    }[sampling]
    assert set(counts) <= set(expected)
    assert all(abs(counts[n] - share) <= 5 * share**0.5 for n, share in expected.items())


def test_problem_length_is_one_length_for_the_whole_problem():
    """And uniform-length isn't: its operands' lengths are independent."""
    for sampling, same in {"problem-length": 1.0, "uniform-length": 0.2}.items():
        first, second = training_set(train_size=10_000, sampling=sampling).batch(0, 10_000).operands
        assert abs((first.lengths == second.lengths).mean() - same) < 0.03
        (block,) = evaluation_set(Addition(), 5, 250, seed=0, sampling=sampling)
        assert set(block.operands[0].lengths) == {1, 2, 3, 4, 5}
        assert (block.operands[0].lengths == block.operands[1].lengths).all() == (same == 1.0)
    task = Multiplication(second_digits=3)
    _, second = TrainingSet(task, DataConfig(sampling="problem-length"), 0).batch(0, 500).operands
    assert set(second.lengths) == {3}


def test_draw_keeps_each_entrys_own_bound():
    for sampling in SAMPLINGS:
        numbers = draw(np.random.default_rng(0), sampling, np.tile([1, 30], 200))
        lengths = np.array([len(text) for text in numbers.to_text()])
        assert set(lengths[::2]) == {1}
        assert 1 <= lengths[1::2].min() <= lengths[1::2].max() == 30


@pytest.mark.parametrize("task", [Addition(), Multiplication()], ids=["addition", "multiplication"])
def test_large_batches(task):
    data = TrainingSet(task, DataConfig(train_digits=35, test_digits=35, train_size=100_000, sampling="exact"), seed=0)
    batch = data.batch(0, 100_000)
    a, b = (numbers[:2000].to_ints() for numbers in batch.operands)
    expected = [x + y if task.symbol == "+" else x * y for x, y in zip(a, b, strict=True)]
    assert batch.answer[:2000].to_ints() == expected
    assert set(batch.operands[0].lengths) == {35}


def test_builders():
    assert one_length(35, 50) == ((35, 50),)
    assert curriculum([34, 35], 50) == ((34, 25), (35, 25))
    assert [n for n, _ in all_lengths(6, 35, 500)] == list(range(6, 36))
    assert [n for n, _ in even_lengths(6, 35, 500)] == list(range(6, 36, 2))
    counts = [count for _, count in all_lengths(6, 35, 500)]
    assert sum(counts) == sum(count for _, count in even_lengths(6, 35, 500)) == 500
    assert counts == sorted(counts)  # more of the longer ones
    assert all_lengths(6, 7, 10, weights=[4, 1]) == ((6, 8), (7, 2))


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=30, unique=True),
    st.integers(0, 2000),
    st.data(),
)
def test_spread_gives_each_length_its_share(lengths, count, data):
    weights = data.draw(
        st.none() | st.lists(st.integers(1, 1000), min_size=len(lengths), max_size=len(lengths)), label="weights"
    )
    priming = dict(spread(lengths, count, weights))
    assert sum(priming.values()) == count
    for length, weight in zip(lengths, weights or lengths, strict=True):
        share = Fraction(weight * count, sum(weights or lengths))
        assert abs(priming.get(length, 0) - share) < 1 + Fraction(1, 10**6)


@pytest.mark.parametrize(
    ("text", "lengths"), [("5", [5]), ("5:7", [5, 6, 7]), ("5,10:35:10", [5, 10, 20, 30]), ([3, 4], [3, 4]), (7, [7])]
)
def test_lengths_are_parsed(text, lengths):
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize("text", ["", "five", "5:", "5:10:0", "5:6:7:8", "5,,6", "5-10", "10:5", "5:10:-1", 3.5])
def test_what_is_no_list_of_lengths_is_told_in_a_sentence(text):
    with pytest.raises(UsageError, match="no list of lengths"):
        parse_lengths(text)


@pytest.mark.parametrize(
    ("value", "priming"),
    [
        (None, ()),
        ("", ()),
        ({35: 50}, ((35, 50),)),
        ([[34, 25], [35, 25]], ((34, 25), (35, 25))),
        ("34=25,35=25", ((34, 25), (35, 25))),
        ("10:12=33", ((10, 10), (11, 11), (12, 12))),
        ("35=0", ()),
    ],
)
def test_priming_is_parsed(value, priming):
    assert DataConfig(test_digits=35, priming=value).priming == priming


@pytest.mark.parametrize("text", ["35", "35=", "=50", "35=many", "35=-5", "35:50", "a=5", "35:6=500", "35=²"])
def test_what_is_no_priming_is_told_in_a_sentence(text):
    with pytest.raises(UsageError, match=r"is no (priming|list of lengths) such as"):
        parse_priming(text)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"train_digits": 11}, "train_digits is 11, more than data.test_digits, which is 10"),
        ({"priming": "11=5"}, "11 digits, but lengths go from 1 to data.test_digits, which is 10"),
        ({"priming": {10: -1}}, "-1 problems of 10 digits"),
        ({"priming": {0: 1}}, "1 problems of 0 digits"),
        ({"priming": "10=5000"}, "takes 5000 of the 5000 training problems"),
        ({"priming": "ten=5"}, "'ten' is no list of lengths"),
        ({"sampling": "uniform"}, "uniform-length"),
        ({"train_size": 0}, "train_size is 0"),
        ({"trian_size": 10}, "trian_size"),
    ],
)
def test_bad_configurations_are_told_in_a_sentence(fields, sentence):
    with pytest.raises(ValidationError) as caught:
        DataConfig(**fields)
    assert sentence in explain(caught.value)
    assert "\n" not in explain(caught.value)


def test_evaluation_problems_have_exactly_the_length_and_count_asked_for(task):
    blocks = list(evaluation_set(task, 8, BLOCK + 10, seed=0))
    assert [len(block) for block in blocks] == [BLOCK, 10]
    for block in blocks:
        assert {tuple(map(len, row)) for row in rows(block)} == {task.operand_digits(8)}
        assert block.answer.to_text() == task.answer(*block.operands).to_text()
        assert set(block.length) == {8}
        assert not block.primed.any()


def problems(count: int = 40, length: int = 8, **fields) -> list[tuple[str, ...]]:
    return [row for block in evaluation_set(Addition(), length, count, **{"seed": 0, **fields}) for row in rows(block)]


def test_evaluation_sets_are_fresh_for_each_occasion_and_seed():
    sets = [problems(), problems(occasion=500), problems(occasion=1000), problems(seed=1)]
    assert problems() == sets[0]
    assert len({row for rows in sets for row in rows}) == 160


def test_evaluation_sets_have_no_repeated_blocks():
    assert len(set(problems(3 * BLOCK))) == 3 * BLOCK


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_larger_evaluation_sets_begin_with_the_smaller_ones(sampling):
    many = problems(2 * BLOCK + 7, sampling=sampling)
    assert len(many) == 2 * BLOCK + 7
    for count in (1, 40, BLOCK, BLOCK + 1):
        assert problems(count, sampling=sampling) == many[:count]


def test_evaluation_can_draw_as_training_does():
    blocks = evaluation_set(Addition(), 5, 2000, seed=0, sampling="uniform-length")
    lengths = Counter(concatenate([block.operands[0] for block in blocks]).lengths.tolist())
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert all(300 < count < 500 for count in lengths.values())


def test_test_problems_are_not_those_of_training():
    data = training_set(train_digits=10, sampling="exact", train_size=1000)
    assert not set(data.first.to_text()) & {first for first, _ in problems(1000, length=10)}


def test_repeats_are_problems_of_few_digits():
    task, config = Multiplication(), {"sampling": "uniform-length", "priming": {10: 50}}
    usual, repeating = (TrainingSet(task, DataConfig(**config, repeats=share), seed=1) for share in (0.0, 1.0))
    plain, batch = usual.batch(0, 2000), repeating.batch(0, 2000)
    assert batch.primed.any()
    for before, numbers in zip(plain.operands, batch.operands, strict=True):
        assert (numbers.lengths == before.lengths).all()
        assert (numbers.lengths == significant_digits(numbers.digits)).all()
        texts = np.array(numbers.to_text())
        assert all(len(set(text)) <= 2 for text in texts[~batch.primed])
        assert (texts[batch.primed] == np.array(before.to_text())[batch.primed]).all()
    x, y, product = (numbers.to_ints() for numbers in (*batch.operands, batch.answer))
    assert product == [a * b for a, b in zip(x, y, strict=True)]


def test_zeros_are_problems_with_half_of_the_digits_zero():
    task, config = Multiplication(), {"sampling": "uniform-length", "priming": {10: 50}}
    usual, zeroed = (TrainingSet(task, DataConfig(**config, zeros=share), seed=1) for share in (0.0, 1.0))
    plain, batch = usual.batch(0, 2000), zeroed.batch(0, 2000)
    assert batch.primed.any()
    for before, numbers in zip(plain.operands, batch.operands, strict=True):
        texts, were = np.array(numbers.to_text()), np.array(before.to_text())
        assert (texts[batch.primed] == were[batch.primed]).all()
        kept, digits = 0, 0
        assert 0.4 < np.mean(texts[np.char.str_len(were) == 1] == "0") < 0.6
        for text, was in zip(texts[~batch.primed], were[~batch.primed], strict=True):
            assert text[0] == was[0] or text == "0"
            assert all(now in (old, "0") for now, old in zip(text, was, strict=True))
            kept += sum(now == old != "0" for now, old in zip(text[1:], was[1:], strict=True))
            digits += sum(old != "0" for old in was[1:])
        assert 0.4 < kept / digits < 0.6
    x, y, product = (numbers.to_ints() for numbers in (*batch.operands, batch.answer))
    assert product == [a * b for a, b in zip(x, y, strict=True)]


def test_fewer_operands_in_training_than_the_task_has():
    task, config = Addition(operands=4), {"train_operands": 3, "priming": {9: 500}, "train_digits": 5}
    batch = TrainingSet(task, DataConfig(**config), seed=1).batch(0, 2000)
    many = sum((numbers.lengths > 0).astype(int) for numbers in batch.operands)
    assert set(many[~batch.primed]) == {2, 3}
    assert set(many[batch.primed]) == {4}
    for i, numbers in enumerate(batch.operands):
        assert ((numbers.lengths > 0) == (many > i)).all()
    assert batch.answer.to_ints() == [sum(row) for row in zip(*(n.to_ints() for n in batch.operands), strict=True)]
    (block,) = evaluation_set(task, 5, 20, seed=0, operands=2)
    assert [numbers.lengths.tolist() for numbers in block.operands] == [[5] * 20, [5] * 20, [0] * 20, [0] * 20]
    written = Layout(task, 5).text(Layout(task, 5).encode(block.operands))
    assert all(line.endswith("+ <PAD> <PAD> <PAD> <PAD> <PAD> + <PAD> <PAD> <PAD> <PAD> <PAD>") for line in written)


def test_chains_are_sums_in_which_carries_run_on():
    task, config = Addition(), {"sampling": "uniform-length", "train_digits": 5}
    usual, chained = (TrainingSet(task, DataConfig(**config, chains=share), seed=1) for share in (0.0, 1.0))
    long = []
    for data in (usual, chained):
        batch = data.batch(0, 2000)
        x, y = batch.operands
        assert batch.answer.to_ints() == [a + b for a, b in zip(x.to_ints(), y.to_ints(), strict=True)]
        assert (y.lengths == significant_digits(y.digits)).all()
        assert y.lengths.max() == 5
        long.append((longest_run(carries(x, y)) >= 4).mean())
    assert long[1] > 3 * long[0]
    # The first operands and the lengths are those of the same seed without chains.
    assert chained.batch(0, 50).operands[0].to_ints() == usual.batch(0, 50).operands[0].to_ints()
    assert (chained.batch(0, 50).operands[1].lengths == usual.batch(0, 50).operands[1].lengths).all()
