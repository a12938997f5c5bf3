"""Verifies a claim about any model: fresh problems, limits, and a report with a digest."""

import hashlib
import json
import os
import platform
import secrets
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise import __version__
from lengthwise.base import UsageError
from lengthwise.base.errors import shorten
from lengthwise.base.extensions import VARIABLE
from lengthwise.evaluation.accuracy import wilson
from lengthwise.frontier import answering, claims, sandbox
from lengthwise.frontier.answering import UNCHANGED
from lengthwise.frontier.claims import LengthClaim, Problem
from lengthwise.frontier.sandbox import Limits
from lengthwise.training.experiment import CONFIG
from lengthwise.training.runs import Run

Json = dict[str, Any]
FORMAT = 1
COMMAND = "command:"
PROBES = {  # in the order of the damage that they do
    "tiny noise": "each weight changed by a millionth: a network gives the same answers",
    "noise of 10 %": "each weight changed by a tenth: a network may fail",
    "shuffled": "the weights of each tensor in another order: a network fails",
    "zeroed": "all weights zero: a network fails",
}
PROBE_PROBLEMS = 40
MOST_RIGHT_WITHOUT_WEIGHTS = 0.5  # more right answers than this don't come from the weights
LEAST_RIGHT_WITH_NOISE = 0.5  # of those that were right without it
MOST_FAILURES = 3
UNVERIFIED = "unverified: right, but nothing shows that a network answers"
UNREAD = "unread: right, and the weights matter, but the file's own code is for people to read"
ANSWER_BYTES = 4  # that a model may write for each character of the problems


@dataclass(frozen=True)
class Subject:
    """The model that a claim is about."""

    source: str
    kind: str  # run, file or command
    name: str  # in reports: of a local model, its directory or file alone
    digest: str  # of its files, taken before the problems are drawn
    trained: str  # what it was trained on, as declared


def find_subject(source: str, declared: str | None) -> Subject:
    """A model by its path, its Hub id, or its command; its files are hashed."""
    if source.startswith(COMMAND):
        words = shlex.split(source.removeprefix(COMMAND))
        if not words:
            raise UsageError(f"'{source}' names no command, such as command:./solver --fast")
        files = [Path(word) for word in words if Path(word).is_file()]
        return Subject(source, "command", source, digest_files(files), declared or "not declared")
    path = Path(source)
    if path.suffix == ".py":
        if not path.is_file():
            raise UsageError(f"there is no Python file {path}")
        digest = digest_files([path])
        return Subject(str(path.resolve()), "file", path.name, digest, declared or "not declared")
    files = sorted(p for p in path.rglob("*") if p.suffix in (".safetensors", ".yaml", ".json"))
    kept = [p for p in files if p.name not in ("record.json", "environment.json")]
    own = describe_run(path) if (path / CONFIG).is_file() else "not declared"
    if not kept:
        return Subject(source, "run", source, "on the Hub", declared or own)
    return Subject(source, "run", path.absolute().name, digest_files(kept), declared or own)


def digest_files(files: Sequence[Path]) -> str:
    parts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def describe_run(path: Path) -> str:
    experiment = Run(path).experiment
    digits = "×".join(map(str, experiment.task.operand_digits(experiment.data.longest)))
    examples = experiment.steps * experiment.training.batch_size
    return f"{examples:,} problems of {experiment.task.kind} with up to {digits} digits"


def check_against_run(subject: Subject, claim: LengthClaim) -> None:
    """A run's own configuration must not contradict the claim."""
    path = Path(subject.source)
    if subject.kind != "run" or not (path / CONFIG).is_file():
        return
    experiment = Run(path).experiment
    if experiment.task.kind != claim.task:
        raise UsageError(f"{path} was trained for {experiment.task.kind}, not for {claim.task}")
    digits = experiment.task.operand_digits(experiment.data.longest)
    if any(seen > said for seen, said in zip(digits, claim.trained, strict=False)):
        longest = "×".join(map(str, digits))
        raise UsageError(f"{path} was trained on {longest} digits, more than the claim says")


