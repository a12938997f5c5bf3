"""Every table and figure of the paper, from its runs to the report, at the scale that takes seconds."""

import json

from lengthwise.cli import main
from lengthwise.paper import ARTEFACTS


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
