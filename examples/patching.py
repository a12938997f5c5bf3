"""Activation patching: where does a model keep the carry from the units to the tens?

The model solves 11 + 25, while the residual stream at one token is replaced by that of 11 + 29.
The tens of the answer become 4 in place of 3 where that token holds the carry.

python examples/patching.py                 # the small model in examples/adder
python examples/patching.py runs/my-sums    # a model of your own
"""

import argparse
from pathlib import Path

import numpy as np

import lengthwise
from lengthwise.solver.inside import intervene, patch

ADDER = Path(__file__).parent / "adder"
PLAIN, CARRY = "11 + 25", "11 + 29"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("run", nargs="?", default=ADDER, help="a run or a saved model that adds")
options = parser.parse_args()

model = lengthwise.load(options.run)
plain, source = model.trace(PLAIN), model.trace(CARRY)
(tens,) = source.positions(operand=0, significance=1)  # the answer's tens are read here
symbols = [source.layout.vocabulary.index(symbol) for symbol in "43"]


def difference(logits: np.ndarray) -> float:
    """How much more the model believes in the 4 of 40 than in the 3 of 36."""
    four, three = logits[0, -1, tens, symbols]
    return float(four - three)


low, high = difference(plain.logits), difference(source.logits)
tokens = [token for token in source.tokens[0] if token.place]
print(f"{CARRY} patched into {PLAIN}: 0 % gives {PLAIN}, 100 % gives {CARRY}")
print(f"{'':24}", *(f"{token.symbol:>6}" for token in tokens))
for point in source.points:
    shares = []
    for token in tokens:
        with intervene(model, patch(point, source, positions=[token.index])):
            found = difference(model.trace(PLAIN).logits)
        shares.append(f"{100 * (found - low) / (high - low):4.0f} %")
    print(f"{point:24}", *shares)
