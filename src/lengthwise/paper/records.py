"""Small records of finished runs, which tables, figures and verdicts are made from, and the plan of an artefact's runs.

A record is one JSON file, results/SCALE/runs/IDENTITY.json; checkpoints aren't kept. It is found by the experiment's
identity, so a run that several artefacts share is trained and recorded once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise import experiment as configuration
from lengthwise.errors import UsageError
from lengthwise.evaluation import Accuracy
from lengthwise.experiment import Experiment
from lengthwise.paper.artefact import Artefact, Record, Results, ScaleName, Setting
from lengthwise.paper.scales import variants
from lengthwise.runs import Run, read_json, write_json

MOST_WITHOUT = 3  # seeds in a row without a record, after which no more are looked for


@dataclass(frozen=True)
class Planned:
    """One run of an artefact."""

    label: str
    seed: int
    experiment: Experiment
    identity: str
    origin: str | None  # the identity of the run that it starts from
    variant: Setting


def plan(
    artefact: Artefact,
    scale: ScaleName,
    seeds: range,
    root: Path,
    device: str = "cpu",
    variant: Setting | None = None,
) -> Iterator[Planned]:
    """The runs of an artefact in one of the scale's variants, each after the one that it starts from."""
    for seed in seeds:
        made: dict[str, Experiment] = {}
        for label, setting in artefact.settings(scale).items():
            origin = made[setting["start_from"]] if "start_from" in setting else None
            fields = {"seed": seed, "device": device, **setting, **(variant or {})}
            if origin:
                fields["start_from"] = str(root / origin.name())
            made[label] = configuration.load(None, fields)
            from_identity = origin.identity() if origin else None
            yield Planned(label, seed, made[label], made[label].identity(from_identity), from_identity, variant or {})


def record_path(results: Path, scale: ScaleName, identity: str) -> Path:
    return results / scale / "runs" / f"{identity[:16]}.json"


def keep(run: Run, path: Path, measures: dict[str, Any]) -> Record:
    """Write what is kept of a finished run; measures of other artefacts on the same run stay."""
    assert run.result is not None
    before = read_record(path)["measures"] if path.exists() else {}
    metrics = run.metrics()
    kept: Record = {
        **run.result,
        "config": run.experiment.model_dump(mode="json", exclude={"device", "threads", "start_from"}),
        "curve": [
            {"examples": m["examples"], "evaluation": [brief(a) for a in m["evaluation"]]}
            for m in metrics
            if "evaluation" in m
        ],
        "training": thinned([brief_training(m) for m in metrics if "loss" in m]),
        "environment": read_json(run.path / "environment.json")["sessions"][-1],
        "measures": {**before, **measures},
    }
    write_json(path, kept)
    return kept


def read_record(path: Path) -> Record:
    kept: Record = read_json(path)
    try:
        for moment in (*kept["curve"], kept):
            for accuracy in moment["evaluation"]:
                Accuracy.from_json(accuracy)
        whole = "train_digits" in kept["config"]["data"] and {"training", "measures"} <= kept.keys()
    except (TypeError, KeyError):
        whole = False
    if not whole:
        raise UsageError(f"{path} is damaged; delete it, and `lengthwise paper run` makes it again")
    return kept


def brief(accuracy: Record) -> Record:
    """An accuracy with four decimals, which is more than its interval."""
    kept = {key: accuracy[key] for key in ("length", "examples", "correct")}
    digits = [round(share, 4) for share in accuracy["digits"]]
    return {**kept, "exact_match": round(accuracy["exact_match"], 4), "digits": digits}


def brief_training(record: Record) -> Record:
    kept: Record = {"examples": record["examples"], "loss": round(record["loss"], 5)}
    for name in ("train", "primed"):
        if name in record:
            kept[name] = [round(share, 3) for share in record[name]["digits"]]
    return kept


def thinned(records: list[Record], most: int = 60) -> list[Record]:
    """At most so many records, evenly spread, the last included."""
    step = -(-len(records) // most) or 1
    return records[::-1][::step][::-1]


def load_results(artefact: Artefact, scale: ScaleName, results: Path, root: Path) -> Results:
    """The records that there are of an artefact's runs: for each setting, of the variant that is best in domain."""
    options = [(variant, all_records(artefact, scale, results, root, variant)) for variant in variants(scale)]
    records: dict[str, list[Record]] = {}
    kept: dict[str, Setting] = {}
    for label, setting in artefact.settings(scale).items():
        # Fine-tuning is in domain at a length that is tested, so what it starts from decides for it.
        decides = setting.get("start_from", label)
        variant, found = max(options, key=lambda option: in_domain(option[1].get(decides, ())))
        if label in found:
            records[label], kept[label] = found[label], variant
    return Results(scale, records, kept)


def all_records(
    artefact: Artefact, scale: ScaleName, results: Path, root: Path, variant: Setting
) -> dict[str, list[Record]]:
    """By setting, of one seed after another until there are several without any record."""
    found: dict[str, list[Record]] = {}
    seed = last = -1
    while seed - last < MOST_WITHOUT:
        seed += 1
        for run in plan(artefact, scale, range(seed, seed + 1), root, variant=variant):
            path = record_path(results, scale, run.identity)
            if path.exists():
                found.setdefault(run.label, []).append(read_record(path))
                last = seed
    return found


def in_domain(records: Sequence[Record]) -> float:
    """The accuracy at the trained length when training ended, added up over seeds: one without a record has none."""
    return sum(
        a["exact_match"]
        for r in records
        for a in r["curve"][-1]["evaluation"]
        if a["length"] == r["config"]["data"]["train_digits"]
    )
