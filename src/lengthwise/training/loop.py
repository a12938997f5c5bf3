"""One plain loop: batch, loss, step; at intervals log, evaluate, checkpoint.

Every batch, dropout mask and test set is a function of the seed and the step, and a checkpoint
holds the rest. So a run that was killed and resumed ends with the same bits as one that never was.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from lengthwise.training.interrupts import deferred_interrupts
from lengthwise.training.journal import Journal, NoJournal
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
    with run.locked() if group.leads else nullcontext(), deferred_interrupts() as interrupted:
        run.manifest.verify()
        if run.result is None:
            state = load_state(run, device, group)
            metrics = run.open_metrics(state.step) if group.leads else NoJournal()
            yield from take_steps(run, state, metrics, group, interrupted)
            finish(run, state, metrics, group, interrupted)
        elif group.leads:
            run.clean_up()


def take_steps(
    run: Run, state: State, metrics: Journal, group: Alone, interrupted: Callable[[], bool]
) -> Iterator[Progress]:
    """Train from the state's step to the last; at intervals log, evaluate and save."""
    experiment, config, solver = run.experiment, run.experiment.training, state.solver
    first, steps, device = state.step, experiment.steps, solver.device.type
    accuracy, shown_loss = run.last_accuracy(), math.nan
    started = time.monotonic() - state.seconds
    rows = group.rows(config.batch_size)
    drawn = batches(experiment, solver, first, data_seed(run), rows)
    for batch, layers in draw_ahead(drawn, BATCHES_AHEAD[device]):
        if state.step == first:
            reason = record_session(run, state, batch, group)
            session_started = time.monotonic()
        rate = learning_rate(config, state.step, steps)
        loss = take_step(state, batch, layers, rate, experiment, group)

        step, last, stop = state.step, state.step == steps, group.any(interrupted())
        log = step % config.log_every == 0 or last
        save = step % config.checkpoint_every == 0 or last or stop
        seen = {"step": step, "examples": step * config.batch_size}
        if log or save:
            group.add_up(state.window.counts)
            check_finite(run, state, group)
        if log:
            metrics.append({**seen, "learning_rate": rate, **state.window.to_json()})
            state.window.clear()
        if step % experiment.evaluation.every == 0 or last:
            tested = evaluate_during_training(solver, experiment, step, group)
            accuracy = {a.length: a.exact_match for a in tested}
            metrics.append({**seen, "evaluation": [a.to_json() for a in tested]})
        state.seconds = time.monotonic() - started
        if config.keeps(step) and group.leads:
            run.keep_weights(solver, step)
        if save and group.leads:
            save_checkpoint(run, state, metrics)
        if stop:
            raise KeyboardInterrupt

        if log or device == "cpu":  # to ask a GPU at every step would make it wait
            shown_loss = loss.item()
        pace = (time.monotonic() - session_started) / (step - first)
        rates = config.batch_size / pace, pace * (steps - step)
        try:
            yield Progress(run.path.name, step, steps, shown_loss, accuracy, *rates, reason)
        except GeneratorExit:  # the caller leaves its loop early
            check_finite(run, state, group)
            if group.leads:
                save_checkpoint(run, state, metrics)
            raise


def take_step(
    state: State,
    batch: TrainingBatch,
    layers: int,
    rate: float,
    experiment: Experiment,
    group: Alone,
) -> Tensor:
    """One step of training on a batch, or on this process's rows of it; returns its loss."""
    solver, config = state.solver, experiment.training
    for parameters in state.optimizer.param_groups:
        parameters["lr"] = rate
    with model_rng(solver, experiment, state.step, group.rank), autocast(experiment):
        logits = solver(batch, layers)
        loss = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    state.optimizer.zero_grad()
    loss.backward()
    loss = group.average(solver, loss, len(batch.tokens) / config.batch_size)
    if config.clip:
        torch.nn.utils.clip_grad_norm_(solver.parameters(), config.clip)
    state.optimizer.step()
    state.window.add(loss, logits, batch)
    state.step += 1
    return loss


def load_state(run: Run, device: torch.device, group: Alone) -> State:
    """The state at the last checkpoint, or before the first step."""
    run.check_code()
    if group.leads:
        run.forget_failure()
    state = initial_state(run, device)
    load_checkpoint(run, state)
    group.keep_first(state.window.counts)
    if state.step == 0 and run.experiment.training.keeps(0) and group.leads:
        run.keep_weights(state.solver, 0)
    return state


def record_session(run: Run, state: State, batch: TrainingBatch, group: Alone) -> str | None:
    """Note what computes this session, before its first step; returns why it is not the C code."""
    reason = fast.decline_reason(state.solver.encoder, batch.tokens, batch.coordinates)
    if group.leads:
        description = machine.describe(run.experiment.device, reason, group.size)
        run.record_session(description, state.step)
    return reason


def finish(
    run: Run, state: State, metrics: Journal, group: Alone, interrupted: Callable[[], bool]
) -> None:
    """Evaluate the trained model and record the result."""
    started, experiment = time.monotonic(), run.experiment
    tested = evaluate_at_end(state.solver, experiment, group, interrupted)
    result = {
        "identity": run.identity,
        "steps": experiment.steps,
        "examples": experiment.steps * experiment.training.batch_size,
        "parameters": sum(p.numel() for p in state.solver.parameters()),
        "seconds": round(state.seconds + time.monotonic() - started, 1),
        "evaluation": [a.to_json() for a in tested],
    }
    if group.leads:
        if experiment.training.keep_optimizer:
            save_optimizer(run, state)
        run.finish(state.solver, result, metrics)
    group.wait()


def initial_state(run: Run, device: torch.device) -> State:
    """The model, optimiser and counts before the first step."""
    experiment = run.experiment
    resumed = run.checkpoint.exists()
    if experiment.start_from and not resumed and experiment.identity() != run.identity:
        raise UsageError(
            f"{run.path} was made to start from another run than {experiment.start_from} is now"
        )
    solver = experiment.build() if resumed else initial_solver(experiment)
    solver = solver.to(device).train()
    if experiment.compile:
        solver.encoder.compile()
    config = experiment.training
    optimizer = config.optimizer.build(solver, config.betas, config.weight_decay)
    state = State(solver, optimizer, Window(experiment.training_layout().n_out, device))
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

    return group.map(measure, experiment.final_lengths)


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
    return seeded(int(generator(experiment.seed, *purpose).integers(2**62)))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def autocast(experiment: Experiment) -> AbstractContextManager[Any]:
    device_type = torch.device(experiment.device).type
    enabled = experiment.precision == "bfloat16"
    return torch.autocast(device_type, torch.bfloat16, enabled=enabled)
