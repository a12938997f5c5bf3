// How a problem is written as tokens, and every token's coordinates, as in problems/layouts.

import { answerDigits, operandDigits } from "./arithmetic.js";

export const PAD = 14; // behind the ten digits and the four operators

/** The fields of a problem: how wide each operand is written, and where the answer is read. */
export function fitLayout(model, operands) {
  const { task, layout } = model;
  const lengths = operands.map((text) => text.length);
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
  return { widths, shared, answerWidth, leastFirst: layout.order === "least-significant-first" };
}

/** The tokens of a problem with their coordinates: operands, padded, with an operator between. */
export function writeProblem(model, operands, layout) {
  const { widths, shared, leastFirst } = layout;
  const operator = model.vocabulary.indexOf(model.symbol);
  const tokens = [];
  const at = { index: [], significance: [], place: [], operand: [], shared: [] };
  operands.forEach((text, operand) => {
    const symbols = [...writeNumber(text, widths[operand], leastFirst), operator];
    if (operand === operands.length - 1) symbols.pop();
    symbols.forEach((symbol, offset) => {
      at.index.push(tokens.length);
      at.significance.push(leastFirst ? offset : text.length - 1 - offset);
      at.place.push(offset < text.length ? offset + 1 : 0);
      at.operand.push(operand);
      at.shared.push(shared[operand]);
      tokens.push(symbol);
    });
  });
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
