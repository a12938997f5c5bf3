// A model with its task and layout: "99999 + 1" in; the answer, and how it forms, out.

import { answer, carries, parseProblem } from "./arithmetic.js";
import { forward, likeliest } from "./encoder.js";
import { fitLayout, readNumber, writeNumber, writeProblem } from "./layout.js";

/** A model's problem, written as tokens. */
function prepare(model, text) {
  const operands = parseProblem(text, model.task);
  const layout = fitLayout(model, operands);
  return { operands, layout, ...writeProblem(model, operands, layout) };
}

/** The symbols that logits stand for, with their probability in thousandths. */
function readLogits(logits, symbols) {
  const found = { symbols: [], confidence: [] };
  for (let at = 0; at < logits.length; at += symbols) {
    const best = likeliest(logits, at, symbols);
    let total = 0;
    for (let s = 0; s < symbols; s++) total += Math.exp(logits[at + s] - logits[at + best]);
    found.symbols.push(best);
    found.confidence.push(Math.round(1000 / total));
  }
  return found;
}

/**
 * Solve a problem, one iteration at a time. Yields how the answer stands after each; returns all
 * that the page shows of it, in the form that the server gives, too.
 */
export function* solve(model, text) {
  const { operands, layout, tokens, coordinates } = prepare(model, text);
  const { answerWidth, leastFirst } = layout;
  const steps = [];
  let last = null;
  for (const { logits } of forward(model, tokens, coordinates, answerWidth)) {
    const step = { iteration: steps.length, ...readLogits(logits, model.vocabulary.length) };
    steps.push(step);
    last = logits;
    yield step;
  }
  const correct = answer(model.task, operands);
  const truth = writeNumber(correct, answerWidth, leastFirst);
  const { symbols } = steps.at(-1);
  const leadingZeros = model.task.kind === "elementwise-addition" || !!model.task.constant_length;
  const { index, significance, place, operand } = coordinates;
  return {
    problem: operands.join(` ${model.symbol} `),
    operands,
    symbol: model.symbol,
    correct,
    answer: readNumber(symbols, leastFirst, leadingZeros),
    right: symbols.every((symbol, i) => symbol === truth[i]),
    least_first: leastFirst,
    vocabulary: model.vocabulary,
    tokens: { symbol: tokens, index, significance, place, operand },
    read: truth.map((_, i) => i),
    truth,
    carries: carries(model.task, operands),
    steps,
    heads: model.heads,
    logits: last,
  };
}

/**
 * The attention of some queries in the layer applied i-th: for each head and query, its keys with
 * their weights in thousandths; those below one in a hundred are left out.
 */
export function attentionOf(model, text, iteration, first, last) {
  const { layout, tokens, coordinates } = prepare(model, text);
  let at = 0;
  for (const { keys, weights } of forward(model, tokens, coordinates, layout.answerWidth)) {
    if (at++ < iteration) continue;
    const found = weights();
    return Array.from({ length: model.heads }, (_, head) =>
      keys.slice(first, last).map((own, i) =>
        own
          .map((key, j) => [key, Math.round(1000 * found[first + i][head][j])])
          .filter(([, weight]) => weight >= 10),
      ),
    );
  }
  throw new Error(`there is no iteration ${iteration}`);
}
