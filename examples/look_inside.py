"""Plot where the heads of a trained model look, and what would be read after each layer.

python examples/look_inside.py                        # the small model in examples/adder
python examples/look_inside.py runs/sums "95 + 17"    # a model of your own
"""

import argparse
from pathlib import Path

import lengthwise

ADDER = Path(__file__).parent / "adder"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("run", nargs="?", default=ADDER, help="a run or a saved model")
parser.add_argument("problem", nargs="?", default="95 + 17", help='such as "95 + 17"')
parser.add_argument("--layer", type=int, help="from 1 (default: all)")
parser.add_argument("--head", type=int, help="from 1 (default: all)")
parser.add_argument("--out", default="attention.png", help="the figure (default: attention.png)")
options = parser.parse_args()

model = lengthwise.load(options.run)
trace = model.trace(options.problem)
(solution,) = trace.solutions
print(f"{solution.problem} = {solution.answer}, and {solution.correct} is right")
print(trace)
print(trace.table())
trace.plot(options.layer, options.head).write(options.out)
print("see", options.out)
