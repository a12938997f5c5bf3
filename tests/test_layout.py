"""How problems are written, against texts and integers written out naively."""

from itertools import product
from typing import Any, ClassVar, get_args

import numpy as np
import pytest
import torch
from conftest import TASK_OPTIONS, label
from numpy.typing import NDArray

from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import (
    TASKS,
    Addition,
    BinaryMultiplication,
    ElementwiseAddition,
    ModularAddition,
    ModularMultiplication,
    Multiplication,
    Task,
)
from lengthwise.base import UsageError
from lengthwise.problems.batch import NO_TARGET, TrainingBatch
from lengthwise.problems.layouts import (
    LAYOUTS,
    PAD,
    VOCABULARY,
    Layout,
    LongMultiplicationLayout,
    PaperLayout,
    WrittenField,
)
from lengthwise.problems.sampling import sample_numbers
from lengthwise.problems.training_set import Examples

ORDERS = get_args(Layout.Options.model_fields["order"].annotation)
FREE = [kind for kind in LAYOUTS if "order" in LAYOUTS.options_of(LAYOUTS[kind]).model_fields]


def build(layout: object, task: object, digits: int) -> Layout:
    return LAYOUTS.build(LAYOUTS.parse(layout), TASKS.parse(task), digits)


def fits(layout: object, task: object) -> bool:
    try:
        build(layout, task, 13)
    except UsageError:
        return False
    return True


def in_order(kind: str, number: int) -> dict[str, Any]:
    """A layout in one of its orders, which take turns."""
    return {"kind": kind, "order": ORDERS[number % 2]} if kind in FREE else {"kind": kind}


