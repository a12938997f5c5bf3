"""What each command of the command line does with the options that were chosen."""

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from lengthwise import api, machine
from lengthwise import experiment as configuration
from lengthwise.analysis import examples_to_reach, failure_study, learning_curves
from lengthwise.demo import demo
from lengthwise.display import Display, percent, summary
from lengthwise.errors import UsageError, nearest
from lengthwise.evaluation import evaluate
from lengthwise.model import PRESETS
from lengthwise.paper import ARTEFACTS
from lengthwise.paper.records import record_path
from lengthwise.paper.running import cost, run_artefacts
from lengthwise.positions import POSITIONS
from lengthwise.record import make
from lengthwise.record_page import page
from lengthwise.report import write_report
from lengthwise.runs import Run, overview
from lengthwise.solver import Solver
from lengthwise.stress import stress, table
from lengthwise.sweep import find_engine
from lengthwise.tasks import TASKS


def run_demo(chosen: argparse.Namespace) -> None:
    demo(Path(chosen.runs), chosen.jobs, chosen.again, chosen.smoke)


def run_train(chosen: argparse.Namespace) -> None:
    file = chosen.keys.pop(0) if chosen.keys and not chosen.keys[0].startswith("-") else None
    experiment = configuration.load(file, configuration.parse_overrides(chosen.keys))
    finish(api.make_run(experiment, chosen.runs, chosen.name, chosen.again), chosen.imports)


def run_record(chosen: argparse.Namespace) -> None:
    first = chosen.seed or 0
    many = chosen.seeds or (3 if chosen.seed is None else 1)
    with Display() as display:
        seeds = range(first, first + many)
        written = make(chosen.name, seeds, chosen.jobs, Path(chosen.runs), Path(chosen.results), display)
    if chosen.json:
        print(json.dumps(written, indent=2, ensure_ascii=False))
        return
    print("\n".join(page(written)))
    print(f"written to {Path(chosen.results) / 'records' / chosen.name}.md, .json and .png; the trained runs:")
    for run in dict.fromkeys(run for trial in written["trials"].values() for run in trial["runs"]):
        print(f"  {Path(chosen.runs) / run}")


def run_resume(chosen: argparse.Namespace) -> None:
    run = find_run(chosen)
    moved = {key: value for key in ("device", "threads") if (value := getattr(chosen, key)) is not None}
    run.experiment = run.experiment.model_copy(update=moved)
    finish(run, chosen.imports)


def finish(run: Run, imports: list[str]) -> None:
    """Train a run to its end, and say what came out or how to go on."""
    again = "".join(f" --import {shlex.quote(name)}" for name in imports)
    if run.result is not None:
        print(f"{run.path} has finished already (`lengthwise train … --again` trains it again)")
    else:
        steps, training = run.experiment.steps, run.experiment.training
        print(f"{run.path}: {steps} steps", file=sys.stderr)
        if training.warmup_steps > steps:
            told = f"all of them with a rising learning rate: training.warmup_steps is {training.warmup_steps}"
            print(told, file=sys.stderr)
        try:
            api.resume(run)
        except KeyboardInterrupt:
            saved = "saved; " if run.checkpoint.exists() else ""
            print(f"\n{saved}go on with: lengthwise resume {run.path}{again}", file=sys.stderr)
            raise
    assert run.result is not None
    print_accuracies(run.result["evaluation"])
    if run.weights.exists():
        print(f'try it: lengthwise solve {run.path} "{example_problem(run)}"{again}')


def run_evaluate(chosen: argparse.Namespace) -> None:
    machine.prepare(chosen.device, chosen.threads)
    model = asked(chosen, api.load(find_model(chosen), chosen.device))
    tested = evaluate(
        model,
        chosen.lengths,
        chosen.examples,
        chosen.seed,
        sampling=chosen.sampling,
        layers=chosen.layers,
        sharpness=chosen.sharpness,
        progress=True,
    )
    results = [accuracy.to_json() for accuracy in tested]
    if chosen.json:
        print(json.dumps(results, indent=2))
        return
    print_accuracies(results, chosen.digits)


def asked(chosen: argparse.Namespace, model: Solver) -> Solver:
    """The model for the problems that were chosen."""
    return model if chosen.second_digits is None else model.multiplying_by(chosen.second_digits)


def run_stress(chosen: argparse.Namespace) -> None:
    machine.prepare("cpu", chosen.threads)
    model = asked(chosen, api.load(find_model(chosen)))
    outcomes = stress(model, chosen.lengths, chosen.examples, chosen.seed, chosen.layers, chosen.sharpness)
    if chosen.json:
        print(json.dumps([outcome.to_json() for outcome in outcomes], indent=2, ensure_ascii=False))
        return
    console().print(table(outcomes))


