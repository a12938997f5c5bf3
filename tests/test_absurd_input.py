"""Absurd input is refused at once, in one sentence, and makes no run."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faults import fuzz
from faults.outcome import Outcome

import lengthwise
from lengthwise.base import UsageError
from lengthwise.base.errors import LONGEST_SENTENCE
from lengthwise.cli.main import main
from lengthwise.solver import saved
from lengthwise.training import api, keys
from lengthwise.training.yaml import parse_yaml, read_yaml

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    "harness",
    [
        lambda: fuzz.fuzz_python(300, 0),
        lambda: fuzz.fuzz_yaml(150, 0),
        lambda: fuzz.fuzz_words(150, 0),
        lambda: fuzz.fuzz_problems(2000, 0),
    ],
    ids=["python", "yaml", "words", "problems"],
)
def test_a_sample_of_fuzzed_input(harness: Callable[[], Outcome]) -> None:
    outcome = harness()
    assert not outcome.failed, outcome.examples


def test_a_sample_of_fuzzed_command_lines(tmp_path: Path) -> None:
    outcome = fuzz.fuzz_commands(50, 0, str(tmp_path))
    assert not outcome.failed, outcome.examples
    assert not list(tmp_path.iterdir())


def create(words: str, runs: Path) -> None:
    key, _, value = words.partition(" ")
    experiment = keys.load(None, keys.parse_overrides([key, value]))
    api.create_run(experiment, runs, None, False)


def test_absurd_values_are_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("--seed 2001-99-99", "seed is '2001-99-99', but"),
        ("--seed !!int x", "seed is '!!int x', but"),
        (f"--seed {'9' * 4000}", "has an integer of more than 100 digits"),
        (
            "--model.width 1000000000000",
            "training this model with this batch size needs at least 1000 EB",
        ),
        ("--model.position.clip 99999999999999999999", "with this batch size needs at least"),
        ("--model.layers 1000000000", "training this model with this batch size needs at least"),
        ("--training.batch_size 100000000", "of memory, but there are"),
        ("--data.train_size 1000000000000", "the training problems need at least 40 TB"),
        ("--task.kin addition", "has no option 'kin': did you mean 'kind'?"),
        ("--data.priming 10", "data.priming is 10, but a priming is written as in 35=50"),
        ("--model rope", "model is 'rope'; did you mean 'model.position'?"),
        ("--data 5", "data is 5, but it holds keys such as 'data.mixture'"),
        ("--data.priming {10: 5, 10: 6}", "'10' is given twice"),
        ('--device "\\ud800"', "it has characters that can't be written to a file"),
        ("--start_from \0", "it has characters that can't be written to a file"),
    ]
    for words, sentence in cases:
        with subtests.test(ascii(words)):
            with pytest.raises(UsageError) as error:
                create(words, tmp_path)
            assert sentence in str(error.value)
            assert len(str(error.value)) <= LONGEST_SENTENCE
            assert not list(tmp_path.iterdir())


def test_absurd_files_are_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    cases: list[str] = [
        "model: &a {preset: *a}",
        "model: " + "{a: " * 3000 + "}" * 3000,
        "a: &a [x, x]\nb: &b [*a, *a]\n"
        + "\n".join(f"{chr(c + 1)}: &{chr(c + 1)} [*{chr(c)}, *{chr(c)}]" for c in range(98, 122)),
        "a: &a {x: 1, y: 2}\n"
        + "\n".join(
            f"b{i}: &b{i} {{<<: [{', '.join(['*a' if i == 0 else f'*b{i - 1}'] * 9)}], z{i}: 1}}"
            for i in range(9)
        ),
        "seed: !!int x",
        "seed: !!timestamp 2001-99-99",
        f"seed: {'9' * 5000}",
        "{{a: 1}: 2}",
        "start_from: \ud800",
    ]
    for text in cases:
        with subtests.test(ascii(text[:60])):
            content = text.encode(errors="surrogatepass")
            (tmp_path / "config.yaml").write_bytes(content)
            with pytest.raises(UsageError) as error:
                keys.load(tmp_path / "config.yaml")
            assert "\n" not in str(error.value)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match="/dev/zero has more than 1000000 bytes"):
        read_yaml(Path("/dev/zero"))


def test_dates_are_text() -> None:
    assert parse_yaml(b"start_from: 2001-01-01", "it") == {"start_from": "2001-01-01"}


MISUSES: dict[str, Callable[[], Any]] = {
    "there is no key 'bogus'": lambda: lengthwise.Experiment(bogus=1),
    "'training.steps' is given twice": lambda: keys.parse(
        {"training": {"steps": 5}, "training.steps": 7}
    ),
    "'task.kind' is given twice": lambda: keys.parse({"task": "addition", "task.kind": "addition"}),
    "a sweep is of a list of experiments, not of 3": lambda: lengthwise.sweep(3),  # type: ignore[arg-type]
    "a run is given as such or by its path, not as 3": lambda: lengthwise.compare(3),  # type: ignore[arg-type]
    "integers have at most 100 digits": lambda: lengthwise.Experiment(seed=10**5000),
}


@pytest.mark.parametrize("sentence", MISUSES)
def test_misuse_in_python_is_one_sentence(sentence: str) -> None:
    with pytest.raises(UsageError) as error:
        MISUSES[sentence]()
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_an_override_may_repeat_a_key_of_the_file() -> None:
    assert keys.parse(keys.nest({"training": {"steps": 5}}, {"training.steps": 7})).steps == 7


def test_a_signed_problem_is_no_option(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "c.yaml").write_text("model: {preset: tiny}")
    assert main(["show", str(tmp_path / "c.yaml"), "--", "-1+2"]) == 2
    assert "'-1+2' is not a problem" in capsys.readouterr().err
    words = ["solve", str(tmp_path), "-1+2", "--json", "--layes"]
    with pytest.raises(SystemExit):
        main(words)
    assert "unknown argument: --layes" in capsys.readouterr().err


def test_a_mistyped_directory_does_not_wait_for_the_hub(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    """The Hub's client tries for half a minute where there is no network."""
    asked: list[dict[str, Any]] = []

    def download(name: str, **options: Any) -> str:
        asked.append(options)
        raise OSError("not in the cache")

    monkeypatch.setattr(saved, "can_reach_hub", lambda: False)
    monkeypatch.setattr(saved, "snapshot_download", download)
    assert main(["solve", "rums/mine", "1+2"]) == 2
    errors = capsys.readouterr().err
    assert "there is no directory rums/mine; looking for it on the Hugging Face Hub" in errors
    assert "there is no directory 'rums/mine', and the Hub is out of reach: not in the" in errors
    assert asked[0]["local_files_only"]


def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lengthwise", *words]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, **options)


def test_output_that_can_not_be_written() -> None:
    """ASCII lacks characters, a full disk takes none, and a closed stream is no place for any."""
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run(["list", "tasks"], stdout=subprocess.PIPE, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    with open("/dev/full", "w") as full:
        done = run(["list", "tasks"], stdout=full)
    assert done.returncode == 2
    assert done.stderr == "lengthwise: can't read or write the output: no space left on device\n"
    closed = [sys.executable, "-m", "lengthwise"]  # prints its help
    script = "import os, sys; os.close(1); os.execv(sys.argv[1], sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", script, *closed], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
