"""The solver: `solver.solve(["99999+1"])`, with saving, loading and the Hub."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin
from torch import Tensor, nn

from lengthwise import fast
from lengthwise.arithmetic.digits import Numbers
from lengthwise.arithmetic.tasks import TASKS, Addition, Product, Task
from lengthwise.base import Choice, UsageError, show
from lengthwise.base.errors import shorten
from lengthwise.base.files import write_atomically, writing
from lengthwise.base.manifest import MANIFEST
from lengthwise.base.progress import show_progress
from lengthwise.base.tensors import check_finite, pack_tensors, restore
from lengthwise.model import Encoder, ModelConfig
from lengthwise.problems.batch import Batch, TrainingBatch
from lengthwise.problems.layouts import LAYOUTS, Layout, WrittenField
from lengthwise.problems.training_set import Examples
from lengthwise.solver import saved
from lengthwise.solver.card import make_card
from lengthwise.solver.text import list_problems, parse_problem
from lengthwise.solver.tokens import tokens_of

if TYPE_CHECKING:
    from lengthwise.solver.inside.trace import Trace

MOST_LAYERS = 100_000
# How many symbols are worked on at once. On a CPU more is not faster.
SYMBOLS_AT_ONCE = {"cpu": 6000, "cuda": 50_000, "mps": 50_000}


@dataclass(frozen=True)
class Solution:
    """A model's answer to one problem."""

    problem: str
    answer: int | None  # None where the output is not a number
    correct: int
    symbols: tuple[str, ...]  # the output as it stands, padding included
    confidences: tuple[float, ...]  # of each symbol
    right: bool


def to_json(config: Choice | ModelConfig) -> dict[str, Any]:
    return config.model_dump(mode="json")


