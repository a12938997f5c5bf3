"""The plan of an artefact's runs, and their records: results/SCALE/runs/IDENTITY.json.

A record keeps the results of a finished run, but no checkpoint. It is found by the experiment's
identity, so a run that several artefacts share is trained and recorded once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.base import UsageError
from lengthwise.base.files import read_json, write_json
from lengthwise.evaluation.accuracy import Accuracy
from lengthwise.paper.artefact import Artefact
from lengthwise.paper.results import Record, Results, train_digits, training_curve
from lengthwise.paper.scales import Overrides, ScaleName
from lengthwise.training import keys
from lengthwise.training.experiment import Experiment
from lengthwise.training.runs import Run

SEEDS_WITHOUT = 3  # in a row without a record, after which the search ends
REQUIRED = {"identity", "commit", "sessions", "training", "measures"}
CURVE_POINTS = 60  # of the training curve that a record keeps


@dataclass(frozen=True)
class PlannedRun:
    """One run of an artefact: a condition with a seed and a variant of the hyperparameters."""

    label: str
    seed: int
    experiment: Experiment
    identity: str
    origin: str | None  # the identity of the run that it starts from
    variant: Overrides


def plan_seed(
    artefact: Artefact,
    scale: ScaleName,
    seed: int,
    root: Path,
    device: str = "cpu",
    variant: Overrides | None = None,
) -> dict[str, PlannedRun]:
    """The runs of one seed in one variant, by label, each after the one that it starts from."""
    planned: dict[str, PlannedRun] = {}
    for label, overrides in artefact.conditions(scale).items():
        fields = {"seed": seed, "device": device, **overrides, **(variant or {})}
        origin = planned[overrides["start_from"]] if "start_from" in overrides else None
        if origin:
            fields["start_from"] = str(root / origin.experiment.name(origin.identity))
        experiment = keys.load(None, fields)
        origin_identity = origin.identity if origin else None
        identity = experiment.identity(origin_identity)
        planned[label] = PlannedRun(
            label, seed, experiment, identity, origin_identity, variant or {}
        )
    return planned


def plan(
    artefact: Artefact,
    scale: ScaleName,
    seeds: int,
    root: Path,
    device: str = "cpu",
    chosen: Mapping[str, Overrides] | None = None,
) -> Iterator[PlannedRun]:
    """All runs that can be planned.

    The first seed tries every variant. The other seeds, and the runs that start from another, have
    the variant chosen for their condition, and are planned once there is one.
    """
    variants = artefact.variants(scale)
    chosen = chosen or {}
    if len(variants) == 1:
        chosen = dict.fromkeys(artefact.conditions(scale), variants[0])
    for seed in range(seeds):
        for variant in variants:
            for planned in plan_seed(artefact, scale, seed, root, device, variant).values():
                is_chosen = chosen.get(planned.label) == variant
                if is_chosen or (seed == 0 and planned.origin is None):
                    yield planned


def record_path(results: Path, scale: ScaleName, identity: str) -> Path:
    return results / scale / "runs" / f"{identity[:16]}.json"


def write_record(run: Run, path: Path, measures: Mapping[str, Any]) -> Record:
    """Keep what matters of a finished run; measures of other artefacts on it stay."""
    assert run.result is not None
    before = read_record(path)["measures"] if path.exists() else {}
    metrics = run.metrics
    sessions = run.sessions()
    record: Record = {
        **run.result,
        "commit": sessions[-1].get("commit"),
        "config": run.experiment.model_dump(
            mode="json", exclude={"device", "threads", "start_from"}
        ),
        "curve": [
            {"examples": m["examples"], "evaluation": [round_accuracy(a) for a in m["evaluation"]]}
            for m in metrics
            if "evaluation" in m
        ],
        "training": thin([round_training(m) for m in metrics if "loss" in m], CURVE_POINTS),
        "sessions": sessions,
        "measures": {**before, **measures},
    }
    write_json(path, record)
    return record


def read_record(path: Path) -> Record:
    record: Record = read_json(path)
    try:
        for point in (*record["curve"], record):
            for accuracy in point["evaluation"]:
                Accuracy.from_json(accuracy)
        config = record["config"]
        is_whole = record.keys() >= REQUIRED
        is_whole &= isinstance(config["seed"], int) and "train_digits" in config["data"]
    except (TypeError, KeyError, AttributeError):
        is_whole = False
    if not is_whole:
        raise UsageError(f"{path} is damaged; delete it, and `lengthwise paper run` makes it again")
    return record


def round_accuracy(accuracy: Record) -> Record:
    """An accuracy with four decimals, which is finer than its interval."""
    counts = {key: accuracy[key] for key in ("length", "examples", "correct")}
    digits = [round(share, 4) for share in accuracy["digits"]]
    return {**counts, "exact_match": round(accuracy["exact_match"], 4), "digits": digits}


def round_training(point: Record) -> Record:
    rounded: Record = {"examples": point["examples"], "loss": round(point["loss"], 5)}
    for name in ("train", "primed"):
        if name in point:
            rounded[name] = [round(share, 3) for share in point[name]["digits"]]
    return rounded


def thin(points: list[Any], most: int) -> list[Any]:
    """At most `most` points, evenly spread, the last included.

    >>> thin([1, 2, 3, 4, 5], 3)
    [1, 3, 5]
    """
    step = -(-len(points) // most) or 1
    return points[::-1][::step][::-1]


def load_results(artefact: Artefact, scale: ScaleName, results: Path, root: Path) -> Results:
    """The records of an artefact's runs: for each condition, those of the chosen variant."""
    found = [find_records(artefact, scale, results, root, v) for v in artefact.variants(scale)]
    options = list(zip(artefact.variants(scale), found, strict=True))
    conditions = artefact.conditions(scale)
    # Fine-tuning is in domain at a tested length, so the run that it starts from decides.
    origins = {label: o["start_from"] for label, o in conditions.items() if "start_from" in o}
    records: dict[str, dict[int, Record]] = {}
    chosen: dict[str, Overrides] = {}
    for label in conditions:
        decisive = origins.get(label, label)
        tried = [(v, r) for v, r in options if r.get(decisive)]
        if not tried:
            continue
        variant, by_label = max(tried, key=lambda option: fitness(option[1][decisive]))
        chosen[label] = variant
        if label in by_label:
            records[label] = by_label[label]
    return Results(scale, records, chosen, origins)


