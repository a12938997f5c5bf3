"""Traces and interventions against naive loops, and what they promise."""

from collections.abc import Callable
from typing import Any

import naive
import numpy as np
import pytest
from conftest import label
from encoders import Problems
from known import untrained
from pairwise import pairwise

from lengthwise.arithmetic.digits import Numbers
from lengthwise.base import UsageError
from lengthwise.model import local
from lengthwise.problems.batch import Batch
from lengthwise.solver import Solver
from lengthwise.solver.inside import intervene, mean, patch, zero
from lengthwise.solver.inside.interventions import Intervention
from lengthwise.solver.text import parse_problem

Array = naive.Array
SUMS = ["958 + 47", "12 + 905"]
OTHER = "777 + 30"
SIGNIFICANCE = {"kind": "relative-bias", "coordinate": "significance"}
STABLE = {"kind": "until-stable", "stable_for": 2}
LAYOUTS: list[object] = ["paper", {"kind": "compact", "order": "least-significant-first"}]
SITES = [
    *("layer 1 head 2", "layer 2 head 1", "layer 2 attention", "layer 1 feed-forward"),
    *("embedding", "after layer 1 attention", "after layer 2"),
]
ATTENTIONS: list[tuple[object, object]] = [
    ("full", "relative-key"),
    ({"kind": "full", "mask_padding": True}, "rope"),
    ({"kind": "local", "window": 2, "over": "index"}, "relative-key-query"),
    ({"kind": "positional", "window": 2}, SIGNIFICANCE),
]
STACKS: list[dict[str, Any]] = [
    {"encoder": "transformer"},
    {"encoder": "universal-transformer", "norm": "pre"},
    {"encoder": "universal-transformer", "depth": STABLE},
    {"depth": {"kind": "until-stable", "stable_for": 1, "reinject_input": True}},
]


class Watched(naive.Example):
    """A naive example that keeps what it computes, and may have places replaced."""

    def logits(self, n_out: int, layers: int | None) -> Array:
        self.seen: dict[str, Array] = {}
        return super().logits(n_out, layers)

    def visit(self, place: str, x: Array) -> Array:
        x = self.replaced(place, x)
        self.seen[place] = x.copy()
        return x

    def replaced(self, place: str, x: Array) -> Array:
        return x


def watch(
    solver: Solver, problem: str, replaced: Callable[[str, Array], Array] | None = None
) -> tuple[dict[str, Array], Array]:
    """What naive loops compute for one problem at each place, and the logits of its answer."""
    operands = tuple(Numbers.from_text([text]) for text in parse_problem(problem, solver.layout))
    batch = Batch.of_problems(solver.layout.fit(operands), operands, solver.device)
    given = Problems(batch.tokens, batch.coordinates, batch.n_out)
    resampled = solver.encoder.position(0).resample_coordinates(given.coordinates)
    true, shown = (
        {name: c.expand(1, -1)[0].tolist() for name, c in vars(at).items()}
        for at in (given.coordinates, resampled)
    )
    example = Watched(solver.encoder, given.tokens[0].tolist(), true, shown)
    if replaced is not None:
        example.replaced = replaced  # type: ignore[assignment, method-assign]
    logits = example.logits(given.n_out, None)
    return example.seen, logits[batch.answer_at]


