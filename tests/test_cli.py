"""The command line as its users meet it: what it prints, and one clear sentence for every bad input."""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import lengthwise
from lengthwise import commands
from lengthwise import experiment as configuration
from lengthwise.cli import build_parser, main
from lengthwise.runs import Run

QUICK = shlex.split("--model.preset tiny --training.steps 6 --evaluation.examples 10 --evaluation.final_examples 10")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    assert main(["train", "--runs", str(root), "--name", "sum", *QUICK]) == 0
    return root / "sum"


@pytest.fixture
def run(trained, tmp_path) -> Path:
    """A trained run of one's own, to be spoilt."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def complaint(capsys, *words: str) -> str:
    """What a command says when it refuses: one line on standard error, exit code 2."""
    try:
        code = main(list(words))
    except SystemExit as stop:  # argparse
        code = stop.code
    told = capsys.readouterr().err
    assert code == 2, told
    sentence = told.strip().splitlines()[-1]
    assert sentence.startswith("lengthwise: ")
    assert "Traceback" not in told
    return sentence


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("--model.widht 64", "there is no key 'model.widht': did you mean 'model.width'?"),
        ("--width 64", "did you mean 'model.width'?"),
        ("--task.kind adition", "there is no task 'adition': did you mean 'addition'?"),
        ("--task.kind addition --task.modulus 7", "the task 'addition' has no option 'modulus'"),
        ("--model.position relativ-key", "did you mean 'relative-key'?"),
        ("--model.position.clipp 3", "has no option 'clipp': did you mean 'clip'?"),
        ("--model.preset bert-bas", "did you mean 'bert-base'?"),
        ("--model.width 100 --model.heads 3", "model.width is 100, which isn't divisible by model.heads, which is 3"),
        ("--model.width wide", "model.width is 'wide'"),
        ("--data.train_digits 12", "data.train_digits is 12, more than data.test_digits, which is 10"),
        ("--task.kind modular-addition --task.modulus 1", "modulus of the task 'modular-addition' is 1"),
        ("--data.priming 11=50", "data.priming has 50 problems of 11 digits"),
        ("--data.priming 10", "data.priming"),
        ("--data.priming 10=many", "no priming such as 35=50"),
        ("--data.priming 10=5000", "leaves none of the usual length"),
        ("--data.priming 0:3=50", "numbers have 1 digit or more"),
        ("--data.train_operands 3", "the task has 2 operands"),
        ("--layout.long_multiplication", "layout.long_multiplication needs the task multiplication"),
        ("--training.steps 5 --training.epochs 1", "one budget"),
        ("--training.steps 0", "training.steps is 0"),
        ("--training.batch_size 2.5", "training.batch_size is 2.5"),
        ("--evaluation.lengths 5:30", "evaluation.lengths has 11"),
        ("--layout.n_out 3", "layout.n_out is 3"),
        ("--device cuda:7", "device 'cuda:7' isn't available here"),
        ("--device gpu", "device 'gpu' isn't available here"),
        ("--start_from nowhere", "nowhere"),
        ("nowhere.yaml", "can't read the configuration nowhere.yaml"),
        ("--model.width=64 stray", "'stray' is neither"),
        ("--seed -1", "seed is -1"),
        ("--seed true", "seed is True, but it can't be true or false"),
        ("--model.position.clip yes", "clip of the position embedding 'relative-key' is True"),
        ("--training.betas 0.9", "training.betas is 0.9, but AdamW has two, such as [0.9, 0.98]"),
        ("--training.betas [0.9]", "AdamW has two"),
        ("--training.betas [0.9,1]", "training.betas.1 is 1"),
        ("--evaluation.lengths []", "evaluation.lengths is []"),
        ("--training.epochs 1e308", "training.epochs is 1e+308"),
        ("--data.priming 10=99999999999999999999", "too many"),
        ("--data.test_digits 1000000000000000000", "data.test_digits is 1000000000000000000"),
        ("--model.position rope --model.width 15 --model.heads 3", "rope"),
        ("--layout.fitted --data.padding 20", "training problems have up to 51 tokens with data.padding"),
        ("--model.content false --model.position absolute", "'absolute' has no scores of its own"),
        (f"--name {'é' * 199}", "up to 200 letters"),
        ("--lr 0.1", "there is no key 'lr': `lengthwise train --keys` lists all"),
        ("--threads 0", "threads is 0"),
        ("--model.position randomised --model.position.reach 21", "up to 21 tokens, but the embedding takes 10"),
        ("--model.width 32 config.yaml", "'config.yaml' is neither a key such as --model.width nor"),
        ("--training.steps", "--training.steps needs a value"),
        ("--model.width= --seed 1", "--model.width needs a value"),
        ("--modle.width 64", "there is no key 'modle': did you mean 'model'?"),
        ("--model tiny --model.width 64", "model is 'tiny'"),
        ("--training.betas [1,2]", "training.betas.0 is 1"),
        ("--training.learning_rate inf", "training.learning_rate is"),
        ("--model.preset [1]", "there is no preset '[1]'"),
        ("--evaluation.lengths 1:999999999999", "no list of lengths"),
        ("--name ..", "a run's name is made of"),
        ("--name a/b", "a run's name is made of"),
        ("--device cpu:x", "device 'cpu:x' isn't available here"),
        ("--threads 3000", "threads is 3000, but there can be 1 to"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_sentence(words, part, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert part in complaint(capsys, "train", *words.split())
    assert not any(tmp_path.rglob("metrics.jsonl"))


def test_a_bad_configuration_file(capsys, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("model: {widht: 64}")
    assert "did you mean 'model.width'?" in complaint(capsys, "train", str(config))
    config.write_text("model: [")
    assert "is no YAML" in complaint(capsys, "train", str(config))
    config.write_text("- 1")
    assert "should be a mapping" in complaint(capsys, "train", str(config))
    config.write_text("model: 3")
    assert "model is 3" in complaint(capsys, "train", str(config))
    config.write_text("false")
    assert "should be a mapping" in complaint(capsys, "train", str(config))
    config.write_text("task: {kind: addition, 5: 3}")
    assert "has no option '5'" in complaint(capsys, "train", str(config))


def test_values_mean_the_same_in_files_and_on_the_command_line(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "evaluation: {lengths: 5:10}\ntraining: {learning_rate: 1e-3, clip: null}\nlayout: {compact: yes}"
    )
    words = ["--evaluation.lengths", "5:10", "--training.learning_rate", "1e-3", "--training.clip", "null"]
    from_file, from_words = (
        configuration.load(config),
        configuration.load(None, configuration.parse_overrides([*words, "--layout.compact", "yes"])),
    )
    assert from_file == from_words
    assert from_file.evaluation.lengths == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    "words",
    [
        "--model.position relative-key-query --model.position.clip 3",
        "--model.position.clip 3 --model.position relative-key-query",
        "--model.position.clip 3 --model.position.kind relative-key-query",
    ],
)
def test_a_choice_and_its_options_go_together_in_any_order(words):
    position = configuration.load(None, configuration.parse_overrides(words.split())).model.position
    assert (position.kind, position.clip) == ("relative-key-query", 3)
    assert configuration.load(None, {"model": {"position.clip": 3}}).model.position.clip == 3


@pytest.mark.parametrize(
    ("problem", "part"),
    [
        ("12 * 3", "has the operation *, but this model was trained for addition, which is written +"),
        ("12 ** 3", "is no problem"),
        ("twelve", "is no problem"),
        ("-1 + 2", "is no problem"),
        ("1 + 2 + 3", "has 3 operands"),
        ("12345678901 + 1", "12345678901 has 11 digits, but this model's layout has room for 10"),
        ("", "is no problem"),
    ],
)
def test_a_bad_problem(problem, part, trained, capsys):
    assert part in complaint(capsys, "solve", str(trained), "--", problem)


def test_missing_and_damaged_files_are_named(run, capsys):
    weights = run / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1000])
    assert f"{weights} is damaged" in complaint(capsys, "evaluate", str(run))
    weights.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    assert f"{weights} is damaged: its checksum" in complaint(capsys, "solve", str(run), "1 + 2")
    weights.unlink()
    assert "model.safetensors" in complaint(capsys, "evaluate", str(run))
    assert "there is no run" in complaint(capsys, "evaluate", str(run / "nothing"))
    assert "there is no run" in complaint(capsys, "resume", str(run / "nothing"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.jsonl", "x\n"),
        ("metrics.jsonl", "[]\n"),
        ("metrics.jsonl", '{"a": 1}\n'),
        ("metrics.jsonl", '{"step": 1, "evaluation": [5]}\n'),
        ("result.json", "{}"),
        ("result.json", '{"evaluation": [{}]}'),
        ("config.yaml", "task: 5"),
        ("config.yaml", ""),
        ("config.yaml", "seed: 0\ntask:\n  kind: addition\n"),
    ],
)
def test_a_damaged_run_is_named_and_hides_no_other(run, file, content, capsys):
    shutil.copytree(run, run.parent / "good")
    (run / file).write_text(content)
    assert main(["runs", "--runs", str(run.parent), "--json"]) == 0
    good, bad = json.loads(capsys.readouterr().out)
    assert (good["status"], bad["status"]) == ("finished", "damaged")
    assert str(run / file) in bad["reason"]


def test_again_deletes_only_what_training_made(run):
    (run / "notes.md").write_text("mine")
    (run / "figures").mkdir()
    assert main(["train", "--runs", str(run.parent), "--name", "run", *QUICK, "--again"]) == 0
    assert (run / "notes.md").read_text() == "mine"
    assert (run / "model.safetensors").exists()


def test_a_damaged_checkpoint_is_named_and_kept(run, capsys):
    for file in ("result.json", "model.safetensors"):
        (run / file).unlink()
    (run / "checkpoint.safetensors").write_bytes(b"not a checkpoint")
    assert f"{run / 'checkpoint.safetensors'} is damaged" in complaint(capsys, "resume", str(run))
    assert (run / "checkpoint.safetensors").read_bytes() == b"not a checkpoint"


def test_a_full_disk_loses_nothing(tmp_path, capsys):
    """/dev/full answers every write as a full disk does."""
    keys = [*QUICK, "--training.checkpoint_every", "2"]
    arguments = ["train", "--runs", str(tmp_path), "--name", "full", *keys]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".checkpoint.safetensors.partial").symlink_to("/dev/full")
    assert "no space left on device" in complaint(capsys, *arguments)
    assert main(arguments) == 0


@pytest.mark.parametrize(("log_every", "reason"), [(1, "the weights are no longer finite"), (6, "the loss is nan")])
def test_a_run_that_diverges_is_stopped_before_it_spoils_the_checkpoint(log_every, reason, tmp_path, capsys):
    keys = [*QUICK, "--training.learning_rate", "1e38", "--training.warmup_steps", "0"]
    arguments = ["train", "--runs", str(tmp_path), "--name", "nan", *keys, "--training.log_every", str(log_every)]
    assert reason in complaint(capsys, *arguments)
    assert not (tmp_path / "nan" / "checkpoint.safetensors").exists()
    assert main(["runs", "--runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "failed"


def test_another_experiment_of_the_same_name_is_refused(trained, capsys):
    told = complaint(capsys, "train", "--runs", str(trained.parent), "--name", "sum", "--seed", "7")
    assert "holds another experiment" in told


def test_a_finished_run_is_trained_again_only_if_asked(run, capsys):
    arguments = ["train", "--runs", str(run.parent), "--name", "run", *QUICK]
    before = (run / "model.safetensors").stat().st_mtime_ns
    assert main(arguments) == 0
    assert "finished already" in capsys.readouterr().out
    assert (run / "model.safetensors").stat().st_mtime_ns == before
    weights = (run / "model.safetensors").read_bytes()
    assert main([*arguments, "--again"]) == 0
    assert (run / "model.safetensors").stat().st_mtime_ns != before
    assert (run / "model.safetensors").read_bytes() == weights


def test_evaluate(trained, capsys):
    assert main(["evaluate", str(trained), "--lengths", "1,3:4", "--examples", "300", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [a["length"] for a in results] == [1, 3, 4]
    model = lengthwise.load(trained)
    ours = lengthwise.evaluate(model, lengths=[1, 3, 4], examples=300)
    assert results == json.loads(json.dumps([a.to_json() for a in ours]))
    assert all(a["examples"] == 300 and len(a["digits"]) == a["length"] + 1 for a in results)
    assert "doesn't fit the model's layout" in complaint(capsys, "evaluate", str(trained), "--lengths", "11")
    assert "no list of lengths" in complaint(capsys, "evaluate", str(trained), "--lengths", "a:b")
    assert "at least 1 example" in complaint(capsys, "evaluate", str(trained), "--examples", "0")
    assert "did you mean 'exact'?" in complaint(capsys, "evaluate", str(trained), "--sampling", "exakt")


def test_solve(trained, capsys):
    assert main(["solve", str(trained), "99999 + 1", "12+345=", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["correct"], second["correct"]) == (100000, 357)
    assert first["right"] == (first["answer"] == 100000)
    assert len(first["confidences"]) == 11
    assert main(["solve", str(trained), "99999 + 1"]) == 0
    assert "99999 + 1 = " in capsys.readouterr().out


def test_analyze(trained, capsys):
    assert main(["analyze", str(trained), "--length", "2", "--examples", "100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sum(total for _, total in told["failures"]["by_carries"].values()) == 100
    assert list(told["learned"]) == ["5", "6", "10"]
    assert main(["analyze", str(trained), "--examples", "100"]) == 0
    assert "6 digits: " in capsys.readouterr().out
    assert "doesn't fit the model's layout" in complaint(capsys, "analyze", str(trained), "--length", "11")
    assert "'5' is no share from 0 to 1" in complaint(capsys, "analyze", str(trained), "--level", "5")


def test_runs_lists_status_and_damage(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.yaml").write_text("model: [")
    assert main(["runs", "--runs", str(tmp_path), "--json"]) == 0
    bad, good = json.loads(capsys.readouterr().out)
    assert (bad["status"], good["status"]) == ("damaged", "finished")
    assert list(good["accuracy"]) == [str(n) for n in range(5, 11)]
    assert main(["runs", "--runs", str(tmp_path)]) == 0
    assert "finished" in capsys.readouterr().out


def test_lists_come_from_the_registries(capsys):
    known = {"tasks": "modular-addition", "positions": "relative-key-query", "presets": "albert-base"}
    for what, name in known.items():
        assert main(["list", what, "--json"]) == 0
        assert name in [entry["name"] for entry in json.loads(capsys.readouterr().out)]
    assert "invalid choice: 'taks'" in complaint(capsys, "list", "taks")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("paper run table-adition", "did you mean 'table-addition'?"),
        ("paper run table-addition --scale smoke --on locl", "there is no engine 'locl': did you mean 'local'?"),
        ("paper run table-addition --scale smoke --on slurm", "there is no engine 'slurm': known: local."),
        ("paper run", "say which artefacts to run"),
        ("paper run table-addition --seeds 0", "at least 1"),
        ("paper run table-addition --scale smoke --only APL", "has 'APL' in its label"),
        ("paper run table-addition --scale smoke --device tpu", "device 'tpu' isn't available here"),
        ("paper report --json", "--json is for `paper list`"),
        ("demo --again --jobs 0", "at least 1"),
        ("--bogus", "unrecognised: --bogus"),
        ("solve runs/nothing 1+1", "there is no run at runs/nothing"),
        (f"solve {'x' * 300} 1+1", "file name too long"),
    ],
)
def test_a_bad_paper_command_makes_no_run(words, part, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert part in complaint(capsys, *words.split())
    assert not list(tmp_path.iterdir())


def test_fine_tuning_starts_from_the_other_run(trained, tmp_path, capsys):
    keys = [*QUICK, "--data.train_digits", "10", "--data.sampling", "exact", "--training.learning_rate", "1e-12"]
    arguments = ["train", "--runs", str(tmp_path), "--name", "tuned", "--start_from", str(trained), *keys]
    assert main(arguments) == 0
    before, after = Run(trained).load().state_dict(), Run(tmp_path / "tuned").load().state_dict()
    assert max((before[name] - after[name]).abs().max().item() for name in before) < 1e-8
    for made in ("result.json", "model.safetensors"):  # as if it had been stopped, and what it starts from moved
        (tmp_path / "tuned" / made).unlink()
    config = tmp_path / "tuned" / "config.yaml"
    config.write_text(config.read_text().replace(str(trained), str(trained.parent / "elsewhere")))
    assert "is no run" in complaint(capsys, "resume", str(tmp_path / "tuned"))  # it has no checkpoint either
    other = ["train", "--runs", str(tmp_path), "--start_from", str(trained), *QUICK, "--model.heads", "4"]
    assert "whose model.heads is 2 instead of 4" in complaint(capsys, *other)


def test_misuse_of_the_library_is_told_in_one_sentence(trained):
    model = lengthwise.load(trained)
    for misuse, part in [
        (lambda: lengthwise.train(5), "an experiment is a mapping"),
        (lambda: lengthwise.train({"modle": {}}), "did you mean 'model'?"),
        (lambda: lengthwise.load(None), "a path or a Hub id"),
        (lambda: lengthwise.load(trained, device="gpu"), "isn't available here"),
        (lambda: lengthwise.evaluate(model, lengths=[5.5]), "whole numbers"),
        (lambda: lengthwise.evaluate(model, examples="many"), "whole numbers"),
        *(
            (lambda seed=seed: lengthwise.evaluate(model, seed=seed), "a seed is a whole number from 0 up")
            for seed in (-1, None, 1.5)
        ),
        (lambda: lengthwise.evaluate(model, lengths=[]), "needs a length"),
        (lambda: lengthwise.evaluate(model, lengths=[True]), "whole numbers"),
        (lambda: lengthwise.evaluate(model, sampling=None), "there is no sampling 'None'"),
        (lambda: lengthwise.evaluate(model, layers=1.5), "1 or more times"),
        (lambda: lengthwise.evaluate(model, sharpness=None), "positive number"),
        (lambda: lengthwise.train({}, name=5), "a run's name"),
        (lambda: lengthwise.train({}, root=5), "runs are in a directory"),
        (lambda: lengthwise.resume(None), "a run is the path of its directory"),
        (lambda: lengthwise.evaluate("runs/x"), "what is tested is a model"),
        (lambda: lengthwise.resume("nowhere"), "there is no run"),
        (lambda: model.solve([5]), "is no problem"),
        (lambda: model.solve(5), "is no problem"),
    ]:
        with pytest.raises(lengthwise.UsageError, match=part):
            misuse()
    assert [a.length for a in lengthwise.evaluate(model, lengths=np.arange(5, 7), examples=5)] == [5, 6]
    assert [a.length for a in lengthwise.evaluate(model, lengths="6,5,6", examples=5)] == [6, 5]
    assert model.solve(iter(["1+2", "3+4"])) == model.solve(("1+2", "3+4"))
    assert lengthwise.train({"model.preset": "tiny", "training.steps": 1}, root=trained.parent, progress=False).result


def test_every_command_has_help_with_an_example(capsys):
    (subcommands,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    assert len(subcommands.choices) >= 12
    for command in subcommands.choices:
        assert callable(getattr(commands, f"run_{command}"))
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        assert "example:\n  lengthwise" in capsys.readouterr().out


def test_help_imports_neither_torch_nor_pydantic():
    code = (
        "import sys, lengthwise.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'numpy', 'pydantic', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_library_is_the_same_thing(trained, tmp_path):
    fields = {
        "model": {"preset": "tiny"},
        "training": {"steps": 6},
        "evaluation": {"examples": 10, "final_examples": 10},
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    run = lengthwise.train(fields, root=tmp_path, progress=False)
    assert torch.get_num_threads() == threads + 1  # as it was
    torch.set_num_threads(threads)
    assert run.experiment.identity() == Run(trained).experiment.identity()
    assert (run.path / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
    model = lengthwise.load(run.path)
    model.save_pretrained(tmp_path / "saved")
    problems = ["99999+1", "123+456"]
    assert lengthwise.load(tmp_path / "saved").solve(problems) == model.solve(problems)
    assert type(model).from_pretrained(run.path).solve(problems) == model.solve(problems)


def test_show_prints_how_a_problem_is_written(trained, tmp_path, capsys):
    assert main(["show", str(trained), "12 + 345", "--json"]) == 0
    tokens = json.loads(capsys.readouterr().out)
    assert [token["symbol"] for token in tokens[:3]] == ["1", "2", "<PAD>"]
    assert [token["significance"] for token in tokens[:3]] == [1, 0, -1]
    assert [token["answer read here"] for token in tokens[:4]] == ["3", "5", "7", "<PAD>"]
    config = tmp_path / "config.yaml"
    layout = "{order: least-significant-first, fitted: true, compact: true, answer_room: true}"
    config.write_text(f"{{task: multiplication, layout: {layout}}}")
    assert main(["show", str(config), "12 x 345"]) == 0
    first, *_, last = [line.split() for line in capsys.readouterr().out.splitlines() if line[:4].strip()][2:]
    assert first == ["2", "0", "0", "1", "0", "False", "0"]
    assert last == ["3", "8", "2", "3", "1", "True"]
    assert "no problem" in complaint(capsys, "show", str(config), "12 + x")
    assert "nowhere.yaml" in complaint(capsys, "show", "nowhere.yaml", "1 + 2")


def test_stress_and_knobs(trained, capsys):
    assert main(["stress", str(trained), "--lengths", "3", "--examples", "4", "--json"]) == 0
    outcomes = json.loads(capsys.readouterr().out)
    assert {"random", "all carries", "carry chain", "no carries", "unequal lengths"} <= {o["case"] for o in outcomes}
    assert main(["stress", str(trained), "--lengths", "3,4", "--examples", "4"]) == 0
    assert "carry chain" in capsys.readouterr().out
    results = []
    for knobs in ([], ["--layers", "9"], ["--sharpness", "50"]):
        assert (
            main(["evaluate", str(trained), "--lengths", "1", "--examples", "200", "--json", "--digits", *knobs]) == 0
        )
        results.append(json.loads(capsys.readouterr().out)[0]["digits"])
    assert results[0] != results[1]
    assert results[0] != results[2]
    assert "1 or more times" in complaint(capsys, "evaluate", str(trained), "--layers", "0")
    assert "positive number" in complaint(capsys, "stress", str(trained), "--sharpness", "-1")
    for command in ("evaluate", "stress"):
        assert "not for products" in complaint(capsys, command, str(trained), "--second-digits", "2")
        assert "no whole number" in complaint(capsys, command, str(trained), "--second-digits", "many")
    assert "room for 1 to 10" in complaint(capsys, "stress", str(trained), "--lengths", "11")


def test_a_key_that_is_given_twice_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("twice.yaml").write_text("seed: 1\ntraining: {steps: 2}\nmodel:\n  width: 8\ntraining: {batch_size: 4}\n")
    assert "'training' is given twice" in complaint(capsys, "train", "twice.yaml")
    assert list(tmp_path.iterdir()) == [tmp_path / "twice.yaml"]


def test_a_name_is_free_again_where_nothing_was_trained(trained, tmp_path, capsys):
    tune = ["train", "--runs", str(tmp_path), "--name", "tuned", "--start_from", str(trained), *QUICK]
    assert "test_digits is 10 instead of 12" in complaint(capsys, *tune, "--data.test_digits", "12")
    assert not list(tmp_path.iterdir())
    never_begun = Run.create(configuration.load(None, {"seed": 7}), tmp_path, "tuned")
    assert main(tune) == 0
    assert Run(tmp_path / "tuned").identity != never_begun.identity
    assert "holds another experiment" in complaint(capsys, *tune, "--seed", "3")


def test_what_can_not_be_used_is_told_by_the_command_in_question(trained, capsys):
    assert "`lengthwise evaluate --help`" in complaint(capsys, "evaluate", str(trained), "--foo")
    assert "required: list|run|report (`lengthwise paper" in complaint(capsys, "paper")
    for command in ("evaluate", "stress"):
        for threads in ("0", "-1"):
            assert f"threads is {threads}" in complaint(capsys, command, str(trained), "--threads", threads)


def test_runs_that_can_not_be_read_are_listed_as_damaged(tmp_path, capsys):
    run = Run.create(configuration.load(), tmp_path, "run")
    (run.path / "identity").write_bytes(b"\xff\xff")
    (tmp_path / "something else").mkdir()
    assert main(["runs", "--runs", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["status"] == "damaged"
    assert "identity can't be read" in row["reason"]


def test_a_saved_model_with_a_wrong_bit_is_refused(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "model")
    (tmp_path / "model" / "config.yaml").unlink()
    assert lengthwise.load(tmp_path / "model").solve(["1+2"]) == lengthwise.load(trained).solve(["1+2"])
    weights = tmp_path / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(lengthwise.UsageError, match="checksum"):
        lengthwise.load(tmp_path / "model")


def test_a_report_without_records_says_so(tmp_path, capsys):
    words = ["paper", "report", "table-elementwise", "--scale", "smoke", "--results", str(tmp_path)]
    assert main(words) == 0
    assert "there are no records" in capsys.readouterr().err
