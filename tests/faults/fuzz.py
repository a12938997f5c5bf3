"""Absurd input: on the command line, in YAML, in Python and as problems. Each gets a sentence."""

import contextlib
import io
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from faults.outcome import Outcome
from lengthwise.base import UsageError
from lengthwise.cli.main import main
from lengthwise.problems.layouts import LAYOUTS, Layout
from lengthwise.solver.text import parse_problem
from lengthwise.training import api, keys, memory
from lengthwise.training.yaml import parse_yaml

SLOWEST = 1.0  # seconds of this process until an answer
ATOMS: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 5, 10**6, 10**12, 10**50, 10**99, 10**120, 10**5000),
    *(0.0, -0.5, 0.3, 1e-300, 1e308, float("inf"), float("nan"), 2 + 3j, b"\xff", object()),
    *("", " ", "x", "addition", "rope", "fitted", "local", "5:10", "35=50", "9" * 5000, "\0"),
    *("\ud800", "é", "1e3", "true", "2001-99-99", "a\nb", "'", "%s", "{}", "../..", "~", "nul"),
)
SCALARS = (
    *("2001-99-99", "2001-01-01", "!!int x", "!!float y", "!!bool z", "!!timestamp 1-1-1"),
    *("!!binary ==", "!!set {a, b}", "!!omap [a: 1]", "!!python/object:os.system x", "&a [*a]"),
    *("&a {b: *a}", "*a", "{<<: *a}", "[[[[", "{{{{", "}", "]", ": :", "? :", "- -", "%", "@", "`"),
    *("'", '"', '"\\ud800"', '"\\x00"', "|", ">", "9" * 5000, "1e999", "-.inf", ".nan", "0x10"),
    *("0o17", "1_000", "6:35", "{10: 5, 10: 6}", "{1: 2, 1.0: 3}", "{[1]: 2}", "{{a: 1}: 2}"),
    *("1000000000000", "null", "~", "yes", "off", "true", "", " ", "\t", "#", "\u2028"),
)
LARGE = ("{a: " * 500 + "}" * 500, "[" * 2000, "9" * 100_000, "a" * 100_000)
SYMBOLS = "0123456789+-×x*%= \t\n.,_/aé\ud800\u0660😀\0" + "１"
COMMANDS = ("train", "runs", "show", "solve", "evaluate", "stress", "resume", "list", "check")


def names() -> list[str]:
    known = [key.name for key in keys.all_keys()]
    sections = sorted({name.rpartition(".")[0] for name in known} - {""})
    return [
        *known,
        *sections,
        "bogus",
        "model.bogus",
        "task.kin",
        "",
        ".",
        "model..width",
        "a.b.c.d",
    ]


