"""The command line: the output of each command, and one sentence for every bad input."""

import argparse
import ast
import io
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lengthwise
from lengthwise.base import Registry
from lengthwise.cli import output
from lengthwise.cli.command import COMMANDS
from lengthwise.cli.main import build_parser, main
from lengthwise.paper.scales import SCALES
from lengthwise.training import keys
from lengthwise.training.runs import Run

QUICK = shlex.split(
    "--model.preset tiny --training.steps 6 --evaluation.examples 10 --evaluation.final_examples 10"
)
Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    assert main(["train", "--runs", str(root), "--name", "sum", *QUICK]) == 0
    return root / "sum"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the trained run, to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def refusal(capsys: Capture, *words: str) -> str:
    """The sentence of a command that refuses: the last line of standard error, with exit code 2."""
    try:
        code: Any = main(list(words))
    except SystemExit as stop:  # from argparse
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2, captured
    sentence = captured.err.strip().splitlines()[-1]
    assert sentence.startswith("lengthwise: ")
    assert "Traceback" not in captured.err
    return sentence


def printed_json(capsys: Capture, *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


MISUSES = {
    # keys
    "train --model.widht 64": "there is no key 'model.widht': did you mean 'model.width'?",
    "train --width 64": "did you mean 'model.width'?",
    "train --modle.width 64": "there is no key 'modle': did you mean 'model'?",
    "train --lr 0.1": "there is no key 'lr': `lengthwise train --keys` lists all",
    "train --training.steps": "--training.steps needs a value",
    "train --model.width= --seed 1": "--model.width needs a value",
    "train --model.width=64 stray": "'stray' is neither a key such as --model.width nor",
    "train --model tiny --model.width 64": "'model.width' can't be set, because model is 'tiny'",
    "train nowhere.yaml": "can't read the configuration nowhere.yaml",
    # choices
    "train --task.kind adition": "there is no task 'adition': did you mean 'addition'?",
    "train --task addition --task.modulus 7": "the task 'addition' has no option 'modulus'",
    "train --model.position relativ-key": "did you mean 'relative-key'?",
    "train --model.position.clipp 3": "has no option 'clipp': did you mean 'clip'?",
    "train --model.attention locl --keys": "there is no attention 'locl': did you mean 'local'?",
    "train --model.preset bert-bas": "did you mean 'bert-base'?",
    "train --layout long-multiplication": "'long-multiplication' needs the task multiplication",
    "train --model.attention positional": "needs a position embedding whose scores ignore content",
    "train --data.mixture zero=0.5": "there is no mixture 'zero': did you mean 'zeros'?",
    # values
    "train --model.width wide": "model.width is 'wide'",
    "train --model.width 100 --model.heads 3": "model.width is 100, which model.heads, 3,",
    "train --seed -1": "seed is -1",
    "train --seed true": "seed is True, but it can't be true or false",
    "train --training.batch_size 2.5": "training.batch_size is 2.5",
    "train --training.betas [0.9]": "AdamW has two, such as [0.9, 0.98]",
    "train --training.learning_rate inf": "training.learning_rate is",
    "train --training.steps 5 --training.epochs 1": "one budget",
    "train --task.kind modular-addition --task.modulus 1": "modulus of the task",
    # lengths
    "train --data.train_digits 12": "data.train_digits is 12, more than data.test_digits",
    "train --data.test_digits 1000000000000000000": "data.test_digits is 1000000000000000000",
    "train --data.priming 11=50": "data.priming has 50 problems of 11 digits",
    "train --data.priming 10=many": "but a priming is written as in 35=50",
    "train --data.priming 10=5000": "leaves none that are not primed",
    "train --evaluation.lengths 5:30": "evaluation.lengths has 11",
    "train --evaluation.lengths 1:999999999999": "is not a list of lengths",
    "train --layout.n_out 3": "reads answers from 3 of its 21 positions",
    "train --layout fitted --layout.extra_padding 20": "training problems have up to 52 tokens",
    # machine and directories
    "train --device gpu": "device 'gpu' isn't available here",
    "train --device cuda:7": "device 'cuda:7' isn't available here",
    "train --threads 3000": "threads is 3000, but this machine takes 1 to",
    "train --name a/b": "a name has up to 200 letters",
    f"train --name {'é' * 199}": "a name has up to 200 letters",
    "train --start_from nowhere": "nowhere",
    "train --import mine.txt": "there is no Python file",
    # other commands
    "--bogus": "unknown argument: --bogus",
    "tarin": "invalid choice: 'tarin'",
    "list taks": "there is no list 'taks': did you mean 'tasks'?",
    "record addtion": "there is no record 'addtion': did you mean 'addition'?",
    "record addition --seeds 0": "argument --seeds: '0' is not an integer ≥ 1",
    "demo --again --jobs 0": "argument --jobs: '0' is not an integer ≥ 1",
    "solve runs/nothing 1+1": "there is no run at runs/nothing",
    "solve 1+1": "there is no problem to solve; write one such as 12 + 34",
    "solve nothing 1+1": "there is no run and no saved model at nothing",
    f"solve {'x' * 300} 1+1": "file name too long",
    "resume nothing": "there is no run at nothing",
    "paper": "required: list|run|report (see `lengthwise paper --help`)",
    "paper run": "name the artefacts to run, or --all",
    "paper run table-adition": "did you mean 'table-addition'?",
    "paper run table-addition --scale smok": "there is no scale 'smok': did you mean 'smoke'?",
    "paper run table-addition --scale smoke --on locl": "no engine 'locl': did you mean 'local'?",
    "paper run table-addition --scale smoke --only XYZ": "has 'XYZ' in its label",
    "paper run table-addition --scale smoke --only APE --only XYZ": "has 'XYZ' in its label",
    "paper run table-addition --scale smoke --device tpu": "device 'tpu' isn't available here",
    "paper report --json": "unknown argument: --json (see `lengthwise paper report --help`)",
}


def test_misuse_is_refused_in_one_sentence_and_makes_no_run(
    capsys: Capture, tmp_path: Path, monkeypatch: Patch, subtests: pytest.Subtests
) -> None:
    for words in MISUSES:
        with subtests.test(words):
            monkeypatch.chdir(tmp_path)
            assert MISUSES[words] in refusal(capsys, *words.split())
            assert not list(tmp_path.iterdir())


def test_a_bad_configuration_file_is_refused(
    capsys: Capture, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, str]] = [
        ("model: {widht: 64}", "did you mean 'model.width'?"),
        ("model: [", "is not YAML"),
        ("- 1", "should be a mapping"),
        ("false", "should be a mapping"),
        ("model: 3", "model is 3"),
        ("task: {kind: addition, 5: 3}", "has no option '5'"),
        ("seed: 1\ntraining: {steps: 2}\ntraining: {batch_size: 4}", "'training' is given twice"),
    ]
    for content, part in cases:
        with subtests.test(content):
            config = tmp_path / "config.yaml"
            config.write_text(content)
            assert part in refusal(capsys, "train", str(config), "--runs", str(tmp_path / "runs"))
            assert list(tmp_path.iterdir()) == [config]


