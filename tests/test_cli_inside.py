"""The command line: `trace`, and `evaluate --grid`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from known import untrained
from test_cli import Capture, printed_json, refusal

import lengthwise
from lengthwise.cli.main import main
from lengthwise.evaluation.grid import evaluate_grid
from lengthwise.model.attention import FullAttention

PROBLEM = "999 + 1"


@pytest.fixture
def model(tmp_path: Path) -> str:
    untrained(digits=4).save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def test_trace_prints_answers_and_patterns(model: str, capsys: Capture) -> None:
    trace = lengthwise.load(model).trace(PROBLEM)
    assert main(["trace", model, PROBLEM]) == 0
    assert capsys.readouterr().out == trace.table() + "\n"
    assert main(["trace", model, PROBLEM, "--layer", "2", "--head", "1"]) == 0
    text = capsys.readouterr().out
    assert text.endswith(trace.table(2, 1) + "\n")
    weights = trace.select("patterns", problem=0, layer=2, head=1)[0]
    strongest = trace.tokens[0][weights.argmax()]
    line = next(line for line in text.splitlines() if line.startswith("0: 9 (x₁, 10^2)"))
    assert f" {strongest.index}: {strongest}" in line
    assert f" {100 * weights.max():.0f} %" in line
    assert main(["trace", model, PROBLEM, "--head", "2"]) == 0
    assert "layer 2, head 2" in capsys.readouterr().out


def test_trace_prints_answers_of_an_attention_without_patterns(
    model: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute_softmax(self: FullAttention, scores: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-1)

    solver = lengthwise.load(model)
    attention: Any = solver.encoder.layer(0).attention
    del attention.softmax
    monkeypatch.setattr(FullAttention, "softmax", compute_softmax, raising=False)
    monkeypatch.setattr("lengthwise.cli.trace.load_model", lambda chosen: solver)
    assert main(["trace", model, PROBLEM]) == 0
    assert capsys.readouterr().out.startswith(" ")
    assert "answer" in printed_json(capsys, "trace", model, PROBLEM)
    assert "'patterns' was not recorded" in refusal(capsys, "trace", model, PROBLEM, "--head", "1")


def test_trace_as_json(model: str, capsys: Capture) -> None:
    found = printed_json(capsys, "trace", model, PROBLEM)
    trace = lengthwise.load(model).trace(PROBLEM)
    assert found["pattern axes"] == ["layer", "head", "query", "key"]
    np.testing.assert_allclose(found["patterns"], trace.patterns[0], rtol=1e-6)
    assert [point["answer"] for point in found["points"]] == trace.answers[0]
    assert [token["significance"] for token in found["tokens"]][:3] == [2, 1, 0]
    one = printed_json(capsys, "trace", model, PROBLEM, "--layer", "2", "--head", "1")
    np.testing.assert_allclose(one["patterns"], trace.patterns[0, 1, 0], rtol=1e-6)
    assert (one["layer"], one["head"], one["pattern axes"]) == (2, 1, ["query", "key"])


@pytest.mark.parametrize("what", ["patterns", "scores", "answers"])
def test_trace_draws_figures(model: str, what: str, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / f"{what}.png"
    assert main(["trace", model, PROBLEM, "--what", what, "--out", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    trace = lengthwise.load(model).trace(PROBLEM)
    panels: list[Any] = [axis for axis in trace.plot(what=what).axes if axis.images]
    if what == "answers":
        shown = [text.get_text() for text in panels[0].texts]
        symbols = [trace.layout.vocabulary[s] for s in trace.symbols[0].flatten()]
        assert shown == symbols
        return
    assert [panel.get_title() for panel in panels] == [
        f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)
    ]
    expected: Any = trace[what][0]
    for panel, values in zip(panels, expected.reshape(4, 9, 9), strict=True):
        np.testing.assert_allclose(panel.images[0].get_array(), values)
        for axis in (panel.xaxis, panel.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            assert labels == ["9", "9", "9", "·", "+", "1", "·", "·", "·"]


def test_trace_saves_arrays(model: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(["trace", model, PROBLEM, "--save", str(tmp_path / "trace.npz")]) == 0
    with np.load(tmp_path / "trace.npz") as arrays:
        trace = lengthwise.load(model).trace(PROBLEM)
        assert set(arrays) == set(trace.arrays)
        np.testing.assert_allclose(arrays["residual"], trace.residual)


def test_a_grid_is_printed_and_drawn(model: str, tmp_path: Path, capsys: Capture) -> None:
    words = ["evaluate", model, "--grid", "1:3x2,4", "--examples", "20", "--seed", "3"]
    expected = evaluate_grid(lengthwise.load(model), [1, 2, 3], [2, 4], examples=20, seed=3)
    assert printed_json(capsys, *words) == json.loads(json.dumps(expected.to_json()))
    assert main([*words, "--out", str(tmp_path / "grid.png")]) == 0
    assert expected.table() in capsys.readouterr().out
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")


def test_bad_input_is_refused(model: str, capsys: Capture, subtests: pytest.Subtests) -> None:
    cases: list[tuple[str, str]] = [
        ("trace MODEL 12", "'12' is not a problem"),
        ("trace MODEL 1+2 --layer 3", "there is no layer 3; layer labels are from 1 to 2"),
        ("trace MODEL 1+2 --head 0", "argument --head: '0' is not an integer ≥ 1"),
        ("trace MODEL 1+2 --head 9", "there is no head 9"),
        ("trace MODEL 1+2 --what pattern --out x.png", "did you mean 'patterns'?"),
        ("trace MODEL 1+2 --out x.txt", "can't draw x.txt; figures end in .png, .pdf or .svg"),
        ("trace MODEL 1+2 --out nowhere/x.png", "can't read or write nowhere/x.png"),
        ("evaluate MODEL --grid 1:9", "length 5 does not fit"),
        ("evaluate MODEL --grid 1:2x", "--grid needs lengths behind the x"),
        ("evaluate MODEL --grid 1:2 --lengths 3", "--lengths does not go with --grid"),
        ("evaluate MODEL --grid 1:2 --digits", "--digits does not go with --grid"),
        ("evaluate MODEL --out x.png", "--out draws a grid, so it needs --grid"),
    ]
    for words, sentence in cases:
        with subtests.test(words):
            assert sentence in refusal(capsys, *words.replace("MODEL", model).split())
