"""The demo: five runs, one table, one figure, and only conclusions that the numbers support."""

from pathlib import Path

import pytest

from lengthwise.paper.demo import EXPERIMENTS, conclusions, create_runs, demo


def test_the_demo_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, jobs=2, again=False, smoke=True)
    shown = capsys.readouterr().out
    assert all(name in shown for name in EXPERIMENTS)
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert '"999999999999999 + 1"' in shown
    demo(tmp_path, jobs=2, again=False, smoke=True)
    assert "step" not in capsys.readouterr().err  # nothing was trained again
    create_runs(tmp_path, again=True, smoke=True)
    assert not list(tmp_path.glob("*/result.json"))


def cells(**shares: float) -> dict[int, dict[str, float]]:
    return {
        int(n[1:]): {"exact_match": s, "low": s - 0.02, "high": s + 0.02} for n, s in shares.items()
    }


def test_the_demo_claims_only_what_the_numbers_support() -> None:
    effects = {
        "sum, relative-key": cells(n5=0.9, n6=0.5, n15=0.5),
        "sum, absolute": cells(n5=0.9, n6=0.0, n15=0.0),
        "n×1, no priming": cells(n5=0.9, n10=0.0),
        "n×1, primed": cells(n5=0.9, n10=0.8),
        "n×1, fine-tuned": cells(n5=0.2, n10=0.8),
    }
    assert not any("Here that shows no" in sentence for sentence in conclusions(effects))
    none = dict.fromkeys(effects, cells(n5=0.5, n6=0.5, n10=0.5, n15=0.5))
    assert all("Here that shows no" in sentence for sentence in conclusions(none))


@pytest.mark.slow
def test_the_demo_shows_the_effects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo(tmp_path, jobs=2, again=False, smoke=False)
    shown = " ".join(capsys.readouterr().out.split())
    for effect in (
        "Only relative embeddings carry over",
        "A handful of long examples is enough",
        "Fine-tuning forgets",
    ):
        assert effect in shown
