"""Compares our encoder with Hugging Face's BERT and ALBERT; run by the Python that has transformers 4.57.6.

`python tests/parity.py --family bert --position relative_key --length 17 --n-out 9 …` prints one line of JSON for each
position given: the greatest absolute differences in float32 and float64, of
- logits: their weights, copied into ours;
- gradients: of the cross-entropy, for every parameter;
- reverse: logits of ours, copied into theirs;
- files: logits after `save_pretrained` → `read` and after `write` → `from_pretrained` (float32 only);
and as a control, how far the logits move (float64) if the position table is turned around.

Without arguments it checks a grid, prints a table, and exits with 1 if a difference exceeds 1e-5 in float32 or 1e-12 in
float64. Float64 is the sharp test: rounding in float32 grows with the weights, and passes 1e-5 at --std 0.2, width 96.
"""

import argparse
import json
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

from lengthwise.digits import Numbers
from lengthwise.huggingface import ACTIVATIONS, from_huggingface, read, to_huggingface, write
from lengthwise.layout import VOCABULARY, Coordinates
from lengthwise.model import HUGGING_FACE, Encoder, ModelConfig

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
CLASSES = {
    "bert": (transformers.BertConfig, transformers.BertForTokenClassification),
    "albert": (transformers.AlbertConfig, transformers.AlbertForTokenClassification),
}
POSITIONS = ("absolute", "relative_key", "relative_key_query")
GRID = [
    "--width 32 --heads 2 --layers 1 --feedforward 64 --length 7 --n-out 4 --max-positions 7",
    "--width 32 --heads 4 --layers 3 --feedforward 64 --length 9 --n-out 9 --std 0.02 --activation relu",
    "--width 96 --heads 3 --layers 2 --feedforward 200 --length 17 --n-out 9 --embedding 40",
    "--width 64 --heads 1 --layers 6 --feedforward 256 --length 41 --n-out 21 --batch 3 --max-positions 41",
    "--width 512 --heads 8 --layers 6 --feedforward 1024 --length 71 --n-out 36 --batch 2",
]


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


def compare(case: argparse.Namespace, dtype: torch.dtype) -> dict[str, float]:
    rng = torch.Generator().manual_seed(case.seed)
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
        pad_token_id=None,  # else the gradient of that symbol's embedding is zeroed
        **({"embedding_size": case.embedding or case.width} if case.family == "albert" else {}),
    )
    theirs = model_class(config).to(dtype).eval()
    randomise(theirs, case.std, rng)
    ours = from_huggingface(config.to_dict(), theirs.state_dict(), case.length).eval()
    tokens = torch.randint(len(VOCABULARY), (case.batch, case.length), generator=rng)
    targets = torch.randint(len(VOCABULARY), (case.batch, case.n_out), generator=rng)
    index = torch.arange(case.length)
    at = Coordinates(index=index, significance=index, place=index, operand=index, shared=index < 0, row=index * 0)

    our_logits, their_logits = ours(tokens, at, case.n_out), theirs(tokens).logits[:, : case.n_out]
    result = {"logits": difference(our_logits, their_logits)}
    for logits in (our_logits, their_logits):
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    result["gradients"] = gradient_difference(ours, theirs)
    with torch.no_grad():
        for position in ours.positions:
            position.table.weight.copy_(position.table.weight.flip(0))
        result["control"] = difference(ours(tokens, at, case.n_out), their_logits)
        if dtype == torch.float32:
            result["files"] = file_difference(theirs, model_class, case, rng)

        # Ours first. Without --embedding, ALBERT's projection is the identity.
        config = ModelConfig(
            encoder=HUGGING_FACE[case.family]["encoder"],
            scale_relative=HUGGING_FACE[case.family]["scale_relative"],
            position=case.position.replace("_", "-"),
            width=case.width,
            heads=case.heads,
            layers=case.layers,
            feedforward_width=case.feedforward,
            activation=ACTIVATIONS[case.activation],
            embedding_width=case.embedding if case.family == "albert" else None,
        )
        ours = Encoder(config, case.length)
        ours = ours.to(dtype).eval()
        randomise(ours, case.std, rng)
        config, weights = to_huggingface(ours, case.length)
        theirs = model_class(config_class(**config)).to(dtype).eval()
        theirs.load_state_dict(weights, strict=True)
        result["reverse"] = difference(ours(tokens, at, case.n_out), theirs(tokens).logits[:, : case.n_out])
    return result