def test_bad_questions_to_a_run_are_refused(
    trained: Path, capsys: Capture, subtests: pytest.Subtests
) -> None:
    cases: list[tuple[str, str]] = [
        ("solve RUN", "there is no problem to solve"),
        ("solve RUN --file nowhere.txt", "can't read or write nowhere.txt: no such file"),
        ("solve RUN 1+1 --layers 0", "argument --layers: '0' is not an integer ≥ 1"),
        ("solve RUN 1+1 --device tpu", "device 'tpu' isn't available here"),
        ("solve RUN 12*3", "has the operation *, but this model was trained for addition"),
        ("solve RUN 1+2+3", "has 3 operands"),
        ("solve RUN 12345678901+1", "operand 1 has 11 digits"),
        ("solve RUN -- -1+2", "is not a problem"),
        ("show RUN twelve", "is not a problem"),
        ("show nowhere.yaml 1+1", "can't read the configuration nowhere.yaml"),
        ("evaluate RUN --lengths 11", "does not fit the model's layout"),
        ("evaluate RUN --lengths a:b", "is not a list of lengths"),
        ("evaluate RUN --examples 0", "at least 1 example"),
        ("evaluate RUN --sampling exakt", "did you mean 'exact'?"),
        ("evaluate RUN --second-digits 2", "not for products"),
        ("evaluate RUN --second-digits many", "'many' is not an integer ≥ 1"),
        ("evaluate RUN --threads -1", "argument --threads"),
        ("evaluate RUN --foo", "unknown argument: --foo (see `lengthwise evaluate --help`)"),
        ("stress RUN --sharpness -1", "positive number"),
        ("stress RUN --lengths 11", "room for 1 to 10"),
        ("analyze RUN --length 11", "does not fit the model's layout"),
        ("analyze RUN --level 5", "'5' is not a number from 0 to 1"),
        ("train --runs ROOT --name sum --seed 7", "holds another experiment"),
    ]
    for words, part in cases:
        with subtests.test(words):
            names = {"RUN": str(trained), "ROOT": str(trained.parent)}
            assert part in refusal(capsys, *(names.get(word, word) for word in words.split()))