class Solver(
    nn.Module,
    PyTorchModelHubMixin,
    library_name="lengthwise",
    coders={  # the Hub stores these as JSON
        Task: (to_json, TASKS.parse),
        Choice: (to_json, LAYOUTS.parse),
        ModelConfig: (to_json, ModelConfig.model_validate),
    },
):
    """An encoder with the task and the layout that it is trained for.

    `digits` is the longest problem that its layout has room for.
    """

    def __init__(self, task: Task, digits: int, layout: Choice, model: ModelConfig):
        super().__init__()
        self.task = task
        self.layout: Layout = LAYOUTS.build(layout, task, digits)
        self.encoder = Encoder(
            model, self.layout.length, len(self.layout.vocabulary), self.layout.n_operands
        )

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Save the model for `from_pretrained`, with the digests of its files."""
        directory = Path(save_directory)
        if (directory / "config.yaml").exists():
            raise UsageError(f"{directory} is a run; save the model in a directory of its own")
        check_finite(self.state_dict(), directory / saved.WEIGHTS)
        with writing(directory):
            (directory / MANIFEST).unlink(missing_ok=True)  # no longer that of these files
            url: str | None = super().save_pretrained(directory, **options)
        saved.write_manifest(directory)
        return url

    def _save_pretrained(self, save_directory: Path) -> None:
        write_atomically(save_directory / saved.WEIGHTS, pack_tensors(self.state_dict(), {}))

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls, source: str | Path, *, map_location: str = "cpu", **options: Any
    ) -> "Solver":
        """A model from a directory or the Hub, of which every byte and every weight is verified.

        `options` are those of `huggingface_hub.snapshot_download`, such as `revision`.
        """
        directory = saved.find_model(source, **options)
        arguments, tensors = saved.read_model(directory)
        solver = cls(**arguments)
        restore(solver.state_dict(), tensors, directory / saved.WEIGHTS)
        return solver.to(map_location).eval()

    @property
    def device(self) -> torch.device:
        return self.encoder.symbols.weight.device

    def forward(self, batch: Batch, layers: int | None = None) -> Tensor:
        """Logits (b, n_out, vocabulary): in C where that computes the same, else by PyTorch."""
        if not isinstance(batch, Batch):
            raise UsageError(
                f"a model is called with a Batch of tokens; text such as {shorten(repr(batch))} is"
                " for model.solve, model.explain and model.trace"
            )
        if isinstance(batch, TrainingBatch):
            taught = self.encoder.depth.teach(self.encoder, batch)
            if taught is not None:
                return taught
        return fast.logits(self.encoder, batch.tokens, batch.coordinates, batch.n_out, layers)

    def training_batch(
        self, examples: Examples, padding: int = 0, rows: slice | None = None
    ) -> TrainingBatch:
        """Examples with their targets; `padding` adds some where the layout fits any length.

        With `rows`, only those are written, in the layout that fits all examples.
        """
        layout = self.layout.fit(examples.operands, padding)
        part = examples if rows is None else examples[rows]
        return TrainingBatch.of_examples(layout, part, self.device)

    def answer_logits(
        self, operands: tuple[Numbers, ...], layout: Layout, layers: int | None = None
    ) -> Tensor:
        """Logits of the answer's symbols (b, n_out, vocabulary)."""
        batch = Batch.of_problems(layout, operands, self.device)
        return self(batch, layers)[:, batch.answer_at]

    def predict(
        self, examples: Examples, layers: int | None = None
    ) -> Iterator[tuple[Examples, np.ndarray]]:
        """Some examples at a time, with the symbols (b, n_out) that the model answers."""
        layout = self.layout.fit(examples.operands)
        size = self.batch_size(layout)
        for start in range(0, len(examples), size):
            part = examples[start : start + size]
            yield part, self.answer_logits(part.operands, layout, layers).argmax(-1).cpu().numpy()

    def batch_size(self, layout: Layout) -> int:
        """How many problems are worked on at once."""
        most = self.encoder.depth.symbols_at_once or SYMBOLS_AT_ONCE[self.device.type]
        return max(1, most // layout.length)

    @contextmanager
    def testing(self, sharpness: float = 1.0) -> Iterator[None]:
        """No dropout and no gradients; `sharpness` multiplies that of every attention."""
        if not isinstance(sharpness, int | float) or not 0 < sharpness < float("inf"):
            raise UsageError(f"the sharpness of attention is a positive number, not {sharpness}")
        attentions = [self.encoder.layer(i).attention for i in range(len(self.encoder.layers))]
        was_training, before = self.training, [a.sharpness for a in attentions]
        self.eval()
        for attention in attentions:
            attention.sharpness *= sharpness
        try:
            with torch.inference_mode():
                yield
        finally:
            for attention, own in zip(attentions, before, strict=True):
                attention.sharpness = own
            self.train(was_training)

    def check_layers(self, layers: int | None) -> None:
        """Raise a UsageError unless layers can be applied this often."""
        if layers is None:
            return
        if not isinstance(layers, int) or not 1 <= layers <= MOST_LAYERS:
            raise UsageError(
                f"layers are applied at least once and at most {MOST_LAYERS} times, not"
                f" {show(layers)}"
            )
        if self.encoder.config.encoder == "transformer":
            raise UsageError("only shared layers can be applied another number of times")

    def with_second_digits(self, digits: int | Literal["same"]) -> "Solver":
        """The same model for second operands of another length; "same" is that of the first."""
        if not isinstance(self.task, Product):
            raise UsageError(f"this model was trained for {self.task.kind}, not for products")
        if digits != "same" and digits < 1:
            raise UsageError(f"numbers have at least 1 digit, not {digits}")
        trained = self.task.second_digits
        longer = trained is not None and (digits == "same" or digits > trained)
        if longer and self.layout.most_digits(1) is not None:
            raise UsageError(
                f"this model multiplies by numbers of up to {trained} digits; the layout"
                " 'long-multiplication' takes longer ones"
            )
        other = copy(self)
        second = None if digits == "same" else digits
        other.task = self.task.model_copy(update={"second_digits": second})
        return other

    def with_operands(self, operands: int) -> "Solver":
        """The same model for sums of another number of operands."""
        if not isinstance(self.task, Addition):
            raise UsageError(f"this model was trained for {self.task.kind}, not for sums")
        if operands != self.task.operands and self.layout.options.kind != "running-sums":
            raise UsageError(
                f"this model adds {self.task.operands} numbers; the layout 'running-sums' takes"
                " another number of them"
            )
        other = copy(self)
        task: Any = TASKS.parse({**to_json(self.task), "operands": operands})
        other.task, digits = task, self.layout.digits
        other.layout = LAYOUTS.build(self.layout.options, task, digits)
        return other

    def solve(self, problems: str | Iterable[str]) -> list[int | None]:
        """The model's answers; None where its output is not a number."""
        return [solution.answer for solution in self.explain(problems)]

    def explain(
        self, problems: str | Iterable[str], layers: int | None = None, progress: bool = False
    ) -> list[Solution]:
        """The model's answers with their confidence, beside the correct ones.

        With `progress`, a terminal shows a bar.
        """
        self.check_layers(layers)
        texts: list[str] = list_problems(problems)
        parsed = [parse_problem(problem, self.layout) for problem in texts]
        solutions: dict[int, Solution] = {}
        batches = list(self.group_by_layout(parsed))
        for rows in show_progress(batches, "solve") if progress else batches:
            columns = zip(*(parsed[row] for row in rows), strict=True)
            operands = tuple(Numbers.from_text(column) for column in columns)
            found = self.solve_batch([texts[row] for row in rows], operands, layers)
            solutions |= zip(rows, found, strict=True)
        return [solutions[row] for row in range(len(texts))]

    def group_by_layout(self, parsed: Sequence[Sequence[str]]) -> Iterator[list[int]]:
        """Rows of problems that one layout fits, in batches."""
        layouts: dict[tuple[int, ...], Layout] = {}
        groups: dict[tuple[WrittenField, ...], tuple[Layout, list[int]]] = {}
        for row, operands in enumerate(parsed):
            lengths = tuple(map(len, operands))
            if lengths not in layouts:
                layouts[lengths] = self.layout.for_lengths(lengths)
            layout = layouts[lengths]
            groups.setdefault(tuple(layout.fields), (layout, []))[1].append(row)
        for layout, rows in groups.values():
            size = self.batch_size(layout)
            yield from (rows[start : start + size] for start in range(0, len(rows), size))

    def solve_batch(
        self, problems: Sequence[str], operands: tuple[Numbers, ...], layers: int | None
    ) -> list[Solution]:
        layout = self.layout.fit(operands)
        with self.testing():
            logits = self.answer_logits(operands, layout, layers)
        return self.read_solutions(problems, operands, logits)

    def read_solutions(
        self, problems: Sequence[str], operands: tuple[Numbers, ...], logits: Tensor
    ) -> list[Solution]:
        """The answers that logits (b, n_out, vocabulary) stand for, beside the correct ones."""
        layout = self.layout.fit(operands)
        confidence, symbols = (t.cpu().numpy() for t in logits.softmax(-1).max(-1))
        numbers, valid = layout.decode_answer(symbols)
        correct = self.task.answer(*operands)
        right = (symbols == layout.encode_answer(correct, symbols.shape[1])).all(1)
        answers, truths = numbers.to_ints(), correct.to_ints()
        return [
            Solution(
                problem,
                answers[row] if valid[row] else None,
                truths[row],
                tuple(layout.vocabulary[token] for token in symbols[row]),
                tuple(confidence[row].tolist()),
                bool(right[row]),
            )
            for row, problem in enumerate(problems)
        ]

    def trace(self, problems: str | Sequence[str], layers: int | None = None) -> "Trace":
        """All that the model computes for a problem, or for several that are laid out alike.

        Patterns, scores, the residual stream, what would be read after each layer, …, by name.
        """
        from lengthwise.solver.inside.record import record

        return record(self, problems, layers)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The card that `save_pretrained` and `push_to_hub` write where there is none."""
        return make_card(self)

    def show(self, problem: str) -> list[dict[str, Any]]:
        """How a problem is written: each token's symbol, coordinates, and the answer read there."""
        parsed = parse_problem(problem, self.layout)
        operands = tuple(Numbers.from_text([operand]) for operand in parsed)
        (tokens,) = tokens_of(self.layout.fit(operands), operands)
        hidden = ["correct"] if any(token.row for token in tokens) else ["correct", "row"]
        return [
            {
                **{name: v for name, v in vars(token).items() if name not in hidden},
                "answer read here": token.correct or "",
            }
            for token in tokens
        ]
