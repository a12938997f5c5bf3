"""Every table and figure of the paper, from its runs to the report, at the scale that takes seconds."""

import json
from pathlib import Path

import pytest
from lengthwise.paper.figure_finetuning_priming import BASE, tuned
from lengthwise.runs import Run

from lengthwise.cli import main
from lengthwise.paper import ARTEFACTS
from lengthwise.paper.records import plan
from lengthwise.sweep import ENGINES
from lengthwise.training import train


def test_every_artefact_runs_and_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main("paper run --all --scale smoke --seeds 1".split()) == 0
    assert main("paper list --scale smoke --seeds 1 --json".split()) == 0
    costs = json.loads(capsys.readouterr().out.partition("shows them\n")[2])
    assert list(costs) == list(ARTEFACTS)
    assert all(cost["done"] == cost["runs"] > 0 for cost in costs.values())
    trained = sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors"))
    assert main("paper run --all --scale smoke --seeds 1".split()) == 0
    assert trained == sorted(path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors"))
    assert main("paper report --scale smoke".split()) == 0
    report = (tmp_path / "results" / "smoke" / "report.md").read_text()
    for artefact in ARTEFACTS.values():
        assert f"## {artefact.where}: {artefact.title}" in report
    assert "missing" not in report
    assert "| holds |" not in report  # no verdict is drawn from this scale
    figures = {path.stem for path in tmp_path.rglob("*.png")}
    assert figures == {path.stem for path in tmp_path.rglob("*.pdf")}
    assert {name for name in ARTEFACTS if name.startswith("figure-")} <= figures


@pytest.fixture
def here(monkeypatch):
    """The simplest engine: one run after the other, in this process."""
    trained = []

    def engine(runs, jobs, display):
        for run in runs:
            for progress in train(run):
                display.show(progress)
            trained.append(run.path.name)
            yield run, None

    monkeypatch.setitem(ENGINES, "here", engine)
    return trained


def test_failed_runs_are_skipped_until_they_are_retried(tmp_path, capsys, monkeypatch, here):
    """With them goes what starts from them."""
    monkeypatch.chdir(tmp_path)
    artefact = ARTEFACTS["figure-finetuning-priming"]
    planned = {p.label: p for p in plan(artefact, "smoke", range(1), Path("runs"))}
    base = Run.create(planned[BASE].experiment, "runs")
    fine = Run.create(planned[tuned(20)].experiment, "runs")
    with base.locked():
        base.fail("the loss is nan at step 2", 2)
    base.checkpoint.write_bytes(b"of no use")  # a retry is from the start
    words = [*f"paper run {artefact.name} --scale smoke --seeds 1 --on here --only".split(), tuned(20)]
    assert main(words) == 0
    told = capsys.readouterr().err.strip()
    assert told == "runs skipped, as they failed before or start from one that did: 2 (--retry trains them)"
    assert here == []
    assert (base.status, fine.status) == ("failed", "interrupted")
    assert main([*words, "--retry"]) == 0
    assert "skipped" not in capsys.readouterr().err
    assert here == [base.path.name, fine.path.name]
    assert (base.status, fine.status) == ("finished", "finished")
    assert len(list(tmp_path.glob("results/smoke/runs/*.json"))) == 2
