"""The command line: what can be said on it. What is done then is in `commands`, which `--help` doesn't wait for."""

import argparse
import os
import sys
from typing import Any, NoReturn

IMPORT = "import a Python file before, such as one that registers a task"


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
        chosen.artefacts = [*chosen.artefacts, *rest]  # names after options, which argparse doesn't put together
    elif rest and not getattr(chosen, "takes_keys", False):
        chosen.parser.error(f"unrecognised: {' '.join(rest)}")

    from lengthwise.errors import UsageError

    try:
        if getattr(chosen, "takes_keys", False):
            chosen.keys = rest
        from lengthwise import commands, extensions

        extensions.import_files(chosen.imports)

        getattr(commands, f"run_{chosen.command}")(chosen)
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
        what, why = error.filename or "the output", (error.strerror or "").lower()
        print(f"lengthwise: can't read or write {what}: {why}", file=sys.stderr)
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
    subcommands = Subcommands(parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser))
    add_training_commands(subcommands)
    add_model_commands(subcommands)
    add_listing_commands(subcommands)
    return parser


class Subcommands:
    """The subcommands, with what several of them take."""

    def __init__(self, parsers: Any):
        self.parsers = parsers

    def add(self, name: str, help: str, example: str, json: bool = False, runs: bool = True) -> Parser:
        command: Parser = self.parsers.add_parser(name, help=help, description=help, epilog=f"example:\n  {example}")
        command.set_defaults(command=name, parser=command)
        command.add_argument("--import", dest="imports", metavar="FILE", action="append", default=[], help=IMPORT)
        if json:
            command.add_argument("--json", action="store_true", help="for scripts")
        if runs:
            command.add_argument("--runs", metavar="DIR", default="runs", help="the directory of runs (default: runs)")
        return command


def add_training_commands(subcommands: Subcommands) -> None:
    """What trains."""
    demo = subcommands.add("demo", "show the paper's effects in minutes: a table and a figure", "lengthwise demo")
    demo.add_argument("--jobs", type=positive, default=2, help="runs at a time, one core each (default: 2)")
    demo.add_argument("--again", action="store_true", help="train again what has finished")
    demo.add_argument("--smoke", action="store_true", help="a few steps only, to see that everything works")

    train = subcommands.add(
        "train",
        "train a model; any configuration key can be set, as --key value",
        "lengthwise train --task.kind addition --model.position absolute --training.steps 2000",
    )
    train.usage = "lengthwise train [CONFIG.yaml] [--KEY VALUE ...] [--name NAME] [--runs DIR] [--again] [--keys]"
    train.add_argument("--name", help="the run's directory (default: task, embedding and a hash)")
    train.add_argument("--again", action="store_true", help="train again if the run has finished")
    train.add_argument("--keys", action=KeysAction, help="list the configuration keys, such as --model.width")
    train.set_defaults(takes_keys=True)

    record = subcommands.add(
        "record",
        "train and test a length record: from five digits to a thousand",
        "lengthwise record addition --seeds 3",
        json=True,
    )
    record.add_argument("name", metavar="NAME", help="such as addition or multiplication")
    record.add_argument("--seeds", type=positive, help="how many, from --seed on (default: 3, or 1 with --seed)")
    record.add_argument("--seed", type=natural, help="the first seed, and the only one unless --seeds is given")
    record.add_argument("--jobs", type=positive, default=2, help="runs at a time, one core each (default: 2)")
    record.add_argument("--results", metavar="DIR", default="results", help="where it is written (default: results)")

    resume = subcommands.add("resume", "go on with a run that was stopped", "lengthwise resume runs/my-run")
    resume.add_argument("run", metavar="RUN")
    resume.add_argument("--device", help="go on there: cpu, cuda or mps")
    resume.add_argument("--threads", type=int, help="CPU threads to go on with")


def add_model_commands(subcommands: Subcommands) -> None:
    """What asks a trained model."""
    evaluate = subcommands.add(
        "evaluate",
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

    solve = subcommands.add(
        "solve",
        "ask a model: the answer, each digit's confidence, right or wrong",
        'lengthwise solve runs/my-run "99999 + 1"',
        json=True,
    )
    solve.add_argument("run", metavar="RUN", help="a run, a saved model or a repository on the Hub")
    solve.add_argument("problem", metavar="PROBLEM", nargs="+", help='such as "99999 + 1"; × may be written x')

    show = subcommands.add(
        "show",
        "show how a problem is written: every token's symbol and coordinates, and where the answer is read",
        'lengthwise show runs/my-run "12 + 345"',
        json=True,
    )
    show.add_argument("run", metavar="RUN_OR_CONFIG", help="a run, a saved model or a configuration.yaml")
    show.add_argument("problem", metavar="PROBLEM", help='such as "12 + 345"; × may be written x')

    stress = subcommands.add(
        "stress",
        "test a model on special problems: long carries, no carries, unequal lengths, zeros, palindromes, extremes",
        "lengthwise stress runs/my-run --lengths 5,20,100",
        json=True,
    )
    stress.add_argument("run", metavar="RUN", help="a run, a saved model or a repository on the Hub")
    stress.add_argument("--lengths", default="5,10", help="such as 5,20,100 (default: 5,10)")
    stress.add_argument("--examples", type=int, default=200, help="most problems of each case (default: 200)")
    stress.add_argument("--seed", type=natural, default=0, help="of the problems (default: 0)")
    add_knobs(stress)

    analyze = subcommands.add(
        "analyze",
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


def add_listing_commands(subcommands: Subcommands) -> None:
    """What lists runs, artefacts and choices, and runs the paper."""
    subcommands.add("runs", "list the runs, with status and accuracy", "lengthwise runs", json=True)

    paper = subcommands.add(
        "paper",
        "the paper's tables and figures: list, run, report",
        "lengthwise paper run table-addition --scale smoke --seeds 1\n"
        "  lengthwise paper list --scale cpu\n"
        "  lengthwise paper report --scale cpu",
        json=True,
    )
    paper.add_argument("what", choices=["list", "run", "report"], metavar="list|run|report")
    paper.add_argument(
        "artefacts", nargs="*", default=[], metavar="ARTEFACT", help="such as table-addition (default: see --all)"
    )
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

    names = subcommands.add(
        "list", "list what there is to choose from", "lengthwise list positions", json=True, runs=False
    )
    names.add_argument("what", choices=["tasks", "positions", "presets"], metavar="tasks|positions|presets")


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
        from lengthwise.commands import print_table
        from lengthwise.experiment import keys

        print_table(["key", "default", "what it is"], list(keys()))
        sys.exit(0)
