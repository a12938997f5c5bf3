"""What every other package needs: errors in one sentence, registered choices, random generators."""

from lengthwise.base.choices import Choice, Config, Registry
from lengthwise.base.errors import UsageError, explain, nearest, show
from lengthwise.base.extensions import import_modules
from lengthwise.base.random import generator

__all__ = [
    "Choice",
    "Config",
    "Registry",
    "UsageError",
    "explain",
    "generator",
    "import_modules",
    "nearest",
    "show",
]
