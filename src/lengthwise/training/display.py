"""Progress of training runs: live bars in a terminal, a line every few seconds elsewhere."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from lengthwise.training import loop

SECONDS_BETWEEN_LINES = 20
SECONDS_BETWEEN_COUNTS = 60
NOTHING_YET: dict[str, Any] = {"speed": "", "loss": "", "accuracy": "", "left": ""}
SECONDS_BETWEEN_UPDATES = 0.5  # in a notebook


def percent(share: float) -> str:
    """A share for people: 100 % and 0 % only where they are exact.

    >>> percent(0.9996), percent(1.0), percent(0.0), percent(0.0004), percent(0.816)
    ('>99.9 %', '100 %', '0 %', '<0.1 %', '81.6 %')
    """
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", " %")
    if share > 0.999:
        return ">99.9 %"
    return "<0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def summarise(accuracy: Mapping[int, float]) -> str:
    return "  ".join(f"{length} digits {percent(share)}" for length, share in accuracy.items())


def clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d}"


class Display:
    """Shows runs as they train: `with Display() as display: display.show(progress)`."""

    def __init__(
        self,
        labels: Mapping[str, str] | None = None,
        console: Console | None = None,
        quiet: bool = False,
    ):
        self.labels = labels or {}
        self.console = console or Console(stderr=True, quiet=quiet)
        self.cells: dict[str, Any] = {}  # in a notebook, what shows each run
        self.bars: dict[str, TaskID] = {}
        self.shown: dict[str, float] = {}
        self.announced: set[str] = set()
        self.sweep: TaskID | None = None  # the bar of all runs
        self.counted = time.monotonic()
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),  # what is left of the line
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[loss]}"),
            TextColumn("[cyan]{task.fields[accuracy]}"),
            TextColumn("{task.fields[left]}"),
            expand=True,
            console=self.console,
            refresh_per_second=4,
        )

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.progress.live.is_started:
            self.progress.stop()  # of one that was never started, it prints an empty line

    def count(self, done: int, active: int, total: int) -> None:
        """Show how many runs of a sweep have ended, and how many are submitted."""
        if self.console.is_terminal:
            if self.sweep is None:
                self.progress.start()
                self.sweep = self.progress.add_task("runs", **NOTHING_YET)
            self.progress.update(self.sweep, completed=done, total=total)
        elif time.monotonic() - self.counted >= SECONDS_BETWEEN_COUNTS:
            self.counted = time.monotonic()
            text = f"{done} of {total} runs have ended, {active} are submitted"
            self.console.print(text, highlight=False, soft_wrap=True)

    def show(self, state: loop.Progress) -> None:
        label = self.labels.get(state.run, state.run)
        if self.console.is_jupyter and not self.console.quiet:
            self.show_in_notebook(state, label)
            return
        if state.declined and state.run not in self.announced:
            self.announced.add(state.run)
            self.console.print(
                f"{label}: PyTorch computes this run ({state.declined})",
                highlight=False,
                soft_wrap=True,
            )
        if self.console.is_terminal:
            if state.run not in self.bars:
                self.progress.start()  # not before there is a bar: it would leave an empty line
                self.bars[state.run] = self.progress.add_task(
                    label, total=state.steps, **NOTHING_YET
                )
            self.progress.update(
                self.bars[state.run],
                completed=state.step,
                speed=f"{state.examples_per_second:.0f}/s",
                loss=f"loss {state.loss:.3f}",
                accuracy=" ".join(f"{n}d:{share:.0%}" for n, share in state.accuracy.items()),
                left=f"{clock(state.seconds_left)} left",
            )
            if state.step < state.steps:
                return
            self.progress.remove_task(self.bars.pop(state.run))  # the line below stays
        now = time.monotonic()
        is_due = now - self.shown.get(state.run, -1e9) >= SECONDS_BETWEEN_LINES
        if state.step == state.steps or is_due:
            self.shown[state.run] = now
            self.console.print(describe(state, label), highlight=False, soft_wrap=True)

    def show_in_notebook(self, state: loop.Progress, label: str) -> None:
        """One line for each run, which is replaced as the run goes on."""
        from IPython.display import display

        now = time.monotonic()
        is_due = now - self.shown.get(state.run, -1e9) >= SECONDS_BETWEEN_UPDATES
        if not is_due and state.step < state.steps:
            return
        self.shown[state.run] = now
        content = {"text/plain": describe(state, label)}
        if state.run in self.cells:
            self.cells[state.run].update(content, raw=True)
        else:
            self.cells[state.run] = display(content, raw=True, display_id=True)


def describe(state: loop.Progress, label: str) -> str:
    """A run's progress in a line."""
    return (
        f"{label}: step {state.step}/{state.steps},"
        f" {state.examples_per_second:.0f} examples/s, loss {state.loss:.4f},"
        f" {summarise(state.accuracy) or 'not yet tested'},"
        f" {clock(state.seconds_left)} left"
    )
