"""Our models equal Hugging Face's. `parity.py` runs in an environment with transformers 4.57.6."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pairwise import pairwise

from lengthwise import fast
from lengthwise.arithmetic.tasks import TASKS, Addition
from lengthwise.base import UsageError
from lengthwise.model import Encoder, ModelConfig
from lengthwise.problems.layouts import LAYOUTS, VOCABULARY, Coordinates
from lengthwise.solver import Solver
from lengthwise.solver.huggingface import (
    from_huggingface,
    model_config,
    read,
    to_huggingface,
    write,
)

ROOT = Path(__file__).parents[1]
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {"encoder": "transformer", "scale_relative": True},
    "albert": {"encoder": "universal-transformer", "scale_relative": False},
}
POSITIONS = ["absolute", "relative-key", "relative-key-query"]
TINY = {"layers": 2, "width": 16, "heads": 2, "position": "relative-key"}
LENGTH = 7
PAPER = LAYOUTS.parse("paper")
SIZES = {
    "small": "--width 96 --heads 3 --layers 2 --feedforward 200 --length 17 --n-out 9"
    " --embedding 40",
    "long": "--width 64 --heads 1 --layers 4 --feedforward 256 --length 41 --n-out 21"
    " --max-positions 41 --seed 1",
}


def make_encoder(**fields: Any) -> Encoder:
    encoder = Encoder(ModelConfig.model_validate({**TINY, **fields}), LENGTH)
    encoder.initialise(torch.Generator().manual_seed(0))
    return encoder.eval()


def make_batch(length: int = LENGTH) -> tuple[torch.Tensor, Coordinates[torch.Tensor]]:
    rng = torch.Generator().manual_seed(1)
    index = torch.arange(length)
    coordinates = Coordinates(index, index, index, index, index < 0, index * 0)
    return torch.randint(len(VOCABULARY), (3, length), generator=rng), coordinates


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of an environment with transformers 4.57.6 and this one's torch and lengthwise."""
    command: list[str | Path] = [sys.executable, ROOT / "bench" / "environment.py"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients_equal_hugging_faces(python: Path, family: str, size: str) -> None:
    positions = [position.replace("-", "_") for position in POSITIONS]
    options = ["--family", family, "--position", *positions, *SIZES[size].split()]
    single = {"logits", "gradients", "reverse", "files"}
    # Where the C code is available, it must not decline.
    if fast.decline_reason(make_encoder(), *make_batch()) is None:
        options.append("--require-c")
        single |= {"C logits", "C gradients"}
    command: list[str | Path] = [python, ROOT / "tests" / "parity.py", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["position"] for result in results] == positions
    for result in results:
        assert result["float32"].keys() == single
        assert result["float64"].keys() == {"logits", "gradients", "reverse"}
        assert max(result["float32"].values()) < 1e-5, result
        assert max(result["float64"].values()) < 1e-12, result
        assert result["control"] > 1e-3, "equality proves nothing where positions hardly matter"


@pytest.mark.parametrize(
    ("family", "position", "length"), pairwise(list(FAMILIES), POSITIONS, [LENGTH, LENGTH - 2])
)
def test_conversion_there_and_back(family: str, position: str, length: int) -> None:
    """For fewer tokens, tables keep the distances around 0 or the first positions."""
    encoder = make_encoder(**FAMILIES[family], position=position)
    tokens, coordinates = make_batch(length)
    expected = encoder(tokens, coordinates, 4)
    for saved_length in (LENGTH, length):
        config, state = to_huggingface(encoder, saved_length)
        bare = {name.removeprefix(f"{family}."): tensor for name, tensor in state.items()}
        for weights in (state, bare):
            again = from_huggingface(config, weights, length)
            torch.testing.assert_close(again(tokens, coordinates, 4), expected)


def test_converted_weights_share_no_memory() -> None:
    """Training one model leaves the other as it was."""
    encoder = make_encoder()
    config, state = to_huggingface(encoder, LENGTH)
    before = {name: tensor.clone() for name, tensor in state.items()}
    again = from_huggingface(config, state, LENGTH)
    with torch.no_grad():
        for parameter in [*encoder.parameters(), *again.parameters()]:
            parameter.add_(1)
    assert all(torch.equal(state[name], before[name]) for name in state)


def test_a_solver_survives_writing_and_reading(tmp_path: Path) -> None:
    solver = Solver(Addition(), 3, PAPER, ModelConfig.model_validate(TINY)).eval()
    write(solver, tmp_path)
    again = read(tmp_path, Addition(), 3, PAPER)
    problems = ["1+2", "999+1", "45+678"]
    for ours, theirs in zip(solver.explain(problems), again.explain(problems), strict=True):
        assert ours.symbols == theirs.symbols
        assert ours.confidences == pytest.approx(theirs.confidences)


def test_options_that_hugging_face_lacks_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"norm": "pre"}, "norm is pre, but only post can be converted"),
        ({"attention": {"kind": "full", "mask_padding": True}}, "attention is .*True"),
        ({"attention": {"kind": "local", "window": 3}}, "attention is .*local"),
        ({"depth": "until-stable"}, "depth is .*until-stable"),
        ({"position": "none"}, "position is none"),
        ({"position": {"kind": "relative-key", "clip": 3}}, "position is .*'clip': 3"),
        ({"embedding_width": 8, **FAMILIES["bert"]}, "embedding_width"),
        ({"encoder": "transformer"}, "scale_relative is False, but Hugging Face's BERT has True"),
        ({"scale_relative": True}, "scale_relative is True, but Hugging Face's ALBERT has False"),
    ]
    for fields, message in cases:
        with subtests.test(str(fields)), pytest.raises(UsageError, match=message):
            to_huggingface(make_encoder(**fields), LENGTH)


