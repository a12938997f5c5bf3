// The encoder, as in model/encoder.py: embeddings, layers, shared or not, and a classifier.

import { attend, attentionWeights, visibleKeys } from "./attention.js";
import { embedPositions } from "./positions.js";
import { ACTIVATIONS, add, layerNorm, linear } from "./tensor.js";

/** A model from its description and the bytes of its weights: float32, tensor after tensor. */
export class Model {
  constructor(description, bytes) {
    Object.assign(this, description); // task, layout, config, digits, vocabulary, symbol, …
    const { config } = this;
    this.width = config.width;
    this.heads = config.heads;
    this.headWidth = config.width / config.heads;
    this.inputWidth = config.embedding_width ?? config.width;
    this.tensors = new Map();
    let offset = 0;
    for (const [name, size] of description.tensors) {
      this.tensors.set(name, new Float32Array(bytes, offset, size));
      offset += 4 * size;
    }
    this.ownLayers = config.encoder === "transformer" ? config.layers : 1;
    this.ownPositions = this.has("positions.1.table.weight") ? this.ownLayers : 1;
    this.layers = Array.from({ length: this.ownLayers }, (_, i) => this.readLayer(i));
  }

  has(name) {
    return this.tensors.has(name);
  }

  tensor(name) {
    return this.tensors.get(name);
  }

  /** The weight and bias of a linear map or a layer norm. */
  part(name) {
    return { weight: this.tensor(`${name}.weight`), bias: this.tensor(`${name}.bias`) };
  }

  readLayer(i) {
    const own = (name) => this.part(`layers.${i}.${name}`);
    const names = ["query", "key", "value", "output"];
    const attention = names.map((name) => [name, own(`attention.${name}`)]);
    return {
      ...Object.fromEntries(attention),
      attentionNorm: own("attention_norm"),
      widen: own("widen"),
      narrow: own("narrow"),
      feedforwardNorm: own("feedforward_norm"),
    };
  }

  /** The layer applied i-th; shared layers take turns. */
  layer(i) {
    return this.layers[i % this.ownLayers];
  }
}

/** Symbols with positions: n tokens -> (n, width). */
export function embed(model, tokens, coordinates) {
  const { inputWidth, config } = model;
  const symbols = model.tensor("symbols.weight");
  const x = new Float32Array(tokens.length * inputWidth);
  tokens.forEach((token, i) => {
    x.set(symbols.subarray(token * inputWidth, (token + 1) * inputWidth), i * inputWidth);
  });
  embedPositions(model, x, coordinates);
  const normed = layerNorm(x, tokens.length, model.part("embedding_norm"), config.norm_epsilon);
  if (!model.has("project.weight")) return normed;
  return linear(normed, tokens.length, model.part("project"));
}

/** One layer: (n, width) -> (n, width). */
export function applyLayer(model, i, x, keys, weights) {
  const n = keys.length;
  const layer = model.layer(i);
  const epsilon = model.config.norm_epsilon;
  const activation = ACTIVATIONS[model.config.activation];
  const feedforward = (input) =>
    linear(linear(input, n, layer.widen).map(activation), n, layer.narrow);
  if (model.config.norm === "pre") {
    const normed = layerNorm(x, n, layer.attentionNorm, epsilon);
    const attended = add(x, attend(model, i, normed, keys, weights(normed)));
    return add(attended, feedforward(layerNorm(attended, n, layer.feedforwardNorm, epsilon)));
  }
  const attended = add(x, attend(model, i, x, keys, weights(x)));
  const middle = layerNorm(attended, n, layer.attentionNorm, epsilon);
  return layerNorm(add(middle, feedforward(middle)), n, layer.feedforwardNorm, epsilon);
}

/** Hidden vectors of the first positions -> logits (count, vocabulary). */
export function classify(model, x, count) {
  const { width, config } = model;
  let read = x.subarray(0, count * width);
  if (model.has("final_norm.weight")) {
    read = layerNorm(read, count, model.part("final_norm"), config.norm_epsilon);
  }
  return linear(read, count, model.part("classifier"));
}

/**
 * The forward pass, one layer at a time: yields the logits at the answer's positions, first of the
 * embeddings alone, then after each layer, with a function that gives the layer's attention.
 * The depth is fixed, or ends when the answer has not changed for a while (model/depth.py).
 */
export function* forward(model, tokens, coordinates, answerWidth) {
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
  let logits = classify(model, x, answerWidth);
  let unchanged = 0; // iterations
  yield { logits, keys, weights: () => null };
  for (let i = 0; i < most; i++) {
    const input = untilStable && config.depth.reinject_input && i ? add(x, start) : x;
    let seen = null; // by attention
    x = applyLayer(model, i, input, keys, (read) => weigh(i, (seen = read)));
    const next = classify(model, x, answerWidth);
    unchanged = sameSymbols(next, logits, model.vocabulary.length) ? unchanged + 1 : 0;
    logits = next;
    yield { logits, keys, weights: () => weigh(i, seen) };
    if (untilStable && i + 1 >= config.layers && unchanged >= config.depth.stable_for) return;
  }
}

function sameSymbols(a, b, symbols) {
  for (let at = 0; at < a.length; at += symbols) {
    if (likeliest(a, at, symbols) !== likeliest(b, at, symbols)) return false;
  }
  return true;
}

/** The symbol with the highest logit, of those from `at` on. */
export function likeliest(logits, at, symbols) {
  let best = 0;
  for (let s = 1; s < symbols; s++) if (logits[at + s] > logits[at + best]) best = s;
  return best;
}
