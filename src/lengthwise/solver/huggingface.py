"""Converts encoders to and from Hugging Face's BERT (own layers) and ALBERT (shared layers).

Logits in evaluation and all gradients are equal. Dropout differs: Hugging Face also drops out
before the classifier, and ALBERT does not drop out behind the feed-forward network. transformers
4.57.6 is the last version with relative embeddings. It is not needed here: a configuration is a
mapping (config.json), and weights are tensors by name.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lengthwise.arithmetic.tasks import Task
from lengthwise.base import Choice, UsageError, explain
from lengthwise.model import Encoder, ModelConfig
from lengthwise.model.config import HUGGING_FACE
from lengthwise.model.positions import POSITIONS
from lengthwise.problems.layouts import VOCABULARY
from lengthwise.solver.solver import Solver

FIELDS = {
    "layers": "num_hidden_layers",
    "width": "hidden_size",
    "heads": "num_attention_heads",
    "feedforward_width": "intermediate_size",
    "norm_epsilon": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "init_std": "initializer_range",
}
FAMILY_FIELDS = {"bert": FIELDS, "albert": {**FIELDS, "embedding_width": "embedding_size"}}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "relu": "relu",
}
POSITION_KINDS = {
    "absolute": "absolute",
    "relative_key": "relative-key",
    "relative_key_query": "relative-key-query",
}
# The options that are converted. Hugging Face's models have the defaults of all others.
CONVERTED = {*FIELDS, "preset", "encoder", "activation", "embedding_width", "scale_relative"}

TOKEN_TYPES = "embeddings.token_type_embeddings.weight"
ABSOLUTE = "embeddings.position_embeddings"
PROJECTION = "encoder.embedding_hidden_mapping_in"
OUTSIDE = {  # of the layers
    "symbols": "embeddings.word_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "project": PROJECTION,
    "classifier": "classifier",
}
LAYER = {"bert": "encoder.layer.{}.", "albert": "encoder.albert_layer_groups.0.albert_layers.0."}
INSIDE = {
    "bert": {
        "attention.query": "attention.self.query",
        "attention.key": "attention.self.key",
        "attention.value": "attention.self.value",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "widen": "intermediate.dense",
        "narrow": "output.dense",
        "feedforward_norm": "output.LayerNorm",
        "table": "attention.self.distance_embedding",
    },
    "albert": {
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.output": "attention.dense",
        "attention_norm": "attention.LayerNorm",
        "widen": "ffn",
        "narrow": "ffn_output",
        "feedforward_norm": "full_layer_layer_norm",
        "table": "attention.distance_embedding",
    },
}


def from_huggingface(
    config: Mapping[str, Any], state_dict: Mapping[str, Tensor], max_length: int
) -> Encoder:
    """An encoder with the weights of a Bert- or AlbertForTokenClassification."""
    ours = model_config(config)
    family, positions = config["model_type"], config["max_position_embeddings"]
    if max_length > positions:
        raise UsageError(
            f"max_position_embeddings is {positions}, which is too few for {max_length} tokens"
        )
    theirs = {name.removeprefix(f"{family}."): tensor for name, tensor in state_dict.items()}

    def take(name: str, shape: torch.Size) -> Tensor:
        if name not in theirs:
            raise UsageError(f"the Hugging Face weights have no tensor {name}")
        if theirs[name].shape != shape:
            found = tuple(theirs[name].shape)
            raise UsageError(f"the tensor {name} has the shape {found} instead of {tuple(shape)}")
        return theirs[name].detach().clone()

    with torch.device("meta"):  # shapes only
        whole, encoder = Encoder(ours, positions), Encoder(ours, max_length)
    tensors = {
        name: take(their_name(name, ours, family), tensor.shape)
        for name, tensor in whole.state_dict().items()
    }
    # Hugging Face adds the embedding of token type 0 to every symbol's.
    symbols = tensors["symbols.weight"]
    types = torch.Size([config.get("type_vocab_size", 2), symbols.shape[1]])
    symbols += take(TOKEN_TYPES, types)[0]
    encoder.load_state_dict(cut_tables(tensors, ours, max_length), assign=True)
    return encoder


def model_config(config: Mapping[str, Any]) -> ModelConfig:
    """The configuration of the model that a Hugging Face config describes."""
    expected = {"num_hidden_groups": 1, "inner_group_num": 1, "is_decoder": False}
    given = {"position_embedding_type": "absolute", **expected, **config}
    require(given, "model_type", LAYER)
    require(given, "vocab_size", [len(VOCABULARY)])
    require(given, "position_embedding_type", POSITION_KINDS)
    require(given, "hidden_act", ACTIVATIONS)
    for key, value in expected.items():
        require(given, key, [value])
    family = given["model_type"]
    fields = FAMILY_FIELDS[family]
    for key in ("max_position_embeddings", *fields.values()):
        if given.get(key) is None:
            raise UsageError(f"the Hugging Face config has no {key}")
    try:
        return ModelConfig(
            encoder=HUGGING_FACE[family]["encoder"],
            scale_relative=HUGGING_FACE[family]["scale_relative"],
            position=POSITIONS.parse(POSITION_KINDS[given["position_embedding_type"]]),
            activation=ACTIVATIONS[given["hidden_act"]],
            **{ours: given[theirs] for ours, theirs in fields.items()},
        )
    except ValidationError as error:
        raise UsageError(explain(error, " of the Hugging Face config")) from None


def to_huggingface(encoder: Encoder, max_length: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The config and the weights of a Bert- or AlbertForTokenClassification."""
    ours = encoder.config
    family = next(name for name, f in HUGGING_FACE.items() if f["encoder"] == ours.encoder)
    check_expressible(ours, family)
    require({"vocab_size": encoder.symbols.num_embeddings}, "vocab_size", [len(VOCABULARY)])
    if max_length > (room := encoder.position(0).shape.max_length):
        raise UsageError(f"the encoder has room for {room} tokens, not for {max_length}")

    like, width = encoder.symbols.weight.detach(), encoder.symbols.embedding_dim
    state = {
        their_name(name, ours, family): tensor.clone()
        for name, tensor in cut_tables(encoder.state_dict(), ours, max_length).items()
    }
    state[TOKEN_TYPES] = like.new_zeros(1, width)
    # Hugging Face has absolute embeddings even where it does not use them; ALBERT always projects.
    state.setdefault(f"{ABSOLUTE}.weight", like.new_zeros(max_length, width))
    if family == "albert" and ours.embedding_width is None:
        state[f"{PROJECTION}.weight"] = torch.eye(width).to(like)
        state[f"{PROJECTION}.bias"] = like.new_zeros(width)
    prefixes = {name: "" if name.startswith("classifier.") else f"{family}." for name in state}
    weights = {f"{prefixes[name]}{name}": tensor for name, tensor in state.items()}
    return huggingface_config(ours, family, max_length), weights


