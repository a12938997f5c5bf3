"""Many runs at once: what is finished, dependent, failing or killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lengthwise import experiment, sweep
from lengthwise.demo import conclusions, settings
from lengthwise.display import Display
from lengthwise.runs import Run
from lengthwise.sweep import run_all

QUICK = {
    "model.preset": "tiny",
    "training.steps": 5,
    "evaluation.examples": 10,
    "evaluation.final_examples": 10,
}


def make(root, **keys) -> Run:
    return Run.create(experiment.load(None, {**QUICK, **{key.replace("__", "."): v for key, v in keys.items()}}), root)


def test_dependent_runs_wait_failures_are_told_and_the_rest_goes_on(tmp_path):
    base = make(tmp_path)
    tuned = make(tmp_path, start_from=str(base.path), seed=1)
    bad = make(tmp_path, training__learning_rate=1e38, training__warmup_steps=0)
    hopeless = make(tmp_path, start_from=str(bad.path))
    ends = list(run_all([tuned, base, hopeless, bad], 2, Display()))
    reasons = {run.path: reason for run, reason in ends}
    assert reasons[base.path] is None
    assert reasons[tuned.path] is None
    assert "the loss is nan" in reasons[bad.path]
    assert "which failed" in reasons[hopeless.path]
    assert (bad.status, hopeless.status) == ("failed", "interrupted")
    order = [run.path for run, _ in ends]
    assert order.index(base.path) < order.index(tuned.path)
    before = (base.path / "model.safetensors").stat().st_mtime_ns
    assert [reason for _, reason in run_all([base, tuned], 2, Display())] == [None, None]
    assert (base.path / "model.safetensors").stat().st_mtime_ns == before


def test_a_crash_costs_only_its_own_run(tmp_path):
    bad = make(tmp_path, model__width=10_000_000)  # more memory than there is
    good = make(tmp_path, seed=1)
    unfinished = make(tmp_path, seed=2)
    left_out = make(tmp_path, start_from=str(unfinished.path))
    reasons = {run.path: reason for run, reason in run_all([bad, good, left_out], 1, Display())}
    assert reasons[bad.path].startswith("RuntimeError")
    assert reasons[good.path] is None
    assert "which hasn't finished" in reasons[left_out.path]


def test_runs_are_trained_where_they_are_asked_to_be(tmp_path):
    """Whatever their directory says, which may be from another machine."""
    run = make(tmp_path, device="cuda")
    run.experiment = run.experiment.model_copy(update={"device": "cpu"})
    assert [reason for _, reason in run_all([run], 1, Display())] == [None]


def test_workers_save_and_stop_when_the_parent_is_killed(tmp_path):
    """Then the runs can be gone on with at once, by another process."""
    code = (
        "import sys\nfrom lengthwise.runs import Run\nfrom lengthwise.sweep import run_all\n"
        "from lengthwise.display import Display\n"
        "if __name__ == '__main__': list(run_all([Run(sys.argv[1])], 1, Display()))"
    )
    script = tmp_path / "sweep.py"
    script.write_text(code)
    run = make(tmp_path, training__steps=100_000, training__checkpoint_every=50)
    parent = subprocess.Popen([sys.executable, str(script), str(run.path)], stderr=subprocess.DEVNULL)
    while not run.checkpoint.exists():
        assert parent.poll() is None
        time.sleep(0.05)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 60
    while run.status == "running" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert run.status == "interrupted"


def test_a_killed_worker_is_noticed_while_others_go_on_and_these_save_when_stopped(tmp_path, monkeypatch):
    processes = {}

    def start(worker, run):
        processes[run.path.name] = worker.process
        begin(worker, run)

    class Killing(Display):
        def show(self, progress):
            if progress.run == doomed.path.name:
                processes[progress.run].kill()

    begin = sweep.Worker.start
    monkeypatch.setattr(sweep.Worker, "start", start)
    doomed, other = (make(tmp_path, training__steps=5000, seed=seed) for seed in (0, 1))
    ends = run_all([doomed, other], 2, Killing())
    run, reason = next(ends)
    assert run.path == doomed.path
    assert reason == "its process ended with exit code -9"
    ends.close()  # what Ctrl-C does
    assert other.status == "interrupted"
    assert other.checkpoint.exists()


def test_the_demo_from_end_to_end(tmp_path):
    words = [sys.executable, "-m", "lengthwise", "demo", "--smoke"]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert all(name in shown for name in settings())
    assert (tmp_path / "runs" / "demo.png").stat().st_size > 10_000
    command = next(line for line in shown.splitlines() if "solve runs/" in line)
    run, problem = command.partition("solve ")[2].split(maxsplit=1)
    solve = [sys.executable, "-m", "lengthwise", "solve", run, problem.strip('"')]
    assert (
        "999999 + 123456 = " in subprocess.run(solve, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    )
    again = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "step" not in again.stderr  # nothing was trained again


@pytest.mark.slow
def test_the_demo_shows_the_effects(tmp_path):
    words = [sys.executable, "-m", "lengthwise", "demo"]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    for effect in (
        "Only relative embeddings carry over",
        "A handful of long examples is enough",
        "Fine-tuning forgets",
    ):
        assert effect in " ".join(shown.split())


def cells(**shares: float) -> dict:
    return {int(n[1:]): {"exact_match": s, "low": s - 0.02, "high": s + 0.02} for n, s in shares.items()}


def test_the_demo_claims_only_what_the_numbers_support():
    effects = {
        "sum, relative-key": cells(n5=0.9, n6=0.5),
        "sum, absolute": cells(n5=0.9, n6=0.0),
        "n×1, no priming": cells(n5=0.9, n10=0.0),
        "n×1, primed": cells(n5=0.9, n10=0.8),
        "n×1, fine-tuned": cells(n5=0.2, n10=0.8),
    }
    assert not any("Here that shows no" in sentence for sentence in conclusions(effects))
    none = dict.fromkeys(effects, cells(n5=0.5, n6=0.5, n10=0.5))
    assert all("Here that shows no" in sentence for sentence in conclusions(none))
