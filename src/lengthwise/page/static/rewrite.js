// Rewriting, as in model/rewrite.py: in each round the model sees the problem and the symbols that
// it wrote in the round before, and writes all of them anew, until none changes.
//
// What it writes at a token depends only on the token's neighbourhood: the tokens of its column and
// of the next lower one, and the symbols written there. As in model/neighbourhoods.py, each
// distinct neighbourhood is computed once, and a round visits only tokens that see a change.

import { weightsByPosition } from "./attention.js";
import { applyLayer, classify, embed } from "./encoder.js";
import { SUM } from "./layout.js";
import { distance, positionScores } from "./positions.js";
import { likeliest, probability, takeRows } from "./tensor.js";

const AT_ONCE = 1024; // neighbourhoods that are computed in one batch

/** Rounds until no symbol changes; the first is iteration 1. */
export function* rewrite(model, tokens, coordinates, answerAt) {
  const columns = new Columns(model, tokens, coordinates);
  const neighbourhoods = new Neighbourhoods(model, columns, answerAt);
  const { symbols, dependents } = neighbourhoods;
  const found = new Int32Array(tokens.length).fill(-1); // each query's neighbourhood
  const read = () => answerAt.map((token) => found[token]);
  let active = neighbourhoods.queries;
  for (let iteration = 1; active.length; iteration++) {
    const next = neighbourhoods.find(active, (token) => symbols[found[token]] ?? columns.nothing);
    const changed = active.filter((query, i) => symbols[next[i]] !== symbols[found[query]]);
    active.forEach((query, i) => (found[query] = next[i]));
    yield {
      iteration,
      read: () => neighbourhoods.read(read()),
      logits: () => neighbourhoods.readLogits(read()),
    };
    active = [...new Set(changed.flatMap((token) => dependents[token] ?? []))];
  }
}

/** The tokens by column, and what each sees, as in model/columns.py. */
export class Columns {
  constructor(model, tokens, coordinates) {
    Object.assign(this, { model, tokens, coordinates });
    this.nothing = model.vocabulary.length; // the symbol where nothing is written yet
    this.scores = positionScores(model, 0, coordinates);
    this.knownWeights = new Map();
    this.hasRows = coordinates.shared.includes(true);
    this.lines = []; // by row and operand, the tokens by significance
    this.isShared = []; // by operand
    tokens.forEach((_, token) => {
      const { row, operand, significance, shared } = coordinates;
      const line = ((this.lines[row[token]] ??= [])[operand[token]] ??= new Map());
      line.set(significance[token], token);
      this.isShared[operand[token]] = shared[token];
    });
  }

  /** The token at a place, or undefined. */
  at(row, operand, significance) {
    return this.lines[row]?.[operand]?.get(significance);
  }

  isSum(token) {
    return this.hasRows && this.coordinates.operand[token] === SUM;
  }

  /** Whether symbols are written at a token: where answers are read. */
  writes(token) {
    return this.coordinates.operand[token] === 0 || this.isSum(token);
  }

  /**
   * What a token sees, with undefined where no token is. `own` is its column, itself included.
   * Of `next` it sees vectors only, of `lower` vectors and symbols, of `beside` symbols only.
   */
  slots(token) {
    const { significance, row: rows, shared } = this.coordinates;
    const [column, row] = [significance[token], rows[token]];
    const both = (line, operand) =>
      [column, column - 1].map((place) => this.at(line, operand, place));
    if (this.isSum(token)) {
      const [, below] = both(row, SUM);
      const beside = [...both(row, 0), ...both(row - 1, SUM)]; // its product, and the sum below
      return { own: [token], next: [], lower: [below], beside };
    }
    // A shared operand, such as the 3 of 35 × 3, is seen from every column, and sees only itself.
    if (shared[token]) return { own: [token], next: [], lower: [], beside: [] };
    const slots = { own: [], next: [], lower: [], beside: [] };
    this.isShared.forEach((isShared, operand) => {
      if (this.hasRows && operand === SUM) return;
      slots.own.push(this.at(row, operand, isShared ? row : column));
      if (!isShared) slots.lower.push(this.at(row, operand, column - 1));
    });
    // The lowest digit of a product sees the next digit of the first operand, in the row below.
    slots.next.push(column === row ? this.at(row - 1, 0, column) : undefined);
    return slots;
  }

  /**
   * The tokens that a token sees, without empty slots. `gather` are the weights of all `keys`, in a
   * round's first layer: the first ones are `vectors`, the last ones `symbols`. `within` are those
   * of its own column, in the other layers.
   */
  see(token) {
    const slots = this.slots(token);
    const exists = (key) => key !== undefined;
    const [own, next, lower, beside] =
      [slots.own, slots.next, slots.lower, slots.beside].map((part) => part.filter(exists));
    const keys = [...own, ...next, ...lower, ...beside];
    const vectors = keys.slice(0, keys.length - beside.length);
    return { own, keys, vectors, symbols: [...lower, ...beside], ...this.weigh(token, own, keys) };
  }

