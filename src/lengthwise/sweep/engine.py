"""What an engine is: runs are submitted to it, it tells of their progress and end, and it stops.

The run's directory is the only truth. An engine keeps nothing that matters, so it can die at any
time: the same command asks again, and every run goes on from its last checkpoint.

Help pages list the options of engines. The modules of engines therefore import torch, and all that
imports it, only inside functions.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress
    from lengthwise.training.runs import Run


# What is trained at a time: one run, or several seeds of an experiment as one batched model.
Job = Sequence["Run"]


@dataclass(frozen=True)
class End:
    """The end of a run, with the reason if it failed."""

    run: "Run"
    reason: str | None = None


def option(
    default: Any,
    description: str,
    parse: Callable[[str], Any] = str,
    metavar: str = "TEXT",
    repeated: bool = False,
) -> Any:
    """A field of an engine that is an option of the command line; `repeated` makes it a list."""
    given = {"description": description, "parse": parse, "metavar": metavar}
    given["repeated"] = repeated
    return field(default=default, metadata=given)


@dataclass
class Engine:
    """Trains jobs somewhere, `jobs` at a time; the docstring's first line describes it to users.

    An option such as `address` of the engine `ray` is `--ray-address` on the command line.
    """

    jobs: int | None = None  # at a time; None: as many as there is room for
    name: ClassVar[str]
    here: ClassVar[bool] = False  # whether it trains on this machine, with this machine's devices
    batch_seeds: int = field(default=1, kw_only=True)  # most seeds of one job

    def check(self, runs: Sequence["Run"]) -> None:
        """Raise a UsageError if the engine can't be used here, before anything is submitted."""

    def start(self, runs: Sequence["Run"]) -> None:
        """Get ready to train runs, such as by joining a cluster."""

    def room(self, active: int) -> float:
        """How many more jobs it takes beside these active ones."""
        return math.inf if self.jobs is None else self.jobs - active

    def submit(self, jobs: Sequence[Job]) -> None:
        """Have jobs trained from wherever their runs are, and return at once."""
        raise NotImplementedError

    def poll(self) -> Iterator["Progress | End"]:
        """Wait a moment, then tell what happened to the submitted runs."""
        raise NotImplementedError

    def stop(self) -> None:
        """End what is still active, each run with a checkpoint, and release what the engine has."""
        raise NotImplementedError

    @classmethod
    def states(cls, paths: Iterable[Path]) -> dict[Path, str]:
        """Which of these runs are "queued" or "running", submitted by whatever process."""
        return {}

    @classmethod
    def options(cls) -> dict[str, Mapping[str, Any]]:
        """What `option` was given for each option."""
        return {f.name: f.metadata for f in fields(cls) if "description" in f.metadata}

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        blank = cls()
        return {name: getattr(blank, name) for name in cls.options()}


ENGINES: dict[str, type[Engine]] = {}
E = TypeVar("E", bound=type[Engine])


def engine(name: str) -> Callable[[E], E]:
    """Register an engine under the name that `--on` takes."""

    def register(cls: E) -> E:
        cls.name = name
        ENGINES[name] = cls
        return cls

    return register


def find_engine(name: str) -> type[Engine]:
    from lengthwise.base import UsageError, nearest

    if name not in ENGINES:
        raise UsageError(f"there is no engine '{name}': {nearest(name, ENGINES)}")
    return ENGINES[name]


def build_engine(
    name: str,
    jobs: int | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    batch_seeds: int = 1,
) -> Engine:
    """The engine with its options; `options` are those given for each engine."""
    from lengthwise.base import UsageError

    cls = find_engine(name)
    for other, given in (options or {}).items():
        if other != name and given:
            flag = f"--{other}-{next(iter(given)).replace('_', '-')}"
            raise UsageError(f"{flag} is an option of --on {other}, but the runs are on {name}")
    own = {} if options is None else options.get(name, {})
    if batch_seeds < 1:
        raise UsageError(f"at least 1 seed is trained at a time, not {batch_seeds}")
    return cls(**({} if jobs is None else {"jobs": jobs}), **own, batch_seeds=batch_seeds)
