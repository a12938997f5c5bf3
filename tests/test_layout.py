"""How problems are written, against texts and integers written out naively."""

import numpy as np
import pytest
from pydantic import ValidationError

from lengthwise.data import draw
from lengthwise.digits import Numbers
from lengthwise.errors import UsageError, explain
from lengthwise.layout import PAD, VOCABULARY, Layout, LayoutConfig
from lengthwise.tasks import (
    Addition,
    ElementwiseAddition,
    ModularAddition,
    ModularMultiplication,
    Multiplication,
    Task,
)

ORDERS = ["most-significant-first", "least-significant-first"]


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[(), ("compact",), ("answer_room",), ("compact", "answer_room")], ids="+".join)
def switches(request: pytest.FixtureRequest) -> dict[str, bool]:
    return dict.fromkeys(request.param, True)


@pytest.fixture(params=[1, 13])
def layout(task: Task, order: str, switches: dict[str, bool], request: pytest.FixtureRequest) -> Layout:
    return Layout(task, request.param, LayoutConfig(order=order, **switches))


@pytest.fixture
def operands(layout: Layout) -> tuple[Numbers, ...]:
    """Operands of all lengths that the layout is for, the longest among them."""
    rng = np.random.default_rng(0)
    most_digits = layout.task.operand_digits(layout.digits)
    drawn = [draw(rng, "uniform-length", np.full(8, most)).to_text() for most in most_digits]
    return tuple(Numbers.from_text([*texts, "9" * n]) for texts, n in zip(drawn, most_digits, strict=True))


def written(text: str, width: int, least_first: bool) -> list[str]:
    """A number's symbols, as a person would write them down."""
    return [*(reversed(text) if least_first else text), *["<PAD>"] * (width - len(text))]


def tokens_of(*symbols: str) -> np.ndarray:
    """Rows of symbols with spaces between them, as tokens."""
    return np.array([[VOCABULARY.index(symbol) for symbol in row.split()] for row in symbols])


def test_problems_are_written_operand_by_operand(layout, operands):
    tokens = layout.encode(operands)
    rows = zip(*(numbers.to_text() for numbers in operands), strict=True)
    for line, texts in zip(layout.text(tokens), rows, strict=True):
        symbols = [
            " ".join(written(text, width, layout.least_first)) for text, width in zip(texts, layout.widths, strict=True)
        ]
        assert line == f" {layout.task.symbol} ".join(symbols)
    assert tokens.shape == (len(operands[0]), layout.length)


def test_problems_are_read_back(layout, operands):
    read = layout.decode(layout.encode(operands))
    assert [numbers.to_text() for numbers in read] == [numbers.to_text() for numbers in operands]


def test_answers_are_written_and_read_back(layout, operands):
    answer = layout.task.answer(*operands)
    tokens = layout.encode_answer(answer)
    expected = [" ".join(written(text, layout.n_out, layout.least_first)) for text in answer.to_text()]
    assert layout.text(tokens) == expected
    numbers, valid = layout.decode_answer(tokens)
    assert valid.all()
    assert numbers.to_text() == answer.to_text()


def test_answers_are_read_from_the_input_and_no_wider_than_asked(layout):
    needed = layout.task.answer_digits(layout.task.operand_digits(layout.digits))
    assert needed <= layout.n_out <= layout.length
    if layout.config.answer_room:
        assert needed == layout.n_out <= layout.widths[0]


