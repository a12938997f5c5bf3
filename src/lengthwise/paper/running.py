"""Running artefacts: the runs that are left, their cost, and training them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lengthwise.base import UsageError, nearest
from lengthwise.base.files import writing
from lengthwise.paper.artefact import Artefact
from lengthwise.paper.records import (
    PlannedRun,
    load_results,
    plan,
    read_record,
    record_path,
    write_record,
)
from lengthwise.paper.scales import Overrides, ScaleName, describe_variant
from lengthwise.problems.layouts import LAYOUTS
from lengthwise.sweep import Engine, run_all
from lengthwise.training import machine
from lengthwise.training.display import Display
from lengthwise.training.experiment import Experiment
from lengthwise.training.runs import Run

Uses = list[tuple[Artefact, PlannedRun]]  # of one run by the artefacts that share it


@dataclass(frozen=True)
class Cost:
    """What an artefact takes to train."""

    runs: int
    done: int
    examples: int
    flops: float


def cost(
    artefact: Artefact,
    scale: ScaleName,
    seeds: int,
    results: Path,
    root: Path,
    search: bool = True,
) -> Cost:
    """The cost of an artefact, with any one variant for the runs whose variant isn't chosen yet."""
    first = dict.fromkeys(artefact.conditions(scale), artefact.variants(scale)[0])
    chosen = {**first, **choose_variants(artefact, scale, results, root, search)}
    planned = list(plan(artefact, scale, seeds, root, chosen=chosen))
    if not search:
        planned = [p for p in planned if chosen[p.label] == p.variant]
    examples = [p.experiment.steps * p.experiment.training.batch_size for p in planned]
    flops = sum(n * training_flops(p.experiment) for n, p in zip(examples, planned, strict=True))
    done = sum(record_path(results, scale, p.identity).exists() for p in planned)
    return Cost(len(planned), done, sum(examples), flops)


def training_flops(experiment: Experiment) -> float:
    """Operations of training on one example: three times those of the forward pass."""
    model = experiment.model
    layout = LAYOUTS.build(experiment.layout, experiment.task, experiment.data.test_digits)
    feedforward = model.feedforward_width or 4 * model.width
    weights = 4 * model.width**2 + 2 * model.width * feedforward
    attention = 2 * layout.length * model.width
    return 3.0 * 2 * layout.length * model.layers * (weights + attention)


def run_artefacts(
    artefacts: Sequence[Artefact],
    scale: ScaleName,
    seeds: int,
    engine: Engine,
    results: Path,
    root: Path,
    device: str,
    display: Display,
    only: Sequence[str] = (),
    retry: bool = False,
    search: bool = True,
) -> dict[Path, str]:
    """Train the runs without a record and record them; returns the reasons of those that failed.

    `only` restricts it to conditions whose label contains one of the texts, and the runs that those
    start from. Runs that failed before are skipped; `retry` trains them again from the start.
    Without `search`, every condition has the first of its variants.
    """
    check_labels(artefacts, scale, only)
    folder = record_path(results, scale, "").parent
    with writing(folder):  # before anything is trained
        folder.mkdir(parents=True, exist_ok=True)
    own_device = device if engine.here else "cpu"
    machine.prepare(own_device, 1)  # for the measures that artefacts add
    failed: dict[Path, str] = {}
    # Twice: once the first seed has tried every variant, the other seeds have the best.
    for _ in range(2 if any(len(a.variants(scale)) > 1 for a in artefacts) else 1):
        uses: dict[str, Uses] = {}  # by identity: artefacts share runs
        for artefact in artefacts:
            chosen = choose_variants(artefact, scale, results, root, search)
            for planned in plan(artefact, scale, seeds, root, device, chosen):
                if search or planned.variant == chosen[planned.label]:
                    uses.setdefault(planned.identity, []).append((artefact, planned))
        todo = select_runs(uses, scale, results, root, only)
        todo = {i: run for i, run in todo.items() if run.path not in failed}
        skip_failed(todo, uses, retry, display)
        display.labels = {run.path.name: describe(uses[i]) for i, run in todo.items()}
        identities = {run.path: identity for identity, run in todo.items()}
        for run, reason in run_all(list(todo.values()), engine, display):
            if reason:
                failed[run.path] = reason
            else:
                run.experiment = run.experiment.model_copy(update={"device": own_device})
                record(run, identities[run.path], uses, scale, results)
    return failed


def choose_variants(
    artefact: Artefact, scale: ScaleName, results: Path, root: Path, search: bool
) -> dict[str, Overrides]:
    """The variant of each condition: the first one, or the best in domain of those recorded."""
    variants = artefact.variants(scale)
    if not search or len(variants) == 1:
        return dict.fromkeys(artefact.conditions(scale), variants[0])
    return dict(load_results(artefact, scale, results, root).variants)


def check_labels(artefacts: Sequence[Artefact], scale: ScaleName, only: Sequence[str]) -> None:
    labels = {label for artefact in artefacts for label in artefact.conditions(scale)}
    for text in only:
        if not any(text in label for label in labels):
            hint = nearest(text, labels)
            raise UsageError(f"no condition of these artefacts has '{text}' in its label: {hint}")


def select_runs(
    uses: dict[str, Uses], scale: ScaleName, results: Path, root: Path, only: Sequence[str]
) -> dict[str, Run]:
    """The runs to train by identity, each behind the one that it starts from."""
    todo: dict[str, Run] = {}

    def add(identity: str) -> None:
        planned = uses[identity][0][1]
        if planned.origin:  # its weights are needed, even if there is a record of it
            add(planned.origin)
        todo[identity] = Run.create(planned.experiment, root)

    for identity, shared in uses.items():
        labels = [planned.label for _, planned in shared]
        is_selected = not only or any(text in label for text in only for label in labels)
        if is_selected and not is_recorded(shared, scale, results):
            add(identity)
    return todo


def skip_failed(todo: dict[str, Run], uses: dict[str, Uses], retry: bool, display: Display) -> None:
    """Remove the runs that failed before, and those that start from one; or clear them to retry."""
    skipped = 0
    for identity, run in list(todo.items()):
        origin = uses[identity][0][1].origin
        if retry and run.status == "failed":
            run.clear()
        elif run.status == "failed" or (origin and origin not in todo):
            del todo[identity]
            skipped += 1
    if skipped:
        text = (
            f"{skipped} runs skipped: they failed before or start from one that did"
            " (--retry trains them)"
        )
        display.console.print(text, highlight=False, soft_wrap=True)


def record(run: Run, identity: str, uses: dict[str, Uses], scale: ScaleName, results: Path) -> None:
    """Write the record of a finished run, with the measures of every artefact that uses it."""
    found = {artefact.name: artefact.measure(scale, run) for artefact, _ in uses[identity]}
    measures = {name: measure for name, measure in found.items() if measure is not None}
    write_record(run, record_path(results, scale, identity), measures)


def is_recorded(
    uses: Iterable[tuple[Artefact, PlannedRun]], scale: ScaleName, results: Path
) -> bool:
    """Whether there is a record with all that artefacts measure on the run."""
    for artefact, planned in uses:
        path = record_path(results, scale, planned.identity)
        if not path.exists():
            return False
        if artefact.measures and artefact.name not in read_record(path)["measures"]:
            return False
    return True


def describe(uses: Uses) -> str:
    artefact, planned = uses[0]
    variant = describe_variant(planned.variant)
    parts = [f"{artefact.name}: {planned.label}", variant, f"seed {planned.seed}"]
    return ", ".join(filter(None, parts))
