"""One plain loop: batch, loss, step; now and then log, evaluate, checkpoint. It goes on from where a run stopped.

Every batch, dropout mask and test set is a function of the seed and the step, and a checkpoint holds all the rest. So a
run that was killed and resumed ends with the same bits as one that never was.
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise import kernels, machine
from lengthwise.data import Examples, TrainingSet, evaluation_set, generator
from lengthwise.errors import UsageError
from lengthwise.evaluation import Accuracy, evaluate
from lengthwise.evaluation import accuracy as accuracy_of
from lengthwise.experiment import CONFIG, Experiment, TrainingConfig
from lengthwise.layout import Layout
from lengthwise.runs import Run, append, load_tensors, restore, save_tensors, writing
from lengthwise.solver import Solver, Written

STEPS_AT_ONCE = 16  # that are drawn, or counted, together


@dataclass(frozen=True)
class Progress:
    """How far a run is, after a step."""

    run: str
    step: int
    steps: int
    loss: float
    accuracy: dict[int, float]  # exact match by length, of the last evaluation
    examples_per_second: float
    seconds_left: float


def train(run: Run) -> Iterator[Progress]:
    """Train a run to its end from wherever it is, yielding its progress after each step."""
    experiment = run.experiment
    device = machine.prepare(experiment.device, experiment.threads)
    with run.locked(), deferred_interrupts() as interrupted:
        if run.result is not None:
            return
        (run.path / "failure.json").unlink(missing_ok=True)
        if experiment.start_from and not run.checkpoint.exists() and experiment.identity() != run.identity:
            raise UsageError(f"{run.path} was made to start from another run than {experiment.start_from} is now")
        solver = experiment.build() if run.checkpoint.exists() else initial_solver(experiment)
        solver = solver.to(device).train()
        parameters, optimizer = list(solver.parameters()), adamw(solver, experiment.training)
        window = Window(training_layout(experiment).n_out, device)
        step, seconds, size = load_checkpoint(run, solver, optimizer, window)
        metrics = run.keep_metrics(step, size)
        run.record_session(machine.describe(experiment.device), step)

        config, steps, started, first = experiment.training, experiment.steps, time.monotonic(), step
        accuracy = last_accuracy(run)
        for written, primed, layers in batches(experiment, solver, step):
            rate = learning_rate(config, step, steps)
            for group in optimizer.param_groups:
                group["lr"] = rate
            with draws(solver, experiment, step), autocast(experiment):
                logits = solver.supervised(written, layers)
                loss = F.cross_entropy(logits.flatten(0, 1), written.targets.flatten())
            for parameter in parameters:
                parameter.grad = None
            loss.backward()
            kernels.adamw(optimizer, config.clip)
            window.add(loss, logits[:, written.answer_at], written.targets[:, written.answer_at], primed)
            step += 1

            stop = interrupted()
            log = step % config.log_every == 0 or step == steps
            save = step % config.checkpoint_every == 0 or step == steps or stop
            if log or save:
                check_finite(run, solver, window, step)
            seen = {"step": step, "examples": step * config.batch_size}
            if log:
                append(metrics, {**seen, "learning_rate": rate, **window.to_json()})
                window.clear()
            if step % experiment.evaluation.every == 0 or step == steps:
                tested = test(solver, experiment, step)
                accuracy = {a.length: a.exact_match for a in tested}
                append(metrics, {**seen, "evaluation": [a.to_json() for a in tested]})
            elapsed = time.monotonic() - started
            if save:
                save_checkpoint(run, solver, optimizer, window, metrics, step, seconds + elapsed)
            if stop:
                raise KeyboardInterrupt
            pace = elapsed / (step - first)
            yield Progress(
                run.path.name, step, steps, loss.item(), accuracy, config.batch_size / pace, pace * (steps - step)
            )

        metrics.close()
        tested = [  # there is a checkpoint, so that this can be stopped at any block
            accuracy_of(solver, n, until(interrupted, final_test_set(experiment, n))) for n in experiment.final_lengths
        ]
        run.finish(
            solver,
            {
                "identity": run.identity,
                "steps": steps,
                "examples": steps * config.batch_size,
                "parameters": sum(p.numel() for p in solver.parameters()),
                "seconds": round(seconds + time.monotonic() - started, 1),
                "evaluation": [a.to_json() for a in tested],
            },
        )


def training_layout(experiment: Experiment) -> Layout:
    """The largest that a batch can have."""
    data = experiment.data
    digits = max(data.train_digits, *(n for n, _ in data.priming), 1) + data.padding
    return Layout(experiment.task, digits if experiment.layout.fitted else data.test_digits, experiment.layout)


def initial_solver(experiment: Experiment) -> Solver:
    """The model with the weights that training starts from: random ones, or those of another run."""
    solver = experiment.build()
    if experiment.start_from is None:
        seed = int(generator(experiment.seed, "initialisation").integers(2**62))
        solver.encoder.initialise(torch.Generator().manual_seed(seed))
        return solver
    solver.load_state_dict(origin_of(experiment).load().state_dict())
    return solver


def origin_of(experiment: Experiment) -> Run:
    """The run that an experiment starts from, if it can."""
    assert experiment.start_from is not None
    origin = Run(experiment.start_from)
    parts: Any = {"task": True, "layout": True, "model": True, "data": {"test_digits"}}
    ours, theirs = (e.model_dump(include=parts, exclude={"model": {"preset"}}) for e in (experiment, origin.experiment))
    for part, fields in ours.items():
        for key, value in fields.items():
            if theirs[part].get(key) != value:
                other = theirs[part].get(key)
                raise UsageError(f"start_from is {origin.path}, whose {part}.{key} is {other!r} instead of {value!r}")
    if origin.status != "finished":
        raise UsageError(f"start_from is {origin.path}, which hasn't finished (`lengthwise resume {origin.path}`)")
    return origin


def test(solver: Solver, experiment: Experiment, step: int) -> list[Accuracy]:
    """Evaluate as the experiment says for during training; every step has test sets of its own."""
    config = experiment.evaluation
    return evaluate(solver, experiment.lengths, config.examples, experiment.seed, step, config.sampling)


def final_test_set(experiment: Experiment, length: int) -> Iterator[Examples]:
    config = experiment.evaluation
    occasion = experiment.steps + 1
    return evaluation_set(experiment.task, length, config.final_examples, experiment.seed, occasion, config.sampling)


def until(stop: Callable[[], bool], blocks: Iterator[Examples]) -> Iterator[Examples]:
    """The blocks, unless there was a Ctrl-C."""
    for block in blocks:
        if stop():
            raise KeyboardInterrupt
        yield block


def check_finite(run: Run, solver: Solver, window: "Window", step: int) -> None:
    """Stop a run whose loss or weights aren't numbers any more, before they get into a checkpoint."""
    if not math.isfinite(window.loss):
        reason = f"the loss is {window.loss} at step {step}"
    elif not all(bool(p.isfinite().all()) for p in solver.parameters()):
        reason = f"the weights are no longer finite at step {step}"
    else:
        return
    run.fail(reason, step)
    kept = "the last checkpoint is kept, and " if run.checkpoint.exists() else ""
    raise UsageError(f"training of {run.path} stopped: {reason}; {kept}a smaller training.learning_rate may help")


