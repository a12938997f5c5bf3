// Position embeddings, as in model/positions: what is added to the input or to attention scores.

/** Input embeddings (n, width) with positions added, in place. */
export function embedPositions(model, x, coordinates) {
  const position = model.config.position;
  if (position.kind !== "absolute") return;
  const table = model.tensor("positions.0.table.weight");
  const width = model.inputWidth;
  const lowest = position.coordinate === "index" ? 0 : -model.maxLength;
  coordinates[position.coordinate].forEach((at, token) => {
    const row = (at - lowest) * width;
    for (let i = 0; i < width; i++) x[token * width + i] += table[row + i];
  });
}

/**
 * Query minus key. A shared operand, such as the 3 of 35 × 3, is not on the number line: its digits
 * are counted from the row.
 */
export function distance(coordinates, coordinate, query, key) {
  let [from, to] = [coordinates[coordinate][query], coordinates[coordinate][key]];
  if (coordinate === "significance") {
    const { shared, row } = coordinates;
    if (shared[key] && !shared[query]) from = row[query];
    if (shared[query] && !shared[key]) to = row[key];
  }
  return from - to;
}

/** A function that gives the row of a relative embedding's table for a query and a key. */
function tableRows(model, coordinates) {
  const { coordinate, clip, by_operands: byOperands } = model.config.position;
  const longest = coordinate === "index" ? model.maxLength - 1 : 2 * model.maxLength - 1;
  const reach = clip ?? longest;
  const rows = 2 * reach + 1;
  const { operand, row } = coordinates;
  return (query, key) => {
    let away = distance(coordinates, coordinate, query, key);
    if (clip) away = Math.max(-clip, Math.min(clip, away));
    // Another row of the query's operand is one operand more.
    const isOtherRow = operand[query] === operand[key] && row[query] !== row[key];
    const seen = isOtherRow ? model.operands - 1 : operand[key];
    const table = byOperands ? operand[query] * model.operands + seen : 0;
    return table * rows + away + reach;
  };
}

/**
 * A function that gives what positions add to the score of a query and a key in a head, for the
 * layer applied i-th. `q` and `k` are queries and keys, (n, width); a bias ignores them.
 */
export function positionScores(model, i, coordinates) {
  const { kind, strength } = model.config.position;
  if (!kind.startsWith("relative")) return () => 0;
  const table = model.tensor(`positions.${i % model.ownPositions}.table.weight`);
  const row = tableRows(model, coordinates);
  if (kind === "relative-bias") {
    return (head, query, key) => strength * table[row(query, key) * model.heads + head];
  }
  const size = model.headWidth;
  const scale = model.config.scale_relative ? 1 / Math.sqrt(size) : 1;
  const timesKey = kind === "relative-key-query";
  return (head, query, key, q, k) => {
    const at = row(query, key) * size;
    const fromQuery = query * model.width + head * size;
    const fromKey = key * model.width + head * size;
    let sum = 0;
    for (let d = 0; d < size; d++) {
      sum += table[at + d] * (q[fromQuery + d] + (timesKey ? k[fromKey + d] : 0));
    }
    return sum * scale;
  };
}
