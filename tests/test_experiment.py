"""What an experiment's identity is made of, by which runs and records are found."""

import shutil

import pytest

from lengthwise import experiment as configuration
from lengthwise.errors import UsageError
from lengthwise.experiment import keys
from lengthwise.runs import Run
from lengthwise.training import train

QUICK = {"model.preset": "tiny", "training.steps": 2, "evaluation.examples": 5, "evaluation.final_examples": 5}
# Options at their defaults aren't part of an identity, so none of these may change. New options can be added.
DEFAULTS = """
task.kind = addition
task.operands = 2
task.modulus = 100
task.constant_length = false
task.second_digits = 3
layout.order = most-significant-first
layout.compact = false
layout.n_out = null
layout.fitted = false
layout.answer_room = false
layout.long_multiplication = false
data.train_digits = 5
data.test_digits = 10
data.train_size = 5000
data.sampling = problem-length
data.priming = []
data.priming_second = online
data.train_operands = null
data.chains = 0.0
data.repeats = 0.0
data.zeros = 0.0
data.padding = 0
model.preset = null
model.encoder = universal-transformer
model.layers = 4
model.width = 128
model.heads = 4
model.feedforward_width = null
model.embedding_width = null
model.activation = relu
model.norm = post
model.norm_epsilon = 1e-12
model.dropout = 0.0
model.attention_dropout = null
model.init_std = null
model.scale_relative = false
model.mask_padding = false
model.content = true
model.sink = false
model.window = null
model.window_over = significance
model.recall = false
model.read_rows = false
model.patience = null
model.position.kind = relative-key
model.position.coordinate = index
model.position.offset = 0
model.position.clip = null
model.position.by_operands = false
model.position.strength = 1.0
model.position.buckets = 32
model.position.longest = 128
model.position.base = 10000.0
model.position.hidden = 32
model.position.threshold = 512
model.position.inner = relative-key
model.position.reach = 2048
training.steps = null
training.epochs = null
training.examples = null
training.batch_size = 32
training.learning_rate = 0.002
training.warmup_steps = 100
training.schedule = cosine
training.betas = [0.9, 0.98]
training.weight_decay = 0.01
training.clip = 1.0
training.more_layers = 0
training.log_every = 50
evaluation.every = 500
evaluation.lengths = null
evaluation.examples = 500
evaluation.final_lengths = null
evaluation.final_examples = 2000
evaluation.sampling = exact
seed = 0
start_from = null
precision = float32
"""


def test_no_default_has_changed():
    """Else an old run would be taken for another experiment. Give the new value another way."""
    now = {key: default for key, default, _ in keys()}
    before = dict(line.split(" = ") for line in DEFAULTS.strip().splitlines())
    assert {key: now.get(key) for key in before} == before
    assert configuration.load().steps == 3000


def test_an_experiment_keeps_its_identity():
    default = configuration.load()
    assert default.identity()[:16] == "da1a74ac7897364e"
    assert configuration.load(None, {"model.preset": "cpu", "threads": 2}).identity() == default.identity()
    for key, value in {"model.width": 64, "evaluation.examples": 9, "task.operands": 3, "data.chains": 0.5}.items():
        assert configuration.load(None, {key: value}).identity() != default.identity(), key


def trained(root, name: str, **settings) -> Run:
    run = Run.create(configuration.load(None, {**QUICK, **settings}), root, name)
    list(train(run))
    return run


def test_a_run_that_starts_from_another_outlives_it(tmp_path):
    first = trained(tmp_path, "first")
    second = trained(tmp_path, "second", start_from=str(first.path), seed=1)
    shutil.rmtree(first.path)
    third = trained(tmp_path, "third", start_from=str(second.path), seed=2)
    assert third.status == "finished"
    assert third.experiment.identity() == third.identity


def test_a_run_does_not_start_from_what_has_taken_the_place_of_its_origin(tmp_path):
    first = trained(tmp_path, "first")
    second = Run.create(configuration.load(None, {**QUICK, "start_from": str(first.path), "seed": 1}), tmp_path)
    shutil.rmtree(first.path)
    trained(tmp_path, "first", seed=5)
    with pytest.raises(UsageError, match="was made to start from another run than"):
        list(train(second))
