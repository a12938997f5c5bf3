"""Compares our encoder with Hugging Face's BERT and ALBERT; needs transformers 4.57.6.

`python tests/parity.py --family bert --position relative_key --length 17 --n-out 9` prints one line
of JSON for each position given: the greatest absolute differences, in float32 and float64, of

- logits: their weights, converted to ours, and PyTorch computes;
- gradients: of the cross-entropy, for every parameter;
- C logits and C gradients: the same, and the C code computes (float32, where it is available);
- reverse: the logits of our weights, converted to theirs;
- files: logits after `save_pretrained` → `read` and after `write` → `from_pretrained` (float32).

A control says how far the logits move (float64) when the position table is reversed.

Without arguments it checks a grid and prints a table. It exits with 1 if a difference exceeds 1e-5
in float32 or 1e-12 in float64. Float64 is the sharp test: rounding in float32 grows with the
weights.
"""

import argparse
import json
import sys
import tempfile
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from lengthwise import fast
from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import Addition
from lengthwise.model import Encoder, ModelConfig
from lengthwise.model.config import HUGGING_FACE
from lengthwise.model.positions import POSITIONS
from lengthwise.problems.layouts import VOCABULARY, Coordinates, PaperLayout
from lengthwise.solver.huggingface import (
    ACTIVATIONS,
    POSITION_KINDS,
    from_huggingface,
    read,
    to_huggingface,
    write,
)

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
CLASSES = {
    "bert": (transformers.BertConfig, transformers.BertForTokenClassification),
    "albert": (transformers.AlbertConfig, transformers.AlbertForTokenClassification),
}
GRID = [
    "--width 32 --heads 2 --layers 1 --feedforward 64 --length 7 --n-out 4 --max-positions 7",
    "--width 32 --heads 4 --layers 3 --feedforward 64 --length 9 --n-out 9 --std 0.02"
    " --activation relu",
    "--width 96 --heads 3 --layers 2 --feedforward 200 --length 17 --n-out 9 --embedding 40",
    "--width 64 --heads 1 --layers 6 --feedforward 256 --length 41 --n-out 21 --batch 3"
    " --max-positions 41",
    "--width 512 --heads 8 --layers 6 --feedforward 1024 --length 71 --n-out 36 --batch 2",
]
Results = dict[str, float]


class Problem:
    """Random tokens with random targets, and coordinates that differ in their index only."""

    def __init__(self, case: argparse.Namespace, rng: torch.Generator):
        symbols, self.n_out = len(VOCABULARY), case.n_out
        self.tokens = torch.randint(symbols, (case.batch, case.length), generator=rng)
        self.targets = torch.randint(symbols, (case.batch, case.n_out), generator=rng)
        index = torch.arange(case.length)
        self.coordinates = Coordinates(index, index, index, index, index < 0, index * 0)

    def logits(self, model: nn.Module, in_c: bool = False) -> Tensor:
        """At the first positions, from our encoder or from their model."""
        if not isinstance(model, Encoder):
            logits: Tensor = model(self.tokens).logits[:, : self.n_out]
            return logits
        if not in_c:
            with fast.use_pytorch():
                return fast.logits(model, self.tokens, self.coordinates, self.n_out)
        return fast.logits(model, self.tokens, self.coordinates, self.n_out)

    def backward(self, model: nn.Module, in_c: bool = False) -> Tensor:
        """The logits; the gradients of the cross-entropy are left in the model."""
        model.zero_grad(set_to_none=True)
        logits = self.logits(model, in_c)
        F.cross_entropy(logits.flatten(0, 1), self.targets.flatten()).backward()
        return logits.detach()