Case = tuple[dict[str, Any], dict[str, Any], int]
# Every layout with every kind of task that fits, and every task with other options in a layout for
# all tasks and in each for some. Orders and sizes take turns.
CASES: list[Case] = [
    (in_order(kind, place + number // 2), task, (1, 13)[(place + number) % 2])
    for place, kind in enumerate(LAYOUTS)
    for number, task in enumerate(task for task in TASK_OPTIONS if fits(kind, task))
    if task.keys() == {"kind"} or kind not in FREE or number % len(FREE) == FREE.index(kind)
]
# Every layout in each order, every kind of task, and what writes rows with all that fits.
KINDS, TURNS = list(TASKS), range(max(len(TASKS), 2 * len(FREE)))
IN_EACH_ORDER: list[Case] = [
    (
        in_order(FREE[number % len(FREE)], number // len(FREE)),
        {"kind": KINDS[number % len(KINDS)]},
        (1, 13)[number % 2],
    )
    for number in TURNS
]
SOME = [*IN_EACH_ORDER, *(case for case in CASES if case[0]["kind"] not in FREE)]


def name_of(case: Case) -> str:
    return "-".join(map(label, case))


def operands_for(layout: Layout) -> tuple[Numbers, ...]:
    """Operands of all lengths that the layout is for, the longest among them."""
    rng = np.random.default_rng(0)
    most_digits = layout.task.operand_digits(layout.digits)
    texts = [sample_numbers(rng, "uniform-length", np.full(8, n)).to_text() for n in most_digits]
    nines = ["9" * n for n in most_digits]
    columns = zip(texts, nines, strict=True)
    return layout.task.admit(*(Numbers.from_text([*text, nine]) for text, nine in columns))


def written(text: str, width: int, least_first: bool) -> str:
    """A number's symbols, as a person would write them down."""
    digits = reversed(text) if least_first else text
    return " ".join([*digits, *["<PAD>"] * (width - len(text))])


def test_all_layouts_and_tasks_have_cases() -> None:
    """Only layouts with rows refuse tasks."""
    for cases in (CASES, SOME):
        written = {(layout["kind"], layout.get("order")) for layout, *_ in cases}
        assert written >= {*product(FREE, ORDERS)}
        assert {kind for kind, _ in written} == set(LAYOUTS)
        assert {task["kind"] for _, task, _ in cases} == set(TASKS)
    assert {label(task) for _, task, _ in CASES} == {*map(label, TASK_OPTIONS)}
    refused = {kind for kind, task in product(LAYOUTS, TASK_OPTIONS) if not fits(kind, task)}
    assert refused == {"long-multiplication", "running-sums", "grid"}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_layout_loses_nothing(case: Case) -> None:
    """Problems and answers are read back, and training has the answer among its targets."""
    layout = build(*case)
    operands = operands_for(layout)
    layout.check_operands([int(numbers.lengths.max()) for numbers in operands])
    tokens = layout.encode(operands)
    assert tokens.shape == (len(operands[0]), layout.length)
    assert tokens.min() >= 0
    assert tokens.max() < len(layout.vocabulary)
    read = layout.decode(tokens)
    assert [numbers.to_text() for numbers in read] == [n.to_text() for n in operands]

    answer = layout.task.answer(*operands)
    answers = layout.encode_answer(answer)
    assert answers.shape == (len(tokens), layout.n_out)
    numbers, valid = layout.decode_answer(answers)
    assert valid.all()
    assert numbers.to_text() == answer.to_text()

    needed = layout.task.answer_digits(layout.task.operand_digits(layout.digits))
    assert needed <= layout.n_out <= layout.n_supervised <= layout.length
    targets = layout.encode_targets(operands, answer)
    assert targets.shape == (len(tokens), layout.n_supervised)
    assert targets[:, layout.answer_at].tolist() == answers.tolist()


@pytest.mark.parametrize("kind", ["long-multiplication", "grid"])
def test_the_loss_may_ask_for_the_answer_alone(kind: str) -> None:
    operands = Numbers.from_ints([12, 99]), Numbers.from_ints([345, 7])
    examples = Examples.of(Multiplication(second_digits=3), operands)

    def targets(asked: str) -> NDArray[np.int64]:
        options = LAYOUTS.parse({"kind": kind, "targets": asked})
        layout = LAYOUTS.build(options, Multiplication(second_digits=3), 3).fit(operands)
        batch = TrainingBatch.of_examples(layout, examples, torch.device("cpu"))
        others = np.delete(np.arange(layout.n_supervised), layout.answer_at)
        assert len(others)
        assert (batch.targets[:, others] == NO_TARGET).all() == (asked == "answer")
        return batch.targets.numpy()[:, layout.answer_at]

    assert targets("answer").tolist() == targets("rows").tolist()


def test_operands_may_be_written_in_any_order() -> None:
    class Reversed(PaperLayout):
        def arrange(self) -> list[WrittenField]:
            return super().arrange()[::-1]

    layout = Reversed(PaperLayout.Options(), Addition(), digits=3)
    operands = Numbers.from_ints([12, 999]), Numbers.from_ints([3, 45])
    assert layout.text(layout.encode(operands)) == [
        "3 <PAD> <PAD> + 1 2 <PAD>",
        "4 5 <PAD> + 9 9 9",
    ]
    assert [n.to_ints() for n in layout.decode(layout.encode(operands))] == [[12, 999], [3, 45]]
    assert layout.coordinates(operands).operand.tolist() == [1, 1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("case", SOME, ids=name_of)
def test_coordinates_say_where_each_digit_stands(case: Case) -> None:
    """A significance is right if the digits of a row times powers of ten add up to its number."""
    layout = build(*case)
    operands = operands_for(layout)
    tokens, at = layout.encode(operands), layout.coordinates(operands)
    rows = {name: np.broadcast_to(c, tokens.shape).tolist() for name, c in vars(at).items()}
    lengths = [numbers.lengths for numbers in operands]
    values = [numbers.to_ints() for numbers in operands]
    growth = map(layout.task.operand_digits, (7, 70))
    grows = [a < b for a, b in zip(*growth, strict=True)]
    assert grows[0]
    for b, line in enumerate(tokens.tolist()):
        assert rows["index"][b] == list(range(layout.length))
        totals: dict[tuple[int, int], int] = {}
        for column, token in enumerate(line):
            operand, row = rows["operand"][b][column], rows["row"][b][column]
            assert 0 <= operand < layout.n_operands
            assert (rows["place"][b][column] > 0) is (token <= 9)
            if token > 9:
                continue
            power, place = rows["significance"][b][column], rows["place"][b][column]
            if layout.n_operands == len(operands):  # no rows
                assert row == 0
                assert rows["shared"][b][column] is not grows[operand]
                expected = power + 1 if layout.least_first else lengths[operand][b] - power
                assert place == expected
                row = 0
            elif layout.options.kind == "running-sums":
                assert operand == 0
                operand, row = row, 0  # each row is an operand, from the units on
            elif layout.options.kind == "grid" and operand == 1 and power > row:
                assert token == line[column - 1]  # every cell of a row has its digit
                continue
            elif operand == 1:
                row = 0  # digits of the second operand belong to the rows that they make
            key = operand, row
            totals[key] = totals.get(key, 0) + token * 10 ** (power - row)
        for (operand, _), total in totals.items():
            assert total == values[operand][b]
        assert {operand for operand, _ in totals} == set(range(len(operands)))


@pytest.mark.parametrize(
    "case",
    [case for case in IN_EACH_ORDER if case[0]["kind"] in ("paper", "compact", "fitted")],
    ids=name_of,
)
def test_problems_are_written_operand_by_operand(case: Case) -> None:
    layout = build(*case)
    operands = operands_for(layout)
    digits, needed = layout.task.operand_digits(layout.digits), layout.n_out
    widths = {
        "paper": [max(digits)] * len(digits),
        "compact": list(digits),
        "fitted": [max(digits[0], needed), *digits[1:]],
    }[layout.options.kind]
    lines = layout.text(layout.encode(operands))
    for line, *texts in zip(lines, *(numbers.to_text() for numbers in operands), strict=True):
        columns = zip(texts, widths, strict=True)
        symbols = [written(text, width, layout.least_first) for text, width in columns]
        assert line == f" {layout.task.symbol} ".join(symbols)
    answer = layout.task.answer(*operands)
    expected = [written(text, layout.n_out, layout.least_first) for text in answer.to_text()]
    assert layout.text(layout.encode_answer(answer)) == expected


def test_coordinates_have_one_row_for_all_where_examples_agree() -> None:
    operands = Numbers.from_ints([1, 234]), Numbers.from_ints([56, 7])
    for order, shape in zip(ORDERS, [(2, 7), (7,)], strict=True):
        at = build({"kind": "paper", "order": order}, "addition", 3).coordinates(operands)
        assert (at.index.shape, at.significance.shape, at.operand.shape) == ((7,), shape, (7,))
        assert (at.place.shape, at.shared.shape) == ((2, 7), (7,))


@pytest.mark.parametrize("case", SOME, ids=name_of)
def test_a_layout_fits_problems_of_any_length_or_stays_as_it_is(
    case: Case,
) -> None:
    """Whichever operand is the longest, and whatever length the layout was made for."""
    layout = build(*case)
    task = layout.task
    for n in (1, 2, 30):
        digits = task.operand_digits(n)
        for longest in {0, len(digits) - 1}:
            texts = ["9" * m if i == longest else "2" for i, m in enumerate(digits)]
            operands = task.admit(*(Numbers.from_text(["1", text]) for text in texts))
            fitted = layout.fit(operands, padding=3)
            if not layout.fits_any_length:
                assert fitted is layout
                continue
            tokens = fitted.encode(operands)
            read = [numbers.to_text() for numbers in fitted.decode(tokens)]
            assert read == [numbers.to_text() for numbers in operands]
            answer = task.answer(*operands)
            numbers, valid = fitted.decode_answer(fitted.encode_answer(answer))
            assert valid.all()
            assert numbers.to_text() == answer.to_text()
            assert fitted.length > layout.fit(operands).length
    if layout.fits_any_length:
        assert layout.most_digits(0) is None


def test_the_papers_vocabulary() -> None:
    assert len(set(VOCABULARY)) == 15
    tasks = [Addition(), ModularAddition(), Multiplication(), ModularMultiplication()]
    assert [task.symbol for task in tasks] == ["+", "%", "×", "*"]
    for task in (*tasks, ElementwiseAddition()):
        assert build("paper", task, 5).vocabulary == VOCABULARY


def test_a_task_may_bring_its_own_symbol() -> None:
    class Smaller(ElementwiseAddition):
        """The element-wise sum, with a symbol that the paper does not have."""

        symbol: ClassVar[str] = "∧"

    layout = LAYOUTS.build(LAYOUTS.parse("paper"), Smaller(), 3)
    operands = Numbers.from_ints([12, 345]), Numbers.from_ints([7, 89])
    assert layout.vocabulary == (*VOCABULARY, "∧")
    tokens = layout.encode(operands)
    assert layout.text(tokens) == ["1 2 <PAD> ∧ 7 <PAD> <PAD>", "3 4 5 ∧ 8 9 <PAD>"]
    assert [numbers.to_ints() for numbers in layout.decode(tokens)] == [[12, 345], [7, 89]]
    _, valid = layout.decode_answer(np.array([[1, 15, 14], [1, 2, 15], [1, 2, 14]]))
    assert valid.tolist() == [False, False, True]


LENGTHS: list[tuple[Task, int, object, int, int]] = [
    (Addition(), 20, "paper", 41, 21),
    (Addition(operands=3), 20, "paper", 62, 21),
    (Addition(operands=12), 20, "paper", 251, 22),
    (ElementwiseAddition(), 20, "paper", 41, 20),
    (Multiplication(), 35, "paper", 71, 70),
    (Multiplication(), 35, "compact", 39, 38),
    (Multiplication(second_digits=None), 35, "compact", 71, 70),
    (ModularAddition(modulus=100), 20, "paper", 41, 2),
    (ModularAddition(modulus=101), 20, "paper", 41, 3),
    (ModularMultiplication(modulus=1000), 20, "paper", 41, 3),
    (ModularMultiplication(modulus=10), 20, "compact", 24, 1),
    (ModularAddition(modulus=10**20), 5, "paper", 11, 6),  # no sum of five digits has more
    (Addition(), 20, {"kind": "paper", "n_out": 30}, 41, 30),
    (Addition(), 20, "fitted", 42, 21),
    (Addition(operands=12), 20, "fitted", 253, 22),
    (Multiplication(), 35, "fitted", 38 + 1 + 3, 38),
    (ModularAddition(modulus=100), 20, "fitted", 41, 2),
    (ModularAddition(modulus=10**6, constant_length=True), 2, "fitted", 6 + 1 + 2, 6),
    (Multiplication(), 35, "long-multiplication", 2 * 3 * (36 + 1) + 3, 38),
    (Addition(operands=12), 20, "running-sums", 2 * 12 * (22 + 1) - 1, 22),
    (Multiplication(), 35, "grid", 3 * 3 * (36 + 1) - 1, 38),
    (BinaryMultiplication(second_digits=1), 5, "grid", 3 * 2 * (6 + 1) - 1, 7),
]


def test_length_and_n_out() -> None:
    for task, digits, layout, length, n_out in LENGTHS:
        found = build(layout, task, digits)
        assert (found.length, found.n_out) == (length, n_out), (task, layout)


NUMBERS = [
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
]


@pytest.mark.parametrize("order", ORDERS)
def test_only_numbers_are_read_as_numbers(order: str) -> None:
    layout = build({"kind": "paper", "order": order}, "addition", 3)
    rows = []
    for symbols, _ in NUMBERS:
        number, padding, rest = symbols.partition("<PAD>")
        digits = number.split() if order == ORDERS[0] else reversed(number.split())
        rows.append([VOCABULARY.index(s) for s in [*digits, *f"{padding}{rest}".split()]])
    numbers, valid = layout.decode_answer(np.array(rows))
    assert valid.tolist() == [value is not None for _, value in NUMBERS]
    found = [n for n, value in zip(numbers.to_text(), NUMBERS, strict=True) if value[1] is not None]
    assert found == [str(value) for _, value in NUMBERS if value is not None]


@pytest.mark.parametrize("order", ORDERS)
def test_leading_zeros_are_read_where_answers_may_have_them(order: str) -> None:
    layout = build({"kind": "paper", "order": order}, "elementwise-addition", 3)
    rows = np.array([[0, 0, PAD], [0, 0, 0], [0, PAD, 0], [PAD, PAD, PAD]])
    numbers, valid = layout.decode_answer(rows)
    assert valid.tolist() == [True, True, False, False]
    assert numbers.to_text()[:2] == ["00", "000"]


@pytest.mark.parametrize("order", ORDERS)
def test_numbers_that_are_too_long_are_an_error(order: str) -> None:
    layout = build({"kind": "compact", "order": order}, "multiplication", 5)
    five, four, nine = (Numbers.from_ints([10**n - 1]) for n in (5, 4, 9))
    with pytest.raises(UsageError, match=r"4 digits does not fit the layout's 3"):
        layout.encode((five, four))
    with pytest.raises(UsageError, match=r"9 digits does not fit the layout's 8"):
        layout.encode_answer(nine)
    with pytest.raises(UsageError, match=r"operand 2 has 4 digits, but .* has room for 3"):
        layout.check_operands([5, 4])


def test_an_operand_of_fixed_length_keeps_it_in_a_fitted_layout() -> None:
    layout = build("fitted", "multiplication", 5)
    nine, four = Numbers.from_ints([10**9 - 1]), Numbers.from_ints([9999])
    fitted = layout.fit((nine, four))
    assert [field.width for field in fitted.fields] == [12, 3]
    assert [layout.most_digits(operand) for operand in (0, 1)] == [None, 3]
    with pytest.raises(UsageError, match=r"4 digits does not fit the layout's 3"):
        fitted.encode((nine, four))


IMPOSSIBLE: list[tuple[object, object, int, str]] = [
    ("paper", "addition", 0, "numbers have at least 1 digit, not 0"),
    ({"kind": "paper", "n_out": 5}, "addition", 5, "from 5 of its 11 positions, but answers"),
    ({"kind": "paper", "n_out": 12}, "addition", 5, "12 of its 11 .* have up to 6 digits"),
    ("long-multiplication", "addition", 5, "needs the task multiplication"),
    ("long-multiplication", "modular-multiplication", 5, "needs the task multiplication"),
    ("grid", "modular-multiplication", 5, "needs the task multiplication or binary-multiplication"),
    ({"kind": "fitted", "n_out": 7}, "addition", 5, "'fitted' has no option 'n_out'"),
    (
        {"kind": "paper", "order": "random"},
        "addition",
        5,
        "order of the layout 'paper' is 'ran",
    ),
]


def test_an_impossible_layout_is_explained_in_a_sentence() -> None:
    for layout, task, digits, sentence in IMPOSSIBLE:
        with pytest.raises(UsageError, match=sentence) as caught:
            build(layout, task, digits)
        assert "\n" not in str(caught.value)


def long_multiplication(second_digits: int | None) -> Layout:
    task = Multiplication(second_digits=second_digits)
    return LongMultiplicationLayout(LongMultiplicationLayout.Options(), task, 2)


def test_long_multiplication_has_a_row_for_each_product_and_each_sum() -> None:
    layout = long_multiplication(3)
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
    assert (layout.n_out, layout.n_supervised, layout.n_operands) == (5, 24, 4)
    answer = layout.task.answer(*operands)
    targets = layout.encode_targets(operands, answer)
    assert layout.text(targets[:, :12]) == [
        "0 6 <PAD> <PAD> 4 5 <PAD> <PAD> 1 4 <PAD> <PAD>",  # 60, 12 × 45 = 54|0, 12 × 345 = 41|40
        "0 <PAD> <PAD> <PAD> 2 4 <PAD> <PAD> 4 <PAD> <PAD> <PAD>",  # 7 × 0, 7 × 60 = 42|0, 4|20
    ]
    assert layout.text(targets[:, 12:]) == [
        "0 6 <PAD> <PAD> 8 4 <PAD> <PAD> 6 3 <PAD> <PAD>",  # 12 × 5, 12 × 4 and 12 × 3
        "0 <PAD> <PAD> <PAD> 2 4 <PAD> <PAD> <PAD> <PAD> <PAD> <PAD>",  # 7 × 0, 7 × 6, no third
    ]
    answer_at = layout.answer_at
    assert isinstance(answer_at, np.ndarray)
    assert answer_at.tolist() == [0, 4, 8, 9, 10]


@pytest.mark.parametrize(
    ("first", "second", "padding", "rows", "width"),
    [
        (7, 9, 0, 1, 2),
        (7, 10305, 0, 5, 2),
        (12345, 67, 3, 2, 9),
        (20, 500, 0, 3, 3),
        (0, 12, 0, 2, 2),
    ],
)
def test_long_multiplication_has_the_rows_that_second_operands_need(
    first: int, second: int, padding: int, rows: int, width: int, subtests: pytest.Subtests
) -> None:
    cases: list[int | None] = [3, None]
    for second_digits in cases:
        with subtests.test(str(second_digits)):
            operands = Numbers.from_ints([first, 1]), Numbers.from_ints([second, 1])
            fitted = long_multiplication(second_digits).fit(operands, padding)
            assert [field.width for field in fitted.fields] == [width] * (2 * rows) + [rows]
            read = fitted.decode(fitted.encode(operands))
            assert [numbers.to_ints() for numbers in read] == [[first, 1], [second, 1]]
            answer = fitted.task.answer(*operands)
            targets = fitted.encode_targets(operands, answer)
            assert targets[:, fitted.answer_at].tolist() == fitted.encode_answer(answer).tolist()
            in_rows = targets.reshape(2, 2 * rows, width + 1)
            empty = [first == 0 and row > 0 for row in [*range(rows)] * 2]
            assert (in_rows[0] == PAD).all(1).tolist() == empty
            numbers = [fitted.decode_answer(in_rows[:, row])[0] for row in range(2 * rows)]
            values = [int("0" + n.to_text()[0]) for n in numbers]
            sums = [first * (second % 10 ** (row + 1)) // 10**row for row in range(rows)]
            assert values == [*sums, *(first * int(digit) for digit in str(second)[::-1])]


BITS = BinaryMultiplication(second_digits=None)


@pytest.mark.parametrize(
    ("task", "first", "second"),
    [
        (BITS, "110", "101"),
        (Multiplication(), "110", "101"),
        (BITS, "1", "1"),
        (Multiplication(), "0", "11"),
        (BITS, "11", "0"),
    ],
    ids=label,
)
def test_a_grid_has_a_cell_for_each_pair_of_digits(
    task: BinaryMultiplication | Multiplication, first: str, second: str
) -> None:
    """Its targets are the product of each row and the sum of all rows so far, in full."""
    operands = Numbers.from_text([first, "1"]), Numbers.from_text([second, "1"])
    layout = build("grid", task, 3).fit(operands)
    rows, width = max(2, len(second)), len(first) + 2
    cells = layout.encode(operands)[0]
    cells = np.append(cells, VOCABULARY.index("×")).reshape(3, rows, width)
    assert (cells[0, :, :-1] == PAD).all()
    for row in range(rows):
        digit = int(second[-1 - row]) if row < len(second) else PAD
        digits = [*map(int, reversed(first)), PAD]
        assert cells[1, row, :-1].tolist() == digits
        assert cells[2, row, :-1].tolist() == [*[digit] * len(first), PAD]
    at = layout.coordinates(operands)
    place = np.tile(np.arange(width), 3 * rows)[:-1]
    assert (at.significance - at.row).tolist() == place.tolist()
    assert not at.shared.any()

    def value(symbols: list[int]) -> int:
        return sum(symbol * task.base**i for i, symbol in enumerate(symbols))

    targets = layout.encode_targets(operands, task.answer(*operands))[0].reshape(2, rows, width)
    multiplicand, multiplier = int(first, task.base), second[::-1]
    total = 0
    for row in range(rows):
        product = multiplicand * int(multiplier[row]) if row < len(second) else 0
        total += product * task.base**row
        assert value(targets[1, row].tolist()) == product
        assert value(targets[0, row].tolist()) == total // task.base**row


def test_a_grid_reads_digits_of_its_base_only() -> None:
    layout = build("grid", BinaryMultiplication(second_digits=None), 2)
    numbers, valid = layout.decode_answer(np.array([[1, 1, 0, 0], [1, 2, 0, 0], [1, PAD, 0, 0]]))
    assert valid.tolist() == [True, False, False]
    assert numbers.to_text()[0] == "11"
