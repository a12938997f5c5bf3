"""Makes a length record: trains its models, measures them, and writes the results."""

import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.arithmetic.digits import carries, longest_run
from lengthwise.arithmetic.tasks import Addition
from lengthwise.base import Choice, UsageError
from lengthwise.base.extensions import import_files
from lengthwise.base.files import to_json, write_atomically, write_json, writing
from lengthwise.base.processes import children_without_interrupts, end_with_parent
from lengthwise.evaluation.accuracy import measure_accuracy
from lengthwise.evaluation.stress import CASES, stress
from lengthwise.frontier.ablations import find_ablations
from lengthwise.frontier.record_page import draw, file_name, markdown
from lengthwise.frontier.records import LengthRecord, Trial, find_record
from lengthwise.frontier.rule import can_check_rule, check_rule
from lengthwise.model import ModelConfig
from lengthwise.model.depth import UntilStable
from lengthwise.model.rewrite import Rewrite
from lengthwise.problems.evaluation_set import BLOCK, evaluation_set
from lengthwise.problems.training_set import TrainingSet
from lengthwise.solver import Solver
from lengthwise.sweep import Engine, run_all
from lengthwise.training import keys, machine
from lengthwise.training.display import Display
from lengthwise.training.experiment import Experiment
from lengthwise.training.runs import Run

OCCASION = 2**31  # of the test sets; larger than any training step
RECORD = "record.json"  # in a run's directory: its measurements so far
LOCK_SECONDS = 60.0  # to wait for a process that writes measurements of the same run
MOST_FAILURES = 3  # kept of each stress case
DIGITS_AT_ONCE = 4_000_000  # of the first operands of test problems, so that they fit memory
SHORT = 1000  # digits, up to which problems are tested quickly
STRESS_PARTS = ("stress", "stress, fewest iterations")
TARGETS = {  # by layout
    "grid": "the answer, and the rows of products and sums",
    "long-multiplication": "the answer, and the rows of partial products and sums",
    "running-sums": "the answer, the operands, and the sum after each of them",
}
Json = dict[str, Any]


def make_record(
    name: str,
    seeds: Sequence[int],
    engine: Engine,
    root: Path,
    results: Path,
    display: Display,
    most_long: int | None = None,
    ablations: bool = False,
) -> Json:
    """Train and test a record's models, and write results/records/NAME.json, .md and .png.

    Runs and their measurements are kept, so this can be stopped at any time and started again.
    `most_long` limits the problems of each length and case above 1000 digits. With `ablations`, the
    record's ablations are made instead. Returns the contents of the JSON file.
    """
    found = find_ablations(name) if ablations else find_record(name)
    chosen, folder = limit_long_problems(found, most_long), results / "records"
    with writing(folder):  # before hours of training
        folder.mkdir(parents=True, exist_ok=True)
    runs = {
        (label, seed): Run.create(keys.load(None, {**trial.setting, "seed": seed}), root)
        for label, trial in chosen.trials.items()
        for seed in seeds
    }
    train_all(runs, engine, display)
    trials: dict[str, Json] = {}
    descriptions: dict[Path, dict[str, str]] = {}  # by run: trials may share models
    with measuring_processes(engine.jobs or 2) as pool:
        for label, trial in chosen.trials.items():
            own = [runs[label, seed] for seed in seeds]
            results_by_seed = measure_all(pool, trial, own)
            if (path := own[0].path) not in descriptions:
                descriptions[path] = describe_training(own[0].experiment)
            trials[label] = summarise_trial(trial, own, results_by_seed, descriptions[path])
    contents = {
        "record": name,
        "title": chosen.title,
        "most long problems": most_long,
        **({"ablations": True} if ablations else {}),
        "trials": trials,
    }
    file = file_name(contents)
    write_json(folder / f"{file}.json", contents)
    write_atomically(folder / f"{file}.md", "\n".join(markdown(contents)).encode())
    if not ablations:
        draw(contents, folder / f"{file}.png")
    return contents


@contextmanager
def measuring_processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """A pool with a fresh process for each model, so that peak memory is the model's own."""
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, context, end_with_parent, max_tasks_per_child=1) as pool:
        try:
            yield pool
        except BaseException:  # such as Ctrl-C; what was measured is kept
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            raise


def measure_all(pool: ProcessPoolExecutor, trial: Trial, runs: Sequence[Run]) -> list[Any]:
    """The measurements of several models, in processes of their own."""
    try:
        with children_without_interrupts():
            results = pool.map(partial(measure, trial), [run.path for run in runs])
        return list(results)
    except BrokenProcessPool:
        raise UsageError(
            "a process that measured a model was killed; the same command goes on from there"
        ) from None


