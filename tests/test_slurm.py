"""A real SLURM on this machine: jobs are cancelled, run out of time and lose their daemon."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from many_runs import (
    ActingDisplay,
    assert_same_as_here,
    assert_seeds_same_as_here,
    create,
    create_seeds,
    holders,
    sessions,
    wait_until,
)
from slurm_here import SlurmHere

from lengthwise.base.files import read_json
from lengthwise.cli.main import main
from lengthwise.cli.runs import add_states
from lengthwise.sweep import Engine, build_engine, run_all
from lengthwise.sweep.slurm import read_job
from lengthwise.training.display import Display
from lengthwise.training.overview import overview
from lengthwise.training.runs import Run

pytestmark = pytest.mark.slurm
SCRIPT = """
import sys
from lengthwise.base.extensions import import_files
from lengthwise.sweep import build_engine, run_all
from lengthwise.training.display import Display
from lengthwise.training.runs import Run

import_files()
for run, reason in run_all([Run(path) for path in sys.argv[1:]], build_engine("slurm"), Display()):
    print(run.path.name, reason, flush=True)
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmHere]:
    slurm = SlurmHere(tmp_path_factory.mktemp("slurm"))
    slurm.start()
    yield slurm
    slurm.stop()


@pytest.fixture
def slurm(daemons: SlurmHere, monkeypatch: pytest.MonkeyPatch) -> SlurmHere:
    monkeypatch.setenv("SLURM_CONF", daemons.environment["SLURM_CONF"])
    return daemons


def engine(**options: object) -> Engine:
    return build_engine("slurm", None, {"slurm": options})


def test_a_sweep_is_one_array(slurm: SlurmHere, tmp_path: Path) -> None:
    """Beside runs that fail, and one that waits for another."""
    first, second = (create(tmp_path / "slurm", seed=seed, training__steps=50) for seed in (0, 1))
    tuned = create(tmp_path / "slurm", start_from=str(first.path), training__steps=50)
    diverging = create(
        tmp_path / "slurm", training__learning_rate=1e38, training__warmup_steps=0, seed=3
    )
    runs = [tuned, first, second, diverging]
    own = engine(partition="short", set=["comment=ours", "--exclusive=user"])
    ends = dict(run_all(runs, own, Display()))
    assert "the loss is nan" in (ends.pop(diverging) or "")
    assert ends == dict.fromkeys([tuned, first, second])
    jobs = [read_job(run.path) or "" for run in (first, second, diverging)]
    assert len({job.partition("_")[0] for job in jobs}) == 1
    assert [job.partition("_")[2] for job in jobs] == ["0", "1", "2"]
    shown = slurm.ask("scontrol", "show", "job", jobs[0])
    assert "Partition=short" in shown
    assert "Comment=ours" in shown
    assert_same_as_here([first, second, tuned], tmp_path / "here")
    assert sessions(first) == sessions(second) == sessions(tuned) == [0]


def test_the_time_limit_moves_a_run_to_another_job(slurm: SlurmHere, tmp_path: Path) -> None:
    """The checkpoint is of the step at which notice was given, not of the last regular one.

    The limit is set once training has begun, however slowly the job starts.
    """
    slow = {"kind": "slow-adamw", "pause": 1.0}  # a requeued job makes no pauses
    run = create(tmp_path / "slurm", training__optimizer=slow, training__checkpoint_every=100_000)

    def run_out_of_time() -> None:
        job = f"JobId={read_job(run.path)}"
        slurm.ask("scontrol", "update", job, "EndTime=now+3minutes")
        wait_until(run.checkpoint.exists)
        slurm.ask("scontrol", "update", job, "TimeLimit=60")

    own, display = engine(time="60", notice=120), ActingDisplay(run, 5, run_out_of_time)
    assert list(run_all([run], own, display)) == [(run, None)]
    first, second = sessions(run)
    assert first == 0 < second < 400
    shown = slurm.ask("scontrol", "show", "job", read_job(run.path) or "")
    assert "JobState=COMPLETED" in shown
    assert "Restarts=1 " in shown
    assert_same_as_here([run], tmp_path / "here")


