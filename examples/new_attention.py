"""An attention of your own: a null key lets a head take nothing. Compare it with the full one.

python examples/new_attention.py   # about a minute on one core
"""

import argparse

import torch.nn.functional as F
from torch import Tensor, nn

import lengthwise
from lengthwise.model.attention import ATTENTIONS, FullAttention


class NullKeySoftmax(nn.Softmax):
    """A softmax with one more key, whose score is 0 and which is left out of the result."""

    def forward(self, scores: Tensor) -> Tensor:
        return super().forward(F.pad(scores, (0, 1)))[..., :-1]


@ATTENTIONS.register("null-key")
class NullKeyAttention(FullAttention):
    """As `full`, but the weights of a head may add up to less than 1."""

    def __init__(self, options: FullAttention.Options, width: int, heads: int, dropout: float):
        super().__init__(options, width, heads, dropout)
        self.softmax = NullKeySoftmax(dim=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="of training (default: 1000)")
    options = parser.parse_args()
    for attention in ("full", "null-key"):
        fields = {
            "model": {"preset": "small", "attention": attention},
            "training": {"steps": options.steps},
            "evaluation": {"final_lengths": "5,6,8", "final_examples": 500},
        }
        run = lengthwise.train(fields)
        assert run.result is not None
        accuracies = {a["length"]: f"{a['exact_match']:.1%}" for a in run.result["evaluation"]}
        print(attention, accuracies)


if __name__ == "__main__":
    main()
