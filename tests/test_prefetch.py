"""Batches drawn ahead are the same ones; errors and an early end pass through the thread."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_resume import outcome, small

from lengthwise.training import loop
from lengthwise.training.loop import train
from lengthwise.training.prefetch import draw_ahead


def test_a_run_is_the_same_with_batches_drawn_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one, ahead = (small(tmp_path, name) for name in ("one-by-one", "ahead"))
    list(train(one_by_one))
    monkeypatch.setitem(loop.BATCHES_AHEAD, "cpu", 3)
    list(train(ahead))
    assert outcome(ahead.path) == outcome(one_by_one.path)


def test_no_more_than_asked_are_drawn_ahead_and_the_thread_ends() -> None:
    drawn: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1000):
            drawn.append(number)
            yield number

    before = threading.active_count()
    items = draw_ahead(numbers(), 3)
    assert [next(items) for _ in range(5)] == [0, 1, 2, 3, 4]
    items.close()  # type: ignore[attr-defined]  # as when a run is stopped
    assert threading.active_count() == before
    assert len(drawn) <= 5 + 3 + 1


def test_an_error_reaches_whoever_asks() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    items = draw_ahead(numbers(), 2)
    assert next(items) == 1
    with pytest.raises(ValueError, match="no more"):
        next(items)