def structure(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(8)
    if kind == 0 and depth:
        return [structure(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind <= 2 and depth:
        pairs = range(rng.randrange(4))
        return {rng.choice(ATOMS[:30]): structure(rng, depth - 1) for _ in pairs}
    return rng.choice(ATOMS)


def scalar(rng: random.Random) -> str:
    return rng.choice(LARGE if rng.random() < 0.005 else SCALARS)


def mutate(text: str, rng: random.Random) -> str:
    """Text with some characters removed, doubled or replaced."""
    characters = list(text)
    for _ in range(rng.randrange(4)):
        if characters:
            place = rng.randrange(len(characters))
            characters[place] = rng.choice(["", characters[place] * 2, chr(rng.randrange(0x300))])
    return "".join(characters)


def fuzz_python(count: int, seed: int) -> Outcome:
    rng, known = random.Random(seed), names()

    def attempt() -> Any:
        fields = {rng.choice(known): structure(rng) for _ in range(rng.randrange(1, 4))}
        return lambda: check_size(fields), fields

    return fuzz("mappings in Python", count, attempt)


def check_size(fields: Any) -> None:
    memory.check_training(keys.parse(fields))


def fuzz_yaml(count: int, seed: int) -> Outcome:
    rng, known = random.Random(seed), names()

    def attempt() -> Any:
        lines = []
        for _ in range(rng.randrange(1, 4)):
            value = mutate(scalar(rng), rng)
            lines.append(f"{rng.choice(known)}: {value}")
        text = mutate("\n".join(lines), rng)
        content = text.encode(errors="surrogatepass")
        return lambda: check_size(parse_yaml(content, "it")), content

    return fuzz("YAML files", count, attempt)


def fuzz_words(count: int, seed: int) -> Outcome:
    rng, known = random.Random(seed), names()

    def attempt() -> Any:
        words = []
        for _ in range(rng.randrange(1, 4)):
            words.append(mutate(f"--{rng.choice(known)}", rng))
            words.append(mutate(scalar(rng), rng))
        return lambda: check_size(keys.nest({}, keys.parse_overrides(words))), words

    return fuzz("words of a command line", count, attempt)


def fuzz_problems(count: int, seed: int) -> Outcome:
    rng = random.Random(seed)
    layouts: list[Layout] = [
        LAYOUTS.build(e.layout, e.task, e.data.test_digits)
        for e in (
            keys.load(None, {"task": task, "layout": layout})
            for task, layout in (("addition", "paper"), ("multiplication", "fitted"))
        )
    ]

    def attempt() -> Any:
        size = rng.choice([1, 3, 8, 20, 20, 200, 50_000] if rng.random() < 0.01 else [1, 4, 9, 20])
        text: Any = "".join(rng.choice(SYMBOLS) for _ in range(size))
        if rng.random() < 0.3:
            text = f"{rng.randrange(10**6)}{rng.choice('+×x*% ')}{rng.randrange(10**6)}{text}"
        if rng.random() < 0.002:
            text = rng.choice(["1+1" + " " * 50_000 + "x", "1" * 50_000 + "x", "1+" * 25_000])
        if rng.random() < 0.02:
            text = structure(rng)
        return lambda: parse_problem(text, rng.choice(layouts)), text

    return fuzz("problem texts", count, attempt)


def fuzz_commands(count: int, seed: int, root: str) -> Outcome:
    """Whole command lines, of which none gets as far as training."""
    rng, known, create = random.Random(seed), names(), api.create_run

    def refuse(experiment: Any, *_: Any) -> Any:
        memory.check_training(experiment)
        raise UsageError("this would be trained")

    def attempt() -> Any:
        command = rng.choice(COMMANDS)
        words = [command, *(mutate(scalar(rng), rng) for _ in range(rng.randrange(4)))]
        if rng.random() < 0.6:
            words += [f"--{rng.choice([*known, 'layers', 'threads', 'json', 'runs'])}"]
            words += [scalar(rng)]
        words += ["--runs", root]
        words = [w for w in words if "/" not in w or w == root]  # which may name a model on the Hub
        return lambda: command_line(words), words

    api.create_run = refuse  # type: ignore[assignment]
    try:
        return fuzz("command lines", count, attempt)
    finally:
        api.create_run = create


def command_line(words: Sequence[str]) -> None:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            code: Any = main(list(words))
        except SystemExit as stop:
            code = stop.code
    said = errors.getvalue()
    if code not in (0, 2) or (code == 2 and (said.count("\n") != 1 or "Traceback" in said)):
        raise AssertionError(f"exit code {code}: {said[-500:]}")


def fuzz(
    name: str, count: int, attempt: Callable[[], tuple[Callable[[], object], object]]
) -> Outcome:
    """Try inputs; each must be taken, or refused by a `UsageError` of one line, and soon."""
    outcome = Outcome(f"absurd input: {name}")
    for _ in range(count):
        act, given = attempt()
        started, failure = time.process_time(), None
        try:
            act()
        except UsageError as error:
            if "\n" in str(error) or not str(error):
                failure = f"not one sentence: {error}"
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        seconds = time.process_time() - started
        if failure is None and seconds > SLOWEST:
            failure = f"it took {seconds:.1f} s"
        outcome.add(failure and f"{shown(given)}: {failure[:300]}")
    return outcome


def shown(given: object) -> str:
    try:
        return repr(given)[:300]
    except ValueError:
        return "a large integer"
