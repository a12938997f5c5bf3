"""Requests of all kinds of nonsense, from almost right to random bytes."""

import json
import random
from collections.abc import Iterator
from typing import Any

GETS = ("/api/runs", "/api/run?run=sum", "/api/run?run=", "/api/choices", "/", "/main.js")
POSTS = ("ask", "attention", "break", "measure", "grid", "preview", "stop", "resume")
FIELDS: dict[str, list[Any]] = {
    "run": ["sum", "other", "rewriting", "none", "../sum", "", "a" * 300, "\x00", 7, None],
    "problem": ["1 + 2", "99999 + 1", "1 ×", "", "9" * 5000, "💥", "1 + 2\n", "0x1", 3, [], None],
    "case": ["random", "zero", "all carries", "none", "", 1],
    "length": [1, 5, 10, 11, 0, -1, 10**30, 2.5, "5", True, None],
    "longest": [4, 10, 0, 10**6],
    "iteration": [1, 2, 99, 0, -1, "x"],
    "first": [0, 3, -1, 10**9],
    "last": [4, 10, 2, -5, 10**9],
    "examples": [1, 3, 0, 10**9],
    "row": [0, 1, 50],
    "seed": [0, 1, -1],
    "steps": [1, 0, 10**9],
    "position": ["absolute", "none", "", "x" * 100],
    "train_digits": [5, 0, 99],
}
PATHS = (
    "/api/ask/",
    "/api",
    "/api/../api/runs",
    "//api/ask",
    "/%00",
    "/index.html%00.js",
    "/a" * 99,
)
Request = tuple[str, str, bytes, dict[str, str]]


def fuzz_requests(rng: random.Random, count: int) -> Iterator[Request]:
    """Method, path, body and headers of each request."""
    for _ in range(count):
        kind = rng.random()
        if kind < 0.1:
            yield rng.choice(["GET", "HEAD", "PUT", "DELETE"]), rng.choice([*GETS, *PATHS]), b"", {}
            continue
        path, body = f"/api/{rng.choice(POSTS)}", fuzz_body(rng)
        headers = {"content-type": rng.choice(["application/json"] * 9 + ["text/plain"])}
        if rng.random() < 0.05:
            headers["origin"] = rng.choice(["http://evil.example", "null", "http://127.0.0.1:1"])
        yield "POST", path, body, headers


def fuzz_body(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.15:
        return rng.randbytes(rng.randrange(200))
    chosen = rng.sample(sorted(FIELDS), rng.randrange(1, 7))
    fields = {name: rng.choice(FIELDS[name]) for name in {*chosen, "run", "problem"}}
    if kind < 0.5:  # what the schemas ask for, and no more
        fields = {"run": rng.choice(FIELDS["run"]), "problem": rng.choice(FIELDS["problem"])}
    text = json.dumps(fields)
    if kind > 0.9:
        cut = rng.randrange(len(text))
        text = text[:cut] + rng.choice(["", "\x00", "}", '"', "[" * 50]) + text[cut:]
    return text.encode(errors="replace")
