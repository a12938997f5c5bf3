"""The benchmark's own parts: a contender does what it is told, and ratios are those of the rounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
TINY = {"model.preset": "tiny", "data.test_digits": 5, "evaluation.examples": 10, "training.batch_size": 4}


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def test_a_contender_works_and_says_how_long_it_took():
    turns = [["training", 2], ["training", 1], ["evaluation", 1], ["data", 1], ["saving", 1]]
    command = [sys.executable, BENCH / "contender.py", "ours", json.dumps(TINY)]
    asked = "".join(f"{json.dumps(turn)}\n" for turn in turns)
    done = subprocess.run(command, input=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(turns)
    assert all(answer["seconds"] > 0 and answer["megabytes"] > 0 for answer in answers)
    flops = [answer["flops"] for answer in answers]
    assert flops[0] > 0 == flops[1]  # said once
    assert flops[2] > 0 == flops[3]


def test_ratios_and_their_spread(bench):
    from bench import ratios, spread

    assert spread(ratios([2, 6, 4, 8, 10], [1, 2, 1, 2, 2])) == {"median": 4.0, "low": 3.0, "high": 4.0}


def test_examples_to_accuracy_count_a_level_that_is_never_reached_as_more_than_the_budget(bench):
    from examples import TASKS, summary

    task = next(iter(TASKS))
    found = summary(task, [0, 1, 2], [(100, 500), (100, None), (None, 500)], 1000)
    assert found["times fewer, at least"] == [5.0, 10.0, None]
    assert found["examples, defaults"] == [500, "not with 1000", 500]