def adamw(solver: Solver, config: TrainingConfig) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        solver.parameters(), config.learning_rate, config.betas, weight_decay=config.weight_decay, fused=True
    )


def learning_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """A linear warm-up, then a cosine to zero (or a constant)."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


def batches(experiment: Experiment, solver: Solver, start: int) -> Iterator[tuple[Written, Tensor, int]]:
    """The problems of each step from one on, which of them are primed, and how many layers they are trained with.

    Several steps are drawn at a time, as all but the first find in the processor's cache what they need.
    """
    data = TrainingSet(experiment.task, experiment.data, experiment.seed)

    def batch(step: int) -> tuple[Written, Tensor, int]:
        examples, (padding, layers) = data.batch(step, experiment.training.batch_size), varied(experiment, step)
        written = solver.write(examples.operands, examples.answer, padding)
        return written, torch.from_numpy(examples.primed).to(solver.device), layers

    for first in range(start, experiment.steps, STEPS_AT_ONCE):
        yield from [batch(step) for step in range(first, min(first + STEPS_AT_ONCE, experiment.steps))]


def varied(experiment: Experiment, step: int) -> tuple[int, int]:
    """The padding and the number of layers of a step's batch."""

    def drawn(what: str, most: int) -> int:
        return int(generator(experiment.seed, what, step).integers(most + 1)) if most else 0

    more = drawn("more layers", experiment.training.more_layers)
    return drawn("padding", experiment.data.padding), experiment.model.layers + more


def draws(solver: Solver, experiment: Experiment, step: int) -> AbstractContextManager[Any]:
    """The model's random draws depend on the seed and the step only; torch's global generator is left as it was."""
    if not solver.encoder.random:
        return nullcontext()
    return seeded(int(generator(experiment.seed, "dropout", step).integers(2**62)))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def autocast(experiment: Experiment) -> AbstractContextManager[Any]:
    device_type = torch.device(experiment.device).type
    return torch.autocast(device_type, torch.bfloat16, enabled=experiment.precision == "bfloat16")


