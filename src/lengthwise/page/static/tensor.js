// Rows of numbers, and the few operations that an encoder needs of them.
//
// A matrix is a Float32Array, row after row. Sums are computed in double precision and stored in
// single precision, so results agree with PyTorch's to about six digits.

/** x (n, inner) · weightᵀ + bias -> (n, outer); weight is (outer, inner), as in PyTorch. */
export function linear(x, { weight, bias }) {
  const outer = bias.length;
  const inner = weight.length / outer;
  const n = x.length / inner;
  const y = new Float32Array(n * outer);
  for (let row = 0; row < n; row++) {
    const from = row * inner;
    for (let column = 0; column < outer; column++) {
      const at = column * inner;
      // Four sums at a time, because each addition would otherwise wait for the one before.
      let a = bias[column], b = 0, c = 0, d = 0, i = 0;
      for (; i + 3 < inner; i += 4) {
        a += x[from + i] * weight[at + i];
        b += x[from + i + 1] * weight[at + i + 1];
        c += x[from + i + 2] * weight[at + i + 2];
        d += x[from + i + 3] * weight[at + i + 3];
      }
      for (; i < inner; i++) a += x[from + i] * weight[at + i];
      y[row * outer + column] = a + b + (c + d);
    }
  }
  return y;
}

/** Every row with mean 0 and variance 1, then scaled and shifted. */
export function layerNorm(x, { weight, bias }, epsilon) {
  const width = weight.length;
  const y = new Float32Array(x.length);
  for (let from = 0; from < x.length; from += width) {
    let mean = 0, square = 0;
    for (let i = 0; i < width; i++) mean += x[from + i];
    mean /= width;
    for (let i = 0; i < width; i++) square += (x[from + i] - mean) ** 2;
    const scale = 1 / Math.sqrt(square / width + epsilon);
    for (let i = 0; i < width; i++) {
      y[from + i] = (x[from + i] - mean) * scale * weight[i] + bias[i];
    }
  }
  return y;
}

/** Some rows of a matrix, in this order. */
export function takeRows(x, rows, width) {
  const y = new Float32Array(rows.length * width);
  rows.forEach((row, i) => y.set(x.subarray(row * width, (row + 1) * width), i * width));
  return y;
}

/** The sum of the first rows of x and all rows of y. */
export function add(x, y) {
  const sum = new Float32Array(y.length);
  for (let i = 0; i < y.length; i++) sum[i] = x[i] + y[i];
  return sum;
}

/** A list of scores as shares that add up to 1. */
export function softmax(scores) {
  let highest = -Infinity, total = 0;
  for (const score of scores) highest = Math.max(highest, score);
  const shares = Array.from(scores, (score) => Math.exp(score - highest));
  for (const share of shares) total += share;
  return shares.map((share) => share / total);
}

/** The symbol with the highest logit, of those from `at` on. */
export function likeliest(logits, at, symbols) {
  let best = 0;
  for (let s = 1; s < symbols; s++) if (logits[at + s] > logits[at + best]) best = s;
  return best;
}

/** The probability of a symbol, by the logits from `at` on, in thousandths. */
export function probability(logits, at, symbols, symbol) {
  let total = 0;
  for (let s = 0; s < symbols; s++) total += Math.exp(logits[at + s] - logits[at + symbol]);
  return Math.round(1000 / total);
}

export const ACTIVATIONS = {
  relu: (x) => (x > 0 ? x : 0),
  gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
  "gelu-tanh": (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

/** The error function: its power series near 0, a continued fraction beyond. */
export function erf(x) {
  const z = Math.abs(x);
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-z * z) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let fraction = 0;
  for (let k = 60; k > 0; k--) fraction = k / 2 / (z + fraction);
  return Math.sign(x) * (1 - Math.exp(-z * z) / (z + fraction) / Math.sqrt(Math.PI));
}