def limit_long_problems(record: LengthRecord, most: int | None) -> LengthRecord:
    """The record with at most `most` problems of each length and stress case above SHORT digits."""
    if most is None:
        return record

    def limit(counts: Mapping[int, int]) -> dict[int, int]:
        return {n: min(count, most) if n > SHORT else count for n, count in counts.items()}

    trials = {
        label: replace(trial, tests=limit(trial.tests), stress_tests=limit(trial.stress_tests))
        for label, trial in record.trials.items()
    }
    return replace(record, trials=trials)


def train_all(runs: dict[tuple[str, int], Run], engine: Engine, display: Display) -> None:
    """Train the runs of each trial and seed; trials may share a run."""
    distinct = {run.path.name: run for run in runs.values()}
    display.labels = {
        run.path.name: f"{label}, seed {seed}" for (label, seed), run in reversed(runs.items())
    }
    for run, failure in run_all(list(distinct.values()), engine, display):
        if failure:
            raise UsageError(f"{run.path} failed: {failure}")


def load(trial: Trial, run: Run) -> Solver:
    """A run's model, for the problems of a trial."""
    solver = run.load()
    if trial.operands:
        solver = solver.with_operands(trial.operands)
    second = trial.second_digits
    return solver if second == "as trained" else solver.with_second_digits(second)


def measure(trial: Trial, run_path: Path) -> dict[str, dict[int, Any]]:
    """Accuracy by length and the stress suite, of one model; results are kept beside the run.

    Where layers are applied until the answer is stable, the stress suite is repeated with the
    fewest iterations of training.
    """
    import_files()
    machine.prepare("cpu", threads=1)
    run = Run(run_path)
    solver, found = load(trial, run), run.read_json(RECORD) or {}
    results: dict[str, dict[int, Any]] = {}
    for part, length, name, compute in measurements(trial, run.experiment, solver):
        if name not in found:
            print(f"seed {run.experiment.seed}, {name}", file=sys.stderr, flush=True)
            found = keep_measurement(run, name, compute())
        results.setdefault(part, {})[length] = found[name]
    return results


def keep_measurement(run: Run, name: str, result: Any) -> Json:
    """Add a measurement to those of the run, and return all."""
    with run.locked(LOCK_SECONDS):
        found: Json = {**(run.read_json(RECORD) or {}), name: result}
        run.write({RECORD: to_json(found)})
        run.manifest.settle()
    return found


def measurements(
    trial: Trial, experiment: Experiment, solver: Solver
) -> Iterator[tuple[str, int, str, Callable[[], Any]]]:
    """A trial's measurements: part, length, name in record.json, and the function that makes it."""
    seed = experiment.seed
    second = "" if trial.second_digits == "as trained" else f" by {trial.second_digits}"
    if trial.operands:
        second = f" in {trial.operands} numbers"
    cases = sum(case.applies(solver.task) for case in CASES.values())  # later versions may add some

    for length, count in trial.tests.items():
        name = f"accuracy: {length} digits{second}, {count} problems"
        yield "accuracy", length, name, partial(measure_length, solver, length, count, seed)
    if can_check_rule(solver):
        kind = "sums" if isinstance(solver.task, Addition) else "products"
        yield "rule", 0, f"rule: every neighbourhood of {kind}", partial(check_rule, solver)
    depths: list[int | None] = [None]
    if isinstance(experiment.model.depth, UntilStable):
        depths.append(experiment.model.layers)
    for part, layers in zip(STRESS_PARTS, depths, strict=False):
        for length, count in trial.stress_tests.items():
            if layers is not None and length > SHORT:
                continue
            name = f"{part}: {length} digits{second}, {count} problems in {cases} cases"
            yield part, length, name, partial(stress_length, solver, length, count, seed, layers)