def test_coordinates(layout, operands):
    """Against a double loop; a digit's significance is right if digits times powers of ten add up to the number."""
    tokens, at = layout.encode(operands), layout.coordinates(operands)
    index, significance, place, operand, shared = (
        np.broadcast_to(c, tokens.shape).tolist() for c in (at.index, at.significance, at.place, at.operand, at.shared)
    )
    grows = [a < b for a, b in zip(*map(layout.task.operand_digits, (7, 70)), strict=True)]
    assert grows[0]
    for row, line in enumerate(tokens.tolist()):
        totals = [0] * len(operands)
        column = 0
        for number, width in enumerate(layout.widths):
            for offset in range(width + 1):  # one more for the operator that follows
                if column == layout.length:
                    break
                length = int(operands[number].lengths[row])
                assert index[row][column] == column
                assert operand[row][column] == number
                assert shared[row][column] is not grows[number]
                assert place[row][column] == (offset + 1 if line[column] <= 9 else 0)
                assert significance[row][column] == (offset if layout.least_first else length - 1 - offset)
                if line[column] <= 9:
                    totals[number] += line[column] * 10 ** significance[row][column]
                column += 1
        assert totals == [numbers[row : row + 1].to_ints()[0] for numbers in operands]


LONG_MULTIPLICATION = LayoutConfig(order="least-significant-first", compact=True, fitted=True, long_multiplication=True)


def test_long_multiplication_has_a_row_for_each_product_and_each_sum():
    layout = Layout(Multiplication(second_digits=3), 2, LONG_MULTIPLICATION)
    operands = Numbers.from_ints([12, 7]), Numbers.from_ints([345, 60])
    assert layout.text(layout.encode(operands)) == [
        "<PAD> <PAD> <PAD> × " * 3 + "2 1 <PAD> × " * 3 + "5 4 3",
        "<PAD> <PAD> <PAD> × " * 3 + "7 <PAD> <PAD> × " * 3 + "0 6 <PAD>",
    ]
    at = layout.coordinates(operands)
    assert at.row.tolist() == ([0] * 4 + [1] * 4 + [2] * 4) * 2 + [0, 1, 2]
    assert at.operand.tolist() == [2] * 12 + [0] * 12 + [1] * 3
    assert at.shared.tolist() == [False] * 24 + [True] * 3
    assert at.significance.tolist() == [0, 1, 2, 3, 1, 2, 3, 4, 2, 3, 4, 5] * 2 + [0, 1, 2]
    assert at.place[1].tolist() == [0] * 12 + [1, 0, 0, 0] * 3 + [1, 2, 0]
    assert [numbers.to_ints() for numbers in layout.decode(layout.encode(operands))] == [[12, 7], [345, 60]]
    assert (layout.n_out, layout.n_asked, layout.n_operands) == (5, 24, 4)
    answer = layout.task.answer(*operands)
    targets = layout.encode_targets(operands, answer)
    assert layout.text(targets[:, :12]) == [
        "0 6 <PAD> <PAD> 4 5 <PAD> <PAD> 1 4 <PAD> <PAD>",  # 12 × 5 = 60, 12 × 45 = 54|0 and 12 × 345 = 41|40
        "0 <PAD> <PAD> <PAD> 2 4 <PAD> <PAD> 4 <PAD> <PAD> <PAD>",  # 7 × 0 = 0, 7 × 60 = 42|0, and so 4|20
    ]
    assert layout.text(targets[:, 12:]) == [
        "0 6 <PAD> <PAD> 8 4 <PAD> <PAD> 6 3 <PAD> <PAD>",  # 12 × 5, 12 × 4 and 12 × 3
        "0 <PAD> <PAD> <PAD> 2 4 <PAD> <PAD> <PAD> <PAD> <PAD> <PAD>",  # 7 × 0, 7 × 6, and there is no third digit
    ]
    assert layout.answer_at.tolist() == [0, 4, 8, 9, 10]
    assert targets[:, layout.answer_at].tolist() == layout.encode_answer(answer).tolist()