def compare(case: argparse.Namespace, dtype: torch.dtype) -> Results:
    rng = torch.Generator().manual_seed(case.seed)
    theirs = their_model(case, dtype, rng)
    config, weights = theirs.config.to_dict(), theirs.state_dict()
    ours = from_huggingface(config, weights, case.length).eval()
    problem = Problem(case, rng)
    expected = problem.backward(theirs)
    results = {
        "logits": difference(problem.backward(ours), expected),
        "gradients": gradient_difference(ours, theirs),
    }
    if dtype == torch.float32:
        remove_patch()
        reason = fast.decline_reason(ours, problem.tokens, problem.coordinates)
        if reason is None:
            results["C logits"] = difference(problem.backward(ours, in_c=True), expected)
            results["C gradients"] = gradient_difference(ours, theirs)
        elif case.require_c:
            raise SystemExit(f"the C code declines: {reason}")
    with torch.no_grad():
        for name, table in ours.named_parameters():
            if name.endswith(".table.weight"):
                table.copy_(table.flip(0))
        results["control"] = difference(problem.logits(ours), expected)
        if dtype == torch.float32:
            results["files"] = file_difference(theirs, case, rng)
        results["reverse"] = reverse_difference(case, dtype, problem, rng)
    return results


def remove_patch() -> None:
    """Take off the method that transformers adds to every module; it adds it again when needed.

    The C code declines while `torch.nn.Module` is patched.
    """
    if hasattr(nn.Module, "smart_apply"):
        delattr(nn.Module, "smart_apply")


def their_model(case: argparse.Namespace, dtype: torch.dtype, rng: torch.Generator) -> Any:
    config_class, model_class = CLASSES[case.family]
    config = config_class(
        vocab_size=len(VOCABULARY),
        num_labels=len(VOCABULARY),
        hidden_size=case.width,
        num_hidden_layers=case.layers,
        num_attention_heads=case.heads,
        intermediate_size=case.feedforward,
        hidden_act=case.activation,
        max_position_embeddings=case.max_positions,
        position_embedding_type=case.position,
        pad_token_id=None,  # a padding token's embedding has no gradient
        **({"embedding_size": case.embedding or case.width} if case.family == "albert" else {}),
    )
    model = model_class(config).to(dtype).eval()
    randomise(model, case.std, rng)
    return model


def reverse_difference(
    case: argparse.Namespace, dtype: torch.dtype, problem: Problem, rng: torch.Generator
) -> float:
    """From our weights to theirs. Without --embedding, ALBERT's projection is the identity."""
    config_class, model_class = CLASSES[case.family]
    config = ModelConfig(
        encoder=HUGGING_FACE[case.family]["encoder"],
        scale_relative=HUGGING_FACE[case.family]["scale_relative"],
        position=POSITIONS.parse(POSITION_KINDS[case.position]),
        width=case.width,
        heads=case.heads,
        layers=case.layers,
        feedforward_width=case.feedforward,
        activation=ACTIVATIONS[case.activation],
        embedding_width=case.embedding if case.family == "albert" else None,
    )
    ours = Encoder(config, case.length).to(dtype).eval()
    randomise(ours, case.std, rng)
    their_config, weights = to_huggingface(ours, case.length)
    theirs = model_class(config_class(**their_config)).to(dtype).eval()
    theirs.load_state_dict(weights, strict=True)
    return difference(problem.logits(ours), problem.logits(theirs))


def gradient_difference(ours: Encoder, theirs: Any) -> float:
    """Their gradients under our names should be ours.

    The token type's gradient is the sum of the symbols'. Tensors that are not converted, such as
    distances beyond max_length, have none.
    """
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in theirs.named_parameters()
    }
    types = next(name for name in gradients if "token_type" in name)
    assert ours.symbols.weight.grad is not None
    pairs = [
        (ours.symbols.weight.grad.sum(0), gradients[types][0]),
        (gradients[types][1:], torch.zeros(())),
    ]
    gradients[types] = torch.zeros_like(gradients[types])
    total = sum(gradient.abs().sum() for gradient in gradients.values())
    max_length = ours.position(0).shape.max_length
    converted = from_huggingface(theirs.config.to_dict(), gradients, max_length)
    for name, gradient in converted.named_parameters():
        own = ours.get_parameter(name).grad
        assert own is not None
        pairs.append((own, gradient))
    converted_total = sum(gradient.abs().sum() for gradient in converted.parameters())
    pairs.append((torch.as_tensor(converted_total / total), torch.ones(())))
    return max((a - b).abs().max().item() for a, b in pairs if a.numel())