def measure_length(solver: Solver, length: int, count: int, seed: int) -> Json:
    """Accuracy at one length, the time that it takes, and the peak memory of the process so far."""
    started, used = time.monotonic(), time.process_time()
    block = min(BLOCK, max(1, DIGITS_AT_ONCE // length))
    problems = evaluation_set(solver.task, length, count, seed, OCCASION, block=block)
    accuracy = measure_accuracy(solver, length, problems)
    seconds, used = time.monotonic() - started, time.process_time() - used
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":  # where the unit is the byte
        kilobytes //= 1024
    fields = {key: value for key, value in accuracy.to_json().items() if key != "digits"}
    return {
        **fields,
        "seconds": round(seconds, 2),
        "seconds of CPU": round(used, 2),
        "peak megabytes": kilobytes // 1024,
    }


def stress_length(
    solver: Solver, length: int, count: int, seed: int, layers: int | None
) -> list[Json]:
    return [outcome.to_json() for outcome in stress(solver, [length], count, seed, layers)]


def describe_training(experiment: Experiment) -> dict[str, str]:
    """What a model is given in training; lengths and carries are measured on its own batches."""
    longest, chain = measure_batches(experiment)
    data, model, layout = experiment.data, experiment.model, experiment.layout
    examples = experiment.steps * experiment.training.batch_size
    shares = [f"{share:.0%} {name}" for name, share in data.mixture.items()]
    digits = " and ".join(map(str, longest))
    return {
        "training problems": f"{examples:,}, with operands of up to {digits} digits",
        **({"longest carry chain in training": f"{chain} digits"} if chain else {}),
        "special problems in training": ", ".join(shares) or "none",
        "layout": write_choice(layout),
        "position embedding": write_choice(model.position),
        "attention": write_choice(model.attention),
        "depth": describe_depth(model),
        "targets": describe_targets(layout),
    }


def describe_targets(layout: Choice) -> str:
    """What the loss asks for: the answer, and the rows of a layout that writes them."""
    if getattr(layout, "targets", "answer") == "answer":
        return "the answer"
    return TARGETS.get(layout.kind, "the answer, and rows")


def describe_depth(model: ModelConfig) -> str:
    if isinstance(model.depth, Rewrite):
        return f"rounds until no symbol changes; {write_choice(model.depth)}"
    return f"{model.layers} layers; {write_choice(model.depth)}"


def write_choice(choice: Any) -> str:
    """A choice in one line, such as "fitted (order least-significant-first, extra_padding 2)"."""
    options = [f"{name} {value}" for name, value in choice.model_dump().items() if name != "kind"]
    return f"{choice.kind} ({', '.join(options)})" if options else choice.kind


def measure_batches(experiment: Experiment) -> tuple[list[int], int]:
    """The digits of the longest operands in training, and of the longest carry chain in sums."""
    data = TrainingSet(experiment.task, experiment.data, experiment.seed)
    longest = np.zeros(len(experiment.task.operand_digits(1)), int)
    chain = 0
    for step in range(experiment.steps):
        operands = data.batch(step, experiment.training.batch_size).operands
        longest = np.maximum(longest, [numbers.lengths.max() for numbers in operands])
        if isinstance(experiment.task, Addition) and len(operands) == 2:
            chain = max(chain, int(longest_run(carries(*operands)).max()))
    return longest.tolist(), chain


def summarise_trial(
    trial: Trial,
    runs: Sequence[Run],
    results: Sequence[Mapping[str, Mapping[int, Any]]],  # by seed, from `measure`
    description: Mapping[str, str],
) -> Json:
    """The results of each seed, with the mean and the worst of them."""
    lengths = {}
    for n, problems in trial.tests.items():
        by_seed = [seed["accuracy"][n] for seed in results]
        lengths[n] = {
            "problems a seed": problems,
            "goal": trial.goals.get(n),
            "mean": float(np.mean([a["exact_match"] for a in by_seed])),
            "worst": min(by_seed, key=lambda a: a["exact_match"]),
            "by seed": by_seed,
        }
    ends = [run.result or {} for run in runs]
    parts = {part: [seed.get(part, {}) for seed in results] for part in STRESS_PARTS}
    left_out = {"device", "threads", "start_from", "seed"}
    return {
        "seeds": [run.experiment.seed for run in runs],
        "runs": [run.path.name for run in runs],
        "parameters": ends[0]["parameters"],
        "minutes of training": [round(end["seconds"] / 60, 1) for end in ends],
        "given": dict(description),
        "digits of the second operand": trial.second_digits,
        **({"operands": trial.operands} if trial.operands else {}),
        "lengths": lengths,
        "rule": [seed["rule"][0] for seed in results if "rule" in seed],
        **{part: summarise_stress(by_seed) for part, by_seed in parts.items()},
        "config": runs[0].experiment.model_dump(mode="json", exclude=left_out),
        "environment": runs[0].sessions()[-1],
        "commits": [run.sessions()[-1].get("commit") for run in runs],  # by seed
    }


def summarise_stress(
    results: Sequence[Mapping[int, Sequence[Mapping[str, Any]]]],
) -> list[Json]:
    """Each case and length with the results of each seed and some of the failures."""
    cases: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for seed in results:
        for length, outcomes in seed.items():
            for outcome in outcomes:
                key = (outcome["case"], outcome["detail"], length)
                cases.setdefault(key, []).append(outcome)
    return [
        {
            "case": case,
            "detail": detail,
            "length": length,
            "problems": sum(o["examples"] for o in outcomes),
            "by seed": [o["exact_match"] for o in outcomes],
            "failures": [failure for o in outcomes for failure in o["failures"]][:MOST_FAILURES],
        }
        for (case, detail, length), outcomes in cases.items()
    ]
