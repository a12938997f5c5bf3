// Rewriting, as in model/rewrite.py: in each round the model sees the problem and the symbols that
// it wrote in the round before, and writes all of them anew, until none changes.
//
// What it writes at a token depends only on the token's neighbourhood: the tokens of its column and
// of the next lower one, and the symbol written there. As in model/neighbourhoods.py, each distinct
// neighbourhood is computed once, and a round visits only tokens below which something changed.

import { weightsByPosition } from "./attention.js";
import { applyLayer, classify, embed } from "./encoder.js";
import { positionScores } from "./positions.js";
import { likeliest, probability, takeRows } from "./tensor.js";

const AT_ONCE = 1024; // neighbourhoods that are computed in one batch

/** Rounds until no symbol changes; the first is iteration 1. */
export function* rewrite(model, tokens, coordinates, answerWidth) {
  const columns = new Columns(model, tokens, coordinates);
  const neighbourhoods = new Neighbourhoods(model, columns, answerWidth);
  const { symbols, above } = neighbourhoods;
  const found = new Int32Array(tokens.length).fill(-1); // each query's neighbourhood
  const answerAt = found.subarray(0, answerWidth);
  let active = neighbourhoods.queries;
  for (let iteration = 1; active.length; iteration++) {
    const next = neighbourhoods.find(active, (token) => symbols[found[token]] ?? columns.nothing);
    const changed = active.filter((query, i) => symbols[next[i]] !== symbols[found[query]]);
    active.forEach((query, i) => (found[query] = next[i]));
    yield {
      iteration,
      read: () => neighbourhoods.read(answerAt),
      logits: () => neighbourhoods.readLogits(answerAt),
    };
    active = changed.flatMap((token) => above[token] ?? []);
  }
}

/** The tokens by column, and what each sees, as in model/columns.py. */
export class Columns {
  constructor(model, tokens, coordinates) {
    Object.assign(this, { model, tokens, coordinates });
    this.nothing = model.vocabulary.length; // the symbol where nothing is written yet
    this.scores = positionScores(model, 0, coordinates);
    this.knownWeights = new Map();
    this.tokenAt = Array.from({ length: model.operands }, () => new Map()); // by significance
    this.isShared = [];
    coordinates.operand.forEach((operand, token) => {
      this.tokenAt[operand].set(coordinates.significance[token], token);
      this.isShared[operand] = coordinates.shared[token];
    });
  }

  /** Whether symbols are written at a token: where answers are read. */
  writes(token) {
    return this.coordinates.operand[token] === 0;
  }

  /** For each operand, its token in a token's column and in the next lower one, or undefined. */
  slots(token) {
    const [at, shared] = [this.coordinates.significance[token], this.coordinates.shared[token]];
    return this.tokenAt.map((tokens, operand) => {
      // A shared operand, such as the 3 of 35 × 3, is seen from every column, and sees only itself.
      if (this.isShared[operand]) return [tokens.get(shared ? at : 0)];
      return shared ? [] : [tokens.get(at), tokens.get(at - 1)];
    });
  }

  /** The tokens that a token sees: of its column, itself included, and of the next lower one. */
  see(token) {
    const slots = this.slots(token);
    const exists = (key) => key !== undefined;
    const own = slots.map(([key]) => key).filter(exists);
    const lower = slots.map(([, key]) => key).filter(exists);
    return { own, lower, ...this.weigh(token, own, lower) };
  }

  /** The weights of both columns, in a round's first layer, and of the own one, in the others. */
  weigh(token, own, lower) {
    const { operand } = this.coordinates;
    const place = [token, ...own, -1, ...lower].map((key) => operand[key]).join(); // decides them
    if (!this.knownWeights.has(place)) {
      const weights = (keys) => weightsByPosition(this.model, this.scores, token, keys);
      this.knownWeights.set(place, { gather: weights([...own, ...lower]), within: weights(own) });
    }
    return this.knownWeights.get(place);
  }

  /** The keys and weights of a query in the first layer of a round: the same in each. */
  attention(query) {
    const { own, lower, gather } = this.see(query);
    return { keys: [...own, ...lower], weights: gather };
  }
}

/** The distinct neighbourhoods of a problem, numbered as they are found. */
class Neighbourhoods {
  constructor(model, columns, answerWidth) {
    Object.assign(this, { model, columns });
    this.vocabulary = model.vocabulary.length;
    const table = embed(model, model.vocabulary.map((_, symbol) => symbol));
    this.vectors = new Float32Array(table.length + model.width); // of symbols; of nothing, 0
    this.vectors.set(table);
    this.queries = columns.tokens.map((_, token) => token)
      .filter((token) => columns.writes(token) || token < answerWidth);
    this.below = []; // the token below each query where a symbol is written, or undefined
    this.above = []; // the queries above each token
    this.surroundings = []; // of each query, a number for what never changes around it
    this.examples = []; // of each such number, a query
    this.numberSurroundings();
    this.known = new Map(); // the number of each neighbourhood
    this.symbols = []; // that are written in each
    this.confidence = [];
    this.logits = [];
  }

