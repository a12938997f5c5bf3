"""Running artefacts: what is left to train, what it costs, and training it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lengthwise import machine
from lengthwise.display import Display
from lengthwise.errors import UsageError, nearest
from lengthwise.experiment import Experiment
from lengthwise.layout import Layout
from lengthwise.paper.artefact import Artefact, ScaleName
from lengthwise.paper.records import Planned, keep, plan, read_record, record_path
from lengthwise.paper.scales import spelled, variants
from lengthwise.runs import Run, writing
from lengthwise.sweep import Engine, run_all


@dataclass(frozen=True)
class Cost:
    """What an artefact takes to train."""

    runs: int
    done: int
    examples: int
    flops: float


def cost(artefact: Artefact, scale: ScaleName, seeds: int, results: Path, root: Path) -> Cost:
    planned = [p for variant in variants(scale) for p in plan(artefact, scale, range(seeds), root, variant=variant)]
    examples = [p.experiment.steps * p.experiment.training.batch_size for p in planned]
    flops = sum(n * training_flops(p.experiment) for n, p in zip(examples, planned, strict=True))
    done = sum(record_path(results, scale, p.identity).exists() for p in planned)
    return Cost(len(planned), done, sum(examples), flops)


def training_flops(experiment: Experiment) -> float:
    """Floating-point operations of training on one example: three times those of the forward pass."""
    model = experiment.model
    length = Layout(experiment.task, experiment.data.test_digits, experiment.layout).length
    feedforward = model.feedforward_width or 4 * model.width
    weights = 4 * model.width**2 + 2 * model.width * feedforward
    attention = 2 * length * model.width
    return 3.0 * 2 * length * model.layers * (weights + attention)


def run_artefacts(
    artefacts: Sequence[Artefact],
    scale: ScaleName,
    seeds: int,
    jobs: int,
    results: Path,
    root: Path,
    device: str,
    display: Display,
    only: str = "",
    retry: bool = False,
    engine: Engine = run_all,
) -> dict[Path, str]:
    """Train what isn't recorded yet and record it; returns the reasons of the runs that failed.

    `only` restricts it to settings whose label contains the text (and what those start from). Runs that have failed
    before are skipped, or with `retry` trained again from the start.
    """
    wanted: dict[str, list[tuple[Artefact, Planned]]] = {}  # by identity: artefacts share runs
    for artefact in artefacts:
        for variant in variants(scale):
            for planned in plan(artefact, scale, range(seeds), root, device, variant):
                wanted.setdefault(planned.identity, []).append((artefact, planned))
    labels = {planned.label for uses in wanted.values() for _, planned in uses}
    if not any(only in label for label in labels):
        raise UsageError(f"no setting of these artefacts has '{only}' in its label: {nearest(only, labels)}")
    folder = record_path(results, scale, "").parent
    with writing(folder):  # before anything is trained
        folder.mkdir(parents=True, exist_ok=True)
    todo: dict[str, Run] = {}

    def need(identity: str) -> None:
        planned = wanted[identity][0][1]
        if planned.origin:  # its weights are needed, even if there is a record of it
            need(planned.origin)
        todo[identity] = Run.create(planned.experiment, root)

    for identity, uses in wanted.items():
        if any(only in planned.label for _, planned in uses) and not recorded(uses, scale, results):
            need(identity)
    skipped: list[Run] = []
    for identity, run in list(todo.items()):  # an origin comes before the runs that start from it
        origin = wanted[identity][0][1].origin
        if retry and run.status == "failed":
            run.clear()
        elif run.status == "failed" or (origin and origin not in todo):
            skipped.append(todo.pop(identity))
    if skipped:
        told = f"runs skipped, as they failed before or start from one that did: {len(skipped)} (--retry trains them)"
        display.console.print(told, highlight=False, soft_wrap=True)
    identities = {run.path: identity for identity, run in todo.items()}
    display.labels = {run.path.name: describe(wanted[identity]) for identity, run in todo.items()}
    failed: dict[Path, str] = {}
    machine.prepare(device, 1)  # for what is measured here
    for run, reason in engine(list(todo.values()), jobs, display):
        if reason:
            failed[run.path] = reason
            continue
        identity = identities[run.path]
        measures = {a.name: a.measure(scale, run) for a, _ in wanted[identity]}
        measures = {name: measure for name, measure in measures.items() if measure is not None}
        keep(run, record_path(results, scale, identity), measures)
    return failed


def recorded(uses: Iterable[tuple[Artefact, Planned]], scale: ScaleName, results: Path) -> bool:
    """Whether there is a record with all that is measured on the run."""
    for artefact, planned in uses:
        path = record_path(results, scale, planned.identity)
        if not path.exists():
            return False
        measures = type(artefact).measure is not Artefact.measure
        if measures and artefact.name not in read_record(path)["measures"]:
            return False
    return True


def describe(uses: Sequence[tuple[Artefact, Planned]]) -> str:
    artefact, planned = uses[0]
    parts = [f"{artefact.name}: {planned.label}", spelled(planned.variant), f"seed {planned.seed}"]
    return ", ".join(filter(None, parts))