def run_show(chosen: argparse.Namespace) -> None:
    if Path(chosen.run).suffix in (".yaml", ".yml"):
        solver = configuration.load(chosen.run).build()
    else:
        solver = api.load(find_model(chosen))
    tokens = solver.show(chosen.problem)
    if chosen.json:
        print(json.dumps(tokens, indent=2, ensure_ascii=False))
    else:
        print_table(list(tokens[0]), [list(token.values()) for token in tokens])


def run_solve(chosen: argparse.Namespace) -> None:
    machine.prepare("cpu", threads=1)
    sys.set_int_max_str_digits(0)  # answers have as many digits as they have
    solutions = api.load(find_model(chosen)).explain(chosen.problem)
    if chosen.json:
        print(json.dumps([asdict(solution) for solution in solutions], indent=2, ensure_ascii=False))
        return
    for solution in solutions:
        output = " ".join(solution.symbols)
        answer = f"no number: {output}" if solution.answer is None else str(solution.answer)
        verdict = "right" if solution.right else f"wrong, it is {solution.correct}"
        print(f"{solution.problem.strip(' =')} = {answer}   ({verdict})")
        used = [pair for pair in zip(solution.symbols, solution.confidences, strict=True) if pair[0] != "<PAD>"]
        print("   " + "  ".join(f"{symbol} {100 * confidence:.0f} %" for symbol, confidence in used))


def run_analyze(chosen: argparse.Namespace) -> None:
    machine.prepare("cpu", threads=1)
    run = find_run(chosen)
    data = run.experiment.data
    length = min(data.train_digits + 1, data.test_digits) if chosen.length is None else chosen.length
    study = failure_study(run.load(), length, chosen.examples)
    tested = learning_curves(run.metrics()).tested
    learned = {
        n: [examples_to_reach(curve, chosen.level, digit) for digit in range(1, curve.digits.shape[1] + 1)]
        for n, curve in tested.items()
    }
    if chosen.json:
        print(json.dumps({"failures": study.to_json(), "level": chosen.level, "learned": learned}, indent=2))
        return
    print(f"{length} digits: {percent(study.correct / study.examples)} of {study.examples} problems right")
    for title, parts in {"carries": study.by_carries, "longest chain of carries": study.by_chain}.items():
        if parts is not None:
            print_table([title, "exact match", "problems"], [[k, percent(a / b), b] for k, (a, b) in parts.items()])
    wrong = study.examples - study.correct
    if wrong:
        rows = [[k, percent(count / wrong)] for k, count in study.wrong_symbols.items()]
        print_table(["wrong symbols", "of the wrong answers"], rows)
        rows = [[k, count] for k, count in study.wrong_position.items()]
        print_table(["position of the only wrong symbol (1 is written first)", "answers"], rows)
    rows = [[n, " ".join("never" if e is None else f"{e:,}" for e in when)] for n, when in learned.items()]
    print_table(["digits", f"examples until each symbol of the answer was at {percent(chosen.level)}"], rows)


def run_runs(chosen: argparse.Namespace) -> None:
    rows = overview(Path(chosen.runs))
    if chosen.json:
        print(json.dumps(rows, indent=2))
        return
    if not rows:
        print(f"there are no runs in {chosen.runs}/ yet; `lengthwise train` makes one")
        return
    shown = []
    for row in rows:
        told = row.get("reason") or summary(row["headline"])
        shown.append([row["run"], row["status"], f"{row['step']}/{row['steps']}", told])
    print_table(["run", "status", "step", "exact match"], shown)