@pytest.mark.parametrize("second_digits", [3, None])
def test_long_multiplication_has_as_many_rows_as_the_second_operands_need(second_digits):
    layout = Layout(Multiplication(second_digits=second_digits), 2, LONG_MULTIPLICATION)
    problems = [(7, 9, 0, 1, 2), (7, 10305, 0, 5, 2), (12345, 67, 3, 2, 9), (20, 500, 0, 3, 3), (0, 12, 0, 2, 2)]
    for first, second, padding, rows, width in problems:
        operands = Numbers.from_ints([first, 1]), Numbers.from_ints([second, 1])
        fitted = layout.fit(operands, padding)
        assert fitted.widths == (width,) * (2 * rows) + (rows,)
        assert [numbers.to_ints() for numbers in fitted.decode(fitted.encode(operands))] == [[first, 1], [second, 1]]
        answer = fitted.task.answer(*operands)
        targets = fitted.encode_targets(operands, answer)
        assert targets[:, fitted.answer_at].tolist() == fitted.encode_answer(answer).tolist()
        in_rows = targets.reshape(2, 2 * rows, width + 1)
        assert (in_rows[0] == PAD).all(1).tolist() == [first == 0 and row > 0 for row in [*range(rows)] * 2]
        asked = [fitted.decode_answer(in_rows[:, row])[0].to_ints()[0] for row in range(2 * rows)]
        assert asked[:rows] == [first * (second % 10 ** (row + 1)) // 10**row for row in range(rows)]
        assert asked[rows:] == [first * int(digit) for digit in str(second)[::-1]]


def test_training_asks_for_the_answer_alone_where_there_are_no_rows(layout, operands):
    answer = layout.task.answer(*operands)
    assert layout.encode_targets(operands, answer).tolist() == layout.encode_answer(answer).tolist()
    assert layout.answer_at == slice(layout.n_out)
    assert layout.n_asked == layout.n_out


@pytest.mark.parametrize(
    ("task", "switches"),
    [
        (Addition(), {}),
        (ModularMultiplication(), {}),
        (Multiplication(), {"answer_room": True}),
        (Multiplication(), {"n_out": 12}),
        (Multiplication(), {"compact": False}),
        (Multiplication(), {"order": "most-significant-first"}),
    ],
)
def test_long_multiplication_needs_a_product_and_room_for_it(task, switches):
    with pytest.raises(UsageError, match="long_multiplication needs"):
        Layout(task, 5, LONG_MULTIPLICATION.model_copy(update=switches))


def test_there_is_no_layout_for_numbers_without_digits():
    with pytest.raises(UsageError, match="1 digit or more, not 0"):
        Layout(Addition(), 0)


def test_coordinates_have_one_row_for_all_where_examples_agree():
    operands = Numbers.from_ints([1, 234]), Numbers.from_ints([56, 7])
    for order, shape in zip(ORDERS, [(2, 7), (7,)], strict=True):
        at = Layout(Addition(), 3, LayoutConfig(order=order)).coordinates(operands)
        assert (at.index.shape, at.significance.shape, at.operand.shape) == ((7,), shape, (7,))
        assert (at.place.shape, at.shared.shape) == ((2, 7), (7,))


@pytest.mark.parametrize("padding", [0, 2])
def test_a_fitted_layout_is_the_one_for_the_longest_problem_and_the_padding(task, order, switches, padding):
    """Whatever it was made for, and whichever operand is the longest; a layout that isn't fitted stays as it is."""
    made_for = 3
    fixed = Layout(task, made_for, LayoutConfig(order=order, **switches))
    fitted = Layout(task, made_for, LayoutConfig(order=order, fitted=True, **switches))
    assert (fitted.widths, fitted.n_out) == (fixed.widths, fixed.n_out)
    for n in (1, 2, 30):
        growing = [
            i for i, (a, b) in enumerate(zip(task.operand_digits(n), task.operand_digits(99), strict=True)) if a < b
        ]
        for longest in {growing[0], growing[-1]}:
            operands = tuple(
                Numbers.from_text(["1", "9" * n if i == longest else "2"]) for i in range(len(fixed.widths))
            )
            layout = fitted.fit(operands, padding)
            expected = Layout(task, n + padding, LayoutConfig(order=order, **switches))
            assert (layout.widths, layout.length, layout.n_out) == (expected.widths, expected.length, expected.n_out)
            tokens = layout.encode(operands)
            assert layout.text(tokens) == expected.text(expected.encode(operands))
            assert [numbers.to_text() for numbers in layout.decode(tokens)] == [o.to_text() for o in operands]
            answer = task.answer(*operands)
            read, valid = layout.decode_answer(layout.encode_answer(answer))
            assert valid.all()
            assert read.to_text() == answer.to_text()
            assert fixed.fit(operands, padding) is fixed


def test_the_papers_example():
    layout = Layout(Addition(), digits=3)
    operands = Numbers.from_ints([12, 999]), Numbers.from_ints([39, 345])
    assert layout.text(layout.encode(operands)) == ["1 2 <PAD> + 3 9 <PAD>", "9 9 9 + 3 4 5"]
    answer = layout.encode_answer(Addition().answer(*operands))
    assert layout.text(answer) == ["5 1 <PAD> <PAD>", "1 3 4 4"]


def test_the_papers_vocabulary():
    assert len(set(VOCABULARY)) == 15
    tasks = [Addition(), ModularAddition(), Multiplication(), ModularMultiplication()]
    assert [task.symbol for task in tasks] == ["+", "%", "×", "*"]
    assert all(Layout(task, 5).vocabulary == VOCABULARY for task in [*tasks, ElementwiseAddition()])


def test_a_task_may_bring_its_own_symbol():
    class Smaller(ElementwiseAddition):
        """The element-wise sum, written with a symbol that the paper hasn't."""

        symbol = "∧"

    layout = Layout(Smaller(), 3)
    operands = Numbers.from_ints([12, 345]), Numbers.from_ints([7, 89])
    assert len(layout.vocabulary) == 16
    assert layout.vocabulary[:15] == VOCABULARY
    assert layout.text(layout.encode(operands)) == ["1 2 <PAD> ∧ 7 <PAD> <PAD>", "3 4 5 ∧ 8 9 <PAD>"]
    assert [numbers.to_ints() for numbers in layout.decode(layout.encode(operands))] == [[12, 345], [7, 89]]
    assert layout.decode_answer(np.array([[1, 15, 14], [1, 2, 15], [1, 2, 14]]))[1].tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("task", "digits", "config", "length", "n_out"),
    [
        (Addition(), 20, {}, 41, 21),
        (Addition(operands=3), 20, {}, 62, 21),
        (Addition(operands=12), 20, {}, 251, 22),
        (ElementwiseAddition(), 20, {}, 41, 20),
        (Multiplication(), 35, {}, 71, 70),
        (Multiplication(), 35, {"compact": True}, 39, 38),
        (Multiplication(second_digits=None), 35, {"compact": True}, 71, 70),
        (ModularAddition(modulus=100), 20, {}, 41, 2),
        (ModularAddition(modulus=101), 20, {}, 41, 3),
        (ModularAddition(modulus=128), 20, {}, 41, 3),
        (ModularMultiplication(modulus=1000), 20, {}, 41, 3),
        (ModularMultiplication(modulus=10), 20, {"compact": True}, 24, 1),
        (ModularAddition(modulus=10**20), 5, {}, 11, 6),  # no sum of five digits has more than six
        (Addition(), 20, {"n_out": 30}, 41, 30),
        (Addition(), 20, {"answer_room": True}, 42, 21),
        (Addition(operands=12), 20, {"answer_room": True}, 253, 22),
        (Multiplication(), 35, {"answer_room": True}, 38 + 1 + 35, 38),
        (Multiplication(), 35, {"answer_room": True, "compact": True}, 38 + 1 + 3, 38),
        (ModularAddition(modulus=100), 20, {"answer_room": True}, 41, 2),
        (ModularAddition(modulus=10**6, constant_length=True), 2, {"answer_room": True}, 6 + 1 + 2, 6),
    ],
)
def test_length_and_n_out(task, digits, config, length, n_out):
    layout = Layout(task, digits, LayoutConfig(**config))
    assert (layout.length, layout.n_out) == (length, n_out)


