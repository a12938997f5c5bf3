"""The one exception that is the user's business: bad input, told in one sentence."""

from collections.abc import Iterable
from difflib import get_close_matches

from pydantic import ValidationError

NOT_IMPORTED = "code that isn't imported (--import FILE)"  # why a run or a model can't be read


class UsageError(ValueError):
    """Something the user asked for can't be done; the message is one sentence that says what and why."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: the nearest known one if there is one, else all of them."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}."


def explain(error: ValidationError, of: str = "") -> str:
    """What is wrong with a configuration, in one sentence: the first problem that pydantic found."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return str(cause)
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}{of} is {first['input']!r}, but {first['msg'][0].lower()}{first['msg'][1:]}"