def huggingface_config(ours: ModelConfig, family: str, max_length: int) -> dict[str, Any]:
    derived = {
        "feedforward_width": 4 * ours.width,
        "init_std": 1 / math.sqrt(ours.width),
        "embedding_width": ours.width,
        "attention_dropout": ours.dropout,
    }
    fields = {**derived, **ours.model_dump(exclude_none=True)}
    classifier_dropout = {"bert": "classifier_dropout", "albert": "classifier_dropout_prob"}
    return {
        "model_type": family,
        "architectures": [f"{family.capitalize()}ForTokenClassification"],
        **{theirs: fields[name] for name, theirs in FAMILY_FIELDS[family].items()},
        "hidden_act": invert(ACTIVATIONS)[ours.activation],
        "position_embedding_type": invert(POSITION_KINDS)[ours.position.kind],
        "max_position_embeddings": max_length,
        "vocab_size": len(VOCABULARY),
        "id2label": dict(enumerate(VOCABULARY)),
        "label2id": {symbol: i for i, symbol in enumerate(VOCABULARY)},
        "type_vocab_size": 1,
        "pad_token_id": None,  # <PAD> is a symbol like others; a padding token would not be trained
        classifier_dropout[family]: 0.0,
    }


def read(directory: str | Path, task: Task, digits: int, layout: Choice) -> Solver:
    """A solver with the weights of a Hugging Face checkpoint: config.json and model.safetensors."""
    try:
        config = json.loads(Path(directory, "config.json").read_text())
        weights = load_file(Path(directory, "model.safetensors"))
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(
            f"{directory} has no config.json with model.safetensors: {error}"
        ) from None
    if not isinstance(config, dict):
        raise UsageError(f"{Path(directory, 'config.json')} is not a configuration of a model")
    solver = Solver(task, digits, layout, model_config(config))
    require({"vocab_size": len(solver.layout.vocabulary)}, "vocab_size", [len(VOCABULARY)])
    solver.encoder = from_huggingface(config, weights, solver.layout.length).float()
    return solver.eval()


