"""Accuracy over the digits of both operands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known import answering, untrained

from lengthwise.base import UsageError
from lengthwise.evaluation.grid import LengthGrid, evaluate_grid


def test_each_cell_has_operands_of_its_lengths() -> None:
    def add_some(a: str, b: str) -> str:
        return str(int(a) + int(b)) if len(a) == 2 and len(b) >= 3 else "0"

    grid = evaluate_grid(answering(add_some), "1:4", [5, 3, 2], examples=7)
    assert (grid.first, grid.second, grid.examples) == ((1, 2, 3, 4), (5, 3, 2), 7)
    assert grid.correct.tolist() == [[0, 0, 0], [7, 7, 0], [0, 0, 0], [0, 0, 0]]
    records = {(r["first"], r["second"]): r for r in grid.to_json()}
    assert len(records) == 12
    assert records[2, 3]["exact_match"] == records[2, 3]["high"] == 1
    assert 0 < records[2, 3]["low"] < 1


def test_cells_do_not_depend_on_other_cells_and_change_with_the_seed() -> None:
    odd = answering(lambda a, b: str(int(a) + int(b)) if int(a) % 2 else "0")
    whole = evaluate_grid(odd, "2:4", examples=40)
    part = evaluate_grid(odd, [3], [2, 4], examples=40)
    assert part.correct.tolist() == [[whole.correct[1, 0], whole.correct[1, 2]]]
    assert 5 < whole.correct.min() <= whole.correct.max() < 35
    other = evaluate_grid(odd, "2:4", examples=40, seed=1)
    assert (other.correct != whole.correct).any()


def test_the_second_operand_may_be_shorter() -> None:
    task = {"kind": "multiplication", "second_digits": 2}
    solver = untrained(task, "compact")
    assert evaluate_grid(solver, "1:5", "1:2", examples=3).correct.shape == (5, 2)
    with pytest.raises(UsageError, match=r"operand 2 has 3 digits, .* room for 2"):
        evaluate_grid(solver, "1:5", "1:3", examples=3)
    rows = untrained(task, "long-multiplication", position="alibi")
    assert evaluate_grid(rows, [2, 7], [4], examples=3).correct.shape == (2, 1)


@pytest.mark.parametrize(
    ("first", "examples", "sentence"),
    [
        ("1:6", 5, "length 6 does not fit"),
        ("5:1", 5, "is not a list of lengths"),
        ([], 5, "needs a length"),
        ("1:2", 0, "at least 1 example"),
    ],
)
def test_bad_grids_are_refused(first: str, examples: int, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        evaluate_grid(untrained(), first, examples=examples)
    with pytest.raises(UsageError, match="a grid is over two operands, but this model takes 3"):
        evaluate_grid(untrained({"kind": "addition", "operands": 3}), "1:2")


def test_a_table_rounds_towards_the_middle_and_a_figure_is_drawn(tmp_path: Path) -> None:
    correct = np.array([[1000, 999, 1], [0, 500, 996]])
    grid = LengthGrid((5, 10), (1, 2, 30), 1000, correct)
    rows = [line.split() for line in grid.table().splitlines()]
    assert rows == [["1", "2", "30"], ["5", "100", "99", "1"], ["10", "0", "50", "99"]]
    picture = grid.plot(trained=5)
    heat: Any = picture.axes[0]
    np.testing.assert_allclose(heat.images[0].get_array(), correct / 10)
    (box,) = heat.patches
    assert box.get_bbox().bounds == (-0.5, -0.5, 2, 1)
    picture.write(tmp_path / "grid.pdf")
    assert (tmp_path / "grid.pdf").read_bytes().startswith(b"%PDF")
    assert picture._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match=r"figures end in \.png, \.pdf or \.svg"):
        picture.write(tmp_path / "grid.xyz")