@pytest.mark.parametrize(
    ("symbols", "value"),
    [
        ("1 2 3 4", 1234),
        ("1 2 <PAD> <PAD>", 12),
        ("1 0 <PAD> <PAD>", 10),
        ("0 <PAD> <PAD> <PAD>", 0),
        ("0 1 <PAD> <PAD>", None),
        ("0 0 <PAD> <PAD>", None),
        ("0 1 2 3", None),
        ("1 <PAD> 2 <PAD>", None),
        ("<PAD> 1 2 3", None),
        ("<PAD> <PAD> <PAD> <PAD>", None),
        ("1 + 2 <PAD>", None),
        ("1 2 <PAD> ×", None),
        ("+ <PAD> <PAD> <PAD>", None),
        ("1 2 3 %", None),
    ],
)
def test_only_numbers_are_read_as_numbers(symbols, value, order):
    layout = Layout(Addition(), 3, LayoutConfig(order=order))
    if order == "least-significant-first":
        number, padding, rest = symbols.partition("<PAD>")
        symbols = " ".join(reversed(number.split())) + " " + padding + rest
    numbers, valid = layout.decode_answer(np.concatenate([tokens_of(symbols), tokens_of("7 <PAD> <PAD> <PAD>")]))
    assert valid.tolist() == [value is not None, True]
    assert numbers.to_ints()[int(value is None) :] == ([7] if value is None else [value, 7])


