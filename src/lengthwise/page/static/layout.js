// How a problem is written as tokens, and every token's coordinates, as in problems/layouts.

import { answerDigits, operandDigits } from "./arithmetic.js";

export const PAD = 14; // behind the ten digits and the four operators
const MOST_CELLS = 40_000; // of long multiplication: 200 × 200 digits
export const SUM = 2; // the operand of the partial sums in long multiplication

/**
 * The fields of a problem, as in problems/layouts: whose number stands there, how wide, and in
 * which row; and the tokens at which the answer is read.
 */
export function fitLayout(model, operands) {
  const { task, layout } = model;
  const lengths = operands.map((text) => text.length);
  if (layout.kind === "long-multiplication") return layOutRows(...lengths);
  const shared = operandDigits(task, 1).map((n, i) => n === operandDigits(task, 2)[i]);
  const fits = layout.kind === "fitted";
  const digits = fits ? Math.max(...lengths.filter((_, i) => !shared[i])) : model.digits;
  const most = operandDigits(task, digits);
  lengths.forEach((length, i) => {
    if (length > most[i]) {
      throw new Error(`operand ${i + 1} has ${length} digits, but the model takes ${most[i]}`);
    }
  });
  let widths = most;
  let answerWidth = answerDigits(task, most);
  if (fits) {
    widths = [Math.max(most[0], answerWidth), ...most.slice(1)];
  } else {
    if (layout.kind === "paper") widths = most.map(() => Math.max(...most));
    const length = widths.reduce((total, width) => total + width + 1, -1);
    answerWidth = layout.n_out ?? Math.min(answerDigits(task, widths), length);
  }
  return {
    fields: widths.map((width, operand) => ({ operand, width, row: 0 })),
    shared,
    answerAt: countFrom(0, answerWidth),
    leastFirst: layout.order === "least-significant-first",
  };
}

/** Long multiplication: for each digit of the second operand a row of sums and one of products. */
function layOutRows(first, second) {
  if (first * second > MOST_CELLS) {
    throw new Error(`${first} × ${second} digits are too many for a file; the command ` +
      "`lengthwise solve` takes them");
  }
  const rows = (operand) => countFrom(0, second).map((row) => ({ operand, width: first + 1, row }));
  const lowest = countFrom(0, second).map((row) => row * (first + 2)); // the lowest of a sum
  return {
    fields: [...rows(SUM), ...rows(0), { operand: 1, width: second, row: 0 }],
    shared: [false, true],
    answerAt: [...lowest, ...countFrom(lowest.at(-1) + 1, first)],
    leastFirst: true,
  };
}

const countFrom = (first, count) => Array.from({ length: count }, (_, i) => first + i);

/** The tokens of a problem with their coordinates: fields, padded, with an operator between. */
export function writeProblem(model, operands, { fields, shared, leastFirst }) {
  const operator = model.vocabulary.indexOf(model.symbol);
  const tokens = [];
  const at = { index: [], significance: [], place: [], operand: [], shared: [], row: [] };
  const byDigit = model.layout.kind === "long-multiplication"; // a shared digit makes a row
  for (const { operand, width, row } of fields) {
    const text = operands[operand] ?? ""; // the fields of sums are blank
    [...writeNumber(text, width, leastFirst), operator].forEach((symbol, offset) => {
      const isShared = shared[operand] ?? false;
      at.index.push(tokens.length);
      at.significance.push(leastFirst ? offset + row : text.length - 1 - offset);
      at.place.push(offset < text.length ? offset + 1 : 0);
      at.operand.push(operand);
      at.shared.push(isShared);
      at.row.push(isShared && byDigit ? offset : row);
      tokens.push(symbol);
    });
  }
  [tokens, ...Object.values(at)].forEach((list) => list.pop()); // no operator is behind the last
  return { tokens, coordinates: at };
}

/** Digits in the order of writing, then padding. */
export function writeNumber(text, width, leastFirst) {
  const digits = Array.from(text, Number);
  if (leastFirst) digits.reverse();
  return [...digits, ...Array(width - digits.length).fill(PAD)];
}

/** The number that symbols stand for, or null where they are not digits and then padding. */
export function readNumber(symbols, leastFirst, leadingZeros) {
  const end = symbols.includes(PAD) ? symbols.indexOf(PAD) : symbols.length;
  const digits = symbols.slice(0, end);
  const rest = symbols.slice(end);
  if (!end || digits.some((s) => s > 9) || rest.some((s) => s !== PAD)) return null;
  if (leastFirst) digits.reverse();
  return digits[0] === 0 && end > 1 && !leadingZeros ? null : digits.join("");
}
