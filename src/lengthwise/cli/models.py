"""How commands find the models that they are given."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.solver import Solver


def find_path(name: str, runs: str) -> Path | str:
    """The path of a run or model, or its Hub id; a run may be named without its directory."""
    from lengthwise.base import UsageError

    if not name.strip():
        raise UsageError("a run is missing; `lengthwise runs` lists the runs")
    given, inside = Path(name), Path(runs) / name
    if given.exists():
        return name
    if Path(runs) in given.parents:  # so it is not on the Hub either
        raise UsageError(f"there is no run at {given}; `lengthwise runs` lists the runs")
    return inside if inside.exists() else name


def load_model(chosen: argparse.Namespace) -> "Solver":
    """The model that a command names, on its device, for the products that it is asked."""
    from lengthwise.training import api, machine

    device = getattr(chosen, "device", "cpu")
    machine.prepare(device, getattr(chosen, "threads", 1))
    solver = api.load(find_path(chosen.run, chosen.runs), device, getattr(chosen, "step", None))
    second = getattr(chosen, "second_digits", None)
    return solver if second is None else solver.with_second_digits(second)
