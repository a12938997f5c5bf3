"""How problems are written as tokens, and every token's coordinates; one file for each layout."""

from lengthwise.base import import_modules
from lengthwise.problems.layouts.fitted import FittedLayout
from lengthwise.problems.layouts.grid import GridLayout
from lengthwise.problems.layouts.layout import (
    LAYOUTS,
    PAD,
    VOCABULARY,
    AnyLayout,
    Coordinate,
    Coordinates,
    Layout,
    TokenArray,
    WrittenField,
)
from lengthwise.problems.layouts.long_multiplication import (
    SUM,
    LongMultiplicationLayout,
    writes_rows,
)
from lengthwise.problems.layouts.paper import CompactLayout, PaperLayout
from lengthwise.problems.layouts.running_sums import RunningSumsLayout

__all__ = [
    "LAYOUTS",
    "PAD",
    "SUM",
    "VOCABULARY",
    "AnyLayout",
    "CompactLayout",
    "Coordinate",
    "Coordinates",
    "FittedLayout",
    "GridLayout",
    "Layout",
    "LongMultiplicationLayout",
    "PaperLayout",
    "RunningSumsLayout",
    "TokenArray",
    "WrittenField",
    "writes_rows",
]

import_modules(__name__)
