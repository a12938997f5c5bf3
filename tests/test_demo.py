"""The demo: from end to end in a few steps, and conclusions that the numbers support."""

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lengthwise.cli.main import main
from lengthwise.paper.demo import EXPERIMENTS, conclusions

Capture = pytest.CaptureFixture[str]


def test_the_demo_from_end_to_end(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--smoke"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in EXPERIMENTS)
    assert (tmp_path / "runs" / "demo.png").stat().st_size > 10_000
    command = next(line for line in text.splitlines() if "solve runs/" in line)
    assert main(shlex.split(command)[1:]) == 0
    assert "999999 + 123456 = " in capsys.readouterr().out
    assert main(["demo", "--smoke"]) == 0
    assert "step" not in capsys.readouterr().err  # nothing is trained again


@pytest.mark.slow
def test_the_demo_shows_the_effects(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "lengthwise", "demo"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    text = " ".join(done.stdout.split())
    for effect in (
        "Only relative embeddings carry over",
        "A handful of long examples is enough",
        "Fine-tuning forgets",
    ):
        assert effect in text


def accuracies(**shares: float) -> dict[int, dict[str, float]]:
    return {
        int(length[1:]): {"exact_match": share, "low": share - 0.02, "high": share + 0.02}
        for length, share in shares.items()
    }


def test_the_demo_claims_only_what_the_numbers_support() -> None:
    effects: dict[str, Any] = {
        "sum, relative-key": accuracies(n5=0.9, n6=0.5),
        "sum, absolute": accuracies(n5=0.9, n6=0.0),
        "n×1, no priming": accuracies(n5=0.9, n10=0.0),
        "n×1, primed": accuracies(n5=0.9, n10=0.8),
        "n×1, fine-tuned": accuracies(n5=0.2, n10=0.8),
    }
    assert set(effects) == set(EXPERIMENTS)
    assert not any("Here that shows no" in sentence for sentence in conclusions(effects))
    none = dict.fromkeys(effects, accuracies(n5=0.5, n6=0.5, n10=0.5))
    assert all("Here that shows no" in sentence for sentence in conclusions(none))