def make(attention: object, position: object, layout: object = "paper", **fields: Any) -> Solver:
    return untrained(layout=layout, digits=4, attention=attention, position=position, **fields)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("choices", "stack", "layout", "banded"),
    pairwise(ATTENTIONS, STACKS, LAYOUTS, [False, True]),
    ids=label,
)
def test_traces_equal_naive_loops(
    choices: tuple[object, object],
    stack: dict[str, Any],
    layout: object,
    banded: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores, patterns and every named place, of each problem of a batch, at all positions."""
    for name in ("LONGEST_DENSE", "LONGEST_DENSE_POSITIONAL"):
        monkeypatch.setattr(local, name, 0 if banded else 100)
    solver = make(*choices, layout, **stack)
    trace = solver.trace(SUMS)
    for problem, text in enumerate(SUMS):
        seen, logits = watch(solver, text)
        places = {name for name in seen if not name.endswith(("scores", "pattern"))}
        # A problem that is stable before others of the batch goes on beside them.
        assert set(SITES) <= places
        for name in places:
            close(trace.at(name)[problem], seen[name])
        ran = sum(name.startswith("after layer") for name in places) // 2
        for layer in range(1, ran + 1):
            for head in (1, 2):
                here = {"problem": problem, "layer": layer, "head": head}
                close(trace.select("scores", **here), seen[f"layer {layer} head {head} scores"])
                close(trace.select("patterns", **here), seen[f"layer {layer} head {head} pattern"])
        last = f"after layer {ran}"
        lens = trace.select("logits", problem=problem, point=last)[trace.answer_at]
        close(lens, logits)


@pytest.mark.parametrize(("choices", "stack"), pairwise(ATTENTIONS, STACKS), ids=label)
def test_interventions_equal_hand_made_ones(
    choices: tuple[object, object], stack: dict[str, Any], subtests: pytest.Subtests
) -> None:
    """A place that is zeroed, averaged or patched, at some positions or all, changes the logits."""
    for site in SITES:
        with subtests.test(site):
            solver = make(*choices, **stack, layers=2)
            own, _ = watch(solver, OTHER)
            several = np.mean([watch(solver, text)[0][site] for text in SUMS], axis=0)
            cases: list[tuple[Intervention, Array, list[int]]] = [
                (zero(site), np.zeros_like(own[site]), list(range(9))),
                (mean(site, SUMS, positions=[0, 5]), several, [0, 5]),
                (patch(site, OTHER, positions=[1]), own[site], [1]),
            ]
            for intervention, values, rows in cases:

                def replaced(
                    place: str, x: Array, values: Array = values, rows: Any = rows, site: str = site
                ) -> Array:
                    if place != site:
                        return x
                    x = x.copy()
                    x[rows] = values[rows]
                    return x

                with intervene(solver, intervention):
                    found = answer_logits(solver, SUMS[0])
                    inner = solver.trace(SUMS[0])
                seen, expected = watch(solver, SUMS[0], replaced)
                close(found, expected)
                close(inner.at(site)[0], seen[site])
                close(
                    inner.select("logits", problem=0, point=inner.points[-1])[inner.answer_at],
                    expected,
                )


def answer_logits(solver: Solver, problem: str) -> Array:
    operands = tuple(Numbers.from_text([text]) for text in parse_problem(problem, solver.layout))
    with solver.testing():
        return solver.answer_logits(operands, solver.layout)[0].double().numpy()


def test_a_trace_has_the_answers_that_the_model_gives() -> None:
    """The last layer is traced at all positions, though the model reads only some."""
    solver = make("full", "relative-key")
    trace = solver.trace(SUMS)
    explained = solver.explain(SUMS)
    for found, expected in zip(trace.solutions, explained, strict=True):
        assert (found.symbols, found.answer) == (expected.symbols, expected.answer)
        assert found.confidences == pytest.approx(expected.confidences, abs=1e-5)
    assert [answers[-1] for answers in trace.answers] == [s.answer for s in explained]
    assert trace.confidences[:, -1].tolist() == [
        pytest.approx(s.confidences, abs=1e-5) for s in explained
    ]
    assert trace.patterns.shape == (2, 2, 2, 9, 9)
    close(trace.patterns.sum(-1), 1)
    assert [t.symbol for t in trace.tokens[0]] == [t["symbol"] for t in solver.show(SUMS[0])]
    assert not any(module._forward_hooks for module in solver.modules())
    assert not any(module._forward_pre_hooks for module in solver.modules())


def test_arrays_have_labelled_axes() -> None:
    trace = make("full", "relative-key").trace(SUMS)
    np.testing.assert_equal(trace.select("patterns", layer=2, head=1), trace.patterns[:, 1, 0])
    for name, array in trace.arrays.items():
        assert array.shape == tuple(len(trace.labels(axis)) for axis in trace.axes(name)), name
    assert trace.points == trace.labels("point")
    assert trace.points[1:3] == ["after layer 1 attention", "after layer 1"]
    sublayer = trace.select("sublayer_outputs", layer=1, sublayer="feed-forward")
    np.testing.assert_equal(sublayer, trace.at("layer 1 feed-forward"))
    assert trace.positions(operand=1, significance=0) == [6]  # of 958 + 47
    assert trace.positions(problem=1, symbol="9") == [5]
    for name in trace.arrays:
        assert name in repr(trace)


def test_layers_run_until_the_answer_is_stable() -> None:
    solver = make("full", "relative-key", depth=STABLE)
    alone = [solver.trace(problem).layers for problem in SUMS]
    assert solver.trace(SUMS).layers == max(alone)
    assert min(alone) >= 2
    deeper = solver.trace(SUMS[0], layers=7)
    assert deeper.layers == 7
    assert deeper.solutions[0].symbols == solver.explain(SUMS[0], layers=7)[0].symbols
    assert deeper.patterns.shape == (1, 7, 2, 9, 9)


def test_every_layout_is_traced() -> None:
    """In long multiplication the answer is read here and there, and rows see symbols of others."""
    rows = {"kind": "relative-bias", "clip": 1, "by_operands": True, "coordinate": "significance"}
    solver = untrained(
        {"kind": "multiplication", "second_digits": 2},
        "long-multiplication",
        attention={"kind": "positional", "discrete_rows": True},
        position=rows,
    )
    trace = solver.trace("345 x 67")
    (expected,) = solver.explain("345 x 67")
    assert trace.solutions == [expected]
    assert trace.answers[0][-1] == expected.answer
    seen, logits = watch(solver, "345 x 67")
    close(trace.at("after layer 2")[0], seen["after layer 2"])
    close(trace.select("patterns", problem=0, layer=2, head=1), seen["layer 2 head 1 pattern"])
    close(trace.select("logits", problem=0, point="after layer 2")[trace.answer_at], logits)
    read = [trace.tokens[0][i].correct for i in trace.answer_at]
    assert read == list(reversed(str(345 * 67)))


def test_an_attention_without_a_softmax_has_no_patterns() -> None:
    solver = make("full", "relative-key")
    attention: Any = solver.encoder.layer(0).attention
    expected = solver.trace(SUMS).residual
    attention.softmax.forward = lambda scores: scores.softmax(-1)  # still a module: recorded
    close(solver.trace(SUMS).residual, expected)
    del attention.softmax
    attention.softmax = lambda scores: scores.softmax(-1)
    trace = solver.trace(SUMS)
    close(trace.residual, expected)
    with pytest.raises(UsageError, match=r"'patterns' was not recorded, .* no module `softmax`"):
        _ = trace.patterns
    assert "patterns" not in repr(trace)
    assert "patterns" not in trace.to_json()[0]
    close(trace.at("layer 1 attention"), trace.sublayer_outputs[:, 0, 0])


def test_heads_have_labels_without_a_module_for_the_output() -> None:
    solver = make("full", "relative-key")
    attention: Any = solver.encoder.layer(0).attention
    expected = solver.trace(SUMS).patterns
    output = attention.output
    del attention.output
    attention.output = lambda x: output(x)
    close(solver.trace(SUMS).select("patterns", head=2), expected[:, :, 1])


def test_several_interventions_and_several_sources() -> None:
    """One source for each problem; the sources are computed without the interventions."""
    solver = make("full", "relative-key")
    sources = ["1 + 2", "40 + 6"]
    with intervene(solver, patch("after layer 2", sources)):
        found = solver.solve(SUMS)
    assert found == solver.solve(sources)
    with intervene(solver, patch("after layer 2", solver.trace(sources))):
        assert solver.solve(SUMS) == found
    with intervene(solver, zero("layer 1 head 1"), patch("layer 1 head 1", OTHER)):
        both = solver.trace(SUMS)
    close(both.at("layer 1 head 1"), solver.trace([OTHER] * 2).at("layer 1 head 1"))
    with intervene(solver, zero("layer 1 attention")), intervene(solver, zero("layer 2 attention")):
        nested = solver.trace(SUMS)
    assert not nested.select("sublayer_outputs", sublayer="attention").any()
    assert solver.trace(SUMS).select("sublayer_outputs", sublayer="attention").all(-1).any()
    with pytest.raises(ZeroDivisionError), intervene(solver, zero("embedding")):
        raise ZeroDivisionError
    assert not any(module._forward_hooks for module in solver.modules())


def test_a_mean_over_many_problems_is_the_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.solver.inside.interventions.AT_ONCE", 3)
    solver = make("full", "relative-key")
    problems = [f"{n} + {7 * n}" for n in range(10, 20)]
    expected = solver.trace(problems).at("layer 1 feed-forward").mean(0)
    with intervene(solver, mean("layer 1 feed-forward", problems)):
        close(solver.trace(SUMS).at("layer 1 feed-forward")[1], expected)


def use(solver: Solver, *interventions: Any) -> None:
    with intervene(solver, *interventions):
        solver.solve(SUMS)


MISUSES: dict[str, Callable[[Solver], object]] = {
    "model.solve, model.explain and model.trace": lambda s: s("12+34"),
    "there is no problem to trace": lambda s: s.trace([]),
    "is not a problem": lambda s: s.trace("12"),
    "layers are applied at least once": lambda s: s.trace("1 + 2", layers=0),
    "a trace has no 'pattern': did you mean 'patterns'": lambda s: s.trace("1 + 2")["pattern"],
    "there is no layer 3; layer labels are from 1 to 2": lambda s: s.trace("1+2").table(3, 1),
    "there is no head 0": lambda s: s.trace("1 + 2").plot(1, 0),
    "'residual' has no axis 'layer'": lambda s: s.trace("1 + 2").select("residual", layer=1),
    "there is no axis 'hed': did you mean 'head'": lambda s: s.trace("1 + 2").labels("hed"),
    "there is no problem 5": lambda s: s.trace("1 + 2").plot(problem=5),
    "needs a layer and a head": lambda s: s.trace("1 + 2").table(layer=1),
    "there is no plot of 'paterns': did you": lambda s: s.trace("1 + 2").plot(what="paterns"),
    "tokens have no 'operands': did you": lambda s: s.trace("1 + 2").positions(operands=1),
    "'layer 2 hed 1' is no place in a model; write 'layer 2 head 1'": lambda _: zero(
        "layer 2 hed 1"
    ),
    "'after layer 1 head 2' is no place": lambda _: zero("after layer 1 head 2"),
    "'layer 0 attention' is no place": lambda _: zero("layer 0 attention"),
    "positions are indices": lambda _: zero("embedding", positions=[-1]),
    "needs a problem to take values from": lambda _: mean("embedding", []),
    "there is no 'layer 1 head 3': the model has 2 heads": lambda s: use(s, zero("layer 1 head 3")),
    "'layer 3 attention' had no effect: layers were applied 2": (
        lambda s: use(s, zero("layer 3 attention"))
    ),
    "there is no position 9: the problem has 9 tokens": (
        lambda s: use(s, zero("embedding", positions=[9]))
    ),
    "3 problems are patched in, but the model works on 2": (
        lambda s: use(s, patch("embedding", ["1+2", "3+4", "5+6"]))
    ),
    "made by zero, mean or patch, not 'layer 1 head 1'": lambda s: use(s, "layer 1 head 1"),
    "there is no layer 3;": lambda s: use(s, patch("layer 3 attention", "1 + 2")),
}


def test_misuse_is_refused_in_one_sentence(subtests: pytest.Subtests) -> None:
    for sentence in MISUSES:
        with subtests.test(sentence):
            solver = make("full", "relative-key")
            with pytest.raises(UsageError) as caught:
                MISUSES[sentence](solver)
            assert sentence in str(caught.value)
            assert "\n" not in str(caught.value)
            assert not any(module._forward_hooks for module in solver.modules())


def test_problems_of_other_lengths_are_not_padded() -> None:
    """A fitted layout would answer otherwise beside a longer problem."""
    solver = make("full", "alibi", "fitted")
    assert solver.trace(["12 + 34", "56 + 78"]).patterns.shape[-1] == 2 + 1 + 3
    with pytest.raises(UsageError, match="laid out with different lengths"):
        solver.trace(["12 + 34", "5 + 6"])
    with (
        intervene(solver, patch("embedding", "12 + 34")),
        pytest.raises(UsageError, match=r"has values for 6 tokens, but .* a problem of 8"),
    ):
        solver.solve("123 + 456")


def test_a_trace_that_would_fill_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lengthwise.solver.inside.record.MOST_BYTES", 10_000)
    with pytest.raises(UsageError, match="trace fewer or shorter problems"):
        make("full", "relative-key").trace(SUMS)