class Window:
    """Loss and accuracy on the training examples since the last record, apart for usual and primed ones.

    Steps are counted when somebody asks, or when they are several, for the same reason as they are drawn so.
    """

    def __init__(self, n_out: int, device: torch.device):
        # A row for usual and one for primed examples: how many, all right, and right at each of the n_out symbols.
        self._counts = torch.zeros(2, 2 + n_out, dtype=torch.int64, device=device)
        self._total_loss = torch.zeros(2, device=device)  # the sum of losses, and how many
        self._waiting: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def add(self, loss: Tensor, logits: Tensor, targets: Tensor, primed: Tensor) -> None:
        self._waiting.append((loss.detach(), logits.detach(), targets, primed))
        if len(self._waiting) == STEPS_AT_ONCE:
            self._count()

    def _count(self) -> None:
        for loss, logits, targets, primed in self._waiting:
            right = logits.argmax(-1) == targets
            # A fitted layout may be less wide than its largest: what it has no room for is padding, and right.
            right = F.pad(right, (0, self._counts.shape[1] - 2 - right.shape[1]), value=True)
            columns = torch.cat([torch.ones_like(right[:, :1]), right.all(1, keepdim=True), right], 1).long()
            self._counts.index_add_(0, primed.long(), columns)
            self._total_loss += torch.stack([loss.float(), torch.ones_like(self._total_loss[0])])
        self._waiting.clear()

    @property
    def counts(self) -> Tensor:
        self._count()
        return self._counts

    @property
    def total_loss(self) -> Tensor:
        self._count()
        return self._total_loss

    @property
    def loss(self) -> float:
        total, count = self.total_loss.tolist()
        return float(total / count) if count else 0.0

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"loss": self.loss}
        for name, (examples, exact, *digits) in zip(("train", "primed"), self.counts.tolist(), strict=True):
            if examples:
                shares = {"exact_match": exact / examples, "digits": [right / examples for right in digits]}
                record[name] = {"examples": examples, **shares}
        return record

    def clear(self) -> None:
        self.counts.zero_()
        self.total_loss.zero_()


def save_checkpoint(
    run: Run,
    solver: Solver,
    optimizer: torch.optim.AdamW,
    window: Window,
    metrics: IO[str],
    step: int,
    seconds: float,
) -> None:
    """Write all that the rest of the run depends on."""
    run.check_held()
    with writing(Path(metrics.name)):
        os.fsync(metrics.fileno())
    tensors = {f"model.{name}": tensor for name, tensor in solver.state_dict().items()}
    for name, parameter in solver.named_parameters():
        tensors |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state[parameter].items()}
    tensors |= {"window.counts": window.counts, "window.total_loss": window.total_loss}
    size = os.fstat(metrics.fileno()).st_size
    metadata = {"step": str(step), "seconds": str(seconds), "identity": run.identity, "metrics": str(size)}
    save_tensors(run.checkpoint, tensors, metadata)


def load_checkpoint(run: Run, solver: Solver, optimizer: torch.optim.AdamW, window: Window) -> tuple[int, float, int]:
    """Go back to the last checkpoint, if there is one: its step, and the seconds and bytes of metrics until then."""
    if not run.checkpoint.exists():
        return 0, 0.0, 0
    tensors, metadata = load_tensors(run.checkpoint)
    numbers = [metadata.get(key, "") for key in ("step", "metrics")]
    if metadata.get("identity") != run.identity or not all(map(str.isdecimal, numbers)):
        raise UsageError(f"{run.checkpoint} is damaged or belongs to another experiment than {run.path / CONFIG}")
    own = {f"model.{name}": tensor for name, tensor in solver.state_dict().items()}
    for name, parameter in solver.named_parameters():
        state = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        optimizer.state[parameter] = state
        own |= {f"optimizer.{name}.{key}": value for key, value in state.items()}
    own |= {"window.counts": window.counts, "window.total_loss": window.total_loss}
    restore(own, tensors, run.checkpoint)
    return int(metadata["step"]), float(metadata["seconds"]), int(metadata["metrics"])


def last_accuracy(run: Run) -> dict[int, float]:
    evaluations = run.evaluations()
    return {a["length"]: a["exact_match"] for a in evaluations[-1]["evaluation"]} if evaluations else {}


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C (or SIGTERM) lets the step finish: the loop asks whether there was one. A second Ctrl-C stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received = threading.Event()

    def note(number: int, frame: Any) -> None:
        if received.is_set():
            raise KeyboardInterrupt
        received.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
