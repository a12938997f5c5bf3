"""The exported file: its JavaScript computes what PyTorch does, and the file needs nothing else."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from node import NODE, run_node

import lengthwise
from lengthwise.arithmetic.digits import Numbers, random_numbers
from lengthwise.base import UsageError
from lengthwise.cli.main import main
from lengthwise.evaluation.stress import CASES
from lengthwise.page.export import STATIC, bundle, check_support, describe_model, render
from lengthwise.page.jobs import Models, ask, show_attention
from lengthwise.page.trace import trace_attention, trace_steps
from lengthwise.solver import Solver
from lengthwise.training import keys
from lengthwise.training.loop import initial_solver

RECORD = {
    "layout": {"kind": "fitted", "order": "least-significant-first"},
    "model.width": 32,
    "model.heads": 4,
    "model.layers": 3,
    "model.attention": {"kind": "positional", "window": 1},
    "model.depth": {"kind": "until-stable", "reinject_input": True},
    "model.position": {
        "kind": "relative-bias",
        "coordinate": "significance",
        "clip": 1,
        "by_operands": True,
        "strength": 16,
    },
}
REWRITE = {
    **RECORD,
    "model.attention": "columns",
    "model.depth": {"kind": "rewrite", "layers_per_round": 2},
}
OWN_LAYERS = {"model.encoder": "transformer", "model.layers": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "until-stable": RECORD,
    "rewrite": REWRITE,
    "rewrite, shared operand": {
        **REWRITE,
        "task": {"kind": "multiplication", "second_digits": 2},
        "model.depth.layers_per_round": 3,
    },
    "rewrite, long multiplication": {
        **REWRITE,
        "task": {"kind": "multiplication", "second_digits": 3},
        "layout": "long-multiplication",
        "model.depth.layers_per_round": 3,
    },
    "rewrite, three operands": {
        **REWRITE,
        "task": {"kind": "addition", "operands": 3},
        "layout": {"kind": "paper", "order": "most-significant-first"},
        "model.embedding_width": 12,
        "model.norm": "pre",
    },
    "absolute": {"model.position": "absolute"},
    "relative-key": {"model.position": "relative-key", **OWN_LAYERS},
    "relative-key-query": {"model.position": "relative-key-query", "model.scale_relative": True},
    "over-significance": {
        "model.position": {"kind": "relative-key", "coordinate": "significance", "clip": 3},
        "layout": "compact",
        "task": {"kind": "multiplication", "second_digits": 2},
    },
    "albert": {
        "model.position": {"kind": "absolute", "coordinate": "significance"},
        "model.embedding_width": 12,
        "model.activation": "gelu-tanh",
    },
    "pre-norm": {
        "model.norm": "pre",
        "model.activation": "gelu",
        "model.position": "relative-bias",
        "model.attention.mask_padding": True,
        **OWN_LAYERS,
    },
    "local": {
        "model.attention": {"kind": "local", "window": 2},
        "model.position": {"kind": "relative-key", "clip": 2},
        "layout": {"kind": "paper", "order": "least-significant-first"},
        "task": {"kind": "multiplication", "second_digits": 2},
    },
    "none, modular": {
        "model.position": "none",
        "task": {"kind": "modular-multiplication", "modulus": 1000, "constant_length": True},
    },
    "three operands": {
        "task": {"kind": "addition", "operands": 3},
        "layout": "fitted",
        "model.position": {"kind": "relative-key", "clip": 4},
    },
}
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")


def build(name: str) -> tuple[Any, Solver]:
    """An untrained model, with weights large enough that every part matters."""
    fields = {"model.preset": "tiny", "data.test_digits": 8, "seed": 3, **SETTINGS[name]}
    experiment = keys.load(None, fields)
    solver = initial_solver(experiment).eval()
    rng = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in solver.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng))
    return experiment, solver


def sample_problems(solver: Solver, count: int) -> list[str]:
    """Random problems of all lengths, and one of each stress case."""
    task, rng, problems = solver.task, np.random.default_rng(0), []
    for length in rng.integers(1, 9, count).tolist():
        sizes = (np.full(1, n) for n in task.operand_digits(length))
        problems.append([random_numbers(rng, size) for size in sizes])
    for case in CASES.values():
        if case.applies(task):
            problems += [list(operands) for _, operands in case.problems(task, 8, 1, 0)]
    texts = ([numbers.to_text()[0] for numbers in task.admit(*p)] for p in problems)
    return [f" {task.symbol} ".join(operands) for operands in texts]


def read_operands(solver: Solver, problem: str) -> tuple[Numbers, ...]:
    return tuple(Numbers.from_text([text]) for text in re.findall(r"\d+", problem))


@needs_node
@pytest.mark.parametrize("name", SETTINGS)
def test_javascript_computes_what_pytorch_does(name: str, tmp_path: Path) -> None:
    """Logits to 1e-4, every digit after every layer, and the right answer by Python's integers."""
    experiment, solver = build(name)
    problems = sample_problems(solver, 25)
    model = describe_model(name, experiment, solver, [])
    check_support(name, experiment)
    for problem, found in zip(problems, run_node(model, problems, tmp_path), strict=True):
        assert "error" not in found, (problem, found)
        operands = read_operands(solver, problem)
        layout = solver.layout.fit(operands)
        with solver.testing():
            expected = solver.answer_logits(operands, layout)[0].numpy()
        logits = np.reshape(found["logits"], expected.shape)
        assert np.abs(logits - expected).max() < 1e-4 * max(1, np.abs(expected).max()), problem
        steps = trace_steps(solver, operands)
        assert [s["iteration"] for s in found["steps"]] == [s["iteration"] for s in steps]
        assert [s["symbols"] for s in found["steps"]] == [s["symbols"] for s in steps]
        for ours, theirs in zip(found["steps"], steps, strict=True):
            assert np.allclose(ours["confidence"], theirs["confidence"], atol=1.01)
        correct = solver.task.answer(*operands)
        assert found["correct"] == correct.to_text()[0]
        assert found["truth"] == layout.encode_answer(correct)[0].tolist()
        numbers, valid = layout.decode_answer(np.array([found["steps"][-1]["symbols"]]))
        assert found["answer"] == (numbers.to_text()[0] if valid[0] else None)
        check_attention(solver, operands, steps[-1]["iteration"], found)


