// Attention, as in model/attention.py and local.py: over all tokens, within a window, or by
// position alone.

import { PAD } from "./layout.js";
import { positionScores } from "./positions.js";
import { linear, softmax } from "./tensor.js";

/** The keys that each query attends to. */
export function visibleKeys(model, tokens, coordinates) {
  const { kind, mask_padding: maskPadding } = model.config.attention;
  if (kind === "full") {
    const keys = tokens.map((_, i) => i).filter((i) => !(maskPadding && tokens[i] === PAD));
    return tokens.map(() => keys);
  }
  return windowedKeys(model.config.attention, coordinates);
}

/** Keys within the window. A shared operand is seen from everywhere, and sees only itself. */
function windowedKeys({ window, over }, coordinates) {
  const values = coordinates[over];
  const onLine = new Map(); // tokens by their value
  const shared = [];
  values.forEach((value, i) => {
    if (coordinates.shared[i]) shared.push(i);
    else if (onLine.has(value)) onLine.get(value).push(i);
    else onLine.set(value, [i]);
  });
  return values.map((value, query) => {
    if (coordinates.shared[query]) return shared;
    const near = [];
    for (let v = value - window; v <= value + window; v++) near.push(...(onLine.get(v) ?? []));
    return [...near, ...shared].sort((a, b) => a - b);
  });
}

/** The weights of every query's keys: weights[query][head][j] is for keys[query][j]. */
export function attentionWeights(model, i, x, keys, coordinates) {
  const { heads, width, headWidth } = model;
  const scores = positionScores(model, i, coordinates);
  if (model.config.attention.kind === "positional") {
    return keys.map((own, query) => weightsByPosition(model, scores, query, own));
  }
  const layer = model.layer(i);
  const [q, k] = [linear(x, layer.query), linear(x, layer.key)];
  const content = (head, query, key) => {
    const [a, b] = [query * width + head * headWidth, key * width + head * headWidth];
    let sum = 0;
    for (let d = 0; d < headWidth; d++) sum += q[a + d] * k[b + d];
    return sum / Math.sqrt(headWidth);
  };
  return keys.map((own, query) =>
    Array.from({ length: heads }, (_, head) =>
      softmax(own.map((key) => content(head, query, key) + scores(head, query, key, q, k)))));
}

/** Weights that depend on positions alone, in every head; a null key takes what is left. */
export function weightsByPosition(model, scores, query, keys) {
  return Array.from({ length: model.heads }, (_, head) =>
    softmax([...keys.map((key) => scores(head, query, key)), 0]).slice(0, -1));
}

/** What every query takes from its keys, which are rows of x, and from written symbols. */
export function attend(model, i, x, keys, weights, written) {
  const layer = model.layer(i);
  const mixed = new Float32Array(keys.length * model.width);
  mix(model, linear(x, layer.value), keys, weights, mixed);
  if (written) {
    mix(model, linear(written.vectors, layer.symbolValue), written.keys, written.weights, mixed);
  }
  return linear(mixed, layer.output);
}

/** Add the values of every query's keys, times their weights, to `mixed`. */
function mix({ heads, width, headWidth }, values, keys, weights, mixed) {
  keys.forEach((own, query) => {
    for (let head = 0; head < heads; head++) {
      const shares = weights[query][head];
      const to = query * width + head * headWidth;
      for (let d = 0; d < headWidth; d++) {
        let sum = 0;
        for (let j = 0; j < own.length; j++) {
          sum += shares[j] * values[own[j] * width + head * headWidth + d];
        }
        mixed[to + d] += sum;
      }
    }
  });
}
