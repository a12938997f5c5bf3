"""Sweep over position embeddings and seeds, and compare: a table, a figure, plain records.

python examples/sweep_and_compare.py              # about ten minutes on two cores
python examples/sweep_and_compare.py --steps 20   # to see that it runs
"""

import argparse

import lengthwise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000, help="of training (default: 2000)")
    parser.add_argument("--seeds", type=int, default=3, help="of each embedding (default: 3)")
    parser.add_argument("--out", default="sweep.png", help="the figure (default: sweep.png)")
    options = parser.parse_args()

    result = lengthwise.sweep(
        {
            "model.preset": "small",
            "training.steps": options.steps,
            "training.keep_checkpoints": "powers-of-two",
            "evaluation.final_examples": 500,
        },
        grid={
            "model.position": ["absolute", "relative-key", "rope"],
            "seed": list(range(options.seeds)),
        },
        jobs=2,
    )
    print(result.table())
    result.plot(options.out)
    print("see", options.out)

    # Finished runs are found again by what they are.
    best = max(result, key=lambda record: record["accuracy"][6])
    print(f"best at 6 digits: {best['run']}, {best['accuracy'][6]:.1%}")
    run = lengthwise.Run(best["run"])
    for step in run.kept_steps():
        (accuracy,) = lengthwise.evaluate(run, lengths=[3], examples=200, step=step)
        print(f"3 digits after {step} steps: {accuracy.exact_match:.1%}")


if __name__ == "__main__":  # worker processes import this file
    main()
