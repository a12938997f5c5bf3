"""Every artefact from its runs to the report, at the scale that takes seconds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from lengthwise.base import UsageError
from lengthwise.base.extensions import import_files
from lengthwise.paper import ARTEFACTS
from lengthwise.paper.experiments import UNPRIMED, fine_tuned_label
from lengthwise.paper.records import plan_seed
from lengthwise.paper.report import write_report
from lengthwise.paper.running import cost, run_artefacts
from lengthwise.sweep import End, Engine, Job
from lengthwise.training.display import Display
from lengthwise.training.loop import Progress, train
from lengthwise.training.runs import Run


@dataclass
class HereEngine(Engine):
    """The simplest engine: one run after the other, in this process."""

    here: ClassVar[bool] = True
    submitted: list[Run] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)

    def submit(self, jobs: Sequence[Job]) -> None:
        self.submitted += [run for job in jobs for run in job]

    def poll(self) -> Iterator[Progress | End]:
        run = self.submitted.pop()
        yield from train(run)
        self.trained.append(run.path.name)
        yield End(run)

    def stop(self) -> None:
        assert not self.submitted


def run_smoke(names: Sequence[str], folder: Path, **options: object) -> HereEngine:
    engine = HereEngine()
    with Display() as display:
        failed = run_artefacts(
            [ARTEFACTS[name] for name in names],
            "smoke",
            1,
            engine,
            folder / "results",
            folder / "runs",
            "cpu",
            display,
            **options,  # type: ignore[arg-type]
        )
    assert not failed
    return engine


def test_every_artefact_runs_and_is_reported(tmp_path: Path) -> None:
    results, runs, out = tmp_path / "results", tmp_path / "runs", tmp_path / "out"
    assert run_smoke(list(ARTEFACTS), tmp_path).trained
    for artefact in ARTEFACTS.values():
        found = cost(artefact, "smoke", 1, results, runs)
        assert found.done == found.runs > 0
    assert not run_smoke(list(ARTEFACTS), tmp_path).trained
    write_report("smoke", results, runs, out, list(ARTEFACTS.values()))
    report = (out / "report.md").read_text()
    for artefact in ARTEFACTS.values():
        section = report.partition(f"## {artefact.where}: {artefact.title}\n")[2].partition(
            "\n## "
        )[0]
        assert section
        assert "missing" not in section
    assert "| holds |" not in report  # no verdict is drawn from this scale
    figures = {name for name, artefact in ARTEFACTS.items() if artefact.has_figure}
    assert {path.stem for path in out.glob("*.png")} == figures
    assert {path.stem for path in out.glob("*.pdf")} == figures


def test_failed_runs_are_skipped_until_they_are_retried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runs that start from them are skipped, too."""
    name, tuned = "figure-finetuning-priming", fine_tuned_label(20)
    planned = plan_seed(ARTEFACTS[name], "smoke", 0, tmp_path / "runs")
    base = Run.create(planned[UNPRIMED].experiment, tmp_path / "runs")
    fine = Run.create(planned[tuned].experiment, tmp_path / "runs")
    with base.locked():
        base.fail("the loss is nan at step 2", 2)
    base.checkpoint.write_bytes(b"of no use")  # a retry starts anew
    assert not run_smoke([name], tmp_path, only=[tuned]).trained
    assert capsys.readouterr().err.startswith(
        "2 runs skipped: they failed before or start from one"
    )
    assert (base.status, fine.status) == ("failed", "interrupted")
    assert run_smoke([name], tmp_path, only=[tuned], retry=True).trained == [
        base.path.name,
        fine.path.name,
    ]
    assert len(list(tmp_path.glob("results/smoke/runs/*.json"))) == 2
    with pytest.raises(UsageError, match=r"no condition .* has 'fine-tned'"):
        run_smoke([name], tmp_path, only=["fine-tned"])


OWN = """
from lengthwise.paper.artefact import Artefact, Claim, accuracy_grid, artefact
from lengthwise.paper.drawing import BLUE, finish, line, panels
from lengthwise.paper.experiments import addition
from lengthwise.paper.verdicts import at_least


@artefact("own-artefact", "Ours", "Sums of our own")
class Own(Artefact):
    claims = (Claim("6 digits are solved", lambda r: at_least(r.accuracy("sums", 6), 0.5)),)

    def conditions(self, scale):
        return {"sums": addition(scale, "RPE_k")}

    def grids(self, results):
        return {"Exact match (%)": accuracy_grid(results, ["sums"], [5, 6])}

    def draw(self, results, figure):
        (axis,) = panels(figure, "sums", columns=1)
        line(axis, {n: results.exact_match("sums", n) for n in (5, 6)}, "sums", BLUE)
        finish(figure)
"""


def test_an_artefact_in_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LENGTHWISE_IMPORT", raising=False)
    file = tmp_path / "own_artefact.py"
    file.write_text(OWN)
    try:
        import_files([str(file)])
        own = ARTEFACTS["own-artefact"]
        assert len(run_smoke(["own-artefact"], tmp_path).trained) == 1
        write_report("smoke", tmp_path / "results", tmp_path / "runs", tmp_path / "out", [own])
        assert "## Ours: Sums of our own" in (tmp_path / "out" / "report.md").read_text()
        assert (tmp_path / "out" / "own-artefact.png").stat().st_size > 5000
        other = tmp_path / "another.py"
        other.write_text(OWN)
        with pytest.raises(UsageError, match="the artefact 'own-artefact' exists already"):
            import_files([str(other)])
    finally:
        ARTEFACTS.pop("own-artefact", None)
        monkeypatch.delenv("LENGTHWISE_IMPORT", raising=False)