def test_configs_that_we_lack_are_refused(subtests: pytest.Subtests) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"model_type": "gpt2"}, "model_type is gpt2, but only bert or albert"),
        ({"vocab_size": 30000}, "vocab_size is 30000"),
        ({"num_hidden_groups": 2}, "num_hidden_groups is 2"),
        ({"inner_group_num": 2}, "inner_group_num is 2"),
        ({"hidden_act": "swish"}, "hidden_act is swish"),
        ({"position_embedding_type": "rotary"}, "position_embedding_type is rotary"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_attention_heads": 3}, "does not divide"),
    ]
    for changes, message in cases:
        with subtests.test(str(changes)):
            config, _ = to_huggingface(make_encoder(), LENGTH)
            with pytest.raises(UsageError, match=message):
                model_config({**config, **changes})


def test_weights_that_do_not_fit_are_named() -> None:
    config, state = to_huggingface(make_encoder(), LENGTH)
    missing = {name: state[name] for name in state if name != "classifier.weight"}
    with pytest.raises(UsageError, match=r"no tensor classifier\.weight"):
        from_huggingface(config, missing, LENGTH)
    with pytest.raises(UsageError, match=r"classifier\.bias has the shape \(2,\) instead of \(15,"):
        from_huggingface(config, {**state, "classifier.bias": torch.zeros(2)}, LENGTH)
    with pytest.raises(UsageError, match=r"max_position_embeddings is 7, .* 8 tokens"):
        from_huggingface(config, state, LENGTH + 1)
    with pytest.raises(UsageError, match="room for 7 tokens, not for 8"):
        to_huggingface(make_encoder(), LENGTH + 1)
    wider = Encoder(ModelConfig.model_validate(TINY), LENGTH, vocabulary=len(VOCABULARY) + 1)
    with pytest.raises(UsageError, match="vocab_size is 16"):
        to_huggingface(wider, LENGTH)


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    task = TASKS.parse("addition")
    assert isinstance(task, Addition)
    with pytest.raises(UsageError, match=r"config\.json"):
        read(tmp_path, task, 3, PAPER)
    write(Solver(task, 3, PAPER, ModelConfig.model_validate(TINY)), tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UsageError, match="is not a configuration of a model"):
        read(tmp_path, task, 3, PAPER)
