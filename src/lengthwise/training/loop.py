"""One plain loop: batch, loss, step; at intervals log, evaluate, checkpoint.

Every batch, dropout mask and test set is a function of the seed and the step, and a checkpoint
holds the rest. So a run that was killed and resumed ends with the same bits as one that never was.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise import fast
from lengthwise.base import UsageError, generator
from lengthwise.base.tensors import restore
from lengthwise.evaluation.accuracy import Accuracy, evaluate, measure_accuracy
from lengthwise.problems.batch import TrainingBatch
from lengthwise.problems.evaluation_set import evaluation_set
from lengthwise.problems.training_set import Examples, TrainingSet
from lengthwise.solver import Solver
from lengthwise.training import machine, memory
from lengthwise.training.checkpoint import State, load_checkpoint, save_checkpoint, save_optimizer
from lengthwise.training.distributed import ALONE, Alone
from lengthwise.training.experiment import Experiment, TrainingConfig
from lengthwise.training.interrupts import defer_interrupts
from lengthwise.training.journal import NoJournal
from lengthwise.training.origin import load_optimizer, load_origin
from lengthwise.training.prefetch import draw_ahead
from lengthwise.training.runs import Run
from lengthwise.training.window import Window

BATCHES_AHEAD = {"cpu": 0, "cuda": 3, "mps": 3}  # on a CPU, drawing them takes what it saves


@dataclass(frozen=True)
class Progress:
    """How far a run is, after a step."""

    run: str
    step: int
    steps: int
    loss: float  # of the last step, or on a GPU of the last recorded one
    accuracy: dict[int, float]  # exact match by length, of the last evaluation
    examples_per_second: float
    seconds_left: float
    declined: str | None  # why PyTorch computes the run and not the C code


def train(run: Run, group: Alone = ALONE) -> Iterator[Progress]:
    """Train a run to its end from wherever it is, yielding its progress after each step.

    The processes of a group train it together; the first one writes its directory.
    """
    experiment = run.experiment
    device = machine.prepare(experiment.device, experiment.threads)
    if group.size == 1:  # several processes share a batch
        memory.check_training(experiment)
    with run.locked() if group.leads else nullcontext(), defer_interrupts() as interrupted:
        if not needs_training(run, group):
            return
        session = Session(run, device, group)
        state, encoder = session.state, session.state.solver.encoder
        for batch, layers in session.batches():
            if state.step == session.first:
                session.begin(fast.decline_reason(encoder, batch.tokens, batch.coordinates))
            loss = take_step(state, batch, layers, experiment, group)
            stop = group.any(interrupted())
            progress = session.record(loss, stop)
            if stop:
                raise KeyboardInterrupt
            try:
                yield progress
            except GeneratorExit:  # the caller leaves its loop early
                session.save()
                raise
        session.finish(interrupted)


def needs_training(run: Run, group: Alone = ALONE) -> bool:
    """Whether a run is not finished yet; the run must be locked, and is checked."""
    run.manifest.verify()
    if run.result is not None:
        if group.leads:
            run.clean_up()
        return False
    run.check_code()
    if group.leads:
        run.forget_failure()
    return True


class Session:
    """A run that this process trains: its state, and what is due before, after and between steps.

    The run must be locked. Only the first process of a group writes its directory.
    """

    def __init__(self, run: Run, device: torch.device, group: Alone = ALONE):
        self.run, self.experiment, self.group = run, run.experiment, group
        self.state = initial_state(run, device)
        load_checkpoint(run, self.state)
        group.keep_first(self.state.window.counts)
        self.metrics = run.open_metrics(self.state.step) if group.leads else NoJournal()
        self.accuracy, self.first = run.last_accuracy(), self.state.step
        self.started = time.monotonic() - self.state.seconds  # of all sessions together
        if self.first == 0 and self.experiment.training.keeps(0) and group.leads:
            run.keep_weights(self.state.tested_solver, 0)

    def batches(self) -> Iterator[tuple[TrainingBatch, int]]:
        """The batches that are left, or this process's rows of them, drawn ahead for a GPU."""
        solver, rows = self.state.solver, self.group.rows(self.experiment.training.batch_size)
        drawn = batches(self.experiment, solver, self.first, data_seed(self.run), rows)
        return draw_ahead(drawn, BATCHES_AHEAD[solver.device.type])

    def begin(self, declined: str | None) -> None:
        """Note the machine, and why PyTorch computes the run and not the C code."""
        self.declined, self.began, self.shown_loss = declined, time.monotonic(), math.nan
        if self.group.leads:
            description = machine.describe(self.experiment.device, declined, self.group.size)
            self.run.record_session(description, self.first)

    def record(self, loss: Tensor, stop: bool) -> Progress:
        """Log, evaluate and save what is due after a step; all is saved if training stops."""
        run, state, experiment, group = self.run, self.state, self.experiment, self.group
        config, step, steps = experiment.training, state.step, experiment.steps
        last = step == steps
        log = step % config.log_every == 0 or last
        save = step % config.checkpoint_every == 0 or last or stop
        seen = {"step": step, "examples": step * config.batch_size}
        if log or save:
            group.add_up(state.window.counts)
            check_finite(run, state, group)
        if log:
            rate = learning_rate(config, step - 1, steps)
            self.metrics.append({**seen, "learning_rate": rate, **state.window.to_json()})
            state.window.clear()
        if step % experiment.evaluation.every == 0 or last:
            tested = evaluate_during_training(state.tested_solver, experiment, step, group)
            self.accuracy = {a.length: a.exact_match for a in tested}
            self.metrics.append({**seen, "evaluation": [a.to_json() for a in tested]})
        state.seconds = time.monotonic() - self.started
        if config.keeps(step) and group.leads:
            run.keep_weights(state.tested_solver, step)
        if save and group.leads:
            save_checkpoint(run, state, self.metrics)
        if log or loss.device.type == "cpu":  # to ask a GPU at every step would make it wait
            self.shown_loss = loss.item()
        pace = (time.monotonic() - self.began) / (step - self.first)
        return Progress(
            run.path.name,
            step,
            steps,
            self.shown_loss,
            self.accuracy,
            config.batch_size / pace,
            pace * (steps - step),
            self.declined,
        )

    def save(self) -> None:
        check_finite(self.run, self.state, self.group)
        if self.group.leads:
            save_checkpoint(self.run, self.state, self.metrics)

    def finish(self, interrupted: Callable[[], bool]) -> None:
        """The final evaluation, and the result."""
        run, experiment, solver = self.run, self.experiment, self.state.tested_solver
        tested = evaluate_at_end(solver, experiment, self.group, interrupted)
        result = {
            "identity": run.identity,
            "steps": experiment.steps,
            "examples": experiment.steps * experiment.training.batch_size,
            "parameters": sum(p.numel() for p in solver.parameters()),
            "seconds": round(time.monotonic() - self.started, 1),
            "evaluation": [a.to_json() for a in tested],
        }
        if self.group.leads:
            if experiment.training.keep_optimizer:
                save_optimizer(run, self.state)
            run.finish(solver, result, self.metrics)
        self.group.wait()


