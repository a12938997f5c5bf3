"""Every edit of the source takes effect, with the C code and without; comments change nothing.

Copies of the package are edited as a researcher would, and run in a process of their own.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from edits import is_sentence

import lengthwise

SOURCE, TESTS = Path(lengthwise.__file__).parent, Path(__file__).parent
UNEDITED = "unedited"
OTHER_FILES = ("depth", "pairs", "positions/relative", "positions/position")
Results = dict[str, dict[str, Any]]

# Name: a file of the model, a line of it, and what takes its place.
EDITS: dict[str, tuple[str, str, str]] = {
    "sigmoid for softmax": ("attention", "nn.Softmax(dim=-1)", "nn.Sigmoid()"),
    "capped scores": ("attention", "scores + relative", "(scores + relative).tanh()"),
    "scale of scores": ("attention", "/ math.sqrt(self.head_width)", "/ self.head_width"),
    "no value projection": ("attention", "self.split_heads(self.value(x))", "self.split_heads(x)"),
    "doubled feedforward": (
        "encoder",
        "return self.narrow(self.activation(self.widen(x)))",
        "return 2 * self.narrow(self.activation(self.widen(x)))",
    ),
    "no residual": (
        "encoder",
        "self.attention_norm(x[:, : pairs.queries] + self.dropout(attended))",
        "self.attention_norm(self.dropout(attended))",
    ),
    "no norm": (
        "encoder",
        "return self.feedforward_norm(x + self.dropout(self.feedforward(x)))",
        "return x + self.dropout(self.feedforward(x))",
    ),
    "another norm": ("encoder", "attention_norm = nn.LayerNorm(", "attention_norm = nn.RMSNorm("),
    "another activation": ("encoder", "return nn.ReLU()", "return nn.SiLU()"),
    "another classifier": (
        "encoder",
        "return self.classifier(self.final_norm(x))",
        "return self.classifier(self.final_norm(x)).tanh()",
    ),
    "no embedding norm": (
        "encoder",
        "self.project(self.dropout(self.embedding_norm(x)))",
        "self.project(self.dropout(x))",
    ),
    "inner width": ("encoder", "or 4 * config.width", "or 3 * config.width"),
    "initial weights": ("encoder", "module.bias.zero_()", "module.bias.fill_(0.5)"),
    "residual around a layer": (
        "encoder",
        "return layer(x, self.position(i), own_pairs, read)",
        "return x[:, : own_pairs.queries] + layer(x, self.position(i), own_pairs, read)",
    ),
    "one layer more": ("depth", "for i in range(depth - 1):", "for i in range(depth):"),
    "negated layers": ("depth", "x = encoder.apply_layer(", "x = -encoder.apply_layer("),
    "reversed distance": ("pairs", "return query - key", "return key - query"),
    "doubled relative scores": (
        "positions/relative",
        "return multiply_by_query(q, self.vectors(pairs))",
        "return 2 * multiply_by_query(q, self.vectors(pairs))",
    ),
    "scaled relative vectors": ("positions/relative", "* self.scale", "* self.scale * 3"),
    "reversed queries": ("positions/position", "return q, k", "return q.flip(-1), k"),
    "another default": ("config", '"relu", description', '"gelu", description'),
}
NEUTRAL: dict[str, tuple[str, str, str]] = {
    "docstring": ("encoder", '"""(b, i, width) -> logits (b, i, vocabulary)"""', '"""Reads."""'),
    "comment": ("attention", "scores = scores + relative", "scores = scores + relative  # Shaw"),
    "formatting": ("depth", "apply_layer(i, x, pairs)", "apply_layer(\n i, x, pairs,\n )"),
    "blank lines": ("pairs", "        return query - key", "\n\n        return (query - key)"),
}
NO_GRADIENT = "feedforward without gradients"
IN_C = {"another default"}  # an option that the C code knows

# Patches made before the model is first used, when nothing is known of what was there.
PATCHES = {
    "attention.forward": """
