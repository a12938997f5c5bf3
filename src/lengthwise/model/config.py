"""The configuration of the encoder, and its presets."""

from typing import Any, Literal

from pydantic import Field, model_validator

from lengthwise.base import Config, UsageError, nearest
from lengthwise.model.attention import AnyAttention
from lengthwise.model.depth import AnyDepth
from lengthwise.model.positions import AnyPosition

SIZES = {
    "base": {"layers": 6, "width": 512, "heads": 8},
    "standard": {"layers": 6, "width": 1024, "heads": 16},
    "large": {"layers": 10, "width": 1024, "heads": 16},
}
HUGGING_FACE = {
    "bert": {
        "encoder": "transformer",
        "feedforward_width": 3072,
        "activation": "gelu",
        "dropout": 0.1,
        "scale_relative": True,
    },
    "albert": {
        "encoder": "universal-transformer",
        "embedding_width": 128,
        "feedforward_width": 16384,
        "activation": "gelu-tanh",
        "dropout": 0.0,
        "scale_relative": False,
    },
}
# A preset fills the fields that are not given. tiny, small and cpu are for CPUs; base, standard and
# large are the paper's sizes; bert-… and albert-… are those with Hugging Face's defaults otherwise.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 32, "heads": 2},
    "small": {"layers": 4, "width": 64, "heads": 2},
    "cpu": {"layers": 4, "width": 128, "heads": 4},
    **SIZES,
    **{
        f"{family}-{size}": {**dimensions, **defaults, "init_std": 0.02}
        for family, defaults in HUGGING_FACE.items()
        for size, dimensions in SIZES.items()
    },
}


class ModelConfig(Config):
    """The encoder. The defaults are those of the preset `cpu`."""

    preset: str | None = Field(
        None, description="fills fields that are not given (`lengthwise list presets`)"
    )
    encoder: Literal["transformer", "universal-transformer"] = Field(
        "universal-transformer", description="layers with weights of their own, or shared ones"
    )
    layers: int = Field(4, ge=1, description="how many layers are applied (D)")
    width: int = Field(128, ge=1, description="width of the hidden vectors (d_model)")
    heads: int = Field(4, ge=1, description="attention heads (h)")
    position: AnyPosition = Field("relative-key", validate_default=True)
    attention: AnyAttention = Field("full", validate_default=True)
    depth: AnyDepth = Field("fixed", validate_default=True)
    feedforward_width: int | None = Field(None, ge=1, description="null: 4·width")
    embedding_width: int | None = Field(
        None,
        ge=1,
        description="of input embeddings, then projected (ALBERT); null: width",
    )
    activation: Literal["relu", "gelu", "gelu-tanh"] = Field(
        "relu", description="of the feed-forward network"
    )
    norm: Literal["post", "pre"] = Field(
        "post", description="layer norm after each sublayer, or before it"
    )
    norm_epsilon: float = Field(1e-12, gt=0, description="of the layer norms")
    dropout: float = Field(0.0, ge=0, lt=1, description="of hidden vectors")
    attention_dropout: float | None = Field(None, ge=0, lt=1, description="null: as dropout")
    init_std: float | None = Field(
        None, gt=0, description="deviation of initial weights; null: 1/√width"
    )
    scale_relative: bool = Field(
        False, description="divide relative terms by √d like the scores, as BERT does"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or fields.get("preset") is None:
            return fields
        preset = fields["preset"]
        if not isinstance(preset, str) or preset not in PRESETS:
            raise UsageError(f"there is no preset '{preset}': {nearest(str(preset), PRESETS)}")
        return {**PRESETS[preset], **fields}

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if self.width % self.heads:
            raise UsageError(
                f"model.width is {self.width}, which model.heads, {self.heads}, does not divide"
            )
        self.attention.check(self)
        self.depth.check(self)
        return self
