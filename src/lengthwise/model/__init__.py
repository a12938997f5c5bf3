"""The model in plain PyTorch: the code that you read is the code that runs."""

from lengthwise.base import import_modules
from lengthwise.model.config import PRESETS, ModelConfig
from lengthwise.model.encoder import Encoder
from lengthwise.model.local import LocalAttention, PositionalAttention

__all__ = ["PRESETS", "Encoder", "LocalAttention", "ModelConfig", "PositionalAttention"]

import_modules(__name__)
