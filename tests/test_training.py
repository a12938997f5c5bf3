"""The training loop against one that is written out."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lengthwise import experiment as configuration
from lengthwise.data import TrainingSet
from lengthwise.experiment import TrainingConfig
from lengthwise.runs import Run
from lengthwise.training import initial_solver, learning_rate, train

SETTINGS = {
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


def rate(step: int) -> float:
    """Of SETTINGS: four steps up, and half a cosine down over the other eight."""
    return 0.01 * (step + 1) / 4 if step < 4 else 0.005 * (1 + math.cos(math.pi * (step - 4) / 8))


@pytest.mark.parametrize(
    "task", ["addition", {"kind": "multiplication", "second_digits": 1}, {"kind": "modular-addition", "modulus": 101}]
)
def test_a_step_is_that_of_adamw_on_the_mean_cross_entropy(task, tmp_path):
    """Written out: the gradient cut to its largest norm, moments, their bias, decay apart from the gradient."""
    experiment = configuration.load(None, {**SETTINGS, "task": task})
    run = Run.create(experiment, tmp_path)
    list(train(run))
    losses = [record["loss"] for record in run.metrics() if "loss" in record]

    solver = initial_solver(experiment)
    weights = list(solver.parameters())
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    data, layout = TrainingSet(experiment.task, experiment.data, experiment.seed), solver.layout
    for step in range(12):
        examples = data.batch(step, 8)
        at = layout.coordinates(examples.operands).map(torch.from_numpy)
        logits = solver.encoder(torch.from_numpy(layout.encode(examples.operands)), at, layout.n_out)
        targets = torch.from_numpy(layout.encode_answer(examples.answer, layout.n_out))
        loss = -F.log_softmax(logits, -1).gather(-1, targets[..., None]).mean()
        assert loss.item() == pytest.approx(losses[step], rel=1e-4)
        gradients = torch.autograd.grad(loss, weights)
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients))
        assert norm > 0.2  # so that it is cut
        with torch.no_grad():
            for w, gradient, m, v in zip(weights, gradients, first, second, strict=True):
                g = gradient * 0.2 / norm
                m.mul_(0.8).add_(0.2 * g)
                v.mul_(0.9).add_(0.1 * g * g)
                update = m / (1 - 0.8 ** (step + 1)) / ((v / (1 - 0.9 ** (step + 1))).sqrt() + 1e-8)
                w.sub_(rate(step) * (update + 0.3 * w))
    for name, ours in run.load().state_dict().items():
        if not name.endswith("qkv.bias"):  # that of keys changes nothing, and its gradient is what rounding leaves
            torch.testing.assert_close(ours, solver.state_dict()[name], rtol=1e-3, atol=1e-4)


def test_the_learning_rate_rises_and_falls_or_stays():
    config = TrainingConfig(learning_rate=0.01, warmup_steps=4)
    assert np.allclose([learning_rate(config, step, 12) for step in range(12)], [rate(step) for step in range(12)])
    assert learning_rate(config, 8, 12) == pytest.approx(0.005)  # half way
    constant = config.model_copy(update={"schedule": "constant", "warmup_steps": 0})
    assert {learning_rate(constant, step, 12) for step in range(12)} == {0.01}


def test_training_learns(tmp_path):
    """Sums of one digit, nearly all of them in a thousand steps of the smallest model."""
    settings = {
        **SETTINGS,
        "data.train_digits": 1,
        "data.test_digits": 2,
        "data.priming": "",
        "training.batch_size": 32,
        "training.steps": 1000,
        "training.warmup_steps": 50,
        "training.weight_decay": 0.01,
        "training.betas": [0.9, 0.98],
        "training.log_every": 100,
        "evaluation.final_lengths": [1],
        "evaluation.final_examples": 200,
    }
    run = Run.create(configuration.load(None, settings), tmp_path)
    list(train(run))
    assert run.result["evaluation"][0]["exact_match"] > 0.9


def test_training_in_bfloat16_is_near_that_in_float32(tmp_path):
    losses = []
    for precision in ("float32", "bfloat16"):
        run = Run.create(configuration.load(None, {**SETTINGS, "precision": precision}), tmp_path)
        list(train(run))
        losses.append([record["loss"] for record in run.metrics() if "loss" in record])
        assert all(tensor.dtype == torch.float32 for tensor in run.load().state_dict().values())
    assert losses[0] != losses[1]
    assert np.allclose(*losses, rtol=0.05)