def test_damaged_files_are_named(run: Path, capsys: Capture) -> None:
    weights = run / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1000])
    assert f"{weights} is damaged" in refusal(capsys, "evaluate", str(run))
    weights.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    assert f"{weights} is damaged: its checksum" in refusal(capsys, "solve", str(run), "1 + 2")
    weights.unlink()
    assert f"{weights} is damaged: it is missing" in refusal(capsys, "evaluate", str(run))
    weights.write_bytes(whole)
    (run / "result.json").unlink()
    assert f"{run / 'result.json'} is damaged: it is missing" in refusal(capsys, "resume", str(run))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metrics.jsonl", b"x\n"),
        ("metrics.jsonl", b'{"step": 1, "evaluation": [5]}\n'),
        ("result.json", b'{"evaluation": [{}]}'),
        ("config.yaml", b""),
        ("config.yaml", b"seed: 0\ntask:\n  kind: addition\n"),
        ("identity", b"\xff\xff"),
    ],
)
def test_a_damaged_run_is_listed_and_hides_no_other(
    file: str, content: bytes, run: Path, capsys: Capture
) -> None:
    shutil.copytree(run, run.parent / "good")
    (run.parent / "something else").mkdir()
    (run / file).write_bytes(content)
    good, bad = printed_json(capsys, "runs", "--runs", str(run.parent))
    assert (good["status"], bad["status"]) == ("finished", "damaged")
    assert list(good["accuracy"]) == [str(n) for n in range(5, 11)]
    assert str(run / file) in bad["reason"]


