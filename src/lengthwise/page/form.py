"""What the page trains: a few choices, bounded so that a run takes minutes, as ordinary keys."""

import json
import shlex
from typing import Any, Literal

from pydantic import Field, ValidationError

from lengthwise.base import Config, UsageError, explain
from lengthwise.problems.layouts import Coordinate
from lengthwise.training import keys
from lengthwise.training.experiment import Experiment

MOST_DIGITS, MOST_STEPS = 40, 20_000
EVALUATIONS = 24  # in a run; each redraws the cliff
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"model.preset": "tiny"},
    "small": {"model.preset": "small", "model.heads": 4},
    "medium": {"model.layers": 6, "model.heads": 8},
}


class TrainingForm(Config):
    """The choices of the page's form."""

    task: Literal["addition", "elementwise-addition", "multiplication", "modular-addition"] = (
        "addition"
    )
    position: str = Field("relative-key", max_length=40)
    coordinate: Coordinate = "index"
    train_digits: int = Field(5, ge=1, le=20)
    test_digits: int = Field(10, ge=2, le=MOST_DIGITS)
    primed: int = Field(0, ge=0, le=1000)  # examples of `test_digits` digits
    steps: int = Field(1500, ge=1, le=MOST_STEPS)
    size: Literal["tiny", "small", "medium"] = "small"
    second_digits: int = Field(1, ge=1, le=3)  # of products
    seed: int = Field(0, ge=0, le=2**31)

    def keys(self) -> dict[str, Any]:
        """The choices as an experiment's keys."""
        if self.train_digits >= self.test_digits:
            raise UsageError(
                f"the longest test has {self.test_digits} digits, which must be more than the"
                f" {self.train_digits} of training"
            )
        chosen: dict[str, Any] = {"task": self.task}
        if self.task == "multiplication":
            chosen |= {"task.second_digits": self.second_digits, "layout": "compact"}
        every = max(1, self.steps // EVALUATIONS)
        return {
            **chosen,
            "data.train_digits": self.train_digits,
            "data.test_digits": self.test_digits,
            **({"data.priming": f"{self.test_digits}={self.primed}"} if self.primed else {}),
            **SIZES[self.size],
            "model.position": self.position,
            **self.over_coordinate(),
            "training.steps": self.steps,
            "training.optimizer": "muon",
            "training.log_every": max(1, every // 4),
            "training.checkpoint_every": max(1, every),
            "evaluation.every": every,
            "evaluation.lengths": self.lengths(),
            "evaluation.examples": 100,
            "evaluation.final_lengths": f"1:{self.test_digits}",
            "evaluation.final_examples": 500,
            "seed": self.seed,
        }

    def over_coordinate(self) -> dict[str, str]:
        """The coordinate of the position embedding; at its default it is left out."""
        inner = ".inner" if self.position == "randomised" else ""
        return (
            {}
            if self.coordinate == "index"
            else {f"model.position{inner}.coordinate": self.coordinate}
        )

    def lengths(self) -> str:
        """Lengths that are tested during training: some trained ones, and on to the longest."""
        trained, longest = self.train_digits, self.test_digits
        step = max(1, (longest - trained) // 8)
        chosen = {(trained + 1) // 2, trained, trained + 1, longest}
        return ",".join(map(str, sorted(chosen | set(range(trained + step, longest, step)))))

    def experiment(self) -> Experiment:
        return keys.load(None, self.keys())

    def command(self, root: str) -> str:
        """The command line that trains the same run."""
        words = [f"--{key} {quote(value)}" for key, value in self.keys().items()]
        return " \\\n    ".join(["lengthwise train", *words, f"--runs {shlex.quote(root)}"])

    def python(self, root: str) -> str:
        """Python that trains the same run."""
        fields = json.dumps(self.keys(), indent=4)
        return f"import lengthwise\n\nrun = lengthwise.train({fields}, root={json.dumps(root)})"


def quote(value: object) -> str:
    return shlex.quote(str(value))


def parse_form(fields: Any) -> TrainingForm:
    try:
        return TrainingForm.model_validate(fields)
    except ValidationError as error:
        raise UsageError(explain(error)) from None