  weigh(token, own, keys) {
    const { operand, row } = this.coordinates;
    const places = keys.map((key) => [operand[key], row[token] === row[key],
      distance(this.coordinates, "significance", token, key)].join());
    const name = [operand[token], ...places].join(";"); // what decides the weights
    if (!this.knownWeights.has(name)) {
      const weights = (seen) => weightsByPosition(this.model, this.scores, token, seen);
      this.knownWeights.set(name, { gather: weights(keys), within: weights(own) });
    }
    return this.knownWeights.get(name);
  }

  /** The keys and weights of a query in the first layer of a round: the same in each. */
  attention(query) {
    const { keys, gather } = this.see(query);
    return { keys, weights: gather };
  }
}

/** The distinct neighbourhoods of a problem, numbered as they are found. */
class Neighbourhoods {
  constructor(model, columns, answerAt) {
    Object.assign(this, { model, columns });
    this.vocabulary = model.vocabulary.length;
    const table = embed(model, model.vocabulary.map((_, symbol) => symbol));
    this.vectors = new Float32Array(table.length + model.width); // of symbols; of nothing, 0
    this.vectors.set(table);
    const isRead = new Set(answerAt);
    this.queries = columns.tokens.map((_, token) => token)
      .filter((token) => columns.writes(token) || isRead.has(token));
    this.sources = []; // of each query, the tokens whose symbols it sees, or undefined
    this.dependents = []; // the queries that see the symbol of each token
    this.surroundings = []; // of each query, a number for what never changes around it
    this.examples = []; // of each such number, a query
    this.numberSurroundings();
    this.known = new Map(); // the number of each neighbourhood
    this.symbols = []; // that are written in each
    this.confidence = [];
    this.logits = [];
  }

  numberSurroundings() {
    const { columns } = this;
    const { tokens, coordinates, nothing } = columns;
    const numbers = new Map();
    for (const query of this.queries) {
      const { own, next, lower, beside } = columns.slots(query);
      const kinds = [...own, ...next, ...lower].map((token) => tokens[token] ?? nothing);
      const exist = beside.map((token) => (token === undefined ? 0 : 1));
      const name = String.fromCharCode(coordinates.operand[query], ...kinds, ...exist);
      if (!numbers.has(name)) numbers.set(name, this.examples.push(query) - 1);
      this.surroundings[query] = numbers.get(name);
      this.sources[query] = [lower[0], ...beside]; // of the lower column, the first operand writes
      for (const source of this.sources[query]) {
        if (source !== undefined) (this.dependents[source] ??= []).push(query);
      }
    }
  }

  /** The neighbourhoods of some queries, after computing those that are new. */
  find(queries, symbolAt) {
    const { sources, surroundings, known, columns, examples } = this;
    const size = this.vocabulary + 1;
    const symbolsOf = (query) =>
      sources[query].map((token) => (token === undefined ? columns.nothing : symbolAt(token)));
    const missing = new Map(); // a query of each new neighbourhood, and the symbols that it sees
    const keys = queries.map((query) => {
      const symbols = symbolsOf(query);
      const code = symbols.reduce((sum, symbol) => sum * size + symbol, 0);
      const key = code * examples.length + surroundings[query];
      if (!known.has(key) && !missing.has(key)) missing.set(key, { query, symbols });
      return key;
    });
    const fresh = [...missing];
    for (let at = 0; at < fresh.length; at += AT_ONCE) {
      const some = fresh.slice(at, at + AT_ONCE);
      const logits = this.compute(some.map(([, neighbourhood]) => neighbourhood));
      some.forEach(([key], i) =>
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

  /** Logits at queries that see these symbols: one round, neighbourhoods side by side. */
  compute(neighbourhoods) {
    const { model, columns, vectors, sources } = this;
    const queries = neighbourhoods.map(({ query }) => query);
    const seen = queries.map((query) => columns.see(query));
    // The rows of x: first the queries, then the rest of their columns, then what else they see.
    const rows = [...queries];
    const rowOf = queries.map((query, i) => new Map([[query, i]]));
    const addRow = (i) => (token) => {
      if (!rowOf[i].has(token)) rowOf[i].set(token, rows.push(token) - 1);
    };
    seen.forEach(({ own }, i) => own.forEach(addRow(i)));
    seen.forEach((view, i) => view.vectors.forEach(addRow(i)));
    const [gather, within, written] = Array.from({ length: 3 }, () => ({ keys: [], weights: [] }));
    const set = (part, row, keys, weights) => {
      part.keys[row] = keys;
      part.weights[row] = weights;
    };
    neighbourhoods.forEach(({ query, symbols }, i) => {
      const row = (token) => rowOf[i].get(token);
      const symbolAt = new Map(sources[query].map((token, j) => [token, symbols[j]]));
      for (const token of seen[i].own) {
        const view = token === query ? seen[i] : columns.see(token);
        const firstSymbol = view.keys.length - view.symbols.length;
        set(gather, row(token), view.vectors.map(row), view.gather);
        set(within, row(token), view.own.map(row), view.within);
        set(written, row(token), view.symbols.map((key) => symbolAt.get(key) ?? columns.nothing),
          view.gather.map((weights) => weights.slice(firstSymbol)));
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
