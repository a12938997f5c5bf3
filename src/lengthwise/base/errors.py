"""The one exception for bad input: a message of one sentence."""

from collections.abc import Iterable
from difflib import get_close_matches

from pydantic import ValidationError

LONGEST_SENTENCE, LONGEST_VALUE, LONGEST_PROBLEM = 2000, 200, 40  # characters
NOT_IMPORTED = "code that is not imported (--import FILE)"  # why a run or a model can't be read


class UsageError(ValueError):
    """The user asked for something impossible; the message says what and why in one sentence."""

    def __init__(self, sentence: str):
        printable = sentence.encode(errors="backslashreplace").decode()  # without surrogates
        super().__init__(shorten(" ".join(printable.split()), LONGEST_SENTENCE))


def shorten(text: str, longest: int = LONGEST_PROBLEM) -> str:
    """Long text with its middle left out."""
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"


def show(value: object) -> str:
    """A value in a sentence, whatever its size."""
    try:
        return shorten(repr(value), LONGEST_VALUE)
    except (ValueError, RecursionError):  # Python writes no integers of more than 4300 digits
        return f"too large to be shown (type {type(value).__name__})"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: the nearest known one if one is close, else all of them."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}."


def explain(error: ValidationError, of: str = "") -> str:
    """The first problem that pydantic found, as one sentence."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UsageError):
        return str(cause)
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}{of} is {show(first['input'])}, but {first['msg'][0].lower()}{first['msg'][1:]}"