def gradient_difference(ours: Encoder, theirs: nn.Module) -> float:
    """Their gradients under our names are ours; the token type's is the sum of the symbols'; the others are zero."""
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in theirs.named_parameters()
    }
    types = next(name for name in gradients if "token_type" in name)
    pairs = [(ours.symbols.weight.grad.sum(0), gradients[types][0]), (gradients[types][1:], torch.zeros(()))]
    total = sum(gradient.abs().sum() for gradient in gradients.values()) - gradients[types].abs().sum()
    gradients[types] = torch.zeros_like(gradients[types])
    mapped = from_huggingface(theirs.config.to_dict(), gradients, ours.positions[0].shape.max_length)
    pairs += [(ours.get_parameter(name).grad, gradient) for name, gradient in mapped.named_parameters()]
    # What isn't mapped, such as distances beyond max_length, has no gradient.
    pairs.append((sum(gradient.abs().sum() for gradient in mapped.parameters()) / total, torch.ones(())))
    return max((a - b).abs().max().item() for a, b in pairs)


def file_difference(theirs: nn.Module, model_class: type, case: argparse.Namespace, rng: torch.Generator) -> float:
    """From their checkpoint to a solver, and from its checkpoint to their model again."""
    digits = (case.length - 1) // 2
    numbers = torch.randint(10 ** min(digits, 18), (2, case.batch), generator=rng).tolist()
    operands = tuple(Numbers.from_ints(column) for column in numbers)
    with tempfile.TemporaryDirectory() as directory:
        theirs.save_pretrained(f"{directory}/theirs")
        solver = read(f"{directory}/theirs", {"kind": "addition"}, digits, {})
        write(solver, f"{directory}/ours")
        again, report = model_class.from_pretrained(f"{directory}/ours", output_loading_info=True)
    assert not any(report.values()), f"from_pretrained: {report}"
    logits, tokens = solver(operands), torch.from_numpy(solver.layout.encode(operands))
    return max(difference(logits, model(tokens).logits[:, : solver.layout.n_out]) for model in (theirs, again.eval()))


def run(case: argparse.Namespace) -> dict[str, object]:
    single, double = compare(case, torch.float32), compare(case, torch.float64)
    del single["control"]
    return {**vars(case), "control": double.pop("control"), "float32": single, "float64": double}


def grid() -> int:
    """Prints a row for each case; 1 if one of them fails."""
    measures = [("float32", name) for name in ("logits", "gradients", "reverse", "files")]
    measures += [("float64", name) for name in ("logits", "gradients", "reverse")]
    print(f"{'':56}", *(f"{dtype:>9}" for dtype, _ in measures))
    print(
        f"{'family':6} {'position':18} {'width':>5} {'heads':>5} {'layers':>6} {'length':>6}    ",
        *(f"{name:>9}" for _, name in measures),
        f"{'control':>8}",
    )
    worst = dict.fromkeys(TOLERANCE, 0.0)
    for sizes in GRID:
        for family in CLASSES:
            for position in POSITIONS:
                case = parse([*sizes.split(), "--family", family, "--position", position])
                case.position = position
                result = run(case)
                worst = {dtype: max(worst[dtype], *result[dtype].values()) for dtype in worst}
                print(
                    f"{family:6} {position:18} {case.width:5} {case.heads:5} {case.layers:6} {case.length:6}    ",
                    *(f"{result[dtype][name]:9.1e}" for dtype, name in measures),
                    f"{result['control']:8.2g}",
                    flush=True,
                )
    print("worst:", *(f"{dtype} {worst[dtype]:.1e} (limit {TOLERANCE[dtype]:.0e})" for dtype in worst))
    return int(any(worst[dtype] > TOLERANCE[dtype] for dtype in worst))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", choices=CLASSES, required=True)
    parser.add_argument("--position", choices=POSITIONS, nargs="+", required=True)
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
    case = parser.parse_args(arguments)
    case.activation = case.activation or {"bert": "gelu", "albert": "gelu_new"}[case.family]
    case.std = case.std or case.width**-0.5
    return case


if __name__ == "__main__":
    assert transformers.__version__ == "4.57.6", f"transformers is {transformers.__version__}, not 4.57.6"
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    if len(sys.argv) == 1:
        sys.exit(grid())
    case = parse(sys.argv[1:])
    for position in case.position:
        print(json.dumps(run(argparse.Namespace(**{**vars(case), "position": position}))))
