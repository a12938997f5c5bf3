// What is computed: the tasks over integers of any length, as src/lengthwise/arithmetic has them.

export const SYMBOLS = {
  addition: "+",
  "elementwise-addition": "+",
  "modular-addition": "%",
  multiplication: "×",
  "modular-multiplication": "*",
};

/** How many digits each operand has in a problem of length n. */
export function operandDigits(task, n) {
  if (task.kind === "addition") return Array(task.operands).fill(n);
  return task.kind.endsWith("multiplication") ? [n, task.second_digits ?? n] : [n, n];
}

/** The most digits that an answer can have for operands of at most these digits. */
export function answerDigits(task, digits) {
  const longest = Math.max(...digits);
  const both = digits.reduce((total, n) => total + n, 0);
  switch (task.kind) {
    case "addition": return longest + String(task.operands - 1).length;
    case "elementwise-addition": return longest;
    case "multiplication": return both;
    default: {
      const most = String(BigInt(task.modulus) - 1n).length;
      const needed = task.kind === "modular-addition" ? longest + 1 : both;
      return task.constant_length ? most : Math.min(most, needed);
    }
  }
}

/** The right answer, as decimal text. */
export function answer(task, operands) {
  const numbers = operands.map(BigInt);
  const sum = () => numbers.reduce((total, number) => total + number);
  const product = () => numbers.reduce((total, number) => total * number);
  switch (task.kind) {
    case "addition": return sum().toString();
    case "elementwise-addition": return addElementwise(operands);
    case "multiplication": return product().toString();
    case "modular-addition": return remainder(task, sum());
    default: return remainder(task, product());
  }
}

function addElementwise(operands) {
  const length = Math.max(...operands.map((text) => text.length));
  const padded = operands.map((text) => text.padStart(length, "0"));
  return Array.from({ length }, (_, i) => padded.reduce((sum, text) => sum + +text[i], 0) % 10)
    .join("");
}

function remainder(task, number) {
  const text = (number % BigInt(task.modulus)).toString();
  const length = String(BigInt(task.modulus) - 1n).length;
  return task.constant_length ? text.padStart(length, "0") : text;
}

/** Where a sum of two numbers carries: entry i is the carry out of the power 10^i; else null. */
export function carries(task, operands) {
  if (task.kind !== "addition" || operands.length !== 2) return null;
  const length = Math.max(...operands.map((text) => text.length));
  const [a, b] = operands.map((text) => text.padStart(length, "0"));
  const marks = [];
  for (let i = length - 1, carry = 0; i >= 0; i--) {
    carry = +a[i] + +b[i] + carry >= 10 ? 1 : 0;
    marks.push(carry);
  }
  return marks;
}

/** The operands of a problem as people write it; an error says what is wrong in one sentence. */
export function parseProblem(text, task) {
  const symbol = SYMBOLS[task.kind];
  const shown = `'${shorten(text)}'`;
  const example = operandDigits(task, 2).map((_, i) => `${2 * i + 1}${2 * i + 2}`);
  if (!/^\s*[0-9]+(\s*[^0-9\s=.,_]\s*[0-9]+)*\s*=?\s*$/.test(text)) {
    throw new Error(`${shown} is not a problem; write one such as ${example.join(` ${symbol} `)}`);
  }
  const found = text.match(/[^0-9\s=.,_]/g) ?? [];
  const other = found.find((s) => s !== symbol && !(symbol === "×" && /x/i.test(s)));
  if (other) throw new Error(`${shown} has ${other}, but this model was trained for ${symbol}`);
  const operands = text.match(/[0-9]+/g).map((digits) => digits.replace(/^0+(?=.)/, ""));
  if (operands.length !== example.length) {
    throw new Error(
      `${shown} has ${operands.length} operands, but this model takes ${example.length}`,
    );
  }
  return operands;
}

function shorten(text) {
  return text.length <= 40 ? text : `${text.slice(0, 20)}…${text.slice(-10)}`;
}
