"""The training loop against a written-out one; optimisers, mixtures, bfloat16, fine-tuning."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import label
from known import untrained

from lengthwise import fast
from lengthwise.arithmetic.digits import Numbers
from lengthwise.base import UsageError
from lengthwise.evaluation.accuracy import evaluate
from lengthwise.problems.mixtures import MIXTURES
from lengthwise.problems.training_set import Examples, TrainingSet
from lengthwise.solver import Solver
from lengthwise.training import keys
from lengthwise.training.experiment import Experiment, TrainingConfig
from lengthwise.training.loop import batches, data_seed, initial_solver, learning_rate, train
from lengthwise.training.runs import Run
from lengthwise.training.window import Window

SETTINGS: dict[str, Any] = {
    "model.preset": "tiny",
    "data.priming": "8=20",
    "data.test_digits": 8,
    "training.batch_size": 8,
    "training.steps": 12,
    "training.warmup_steps": 4,
    "training.learning_rate": 0.01,
    "training.betas": [0.8, 0.9],
    "training.weight_decay": 0.3,
    "training.clip": 0.2,
    "training.log_every": 1,
    "evaluation.examples": 5,
    "evaluation.final_examples": 5,
}


def make_run(root: Path, name: str | None = None, **changes: Any) -> Run:
    """A finished run of SETTINGS with some keys changed: `model__width=8` is model.width."""
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    run = Run.create(keys.load(None, {**SETTINGS, **dotted}), root, name)
    list(train(run))
    return run


def losses(run: Run) -> list[float]:
    return [record["loss"] for record in run.metrics if "loss" in record]


def expected_rate(step: int) -> float:
    """Of SETTINGS: four steps up, and half a cosine down over the other eight."""
    return 0.01 * (step + 1) / 4 if step < 4 else 0.005 * (1 + math.cos(math.pi * (step - 4) / 8))


def plain_loss(
    solver: Solver, experiment: Experiment, step: int, seed: int | None = None
) -> torch.Tensor:
    """The mean cross-entropy of a training batch, from its parts."""
    layout = solver.layout
    seed = experiment.seed if seed is None else seed
    data = TrainingSet(experiment.task, experiment.data, seed)
    examples = data.batch(step, experiment.training.batch_size)
    tokens = torch.from_numpy(layout.encode(examples.operands))
    coordinates = layout.coordinates(examples.operands).map(torch.from_numpy)
    logits = solver.encoder(tokens, coordinates, layout.n_out)
    targets = torch.from_numpy(layout.encode_answer(examples.answer, layout.n_out))
    return -F.log_softmax(logits, -1).gather(-1, targets[..., None]).mean()


@pytest.mark.parametrize(
    "task",
    [
        {"kind": "addition"},
        {"kind": "multiplication", "second_digits": 1},
        {"kind": "modular-addition", "modulus": 101},
    ],
    ids=label,
)
def test_a_step_is_adamws_on_the_mean_cross_entropy(task: dict[str, Any], tmp_path: Path) -> None:
    """Written out: the clipped gradient, moments without bias, decay apart from the gradient."""
    run = make_run(tmp_path, task=task)
    experiment, logged = run.experiment, losses(run)
    solver = initial_solver(experiment)
    weights = list(solver.parameters())
    means, squares = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for step in range(12):
        loss = plain_loss(solver, experiment, step)
        assert loss.item() == pytest.approx(logged[step], rel=1e-4)
        gradients = torch.autograd.grad(loss, weights)
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        assert norm > 0.2, "the gradient must be clipped"
        with torch.no_grad():
            for w, gradient, m, v in zip(weights, gradients, means, squares, strict=True):
                g = gradient * 0.2 / norm
                m.mul_(0.8).add_(0.2 * g)
                v.mul_(0.9).add_(0.1 * g * g)
                corrected = (v / (1 - 0.9 ** (step + 1))).sqrt() + 1e-8
                update = m / (1 - 0.8 ** (step + 1)) / corrected
                w.sub_(expected_rate(step) * (update + 0.3 * w))
    for name, trained in run.load().state_dict().items():
        if not name.endswith("key.bias"):  # it changes no output; its gradient is rounding
            expected = solver.state_dict()[name]
            torch.testing.assert_close(trained, expected, rtol=1e-3, atol=1e-4, msg=name)


def test_a_run_in_c_is_near_one_in_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_c = make_run(tmp_path, "c")
    monkeypatch.setenv("LENGTHWISE_FAST", "off")
    in_pytorch = make_run(tmp_path, "pytorch")
    assert losses(in_c) == pytest.approx(losses(in_pytorch), rel=1e-4)


def test_the_run_keeps_what_computed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lengthwise.base.files import read_json

    monkeypatch.setenv("LENGTHWISE_FAST", "off")
    run = Run.create(keys.load(None, SETTINGS), tmp_path)
    assert {progress.declined for progress in train(run)} == {"the C code is switched off"}
    (session,) = read_json(run.path / "environment.json")["sessions"]
    assert session["computed by"] == "PyTorch: the C code is switched off"


def test_the_window_counts_unprimed_and_primed_examples_apart() -> None:
    """Symbols that a narrow layout leaves out are padding, and right."""
    solver = untrained(layout="fitted", digits=4, position="alibi")
    numbers = Numbers.from_ints([1, 23, 4]), Numbers.from_ints([5, 67, 8])  # 6, 90, 12
    examples = Examples.of(solver.task, numbers, np.array([False, True, True]))
    batch = solver.training_batch(examples)
    assert batch.targets.shape == (3, 3)
    logits = F.one_hot(batch.targets, 15).float()
    logits[2, 1] = F.one_hot(torch.tensor(7), 15)  # 17 instead of 12
    window = Window(5, torch.device("cpu"))
    window.add(torch.tensor(2.0), logits, batch)
    window.add(torch.tensor(4.0), logits, batch)
    assert window.to_json() == {
        "loss": 3.0,
        "train": {"examples": 2, "exact_match": 1.0, "digits": [1.0] * 5},
        "primed": {"examples": 4, "exact_match": 0.5, "digits": [1.0, 0.5, 1.0, 1.0, 1.0]},
    }
    window.clear()
    assert window.to_json() == {"loss": 0.0}


def test_the_learning_rate_rises_and_falls_or_stays() -> None:
    config = TrainingConfig(learning_rate=0.01, warmup_steps=4)
    rates = [learning_rate(config, step, 12) for step in range(12)]
    assert np.allclose(rates, [expected_rate(step) for step in range(12)])
    assert learning_rate(config, 8, 12) == pytest.approx(0.005)  # half way
    constant = config.model_copy(update={"schedule": "constant", "warmup_steps": 0})
    assert {learning_rate(constant, step, 12) for step in range(12)} == {0.01}


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_training_learns(optimizer: str, tmp_path: Path) -> None:
    """Sums of one digit, nearly all of them in a few hundred steps of the smallest model."""
    settings = {
        "data.train_digits": 1,
        "data.test_digits": 2,
        "data.priming": "",
        "training.optimizer": optimizer,
        "training.batch_size": 32,
        "training.steps": 800,
        "training.warmup_steps": 50,
        "training.weight_decay": 0.01,
        "training.betas": [0.9, 0.98],
        "training.clip": 1.0,
        "training.log_every": 100,
        "evaluation.final_lengths": [1],
        "evaluation.final_examples": 200,
    }
    run = Run.create(keys.load(None, {**SETTINGS, **settings}), tmp_path)
    list(train(run))
    assert run.result is not None
    assert run.result["evaluation"][0]["exact_match"] > 0.9


def test_bfloat16_is_near_float32(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, precision=precision) for precision in ("float32", "bfloat16")]
    single, half = map(losses, runs)
    assert single != half
    assert np.allclose(single, half, rtol=0.05)
    for run in runs:  # weights stay in single precision
        assert {tensor.dtype for tensor in run.load().state_dict().values()} == {torch.float32}


def test_dropout_changes_training_and_not_testing(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, model__dropout=rate) for rate in (0.0, 0.3)]
    assert losses(runs[0])[0] != losses(runs[1])[0]
    solver = runs[1].load()
    assert solver.explain("12+34") == solver.explain("12+34")


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_rewrites_its_share_of_batches_and_nothing_else(name: str) -> None:
    """An experiment's batches; the share is of problems, and the others stay as they were."""
    fields = {**SETTINGS, "training.batch_size": 200, "data.priming": ""}
    plain, mixed = (
        keys.load(None, {**fields, "data.mixture": mixture}) for mixture in ({}, {name: 0.4})
    )
    changed = (first_tokens(plain, 5) != first_tokens(mixed, 5)).any(-1)  # (steps, examples)
    # Some rewrites change nothing, in short numbers above all.
    assert 0.2 < changed.float().mean().item() < 0.45
    assert len({tuple(step.tolist()) for step in changed}) == 5, "every step has its own share"


