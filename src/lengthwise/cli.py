"""The command line. Each command imports what it needs, so that `lengthwise --help` doesn't wait for torch."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from lengthwise.runs import Run
    from lengthwise.solver import Solver


class Parser(argparse.ArgumentParser):
    """Errors in one sentence, examples kept as they are written."""

    def __init__(self, **settings: Any):
        super().__init__(**settings, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"lengthwise: {message} (`{self.prog} --help` shows how)\n")


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for bad input, 130 if stopped by Ctrl-C."""
    parser = build_parser()
    chosen, rest = parser.parse_known_args(arguments)
    if not hasattr(chosen, "command"):
        if rest:
            parser.error(f"unrecognised: {' '.join(rest)}")
        parser.print_help()
        return 0
    if hasattr(chosen, "artefacts") and not any(word.startswith("-") for word in rest):
        chosen.artefacts += rest  # names after options, which argparse doesn't put together
    elif rest and not getattr(chosen, "takes_keys", False):
        parser.error(f"unrecognised: {' '.join(rest)}")

    from lengthwise.errors import UsageError

    try:
        if getattr(chosen, "takes_keys", False):
            chosen.keys = rest
        chosen.command(chosen)
        return 0
    except UsageError as error:
        print(f"lengthwise: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("lengthwise: stopped", file=sys.stderr)
        return 130
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
        print(f"lengthwise: this needs more memory than the machine has: {reason}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # as in `lengthwise runs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"lengthwise: can't read or write {error.filename}: {(error.strerror or '').lower()}", file=sys.stderr)
        return 2


def natural(text: str) -> int:
    """A whole number ≥ 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 up")
    return int(text)


def positive(text: str) -> int:
    """A whole number ≥ 1."""
    if natural(text) == 0:
        raise argparse.ArgumentTypeError("it is at least 1")
    return int(text)


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1, such as 0.9")
    return value


def build_parser() -> Parser:
    parser = Parser(
        prog="lengthwise",
        description="When a transformer learns arithmetic on short numbers, does it still work on long ones?",
        epilog="first steps:\n"
        "  lengthwise demo                                  the paper in miniature, in minutes\n"
        "  lengthwise train --task.kind addition --model.position relative-key\n"
        "  lengthwise runs\n"
        "  lengthwise COMMAND --help                        what a command takes, with an example",
    )
    parser.add_argument("--version", action=VersionAction, help="show the version and exit")
    commands = Commands(parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser))
    add_training_commands(commands)
    add_model_commands(commands)
    add_listing_commands(commands)
    return parser


class Commands:
    """The subcommands, with what several of them take."""

    def __init__(self, parsers: Any):
        self.parsers = parsers

    def add(self, name: str, run: Any, help: str, example: str, json: bool = False, runs: bool = True) -> Parser:
        command: Parser = self.parsers.add_parser(name, help=help, description=help, epilog=f"example:\n  {example}")
        command.set_defaults(command=run)
        if json:
            command.add_argument("--json", action="store_true", help="for scripts")
        if runs:
            command.add_argument("--runs", metavar="DIR", default="runs", help="the directory of runs (default: runs)")
        return command


def add_training_commands(commands: Commands) -> None:
    """What trains."""
    demo = commands.add(
        "demo", run_demo, "show the paper's effects in minutes: a table and a figure", "lengthwise demo"
    )
    demo.add_argument("--jobs", type=positive, default=2, help="runs at a time, one core each (default: 2)")
    demo.add_argument("--again", action="store_true", help="train again what has finished")
    demo.add_argument("--smoke", action="store_true", help="a few steps only, to see that everything works")

    train = commands.add(
        "train",
        run_train,
        "train a model; any configuration key can be set, as --key value",
        "lengthwise train --task.kind addition --model.position absolute --training.steps 2000",
    )
    train.usage = "lengthwise train [CONFIG.yaml] [--KEY VALUE ...] [--name NAME] [--runs DIR] [--again] [--keys]"
    train.add_argument("--name", help="the run's directory (default: task, embedding and a hash)")
    train.add_argument("--again", action="store_true", help="train again if the run has finished")
    train.add_argument("--keys", action=KeysAction, help="list the configuration keys, such as --model.width")
    train.set_defaults(takes_keys=True)

    record = commands.add(
        "record",
        run_record,
        "train and test a length record: from five digits to a thousand",
        "lengthwise record addition --seeds 3",
        json=True,
    )
    record.add_argument("name", metavar="NAME", help="such as addition or multiplication")
    record.add_argument("--seeds", type=positive, help="how many, from --seed on (default: 3, or 1 with --seed)")
    record.add_argument("--seed", type=natural, help="the first seed, and the only one unless --seeds is given")
    record.add_argument("--jobs", type=positive, default=2, help="runs at a time, one core each (default: 2)")
    record.add_argument("--results", metavar="DIR", default="results", help="where it is written (default: results)")

    resume = commands.add("resume", run_resume, "go on with a run that was stopped", "lengthwise resume runs/my-run")
    resume.add_argument("run", metavar="RUN")
    resume.add_argument("--device", help="go on there: cpu, cuda or mps")
    resume.add_argument("--threads", type=int, help="CPU threads to go on with")


def add_model_commands(commands: Commands) -> None:
    """What asks a trained model."""
    evaluate = commands.add(
        "evaluate",
        run_evaluate,
        "measure a model's accuracy by length on fresh problems",
        "lengthwise evaluate runs/my-run --lengths 5:10 --examples 10000",
        json=True,
    )
    evaluate.add_argument("run", metavar="RUN", help="a run, a saved model or a repository on the Hub")
    evaluate.add_argument("--lengths", help="such as 5:20 or 5,10,20 (default: all that the layout has room for)")
    evaluate.add_argument("--examples", type=int, default=1000, help="problems of each length (default: 1000)")
    evaluate.add_argument("--seed", type=natural, default=0, help="of the problems (default: 0)")
    evaluate.add_argument("--sampling", default="exact", help="of the operands, as data.sampling (default: exact)")
    add_knobs(evaluate)
    evaluate.add_argument("--digits", action="store_true", help="show the accuracy of each digit too")
    evaluate.add_argument("--device", default="cpu", help="cpu, cuda or mps (default: cpu)")

    solve = commands.add(
        "solve",
        run_solve,
        "ask a model: the answer, each digit's confidence, right or wrong",
        'lengthwise solve runs/my-run "99999 + 1"',
        json=True,
    )
    solve.add_argument("run", metavar="RUN", help="a run, a saved model or a repository on the Hub")
    solve.add_argument("problem", metavar="PROBLEM", nargs="+", help='such as "99999 + 1"; × may be written x')

    show = commands.add(
        "show",
        run_show,
        "show how a problem is written: every token's symbol and coordinates, and where the answer is read",
        'lengthwise show runs/my-run "12 + 345"',
        json=True,
    )
    show.add_argument("run", metavar="RUN_OR_CONFIG", help="a run, a saved model or a configuration.yaml")
    show.add_argument("problem", metavar="PROBLEM", help='such as "12 + 345"; × may be written x')

    stress = commands.add(
        "stress",
        run_stress,
        "test a model on special problems: long carries, no carries, unequal lengths, zeros, palindromes, extremes",
        "lengthwise stress runs/my-run --lengths 5,20,100",
        json=True,
    )
    stress.add_argument("run", metavar="RUN", help="a run, a saved model or a repository on the Hub")
    stress.add_argument("--lengths", default="5,10", help="such as 5,20,100 (default: 5,10)")
    stress.add_argument("--examples", type=int, default=200, help="most problems of each case (default: 200)")
    stress.add_argument("--seed", type=natural, default=0, help="of the problems (default: 0)")
    add_knobs(stress)

    analyze = commands.add(
        "analyze",
        run_analyze,
        "study a run: where it fails, and how it learned digit by digit",
        "lengthwise analyze runs/my-run --length 6",
        json=True,
    )
    analyze.add_argument("run", metavar="RUN")
    analyze.add_argument("--length", type=int, help="of the problems (default: one more than trained)")
    analyze.add_argument("--examples", type=int, default=2000, help="problems (default: 2000)")
    analyze.add_argument("--level", type=share, default=0.9, help="when a digit counts as learned (default: 0.9)")


def add_knobs(command: Parser) -> None:
    """What can be turned on a trained model, and asked of it."""
    command.add_argument("--layers", type=int, help="apply shared layers so often, instead of as configured")
    command.add_argument("--sharpness", type=float, default=1.0, help="factor of the attention scores (default: 1)")
    command.add_argument(
        "--second-digits",
        metavar="K",
        type=lambda text: text if text == "same" else natural(text),
        help="ask for products by numbers of so many digits, or of the same as the first",
    )
    command.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")


def add_listing_commands(commands: Commands) -> None:
    """What lists runs, artefacts and choices, and runs the paper."""
    commands.add("runs", run_runs, "list the runs, with status and accuracy", "lengthwise runs", json=True)

    paper = commands.add(
        "paper",
        run_paper,
        "the paper's tables and figures: list, run, report",
        "lengthwise paper run table-addition --scale smoke --seeds 1\n"
        "  lengthwise paper list --scale cpu\n"
        "  lengthwise paper report --scale cpu",
        json=True,
    )
    paper.add_argument("what", choices=["list", "run", "report"])
    paper.add_argument("artefacts", nargs="*", metavar="ARTEFACT", help="such as table-addition (default: see --all)")
    paper.add_argument("--all", action="store_true", help="run every artefact")
    paper.add_argument("--only", metavar="TEXT", default="", help="run only settings whose label has this text")
    paper.add_argument("--scale", choices=["smoke", "cpu", "paper"], default="cpu", help="(default: cpu)")
    paper.add_argument("--seeds", type=positive, default=3, help="seeds a setting (default: 3)")
    paper.add_argument("--jobs", type=positive, default=2, help="runs at a time, one core each (default: 2)")
    paper.add_argument("--on", metavar="ENGINE", default="local", help="what trains the runs (default: local)")
    paper.add_argument("--retry", action="store_true", help="train runs that failed again, from the start")
    paper.add_argument("--device", default="cpu", help="cpu, cuda or mps (default: cpu)")
    paper.add_argument("--results", metavar="DIR", default="results", help="where records are (default: results)")
    paper.add_argument("--out", metavar="DIR", help="of the report (default: results/SCALE)")

    names = commands.add(
        "list", run_list, "list what there is to choose from", "lengthwise list positions", json=True, runs=False
    )
    names.add_argument("what", choices=["tasks", "positions", "presets"])


class VersionAction(argparse.Action):
    """`--version`, looked up only when it is asked for."""

    def __init__(self, **settings: Any):
        super().__init__(**settings, nargs=0)

    def __call__(self, *_: Any) -> None:
        import lengthwise

        print(f"lengthwise {lengthwise.__version__}")
        sys.exit(0)


class KeysAction(argparse.Action):
    """`train --keys`: every key with its default, from the configuration itself."""

    def __init__(self, **settings: Any):
        super().__init__(**settings, nargs=0)

    def __call__(self, *_: Any) -> None:
        from lengthwise.experiment import keys

        print_table(["key", "default", "what it is"], list(keys()))
        sys.exit(0)


def run_demo(chosen: argparse.Namespace) -> None:
    from lengthwise.demo import demo

    demo(Path(chosen.runs), chosen.jobs, chosen.again, chosen.smoke)


def run_train(chosen: argparse.Namespace) -> None:
    from lengthwise import api
    from lengthwise import experiment as configuration

    file = chosen.keys.pop(0) if chosen.keys and not chosen.keys[0].startswith("-") else None
    experiment = configuration.load(file, configuration.parse_overrides(chosen.keys))
    finish(api.make_run(experiment, chosen.runs, chosen.name, chosen.again))


def run_record(chosen: argparse.Namespace) -> None:
    from lengthwise.display import Display
    from lengthwise.record import make, page

    first = chosen.seed or 0
    many = chosen.seeds or (3 if chosen.seed is None else 1)
    with Display() as display:
        seeds = range(first, first + many)
        written = make(chosen.name, seeds, chosen.jobs, Path(chosen.runs), Path(chosen.results), display)
    if chosen.json:
        print(json.dumps(written, indent=2, ensure_ascii=False))
        return
    print("\n".join(page(written)))
    print(f"written to {Path(chosen.results) / 'records' / chosen.name}.md and .json; the trained runs:")
    for run in dict.fromkeys(run for trial in written["trials"].values() for run in trial["runs"]):
        print(f"  {Path(chosen.runs) / run}")


def run_resume(chosen: argparse.Namespace) -> None:
    run = find_run(chosen)
    moved = {key: value for key in ("device", "threads") if (value := getattr(chosen, key)) is not None}
    run.experiment = run.experiment.model_copy(update=moved)
    finish(run)


def finish(run: "Run") -> None:
    """Train a run to its end, and say what came out or how to go on."""
    from lengthwise import api

    if run.result is not None:
        print(f"{run.path} has finished already (`lengthwise train … --again` trains it again)")
    else:
        print(f"{run.path}: {run.experiment.steps} steps", file=sys.stderr)
        try:
            api.resume(run)
        except KeyboardInterrupt:
            saved = "saved; " if run.checkpoint.exists() else ""
            print(f"\n{saved}go on with: lengthwise resume {run.path}", file=sys.stderr)
            raise
    assert run.result is not None
    print_accuracies(run.result["evaluation"])
    print(f'try it: lengthwise solve {run.path} "{example_problem(run)}"')


def run_evaluate(chosen: argparse.Namespace) -> None:
    from rich.progress import track

    from lengthwise import api, machine
    from lengthwise.data import BLOCK, evaluation_set
    from lengthwise.evaluation import accuracy, check_lengths

    machine.prepare(chosen.device, chosen.threads)
    model = asked(chosen, api.load(find_model(chosen), chosen.device))
    results = []
    for length in check_lengths(model, chosen.lengths, chosen.examples):
        blocks = evaluation_set(model.task, length, chosen.examples, chosen.seed, sampling=chosen.sampling)
        shown = track(
            blocks,
            f"{length} digits",
            total=-(-chosen.examples // BLOCK),
            transient=True,
            console=stderr(),
            disable=not sys.stderr.isatty(),
        )
        results.append(accuracy(model, length, shown, chosen.layers, chosen.sharpness).record())
    if chosen.json:
        print(json.dumps(results, indent=2))
        return
    print_accuracies(results, chosen.digits)


def asked(chosen: argparse.Namespace, model: "Solver") -> "Solver":
    """The model for the problems that were chosen."""
    return model if chosen.second_digits is None else model.multiplying_by(chosen.second_digits)


def run_stress(chosen: argparse.Namespace) -> None:
    from rich.console import Console

    from lengthwise import api, machine
    from lengthwise.stress import stress, table

    machine.prepare("cpu", chosen.threads)
    model = asked(chosen, api.load(find_model(chosen)))
    outcomes = stress(model, chosen.lengths, chosen.examples, chosen.seed, chosen.layers, chosen.sharpness)
    if chosen.json:
        print(json.dumps([outcome.record() for outcome in outcomes], indent=2, ensure_ascii=False))
        return
    (Console() if sys.stdout.isatty() else Console(width=160)).print(table(outcomes))


def run_show(chosen: argparse.Namespace) -> None:
    from lengthwise import api
    from lengthwise import experiment as configuration

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
    from dataclasses import asdict

    from lengthwise import api, machine

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
    from lengthwise import machine
    from lengthwise.analysis import examples_to_reach, failure_study, learning_curves
    from lengthwise.display import percent

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
        print(json.dumps({"failures": study.record(), "level": chosen.level, "learned": learned}, indent=2))
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
    from lengthwise.display import summary
    from lengthwise.runs import overview

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
    from lengthwise import machine
    from lengthwise.display import Display
    from lengthwise.errors import UsageError, nearest
    from lengthwise.paper import ARTEFACTS
    from lengthwise.paper.running import cost, run_artefacts
    from lengthwise.report import write_report
    from lengthwise.sweep import find_engine

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
    from lengthwise.model import PRESETS
    from lengthwise.positions import POSITIONS
    from lengthwise.tasks import TASKS

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
    from lengthwise.errors import UsageError

    if not chosen.run.strip():
        raise UsageError("say which run; `lengthwise runs` lists them")
    given, inside = Path(chosen.run), Path(chosen.runs) / chosen.run
    if not given.exists() and Path(chosen.runs) in given.parents:  # and not on the Hub either
        raise UsageError(f"there is no run at {given}; `lengthwise runs` lists the runs")
    return inside if not given.exists() and inside.exists() else chosen.run


def find_run(chosen: argparse.Namespace) -> "Run":
    from lengthwise.runs import Run

    return Run(find_model(chosen))


def example_problem(run: "Run") -> str:
    """A problem one digit longer than those of training, if there is room."""
    data, task = run.experiment.data, run.experiment.task
    first, *rest = task.operand_digits(min(data.train_digits + 1, data.test_digits))
    return f" {task.symbol} ".join(["9" * first, *("123456789"[: min(n, 9)] for n in rest)])


def print_accuracies(accuracies: list[dict[str, Any]], with_digits: bool = False) -> None:
    from lengthwise.display import percent

    headings = ["digits", "exact match", "95 % interval", "problems"]
    rows = []
    for a in accuracies:
        interval = f"{100 * a['low']:.1f}–{100 * a['high']:.1f} %"
        rows.append([a["length"], percent(a["exact_match"]), interval, a["examples"]])
        if with_digits:
            rows[-1].append(" ".join(f"{100 * share:.0f}" for share in a["digits"]))
    print_table([*headings, "each symbol of the answer, as written (%)"] if with_digits else headings, rows)


def stderr() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def print_table(headings: list[str], rows: list[Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell).replace("[", "\\[") for cell in row))
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)
