"""Plot where the heads of a trained model look, with PyTorch's forward hooks.

lengthwise train --name sums
python examples/look_inside.py runs/sums "95 + 17"
"""

import argparse

from matplotlib.figure import Figure
from torch import Tensor, nn

import lengthwise

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("run", help="a run or a saved model")
parser.add_argument("problem", help='such as "95 + 17"')
parser.add_argument("--out", default="attention.png", help="the figure (default: attention.png)")
options = parser.parse_args()

model = lengthwise.load(options.run)
patterns: list[Tensor] = []  # one for each layer applied, (b, heads, queries, keys)


def keep(module: nn.Module, inputs: object, pattern: Tensor) -> None:
    patterns.append(pattern)


for module in model.modules():
    if isinstance(module, nn.Softmax):  # each attention has one
        module.register_forward_hook(keep)

(solution,) = model.explain(options.problem)
print(f"{solution.problem} = {solution.answer}, and {solution.correct} is right")
symbols = [token["symbol"].replace("<PAD>", "·") for token in model.show(options.problem)]

# The last layer has queries only where the answer is read.
heads = patterns[0].shape[1]
size = (2.2 * heads, 2.2 * len(patterns))
figure = Figure(figsize=size, layout="constrained")
axes = figure.subplots(len(patterns), heads, squeeze=False)
for depth, (pattern, row) in enumerate(zip(patterns, axes, strict=True)):
    for head, axis in enumerate(row):
        axis.imshow(pattern[0, head], vmin=0, vmax=1, cmap="Blues")
        axis.set_xticks(range(len(symbols)), symbols, fontsize=5)
        axis.set_yticks(range(pattern.shape[2]), symbols[: pattern.shape[2]], fontsize=5)
        axis.set_title(f"layer {depth + 1}, head {head + 1}", fontsize=7)
figure.savefig(options.out, dpi=150)
print("see", options.out)