  numberSurroundings() {
    const { tokens, coordinates, nothing } = this.columns;
    const numbers = new Map();
    for (const query of this.queries) {
      const slots = this.columns.slots(query);
      const kinds = slots.flat().map((token) => tokens[token] ?? nothing);
      const name = String.fromCharCode(coordinates.operand[query], ...kinds);
      if (!numbers.has(name)) numbers.set(name, this.examples.push(query) - 1);
      this.surroundings[query] = numbers.get(name);
      const below = slots[0][1]; // only tokens of the first operand write
      this.below[query] = below;
      if (below !== undefined) (this.above[below] ??= []).push(query);
    }
  }

  /** The neighbourhoods of some queries, after computing those that are new. */
  find(queries, symbolAt) {
    const { below, surroundings, examples, known, columns } = this;
    const size = this.vocabulary + 1;
    const keys = queries.map((query) => surroundings[query] * size +
      (below[query] === undefined ? columns.nothing : symbolAt(below[query])));
    const missing = [...new Set(keys.filter((key) => !known.has(key)))];
    for (let at = 0; at < missing.length; at += AT_ONCE) {
      const some = missing.slice(at, at + AT_ONCE);
      const logits = this.compute(
        some.map((key) => examples[Math.floor(key / size)]), some.map((key) => key % size));
      some.forEach((key, i) =>
        this.add(key, logits.subarray(i * this.vocabulary, (i + 1) * this.vocabulary)));
    }
    return keys.map((key) => known.get(key));
  }

  add(key, logits) {
    const symbol = likeliest(logits, 0, this.vocabulary);
    this.known.set(key, this.symbols.length);
    this.symbols.push(symbol);
    this.confidence.push(probability(logits, 0, this.vocabulary, symbol));
    this.logits.push(logits);
  }

  /** Logits at queries above these symbols: one round, over their neighbourhoods side by side. */
  compute(queries, symbolsBelow) {
    const { model, columns, vectors } = this;
    const seen = queries.map((query) => columns.see(query));
    // The rows of x: first the queries, then the rest of their columns, then what is below.
    const rows = [...queries];
    const rowOf = queries.map((query, i) => new Map([[query, i]]));
    const addRow = (i) => (token) => {
      if (!rowOf[i].has(token)) rowOf[i].set(token, rows.push(token) - 1);
    };
    seen.forEach(({ own }, i) => own.forEach(addRow(i)));
    seen.forEach(({ lower }, i) => lower.forEach(addRow(i)));
    const [gather, within, written] = Array.from({ length: 3 }, () => ({ keys: [], weights: [] }));
    const set = (part, row, keys, weights) => {
      part.keys[row] = keys;
      part.weights[row] = weights;
    };
    queries.forEach((query, i) => {
      const row = (token) => rowOf[i].get(token);
      for (const token of seen[i].own) {
        const view = token === query ? seen[i] : columns.see(token);
        set(gather, row(token), [...view.own, ...view.lower].map(row), view.gather);
        set(within, row(token), view.own.map(row), view.within);
        set(written, row(token),
          view.lower.map((key) => (columns.writes(key) ? symbolsBelow[i] : columns.nothing)),
          view.gather.map((weights) => weights.slice(view.own.length)));
      }
    });
    let x = takeRows(vectors, rows.map((token) => columns.tokens[token]), model.width);
    x = applyLayer(model, 0, x, gather.keys, () => gather.weights, { vectors, ...written });
    for (let left = model.config.depth.layers_per_round - 1; left > 0; left--) {
      const keys = left > 1 ? within.keys : within.keys.slice(0, queries.length);
      x = applyLayer(model, 0, x, keys, () => within.weights);
    }
    return classify(model, x, queries.length);
  }

  /** The symbols of some neighbourhoods, with their probabilities in thousandths. */
  read(found) {
    const symbols = new Uint8Array(found.length);
    const confidence = new Uint16Array(found.length);
    for (let i = 0; i < found.length; i++) {
      symbols[i] = this.symbols[found[i]];
      confidence[i] = this.confidence[found[i]];
    }
    return { symbols, confidence };
  }

  readLogits(found) {
    const logits = new Float32Array(found.length * this.vocabulary);
    found.forEach((number, i) => logits.set(this.logits[number], i * this.vocabulary));
    return logits;
  }
}