def take_step(
    state: State, batch: TrainingBatch, layers: int, experiment: Experiment, group: Alone
) -> Tensor:
    """One step of training on a batch, or on this process's rows of it; returns its loss."""
    with model_rng(state.solver, experiment, state.step, group.rank), autocast(experiment):
        logits = state.solver(batch, layers)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    state.optimizer.zero_grad()
    loss.backward()
    share = len(batch.tokens) / experiment.training.batch_size
    loss = group.average(state.solver, loss, share)
    update(state, experiment)
    state.window.add(loss, logits, batch)
    return loss


def update(state: State, experiment: Experiment) -> None:
    """Change the weights by their gradients."""
    config = experiment.training
    for parameters in state.optimizer.param_groups:
        parameters["lr"] = learning_rate(config, state.step, experiment.steps)
    if config.clip:
        torch.nn.utils.clip_grad_norm_(state.solver.parameters(), config.clip)
    state.optimizer.step()
    state.step += 1
    if config.ema:
        state.update_average(config.ema)


def initial_state(run: Run, device: torch.device) -> State:
    """The model, optimiser and counts before the first step."""
    experiment = run.experiment
    resumed = run.checkpoint.exists()
    if experiment.start_from and not resumed and experiment.identity() != run.identity:
        raise UsageError(
            f"{run.path} was made to start from another run than {experiment.start_from} is now"
        )
    solver = experiment.build() if resumed else initial_solver(experiment)
    solver, config = solver.to(device).train(), experiment.training
    average = deepcopy(solver) if config.ema else None
    if experiment.compile:
        solver.encoder.compile()
    optimizer = config.optimizer.build(solver, config.betas, config.weight_decay)
    window = Window(experiment.training_layout().n_out, device)
    state = State(solver, optimizer, window, average)
    if experiment.start_optimizer and not resumed:
        restore(state.optimizer_tensors(), *load_optimizer(experiment))
    return state


