"""Length records: their recipes, training, measuring, summaries and pages."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lengthwise.base import UsageError
from lengthwise.base.files import to_json
from lengthwise.cli.main import main
from lengthwise.frontier.ablations import ABLATIONS
from lengthwise.frontier.make import (
    describe_training,
    limit_long_problems,
    make_record,
    measure_all,
    measurements,
    measuring_processes,
    summarise_trial,
)
from lengthwise.frontier.record_page import markdown
from lengthwise.frontier.records import (
    COLUMNS,
    DECIMAL_GRID,
    GRID,
    LONG_MULTIPLICATION,
    RECORDS,
    RUNNING_SUMS,
    SUM,
    LengthRecord,
    Trial,
)
from lengthwise.sweep import Engine, Local
from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.loop import train
from lengthwise.training.runs import Run

SMALL: dict[str, Any] = {
    "model.width": 16,
    "model.heads": 2,
    "data.train_size": 100,
    "training.steps": 3,
    "training.batch_size": 4,
    "evaluation.examples": 4,
    "evaluation.final_examples": 4,
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial({**SUM, **SMALL}, {5: 6, 30: 4}, {30: 0.5}, {3: 2})
    monkeypatch.setitem(RECORDS, "tiny", LengthRecord("sums, hardly trained", {"sum": trial}))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train and measure here: starting processes would take most of the time."""

    def train_here(runs: list[Run], engine: Engine, display: Display) -> Iterator[tuple[Run, None]]:
        for run in runs:
            list(train(run))
            yield run, None

    class Executor(nullcontext["Executor"]):
        def __init__(self, *arguments: Any, **settings: Any):
            super().__init__(self)

        map = staticmethod(map)

    monkeypatch.setattr("lengthwise.frontier.make.run_all", train_here)
    monkeypatch.setattr("lengthwise.frontier.make.ProcessPoolExecutor", Executor)


def make(name: str, seeds: list[int], root: Path) -> dict[str, Any]:
    display = Display(console=Console(file=io.StringIO()))
    return make_record(name, seeds, Local(2), root / "runs", root / "results", display)


@pytest.mark.parametrize("name", RECORDS)
def test_recipes_train_and_choose_on_short_numbers_only(name: str) -> None:
    for trial in RECORDS[name].trials.values():
        experiment = keys.load(None, trial.setting)
        digits = experiment.data.train_digits
        assert digits <= 5
        assert not experiment.data.priming
        # The lengths of the record are tested for the first time when training is over.
        assert experiment.lengths == experiment.final_lengths == [digits]
        # Longer ones take minutes.
        most = 20 if trial.second_digits == "same" else 30 if trial.operands else 100
        few = 100 if (trial.operands or 0) > 30 else 1000
        assert all(count >= few for length, count in trial.tests.items() if length <= most)
        assert set(trial.goals) <= set(trial.tests)


@pytest.mark.parametrize(
    ("setting", "parameters"),
    [
        (SUM, 12_783),
        (LONG_MULTIPLICATION, 48_271),
        (RUNNING_SUMS, 13_071),
        (GRID, 13_071),
        (DECIMAL_GRID, 48_271),
    ],
)
def test_models_have_the_published_size(setting: dict[str, Any], parameters: int) -> None:
    solver = keys.load(None, setting).build()
    assert sum(p.numel() for p in solver.parameters()) == parameters