from lengthwise.model.attention import FullAttention as c
forward = c.forward
patch.setattr(c, "forward", lambda *a: 2 * forward(*a))""",
    "wrapped feedforward": """
from functools import wraps
from lengthwise.model.encoder import Layer as c
feedforward = c.feedforward
patch.setattr(c, "feedforward", wraps(feedforward)(lambda *a: 2 * feedforward(*a)))""",
    "feedforward without gradients": """
import torch
from lengthwise.model.encoder import Layer as c
patch.setattr(c, "feedforward", torch.no_grad()(c.feedforward))""",
    "methods exchanged": """
from lengthwise.model.encoder import Encoder as c
patch.setattr(c, "apply_layer", lambda self, i, x, *a, **o: -x[:, : o.get("queries")])""",
    "a method of a base class": """
from lengthwise.model.attention import FullAttention as c
from lengthwise.model.attention import Attention
patch.setattr(c, "merge_heads", lambda *a: 2 * Attention.merge_heads(*a), raising=False)""",
    "a callable object": """
from functools import partialmethod
from lengthwise.model.encoder import Layer as c
feedforward = c.feedforward
patch.setattr(c, "feedforward", partialmethod(lambda self, f, x: f * feedforward(self, x), 2))""",
    "depth": """
from lengthwise.model.depth import FixedDepth as c
run = c.run
patch.setattr(c, "run", lambda *a: 2 * run(*a))""",
    "a function": """
from lengthwise.model.positions import relative as m
multiply = m.multiply_by_query
patch.setattr(m, "multiply_by_query", lambda *a: 2 * multiply(*a))""",
    "nn.Linear.forward": """
from torch import nn
forward = nn.Linear.forward
patch.setattr(nn.Linear, "forward", lambda *a: 2 * forward(*a))""",
    "nn.ReLU.forward by another of PyTorch's": """
from torch import nn
patch.setattr(nn.ReLU, "forward", nn.Tanh.forward)""",
    "F.linear": """
import torch.nn.functional as F
linear = F.linear
patch.setattr(F, "linear", lambda *a: 2 * linear(*a))""",
    "F.relu by another of PyTorch's": """
import torch.nn.functional as F
silu = F.silu
patch.setattr(F, "relu", silu)""",
    "torch.einsum": """
import torch
einsum = torch.einsum
patch.setattr(torch, "einsum", lambda *a: 2 * einsum(*a))""",
    "Tensor.__matmul__": """
from torch import Tensor
matmul = Tensor.__matmul__
patch.setattr(Tensor, "__matmul__", lambda *a: 2 * matmul(*a))""",
    "Tensor.softmax by another of PyTorch's": """
from torch import Tensor
patch.setattr(Tensor, "softmax", Tensor.log_softmax)""",
    "torch.nn.LayerNorm": """
from torch import nn
class LouderNorm(nn.LayerNorm):
    def forward(self, x):
        return 2 * super().forward(x)
patch.setattr(nn, "LayerNorm", LouderNorm)""",
    "an imported module": """
from types import SimpleNamespace
from lengthwise.model import attention
patch.setattr(attention, "math", SimpleNamespace(sqrt=lambda x: 1))""",
    "a generated method": """
import torch
from lengthwise.model.pairs import Pairs
generated = Pairs.__init__
def init(self, coordinates, queries, hidden=None, band=None, weights=None):
    hidden = torch.arange(coordinates.index.shape[-1])[None] == 0
    generated(self, coordinates, queries, hidden, band, weights)
patch.setattr(Pairs, "__init__", init)""",
    "a registry": """
from lengthwise.model.attention import ATTENTIONS, FullAttention
class Capped(FullAttention):
    def mask(self, scores, pairs):
        return super().mask(scores.tanh(), pairs)