def file_difference(theirs: Any, case: argparse.Namespace, rng: torch.Generator) -> float:
    """From their checkpoint to a solver, and from its checkpoint to their model again."""
    digits = (case.length - 1) // 2
    numbers = torch.randint(10 ** min(digits, 18), (2, case.batch), generator=rng).tolist()
    operands = tuple(Numbers.from_ints(column) for column in numbers)
    with tempfile.TemporaryDirectory() as directory:
        theirs.save_pretrained(f"{directory}/theirs")
        solver = read(f"{directory}/theirs", Addition(), digits, PaperLayout.Options())
        write(solver, f"{directory}/ours")
        again, report = type(theirs).from_pretrained(f"{directory}/ours", output_loading_info=True)
    assert not any(report.values()), f"from_pretrained: {report}"
    logits = solver.answer_logits(operands, solver.layout)
    tokens = torch.from_numpy(solver.layout.encode(operands))
    expected = [model(tokens).logits[:, : solver.layout.n_out] for model in (theirs, again.eval())]
    return max(difference(logits, other) for other in expected)


@torch.no_grad()
def randomise(model: nn.Module, std: float, rng: torch.Generator) -> None:
    """Gaussian weights and biases everywhere, layer norms around 1."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            mean = 1.0 if isinstance(module, nn.LayerNorm) and name == "weight" else 0.0
            parameter.normal_(mean, std, generator=rng)


def difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape, f"{a.shape} and {b.shape}"
    return (a - b).abs().max().item()


def run(case: argparse.Namespace) -> dict[str, Any]:
    single, double = compare(case, torch.float32), compare(case, torch.float64)
    del single["control"]
    return {**vars(case), "control": double.pop("control"), "float32": single, "float64": double}


def grid() -> int:
    """Print a row for each case; 1 if one of them fails."""
    single = ("logits", "gradients", "C logits", "C gradients", "reverse", "files")
    measures = [("float32", name) for name in single]
    measures += [("float64", name) for name in ("logits", "gradients", "reverse")]
    sizes = f"{'width':>5} {'heads':>5} {'layers':>6} {'length':>6}"
    print(f"{'':51}", *(f"{dtype:>11}" for dtype, _ in measures))
    print(
        f"{'family':6} {'position':18} {sizes}",
        *(f"{name:>11}" for _, name in measures),
        f"{'control':>8}",
    )
    worst = dict.fromkeys(TOLERANCE, 0.0)
    for arguments in GRID:
        for family in CLASSES:
            for position in POSITION_KINDS:
                case = parse([*arguments.split(), "--family", family, "--position", position])
                case.position = position
                result = run(case)
                worst = {dtype: max(worst[dtype], *result[dtype].values()) for dtype in worst}
                cells = (result[dtype].get(name, float("nan")) for dtype, name in measures)
                print(
                    f"{family:6} {position:18} {case.width:5} {case.heads:5} {case.layers:6}"
                    f" {case.length:6}",
                    *(f"{cell:11.1e}" for cell in cells),
                    f"{result['control']:8.2g}",
                    flush=True,
                )
    limits = [f"{dtype} {worst[dtype]:.1e} (limit {TOLERANCE[dtype]:.0e})" for dtype in worst]
    print("worst:", *limits)
    return int(any(worst[dtype] > TOLERANCE[dtype] for dtype in worst))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", choices=CLASSES, required=True)
    parser.add_argument("--position", choices=POSITION_KINDS, nargs="+", required=True)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--feedforward", type=int, default=200)
    parser.add_argument("--length", type=int, default=17)
    parser.add_argument("--n-out", type=int, default=9)
    parser.add_argument("--embedding", type=int, help="ALBERT's embedding_size; else the width")
    parser.add_argument("--activation", help="hidden_act; else the family's default")
    parser.add_argument("--max-positions", type=int, default=128)
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--std", type=float, help="of the random weights; else 1/√width")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--require-c", action="store_true", help="fail where the C code declines")
    case = parser.parse_args(arguments)
    case.activation = case.activation or {"bert": "gelu", "albert": "gelu_new"}[case.family]
    case.std = case.std or case.width**-0.5
    return case


if __name__ == "__main__":
    found = transformers.__version__
    assert found == "4.57.6", f"transformers is {found}, not 4.57.6"
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if len(sys.argv) == 1:
        sys.exit(grid())
    case = parse(sys.argv[1:])
    for position in case.position:
        print(json.dumps(run(argparse.Namespace(**{**vars(case), "position": position}))))
