// Attention, as in model/attention.py and model/local.py: over all tokens, within a window, or by
// position alone.

import { PAD } from "./layout.js";
import { distance, positionScores } from "./positions.js";
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
    else onLine.set(value, [...(onLine.get(value) ?? []), i]);
  });
  return values.map((value, query) => {
    if (coordinates.shared[query]) return shared;
    const near = [];
    for (let v = value - window; v <= value + window; v++) near.push(...(onLine.get(v) ?? []));
    return [...near, ...shared].sort((a, b) => a - b);
  });
}

/**
 * The weights of every query's keys in every head: weights[query][head][j] is for keys[query][j].
 * With the attention `positional` they depend on positions alone; a null key takes what is left.
 */
export function attentionWeights(model, i, x, keys, coordinates) {
  const { heads, width, headWidth } = model;
  const addition = positionScores(model, i, coordinates);
  const positional = model.config.attention.kind === "positional";
  const layer = model.layer(i);
  const q = positional ? null : linear(x, keys.length, layer.query);
  const k = positional ? null : linear(x, keys.length, layer.key);
  const content = (head, query, key) => {
    const [a, b] = [query * width + head * headWidth, key * width + head * headWidth];
    let sum = 0;
    for (let d = 0; d < headWidth; d++) sum += q[a + d] * k[b + d];
    return sum / Math.sqrt(headWidth);
  };
  return keys.map((own, query) =>
    Array.from({ length: heads }, (_, head) => {
      if (positional) {
        const scores = own.map((key) => addition(head, query, key));
        return softmax([...scores, 0]).slice(0, -1);
      }
      return softmax(
        own.map((key) => content(head, query, key) + addition(head, query, key, q, k)),
      );
    }),
  );
}

/** What every query takes from its keys: (n, width) -> (n, width). */
export function attend(model, i, x, keys, weights) {
  const { heads, width, headWidth } = model;
  const layer = model.layer(i);
  const values = linear(x, keys.length, layer.value);
  const mixed = new Float32Array(keys.length * width);
  keys.forEach((own, query) => {
    for (let head = 0; head < heads; head++) {
      const shares = weights[query][head];
      const to = query * width + head * headWidth;
      for (let d = 0; d < headWidth; d++) {
        let sum = 0;
        for (let j = 0; j < own.length; j++) {
          sum += shares[j] * values[own[j] * width + head * headWidth + d];
        }
        mixed[to + d] = sum;
      }
    }
  });
  return linear(mixed, keys.length, layer.output);
}
