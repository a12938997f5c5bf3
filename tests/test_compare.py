"""Grids, comparisons and sweeps: which runs, what differs, numbers against hand-made ones."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.base import UsageError
from lengthwise.cli.main import main
from lengthwise.training import grid, keys
from lengthwise.training.differences import differences, flatten, label, matches
from lengthwise.training.runs import Run

QUICK: dict[str, Any] = {
    "model.preset": "tiny",
    "training.steps": 4,
    "training.batch_size": 4,
    "evaluation.every": 2,
    "evaluation.lengths": [1, 2],
    "evaluation.examples": 40,
    "evaluation.final_lengths": [1, 2],
    "evaluation.final_examples": 40,
    "data.train_digits": 1,
    "data.test_digits": 2,
}
WORDS = [f"--{key}={json.dumps(value)}" for key, value in QUICK.items()]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> lengthwise.Comparison:
    root = tmp_path_factory.mktemp("sweep")
    axes: dict[str, list[Any]] = {"model.position": ["rope", "none"], "seed": [0, 1]}
    return lengthwise.sweep(QUICK, axes, root=root, progress=False)


def test_lists_and_ranges_are_axes(subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("--seed 0:2", {}, {"seed": [0, 1, 2]}),
        ("--seed 3,5:6", {}, {"seed": [3, 5, 6]}),
        ("--seed 7", {"seed": 7}, {}),
        ("--data.priming 34=25,35=25", {"data.priming": "34=25,35=25"}, {}),
        ("--data.priming 8=5|9=5,10=5", {}, {"data.priming": ["8=5", "9=5,10=5"]}),
        ("--evaluation.lengths 5:10", {"evaluation.lengths": "5:10"}, {}),
        ("--training.betas [0.9,0.98]", {"training.betas": [0.9, 0.98]}, {}),
        (
            "--training.betas [0.9,0.98]|[0.9,0.99]",
            {},
            {"training.betas": [[0.9, 0.98], [0.9, 0.99]]},
        ),
        (
            "--model.position rope,{kind:\xa0alibi,\xa0coordinate:\xa0significance}",
            {},
            {"model.position": ["rope", {"kind": "alibi", "coordinate": "significance"}]},
        ),
        ("--model.position.clip 1,2", {}, {"model.position.clip": [1, 2]}),
        ("--training.clip 1.0,null", {}, {"training.clip": [1.0, None]}),
    ]
    for words, fixed, axes in cases:
        with subtests.test(words):
            split = [word.replace("\xa0", " ") for word in words.split(" ")]
            assert grid.parse_axes(split) == (fixed, axes)


def test_misuse_is_refused_in_one_sentence_and_makes_no_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    cases: list[tuple[str, str]] = [
        ("sweep", "a sweep needs an axis"),
        ("sweep --seed 0", "a sweep needs an axis"),
        ("sweep --seed 0,0", "the axis seed of the grid has 0 twice"),
        ("sweep --seed 0,", "--seed has an empty value"),
        ("sweep --seed 0:9999 --model.width 8:99", "and the most are 10000"),
        ("sweep --sede 0:1", "there is no key 'sede'"),
        ("sweep --model.position rope,alibbi", "did you mean 'alibi'?"),
        ("sweep nowhere.yaml", "can't read the configuration nowhere.yaml"),
        ("sweep nowhere.py", "there is no Python file"),
        ("sweep --seed 0:1 --on locl", "no engine 'locl'"),
        ("sweep --seed 0:1 --log boards", "there is no tracker 'boards'"),
        ("sweep --seed 0:1 --name a/b", "a name has letters"),
        ("compare nowhere", "there is no run at nowhere"),
        ("compare 'x*'", "there is no run at"),
        ("compare --where seed", "a condition is KEY=VALUE"),
        ("compare --where sede=1", "did you mean 'seed'?"),
        ("compare --out figure.doc", "a figure is written as .png, .pdf, .svg"),
        ("log --to tensorboard", "name the runs to send"),
        ("log x --to tensorbord", "did you mean 'tensorboard'?"),
    ]
    for words, sentence in cases:
        with subtests.test(words):
            monkeypatch.chdir(tmp_path)
            assert main(words.split()) == 2
            errors = capsys.readouterr().err
            assert sentence in errors.strip().splitlines()[-1]
            assert not list(tmp_path.iterdir())


def test_grids_from_yaml_and_python_are_those_of_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LENGTHWISE_IMPORT", raising=False)
    Path("grid.yaml").write_text(
        "training: {steps: 7}\ngrid:\n  model.position: [rope, none]\n  seed: 0:1\n"
    )
    Path("day_study.py").write_text(
        "def experiments():\n"
        "    return [{'training.steps': 7, 'model.position': position, 'seed': seed}\n"
        "            for position in ('rope', 'none') for seed in (0, 1)]\n"
    )
    listed = []
    for words in (
        "--training.steps 7 --model.position rope,none --seed 0:1",
        "grid.yaml",
        "day_study.py",
        "day_study.py:experiments",
    ):
        assert main(["sweep", *words.split(), "--dry-run"]) == 0
        listed.append(capsys.readouterr().out)
    assert len(set(listed)) == 1
    assert listed[0].endswith("4 runs with 2 seeds (0, 1)\n")
    assert main(["sweep", "grid.yaml", "--seed", "5", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("seed=5") == 2


def test_differences_are_those_of_the_same_kind() -> None:
    fields: list[dict[str, Any]] = [
        {"model.position": "rope", "training.epochs": 1},
        {"model.position": "alibi", "training.steps": 156},
        {"model.position": {"kind": "rope", "base": 500.0}, "training.examples": 32 * 156},
    ]
    flats = [flatten(keys.parse(each)) for each in fields]
    differing = differences(flats)
    assert differing == ["model.position.kind", "model.position.base"]
    assert [label(flat, differing) for flat in flats] == [
        "rope, base 10000",
        "alibi",
        "rope, base 500",
    ]
    assert [matches(flat, {"model.position": "rope"}) for flat in flats] == [True, False, True]
    assert [matches(flat, {"model.position.base": [500.0]}) for flat in flats] == [
        False,
        False,
        True,
    ]


def test_a_label_has_a_zero_and_leaves_out_what_is_empty_or_false() -> None:
    differing = ["model.dropout", "data.priming", "model.attention.mask_padding"]
    plain = flatten(keys.parse({}))
    assert label(plain, differing) == "dropout 0"
    primed = {"data.priming": "10=5", "model.attention.mask_padding": True}
    shown = label(flatten(keys.parse(primed)), differing)
    assert shown == "dropout 0, priming [[10, 5]], mask_padding True"


def test_runs_that_start_from_others_of_one_name_are_rows_of_their_own(
    swept: lengthwise.Comparison, tmp_path: Path
) -> None:
    origin, runs = swept.runs[0], []
    for folder in (tmp_path / "a", tmp_path / "b"):
        copied = shutil.copytree(origin.path, folder / "origin")
        fields = {**QUICK, "model.position": "rope", "start_from": copied}
        runs.append(Run.create(keys.parse(fields), folder))
    summary = lengthwise.compare(*runs).summary()
    assert [row["label"] for row in summary] == ["start_from origin"] * 2
    assert [row["runs"] for row in summary] == [[str(run.path)] for run in runs]


def test_seeds_of_runs_that_start_from_runs_of_their_own_seeds_are_one_row(
    swept: lengthwise.Comparison, tmp_path: Path
) -> None:
    origins = {(r.experiment.model.position.kind, r.experiment.seed): r.path for r in swept.runs}

    def fine_tune(position: str, seed: int, origin_seed: int) -> Run:
        start = {"model.position": position, "start_from": origins[position, origin_seed]}
        return Run.create(keys.parse({**QUICK, **start, "seed": seed}), tmp_path)

    own = [fine_tune(position, seed, seed) for position in ("rope", "none") for seed in (0, 1)]
    summary = lengthwise.compare(*own).summary()
    assert [row["seeds"] for row in summary] == [[0, 1], [0, 1]]
    assert [row["label"] for row in summary] == [
        f"{position}, start_from {origins[position, 0].name} and other seeds"
        for position in ("rope", "none")
    ]
    # Seed 1 from the origin of seed 0 is another condition than seed 1 from its own.
    mixed = lengthwise.compare(*own[:2], fine_tune("rope", 1, 0)).summary()
    assert [row["seeds"] for row in mixed] == [[0, 1], [1]]


def test_runs_that_a_pattern_finds_are_in_the_order_of_their_keys(tmp_path: Path) -> None:
    rates, seeds = (5e-4, 0.003, 0.02), (0, 1)
    made = [
        Run.create(keys.parse({**QUICK, "training.learning_rate": rate, "seed": seed}), tmp_path)
        for rate in rates
        for seed in seeds
    ]
    assert sorted(run.path for run in made) != [run.path for run in made]  # by their hashes
    found = lengthwise.compare(root=tmp_path)
    assert [run.path for run in found.runs] == [run.path for run in made]
    assert [record["run"] for record in found] == [str(run.path) for run in made]
    labels = ["learning_rate 0.0005", "learning_rate 0.003", "learning_rate 0.02"]
    assert [row["label"] for row in found.summary()] == labels
    backwards = lengthwise.compare(*reversed(made))  # as they were named
    assert [row["label"] for row in backwards.summary()] == labels[::-1]


def test_a_comparison_has_the_numbers_of_its_runs(swept: lengthwise.Comparison) -> None:
    assert len(swept) == 4
    assert swept.differing == ["model.position.kind", "seed"]
    rows = {row["label"]: row for row in swept.summary()}
    assert rows.keys() == {"rope", "none"}
    for name, row in rows.items():
        runs = [run for run in swept.runs if run.experiment.model.position.kind == name]
        for length in (1, 2):
            shares = [
                accuracy["exact_match"]
                for run in runs
                for accuracy in (run.result or {})["evaluation"]
                if accuracy["length"] == length
            ]
            spread = row["accuracy"][length]
            assert spread["mean"] == pytest.approx(statistics.mean(shares))
            assert spread["deviation"] == pytest.approx(statistics.stdev(shares))
            assert spread["n"] == 2
    assert "± " in swept.table()
    assert json.loads(json.dumps(swept.to_json()))["differ in"] == swept.differing


def test_a_comparison_as_a_dataframe(swept: lengthwise.Comparison) -> None:
    pytest.importorskip("pandas")
    frame = swept.to_dataframe()
    assert len(frame) == 8
    by_hand = swept.summary()[0]["accuracy"][1]["mean"]
    chosen = frame[(frame["position"] == "rope") & (frame["length"] == 1)]
    assert chosen["exact_match"].mean() == pytest.approx(by_hand)


def test_the_figure_shades_the_trained_lengths(
    swept: lengthwise.Comparison, tmp_path: Path
) -> None:
    figure = swept.plot(tmp_path / "figure.pdf")
    left, right = figure.axes
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    lines = {line.get_label(): line for line in left.get_lines()}
    assert lines.keys() == {"rope", "none"}
    means = [100 * swept.summary()[0]["accuracy"][n]["mean"] for n in (1, 2)]
    assert list(lines["rope"].get_ydata()) == pytest.approx(means)
    shade = left.patches[0].get_extents().transformed(left.transData.inverted())
    assert shade.x1 == pytest.approx(1.5)  # training has 1 digit
    assert list(right.get_lines()[0].get_xdata()) == [8, 16]  # examples seen


def test_compare_finds_runs_by_name_pattern_and_key(
    swept: lengthwise.Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    root = swept.runs[0].path.parent
    assert len(lengthwise.compare(root=root)) == 4
    assert len(lengthwise.compare("addition-rope-*", root=root)) == 2
    assert len(lengthwise.compare(swept.runs[0], str(swept.runs[1].path))) == 2
    assert len(lengthwise.compare(where={"seed": 1}, root=root)) == 2
    both = lengthwise.compare(where={"model.position": "rope", "seed": [1, 2]}, root=root)
    assert [record["seed"] for record in both] == [1]
    with pytest.raises(UsageError, match="no run has seed=9"):
        lengthwise.compare(where={"seed": 9}, root=root)
    words = ["compare", "--runs", str(root), "--where", "model.position=rope,none"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "model.position.kind: " in shown
    assert "2 digits (%) after" in shown
    assert main([*words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 4


def test_a_sweep_skips_finished_runs_and_goes_on_with_stopped_ones(
    swept: lengthwise.Comparison, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = swept.runs[0].path.parent
    written = {run.path: (run.path / "model.safetensors").stat().st_mtime_ns for run in swept.runs}
    words = ["sweep", "--runs", str(root), "--name", "again", "--seed", "0:1", *WORDS]
    assert main([*words, "--model.position", "rope,none"]) == 0
    out = capsys.readouterr().out
    assert f"wrote {root / 'again'}.json and {root / 'again'}.png" in out
    for path, when in written.items():
        assert (path / "model.safetensors").stat().st_mtime_ns == when
    assert len(json.loads((root / "again.json").read_text())["runs"]) == 4


@pytest.mark.slow
def test_a_sweep_that_is_killed_twice_ends_like_one_that_never_was(tmp_path: Path) -> None:
    fields = {**QUICK, "training.steps": 300, "training.checkpoint_every": 10}
    words = [f"--{key}={json.dumps(value)}" for key, value in fields.items()]
    command = [sys.executable, "-m", "lengthwise", "sweep", "--seed", "0:2", *words]
    command += ["--model.position", "rope,none,alibi"]
    for run in (1, 3):  # the first checkpoint of which the killer waits for
        process = subprocess.Popen([*command, "--runs", str(tmp_path / "killed")])
        while len(list((tmp_path / "killed").glob("*/checkpoint.safetensors"))) < min(run, 2):
            assert process.poll() is None
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    for name in ("killed", "whole"):
        subprocess.run([*command, "--runs", str(tmp_path / name)], check=True)
    for whole in (tmp_path / "whole").glob("addition-*"):
        killed = tmp_path / "killed" / whole.name
        assert (killed / "model.safetensors").read_bytes() == (
            whole / "model.safetensors"
        ).read_bytes()
    assert len(list((tmp_path / "killed").glob("addition-*"))) == 9


def test_readable_reprs(swept: lengthwise.Comparison) -> None:
    run = swept.runs[0]
    assert repr(run) == f"<Run {run.path}: finished, addition, rope, seed 0>"
    assert "model.position=rope" in repr(run.experiment)
    experiment = keys.parse({"model.position": {"kind": "relative-key", "clip": 3}, "seed": 2})
    expected = "task=addition, layout=paper, model.position=relative-key(clip=3), seed=2"
    assert repr(experiment) == f"Experiment({expected})"
    assert run.curves().tested.keys() == {1, 2}
    assert run.metrics[-1]["step"] == 4
    assert len(run.plot().axes) == 2
