"""Two Ray nodes on this machine: workers, nodes and drivers are killed, and nothing is lost."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

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
from slurm_here import free_port

from lengthwise.base import UsageError
from lengthwise.sweep import build_engine, run_all
from lengthwise.sweep.ray import OWN_CLUSTER
from lengthwise.training.display import Display
from lengthwise.training.runs import Run

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.ray
SCRIPT = """
import sys
from lengthwise.base.extensions import import_files
from lengthwise.sweep import build_engine, run_all
from lengthwise.training.display import Display
from lengthwise.training.runs import Run

import_files()
address, *paths = sys.argv[1:]
engine = build_engine("ray", None, {"ray": {"address": address}})
for run, reason in run_all([Run(path) for path in paths], engine, Display()):
    print(run.path.name, reason, flush=True)
"""


# A machine that is busy with other things starts processes slowly.
SLOW_MACHINE = {
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
}


def agent_ports() -> dict[str, Any]:
    """Fixed ports, because a node waits only 15 seconds for its agents to choose some."""
    names = ("metrics_agent_port", "runtime_env_agent_port", "dashboard_agent_listen_port")
    return {name: free_port() for name in names}


def wait_for_node(get_node: Callable[..., Any], *arguments: Any) -> Any:
    """Ray itself waits 30 seconds for a node to register, and has no setting for that."""
    for _ in range(300):
        with suppress(RuntimeError):  # it has not registered yet
            return get_node(*arguments)
        time.sleep(1)
    return get_node(*arguments)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without cores, which nothing is trained on, and two nodes of one core."""
    from ray._private import services
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**OWN_CLUSTER, **SLOW_MACHINE}.items():
            patch.setenv(name, value)
        patch.setattr(services, "get_node", partial(wait_for_node, services.get_node))
        head = {"num_cpus": 0, "include_dashboard": False, **agent_ports()}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=1, **agent_ports())
        cluster.wait_for_nodes(300)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def engine(cluster: Any) -> Any:
    return build_engine("ray", None, {"ray": {"address": cluster.address}})


def test_runs_go_to_both_nodes_and_wait_for_others(cluster: Any, tmp_path: Path) -> None:
    first, second = (create(tmp_path / "ray", seed=seed) for seed in (0, 1))
    tuned = create(tmp_path / "ray", start_from=str(first.path), training__steps=50)
    diverging = create(
        tmp_path / "ray", training__learning_rate=1e38, training__warmup_steps=0, seed=3
    )
    at_once: list[bool] = []

    def look() -> None:
        at_once.append(bool(holders(first)) and bool(holders(second)))

    runs = [tuned, first, second, diverging]
    ends = dict(run_all(runs, engine(cluster), ActingDisplay(second, 50, look)))
    assert "the loss is nan" in (ends.pop(diverging) or "")
    assert ends == dict.fromkeys([tuned, first, second])
    assert at_once == [True]
    assert_same_as_here([first, second, tuned], tmp_path / "here")
    assert sessions(first) == sessions(second) == sessions(tuned) == [0]


def test_a_killed_worker_is_replaced(cluster: Any, tmp_path: Path) -> None:
    run = create(tmp_path / "ray")

    def kill() -> None:
        (process,) = holders(run)
        os.kill(process, signal.SIGKILL)

    display = ActingDisplay(run, 50, kill)
    assert list(run_all([run], engine(cluster), display)) == [(run, None)]
    assert display.acted
    first, second = sessions(run)
    assert first == 0 < 50 <= second
    assert_same_as_here([run], tmp_path / "here")


def test_a_killed_batch_of_seeds_goes_on(cluster: Any, tmp_path: Path) -> None:
    runs = create_seeds(tmp_path / "ray")
    killed: list[int] = []

    def kill() -> None:
        (process,) = {*holders(runs[0]), *holders(runs[1])}  # one trains both
        os.kill(process, signal.SIGKILL)
        killed.append(process)

    own = build_engine("ray", None, {"ray": {"address": cluster.address}}, batch_seeds=2)
    assert dict(run_all(runs, own, ActingDisplay(runs[1], 20, kill))) == dict.fromkeys(runs)
    assert killed
    for run in runs:
        first, second = sessions(run)
        assert first == 0 < 10 <= second
    assert_seeds_same_as_here(runs, tmp_path / "here")


