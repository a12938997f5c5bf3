// The encoder, as in model/encoder.py: embeddings, layers, shared or not, and a classifier.

import { attend } from "./attention.js";
import { embedPositions } from "./positions.js";
import { ACTIVATIONS, add, layerNorm, linear, takeRows } from "./tensor.js";

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
    return {
      query: own("attention.query"),
      key: own("attention.key"),
      value: own("attention.value"),
      symbolValue: own("attention.symbol_value"),
      output: own("attention.output"),
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

/** Symbols with positions: n tokens -> (n, width). Without coordinates, the symbols alone. */
export function embed(model, tokens, coordinates) {
  const { inputWidth, config } = model;
  const x = takeRows(model.tensor("symbols.weight"), tokens, inputWidth);
  if (coordinates) embedPositions(model, x, coordinates);
  const normed = layerNorm(x, model.part("embedding_norm"), config.norm_epsilon);
  return model.has("project.weight") ? linear(normed, model.part("project")) : normed;
}

/**
 * One layer: x (n, width) -> (queries, width), for its first rows. `keys` and `weights(x)` are
 * those of each query; `written` are the symbols that attention sees beside x, if there are any.
 */
export function applyLayer(model, i, x, keys, weights, written) {
  const layer = model.layer(i);
  const epsilon = model.config.norm_epsilon;
  const activation = ACTIVATIONS[model.config.activation];
  const feedforward = (input) => linear(linear(input, layer.widen).map(activation), layer.narrow);
  if (model.config.norm === "pre") {
    const normed = layerNorm(x, layer.attentionNorm, epsilon);
    const attended = add(x, attend(model, i, normed, keys, weights(normed), written));
    return add(attended, feedforward(layerNorm(attended, layer.feedforwardNorm, epsilon)));
  }
  const attended = add(x, attend(model, i, x, keys, weights(x), written));
  const middle = layerNorm(attended, layer.attentionNorm, epsilon);
  return layerNorm(add(middle, feedforward(middle)), layer.feedforwardNorm, epsilon);
}

/** Hidden vectors of the first positions -> logits (count, vocabulary). */
export function classify(model, x, count) {
  const { width, config } = model;
  let read = x.subarray(0, count * width);
  if (model.has("final_norm.weight")) {
    read = layerNorm(read, model.part("final_norm"), config.norm_epsilon);
  }
  return linear(read, model.part("classifier"));
}