def run_paper(chosen: argparse.Namespace) -> None:
    for name in chosen.artefacts:
        if name not in ARTEFACTS:
            raise UsageError(f"there is no artefact '{name}': {nearest(name, ARTEFACTS)}")
    if chosen.json and chosen.what != "list":
        raise UsageError("--json is for `paper list`; a report has its records in results/SCALE/runs")
    artefacts = [ARTEFACTS[name] for name in chosen.artefacts or ARTEFACTS]
    results, root = Path(chosen.results), Path(chosen.runs)
    if chosen.what == "list":
        costs = {a.name: cost(a, chosen.scale, chosen.seeds, results, root) for a in artefacts}
        if chosen.json:
            print(json.dumps({name: vars(c) for name, c in costs.items()}, indent=2))
            return
        rows = [
            [a.name, a.where, a.title, f"{c.done}/{c.runs}", f"{c.examples:.2g}", f"{c.flops:.2g}"]
            for a, c in ((a, costs[a.name]) for a in artefacts)
        ]
        headings = ["artefact", "where", "what", f"runs done ({chosen.seeds} seeds)", "examples", "FLOPs"]
        print_table(headings, rows)
    elif chosen.what == "run":
        if not chosen.artefacts and not chosen.all:
            raise UsageError("say which artefacts to run, or --all; `lengthwise paper list` lists them")
        engine = find_engine(chosen.on)  # before a run is made
        machine.check(chosen.device, threads=1)
        with Display() as display:
            failed = run_artefacts(
                artefacts,
                chosen.scale,
                chosen.seeds,
                chosen.jobs,
                results,
                root,
                chosen.device,
                display,
                only=chosen.only,
                retry=chosen.retry,
                engine=engine,
            )
        for path, reason in failed.items():
            print(f"failed: {path}: {reason}", file=sys.stderr)
        if failed:
            raise UsageError(
                f"{len(failed)} runs failed; the same command goes on with them, but trains those that diverged only"
                " with --retry"
            )
        print(f"recorded in {results / chosen.scale}; `lengthwise paper report --scale {chosen.scale}` shows them")
    else:
        out = Path(chosen.out) if chosen.out else results / chosen.scale
        if not any(record_path(results, chosen.scale, "").parent.glob("*.json")):
            print(f"there are no records in {results / chosen.scale} yet", file=sys.stderr)
        write_report(chosen.scale, results, root, out, artefacts)
        print(f"wrote {out / 'report.md'} and {out / 'report.html'}")


def run_list(chosen: argparse.Namespace) -> None:
    entries = listing(chosen.what)
    if chosen.json:
        print(json.dumps(entries, indent=2, ensure_ascii=False))
    else:
        rows = [[e["name"], e["what"], ", ".join(f"{k}={v}" for k, v in e["options"].items())] for e in entries]
        print_table([chosen.what[:-1], "what it is", "options"], rows)


def listing(what: str) -> list[dict[str, Any]]:
    """The registered tasks or position embeddings, or the presets of models."""
    if what == "presets":
        return [{"name": name, "what": "model", "options": fields} for name, fields in PRESETS.items()]
    registry: Any = TASKS if what == "tasks" else POSITIONS
    return [
        {
            "name": name,
            "what": (choice.__doc__ or "").partition("\n")[0],
            "options": {key: field.default for key, field in registry.options_of(choice).model_fields.items()},
        }
        for name, choice in registry.items()
    ]


def find_model(chosen: argparse.Namespace) -> Path | str:
    """A run may be named without its directory."""
    if not chosen.run.strip():
        raise UsageError("say which run; `lengthwise runs` lists them")
    given, inside = Path(chosen.run), Path(chosen.runs) / chosen.run
    if not given.exists() and Path(chosen.runs) in given.parents:  # and not on the Hub either
        raise UsageError(f"there is no run at {given}; `lengthwise runs` lists the runs")
    return inside if not given.exists() and inside.exists() else chosen.run


def find_run(chosen: argparse.Namespace) -> Run:
    return Run(find_model(chosen))


def example_problem(run: Run) -> str:
    """A problem one digit longer than those of training, if there is room."""
    data, task = run.experiment.data, run.experiment.task
    first, *rest = task.operand_digits(min(data.train_digits + 1, data.test_digits))
    return f" {task.symbol} ".join(["9" * first, *("123456789"[: min(n, 9)] for n in rest)])


def print_accuracies(accuracies: list[dict[str, Any]], with_digits: bool = False) -> None:
    headings = ["digits", "exact match", "95 % interval", "problems"]
    rows = []
    for a in accuracies:
        interval = f"{100 * a['low']:.1f}–{100 * a['high']:.1f} %"
        rows.append([a["length"], percent(a["exact_match"]), interval, a["examples"]])
        if with_digits:
            rows[-1].append(" ".join(f"{100 * share:.0f}" for share in a["digits"]))
    print_table([*headings, "each symbol of the answer, as written (%)"] if with_digits else headings, rows)


def print_table(headings: list[str], rows: list[Any]) -> None:
    table = Table(box=box.SIMPLE)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell).replace("[", "\\[") for cell in row))
    console().print(table)


def console() -> Console:
    """The terminal, or something wide enough for tables."""
    return Console() if sys.stdout.isatty() else Console(width=160)
