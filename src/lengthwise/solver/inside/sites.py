"""The places in a model that have a name, such as "layer 2 head 1".

A part's name stands for its output: a head's, an attention's or a feed-forward network's, before it
is added to the residual stream. "after …" is the residual stream behind that part.
"""

import re
from dataclasses import dataclass
from typing import Literal

from lengthwise.base import UsageError

Part = Literal["head", "attention", "feed-forward", "embedding", "after attention", "after layer"]
PATTERN = re.compile(
    r"(after )?layer ([1-9][0-9]*)(?: (attention|feed-forward|head ([1-9][0-9]*)))?"
)
EXAMPLES = (
    "'layer 2 head 1', 'layer 2 attention', 'layer 2 feed-forward', 'embedding',"
    " 'after layer 2 attention' or 'after layer 2'"
)


@dataclass(frozen=True)
class Site:
    """A named place; layers and heads are counted from 1, as people say them."""

    name: str
    part: Part
    layer: int = 0
    head: int = 0


def parse_site(name: str) -> Site:
    """The place of a name.

    >>> parse_site("layer 2 head 1")
    Site(name='layer 2 head 1', part='head', layer=2, head=1)
    >>> parse_site("after layer 2").part
    'after layer'
    """
    if name == "embedding":
        return Site(name, "embedding")
    found = PATTERN.fullmatch(name) if isinstance(name, str) else None
    after, layer, part, head = found.groups() if found else (None,) * 4
    parts: dict[tuple[bool, str | None], Part] = {
        (False, "attention"): "attention",
        (False, "feed-forward"): "feed-forward",
        (True, "attention"): "after attention",
        (True, "feed-forward"): "after layer",
        (True, None): "after layer",
    }
    if layer and head and not after:
        return Site(name, "head", int(layer), int(head))
    if layer and (bool(after), part) in parts:
        return Site(name, parts[bool(after), part], int(layer))
    raise UsageError(f"{name!r} is no place in a model; write {EXAMPLES}")


def point_names(layers: int) -> list[str]:
    """The points of the residual stream, in their order.

    >>> point_names(1)
    ['embedding', 'after layer 1 attention', 'after layer 1']
    """
    inner = [(f"after layer {i} attention", f"after layer {i}") for i in range(1, layers + 1)]
    return ["embedding", *(name for pair in inner for name in pair)]