def test_a_full_disk_loses_nothing(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    """/dev/full answers every write as a full disk does."""
    words = ["train", "--runs", str(tmp_path), "--name", "full", *QUICK]
    words += ["--training.checkpoint_every", "2"]
    written = open

    def open_full(path: Any, mode: str = "r", **options: Any) -> Any:
        is_full = ".checkpoint.safetensors." in str(path) and "x" in mode
        return written("/dev/full", "wb") if is_full else written(path, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr("lengthwise.base.files.open", open_full, raising=False)
        assert "no space left on device" in refusal(capsys, *words)
    assert main(words) == 0
    assert not list((tmp_path / "full").glob(".*"))


def test_a_finished_run_is_trained_again_only_on_request(run: Path, capsys: Capture) -> None:
    words = ["train", "--runs", str(run.parent), "--name", "run", *QUICK]
    (run / "notes.md").write_text("mine")
    weights = run / "model.safetensors"
    content, written = weights.read_bytes(), weights.stat().st_mtime_ns
    assert main(words) == 0
    assert "finished already" in capsys.readouterr().out
    assert weights.stat().st_mtime_ns == written
    assert main([*words, "--again"]) == 0
    assert weights.stat().st_mtime_ns != written
    assert weights.read_bytes() == content
    assert (run / "notes.md").read_text() == "mine"


def test_train_prints_why_pytorch_computes_a_run(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("LENGTHWISE_FAST", "off")
    assert main(["train", "--runs", str(tmp_path), *QUICK]) == 0
    assert "PyTorch computes this run (the C code is switched off" in capsys.readouterr().err


def test_evaluate_prints_what_the_library_measures(trained: Path, capsys: Capture) -> None:
    words = ["evaluate", str(trained), "--lengths", "1,3:4", "--examples", "300"]
    results = printed_json(capsys, *words)
    model = lengthwise.load(trained)
    expected = lengthwise.evaluate(model, lengths=[1, 3, 4], examples=300)
    assert results == json.loads(json.dumps([accuracy.to_json() for accuracy in expected]))
    assert main([*words, "--digits"]) == 0
    assert "each symbol of the answer" in capsys.readouterr().out
    for option in (["--layers", "9"], ["--sharpness", "50"]):
        assert printed_json(capsys, *words, *option) != results


def test_solve_reads_words_files_and_standard_input(
    trained: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    file = tmp_path / "problems.txt"
    file.write_text("7 + 8\n\n9+9=\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("99999 + 1\n5+6\n"))
    words = ["solve", str(trained), "1+2", "-", "--file", str(file), "3 + 4"]
    solutions = printed_json(capsys, *words)
    assert [s["correct"] for s in solutions] == [3, 100000, 11, 7, 15, 18]
    assert all(s["right"] == (s["answer"] == s["correct"]) for s in solutions)
    assert all(len(s["confidences"]) == 11 for s in solutions)
    expected = lengthwise.load(trained).solve([s["problem"] for s in solutions])
    assert [s["answer"] for s in solutions] == expected
    assert main(["solve", str(trained), "99999 + 1"]) == 0
    assert "99999 + 1 = " in capsys.readouterr().out
    deeper = printed_json(capsys, "solve", str(trained), "99999 + 1", "--layers", "9")
    assert deeper[0]["confidences"] != solutions[1]["confidences"]


def test_solve_prints_answers_of_any_length(tmp_path: Path, capsys: Capture) -> None:
    """Python refuses to print integers of more than 4300 digits unless told otherwise."""
    words = shlex.split(
        "--layout fitted --layout.order least-significant-first --model.attention local"
        " --model.position.clip 2 --model.position.coordinate significance"
    )
    assert main(["train", "--runs", str(tmp_path), "--name", "long", *QUICK, *words]) == 0
    problem = f"1{'0' * 4400} + 1"
    capsys.readouterr()
    before = sys.get_int_max_str_digits()
    try:
        assert main(["solve", str(tmp_path / "long"), problem]) == 0
    finally:
        sys.set_int_max_str_digits(before)
    assert f"it is 1{'0' * 4399}1)" in capsys.readouterr().out


def test_show_prints_tokens_and_coordinates(trained: Path, tmp_path: Path, capsys: Capture) -> None:
    tokens = printed_json(capsys, "show", str(trained), "12 + 345")
    assert [token["symbol"] for token in tokens[:3]] == ["1", "2", "<PAD>"]
    assert [token["significance"] for token in tokens[:3]] == [1, 0, -1]
    assert [token["answer read here"] for token in tokens[:4]] == ["3", "5", "7", "<PAD>"]
    config = tmp_path / "config.yaml"
    config.write_text(
        "{task: multiplication, layout: {kind: fitted, order: least-significant-first}}"
    )
    assert main(["show", str(config), "12 x 345"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["2", "0", "0", "1", "0", "False", "0"]
    assert lines[-1].split() == ["3", "8", "2", "3", "1", "True"]


def test_stress_counts_every_case(trained: Path, capsys: Capture) -> None:
    words = ["stress", str(trained), "--lengths", "3,4", "--examples", "4"]
    outcomes = printed_json(capsys, *words)
    assert {"random", "all carries", "carry chain", "zero"} <= {o["case"] for o in outcomes}
    assert {o["length"] for o in outcomes} == {3, 4}
    assert main(words) == 0
    assert "carry chain" in capsys.readouterr().out


def test_long_commands_show_progress_in_a_terminal(
    trained: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    titles = []

    def track(items: Iterable[Any], title: str, *_: Any, **settings: Any) -> Iterator[Any]:
        titles.append(title)
        return iter(items)

    monkeypatch.setattr("lengthwise.base.progress.track", track)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    for command in (
        "stress RUN --lengths 3 --examples 2",
        "evaluate RUN --lengths 3 --examples 2",
        "evaluate RUN --grid 1:2 --examples 2",
        "solve RUN 1+2",
    ):
        assert main(command.replace("RUN", str(trained)).split()) == 0
    assert titles == ["stress", "3 digits", "grid", "solve"]


def test_analyze_shows_failures_and_learning(trained: Path, capsys: Capture) -> None:
    study = printed_json(capsys, "analyze", str(trained), "--length", "2", "--examples", "100")
    assert sum(total for _, total in study["failures"]["by_carries"].values()) == 100
    assert list(study["learned"]) == ["5", "6", "10"]
    assert main(["analyze", str(trained), "--examples", "100"]) == 0
    assert "6 digits: " in capsys.readouterr().out


def test_lists_come_from_the_registries(capsys: Capture) -> None:
    assert main(["list"]) == 0
    lists = capsys.readouterr().out.split()
    assert {"mixtures", "presets", "records", "engines"} < set(lists)
    for key, registry in Registry.all.items():
        word = f"{key.rpartition('.')[2]}s"
        assert word in lists
        assert [entry["name"] for entry in printed_json(capsys, "list", word)] == list(registry)
    for word in lists:
        names = [entry["name"] for entry in printed_json(capsys, "list", word)]
        assert main(["list", word]) == 0
        assert set(names) <= {line.split("  ")[0] for line in capsys.readouterr().out.splitlines()}


def terminal(monkeypatch: Patch, columns: int) -> None:
    monkeypatch.setattr(output, "columns", lambda: columns)


@pytest.mark.parametrize(
    ("words", "options", "most"),
    [
        ("", ["--model.attention.mask_padding false", "--layout.n_out null"], 64),
        ("--task multiplication --layout compact", ["--task.second_digits 3"], 64),
        ("--model.attention local", ["--model.attention.window 1"], 65),
        ("--model.depth.kind until-stable", ["--model.depth.stable_for 3"], 68),
        ("--training.optimizer muon --layout fitted", ["--layout.extra_padding 0"], 68),
    ],
)
def test_keys_fit_a_screen_and_show_the_options_of_choices(
    words: str, options: list[str], most: int, capsys: Capture, monkeypatch: Patch
) -> None:
    terminal(monkeypatch, 100)
    assert main(["train", *words.split(), "--keys"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= most
    assert max(map(len, lines)) <= 100
    for option in options:
        assert any(line.startswith(f"{option} ") for line in lines)
    assert any("mask_padding" in line for line in lines) == ("local" not in words)


def test_keys_and_lists_show_choices_of_a_users_file(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    (tmp_path / "mine_for_cli.py").write_text(
        "from pydantic import Field\n"
        "from lengthwise.model.attention import ATTENTIONS, FullAttention\n"
        "@ATTENTIONS.register('mine')\n"
        "class Mine(FullAttention):\n"
        "    '''Attention of mine.'''\n"
        "    class Options(FullAttention.Options):\n"
        "        strength: float = Field(3.5, description='how strong')\n"
    )
    monkeypatch.setenv("LENGTHWISE_IMPORT", "")
    words = ["--import", str(tmp_path / "mine_for_cli.py")]
    registry = Registry.all["model.attention"]
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    assert main(["train", *words, "--model.attention", "mine", "--keys"]) == 0
    assert "--model.attention.strength 3.5 " in capsys.readouterr().out
    assert main(["list", "attentions", *words]) == 0
    assert "Attention of mine. Options: mask_padding=False, strength=3.5." in (
        capsys.readouterr().out
    )


def test_run_names_are_never_broken(
    trained: Path, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    terminal(monkeypatch, 80)
    name = "a-name-of-more-than-eighty-characters-" * 3
    shutil.copytree(trained, tmp_path / name)
    assert main(["runs", "--runs", str(tmp_path)]) == 0
    assert str(tmp_path / name) in capsys.readouterr().out.split()
    for word in ("positions", "presets", "tasks"):
        assert main(["list", word]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80


def test_a_table_breaks_no_word(capsys: Capture) -> None:
    output.print_table(["run", "reason"], [["first", "a-file/of-my-own.py " * 20], ["second", ""]])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 4
    assert set(" ".join(lines[2:]).split()) == {"first", "a-file/of-my-own.py", "second"}


def test_every_command_has_help_with_an_example(capsys: Capture) -> None:
    def check(parser: argparse.ArgumentParser, words: list[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            main([*words, "--help"])
        assert stop.value.code == 0
        text = capsys.readouterr().out
        assert f"example:\n  lengthwise {' '.join(words)}" in text
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    check(inner, [*words, name])
            else:
                assert action.help or action.dest == "run", f"{words} {action.dest} has no help"

    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    assert set(commands.choices) == set(COMMANDS)
    assert {"train", "solve", "paper", "record", "demo", "list"} < set(COMMANDS)
    for name, parser in commands.choices.items():
        check(parser, [name])
    with pytest.raises(SystemExit):
        main(["paper", "run", "--help"])
    text = capsys.readouterr().out
    assert all(scale in text for scale in SCALES)


def test_help_imports_nothing_heavy() -> None:
    """So that it takes a tenth of a second, not several."""
    code = (
        "import sys, lengthwise.cli.main as cli\n"
        "for words in (['--help'], ['train', '--help'], ['paper', 'run', '--help']):\n"
        "    try: cli.main(words)\n"
        "    except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'rich', 'matplotlib', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_command_line_is_imported_by_nothing_else() -> None:
    package = Path(lengthwise.__file__).parent
    for path in package.rglob("*.py"):
        if path.parent.name != "cli" and path.name != "__main__.py":
            names = [
                name
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom | ast.Import)
                for name in (getattr(node, "module", None), *(a.name for a in node.names))
            ]
            assert not any("cli" in (name or "").split(".") for name in names), path


def test_a_pipe_that_closes_early_is_not_an_error() -> None:
    command = f"{sys.executable} -m lengthwise list positions | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("position")
    assert not done.stderr


LIBRARY_MISUSES: dict[str, Callable[[lengthwise.solver.Solver], object]] = {
    "an experiment is a mapping": lambda _: lengthwise.train(5),  # type: ignore[arg-type]
    "did you mean 'model'?": lambda _: lengthwise.train({"modle": {}}),
    "a name has up to 200": lambda _: lengthwise.train({}, name=5),  # type: ignore[arg-type]
    "runs are in a directory": lambda _: lengthwise.train({}, root=5),  # type: ignore[arg-type]
    "a path or a Hub id": lambda _: lengthwise.load(None),  # type: ignore[arg-type]
    "a run is the path of its directory": lambda _: lengthwise.resume(None),  # type: ignore[arg-type]
    "there is no run": lambda _: lengthwise.resume("nowhere"),
    "no saved model at": lambda _: lengthwise.evaluate("runs-x"),
    "a model is tested": lambda _: lengthwise.evaluate(5),  # type: ignore[arg-type]
    "are integers": lambda model: lengthwise.evaluate(model, lengths=[5.5]),  # type: ignore[list-item]
    "a seed is an integer": lambda model: lengthwise.evaluate(model, seed=-1),
    "needs a length": lambda model: lengthwise.evaluate(model, lengths=[]),
    "at least once": lambda model: lengthwise.evaluate(model, layers=0),
    "is not a problem": lambda model: model.solve([5]),  # type: ignore[list-item]
}


def test_misuse_of_the_library_is_one_sentence(trained: Path, subtests: pytest.Subtests) -> None:
    for part in LIBRARY_MISUSES:
        with subtests.test(part):
            with pytest.raises(lengthwise.UsageError) as error:
                LIBRARY_MISUSES[part](lengthwise.load(trained))
            assert part in str(error.value)
            assert "\n" not in str(error.value)


def test_the_library_trains_the_same_run(trained: Path, tmp_path: Path) -> None:
    fields = {
        "model": {"preset": "tiny"},
        "training": {"steps": 6},
        "evaluation": {"examples": 10, "final_examples": 10},
    }
    run = lengthwise.train(fields, root=tmp_path, progress=False)
    assert run.experiment.identity() == Run(trained).experiment.identity()
    weights = [path / "model.safetensors" for path in (run.path, trained)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_a_name_is_free_again_where_nothing_was_trained(tmp_path: Path, capsys: Capture) -> None:
    never_started = Run.create(keys.load(None, {"seed": 7}), tmp_path, "mine")
    words = ["train", "--runs", str(tmp_path), "--name", "mine", *QUICK]
    assert main(words) == 0
    assert Run(tmp_path / "mine").identity != never_started.identity
    assert "holds another experiment" in refusal(capsys, *words, "--seed", "3")


def test_demo_and_paper_pass_their_arguments_on(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr("lengthwise.paper.demo.demo", lambda *words: calls.append(words))
    assert main(["demo", "--smoke", "--jobs", "3", "--runs", str(tmp_path)]) == 0
    assert calls == [(tmp_path, 3, False, True)]

    def run_artefacts(artefacts: Any, scale: str, *rest: Any, **options: Any) -> dict[Path, str]:
        calls.append(([a.name for a in artefacts], scale, rest[0], options["search"]))
        return failures

    failures: dict[Path, str] = {}
    monkeypatch.setattr("lengthwise.paper.running.run_artefacts", run_artefacts)
    words = shlex.split(
        "paper run table-addition --scale smoke --seeds 2 --no-search table-elementwise"
    )
    assert main(words) == 0
    assert calls[-1] == (["table-addition", "table-elementwise"], "smoke", 2, False)
    assert "lengthwise paper report --scale smoke" in capsys.readouterr().out
    failures[tmp_path] = "the loss is nan"
    assert "1 runs failed" in refusal(capsys, *words)
    costs = printed_json(capsys, "paper", "list", "table-addition", "--scale", "smoke")
    assert costs["table-addition"]["runs"] > 0
    assert main(["paper", "list", "--scale", "smoke"]) == 0
    assert "table-addition " in capsys.readouterr().out


def test_ctrl_c_says_how_to_go_on(tmp_path: Path, capsys: Capture, monkeypatch: Patch) -> None:
    def interrupt(run: Run, **_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lengthwise.training.api.resume", interrupt)
    assert main(["train", "--runs", str(tmp_path), "--name", "mine", *QUICK]) == 130
    errors = capsys.readouterr().err
    assert f"go on with: lengthwise resume {tmp_path / 'mine'}" in errors
    assert errors.endswith("lengthwise: stopped\n")


def test_too_little_memory_is_one_sentence(capsys: Capture, monkeypatch: Patch) -> None:
    def allocate(*_: object) -> None:
        raise RuntimeError("can't allocate memory: you tried to allocate 10 bytes\nat line 3")

    monkeypatch.setattr("lengthwise.training.overview.overview", allocate)
    assert "does not have enough memory: can't allocate" in refusal(capsys, "runs")


def test_a_report_without_records_is_noted(tmp_path: Path, capsys: Capture) -> None:
    words = ["paper", "report", "table-elementwise", "--scale", "smoke", "--results", str(tmp_path)]
    assert main(words) == 0
    assert "there are no records" in capsys.readouterr().err
