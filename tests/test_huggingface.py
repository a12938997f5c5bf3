"""Our models equal Hugging Face's: tests/parity.py is run in an environment of its own with transformers 4.57.6."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lengthwise.errors import UsageError
from lengthwise.huggingface import from_huggingface, model_config, read, to_huggingface, write
from lengthwise.layout import VOCABULARY, Coordinates
from lengthwise.model import Encoder, ModelConfig
from lengthwise.solver import Solver

ROOT = Path(__file__).parents[1]
FAMILIES = {
    "bert": {"encoder": "transformer", "scale_relative": True},
    "albert": {"encoder": "universal-transformer", "scale_relative": False},
}
TINY = {"layers": 2, "width": 16, "heads": 2, "position": "relative-key"}
LENGTH = 7


@pytest.fixture(scope="session")
def python() -> Path:
    """The Python of an environment with transformers 4.57.6; torch and lengthwise are those of this one."""
    made = subprocess.run([sys.executable, ROOT / "bench" / "environment.py"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


SIZES = {
    "small": "--width 96 --heads 3 --layers 2 --feedforward 200 --length 17 --n-out 9 --embedding 40",
    "long": "--width 64 --heads 1 --layers 4 --feedforward 256 --length 41 --n-out 21 --max-positions 41 --seed 1",
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_hugging_face(python: Path, family: str, size: str) -> None:
    positions = ["absolute", "relative_key", "relative_key_query"]
    command = [python, ROOT / "tests" / "parity.py", "--family", family, "--position", *positions, *SIZES[size].split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["position"] for result in results] == positions
    for result in results:
        assert result["float32"].keys() == {"logits", "gradients", "reverse", "files"}
        assert result["float64"].keys() == {"logits", "gradients", "reverse"}
        assert max(result["float32"].values()) < 1e-5, result
        assert max(result["float64"].values()) < 1e-12, result
        assert result["control"] > 1e-3, "positions hardly matter to these weights, so equality would prove nothing"


def encoder_of(**fields: object) -> Encoder:
    encoder = Encoder(ModelConfig.model_validate(TINY | fields), LENGTH)
    encoder.initialise(torch.Generator().manual_seed(0))
    return encoder.eval()


def logits(encoder: Encoder, length: int = LENGTH) -> torch.Tensor:
    tokens = torch.randint(len(VOCABULARY), (3, length), generator=torch.Generator().manual_seed(1))
    index = torch.arange(length)
    return encoder(tokens, Coordinates(index, index, index, index, index < 0, index * 0), 4)


@pytest.mark.parametrize("length", [LENGTH, LENGTH - 2])
@pytest.mark.parametrize("position", ["absolute", "relative-key", "relative-key-query"])
@pytest.mark.parametrize("family", FAMILIES)
def test_there_and_back(family: str, position: str, length: int) -> None:
    """Also for fewer tokens, from the middle of the distances or the first of the positions."""
    encoder = encoder_of(**FAMILIES[family], position=position)
    for written in (LENGTH, length):
        config, state = to_huggingface(encoder, written)
        without_prefix = {name.removeprefix(f"{family}."): tensor for name, tensor in state.items()}
        for weights in (state, without_prefix):
            again = from_huggingface(config, weights, length)
            torch.testing.assert_close(logits(again, length), logits(encoder, length))


def test_solver_there_and_back(tmp_path: Path) -> None:
    solver = Solver({"kind": "addition"}, 3, {}, TINY).eval()
    write(solver, tmp_path)
    again = read(tmp_path, {"kind": "addition"}, 3, {})
    problems = ["1+2", "999+1", "45+678"]
    ours, theirs = solver.explain(problems), again.explain(problems)
    assert [s.symbols for s in ours] == [s.symbols for s in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one.confidences == pytest.approx(other.confidences)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"norm": "pre"}, "norm is pre"),
        ({"mask_padding": True}, "mask_padding is True"),
        ({"window": 3}, "window is 3"),
        ({"recall": True}, "recall is True"),
        ({"sink": True}, "sink is True"),
        ({"patience": 2, "encoder": "universal-transformer"}, "patience is 2"),
        ({"content": False}, "content is False"),
        ({"position": "none"}, "position is none"),
        ({"position": {"kind": "relative-key", "clip": 3}}, "clip is 3"),
        ({"position": {"kind": "relative-key", "coordinate": "significance"}}, "coordinate is significance"),
        ({"encoder": "transformer", "scale_relative": True, "embedding_width": 8}, "embedding_width"),
        ({"encoder": "transformer"}, "BERT has scale_relative=True"),
        ({"scale_relative": True}, "ALBERT has scale_relative=False"),
    ],
)
def test_what_hugging_face_cannot_express(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        to_huggingface(encoder_of(**fields), LENGTH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "model_type is gpt2"),
        ({"vocab_size": 30000}, "vocab_size is 30000"),
        ({"num_hidden_groups": 2}, "num_hidden_groups is 2"),
        ({"inner_group_num": 2}, "inner_group_num is 2"),
        ({"hidden_act": "swish"}, "hidden_act is swish"),
        ({"position_embedding_type": "rotary"}, "position_embedding_type is rotary"),
        ({"is_decoder": True}, "is_decoder is True"),
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_attention_heads": 3}, "divisible"),
    ],
)
def test_what_we_cannot_express(changes: dict[str, object], message: str) -> None:
    config, _ = to_huggingface(encoder_of(), LENGTH)
    with pytest.raises(UsageError, match=message):
        model_config(config | changes)


def test_missing_and_misshapen_weights() -> None:
    config, state = to_huggingface(encoder_of(), LENGTH)
    with pytest.raises(UsageError, match=r"classifier\.weight is missing"):
        from_huggingface(config, {name: state[name] for name in state if name != "classifier.weight"}, LENGTH)
    with pytest.raises(UsageError, match=r"classifier\.bias has the shape \(2,\) instead of \(15,\)"):
        from_huggingface(config, state | {"classifier.bias": torch.zeros(2)}, LENGTH)
    with pytest.raises(UsageError, match="max_position_embeddings is 7, but 8"):
        from_huggingface(config, state, LENGTH + 1)
    with pytest.raises(UsageError, match="room for 7 tokens, but 8"):
        to_huggingface(encoder_of(), LENGTH + 1)


def test_a_symbol_more() -> None:
    encoder = Encoder(ModelConfig.model_validate(TINY), LENGTH, vocabulary=len(VOCABULARY) + 1)
    with pytest.raises(UsageError, match="vocab_size is 16"):
        to_huggingface(encoder, LENGTH)


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"config\.json"):
        read(tmp_path, {"kind": "addition"}, 3, {})


def test_a_checkpoint_whose_config_is_none(tmp_path: Path) -> None:
    solver = Solver({"kind": "addition"}, 3, {}, TINY)
    write(solver, tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UsageError, match="is no configuration of a model"):
        read(tmp_path, {"kind": "addition"}, 3, {})
