"""One contender of the benchmark, in a process of its own, which works when it is its turn.

Each line of its input names the work, such as training, and how many units of it: steps, test sets,
matrix products. The answer has the seconds of one unit and the peak memory. The first answer for a
kind of work comes after some units of warm-up and has two more facts: the floating-point operations
of a unit, and whether the C code computes.

All contenders have the same settings: the same threads, glibc that keeps freed memory
(`machine.keep_memory`), and no search for garbage among imported modules (`gc.freeze`).
"""

import ctypes
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from lengthwise import fast
from lengthwise.evaluation.accuracy import measure_accuracy
from lengthwise.problems.evaluation_set import evaluation_set
from lengthwise.problems.training_set import Examples, TrainingSet
from lengthwise.solver import Solver
from lengthwise.solver.huggingface import to_huggingface
from lengthwise.training import keys, machine
from lengthwise.training.experiment import Experiment
from lengthwise.training.loop import batches, initial_solver, train
from lengthwise.training.runs import Run

NEVER = 10**9
SQUARE = 1024  # rows and columns of the matrices whose product is the limit of matrix products
PEAK_STEPS = 1_000_000
Work = Callable[[Experiment], Iterator[Any]]


def make_experiment(settings: dict[str, Any]) -> Experiment:
    """A run that neither ends nor is interrupted by tests and checkpoints."""
    intervals = ("training.steps", "evaluation.every", "training.checkpoint_every")
    return keys.load(None, {"task": "addition", **dict.fromkeys(intervals, NEVER), **settings})


def evaluation_blocks(experiment: Experiment) -> list[Examples]:
    count = experiment.evaluation.examples
    return list(evaluation_set(experiment.task, experiment.data.test_digits, count, seed=0))


def our_training(experiment: Experiment) -> Iterator[Any]:
    """The loop of `lengthwise train`."""
    with tempfile.TemporaryDirectory() as directory:
        yield from train(Run.create(experiment, Path(directory)))


def our_evaluation(experiment: Experiment) -> Iterator[Any]:
    machine.prepare("cpu", experiment.threads)
    solver = initial_solver(experiment).requires_grad_(False)
    blocks, length = evaluation_blocks(experiment), experiment.data.test_digits
    while True:
        yield measure_accuracy(solver, length, blocks)


def make_huggingface(experiment: Experiment) -> tuple[Solver, torch.nn.Module]:
    """Hugging Face's model with our weights, and our solver, which writes the problems."""
    import transformers

    machine.prepare("cpu", experiment.threads)
    transformers.logging.set_verbosity_error()
    solver = initial_solver(experiment)
    config, weights = to_huggingface(solver.encoder, solver.layout.length)
    family = config["model_type"].capitalize()
    config_class = getattr(transformers, f"{family}Config")
    model_class = getattr(transformers, f"{family}ForTokenClassification")
    # Its scaled_dot_product_attention has no relative embeddings.
    relative = experiment.model.position.kind != "absolute"
    attention = {"attn_implementation": "eager"} if relative else {}
    model: torch.nn.Module = model_class._from_config(config_class(**config), **attention)
    model.load_state_dict(weights)
    return solver, model


def huggingface_training(experiment: Experiment, compiled: bool = False) -> Iterator[Any]:
    """The loop that one would write around Hugging Face's model, with our data."""
    solver, model = make_huggingface(experiment)
    layout, config = solver.layout, experiment.training
    optimizer = torch.optim.AdamW(
        model.parameters(),
        config.learning_rate,
        config.betas,
        weight_decay=config.weight_decay,
        fused=True,
    )
    assert config.clip is not None
    forward = torch.compile(model) if compiled else model
    data = TrainingSet(experiment.task, experiment.data, experiment.seed)
    model.train()
    for step in range(NEVER):
        examples = data.batch(step, config.batch_size)
        tokens = torch.from_numpy(layout.encode(examples.operands))
        targets = torch.from_numpy(layout.encode_targets(examples.operands, examples.answer))
        logits = forward(tokens).logits[:, : layout.n_out]
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()
        yield loss.item()


