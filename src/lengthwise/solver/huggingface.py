"""Weights and configurations to and from Hugging Face's BERT (own layers) and ALBERT (shared layers).

Equal are the outputs in evaluation and all gradients. In training, Hugging Face also drops out before the classifier,
and ALBERT doesn't after the feed-forward network. transformers 4.57.6 is the last with relative embeddings; it isn't
needed here, as a config is a mapping (config.json) and weights are tensors by name.
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

from lengthwise.errors import UsageError, explain
from lengthwise.layout import VOCABULARY
from lengthwise.model import HUGGING_FACE, Encoder, ModelConfig
from lengthwise.positions import POSITIONS, Position
from lengthwise.solver import Solver

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
ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}
KINDS = {"absolute": "absolute", "relative_key": "relative-key", "relative_key_query": "relative-key-query"}

TOKEN_TYPES, ABSOLUTE = "embeddings.token_type_embeddings.weight", "embeddings.position_embeddings.weight"
PROJECTION = "encoder.embedding_hidden_mapping_in"
OUTSIDE = {
    "symbols": "embeddings.word_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "project": PROJECTION,
    "classifier": "classifier",
}
LAYER = {"bert": "encoder.layer.{}.", "albert": "encoder.albert_layer_groups.0.albert_layers.0."}
INSIDE = {
    "bert": {
        "attention.qkv": ["attention.self.query", "attention.self.key", "attention.self.value"],
        "attention.output": ["attention.output.dense"],
        "attention_norm": ["attention.output.LayerNorm"],
        "widen": ["intermediate.dense"],
        "narrow": ["output.dense"],
        "feedforward_norm": ["output.LayerNorm"],
        "table": ["attention.self.distance_embedding"],
    },
    "albert": {
        "attention.qkv": ["attention.query", "attention.key", "attention.value"],
        "attention.output": ["attention.dense"],
        "attention_norm": ["attention.LayerNorm"],
        "widen": ["ffn"],
        "narrow": ["ffn_output"],
        "feedforward_norm": ["full_layer_layer_norm"],
        "table": ["attention.distance_embedding"],
    },
}


def model_config(config: Mapping[str, Any]) -> ModelConfig:
    """Our configuration of the model that a Hugging Face config describes."""
    single = {"num_hidden_groups": 1, "inner_group_num": 1, "is_decoder": False}
    given: dict[str, Any] = {"position_embedding_type": "absolute", **single, **config}
    _require(given, "model_type", LAYER)
    _require(given, "vocab_size", [len(VOCABULARY)])
    _require(given, "position_embedding_type", KINDS)
    _require(given, "hidden_act", ACTIVATIONS)
    for key, value in single.items():
        _require(given, key, [value])
    family = given["model_type"]
    fields = FAMILY_FIELDS[family]
    for key in ("max_position_embeddings", *fields.values()):
        if given.get(key) is None:
            raise UsageError(f"the Hugging Face config has no {key}")
    try:
        return ModelConfig(
            encoder=HUGGING_FACE[family]["encoder"],
            scale_relative=HUGGING_FACE[family]["scale_relative"],
            position=KINDS[given["position_embedding_type"]],
            activation=ACTIVATIONS[given["hidden_act"]],
            **{ours: given[theirs] for ours, theirs in fields.items()},
        )
    except ValidationError as error:
        raise UsageError(explain(error, " of the Hugging Face config")) from None


def from_huggingface(config: Mapping[str, Any], state_dict: Mapping[str, Tensor], max_length: int) -> Encoder:
    """An encoder for up to max_length tokens with the weights of a Bert- or AlbertForTokenClassification."""
    ours = model_config(config)
    family, positions = config["model_type"], config["max_position_embeddings"]
    if max_length > positions:
        raise UsageError(f"max_position_embeddings is {positions}, but {max_length} tokens are asked for")
    theirs = {name.removeprefix(f"{family}."): tensor.detach() for name, tensor in state_dict.items()}

    def take(name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in theirs:
            raise UsageError(f"the tensor {name} is missing from the Hugging Face weights")
        if theirs[name].shape != shape:
            raise UsageError(f"the tensor {name} has the shape {tuple(theirs[name].shape)} instead of {shape}")
        return theirs[name]

    with torch.device("meta"):  # shapes only
        whole, encoder = Encoder(ours, positions), Encoder(ours, max_length)
    tensors = {}
    for name, tensor in whole.state_dict().items():
        sources = _sources(name, ours, family)
        shape = (tensor.shape[0] // len(sources), *tensor.shape[1:])
        tensors[name] = torch.cat([take(source, shape) for source in sources])
    # Hugging Face adds the embedding of token type 0 to every symbol's; here it is part of them.
    symbols = tensors["symbols.weight"]
    symbols += take(TOKEN_TYPES, (config.get("type_vocab_size", 2), symbols.shape[1]))[0]
    encoder.load_state_dict(_cut(tensors, ours, max_length), assign=True)
    return encoder


def to_huggingface(encoder: Encoder, max_length: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and weights of a Bert- or AlbertForTokenClassification for up to max_length tokens."""
    ours = encoder.config
    family = next(name for name, fields in HUGGING_FACE.items() if fields["encoder"] == ours.encoder)
    _check_expressible(ours, family)
    _require({"vocab_size": encoder.symbols.num_embeddings}, "vocab_size", [len(VOCABULARY)])
    position = encoder.positions[0]
    assert isinstance(position, Position)
    if max_length > (room := position.shape.max_length):
        raise UsageError(f"the encoder has room for {room} tokens, but {max_length} are asked for")

    nulls = {"feedforward_width": 4 * ours.width, "init_std": 1 / math.sqrt(ours.width)}
    nulls |= {"embedding_width": ours.width, "attention_dropout": ours.dropout}
    fields = nulls | ours.model_dump(exclude_none=True)
    config = {
        "model_type": family,
        "architectures": [f"{family.capitalize()}ForTokenClassification"],
        **{theirs: fields[name] for name, theirs in FAMILY_FIELDS[family].items()},
        "hidden_act": next(theirs for theirs, name in ACTIVATIONS.items() if name == ours.activation),
        "position_embedding_type": next(theirs for theirs, kind in KINDS.items() if kind == ours.position.kind),
        "max_position_embeddings": max_length,
        "vocab_size": len(VOCABULARY),
        "id2label": dict(enumerate(VOCABULARY)),
        "label2id": {symbol: i for i, symbol in enumerate(VOCABULARY)},
        "type_vocab_size": 1,
        "pad_token_id": None,  # else its embedding isn't trained, but here <PAD> is an ordinary symbol
        "classifier_dropout" if family == "bert" else "classifier_dropout_prob": 0.0,
    }

    state: dict[str, Tensor] = {}
    for name, tensor in _cut(encoder.state_dict(), ours, max_length).items():
        sources = _sources(name, ours, family)
        state |= {source: part.clone() for source, part in zip(sources, tensor.chunk(len(sources)), strict=True)}
    like, width = encoder.symbols.weight.detach(), encoder.symbols.embedding_dim
    state[TOKEN_TYPES] = like.new_zeros(1, width)
    state.setdefault(ABSOLUTE, like.new_zeros(max_length, width))  # always there, unused if relative
    if family == "albert" and ours.embedding_width is None:  # ALBERT always projects
        state[f"{PROJECTION}.weight"], state[f"{PROJECTION}.bias"] = torch.eye(width).to(like), like.new_zeros(width)
    return config, {name if name.startswith("classifier.") else f"{family}.{name}": state[name] for name in state}


