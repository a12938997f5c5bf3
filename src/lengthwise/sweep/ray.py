"""The engine of a Ray cluster: a job is a task, and Ray decides where it is trained."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from lengthwise.sweep.engine import End, Engine, Job, engine, option
from lengthwise.sweep.follow import Follower
from lengthwise.sweep.work import train_job

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress
    from lengthwise.training.runs import Run

SECONDS_OF_POLL = 0.5
MOST_ENDS = 100  # that one poll tells of
SECONDS_TO_STOP = 60.0
SECONDS_TO_ANSWER = 30.0
# Of a cluster on this machine: nothing is sent anywhere, and runs have the priority of any process.
OWN_CLUSTER = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
PATIENCE = 60.0  # seconds in which a worker of a killed driver gives up its run
ATTEMPTS = 4  # to start Ray, which gives a node 30 seconds; a busy machine may need more


@engine("ray")
@dataclass
class Ray(Engine):
    """A Ray cluster, or one that is started on this machine (the extra `ray`)."""

    work: ClassVar[Callable[..., list[str | None]]] = staticmethod(train_job)
    address: str | None = option(
        None, "address of the cluster, or auto (default: start one here)", metavar="ADDRESS"
    )
    cpus: float | None = option(None, "cores of a run (default: its threads)", float, "NUMBER")
    gpus: float | None = option(
        None, "GPUs of a run, such as 0.25 (default: 1 if its device is cuda)", float, "NUMBER"
    )
    retries: int = option(
        3, "how often a run goes on after its worker or node died (default: 3)", int, "NUMBER"
    )
    tasks: dict[Any, Job] = field(default_factory=dict, init=False)
    follower: Follower = field(default_factory=Follower, init=False)
    function: Any = field(default=None, init=False)  # `work`, as Ray knows it
    connected: bool = field(default=False, init=False)  # by this engine, and not by its caller

    def check(self, runs: Sequence["Run"]) -> None:
        from lengthwise.base import UsageError

        if find_spec("ray") is None:
            raise UsageError("--on ray needs Ray: pip install 'lengthwise[ray]'")
        for name in ("cpus", "gpus", "retries"):
            if (getattr(self, name) or 0) < 0:
                raise UsageError(f"--ray-{name} is {getattr(self, name)}, but it can't be negative")

    def start(self, runs: Sequence["Run"]) -> None:
        """Join the cluster, or start one on this machine that has room for all jobs."""
        import ray

        from lengthwise.base import UsageError
        from lengthwise.base.extensions import VARIABLE

        if ray.is_initialized():
            return
        files = {VARIABLE: os.environ[VARIABLE]} if VARIABLE in os.environ else {}
        settings: dict[str, Any] = {"runtime_env": {"env_vars": files}, "log_to_driver": False}
        try:
            if self.address is None:
                threads = max(run.experiment.threads for run in runs)
                cores = max(os.cpu_count() or 1, (self.jobs or 1) * threads)
                start_cluster(num_cpus=cores, **settings)
            else:
                check_answers(self.address)
                ray.init(self.address, **settings)
            self.connected = True
        except Exception as error:  # Ray raises many kinds
            reason = str(error).strip().partition("\n")[0]
            action = "start Ray here" if self.address is None else f"join Ray at {self.address}"
            raise UsageError(f"can't {action}: {reason}") from None

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.follower.add(job)
            device, threads = job[0].experiment.device, job[0].experiment.threads
            paths = [str(run.path.resolve()) for run in job]
            task = self.task_for(device, threads).remote(paths, device, threads, patience=PATIENCE)
            self.tasks[task] = job

    def task_for(self, device: str, threads: int) -> Any:
        """The remote function with the resources that a job needs."""
        import ray

        if self.function is None:  # Ray sends each one that is made to the cluster
            self.function = ray.remote(self.work)
        on_gpu = device.startswith("cuda")
        return self.function.options(
            num_cpus=threads if self.cpus is None else self.cpus,
            num_gpus=(1 if on_gpu else 0) if self.gpus is None else self.gpus,
            max_retries=self.retries,
            name="lengthwise",
        )

    def poll(self) -> Iterator["Progress | End"]:
        import ray

        tasks = list(self.tasks)
        ended, _ = ray.wait(
            tasks, num_returns=min(MOST_ENDS, len(tasks)), timeout=SECONDS_OF_POLL, fetch_local=True
        )
        for task in ended:
            job = self.tasks.pop(task)
            for run, reason in zip(job, find_reasons(task, len(job)), strict=True):
                yield from self.follower.end(run)
                # The directory decides: a worker may die behind its run's last step.
                yield End(run, None if reason is None or run.result is not None else reason)
        yield from self.follower.look()

    def stop(self) -> None:
        import ray

        for task in self.tasks:
            ray.cancel(task, force=False)  # the worker takes it as Ctrl-C, and saves
        if self.tasks:
            tasks = list(self.tasks)
            ray.wait(tasks, num_returns=len(tasks), timeout=SECONDS_TO_STOP)
        self.tasks.clear()
        if self.connected:
            ray.shutdown()
            self.connected = False


def check_answers(address: str) -> None:
    """Raise an error unless somebody answers there; Ray itself would try for many minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()


def start_cluster(**settings: Any) -> None:
    """Start a cluster on this machine, and join it."""
    import ray  # before psutil, which comes with it
    from psutil import Process

    for name, value in OWN_CLUSTER.items():
        os.environ.setdefault(name, value)
    before = Process().children()
    for attempt in range(ATTEMPTS):
        try:
            ray.init("local", include_dashboard=False, **settings)
            return
        except Exception:
            for process in set(Process().children()) - set(before):
                process.kill()  # parts of the cluster that was too slow
                process.wait()
            if attempt == ATTEMPTS - 1:
                raise


def find_reasons(task: Any, count: int) -> list[str | None]:
    """Why a task's runs failed; None for each that has finished."""
    import ray

    try:
        reasons: list[str | None] = ray.get(task)
    except ray.exceptions.RayError as error:
        return [f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"] * count
    return reasons