def test_the_runs_of_a_killed_node_go_on_elsewhere(cluster: Any, tmp_path: Path) -> None:
    runs = [create(tmp_path / "ray", seed=seed) for seed in (0, 1)]

    def kill() -> None:
        wait_until(lambda: all(run.checkpoint.exists() for run in runs))
        _, node, _ = cluster.list_all_nodes()  # behind the head
        cluster.remove_node(node, allow_graceful=False)

    display = ActingDisplay(runs[0], 50, kill)
    assert dict(run_all(runs, engine(cluster), display)) == dict.fromkeys(runs)
    assert display.acted
    cluster.add_node(num_cpus=1, **agent_ports())
    cluster.wait_for_nodes(300)
    assert sorted(len(sessions(run)) for run in runs) == [1, 2]
    assert_same_as_here(runs, tmp_path / "here")


def test_a_killed_driver_is_started_again(cluster: Any, tmp_path: Path) -> None:
    short = create(tmp_path / "ray", training__steps=40)
    runs = [short, *(create(tmp_path / "ray", seed=seed) for seed in (1, 2))]
    command = [sys.executable, "-c", SCRIPT, cluster.address, *(str(run.path) for run in runs)]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: short.result is not None and any(run.checkpoint.exists() for run in runs))
    driver.kill()
    driver.wait()
    written = short.weights.stat().st_mtime_ns
    done = subprocess.run(command, capture_output=True, text=True, timeout=2000)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(w for r in runs for w in (r.path.name, "None"))
    assert short.weights.stat().st_mtime_ns == written
    assert any(len(sessions(run)) == 2 for run in runs)
    for run in runs:
        assert sessions(run) == sorted(set(sessions(run)))
    assert_same_as_here(runs, tmp_path / "here")


def test_ctrl_c_lets_every_run_save(cluster: Any, tmp_path: Path) -> None:
    changes = {"training__steps": 100_000, "training__checkpoint_every": 100_000}
    runs = [create(tmp_path / "ray", seed=seed, **changes) for seed in (0, 1)]

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_all(runs, engine(cluster), ActingDisplay(runs[0], 10, stop)))
    wait_until(lambda: all(run.status == "interrupted" for run in runs))
    assert runs[0].checkpoint.exists()


def test_the_commands_of_the_docs(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the cluster and on one that they start, with the records of the local engine."""
    from test_docs import DOCS, commands

    ours = [c for c in commands(DOCS / "cluster.md", elsewhere=True) if "--on ray" in c]
    assert len(ours) >= 2
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)  # what `auto` finds
    for number, command in enumerate(ours):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = [sys.executable, "-m", *shlex.split(command)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=2000)
        assert done.returncode == 0, done.stderr
        local = [*words[: words.index("--on")], "--runs", "local-runs", "--results", "local"]
        subprocess.run(local, cwd=folder, check=True, capture_output=True, timeout=2000)
        ends = {run.path.name: run.result for run in map(Run, folder.glob("runs/*"))}
        assert ends
        for name, result in ends.items():
            here = Run(folder / "local-runs" / name).result
            assert result is not None
            assert here is not None
            assert {**result, "seconds": 0} == {**here, "seconds": 0}


def test_display_is_not_needed_to_use_it(tmp_path: Path) -> None:
    """The engine starts a cluster of its own, and ends it."""
    run = create(tmp_path, training__steps=20)
    assert list(run_all([run], build_engine("ray", 1), Display())) == [(run, None)]
    assert not ray.is_initialized()


def test_a_cluster_that_starts_too_slowly_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Ray's own limit of 30 seconds does on a busy machine; nothing of it is left over."""
    from psutil import Process
    from ray._private import services

    get_node, init, failures = services.get_node, ray.init, list[str]()

    def answer_late(*arguments: Any) -> Any:
        if not failures:
            time.sleep(1)
            raise RuntimeError("it has not registered yet")
        return get_node(*arguments)

    def count_failures(*arguments: Any, **options: Any) -> Any:
        try:
            return init(*arguments, **options)
        except Exception as error:
            failures.append(str(error))
            raise

    monkeypatch.setattr(services, "get_node", answer_late)
    monkeypatch.setattr(ray, "init", count_failures)
    before = Process().children()
    run = create(tmp_path, training__steps=20)
    assert list(run_all([run], build_engine("ray", 1), Display())) == [(run, None)]
    assert "timed out during startup" in failures[0]
    assert set(Process().children()) <= set(before)


def test_an_address_where_nobody_answers_is_refused(tmp_path: Path) -> None:
    own = build_engine("ray", None, {"ray": {"address": f"127.0.0.1:{free_port()}"}})
    with pytest.raises(UsageError, match=r"can't join Ray at 127.*refused"):
        list(run_all([create(tmp_path)], own, Display()))