def read(directory: str | Path, task: Mapping[str, Any], digits: int, layout: Mapping[str, Any]) -> Solver:
    """A solver with the weights of a Hugging Face checkpoint, a directory with config.json and model.safetensors."""
    try:
        config = json.loads(Path(directory, "config.json").read_text())
        weights = load_file(Path(directory, "model.safetensors"))
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(f"{directory} has no config.json with model.safetensors: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{Path(directory, 'config.json')} is no configuration of a model")
    solver = Solver(task, digits, layout, model_config(config).model_dump(mode="json"))
    _require({"vocab_size": solver.encoder.symbols.num_embeddings}, "vocab_size", [len(VOCABULARY)])
    solver.encoder = from_huggingface(config, weights, solver.layout.length).float()
    return solver.eval()


def write(solver: Solver, directory: str | Path) -> None:
    """A Hugging Face checkpoint of the solver's encoder; task and layout aren't part of it."""
    config, weights = to_huggingface(solver.encoder, solver.layout.length)
    Path(directory).mkdir(parents=True, exist_ok=True)
    Path(directory, "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(weights, Path(directory, "model.safetensors"), metadata={"format": "pt"})


def _sources(ours: str, config: ModelConfig, family: str) -> list[str]:
    """The Hugging Face tensors, without the family's prefix, that are stacked in our parameter."""
    module, _, kind = ours.rpartition(".")
    if module in OUTSIDE:
        return [f"{OUTSIDE[module]}.{kind}"]
    if config.position.kind == "absolute" and module == "positions.0.table":
        return [ABSOLUTE]
    _, layer, inside = module.split(".", 2)
    return [f"{LAYER[family].format(layer)}{name}.{kind}" for name in INSIDE[family][inside]]


def _cut(tensors: Mapping[str, Tensor], config: ModelConfig, max_length: int) -> dict[str, Tensor]:
    """The weights with position tables for max_length tokens: the first positions, or the distances around 0."""

    def rows(table: Tensor) -> Tensor:
        if config.position.kind == "absolute":
            return table[:max_length].clone()
        middle = len(table) // 2
        return table[middle - max_length + 1 : middle + max_length].clone()

    return {name: rows(tensor) if name.endswith(".table.weight") else tensor for name, tensor in tensors.items()}


def _check_expressible(config: ModelConfig, family: str) -> None:
    _require({"position": config.position.kind}, "position", KINDS.values())
    for option in ("norm", "mask_padding", "content", "sink", "window", "recall", "patience"):
        _require(vars(config), option, [ModelConfig.model_fields[option].default])
    for option, default in POSITIONS.parse(config.position.kind).model_dump().items():
        _require(config.position.model_dump(), option, [default])
    if family == "bert" and config.embedding_width:
        raise UsageError("Hugging Face's BERT doesn't project embeddings, so embedding_width can't be converted")
    scaled = HUGGING_FACE[family]["scale_relative"]
    if config.position.kind != "absolute" and config.scale_relative != scaled:
        raise UsageError(f"Hugging Face's {family.upper()} has scale_relative={scaled}, and this model hasn't")


def _require(fields: Mapping[str, Any], key: str, allowed: Iterable[object]) -> None:
    if (value := fields.get(key)) not in (allowed := tuple(allowed)):
        raise UsageError(f"{key} is {value}, but only {' or '.join(map(str, allowed))} can be converted")
