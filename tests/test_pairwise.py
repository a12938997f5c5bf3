"""The covering arrays that other tests take their cases from."""

from itertools import combinations, product
from math import prod

import pytest
from pairwise import pairwise


def test_every_pair_of_values_occurs_in_few_rows(subtests: pytest.Subtests) -> None:
    cases: list[tuple[int, ...]] = [
        (),
        (3,),
        (1, 4),
        (2, 2, 2, 2),
        (5, 3, 2, 4),
        (9, 2, 2, 2, 3, 4),
        (13, 2, 3, 5, 4),
    ]
    for sizes in cases:
        with subtests.test(str(sizes)):
            options = [
                [f"{column}-{value}" for value in range(size)] for column, size in enumerate(sizes)
            ]
            rows = pairwise(*options)
            assert len(set(rows)) == len(rows)
            for a, b in combinations(range(len(options)), 2):
                assert {(row[a], row[b]) for row in rows} == set(product(options[a], options[b]))
            fewest = prod(sorted(sizes)[-2:])
            assert fewest <= len(rows) <= min(prod(sizes), 2 * fewest)
            assert pairwise(*options) == rows


def test_values_need_no_hash_and_may_be_equal() -> None:
    rows = pairwise([{"a": 1}, {"a": 1}], [[1], [2]])
    assert rows == [({"a": 1}, [1]), ({"a": 1}, [2])] * 2


def test_no_values_leave_no_rows() -> None:
    assert pairwise([1, 2], []) == []
    assert pairwise([]) == []