def initial_solver(experiment: Experiment) -> Solver:
    """The model with random weights, or those that it starts from."""
    solver = experiment.build()
    if experiment.start_from is None:
        seed = int(generator(experiment.seed, "initialisation").integers(2**62))
        solver.encoder.initialise(torch.Generator().manual_seed(seed))
    else:
        solver.load_state_dict(load_origin(experiment))
    return solver


def data_seed(run: Run) -> int:
    """The seed of training problems; a run that starts from another must not repeat its batches."""
    return int(run.identity[:15], 16) if run.experiment.start_from else run.experiment.seed


def batches(
    experiment: Experiment,
    solver: Solver,
    start: int,
    seed: int | None = None,
    rows: slice | None = None,
) -> Iterator[tuple[TrainingBatch, int]]:
    """The batch of each step, or some rows of it, and how often its layers are applied."""
    seed = experiment.seed if seed is None else seed
    data = TrainingSet(experiment.task, experiment.data, seed)
    for step in range(start, experiment.steps):
        examples = data.batch(step, experiment.training.batch_size)
        padding = sample_padding(experiment, step)
        rng = generator(experiment.seed, "layers", step)
        layers = experiment.model.depth.sample_layers(rng, experiment.model.layers)
        yield solver.training_batch(examples, padding, rows), layers


def sample_padding(experiment: Experiment, step: int) -> int:
    most = experiment.extra_padding
    return int(generator(experiment.seed, "padding", step).integers(most + 1)) if most else 0


def learning_rate(config: TrainingConfig, step: int, steps: int) -> float:
    """A linear warm-up, then a cosine to zero, or a constant."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, steps - config.warmup_steps)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


def evaluate_during_training(
    solver: Solver, experiment: Experiment, step: int, group: Alone = ALONE
) -> list[Accuracy]:
    """Every step has test sets of its own."""
    config = experiment.evaluation

    def measure(length: int) -> Accuracy:
        (accuracy,) = evaluate(
            solver, [length], config.examples, experiment.seed, step, config.sampling
        )
        return accuracy

    return group.map(measure, list(dict.fromkeys(experiment.lengths)))


def evaluate_at_end(
    solver: Solver, experiment: Experiment, group: Alone, interrupted: Callable[[], bool]
) -> list[Accuracy]:
    """The final evaluation, which the checkpoint of the last step lets be stopped at any block."""

    def measure(length: int) -> Accuracy:
        blocks = until(interrupted, final_test_set(experiment, length))
        return measure_accuracy(solver, length, blocks)

    return group.map(measure, list(dict.fromkeys(experiment.final_lengths)))


def final_test_set(experiment: Experiment, length: int) -> Iterator[Examples]:
    config, occasion = experiment.evaluation, experiment.steps + 1
    count, seed = config.final_examples, experiment.seed
    return evaluation_set(experiment.task, length, count, seed, occasion, config.sampling)


def until(stop: Callable[[], bool], blocks: Iterator[Examples]) -> Iterator[Examples]:
    """The blocks, until there is a Ctrl-C."""
    for block in blocks:
        if stop():
            raise KeyboardInterrupt
        yield block


def check_finite(run: Run, state: State, group: Alone) -> None:
    """Stop a run whose loss or weights are not numbers any more, before they reach a checkpoint."""
    if not math.isfinite(state.window.loss):
        reason = f"the loss is {state.window.loss} at step {state.step}"
    elif not all(bool(p.isfinite().all()) for p in state.solver.parameters()):
        reason = f"the weights are no longer finite at step {state.step}"
    else:
        return
    if group.leads:
        run.fail(reason, state.step)
    kept = "the last checkpoint is kept, and " if run.checkpoint.exists() else ""
    raise UsageError(
        f"training of {run.path} stopped: {reason}; {kept}a smaller training.learning_rate may help"
    )


def model_rng(
    solver: Solver, experiment: Experiment, step: int, rank: int = 0
) -> AbstractContextManager[Any]:
    """Dropout depends on the seed and the step only; PyTorch's global generator is left alone.

    Each process of a group has masks of its own, for other rows.
    """
    if not solver.encoder.random:
        return nullcontext()
    purpose = ("dropout", step, rank) if rank else ("dropout", step)
    return torch_seed(int(generator(experiment.seed, *purpose).integers(2**62)))


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def autocast(experiment: Experiment) -> AbstractContextManager[Any]:
    device_type = torch.device(experiment.device).type
    enabled = experiment.precision == "bfloat16"
    return torch.autocast(device_type, torch.bfloat16, enabled=enabled)
