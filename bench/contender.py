"""One contender of the benchmark, in a process of its own: it works when it is told to, and says how long it took.

Each line of its input is what to do, such as training, and how many units of it (steps, test sets, matrix products).
The answer is the seconds that one took; for the first of a kind, after some units to warm up, also its flops.
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from lengthwise import kernels, machine
from lengthwise.data import TrainingSet, evaluation_set
from lengthwise.evaluation import accuracy
from lengthwise.experiment import Experiment, load
from lengthwise.huggingface import to_huggingface
from lengthwise.runs import Run
from lengthwise.solver import Solver
from lengthwise.training import initial_solver, train

NEVER = 10**9
SQUARE = 1024  # rows and columns of the matrices whose product is the machine's limit


def experiment_of(settings: dict[str, Any]) -> Experiment:
    """A run that neither ends nor is interrupted by tests and checkpoints."""
    endless = {"training.steps": NEVER, "evaluation.every": NEVER, "training.checkpoint_every": NEVER}
    return load(None, {"task": "addition", **endless, **settings})


def our_training(experiment: Experiment) -> Iterator[Any]:
    """The very loop that `lengthwise train` has."""
    with tempfile.TemporaryDirectory() as directory:
        yield from train(Run.create(experiment, Path(directory)))


def our_evaluation(experiment: Experiment) -> Iterator[Any]:
    machine.prepare("cpu", experiment.threads)
    solver, length = initial_solver(experiment).requires_grad_(False), experiment.data.test_digits
    blocks = list(evaluation_set(experiment.task, length, experiment.evaluation.examples, seed=0))
    while True:
        yield accuracy(solver, length, blocks)


def their_model(experiment: Experiment) -> tuple[Solver, torch.nn.Module]:
    """Hugging Face's model with the same weights, and our solver for how problems are written."""
    import transformers

    transformers.logging.set_verbosity_error()
    solver = initial_solver(experiment)
    config, weights = to_huggingface(solver.encoder, solver.layout.length)
    family = config["model_type"].capitalize()
    config_class = getattr(transformers, f"{family}Config")
    model_class = getattr(transformers, f"{family}ForTokenClassification")
    relative = experiment.model.position.kind != "absolute"  # which scaled_dot_product_attention doesn't do
    attention = {"attn_implementation": "eager"} if relative else {}
    model = model_class._from_config(config_class(**config), **attention)
    model.load_state_dict(weights)
    return solver, model


def their_training(experiment: Experiment, compiled: bool = False) -> Iterator[Any]:
    """The loop that one would write around Hugging Face's model, with our data."""
    torch.set_num_threads(experiment.threads)
    solver, model = their_model(experiment)
    data, config = TrainingSet(experiment.task, experiment.data, experiment.seed), experiment.training
    optimizer = torch.optim.AdamW(
        model.parameters(), config.learning_rate, config.betas, weight_decay=config.weight_decay, fused=True
    )
    layout, forward = solver.layout, torch.compile(model) if compiled else model
    model.train()
    for step in range(NEVER):
        examples = data.batch(step, config.batch_size)
        logits = forward(torch.from_numpy(layout.encode(examples.operands))).logits[:, : layout.n_out]
        targets = solver.targets(examples.answer, layout.n_out)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        yield loss.item()


def their_evaluation(experiment: Experiment, compiled: bool = False) -> Iterator[Any]:
    torch.set_num_threads(experiment.threads)
    solver, model = their_model(experiment)
    model.eval()
    layout, forward, length = solver.layout, torch.compile(model) if compiled else model, experiment.data.test_digits
    blocks = list(evaluation_set(experiment.task, length, experiment.evaluation.examples, seed=0))
    while True:
        correct = 0
        for block in blocks:
            with torch.inference_mode():
                symbols = forward(torch.from_numpy(layout.encode(block.operands))).logits[:, : layout.n_out].argmax(-1)
            correct += int((symbols == solver.targets(block.answer, layout.n_out)).all(1).sum())
        yield correct


def products(experiment: Experiment) -> Iterator[Any]:
    machine.prepare("cpu", experiment.threads)
    a, b, c = (torch.randn(SQUARE, SQUARE) for _ in range(3))
    while True:
        yield torch.mm(a, b, out=c)


def data(experiment: Experiment) -> Iterator[Any]:
    """All of a training step that comes before the model: problems, answers, tokens and coordinates."""
    machine.prepare("cpu", experiment.threads)
    solver, batches = experiment.build(), TrainingSet(experiment.task, experiment.data, experiment.seed)
    for step in range(NEVER):
        examples = batches.batch(step, experiment.training.batch_size)
        layout = solver.layout.fit(examples.operands)
        layout.coordinates(examples.operands).map(torch.from_numpy)
        yield layout.encode(examples.operands), solver.targets(examples.answer, layout.n_out)


def saving(experiment: Experiment) -> Iterator[Any]:
    """Training with a checkpoint at every step."""
    often = experiment.training.model_copy(update={"checkpoint_every": 1})
    return our_training(experiment.model_copy(update={"training": often}))


CONTENDERS: dict[str, dict[str, Callable[[Experiment], Iterator[Any]]]] = {
    "ours": {"training": our_training, "evaluation": our_evaluation, "data": data, "saving": saving},
    "Hugging Face": {"training": their_training, "evaluation": their_evaluation},
    "Hugging Face, compiled": {
        "training": lambda experiment: their_training(experiment, compiled=True),
        "evaluation": lambda experiment: their_evaluation(experiment, compiled=True),
    },
    "the machine": {"products": products},
}


def main() -> None:
    who, settings = sys.argv[1], json.loads(sys.argv[2])
    working: dict[str, Iterator[Any]] = {}
    for line in sys.stdin:
        what, units = json.loads(line)
        flops = 0
        if what not in working:
            work = working[what] = CONTENDERS[who][what](experiment_of(settings))
            next(work)
            if "compiled" not in who:
                with kernels.by_torch(), FlopCounterMode(display=False) as counter:  # which knows torch's operations
                    next(work)
                flops = counter.get_total_flops()
            next(work)
        started = time.perf_counter()
        for _ in range(units):
            next(working[what])
        seconds = time.perf_counter() - started
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds / units, "megabytes": memory, "flops": flops}), flush=True)


if __name__ == "__main__":
    main()
