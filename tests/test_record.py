"""Length records: what is trained, measured, kept and written; and what the command line makes of it."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from lengthwise import record
from lengthwise.cli import main
from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.experiment import load
from lengthwise.record import RECORDS, LengthRecord, Trial, make, seen
from lengthwise.record_page import page

TINY = {"task": "addition", **record.LOCAL, "model.width": 16, "model.heads": 2, "data.train_size": 100}
TINY |= {"training.steps": 3, "training.batch_size": 4, "evaluation.final_examples": 4, "evaluation.examples": 4}


@pytest.fixture
def tiny(monkeypatch):
    trial = Trial(TINY, {5: 6, 30: 4}, {30: 0.5}, {3: 2})
    monkeypatch.setitem(RECORDS, "tiny", LengthRecord("sums, hardly trained", {"sum": trial}))


@pytest.mark.parametrize("name", RECORDS)
def test_settings_are_valid_and_train_on_short_numbers_only(name):
    for trial in RECORDS[name].trials.values():
        experiment = load(None, trial.setting)
        assert experiment.data.train_digits == 5
        most = 10 if trial.second_digits == "same" else 1000  # longer ones take minutes each
        assert all(many >= 1000 for length, many in trial.tests.items() if length <= most)
        assert set(trial.goals) <= set(trial.tests)
        # Nothing that is tested can have been seen while the model was chosen or trained.
        assert experiment.lengths == experiment.final_lengths == [5]


def test_a_record_is_trained_measured_and_written(tiny, tmp_path, capfd):
    display = Display(console=Console(file=io.StringIO()))
    written = make("tiny", [3, 4], 2, tmp_path / "runs", tmp_path / "results", display)
    trial = written["trials"]["sum"]
    assert trial["seeds"] == [3, 4]
    assert trial["seen in training"]["digits of the longest operands"] <= [5, 5]
    for length, many in ((5, 6), (30, 4)):
        tested = trial["lengths"][length]
        assert tested["problems a seed"] == many
        assert tested["worst"] == min(tested["by seed"]) <= tested["mean"]
        assert tested["low"] <= tested["mean"] <= tested["high"]
    assert {case["length"] for case in trial["stress"]} == {3}
    assert [c["case"] for c in trial["stress"]] == [c["case"] for c in trial["stress, no deeper than trained"]]
    assert (tmp_path / "results/records/tiny.png").read_bytes().startswith(b"\x89PNG")
    text = (tmp_path / "results/records/tiny.md").read_text()
    assert "](tiny.png)" in text
    assert "50.0 %: missed" in text
    assert json.loads((tmp_path / "results/records/tiny.json").read_text())["trials"]["sum"]["seeds"] == [3, 4]
    # All of it is known now: nothing is trained or measured again.
    assert "seed 4, evaluation: 30 digits" in capfd.readouterr().err
    again = make("tiny", [3, 4], 2, tmp_path / "runs", tmp_path / "results", display)
    assert list(page(again)) == list(page(written))
    assert "digits" not in capfd.readouterr().err


def test_what_measures_ends_if_its_parent_is_killed():
    code = (
        "import os, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from lengthwise.record import end_with_parent\n"
        "pool = ProcessPoolExecutor(1, get_context('spawn'), end_with_parent)\n"
        "print(pool.submit(os.getpid).result(), flush=True)\n"
        "pool.submit(time.sleep, 1000).result()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
    status = Path(f"/proc/{worker}/status")
    for _ in range(600):
        if not status.exists() or "zombie" in status.read_text():
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("it went on")


def test_trials_that_share_a_model_are_trained_once(tmp_path, monkeypatch, capfd):
    setting = {**record.LONG_MULTIPLICATION, **{key: TINY[key] for key in TINY if key not in record.LOCAL}}
    setting |= {"task": {"kind": "multiplication", "second_digits": 2}, "data.train_size": 100}
    trials = {"n×2": Trial(setting, {5: 6}), "n×4": Trial(setting, {5: 6}, {}, {3: 2}, 4)}
    trials["n×n"] = Trial(setting, {5: 6}, {}, {}, "same")
    monkeypatch.setitem(RECORDS, "tiny", LengthRecord("products, hardly trained", trials))
    display = Display(console=Console(file=io.StringIO()))
    written = make("tiny", [3], 1, tmp_path / "runs", tmp_path / "results", display)
    assert len({name for trial in written["trials"].values() for name in trial["runs"]}) == 1
    asked = [trial["digits of the second operand"] for trial in written["trials"].values()]
    assert asked == ["as trained", 4, "same"]
    told = capfd.readouterr().err
    assert all(f"evaluation: 5 digits{by}, 6 problems" in told for by in ("", " by 4", " by same"))
    shown = "\n".join(page(written))
    assert shown.count("Seen in training") == 1
    assert shown.count("The same models.") == 2


def test_a_model_of_fixed_depth_is_stressed_at_one_depth(tmp_path, monkeypatch):
    monkeypatch.setitem(
        RECORDS, "tiny", LengthRecord("fixed", {"sum": Trial({**TINY, "model.patience": None}, {5: 6}, {}, {3: 2})})
    )
    written = make(
        "tiny", [0], 1, tmp_path / "runs", tmp_path / "results", Display(console=Console(file=io.StringIO()))
    )
    assert written["trials"]["sum"]["stress"]
    assert written["trials"]["sum"]["stress, no deeper than trained"] == []
    assert " / " not in "\n".join(page(written))


def test_what_was_seen_is_measured_on_the_batches():
    short = seen(load(None, TINY))
    assert short["examples"] == 12
    assert max(short["digits of the longest operands"]) <= 5
    assert short["longest chain of carries"] <= 5
    primed = seen(load(None, {**TINY, "data.priming": {10: 50}, "training.steps": 30}))
    assert primed["digits of the longest operands"] == [10, 10]


def test_an_unknown_record_is_told_with_the_known_ones(tmp_path):
    with pytest.raises(UsageError, match=r"there is no record 'addtion'.*addition"):
        make("addtion", [0], 1, tmp_path, tmp_path, Display())


@pytest.mark.parametrize("words", ["--seeds 0", "--jobs 0"])
def test_no_seeds_and_no_jobs_are_refused(words, tiny, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["record", "tiny", *words.split()])
    assert f"argument {words.split()[0]}: it is at least 1" in capsys.readouterr().err


def test_command(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["record", "tiny", "--seed", "7", "--jobs", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"]["sum"]["seeds"] == [7]
    assert main(["record", "tiny", "--seed", "7", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    assert "`lengthwise record tiny --seed 7 --seeds 1`" in shown
    assert "Record: sums, hardly trained" in shown
    assert "runs/addition-relative-bias-" in shown
