"""Seeds that are trained as one batched model: the same as runs on their own, in every way."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import advance, read_tensors

from lengthwise.base import UsageError
from lengthwise.cli.main import main
from lengthwise.model.attention import FullAttention
from lengthwise.model.pairs import Pairs
from lengthwise.sweep import Local, build_engine, local, run_all
from lengthwise.training import keys
from lengthwise.training.display import Display
from lengthwise.training.loop import Session, train
from lengthwise.training.runs import Run
from lengthwise.training.seeds import decline_reason, train_seeds

SETTINGS: dict[str, Any] = {
    "model.preset": "tiny",
    "model.activation": "gelu",  # rounding can switch a relu on, which makes it more than rounding
    "data.test_digits": 8,
    "training.steps": 50,
    "training.batch_size": 16,
    "training.log_every": 7,
    "training.checkpoint_every": 10,
    "evaluation.every": 25,
    "evaluation.examples": 40,
    "evaluation.final_examples": 60,
}
CASES: dict[str, dict[str, Any]] = {
    "the paper's": {"data.priming": "8=20"},
    "layers of their own, pre-norm": {
        "model.encoder": "transformer",
        "model.norm": "pre",
        "model.position": "absolute",
    },
    "positions of problems, Muon": {
        "model.position": {"kind": "rope", "coordinate": "significance"},
        "training.optimizer": "muon",
        "training.ema": 0.9,
    },
    "batches of different lengths": {
        "layout": "fitted",
        "data.priming": "8=3",
        "model.position": "rope",  # AdamW makes full steps of the tiny gradients of rare distances
    },
    "different depths": {"model.depth": {"kind": "until-stable", "extra_layers": 3}},
    "local attention": {
        "model.attention": "local",
        "layout.order": "least-significant-first",
        "model.position": {"kind": "relative-key", "coordinate": "significance", "clip": 4},
    },
    "teacher forcing": {
        "layout": {"kind": "fitted", "order": "least-significant-first"},
        "model.attention": "columns",
        "model.depth": {"kind": "rewrite", "teacher_forcing": True},
        "model.position": {"kind": "relative-bias", "coordinate": "significance", "clip": 1},
    },
}


def create(root: Path, count: int = 3, **changes: Any) -> list[Run]:
    """Runs that differ in their seeds only; `training__steps=8` is training.steps."""
    fields = {**SETTINGS, **{key.replace("__", "."): v for key, v in changes.items()}}
    return [Run.create(keys.load(None, {**fields, "seed": n}), root) for n in range(count)]


def train_together(runs: list[Run]) -> None:
    failures: dict[Run, str] = {}
    for _ in train_seeds(runs, failures):
        pass
    assert not failures


def assert_same(runs: list[Run], others: list[Run]) -> None:
    """The same to rounding: weights, losses, and how many answers were right."""
    for run, other in zip(runs, others, strict=True):
        own, theirs = run.load().state_dict(), other.load().state_dict()
        assert own.keys() == theirs.keys()
        for name, tensor in own.items():
            if not name.endswith("attention.key.bias"):  # whose gradient is rounding only
                torch.testing.assert_close(tensor, theirs[name], rtol=0, atol=1e-5, msg=name)
        for mine, its in zip(run.metrics, other.metrics, strict=True):
            assert mine.pop("loss", 0) == pytest.approx(its.pop("loss", 0), abs=1e-5)
            assert mine == its
        assert run.result is not None
        assert other.result is not None
        assert {**run.result, "seconds": 0} == {**other.result, "seconds": 0}


@pytest.mark.parametrize("case", CASES)
def test_seeds_together_are_as_runs_on_their_own(tmp_path: Path, case: str) -> None:
    together, alone = (create(tmp_path / name, **CASES[case]) for name in ("together", "alone"))
    assert decline_reason(together[0].experiment) is None
    train_together(together)
    for run in alone:
        list(train(run))
    assert_same(together, alone)
    for run in together:
        assert [s["computed by"] for s in run.sessions()] == [
            "PyTorch: it is one of 3 seeds of a batched model"
        ]
        assert not run.checkpoint.exists()
    weights = [run.load().encoder.classifier.weight for run in together]
    assert not torch.equal(weights[0], weights[1])


def test_seeds_that_were_stopped_go_on_from_wherever_each_is(tmp_path: Path) -> None:
    """One on its own, one together after having been alone, one together from the start."""
    together, alone = (create(tmp_path / name) for name in ("together", "alone"))
    stopped = train_seeds(together, {})
    for progress in stopped:
        if progress.step == 18:
            break
    stopped.close()  # type: ignore[attr-defined]  # as Ctrl-C does
    assert [run.status for run in together] == ["interrupted"] * 3
    list(train(together[0]))
    advance(together[1], 30)  # it is ahead of the third one now
    train_together(together)
    for run in alone:
        list(train(run))
    assert_same(together, alone)
    begins = [[session["step"] for session in run.sessions()] for run in together]
    assert begins == [[0, 18], [0, 18, 30], [0, 18]]


def test_ctrl_c_saves_all_seeds(tmp_path: Path) -> None:
    runs = create(tmp_path)

    def interrupt() -> None:
        for progress in train_seeds(runs, {}):
            if progress.step == 5 and progress.run == runs[0].path.name:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    for run in runs:
        assert run.status == "interrupted"
        assert read_tensors(run.checkpoint)[1]["step"] == "6"


def test_a_seed_that_fails_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, alone = create(tmp_path / "together"), create(tmp_path / "alone")
    record = Session.record

    def spoil(session: Session, *arguments: Any) -> Any:
        if session.run is runs[1] and session.state.step == 19:
            session.state.solver.encoder.classifier.weight.data.fill_(torch.nan)
        return record(session, *arguments)

    monkeypatch.setattr(Session, "record", spoil)
    failures: dict[Run, str] = {}
    list(train_seeds(runs, failures))
    assert failures.keys() == {runs[1]}
    assert "the loss is nan at step 20" in failures[runs[1]]
    assert [run.status for run in runs] == ["finished", "failed", "finished"]
    for run in alone[::2]:
        list(train(run))
    assert_same(runs[::2], alone[::2])


class Reading(FullAttention):
    """Looks at numbers on their way, which PyTorch can't do for a batch of seeds."""

    def mask(self, scores: torch.Tensor, pairs: Pairs) -> torch.Tensor:
        return scores * 2 if scores.max().item() > 1e9 else scores