def check_attention(
    solver: Solver, operands: tuple[Numbers, ...], iteration: int, found: dict[str, Any]
) -> None:
    queries = range(len(found["read"]))
    expected = trace_attention(solver, operands, iteration, queries)
    tokens = len(found["tokens"]["symbol"])

    def dense(rows: Any) -> np.ndarray:
        table = np.zeros((len(rows), len(queries), tokens))
        for head, by_query in enumerate(rows):
            for query, keys_ in enumerate(by_query):
                for key, weight in keys_:
                    table[head, query, key] = weight
        return table

    # A weight near the smallest that is shown may be left out of one and not of the other.
    assert np.abs(dense(found["attention"]) - dense(expected)).max() <= 11


@pytest.mark.parametrize("name", ["until-stable", "rewrite", "relative-key", "local"])
def test_the_light_trace_is_the_full_one(name: str) -> None:
    """`Solver.trace` is written apart from it."""
    _, solver = build(name)
    problem = sample_problems(solver, 1)[0]
    operands, full = read_operands(solver, problem), solver.trace(problem)
    steps = trace_steps(solver, operands)
    layers = 2 if name == "rewrite" else 1  # of an iteration; each has two points
    points = [2 * layers * step["iteration"] for step in steps]
    assert name == "rewrite" or points[-1] == len(full.points) - 1
    assert [s["symbols"] for s in steps] == full.symbols[0, points].tolist()
    shares = [[c / 1000 for c in s["confidence"]] for s in steps]
    assert np.allclose(shares, full.confidences[0, points], atol=6e-4)
    count = len(full.answer_at)
    for iteration in (1, steps[-1]["iteration"]):
        found = trace_attention(solver, operands, iteration, range(count))
        for head, query in np.ndindex(len(found), count):
            row = full.patterns[0, layers * (iteration - 1), head, query]
            expected = {k: w for k, w in enumerate(np.round(1000 * row)) if w >= 10}
            assert dict(found[head][query]) == expected