def test_a_cancelled_job_saves_and_is_not_tried_again(
    slurm: SlurmHere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another run waits in the queue meanwhile, which `lengthwise runs` shows."""
    root = tmp_path / "slurm"
    run = create(root, training__steps=100_000, training__checkpoint_every=100_000)
    other = create(root, training__steps=100_000, seed=1)
    seen: dict[str, str] = {}

    def cancel() -> None:
        assert main(["runs", "--runs", str(root)]) == 0
        for line in capsys.readouterr().out.splitlines():
            words = line.split()
            seen[words[0]] = " ".join(words[1:3])
        slurm.ask("scancel", read_job(run.path) or "", read_job(other.path) or "")

    own = build_engine("slurm", 1)  # one at a time
    ends = dict(run_all([run, other], own, ActingDisplay(run, 10, cancel)))
    assert seen[str(run.path)].startswith("running")
    assert seen[str(other.path)].startswith("queued")
    for end in ends.values():
        assert "ended as CANCELLED" in (end or "")
    assert (run.status, run.checkpoint.exists()) == ("interrupted", True)
    assert (other.status, other.checkpoint.exists()) == ("interrupted", False)


def test_a_killed_slurmd_loses_nothing(slurm: SlurmHere, tmp_path: Path) -> None:
    """The node is given up; the run goes on in the same job once the node is back."""
    run = create(tmp_path / "slurm")

    def kill() -> None:
        (process,) = holders(run)
        stat = Path(f"/proc/{process}/stat").read_text()
        parent = int(stat.rpartition(")")[2].split()[1])  # slurmstepd, which outlives slurmd
        slurm.kill("slurmd")
        for number in (parent, process):  # as when the machine goes down
            os.kill(number, signal.SIGKILL)
        wait_until(lambda: "down" in slurm.ask("sinfo", "--noheader", "--format=%T"))
        slurm.spawn("slurmd", "-D")

    display = ActingDisplay(run, 50, kill)
    assert list(run_all([run], engine(), display)) == [(run, None)]
    assert display.acted
    first, second = sessions(run)
    assert first == 0 < 40 <= second
    assert_same_as_here([run], tmp_path / "here")


def test_a_killed_process_is_replaced(slurm: SlurmHere, tmp_path: Path) -> None:
    """SLURM calls its job failed, and does not requeue it; the engine submits another one."""
    run = create(tmp_path / "slurm", training__steps=200)
    jobs: list[str | None] = []

    def kill() -> None:
        jobs.append(read_job(run.path))
        (process,) = holders(run)
        os.kill(process, signal.SIGKILL)

    assert list(run_all([run], engine(), ActingDisplay(run, 50, kill))) == [(run, None)]
    assert [read_job(run.path)] != jobs != []
    first, second = sessions(run)
    assert first == 0 < 50 <= second
    assert_same_as_here([run], tmp_path / "here")


def test_a_killed_batch_of_seeds_is_replaced_by_another(slurm: SlurmHere, tmp_path: Path) -> None:
    """`lengthwise runs` shows both seeds as running meanwhile."""
    runs = create_seeds(tmp_path / "slurm")
    jobs: list[str | None] = []
    shown: list[str] = []

    def kill() -> None:
        jobs.extend(read_job(run.path) for run in runs)
        rows = overview(tmp_path / "slurm")
        add_states(rows)
        shown.extend(row["status"] for row in rows)
        (process,) = {*holders(runs[0]), *holders(runs[1])}  # one trains both
        os.kill(process, signal.SIGKILL)

    own = build_engine("slurm", None, {"slurm": {}}, batch_seeds=2)
    assert dict(run_all(runs, own, ActingDisplay(runs[1], 20, kill))) == dict.fromkeys(runs)
    assert shown == ["running", "running"]
    assert len(set(jobs)) == 1
    (job,) = {read_job(run.path) for run in runs}
    assert job not in jobs
    for run in runs:
        first, second = sessions(run)
        assert first == 0 < 10 <= second
    assert_seeds_same_as_here(runs, tmp_path / "here")


def test_a_killed_driver_finds_its_jobs(slurm: SlurmHere, tmp_path: Path) -> None:
    runs = [create(tmp_path / "slurm", seed=seed) for seed in (0, 1)]
    command = [sys.executable, "-c", SCRIPT, *(str(run.path) for run in runs)]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: any(run.checkpoint.exists() for run in runs))
    driver.kill()
    driver.wait()
    before = [read_json(run.path / "job.json") for run in runs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2000)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(w for r in runs for w in (r.path.name, "None"))
    assert [read_json(run.path / "job.json") for run in runs] == before
    assert [sessions(run) for run in runs] == [[0], [0]]
    assert_same_as_here(runs, tmp_path / "here")


def test_ctrl_c_cancels_and_saves(slurm: SlurmHere, tmp_path: Path) -> None:
    run = create(tmp_path, training__steps=100_000, training__checkpoint_every=100_000)

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_all([run], engine(), ActingDisplay(run, 10, stop)))
    wait_until(run.checkpoint.exists)
    wait_until(lambda: run.status == "interrupted")


def test_what_sbatch_refuses_is_said(
    slurm: SlurmHere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "paper run table-elementwise --scale smoke --seeds 1 --on slurm --slurm-partition shrt"
    folders = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    assert main([*words.split(), *folders]) == 2
    text = capsys.readouterr().err
    assert "SLURM refuses `sbatch`" in text
    assert "invalid partition" in text


def test_the_commands_of_the_docs(slurm: SlurmHere, tmp_path: Path) -> None:
    from test_docs import DOCS, commands

    ours = [c for c in commands(DOCS / "cluster.md", elsewhere=True) if "--on slurm" in c]
    assert ours
    for number, command in enumerate(ours):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=2000)
        assert done.returncode == 0, done.stderr
        local = [*words[: words.index("--on")], "--runs", "local-runs", "--results", "local"]
        subprocess.run(local, cwd=folder, check=True, capture_output=True, timeout=2000)
        ends = {run.path.name: run.result for run in map(Run, folder.glob("runs/[!.]*"))}
        assert ends
        for name, result in ends.items():
            here = Run(folder / "local-runs" / name).result
            assert result is not None
            assert here is not None
            assert {**result, "seconds": 0} == {**here, "seconds": 0}