def first_tokens(experiment: Experiment, steps: int) -> torch.Tensor:
    """(steps, examples, tokens)"""
    made = batches(experiment, experiment.build(), 0)
    return torch.stack([next(made)[0].tokens for _ in range(steps)])


@pytest.mark.parametrize(
    ("value", "mixture"),
    [
        ({"zeros": 0.1, "carry-chains": 0.3}, {"zeros": 0.1, "carry-chains": 0.3}),
        ("carry-chains=0.3,zeros=0.1", {"zeros": 0.1, "carry-chains": 0.3}),
        ("", {}),
        (None, {}),
        ({"zeros": 1}, {"zeros": 1.0}),
    ],
    ids=label,
)
def test_mixtures_are_read(value: object, mixture: dict[str, float]) -> None:
    assert keys.load(None, {"data.mixture": value}).data.mixture == mixture


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"zeroes": 0.1}, "there is no mixture 'zeroes': did you mean 'zeros'?"),
        ("chains=0.1", "there is no mixture 'chains': did you mean 'carry-chains'?"),
        ({"zeros": 1.5}, "data.mixture.zeros is 1.5, but"),
        ("zeros", "data.mixture.zeros is '', but"),
    ],
    ids=label,
)
def test_bad_mixtures_are_refused_in_one_sentence(value: object, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        keys.load(None, {"data.mixture": value})
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_fine_tuning_starts_from_the_other_runs_weights(tmp_path: Path) -> None:
    """The first loss of the second run is the first run's model on the second run's first batch."""
    first = make_run(tmp_path, "first")
    tuned = make_run(tmp_path, "tuned", start_from=str(first.path), data__priming="8=50", seed=3)
    assert tuned.identity != first.identity
    with torch.no_grad(), fast.use_pytorch():
        expected = plain_loss(first.load(), tuned.experiment, 0, data_seed(tuned))
    assert losses(tuned)[0] == pytest.approx(expected.item(), rel=1e-4)


def test_a_run_does_not_repeat_the_batches_of_the_one_that_it_starts_from(tmp_path: Path) -> None:
    first = make_run(tmp_path, "first", training__steps=1)
    second = make_run(tmp_path, "second", training__steps=1, start_from=str(first.path))
    third = make_run(tmp_path, "third", training__steps=1, start_from=str(second.path))
    seeds = {data_seed(run) for run in (first, second, third)}
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model__width": 64}, "whose model.width is 32 instead of 64"),
        ({"model__position": "absolute"}, "whose model.position is"),
        ({"model__heads": 4}, "whose model.heads is 2 instead of 4"),
        ({"data__test_digits": 9}, "positions.0.table.weight is (33, 16) there and (37, 16) here"),
    ],
    ids=label,
)
def test_fine_tuning_needs_weights_that_fit(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    first = make_run(tmp_path, "first", training__steps=1)
    with pytest.raises(UsageError, match="start_from is ") as caught:
        make_run(tmp_path, "tuned", start_from=str(first.path), **changes)
    assert sentence in str(caught.value)


def test_fine_tuning_needs_a_finished_run(tmp_path: Path) -> None:
    unfinished = Run.create(keys.load(None, SETTINGS), tmp_path, "first")
    with pytest.raises(UsageError, match="which has not finished"):
        make_run(tmp_path, "tuned", start_from=str(unfinished.path))


def test_averaged_weights_are_tested_and_kept(tmp_path: Path) -> None:
    """They follow the weights of the same run without an average."""
    every_step = {"training__keep_checkpoints": 1, "evaluation__every": 6}
    plain = make_run(tmp_path, "plain", **every_step)
    averaged = make_run(tmp_path, "averaged", training__ema=0.5, **every_step)
    assert losses(averaged) == losses(plain)
    expected = plain.load(step=0).state_dict()
    for step in range(1, 13):
        share = max(0.5, 9 / (step + 10))
        for name, weight in plain.load(step=step).state_dict().items():
            expected[name] += share * (weight - expected[name])
        kept = averaged.load(step=step).state_dict()
        for name, weight in kept.items():
            torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-6)
    (tested, *_) = evaluate(averaged.load(), [5], 5, averaged.experiment.seed, 13)
    assert averaged.result is not None
    assert averaged.result["evaluation"][0] == tested.to_json()


def test_an_unfinished_run_is_loaded_with_averaged_weights(tmp_path: Path) -> None:
    settings = {**SETTINGS, "training.ema": 0.5, "training.checkpoint_every": 5}
    run = Run.create(keys.load(None, {**settings, "training.keep_checkpoints": 5}), tmp_path, "run")
    next(progress for progress in train(run) if progress.step == 5)
    loaded, kept = (solver.state_dict() for solver in (run.load(), run.load(step=5)))
    assert all(torch.equal(loaded[name], kept[name]) for name in kept)