def test_a_record_is_trained_measured_and_written_once(
    tiny: None, in_process: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    contents = make("tiny", [3, 4], tmp_path)
    trial = contents["trials"]["sum"]
    assert trial["seeds"] == [3, 4]
    for length, count in ((5, 6), (30, 4)):
        tested = trial["lengths"][length]
        shares = [seed["exact_match"] for seed in tested["by seed"]]
        assert [seed["examples"] for seed in tested["by seed"]] == [count, count]
        assert tested["mean"] == sum(shares) / 2
        assert tested["worst"]["exact_match"] == min(shares)
        assert all(s["seconds of CPU"] > 0 and s["peak megabytes"] > 50 for s in tested["by seed"])
    assert {case["length"] for case in trial["stress"]} == {3}
    assert all(len(case["by seed"]) == 2 for case in trial["stress"])
    cases = [case["case"] for case in trial["stress"]]
    assert "random" in cases
    assert trial["stress, fewest iterations"] == []  # of models with hidden vectors only
    folder = tmp_path / "results" / "records"
    assert (folder / "tiny.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "tiny.json").read_text())["trials"]["sum"]["seeds"] == [3, 4]
    text = (folder / "tiny.md").read_text()
    assert "](tiny.png)" in text
    assert "| seed 3 | seed 4 | mean | worst seed, 95 % interval |" in text
    assert "50.0 %: 0 of 2 seeds" in text
    # Nothing is trained or measured again.
    assert "seed 4, accuracy: 30 digits" in capfd.readouterr().err
    again = make("tiny", [3, 4], tmp_path)
    assert list(markdown(again)) == list(markdown(contents))
    assert "digits" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_take_something_from_the_record(name: str) -> None:
    """The first row is the record itself, and no other has its model and training."""
    record = next(iter(RECORDS[name].trials.values()))
    trials = ABLATIONS[name].trials
    found = {label: keys.load(None, trial.setting) for label, trial in trials.items()}
    assert found["nothing"] == keys.load(None, record.setting)
    distinct = {experiment.model_dump_json() for experiment in found.values()}
    assert len(distinct) == len(found)
    for label, experiment in found.items():
        digits = experiment.data.train_digits
        assert digits <= 5, label
        assert experiment.lengths == experiment.final_lengths == [digits]
        assert trials[label].second_digits == record.second_digits


def test_ablations_are_one_table(
    in_process: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = {
        "nothing": Trial({**SUM, **SMALL}, {5: 6, 30: 4}),
        "the order": Trial({**SUM, **SMALL, "layout.order": "most-significant-first"}, {5: 6}),
    }
    monkeypatch.setitem(ABLATIONS, "tiny", LengthRecord("sums, hardly trained", trials))
    display = Display(console=Console(file=io.StringIO()))
    folder = tmp_path / "results"
    contents = make_record(
        "tiny", [3, 4], Local(2), tmp_path / "runs", folder, display, ablations=True
    )
    text = (folder / "records" / "tiny-ablations.md").read_text()
    assert json.loads((folder / "records" / "tiny-ablations.json").read_text())["ablations"]
    wrong = [rule["wrong"] for rule in contents["trials"]["nothing"]["rule"]]
    assert len(wrong) == 2
    assert f"| {wrong[0]:,}, {wrong[1]:,} |" in text
    (order,) = [line for line in text.splitlines() if line.startswith("| the order |")]
    assert order.split(" | ")[2] == ""  # no proof by cases
    assert order.endswith("|  |")  # no test of 30 digits
    with pytest.raises(UsageError, match="there are no ablations of 'additon'"):
        make_record("additon", [3], Local(2), tmp_path, folder, display, ablations=True)


def test_long_problems_can_be_limited() -> None:
    trial = Trial(SUM, {5: 100, 2000: 100}, {}, {5: 9, 2000: 9})
    limited = limit_long_problems(LengthRecord("sums", {"sum": trial}), 3).trials["sum"]
    assert (limited.tests, limited.stress_tests) == ({5: 100, 2000: 3}, {5: 9, 2000: 3})


def test_trials_share_models(
    in_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    setting = {**LONG_MULTIPLICATION, **SMALL}
    setting["task"] = {"kind": "multiplication", "second_digits": 2}
    trials = {
        "n×2": Trial(setting, {5: 6}),
        "n×4": Trial(setting, {5: 6}, {}, {3: 2}, 4),
        "n×n": Trial(setting, {5: 6}, {}, {}, "same"),
    }
    monkeypatch.setitem(RECORDS, "tiny", LengthRecord("products, hardly trained", trials))
    contents = make("tiny", [3], tmp_path)
    assert len({name for trial in contents["trials"].values() for name in trial["runs"]}) == 1
    second = [trial["digits of the second operand"] for trial in contents["trials"].values()]
    assert second == ["as trained", 4, "same"]
    log = capfd.readouterr().err
    assert all(f"accuracy: 5 digits{by}, 6 problems" in log for by in ("", " by 4", " by same"))
    text = "\n".join(markdown(contents))
    assert text.count("| what the model is given |") == 1
    assert "rows of partial products and sums" in text
    assert text.count("The same models.") == 2


def test_a_model_of_fixed_depth_is_stressed_at_one_depth() -> None:
    parts = []
    for kind in ("rewrite", "until-stable", "fixed"):
        depth = {} if kind == "rewrite" else {"model.depth": kind, "model.attention": "positional"}
        trial = Trial({**SUM, **SMALL, **depth}, {5: 6}, {}, {3: 2})
        experiment = keys.load(None, trial.setting)
        parts.append([part for part, *_ in measurements(trial, experiment, experiment.build())])
    deep = ["accuracy", "stress", "stress, fewest iterations"]
    assert parts == [["accuracy", "rule", "stress"], deep, ["accuracy", "stress"]]


def test_a_summary_keeps_the_spread_of_seeds(tmp_path: Path) -> None:
    """One bad seed is visible, whatever the mean; its interval is of that model alone."""
    trial = Trial({**SUM, **SMALL}, {100: 1000}, {100: 0.99})
    runs = [Run.create(keys.load(None, {**trial.setting, "seed": s}), tmp_path) for s in (0, 1)]
    for run in runs:
        result = {"evaluation": [], "parameters": 7, "seconds": 60}
        environment = {"sessions": [{"commit": f"commit {run.experiment.seed}"}]}
        with run.locked():
            run.write({"result.json": to_json(result), "environment.json": to_json(environment)})
    good = {
        "exact_match": 1.0,
        "low": 0.996,
        "high": 1.0,
        "seconds of CPU": 500,
        "peak megabytes": 100,
    }
    bad = {
        "exact_match": 0.5,
        "low": 0.47,
        "high": 0.53,
        "seconds of CPU": 1500,
        "peak megabytes": 200,
    }
    results: list[dict[str, Any]] = [{"accuracy": {100: good}}, {"accuracy": {100: bad}}]
    summary = summarise_trial(trial, runs, results, {"layout": "fitted"})
    assert summary["lengths"][100]["worst"] == bad
    text = "\n".join(markdown({"record": "x", "title": "x", "trials": {"sum": summary}}))
    row = "| 100 | 1000 | 100 % | 50.0 % | 75.0 % | 47.00–53.00 % | 1 | 200 |"
    assert f"{row} 99.0 %: 1 of 2 seeds |" in text
    assert "| layout | fitted |" in text
    assert "| commit | commit 0, commit 1 |" in text


def test_the_description_is_measured_on_the_batches() -> None:
    short = describe_training(keys.load(None, {**SUM, **SMALL, "training.steps": 50}))
    assert short["training problems"] == "200, with operands of up to 5 and 5 digits"
    assert short["longest carry chain in training"] in ("4 digits", "5 digits")
    assert short["special problems in training"] == "20% repeated-digits, 30% carry-chains"
    assert short["attention"] == "columns"
    changes = {"data.priming": {10: 50}, "training.steps": 30}
    primed = describe_training(keys.load(None, {**SUM, **SMALL, **changes}))
    assert "operands of up to 10 and 10 digits" in primed["training problems"]
    assert primed["targets"] == "the answer"


@pytest.mark.parametrize("targets", ["rows", "answer"])
def test_the_description_says_what_the_loss_asks_for(targets: str) -> None:
    changes = {"layout.targets": targets, "training.steps": 1, "model.depth.teacher_forcing": False}
    described = describe_training(keys.load(None, {**LONG_MULTIPLICATION, **SMALL, **changes}))
    rows = ", and the rows of partial products and sums" if targets == "rows" else ""
    assert described["targets"] == f"the answer{rows}"


def test_measuring_ends_when_its_parent_is_killed() -> None:
    code = (
        "import os, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from lengthwise.frontier.make import end_with_parent\n"
        "pool = ProcessPoolExecutor(1, get_context('spawn'), end_with_parent)\n"
        "print(pool.submit(os.getpid).result(), flush=True)\n"
        "pool.submit(time.sleep, 1000).result()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    status = Path(f"/proc/{worker}/status")
    for _ in range(600):
        if not status.exists() or "zombie" in status.read_text():
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker went on")


def test_the_command_prints_the_page_and_the_runs(
    tiny: None,
    in_process: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["record", "tiny", "--seed", "7"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "`lengthwise record tiny --seed 7 --seeds 1`" in text
    assert "Record: sums, hardly trained" in text
    assert "runs/addition-relative-bias-" in text
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"]["sum"]["seeds"] == [7]


def test_a_record_is_made_by_processes(tiny: None, tmp_path: Path) -> None:
    assert make("tiny", [0], tmp_path)["trials"]["sum"]["seeds"] == [0]


def test_the_recipe_is_local_and_discrete() -> None:
    """What the page says of the records: two columns, written digits, any length."""
    experiment = keys.load(None, {"task": "addition", **COLUMNS})
    assert experiment.model.attention.kind == "columns"
    assert experiment.model.depth.kind == "rewrite"
    layout = experiment.build().layout
    assert layout.fits_any_length
    assert layout.least_first


def kill_itself(trial: Trial, path: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_measuring_process_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lengthwise.frontier.make.measure", kill_itself)
    run = Run.create(keys.load(None, {**SUM, **SMALL}), tmp_path)
    with (
        pytest.raises(UsageError, match="was killed; the same command goes on from there"),
        measuring_processes(1) as pool,
    ):
        measure_all(pool, Trial(SUM, {5: 1}), [run])