def huggingface_evaluation(experiment: Experiment, compiled: bool = False) -> Iterator[Any]:
    solver, model = make_huggingface(experiment)
    layout, blocks = solver.layout, evaluation_blocks(experiment)
    forward = torch.compile(model.eval()) if compiled else model.eval()
    while True:
        correct = 0
        for block in blocks:
            # As many problems at once as ours solves.
            for start in range(0, len(block), size := solver.batch_size(layout)):
                part = block[start : start + size]
                with torch.inference_mode():
                    tokens = torch.from_numpy(layout.encode(part.operands))
                    symbols = forward(tokens).logits[:, : layout.n_out].argmax(-1).numpy()
                correct += int((symbols == layout.encode_answer(part.answer)).all(1).sum())
        yield correct


def products(experiment: Experiment) -> Iterator[Any]:
    machine.prepare("cpu", experiment.threads)
    a, b, c = (torch.randn(SQUARE, SQUARE) for _ in range(3))
    while True:
        yield torch.mm(a, b, out=c)


def peak(experiment: Experiment) -> Iterator[Any]:
    """Multiply-adds that don't wait for each other; gives the operations of each unit."""
    machine.prepare("cpu", experiment.threads)
    with tempfile.TemporaryDirectory() as directory:
        library, flags = f"{directory}/peak.so", ("-O3", "-march=native", "-ffp-contract=fast")
        source = Path(__file__).with_name("peak.c")
        subprocess.run(["cc", *flags, "-shared", "-fPIC", source, "-o", library], check=True)
        multiply_add = ctypes.CDLL(library).multiply_add
    multiply_add.restype = ctypes.c_double
    multiply_add.argtypes = ctypes.c_long, ctypes.POINTER(ctypes.c_float)
    total = ctypes.c_float()
    while True:
        yield multiply_add(PEAK_STEPS, ctypes.byref(total))


def data(experiment: Experiment) -> Iterator[Any]:
    """What a training step does before the model: problems, answers, tokens, coordinates."""
    machine.prepare("cpu", experiment.threads)
    yield from batches(experiment, experiment.build(), 0)


def checkpoints(experiment: Experiment) -> Iterator[Any]:
    """Training with a checkpoint at every step."""
    often = experiment.training.model_copy(update={"checkpoint_every": 1})
    return our_training(experiment.model_copy(update={"training": often}))


OURS: dict[str, Work] = {
    "training": our_training,
    "evaluation": our_evaluation,
    "data": data,
    "checkpoints": checkpoints,
}
CONTENDERS: dict[str, dict[str, Work]] = {
    "C": OURS,
    "PyTorch": OURS,  # bench.py switches the C code off
    "Hugging Face": {"training": huggingface_training, "evaluation": huggingface_evaluation},
    "Hugging Face, compiled": {
        "training": lambda experiment: huggingface_training(experiment, compiled=True),
        "evaluation": lambda experiment: huggingface_evaluation(experiment, compiled=True),
    },
    "the machine": {"products": products, "peak": peak},
}


def computed_by(experiment: Experiment, training: bool) -> str:
    """Whether the C code computes our model's batches."""
    solver = initial_solver(experiment).train(training)
    batch, _ = next(batches(experiment, solver, 0))
    reason = fast.decline_reason(solver.encoder, batch.tokens, batch.coordinates)
    return "C" if reason is None else f"PyTorch: {reason}"


def warm_up(who: str, what: str, work: Iterator[Any], experiment: Experiment) -> dict[str, Any]:
    result = next(work)
    facts: dict[str, Any] = {}
    if what == "peak":
        facts["flops"] = result
    elif "compiled" not in who:
        # The counter knows PyTorch's operations only.
        with fast.use_pytorch(), FlopCounterMode(display=False) as counter:
            next(work)
        facts["flops"] = counter.get_total_flops()
    if who in ("C", "PyTorch"):
        facts["computed by"] = computed_by(experiment, what == "training")
    next(work)
    return facts


def main() -> None:
    who, settings = sys.argv[1], json.loads(sys.argv[2])
    working: dict[str, Iterator[Any]] = {}
    for line in sys.stdin:
        what, units = json.loads(line)
        facts: dict[str, Any] = {}
        if what not in working:
            experiment = make_experiment(settings)
            working[what] = CONTENDERS[who][what](experiment)
            facts = warm_up(who, what, working[what], experiment)
        started = time.perf_counter()
        for _ in range(units):
            next(working[what])
        seconds = (time.perf_counter() - started) / units
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "megabytes": megabytes, **facts}), flush=True)


if __name__ == "__main__":
    main()