@needs_node
def test_bad_problems_get_a_sentence(tmp_path: Path) -> None:
    experiment, solver = build("absolute")
    model = describe_model("absolute", experiment, solver, [])
    bad = ["", "1 +", "1 × 2", "1 + 2 + 3", "x" * 1000, "123456789 + 1", "1 + -2", "１ + ２"]
    found = run_node(model, bad, tmp_path)
    assert all(set(f) == {"error"} and len(f["error"]) < 150 for f in found), found
    (answered,) = run_node(model, [" 007+05 = "], tmp_path)
    assert answered["operands"] == ["7", "5"]


def test_what_javascript_does_not_compute_is_refused() -> None:
    fields: dict[str, Any] = {"model.position": "rope", "model.preset": "tiny"}
    with pytest.raises(UsageError, match="position embedding 'rope'"):
        check_support("mine", keys.load(None, fields))
    rows = {
        "task": {"kind": "multiplication", "second_digits": 3},
        "layout": "long-multiplication",
        "model.attention": {"kind": "local", "window": 1},
    }
    with pytest.raises(UsageError, match="'local', but a file computes this layout with columns"):
        check_support("mine", keys.load(None, rows))


def test_modules_can_be_joined() -> None:
    """`bundle` puts modules into one scope: no name is defined twice, every import exists."""
    defined = r"^(?:export )?(?:async )?(?:function\*?|const|let|class) (\w+)"
    names: Counter[str] = Counter()
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        names.update(re.findall(defined, text, re.MULTILINE))
        for imported, file in re.findall(r'^import \{([^}]*)\} from "\./(.*)";', text, re.M):
            exported = re.findall(rf"^export {defined[1:]}".replace("(?:export )?", ""),
                                  (STATIC / file).read_text(), re.M)  # fmt: skip
            assert set(re.findall(r"\w+", imported)) <= set(exported), (path.name, file)
        assert "import(" not in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert [name for name, count in names.items() if count > 1] == []
    assert not re.search(r"^(import|export) ", bundle("exported.js"), re.MULTILINE)


def test_the_file_holds_models_safely(tmp_path: Path) -> None:
    """A name can't end the script element that holds it, and the policy forbids every request."""
    experiment, solver = build("absolute")
    name = '</script><script>alert("x")</script>'
    page = render([describe_model(name, experiment, solver, [])])
    assert "</script><script>alert" not in page
    data = re.search(r'id="models">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])[0]["name"] == name
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)


def test_export_and_ask_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {
        "model.preset": "tiny",
        "training.steps": 2,
        "evaluation.examples": 5,
        "evaluation.final_examples": 5,
    }
    run = lengthwise.train(fields, tmp_path, "sum", progress=False)
    words = ["page", "export", "sum", "--runs", str(tmp_path), "--out", str(tmp_path / "sum.html")]
    assert main(words) == 0
    assert "wrote" in capsys.readouterr().out
    assert '"name":"sum"' in (tmp_path / "sum.html").read_text()
    assert main([*words[:2], "none", *words[3:]]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(words[:2])
    assert "(see `lengthwise page export --help`)" in capsys.readouterr().err
    models = Models(tmp_path)
    answer = ask(models, "sum", "12 + 34")
    (solution,) = run.load().explain("12 + 34")
    vocabulary = answer["vocabulary"]
    read = [vocabulary[symbol] for symbol in answer["steps"][-1]["symbols"]]
    assert read == list(solution.symbols)
    assert answer["correct"] == "46"
    assert answer["right"] is solution.right
    heads = show_attention(models, "sum", "12 + 34", 1, 0, 5)
    assert [len(head) for head in heads] == [5, 5]
    with pytest.raises(UsageError, match="there is no run"):
        ask(models, "../sum", "1 + 1")