patch.setitem(ATTENTIONS._classes, "full", Capped)""",
}


def edit_copy(folder: Path, name: str, old: str, new: str) -> None:
    path = folder / "lengthwise" / "model" / f"{name}.py"
    text = path.read_text()
    assert old in text, f"{path.name} has no {old!r} any more"
    path.write_text(text.replace(old, new, 1))


def run(root: Path, edits: dict[str, tuple[str, str, str]], patches: dict[str, str]) -> Results:
    """What the unedited package, edited copies and patches of it compute, in one process."""
    jobs = {}
    for number, (name, edit) in enumerate({UNEDITED: None, **edits}.items()):
        folder = root / str(number)
        ignored = shutil.ignore_patterns("__pycache__", "paper", "frontier", "cli")
        shutil.copytree(SOURCE, folder / "lengthwise", ignore=ignored)
        if edit is not None:
            edit_copy(folder, *edit)
        jobs[name] = (str(folder), "")
    jobs |= {name: (jobs[UNEDITED][0], code) for name, code in patches.items()}
    done = subprocess.run(
        [sys.executable, str(TESTS / "fresh_edits.py")],
        input=json.dumps(list(jobs.values())),
        capture_output=True,
        text=True,
        cwd=TESTS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(jobs, json.loads(done.stdout), strict=True))


def distance(a: dict[str, Any], b: dict[str, Any], name: str) -> float:
    one, other = (torch.tensor(found[name]) for found in (a, b))
    return float((one - other).abs().max()) if one.shape == other.shape else float("inf")


def check_unedited(found: dict[str, Any]) -> None:
    """It is computed in C, so that edits are compared with that."""
    assert found["on because"] is None or not shutil.which("cc")
    assert found["off because"] == "the C code is switched off"
    assert all(distance(found["on"], found["off"], name) < 1e-5 for name in found["on"])


def check_effect(before: dict[str, Any], after: dict[str, Any], name: str) -> None:
    """Logits and gradients change, and are those of PyTorch alone."""
    for setting in ("on", "off"):
        old, new = before[setting], after[setting]
        assert distance(new, old, "tested") > 1e-3 or name == NO_GRADIENT, name
        common = [n for n in old if n.startswith("encoder.") and n in new]
        assert max(distance(new, old, n) for n in common) > 1e-4, name
    if name in IN_C:
        assert after["on because"] == before["on because"], name
        assert distance(after["on"], after["off"], "logits") < 1e-5, name
    else:
        assert after["on"] == after["off"], name
        assert is_sentence(after["on because"]), name


@pytest.mark.parametrize(
    "files", [("attention", "config"), ("encoder",), OTHER_FILES], ids="-".join
)
def test_every_edit_of_the_source_takes_effect(files: tuple[str, ...], tmp_path: Path) -> None:
    edits = {name: edit for name, edit in {**EDITS, **NEUTRAL}.items() if edit[0] in files}
    results = run(tmp_path, edits, {})
    before = results.pop(UNEDITED)
    check_unedited(before)
    for name, after in results.items():
        if name in NEUTRAL:
            assert after == before, name
            continue
        check_effect(before, after, name)
        if name not in IN_C:
            module = f"model.{edits[name][0]}".replace("/", ".")
            assert after["on because"] == f"{module} was edited"


def test_every_patch_before_the_first_use_takes_effect(tmp_path: Path) -> None:
    results = run(tmp_path, {}, PATCHES)
    before = results.pop(UNEDITED)
    check_unedited(before)
    for name, after in results.items():
        check_effect(before, after, name)
    reasons = {name: after["on because"] for name, after in results.items()}
    assert reasons["wrapped feedforward"] == "model.encoder.Layer.feedforward was patched"
    assert reasons["F.linear"] == "torch.nn.functional.linear of PyTorch was patched"


def test_all_edits_have_a_turn() -> None:
    files = {edit[0] for edit in (*EDITS.values(), *NEUTRAL.values())}
    assert files == {"attention", "config", "encoder", *OTHER_FILES}
