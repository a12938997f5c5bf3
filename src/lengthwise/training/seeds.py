"""Several seeds of one experiment, trained as one batched model.

A small model leaves a GPU idle: its kernels are shorter than their launches. Here the weights of
all seeds are stacked along an axis of their own, so that one launch serves all seeds. The model is
the plain one: `torch.func.vmap` gives its operations the axis, and a product of matrices becomes a
batched one. Each seed keeps its own optimiser, batches, records and directory.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from lengthwise import fast
from lengthwise.base import UsageError
from lengthwise.problems.batch import TrainingBatch
from lengthwise.problems.layouts import Coordinates
from lengthwise.solver import Solver
from lengthwise.training import loop, machine
from lengthwise.training.experiment import Experiment
from lengthwise.training.interrupts import defer_interrupts
from lengthwise.training.loop import Progress, Session
from lengthwise.training.runs import Run

TOLERANCE = 1e-4  # of logits in float32, computed in a batch of seeds and alone


def train_seeds(runs: Sequence[Run], failures: dict[Run, str]) -> Iterator[Progress]:
    """Train runs that differ in their seeds only, yielding the progress of each after each step.

    A run that fails is left out from then on, and its reason is put into `failures`. Runs may be at
    different steps, as after a kill: those that are ahead wait for the others.
    """
    experiment = runs[0].experiment
    device = machine.prepare(experiment.device, experiment.threads)
    with ExitStack() as locks, defer_interrupts() as interrupted:
        for run in runs:
            locks.enter_context(run.locked())
        sessions = [Session(run, device) for run in runs if loop.needs_training(run)]
        drawn = [session.batches() for session in sessions]
        for session in sessions:
            session.begin(f"it is one of {len(sessions)} seeds of a batched model")
        for step in range(min((s.first for s in sessions), default=0), experiment.steps):
            members = [s for s in sessions if s.state.step == step and s.run not in failures]
            batches = [next(b) for s, b in zip(sessions, drawn, strict=True) if s in members]
            losses = take_steps(members, *zip(*batches, strict=True)) if members else []
            stop = interrupted()
            for session, loss in zip(members, losses, strict=True):
                try:
                    progress = session.record(loss, stop)
                except UsageError as error:  # its loss is not a number any more
                    failures[session.run] = str(error)
                    continue
                try:
                    yield progress
                except GeneratorExit:  # the caller leaves its loop early
                    for other in members:
                        with suppress(UsageError):  # of one that has failed
                            other.save()
                    raise
            if stop:
                raise KeyboardInterrupt
        for session in sessions:
            if session.run not in failures:
                session.finish(interrupted)


def take_steps(
    sessions: Sequence[Session], batches: Sequence[TrainingBatch], layers: Sequence[int]
) -> list[Tensor]:
    """One step of every seed, each on its own batch; returns their losses."""
    states, experiment = [session.state for session in sessions], sessions[0].experiment
    with loop.autocast(experiment):
        outputs = compute([state.solver for state in states], batches, layers)
    for state in states:
        state.optimizer.zero_grad()
    torch.stack([loss for loss, _ in outputs]).sum().backward()  # no loss depends on two seeds
    for state, batch, (loss, logits) in zip(states, batches, outputs, strict=True):
        loop.update(state, experiment)
        state.window.add(loss, logits, batch)
    return [loss for loss, _ in outputs]


def compute(
    solvers: Sequence[Solver], batches: Sequence[TrainingBatch], layers: Sequence[int]
) -> list[tuple[Tensor, Tensor]]:
    """The loss and the logits of every seed, in one pass for all whose batches have one shape."""
    alike: dict[object, list[int]] = {}
    for i, batch in enumerate(batches):
        alike.setdefault((batch.tokens.shape, batch.n_out, layers[i]), []).append(i)
    outputs: dict[int, tuple[Tensor, Tensor]] = {}
    for members in alike.values():
        found = compute_together(
            [solvers[i] for i in members], [batches[i] for i in members], layers[members[0]]
        )
        outputs |= dict(zip(members, found, strict=True))
    return [outputs[i] for i in range(len(solvers))]


def compute_together(
    solvers: Sequence[Solver], batches: Sequence[TrainingBatch], layers: int
) -> list[tuple[Tensor, Tensor]]:
    """The same for batches of one shape: the plain model, with an axis of seeds in front."""
    named = [dict(solver.named_parameters()) for solver in solvers]
    weights = {name: torch.stack([own[name] for own in named]) for name in named[0]}
    tokens, targets = (torch.stack([getattr(b, n) for b in batches]) for n in ("tokens", "targets"))
    coordinates = [vars(batch.coordinates) for batch in batches]
    # Coordinates (j,) are those of the layout, which all seeds have; (b, j) are of the problems.
    shared = {name: value for name, value in coordinates[0].items() if value.dim() == 1}
    own = {n: torch.stack([c[n] for c in coordinates]) for n in coordinates[0].keys() - shared}

    def compute_seed(
        weights: dict[str, Tensor], tokens: Tensor, targets: Tensor, own: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor]:
        at = Coordinates(**shared, **own)
        batch = replace(batches[0], tokens=tokens, targets=targets, coordinates=at)
        logits = functional_call(solvers[0], weights, (batch, layers))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), logits

    with fast.use_pytorch():
        losses, logits = torch.func.vmap(compute_seed)(weights, tokens, targets, own)
    return list(zip(losses, logits, strict=True))


def decline_reason(experiment: Experiment) -> str | None:
    """Why seeds of an experiment can't be one batched model; None if they can.

    Whether the operations of its model can be batched is tried out, with two seeds on the CPU.
    """
    if experiment.compile:
        return "compile is true"
    experiments = [experiment.model_copy(update={"seed": seed}) for seed in (0, 1)]
    solvers = [loop.initial_solver(one).train() for one in experiments]
    if solvers[0].encoder.random:
        return "dropout or random positions would not be those of runs on their own"
    drawn = [next(loop.batches(e, s, 0)) for e, s in zip(experiments, solvers, strict=True)]
    batches, layers = zip(*drawn, strict=True)
    try:
        together = compute(solvers, batches, layers)
        torch.stack([loss for loss, _ in together]).sum().backward()
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:  # of vmap
        return f"PyTorch can't batch its model: {str(error).strip().partition(chr(10))[0]}"
    with torch.no_grad(), fast.use_pytorch():
        alone = [solver(batch, n) for solver, (batch, n) in zip(solvers, drawn, strict=True)]
    pairs = zip(together, alone, strict=True)
    difference = max(float((logits.detach() - own).abs().max()) for (_, logits), own in pairs)
    if not difference <= TOLERANCE:
        return f"its logits in a batch of seeds are off by {difference:.2g}"
    return None


def without_seed(experiment: Experiment) -> str:
    """The same text for all seeds of an experiment."""
    return experiment.model_copy(update={"seed": 0}).model_dump_json()