def test_what_it_does_not_cover_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(**changes: Any) -> str | None:
        return decline_reason(keys.load(None, {**SETTINGS, **changes}))

    assert reason() is None
    assert reason(compile=True) == "compile is true"
    assert "dropout" in str(reason(**{"model.dropout": 0.1}))
    assert "random positions" in str(reason(**{"model.position": "randomised"}))
    monkeypatch.setattr(FullAttention, "mask", Reading.mask)
    assert "PyTorch can't batch its model: vmap" in str(reason())


def test_a_sweep_trains_seeds_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds of one experiment only; one that can't be batched is trained seed by seed."""
    jobs: list[list[str]] = []
    submit = Local.submit

    def note(engine: Local, submitted: Any) -> None:
        jobs.extend([run.path.name for run in job] for job in submitted)
        submit(engine, submitted)

    monkeypatch.setattr(local.Local, "submit", note)
    small = {"training__steps": 10}
    first, second = (create(tmp_path / "runs", model__heads=n, **small) for n in (1, 2))
    random = create(tmp_path / "runs", 2, model__dropout=0.1, **small)
    names = [[run.path.name for run in runs] for runs in (first, second, random)]
    engine = build_engine("local", 1, None, batch_seeds=2)
    mixed = [run for runs in zip(first, second, strict=True) for run in runs]
    assert dict(run_all([*random, *mixed], engine, Display())) == dict.fromkeys([*mixed, *random])
    singles = [[name] for name in names[2]]
    expected = [names[0][:2], names[1][:2], names[0][2:], names[1][2:]]
    assert jobs == [*singles, *expected]
    assert f"{names[2][0]}: its seeds are trained one by one: dropout" in capsys.readouterr().err
    alone = create(tmp_path / "alone", model__heads=1, **small)
    for run in alone:
        list(train(run))
    assert_same(first, alone)


def test_the_command_takes_it(tmp_path: Path) -> None:
    words = "sweep --model.preset tiny --training.steps 5 --evaluation.final_examples 20 --seed 0:2"
    assert main([*words.split(), "--runs", str(tmp_path), "--batch-seeds", "3"]) == 0
    runs = [Run(path.parent) for path in tmp_path.glob("*/config.yaml")]
    assert len(runs) == 3
    for run in runs:
        assert run.result is not None
        assert "one of 3 seeds" in run.sessions()[0]["computed by"]
    with pytest.raises(UsageError, match="at least 1 seed"):
        build_engine("local", 1, None, batch_seeds=0)
