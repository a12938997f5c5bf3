// How often layers are applied, as in model/depth.py: a fixed number of times, or until the answer
// has not changed for a while. rewrite.js has the third depth.

import { attentionWeights, visibleKeys } from "./attention.js";
import { applyLayer, classify, embed } from "./encoder.js";
import { Columns, rewrite } from "./rewrite.js";
import { add, likeliest, probability } from "./tensor.js";

/**
 * The forward pass, one iteration at a time. Yields its number, and how the answer stands after it:
 * `logits()`, and `read()`, the symbols with their probabilities in thousandths. The answer is read
 * at the tokens `answerAt`, which are the first ones, except in long multiplication.
 */
export function forward(model, tokens, coordinates, answerAt) {
  const depth = model.config.depth.kind === "rewrite" ? rewrite : iterateLayers;
  return depth(model, tokens, coordinates, answerAt);
}

/** A function that gives the keys of a query, and their weights in each head, in an iteration. */
export function findAttention(model, tokens, coordinates, answerAt, iteration) {
  if (model.config.depth.kind === "rewrite") {
    const columns = new Columns(model, tokens, coordinates);
    return (query) => columns.attention(query);
  }
  for (const state of iterateLayers(model, tokens, coordinates, answerAt)) {
    if (state.iteration === iteration) return state.attention;
  }
  throw new Error(`there is no iteration ${iteration}`);
}

/** Layers, from the embeddings alone on, which are iteration 0. */
function* iterateLayers(model, tokens, coordinates, answerAt) {
  const { config } = model;
  const keys = visibleKeys(model, tokens, coordinates);
  const start = embed(model, tokens, coordinates);
  const untilStable = config.depth.kind === "until-stable";
  const most = untilStable ? config.layers + tokens.length : config.layers;
  const fixed = new Map(); // weights by position alone are the same in every iteration
  const weigh = (i, x) => {
    if (config.attention.kind !== "positional") {
      return attentionWeights(model, i, x, keys, coordinates);
    }
    const own = i % Math.max(model.ownLayers, model.ownPositions);
    if (!fixed.has(own)) fixed.set(own, attentionWeights(model, own, null, keys, coordinates));
    return fixed.get(own);
  };
  let x = start;
  let logits = classify(model, x, answerAt.length);
  let unchanged = 0; // iterations
  yield describe(model, 0, logits);
  for (let i = 0; i < most; i++) {
    const input = untilStable && config.depth.reinject_input && i ? add(x, start) : x;
    let weights = null;
    x = applyLayer(model, i, input, keys, (seen) => (weights = weigh(i, seen)));
    const next = classify(model, x, answerAt.length);
    unchanged = sameSymbols(next, logits, model.vocabulary.length) ? unchanged + 1 : 0;
    logits = next;
    yield describe(model, i + 1, logits, keys, weights);
    if (untilStable && i + 1 >= config.layers && unchanged >= config.depth.stable_for) return;
  }
}

function describe(model, iteration, logits, keys, weights) {
  return {
    iteration,
    read: () => readLogits(logits, model.vocabulary.length),
    logits: () => logits,
    attention: (query) => ({ keys: keys[query], weights: weights[query] }),
  };
}

function readLogits(logits, vocabulary) {
  const symbols = new Uint8Array(logits.length / vocabulary);
  const confidence = new Uint16Array(symbols.length);
  for (let i = 0, at = 0; i < symbols.length; i++, at += vocabulary) {
    symbols[i] = likeliest(logits, at, vocabulary);
    confidence[i] = probability(logits, at, vocabulary, symbols[i]);
  }
  return { symbols, confidence };
}

function sameSymbols(a, b, vocabulary) {
  for (let at = 0; at < a.length; at += vocabulary) {
    if (likeliest(a, at, vocabulary) !== likeliest(b, at, vocabulary)) return false;
  }
  return true;
}
