"""What training does for GPUs, as far as it can be tested without one."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from test_resume import outcome, small

from lengthwise.training import keys, loop
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


def test_compiling_is_no_part_of_the_identity(tmp_path: Path) -> None:
    plain, compiled = (keys.load(None, {"compile": compile}) for compile in (False, True))
    assert plain.identity() == compiled.identity()


@pytest.mark.slow
def test_a_compiled_encoder_trains_alike(tmp_path: Path) -> None:
    plain, compiled = (small(tmp_path, name) for name in ("plain", "compiled"))
    compiled.experiment = compiled.experiment.model_copy(update={"compile": True})
    list(train(plain))
    (*_, last) = train(compiled)
    assert last.declined is not None  # PyTorch computes it, not the C code
    for name, tensor in plain.load().state_dict().items():
        if not name.endswith("key.bias"):  # whose gradient is rounding only
            other = compiled.load().state_dict()[name]
            torch.testing.assert_close(other, tensor, rtol=0, atol=1e-4, msg=name)
