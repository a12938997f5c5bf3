"""The benchmark's parts: contenders work in turns, and ratios are those of the rounds."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"
TINY = {
    "model.preset": "tiny",
    "data.test_digits": 5,
    "evaluation.examples": 10,
    "training.batch_size": 4,
    "threads": 1,
}


@pytest.fixture(autouse=True)
def _bench_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))


def test_a_contender_works_in_turns() -> None:
    turns = [["training", 2], ["training", 1], ["evaluation", 1], ["data", 1], ["checkpoints", 1]]
    command: list[str | Path] = [sys.executable, BENCH / "contender.py", "C", json.dumps(TINY)]
    lines = "".join(f"{json.dumps(turn)}\n" for turn in turns)
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(turns)
    assert all(answer["seconds"] > 0 and answer["megabytes"] > 0 for answer in answers)
    assert answers[0]["flops"] > 0
    assert "flops" not in answers[1]  # said once
    assert answers[2]["flops"] > 0 == answers[3]["flops"]


def test_hugging_face_has_our_memory_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its model is made, whose construction needs transformers."""
    import contender

    prepared: list[Any] = []

    class Prepared(Exception):
        pass

    def prepare(*arguments: Any) -> None:
        prepared.append(arguments)
        raise Prepared

    monkeypatch.setitem(sys.modules, "transformers", object())
    monkeypatch.setattr("lengthwise.training.machine.prepare", prepare)
    experiment = contender.make_experiment(TINY)
    for who, works in contender.CONTENDERS.items():
        if "Hugging Face" in who:
            for work in works.values():
                with pytest.raises(Prepared):
                    next(work(experiment))
    assert prepared == [("cpu", 1)] * 4


def test_contenders_compare_in_interleaved_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With contenders that only say how long they took: ours 1 or 2 seconds, the other 3 times."""
    import contender

    import bench

    order: list[str] = []

    class Fake:
        def __init__(self, who: str, settings: dict[str, Any]):
            self.who = who
            self.facts = {"training": {"flops": 2e9, "computed by": "C"}, "peak": {"flops": 4e9}}

        def turn(self, what: str, units: int | None = None) -> dict[str, Any]:
            order.append(self.who)
            slow = 1 + len(order) // 16 % 2  # the whole machine slows down now and then
            seconds = {"C": slow, "PyTorch": 3 * slow, "the machine": slow}[self.who]
            return {"seconds": seconds, "megabytes": 100.0}

        def close(self) -> None:
            order.append(f"close {self.who}")

    monkeypatch.setattr(bench, "Contender", Fake)
    settings = {"training.batch_size": 32, "threads": 1}
    found = bench.compare("training", settings, ["PyTorch"])
    assert order[:5] == ["C", "PyTorch", "the machine", "the machine", "C"]
    assert order[8:11] == ["PyTorch", "C", "the machine"]
    assert sum(name.startswith("close") for name in order) == 5
    assert found["times faster than PyTorch"]["median"] == 3
    assert found["computed by"] == "C"
    matmul = found["share of the matmul limit"]["median"]
    assert matmul == pytest.approx(2e9 / (2 * contender.SQUARE**3), abs=1e-4)
    assert found["share of the peak"]["median"] == 0.5


@pytest.mark.slow  # on a busy machine, either of the two may be the slower one
@pytest.mark.skipif(shutil.which("cc") is None, reason="the peak is measured in C")
def test_matrix_products_do_not_exceed_the_peak() -> None:
    """In turns in one process, with a margin for other load."""
    import contender

    command: list[str | Path] = [
        sys.executable,
        BENCH / "contender.py",
        "the machine",
        json.dumps(TINY),
    ]
    lines = "".join(f"{json.dumps([what, 5])}\n" for what in ("peak", "products") * 3)
    done = subprocess.run(command, input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    flops = answers[0]["flops"], 2 * contender.SQUARE**3
    speeds = [flops[i % 2] / answer["seconds"] for i, answer in enumerate(answers)]
    assert max(speeds[::2]) > 0.8 * max(speeds[1::2])


def test_ratios_and_their_spread() -> None:
    from bench import ratios, spread

    found = spread(ratios([2, 6, 4, 8, 10], [1, 2, 1, 2, 2]))
    assert found == {"median": 4.0, "low": 3.0, "high": 4.0}


def test_a_level_that_is_never_reached_counts_as_more_than_the_budget() -> None:
    from examples import GOALS, summarise

    goal = next(iter(GOALS))
    found = summarise(goal, [0, 1, 2], [(100, 500), (100, None), (None, 500)], 1000)
    assert found["times fewer, at least"] == [5.0, 10.0, None]
    assert found["examples, defaults"] == [500, "more than 1000", 500]


def test_the_goals_are_experiments() -> None:
    from examples import DEFAULTS, GOALS, MOST_BUDGET, make_pair

    for goal in GOALS.values():
        ours, theirs = make_pair(goal, seed=1)
        assert theirs.steps == MOST_BUDGET * ours.steps
        assert theirs.training.learning_rate == DEFAULTS["training.learning_rate"]
        assert (ours.data, ours.task, ours.layout) == (theirs.data, theirs.task, theirs.layout)