def test_leading_zeros_are_read_where_the_tasks_answers_have_them(order):
    layout = Layout(ElementwiseAddition(), 3, LayoutConfig(order=order))
    numbers, valid = layout.decode_answer(np.array([[0, 0, PAD], [0, 0, 0], [0, PAD, 0], [PAD, PAD, PAD]]))
    assert valid.tolist() == [True, True, False, False]
    assert numbers.to_text()[:2] == ["00", "000"]


def test_numbers_that_are_too_long_are_the_users_business(order):
    layout = Layout(Multiplication(), 5, LayoutConfig(order=order, compact=True))
    five, four, nine = (Numbers.from_ints([10**n - 1]) for n in (5, 4, 9))
    with pytest.raises(UsageError, match=r"4 digits .* room for 3"):
        layout.encode((five, four))
    with pytest.raises(UsageError, match=r"9 digits .* room for 5"):
        layout.encode((nine, four))
    with pytest.raises(UsageError, match=r"9 digits .* room for 8"):
        layout.encode_answer(nine)


def test_the_answers_room_holds_every_symbol_that_is_read():
    layout = Layout(Addition(), 5, LayoutConfig(answer_room=True, n_out=8))
    assert layout.n_out == 8 <= layout.widths[0]


def test_an_operand_of_fixed_length_stays_as_long_in_a_fitted_layout():
    layout = Layout(Multiplication(), 5, LayoutConfig(fitted=True, compact=True))
    nine, four = Numbers.from_ints([10**9 - 1]), Numbers.from_ints([9999])
    assert layout.fit((nine, four)).widths == (9, 3)
    with pytest.raises(UsageError, match=r"4 digits .* room for 3"):
        layout.fit((nine, four)).encode((nine, four))


def test_a_fitted_layout_has_no_fixed_n_out():
    with pytest.raises(ValidationError) as caught:
        LayoutConfig(fitted=True, n_out=7)
    assert explain(caught.value) == "layout.n_out can't be set where layout.fitted is true: it grows with the problem"


@pytest.mark.parametrize("n_out", [5, 12])
def test_an_answer_without_room_is_the_users_business(n_out):
    with pytest.raises(UsageError, match=f"n_out is {n_out}, .* 6 digits .* 11 positions"):
        Layout(Addition(), 5, LayoutConfig(n_out=n_out))