def verify(
    source: str,
    claim: LengthClaim,
    seed: int | None = None,
    problems: int = 100,
    stress: int = 3,
    limits: Limits | None = None,
    declared: str | None = None,
) -> Json:
    """Test a claim, and return the report, to which `seal` adds a digest."""
    subject = find_subject(source, declared)
    check_against_run(subject, claim)
    limits = limits or Limits(600, 4000)
    drawn = seed is None
    seed = secrets.randbits(48) if seed is None else seed
    tests, facts = [], {"parameters": None}
    for digits in claim.lengths():
        asked = claims.draw_problems(claim, digits, problems, stress, seed)
        length = write_digits(claim, digits)
        print(f"{len(asked)} problems of {length} digits", file=sys.stderr, flush=True)
        answers, ending, told = ask(subject, [p.text for p in asked], limits)
        facts |= told
        tests.append(judge(asked, answers[UNCHANGED], ending, length))
    outside = probe(subject, claim, seed, limits, tests[0]["right"] / tests[0]["problems"])
    errors = sum(test["problems"] - test["right"] for test in tests)
    worst = min((case for test in tests for case in test["cases"]), key=lambda c: c["share"])
    held = all(case["share"] >= claim.share for test in tests for case in test["cases"])
    return {
        "format": FORMAT,
        "claim": claim.text,
        "task": claim.task,
        "trained digits": list(claim.trained),
        "tested digits": list(claim.tested),
        "share": claim.share,
        "model": {
            "source": subject.name,
            "kind": subject.kind,
            "sha256": subject.digest,
            "parameters": facts["parameters"],
            "parameters counted": "by the verifier" if facts["parameters"] else "not checkable",
            "trained on, as declared": subject.trained,
        },
        "verdict": decide(held, outside["verdict"], subject.kind),
        "errors": errors,
        "problems": sum(test["problems"] for test in tests),
        "worst case": worst,
        "arithmetic outside of the network": outside,
        "tests": tests,
        "seed": seed,
        "seed drawn after the model was fixed": drawn,
        "limits": {"seconds a length": limits.seconds, "megabytes": limits.megabytes},
        "made by": f"lengthwise {__version__}, Python {platform.python_version()}",
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def decide(held: bool, outside: str, kind: str) -> str:
    if not held:
        return "refuted"
    if outside == "yes":
        return "refuted: the answers don't come from the network"
    if outside != "no sign of it":
        return UNVERIFIED
    return UNREAD if kind == "file" else "holds"


def write_digits(claim: LengthClaim, digits: Sequence[int]) -> str:
    return f"{digits[0]}" if claim.task == "addition" else f"{digits[0]}×{digits[1]}"


def ask(
    subject: Subject,
    problems: Sequence[str],
    limits: Limits,
    probes: Sequence[str] = (UNCHANGED,),
) -> tuple[dict[str, list[str | None]], sandbox.Ending, Json]:
    """A model's answers by probe, from a process of its own, as far as it got."""
    characters = len(probes) * sum(map(len, problems))
    largest = sandbox.LARGEST_FILE + ANSWER_BYTES * characters
    with tempfile.TemporaryDirectory(
        prefix="lengthwise-verify-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        if subject.kind == "command":
            said, ending = ask_command(subject, problems, limits, folder, largest)
            return {UNCHANGED: said}, ending, {}
        job = {
            "kind": subject.kind,
            "source": subject.source,
            "second digits": max(len(problem.split()[2]) for problem in problems),
            "problems": list(problems),
            "probes": list(probes),
            "answers": str(folder / "answers"),
            "facts": str(folder / "facts"),
        }
        (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
        # With -P, no module of the present folder stands in for one of Python's.
        module = ["-P", "-m", "lengthwise.frontier.answering", str(folder / "job.json")]
        command = [sys.executable, *module]
        ending = sandbox.run_limited(command, folder, limits, largest_file=largest)
        answers = read_answers(folder / "answers", probes, largest)
        return answers, ending, read_facts(folder / "facts")


def ask_command(
    subject: Subject, problems: Sequence[str], limits: Limits, folder: Path, largest: int
) -> tuple[list[str | None], sandbox.Ending]:
    (folder / "problems").write_text("".join(f"{p}\n" for p in problems), encoding="utf-8")
    words = shlex.split(subject.source.removeprefix(COMMAND))
    ending = sandbox.run_limited(words, folder, limits, folder / "problems", largest_file=largest)
    written = sandbox.read_bytes(folder / "stdout", largest)
    lines = written.decode(errors="replace").splitlines()
    if ending.failure is None and len(lines) != len(problems):
        failure = f"wrote {len(lines)} lines for {len(problems)} problems"
        return [], replace(ending, failure=failure)
    return [answering.to_text(line) for line in lines[: len(problems)]], ending


def read_answers(path: Path, probes: Sequence[str], largest: int) -> dict[str, list[str | None]]:
    """The answers by probe, up to the first line that is unfinished or malformed."""
    answers: dict[str, list[str | None]] = {probe: [] for probe in probes}
    for line in sandbox.read_bytes(path, largest).splitlines():
        try:
            part = json.loads(line)
            answers[part["probe"]] += [x if isinstance(x, str) else None for x in part["answers"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            break
    return answers


def read_facts(path: Path) -> Json:
    try:
        count = json.loads(sandbox.read_bytes(path))["parameters"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {"parameters": count} if type(count) is int and count >= 0 else {}


def judge(
    asked: Sequence[Problem], answers: Sequence[str | None], ending: sandbox.Ending, digits: str
) -> Json:
    """How many answers are right, by kind of problem; a missing answer is wrong."""
    given = [*answers, *[None] * (len(asked) - len(answers))]
    right = [answer == p.answer for answer, p in zip(given, asked, strict=False)]
    cases = []
    for kind, places in claims.group_by_kind(asked):
        correct = sum(right[i] for i in places)
        low, high = wilson(correct, len(places))
        failures = [
            {
                "problem": " ".join(map(shorten, asked[i].text.split())),
                "answer": shorten(given[i] or "no number"),
                "correct": shorten(asked[i].answer),
            }
            for i in places
            if not right[i]
        ]
        cases.append(
            {
                "digits": digits,
                "kind": kind,
                "problems": len(places),
                "right": correct,
                "share": correct / len(places),
                "low": low,
                "high": high,
                "failures": failures[:MOST_FAILURES],
            }
        )
    return {
        "digits": digits,
        "problems": len(asked),
        "right": sum(right),
        "unanswered": max(0, len(asked) - len(answers)),
        "failure": ending.failure,
        "seconds": ending.seconds,
        "peak megabytes": ending.peak_megabytes,
        "cases": cases,
    }


def probe(subject: Subject, claim: LengthClaim, seed: int, limits: Limits, share: float) -> Json:
    """Whether right answers come from the weights: ask again with changed weights."""
    if subject.kind == "command":
        reason = "the verifier can't see into a command"
        return {"verdict": "not checkable", "reason": reason, "probes": []}
    asked = claims.draw_problems(claim, claim.trained, PROBE_PROBLEMS, 0, seed + 1)
    answers, ending, facts = ask(subject, [p.text for p in asked], limits, list(PROBES))
    if not facts:
        reason = "it shows no torch module named model, whose weights could be changed"
        return {"verdict": "not checkable", "reason": reason, "probes": []}
    results = {name: judge(asked, answers[name], ending, "") for name in PROBES}
    shares = {name: result["right"] / result["problems"] for name, result in results.items()}
    found = [
        {"probe": name, "meaning": meaning, "share right": shares[name]}
        for name, meaning in PROBES.items()
    ]
    still_right = max(shares["zeroed"], shares["shuffled"])
    if still_right > MOST_RIGHT_WITHOUT_WEIGHTS:
        verdict, reason = "yes", "answers stay right without the trained weights"
    elif shares["tiny noise"] < LEAST_RIGHT_WITH_NOISE * share:
        verdict = "not checkable"
        reason = "a change of a millionth breaks the answers, as if the weights were guarded"
    elif os.environ.get(VARIABLE):
        verdict, reason = "not checkable", f"{VARIABLE} imports other code"
    elif subject.kind == "file":
        verdict = "no sign of it"
        reason = "answers depend on the weights; the code of the file itself is for people to read"
    else:
        verdict = "no sign of it"
        reason = "answers depend on the weights; all code that ran is lengthwise's own"
    return {"verdict": verdict, "reason": reason, "probes": found}


def seal(report: Json) -> Json:
    """The report with a digest of its contents, which shows later changes."""
    return {**report, "digest": digest(report)}


def is_intact(report: Json) -> bool:
    contents = {key: value for key, value in report.items() if key != "digest"}
    return bool(report.get("digest") == digest(contents))


def digest(contents: Json) -> str:
    text = json.dumps(contents, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
