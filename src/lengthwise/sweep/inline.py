"""The engine of this process, for code that no other process can import, and for debuggers."""

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from lengthwise.sweep.engine import End, Engine, Job, engine

if TYPE_CHECKING:
    from lengthwise.training.loop import Progress
    from lengthwise.training.runs import Run


@engine("inline")
@dataclass
class Inline(Engine):
    """This process, which trains one run after another."""

    here: ClassVar[bool] = True
    jobs: int | None = 1
    submitted: list[Job] = field(default_factory=list, init=False)

    def check(self, runs: Sequence["Run"]) -> None:
        from lengthwise.base import UsageError

        if self.jobs != 1:
            raise UsageError(f"this process trains 1 run at a time, not {self.jobs}")

    def submit(self, jobs: Sequence[Job]) -> None:
        self.submitted += jobs

    def poll(self) -> Iterator["Progress | End"]:
        import torch

        from lengthwise.base import UsageError
        from lengthwise.training.loop import train
        from lengthwise.training.seeds import train_seeds

        job, threads = self.submitted.pop(0), torch.get_num_threads()
        failures: dict[Run, str] = {}
        reason = None
        try:
            yield from train(job[0]) if len(job) == 1 else train_seeds(job, failures)
        except UsageError as error:
            reason = str(error)
        except Exception as error:
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"
        finally:
            torch.set_num_threads(threads)
        yield from (End(run, reason or failures.get(run)) for run in job)

    def stop(self) -> None:
        self.submitted.clear()
