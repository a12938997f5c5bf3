"""Train two small models on sums of 1 to 5 digits, and plot their accuracy on longer ones.

python examples/train_and_plot.py              # about three minutes on one core
python examples/train_and_plot.py --steps 50   # to see that it runs
"""

import argparse

from matplotlib.figure import Figure

import lengthwise

EMBEDDINGS = ("absolute", "relative-key")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=2000, help="of training (default: 2000)")
parser.add_argument("--examples", type=int, default=1000, help="tested at each length")
parser.add_argument("--out", default="accuracy.png", help="the figure (default: accuracy.png)")
options = parser.parse_args()

figure = Figure(figsize=(6, 4), layout="constrained")
axis = figure.subplots()
for embedding in EMBEDDINGS:
    run = lengthwise.train(
        {
            "task": "addition",
            "model": {"position": embedding},
            "training": {"steps": options.steps},
            "evaluation": {"final_lengths": [5], "final_examples": options.examples},
        }
    )
    model = lengthwise.load(run.path)
    accuracies = lengthwise.evaluate(model, lengths="1:10", examples=options.examples)
    lengths = [accuracy.length for accuracy in accuracies]
    axis.plot(lengths, [100 * a.exact_match for a in accuracies], marker="o", label=embedding)
    print(embedding, *(f"{a.length}: {a.exact_match:.1%}" for a in accuracies))

axis.axvspan(1, 5, alpha=0.1, label="lengths in training")
axis.set(xlabel="digits of both operands", ylabel="exact match (%)", ylim=(-3, 103))
axis.legend()
figure.savefig(options.out, dpi=150)
print("see", options.out)
