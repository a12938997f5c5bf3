"""The process that asks a model: `python -m lengthwise.frontier.answering JOB.json`.

It runs in the sandbox. It knows the problems but not their answers. It writes the model's answers
part by part, so that a crash loses only the parts that follow.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.arithmetic.digits import Numbers, int_to_text
from lengthwise.base import generator

if TYPE_CHECKING:  # PyTorch is imported only if the model needs it
    from torch import nn

    from lengthwise.solver import Solver

Solve = Callable[[list[str]], Sequence[Any]]
CHARACTERS_AT_ONCE = 200_000
UNCHANGED = "unchanged"  # the weights as they are
NOISE = {"tiny noise": 1e-6, "noise of 10 %": 0.1}  # relative


def main(job_path: str) -> None:
    """Answer the problems of a job, with the weights as they are or changed by some probes."""
    job = json.loads(Path(job_path).read_text(encoding="utf-8"))
    Path(job_path).unlink()  # so that the model can't see that it is probed
    del sys.argv[1:]
    sys.set_int_max_str_digits(0)
    if job["kind"] == "file":
        solve, model = load_file(Path(job["source"]))
    else:
        solve, model = load_solver(job["source"], job["second digits"])
    facts = {"parameters": None if model is None else count_parameters(model)}
    Path(job["facts"]).write_text(json.dumps(facts), encoding="utf-8")
    with open(job["answers"], "w", encoding="utf-8") as file:
        for probe in job["probes"]:
            if probe != UNCHANGED:
                change_weights(model, probe)
            for part in split(job["problems"]):
                answers = [to_text(answer) for answer in ask(solve, part)]
                file.write(json.dumps({"probe": probe, "answers": answers}) + "\n")
                file.flush()


def load_file(path: Path) -> "tuple[Solve, nn.Module | None]":
    """The function `solve` of a Python file, and its `model` if it shows one."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("model_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(solve := getattr(module, "solve", None)):
        sys.exit("the file has no function solve(problems)")
    if "torch" not in sys.modules:
        return solve, None
    from torch import nn

    model = getattr(module, "model", None)
    return solve, model if isinstance(model, nn.Module) else None


def load_solver(source: str, second_digits: int) -> "tuple[Solve, Solver]":
    from lengthwise.base.extensions import import_files
    from lengthwise.training import api, machine

    machine.prepare("cpu", threads=1)
    import_files()
    solver = api.load(source)
    return solver_function(solver, second_digits), solver


def solver_function(solver: "Solver", second_digits: int) -> Solve:
    """The answers of one of our models as text, or None where the output is not a number."""
    from lengthwise.arithmetic.tasks import Product
    from lengthwise.solver.text import parse_problem

    task = solver.task
    if isinstance(task, Product) and second_digits > (task.second_digits or second_digits):
        solver = solver.with_second_digits("same")

    def solve(problems: list[str]) -> list[str | None]:
        parsed = [parse_problem(problem, solver.layout) for problem in problems]
        answers: list[str | None] = [None] * len(problems)
        for rows in solver.group_by_layout(parsed):
            columns = zip(*(parsed[row] for row in rows), strict=True)
            operands = tuple(Numbers.from_text(column) for column in columns)
            layout = solver.layout.fit(operands)
            with solver.testing():
                symbols = solver.answer_logits(operands, layout).argmax(-1).cpu().numpy()
            numbers, valid = layout.decode_answer(symbols)
            for row, text, is_number in zip(rows, numbers.to_text(), valid, strict=True):
                answers[row] = text if is_number else None
        return answers

    return solve


def count_parameters(model: "nn.Module") -> int:
    """The number of parameters and floating-point buffer entries; shared tensors count once."""
    tensors = [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]
    return sum({t.data_ptr(): t.numel() for t in tensors if t.numel()}.values())


def change_weights(model: "nn.Module | None", probe: str) -> None:
    """Change all weights: by noise, to the same numbers in another order, or to zero.

    Probes come in the order of the damage that they do, each on top of the last.
    """
    import torch

    if model is None:
        sys.exit("there is no model whose weights could be changed")
    rng = generator(0, "probe", probe)
    with torch.no_grad():
        for weights in model.parameters():
            if probe == "zeroed":
                weights.zero_()
            elif probe == "shuffled":
                order = torch.from_numpy(rng.permutation(weights.numel()))
                weights.copy_(weights.flatten()[order].view_as(weights))
            else:
                noise = torch.from_numpy(rng.normal(size=tuple(weights.shape))).to(weights)
                weights.mul_(1 + NOISE[probe] * noise)


def split(problems: Sequence[str]) -> Iterator[list[str]]:
    """Problems in their order, in parts of about CHARACTERS_AT_ONCE characters at most."""
    part: list[str] = []
    for problem in problems:
        if part and sum(map(len, part)) + len(problem) > CHARACTERS_AT_ONCE:
            yield part
            part = []
        part.append(problem)
    if part:
        yield part


def ask(solve: Solve, problems: list[str]) -> Sequence[Any]:
    answers = solve(list(problems))
    if not isinstance(answers, list | tuple) or len(answers) != len(problems):
        what = (
            f"{len(answers)} answers" if isinstance(answers, list | tuple) else repr(answers)[:80]
        )
        sys.exit(f"solve gave {what} for {len(problems)} problems")
    return answers


def to_text(answer: object) -> str | None:
    """An answer as decimal text; None where it isn't a number."""
    if isinstance(answer, int) and not isinstance(answer, bool) and answer >= 0:
        return int_to_text(answer)
    text = answer.strip() if isinstance(answer, str) else ""
    return text if text.isascii() and text.isdigit() else None


if __name__ == "__main__":
    main(sys.argv[1])