def find_records(
    artefact: Artefact, scale: ScaleName, results: Path, root: Path, variant: Overrides
) -> dict[str, dict[int, Record]]:
    """By condition and seed, one seed after another until several have no record."""
    found: dict[str, dict[int, Record]] = {}
    if not any(record_path(results, scale, "").parent.glob("*.json")):
        return found  # planning takes time
    seed = last = -1
    while seed - last < SEEDS_WITHOUT:
        seed += 1
        for planned in plan_seed(artefact, scale, seed, root, variant=variant).values():
            path = record_path(results, scale, planned.identity)
            if path.exists():
                found.setdefault(planned.label, {})[seed] = read_record(path)
                last = seed
    return found


def fitness(records: Mapping[int, Record]) -> tuple[float, float]:
    """The score by which a variant is chosen: the first seed's accuracy at the trained length.

    It is that of the last evaluation during training; ties go to the average over all evaluations.
    """
    record = records[min(records)]
    shares = [share for _, share in training_curve(record, train_digits(record))]
    return (shares[-1], sum(shares) / len(shares)) if shares else (0.0, 0.0)


def commits(records: Sequence[Record]) -> dict[str, int]:
    """How many records each commit made; a + marks uncommitted changes."""
    counts: dict[str, int] = {}
    for record in records:
        name = str(record["commit"] or "unknown")
        short = name[:10] + ("+" if name.endswith("+") else "")
        counts[short] = counts.get(short, 0) + 1
    return counts
