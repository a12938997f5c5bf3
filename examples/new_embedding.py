"""A position embedding of your own: each head looks at a distance that it learns.

Over significance it adds numbers longer than those of training; over the index it learns nothing.

python examples/new_embedding.py   # about a minute on one core
"""

import argparse

import torch
from torch import Tensor, nn

import lengthwise
from lengthwise.model.pairs import Pairs
from lengthwise.model.positions import POSITIONS, ModelShape, OverCoordinate
from lengthwise.model.positions.position import move_heads_first


@POSITIONS.register("gaussian")
class Gaussian(OverCoordinate):
    """Scores fall with the squared difference from a learned distance of each head."""

    per_layer = True
    content_free = True

    def __init__(self, options: OverCoordinate.Options, shape: ModelShape):
        super().__init__(options, shape)
        self.centre = nn.Parameter(torch.linspace(-1.5, 1.5, shape.heads))
        self.width = nn.Parameter(torch.ones(shape.heads))

    def scores(self, q: Tensor, k: Tensor, pairs: Pairs) -> Tensor:
        distance = pairs.distance(self.options.coordinate)[..., None]  # (i, j, 1)
        return move_heads_first(-(((distance - self.centre) / self.width) ** 2))  # (h, i, j)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="of training (default: 1000)")
    options = parser.parse_args()
    for coordinate in ("index", "significance"):
        position = {"kind": "gaussian", "coordinate": coordinate}
        fields = {
            "layout": {"order": "least-significant-first"},
            "model": {"preset": "small", "heads": 4, "position": position},
            "training": {"steps": options.steps},
            "evaluation": {"final_lengths": "5,6,8", "final_examples": 500},
        }
        run = lengthwise.train(fields)
        assert run.result is not None
        accuracies = {a["length"]: f"{a['exact_match']:.1%}" for a in run.result["evaluation"]}
        centres = run.load().encoder.position(0).centre.tolist()  # type: ignore[operator]
        print(coordinate, accuracies, "heads look at", [round(centre, 2) for centre in centres])


if __name__ == "__main__":
    main()
