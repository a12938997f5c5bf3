"""Arguments that several commands share, and the types of their values."""

import argparse
from typing import TYPE_CHECKING

from lengthwise.cli.command import Parser

if TYPE_CHECKING:
    from lengthwise.sweep import Engine


LONGEST_INTEGER = 18  # digits


def integer(least: int, text: str) -> int:
    if not text.isdecimal() or len(text) > LONGEST_INTEGER or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not an integer ≥ {least}")
    return int(text)


def natural(text: str) -> int:
    """An integer ≥ 0."""
    return integer(0, text)


def positive(text: str) -> int:
    """An integer ≥ 1."""
    return integer(1, text)


def share(text: str) -> float:
    """A number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 to 1, such as 0.9")
    return value


def second_digits(text: str) -> int | str:
    return text if text == "same" else positive(text)


def add_json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def add_runs(parser: Parser) -> None:
    parser.add_argument(
        "--runs", metavar="DIR", default="runs", help="the directory of runs (default: runs)"
    )


def add_results(parser: Parser) -> None:
    parser.add_argument(
        "--results",
        metavar="DIR",
        default="results",
        help="the directory of results (default: results)",
    )


def add_model(parser: Parser) -> None:
    """The model that a command asks, and the directory in which a run's name is looked up."""
    parser.add_argument(
        "run", metavar="RUN", help="a run, a saved model or a repository on the Hub"
    )
    add_runs(parser)


def add_run(parser: Parser) -> None:
    """The run that a command works on, and the directory in which its name is looked up."""
    parser.add_argument("run", metavar="RUN", help="a run: its path, or its name in --runs")
    add_runs(parser)


def add_jobs(parser: Parser) -> None:
    parser.add_argument(
        "--jobs", type=positive, default=2, help="runs at a time, one core each (default: 2)"
    )


def add_engine(parser: Parser) -> None:
    """What trains the runs: `--on`, `--jobs`, and the options of every engine."""
    from lengthwise.sweep import ENGINES

    group = parser.add_argument_group("where the runs are trained")
    group.add_argument(
        "--on",
        metavar="ENGINE",
        default="local",
        help=f"what trains the runs: {', '.join(ENGINES)} (default: local)",
    )
    group.add_argument(
        "--jobs",
        type=positive,
        help="runs at a time (default: 2 on this machine, elsewhere all that there is room for)",
    )
    group.add_argument(
        "--batch-seeds",
        metavar="N",
        type=positive,
        default=1,
        help="train up to N seeds of an experiment as one batched model, for a GPU (default: 1)",
    )
    for name, engine in ENGINES.items():
        for option, given in engine.options().items():
            group.add_argument(
                f"--{name}-{option.replace('_', '-')}",
                dest=f"{name}.{option}",
                metavar=given["metavar"],
                type=given["parse"],
                action="append" if given["repeated"] else "store",
                help=f"with --on {name}: {given['description']}",
            )


def engine(chosen: argparse.Namespace) -> "Engine":
    """The engine that `add_engine` let the user choose."""
    from lengthwise.sweep import ENGINES, build_engine

    # Engines of imported files are registered after the arguments, and have none.
    given = {
        name: {
            option: value
            for option in engine.options()
            if (value := getattr(chosen, f"{name}.{option}", None)) is not None
        }
        for name, engine in ENGINES.items()
    }
    return build_engine(chosen.on, chosen.jobs, given, chosen.batch_seeds)


def add_device(parser: Parser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps (default: cpu)")


def add_threads(parser: Parser) -> None:
    parser.add_argument("--threads", type=positive, default=1, help="CPU threads (default: 1)")


def add_layers(parser: Parser) -> None:
    parser.add_argument(
        "--layers",
        type=positive,
        help="apply shared layers this many times instead",
    )


def add_problem_seed(parser: Parser) -> None:
    parser.add_argument("--seed", type=natural, default=0, help="seed of the problems (default: 0)")


def add_second_digits(parser: Parser) -> None:
    parser.add_argument(
        "--second-digits",
        metavar="K",
        type=second_digits,
        help="multiply by numbers of K digits, or of as many as the first number has ('same')",
    )


def add_sharpness(parser: Parser) -> None:
    parser.add_argument(
        "--sharpness", type=float, default=1.0, help="factor of the attention scores (default: 1)"
    )


def add_log(parser: Parser) -> None:
    parser.add_argument(
        "--log", metavar="TRACKER", help="send the records to a tracker, too: tensorboard or wandb"
    )


def add_step(parser: Parser) -> None:
    parser.add_argument(
        "--step", type=natural, help="use the weights of this step (training.keep_checkpoints)"
    )
