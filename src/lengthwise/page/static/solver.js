// A model with its task and layout: "99999 + 1" in; the answer, and how it forms, out.

import { answer, carries, parseProblem } from "./arithmetic.js";
import { findAttention, forward } from "./depth.js";
import { fitLayout, readNumber, writeNumber, writeProblem } from "./layout.js";

const MOST_SYMBOLS = 10_000_000; // of answers, over all iterations that are kept

/** A model's problem, written as tokens. */
function prepare(model, text) {
  const operands = parseProblem(text, model.task);
  const layout = fitLayout(model, operands);
  return { operands, layout, ...writeProblem(model, operands, layout) };
}

/**
 * Solve a problem, one iteration at a time. Yields the number of each; returns all that the page
 * shows of the problem, in the form that the server gives, too.
 */
export function* solve(model, text) {
  const { operands, layout, tokens, coordinates } = prepare(model, text);
  const { answerAt, leastFirst } = layout;
  let [steps, every, count, last] = [[], 1, 0, null];
  const keep = () => steps.push({ iteration: last.iteration, ...last.read() });
  for (last of forward(model, tokens, coordinates, answerAt)) {
    if (count++ % every === 0) keep();
    // Of very many iterations every second, fourth, … is kept.
    if (steps.length * answerAt.length > MOST_SYMBOLS && steps.length > 2) {
      steps = steps.filter((_, i) => i % 2 === 0);
      every *= 2;
    }
    yield last.iteration;
  }
  if (steps.at(-1).iteration !== last.iteration) keep();
  const correct = answer(model.task, operands);
  const truth = writeNumber(correct, answerAt.length, leastFirst);
  const { symbols } = steps.at(-1);
  const leadingZeros = model.task.kind === "elementwise-addition" || !!model.task.constant_length;
  const { index, significance, place, operand } = coordinates;
  return {
    problem: operands.join(` ${model.symbol} `),
    operands,
    symbol: model.symbol,
    correct,
    answer: readNumber([...symbols], leastFirst, leadingZeros),
    right: symbols.every((symbol, i) => symbol === truth[i]),
    least_first: leastFirst,
    vocabulary: model.vocabulary,
    tokens: { symbol: tokens, index, significance, place, operand },
    read: answerAt,
    truth,
    carries: carries(model.task, operands),
    steps,
    heads: model.heads,
    logits: last.logits(),
  };
}

/**
 * The attention of some queries in an iteration: for each head and query, its keys with their
 * weights in thousandths; those below one in a hundred are left out.
 */
export function attentionOf(model, text, iteration, first, last) {
  const { layout, tokens, coordinates } = prepare(model, text);
  const attention = findAttention(model, tokens, coordinates, layout.answerAt, iteration);
  const queries = Array.from({ length: last - first }, (_, i) => attention(first + i));
  return Array.from({ length: model.heads }, (_, head) =>
    queries.map(({ keys, weights }) =>
      keys
        .map((key, j) => [key, Math.round(1000 * weights[head][j])])
        .filter(([, weight]) => weight >= 10),
    ),
  );
}
