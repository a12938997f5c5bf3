"""Experiments: keys, their defaults, what an identity is made of, and choices that don't fit."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from lengthwise.base import Registry, UsageError
from lengthwise.training import keys
from lengthwise.training.experiment import Experiment
from lengthwise.training.loop import train
from lengthwise.training.runs import Run
from lengthwise.training.yaml import FastLoader, parse_yaml

QUICK = {
    "model.preset": "tiny",
    "training.steps": 2,
    "evaluation.examples": 5,
    "evaluation.final_examples": 5,
}
# Defaults are left out of identities, so none of these may change. New options can be added.
DEFAULTS = """
data.train_digits = 5
data.test_digits = 10
data.train_size = 5000
data.sampling = problem-length
data.priming = []
data.priming_second = online
data.train_operands = null
data.mixture = {}
evaluation.every = 500
evaluation.examples = 500
evaluation.final_examples = 2000
evaluation.final_lengths = null
evaluation.lengths = null
evaluation.sampling = exact
layout = paper
layout.extra_padding = 0
layout.n_out = null
layout.order = most-significant-first
model.activation = relu
model.attention = full
model.attention.discrete_rows = false
model.attention.mask_padding = false
model.attention.over = significance
model.attention.window = 1
model.attention_dropout = null
model.depth = fixed
model.depth.extra_layers = 0
model.depth.reinject_input = false
model.depth.stable_for = 3
model.dropout = 0.0
model.embedding_width = null
model.encoder = universal-transformer
model.feedforward_width = null
model.heads = 4
model.init_std = null
model.layers = 4
model.norm = post
model.norm_epsilon = 1e-12
model.position = relative-key
model.position.base = 10000.0
model.position.buckets = 32
model.position.by_operands = false
model.position.clip = null
model.position.coordinate = index
model.position.hidden = 32
model.position.inner = relative-key
model.position.longest = 128
model.position.offset = 0
model.position.reach = 2048
model.position.strength = 1.0
model.position.threshold = 512
model.preset = null
model.scale_relative = false
model.width = 128
precision = float32
seed = 0
start_from = null
task = addition
task.constant_length = false
task.modulus = 100
task.operands = 2
task.second_digits = 3
training.batch_size = 32
training.betas = [0.9, 0.98]
training.clip = 1.0
training.ema = null
training.epochs = null
training.examples = null
training.learning_rate = 0.002
training.log_every = 50
training.optimizer = adamw
training.optimizer.momentum = 0.95
training.optimizer.rate_factor = 0.2
training.schedule = cosine
training.steps = null
training.warmup_steps = 100
training.weight_decay = 0.01
"""
SECTIONS = {"", "data", "model", "training", "evaluation"}
# Another value of every key that matters for a result, and of those that don't.
CHANGES: dict[str, Any] = {
    "data.train_digits": 4,
    "data.test_digits": 12,
    "data.train_size": 100,
    "data.sampling": "exact",
    "data.priming": "8=5",
    "data.priming_second": "fixed",
    "data.train_operands": 2,
    "data.mixture": {"zeros": 0.5},
    "evaluation.every": 7,
    "evaluation.examples": 7,
    "evaluation.final_examples": 7,
    "evaluation.final_lengths": "5:7",
    "evaluation.lengths": [6],
    "evaluation.sampling": "uniform-length",
    "model.activation": "gelu",
    "model.attention_dropout": 0.1,
    "model.dropout": 0.1,
    "model.embedding_width": 16,
    "model.encoder": "transformer",
    "model.feedforward_width": 64,
    "model.heads": 2,
    "model.init_std": 0.02,
    "model.layers": 3,
    "model.norm": "pre",
    "model.norm_epsilon": 1e-6,
    "model.scale_relative": True,
    "model.width": 64,
    "precision": "bfloat16",
    "seed": 1,
    "training.batch_size": 16,
    "training.betas": [0.9, 0.999],
    "training.clip": None,
    "training.ema": 0.99,
    "training.epochs": 2,
    "training.examples": 3200,
    "training.learning_rate": 0.001,
    "training.log_every": 7,
    "training.schedule": "constant",
    "training.steps": 7,
    "training.warmup_steps": 7,
    "training.weight_decay": 0.1,
}
UNIMPORTANT = {
    "device": "cuda",
    "compile": True,
    "threads": 2,
    "model.preset": "cpu",
    "training.checkpoint_every": 7,
    "training.keep_checkpoints": [1, 2],
    "training.keep_optimizer": True,
    "training.steps": 3000,
}
ORIGIN = {"start_from", "start_optimizer"}  # which need another run
# Another value of every option of a choice, by its name, and what a kind or an option needs.
OPTIONS: dict[str, Any] = {
    "base": 100.0,
    "buckets": 16,
    "by_operands": True,
    "row_clip": 2,
    "clip": 3,
    "constant_length": True,
    "coordinate": "significance",
    "discrete_rows": True,
    "extra_layers": 1,
    "extra_padding": 2,
    "targets": "answer",
    "extra_rounds": 1,
    "hidden": 8,
    "inner": "alibi",
    "layers_per_round": 3,
    "longest": 64,
    "mask_padding": True,
    "modulus": 7,
    "momentum": 0.9,
    "n_out": 14,
    "offset": 3,
    "operands": 3,
    "order": "least-significant-first",
    "over": "index",
    "rate_factor": 0.3,
    "reach": 512,
    "reinject_input": True,
    "second_digits": 2,
    "signed": True,
    "stable_for": 2,
    "strength": 2.0,
    "teacher_forcing": True,
    "threshold": 64,
    "window": 2,
}
BY_COLUMN = {"kind": "relative-bias", "coordinate": "significance"}
NEEDS: dict[str, dict[str, Any]] = {
    "long-multiplication": {"task": "multiplication"},
    "grid": {"task": "multiplication"},
    "positional": {
        "task": "multiplication",
        "layout": "long-multiplication",
        "model.position": "relative-bias",
    },
    "columns": {"model.position": BY_COLUMN, "model.depth": "rewrite"},
    "rewrite": {"model.position": BY_COLUMN, "model.attention": "columns"},
}


def known_defaults() -> dict[str, str]:
    return {key.name: key.default for key in (*keys.all_keys(), *keys.keys({}))}


def own_kinds(registry: Registry[Any]) -> list[str]:
    """Without those that other tests register."""
    return [kind for kind in registry if registry[kind].__module__.startswith("lengthwise.")]


def test_no_default_has_changed() -> None:
    """Else an old run would be taken for another experiment."""
    pinned = dict(line.split(" = ") for line in DEFAULTS.strip().splitlines())
    found = known_defaults()
    assert {key: found.get(key) for key in pinned} == pinned
    assert keys.load().steps == 3000


def test_an_identity_is_the_same_in_every_version() -> None:
    assert keys.load().identity()[:16] == "f6e41e59361e7245"
    fields = {**NEEDS["positional"], "data.priming": "8=5", "training.optimizer": "muon"}
    assert keys.load(None, fields).identity()[:16] == "ddabea1e3693ef9a"


def test_an_identity_depends_on_all_that_matters() -> None:
    """Every key outside of choices is listed here, so a new one has to be put in a list."""
    sections = {key.name for key in keys.keys({}) if key.name.rpartition(".")[0] in SECTIONS}
    assert sections - Registry.all.keys() == CHANGES.keys() | UNIMPORTANT.keys() | ORIGIN
    identities = [keys.load(None, {key: value}).identity() for key, value in CHANGES.items()]
    default = keys.load().identity()
    assert len({default, *identities}) == 1 + len(CHANGES)


@pytest.mark.parametrize("key", list(Registry.all))
def test_an_identity_depends_on_every_option_of_a_choice(key: str) -> None:
    registry = Registry.all[key]
    identities = []
    for kind in own_kinds(registry):
        base = {**NEEDS.get(kind, {}), key: kind}
        identities.append(keys.load(None, base).identity())
        for option in registry.options_of(registry[kind]).model_fields:
            changed = {**base, f"{key}.{option}": OPTIONS[option]}
            identities.append(keys.load(None, changed).identity())
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("key", list(Registry.all))
def test_choices_can_be_sent_to_other_processes(key: str) -> None:
    registry = Registry.all[key]
    for kind in own_kinds(registry):
        choice = registry.parse(kind)
        again = pickle.loads(pickle.dumps(choice))
        assert (type(again), again) == (type(choice), choice)


def test_an_identity_ignores_what_does_not_matter(subtests: pytest.Subtests) -> None:
    for key in UNIMPORTANT:
        with subtests.test(str(key)):
            assert keys.load(None, {key: UNIMPORTANT[key]}).identity() == keys.load().identity()


def test_an_experiment_written_in_another_way_is_the_same(subtests: pytest.Subtests) -> None:
    cases: list[dict[str, Any]] = [
        {"training.examples": 96_000},
        {"training.epochs": 19.2},
        {"training.optimizer": {"kind": "adamw"}},
        {"model.position": {"kind": "relative-key", "clip": None}},
        {"data.priming": {8: 0}},
        {"evaluation.lengths": None},
    ]
    for fields in cases:
        with subtests.test(str(fields)):
            assert keys.load(None, fields).identity() == keys.load().identity()


def finish(root: Path, name: str, **fields: Any) -> Run:
    run = Run.create(keys.load(None, {**QUICK, **fields}), root, name)
    list(train(run))
    return run


def test_the_origin_of_fine_tuning_is_part_of_the_identity(tmp_path: Path) -> None:
    origins = [finish(tmp_path, name, seed=seed) for name, seed in (("a", 0), ("b", 1))]
    tuned = [keys.load(None, {**QUICK, "start_from": str(run.path)}) for run in origins]
    plain = keys.load(None, QUICK)
    assert len({plain.identity(), *(experiment.identity() for experiment in tuned)}) == 3
    shutil.copytree(origins[0].path, tmp_path / "moved")
    moved = keys.load(None, {**QUICK, "start_from": str(tmp_path / "moved")})
    assert moved.identity() == tuned[0].identity()


def test_a_fine_tuned_run_outlives_its_origin(tmp_path: Path) -> None:
    first = finish(tmp_path, "first")
    second = finish(tmp_path, "second", start_from=str(first.path), seed=1)
    shutil.rmtree(first.path)
    third = finish(tmp_path, "third", start_from=str(second.path), seed=2)
    assert third.status == "finished"
    assert third.experiment.identity() == third.identity


def test_a_run_does_not_start_from_a_replaced_origin(tmp_path: Path) -> None:
    first = finish(tmp_path, "first")
    fields = {**QUICK, "start_from": str(first.path), "seed": 1}
    second = Run.create(keys.load(None, fields), tmp_path)
    shutil.rmtree(first.path)
    finish(tmp_path, "first", seed=5)
    with pytest.raises(UsageError, match="was made to start from another run than"):
        list(train(second))


SAME_TASK: list[dict[str, Any]] = [
    {"task": "addition", "task.operands": 3},
    {"task.operands": 3, "task": "addition"},
    {"task.kind": "addition", "task.operands": 3},
    {"task.operands": 3, "task.kind": "addition"},
    {"task": {"kind": "addition", "operands": 3}},
    {"task": {"operands": 3}},
    {"task.operands": 3},
]


def test_a_choice_and_its_options_merge_in_any_order(subtests: pytest.Subtests) -> None:
    for fields in SAME_TASK:
        with subtests.test(str(fields)):
            expected = Experiment.model_validate({"task": {"kind": "addition", "operands": 3}})
            assert keys.parse(fields) == expected


def test_nested_choices_merge() -> None:
    fields = {"model.position": "randomised", "model.position.inner": "rope"}
    position = keys.parse({**fields, "model.position.inner.base": 100.0}).model.position
    inner = {"kind": "rope", "coordinate": "index", "base": 100.0}
    assert position.model_dump() == {"kind": "randomised", "inner": inner, "reach": 2048}


def test_overrides_change_a_file(tmp_path: Path) -> None:
    """A section keeps its other keys. Another kind drops the options of the one before."""
    path = tmp_path / "config.yaml"
    path.write_text(
        "training: {learning_rate: 1e-3, steps: 7}\n"
        "model: {width: 64, position: {kind: relative-key, clip: 3}}\n"
        "data: {priming: 6:8=30, train_digits: 4}\n"
    )
    experiment = keys.load(path)
    assert experiment.training.learning_rate == 0.001
    assert sum(count for _, count in experiment.data.priming) == 30
    assert keys.load(path, {"model.position.clip": 5}).model.position.model_dump()["clip"] == 5
    assert keys.load(path, {"model.position": "alibi"}).model.position.kind == "alibi"
    assert keys.load(path, {"model": {"layers": 2}}).model.width == 64
    assert keys.load(path, {"data": {"priming": {8: 3}}}).data.train_digits == 4
    assert keys.load(path, {"data.priming": {8: 3}}).data.priming == ((8, 3),)
    assert keys.load(path, {"training.steps": 9}).steps == 9


def test_a_section_may_be_given_in_parts() -> None:
    parts = {"model.width": 64, "model": {"layers": 2}, "model.heads": 2}
    whole = {"model": {"width": 64, "layers": 2, "heads": 2}}
    assert keys.parse(parts) == keys.parse(whole)


def test_an_experiment_survives_yaml(tmp_path: Path) -> None:
    fields = {**NEEDS["positional"], "data.priming": "8=5", "data.mixture": "zeros=0.5"}
    experiment = keys.load(None, {**fields, "training.optimizer": "muon", "model.preset": "tiny"})
    (tmp_path / "config.yaml").write_text(experiment.to_yaml())
    again = keys.load(tmp_path / "config.yaml")
    assert again == experiment
    assert again.identity() == experiment.identity()


def test_an_unknown_key_names_the_nearest(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("width", "there is no key 'width': did you mean 'model.width'?"),
        ("model.widht", "there is no key 'model.widht': did you mean 'model.width'?"),
        ("training.optimzer", "did you mean 'training.optimizer'?"),
        ("seeds", "did you mean 'seed'?"),
        ("modle.width", "there is no key 'modle': did you mean 'model'?"),
        ("zzz", "there is no key 'zzz': `lengthwise train --keys` lists all"),
        ("model.position.clipp", "'relative-key' has no option 'clipp': did you mean 'clip'?"),
        ("model.depth.stable_for", "the depth 'fixed' has no option 'stable_for': it has none."),
        ("layout.compact", "the layout 'paper' has no option 'compact': known: n_out, order."),
    ]
    for key, sentence in cases:
        with subtests.test(str(key)):
            with pytest.raises(UsageError) as caught:
                keys.load(None, {key: 1})
            assert sentence in str(caught.value)
            assert "\n" not in str(caught.value)


def test_options_that_do_not_fit_are_refused_in_one_sentence(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"layout.extra_padding": 2}, "the layout 'paper' has no option 'extra_padding'"),
        ({"layout": {"kind": "fitted", "extra_padding": -1}}, "extra_padding of the layout"),
        ({"layout": "long-multiplication"}, "needs the task multiplication"),
        ({"layout.n_out": 3}, "answers have up to 11 digits"),
        ({"data.train_operands": 3}, "data.train_operands is 3, but the task has 2"),
        ({"data.train_digits": 11}, "more than data.test_digits"),
        ({"evaluation.lengths": [11]}, "evaluation.lengths has 11"),
        ({"model.width": 30}, "model.heads, 4, does not divide"),
        ({"model.preset": "tinny"}, "there is no preset 'tinny': did you mean 'tiny'?"),
        ({"model.attention": "positional"}, "such as relative-bias, not relative-key"),
        (
            {"model.depth": "until-stable", "model.encoder": "transformer"},
            "the depth 'until-stable' needs shared layers",
        ),
        (
            {
                "model.attention": {"kind": "positional", "discrete_rows": True},
                "model.position": "relative-bias",
            },
            "discrete_rows needs rows: the layout 'long-multiplication'",
        ),
        (
            {
                **{"task": "multiplication", "layout": "long-multiplication"},
                **{"layout.targets": "answer", "model.attention": "columns"},
                "model.position": {"kind": "relative-bias", "coordinate": "significance"},
                "model.depth": {"kind": "rewrite", "teacher_forcing": True},
            },
            "it needs layout.targets rows",
        ),
        ({"training.steps": 5, "training.epochs": 1}, "training.steps and training.epochs are"),
        ({"training.betas": [0.9]}, "AdamW has two"),
        ({"training.steps": True}, "training.steps is True, but it can't be true or false"),
        ({"training.learning_rate": float("inf")}, "training.learning_rate is inf"),
        ({"seed": -1}, "seed is -1"),
        ({"task": 3}, "task is a name or a mapping with 'kind', not 3"),
        ({"model": "x", "model.width": 3}, "'model.width' can't be set, because model is 'x'"),
    ]
    for fields, sentence in cases:
        with subtests.test(str(fields)):
            with pytest.raises(UsageError) as caught:
                keys.load(None, fields)
            assert sentence in str(caught.value)
            assert "\n" not in str(caught.value)


def test_command_line_words_become_keys() -> None:
    """Values are YAML, a switch needs none, and the last of several values counts."""
    words = "--seed 1 --model.width=64 --data.priming 6:35=500 --training.learning-rate 1e-3"
    words += " --task.constant_length --model.position {kind: alibi} --seed 2"
    arguments = words.replace("{kind: alibi}", "{kind:\xa0alibi}").split(" ")
    arguments = [word.replace("\xa0", " ") for word in arguments]
    assert keys.parse_overrides(arguments) == {
        "seed": 2,
        "model.width": 64,
        "data.priming": "6:35=500",
        "training.learning_rate": 0.001,
        "task.constant_length": True,
        "model.position": {"kind": "alibi"},
    }
    assert keys.parse_overrides(["--seed", "-1"]) == {"seed": -1}
    for bad, sentence in [("seed", "'seed' is neither a key"), ("--seed", "--seed needs a value")]:
        with pytest.raises(UsageError, match=sentence):
            keys.parse_overrides([bad])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("seed: 1\nmodel: {}\nseed: 2\n", "'seed' is given twice in the mapping that starts"),
        ("model:\n  width: 8\n  width: 9\n", "'width' is given twice .* line 2"),
        ("- 1\n- 2\n", "should be a mapping of keys such as task and model"),
        ("model: {width: [\n", "is not YAML"),
    ],
    ids=["twice", "twice-inside", "list", "broken"],
)
def test_bad_files_are_refused_in_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UsageError, match=sentence) as caught:
        keys.load(tmp_path / "config.yaml")
    assert "\n" not in str(caught.value)


def test_the_listed_keys_are_those_of_the_chosen_kinds() -> None:
    names = [key.name for key in keys.keys({})]
    assert len(set(names)) == len(names) < 70  # a screen for the paper's experiments
    assert "model.position.clip" in names
    assert "model.position.buckets" not in names
    other = {key.name for key in keys.keys({"model.position": "t5-bias"})}
    assert "model.position.buckets" in other
    assert "model.position.clip" not in other
    assert all(key.description for key in keys.all_keys())


def test_the_fast_loader_reads_what_runs_write(subtests: pytest.Subtests) -> None:
    cases: list[dict[str, Any]] = [{}, *({key: value} for key, value in CHANGES.items())]
    for changes in cases:
        with subtests.test(str(changes)):
            content = keys.load(None, changes).to_yaml().encode()
            assert parse_yaml(content, "it", FastLoader) == parse_yaml(content, "it")