def write(solver: Solver, directory: str | Path) -> None:
    """Save a solver's encoder as a Hugging Face checkpoint, which has no task and no layout."""
    config, weights = to_huggingface(solver.encoder, solver.layout.length)
    Path(directory).mkdir(parents=True, exist_ok=True)
    Path(directory, "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(weights, Path(directory, "model.safetensors"), metadata={"format": "pt"})


def their_name(name: str, config: ModelConfig, family: str) -> str:
    """Hugging Face's name of one of our tensors, without the family's prefix."""
    module, _, kind = name.rpartition(".")
    if module in OUTSIDE:
        return f"{OUTSIDE[module]}.{kind}"
    if config.position.kind == "absolute" and module == "positions.0.table":
        return f"{ABSOLUTE}.{kind}"
    _, layer, inside = module.split(".", 2)
    return f"{LAYER[family].format(layer)}{INSIDE[family][inside]}.{kind}"


def cut_tables(
    tensors: Mapping[str, Tensor], config: ModelConfig, max_length: int
) -> dict[str, Tensor]:
    """The weights with position tables for max_length tokens.

    A table keeps the first positions, or the distances around 0.
    """

    def rows(table: Tensor) -> Tensor:
        if config.position.kind == "absolute":
            return table[:max_length].clone()
        middle = len(table) // 2
        return table[middle - max_length + 1 : middle + max_length].clone()

    return {
        name: rows(tensor) if name.endswith(".table.weight") else tensor
        for name, tensor in tensors.items()
    }


def check_expressible(config: ModelConfig, family: str) -> None:
    """Raise a UsageError unless the family has a model of this configuration."""
    require({"position": config.position.kind}, "position", POSITION_KINDS.values())
    fields = config.model_dump()
    defaults = ModelConfig(position=POSITIONS.parse(config.position.kind)).model_dump()
    for option in fields:
        if option not in CONVERTED:
            require(fields, option, [defaults[option]])
    if family == "bert" and config.embedding_width:
        raise UsageError(
            "embedding_width can't be converted: Hugging Face's BERT does not project embeddings"
        )
    scaled = HUGGING_FACE[family]["scale_relative"]
    if config.position.kind != "absolute" and config.scale_relative != scaled:
        raise UsageError(
            f"scale_relative is {config.scale_relative}, but Hugging Face's {family.upper()} has"
            f" {scaled}"
        )


def require(fields: Mapping[str, Any], key: str, allowed: Iterable[object]) -> None:
    if (value := fields.get(key)) not in (allowed := tuple(allowed)):
        choices = " or ".join(map(str, allowed))
        raise UsageError(f"{key} is {value}, but only {choices} can be converted")


def invert(mapping: dict[str, str]) -> dict[str, str]:
    """The first key of each value."""
    return {value: key for key, value in reversed(mapping.items())}
