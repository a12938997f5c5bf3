// The board: operands, carries, the model's answer digit by digit, and the truth below it.

import { groupDigits, h, redraw } from "./dom.js";

const PAGE = 120; // columns that are shown at once
const PADDING = 14;

/** The columns of an answer from left to right: which symbol of the answer, which power of ten. */
export function columnsOf(trace) {
  const { truth, steps, least_first: leastFirst } = trace;
  const final = steps.at(-1).symbols;
  const length = trace.correct.length;
  const columns = truth.map((_, slot) => ({ slot, power: leastFirst ? slot : length - 1 - slot }));
  const isBlank = ({ slot }) => truth[slot] === PADDING && final[slot] === PADDING;
  while (columns.length > 1 && isBlank(columns.at(-1))) columns.pop();
  return leastFirst ? columns.reverse() : columns;
}

/** How many symbols of the answer are wrong after a step. */
export function countWrong(trace, step) {
  return trace.truth.filter((symbol, i) => symbol !== step.symbols[i]).length;
}

/** A board for a trace; `show(step)` puts the answer after that step on it. */
export function makeBoard(trace) {
  const columns = columnsOf(trace);
  const pages = Math.ceil(columns.length / PAGE);
  const element = h("div", { class: "board" });
  let step = trace.steps.at(-1);
  let page = firstWrongPage(trace, columns);

  const draw = () => {
    const shown = columns.slice(page * PAGE, (page + 1) * PAGE);
    redraw(element, [
      pages > 1 ? pager() : "",
      h("div", { class: "columns", role: "img", "aria-label": describeAnswer(trace, shown, step) },
        page === 0 ? signColumn(trace) : "",
        shown.map((column) => drawColumn(trace, column, step))),
    ]);
  };
  const pager = () => {
    const turn = (by) => () => {
      page = Math.max(0, Math.min(pages - 1, page + by));
      draw();
    };
    const button = (label, by, disabled) =>
      h("button", { type: "button", class: "quiet", onclick: turn(by), disabled }, label);
    const [from, to] = [page * PAGE + 1, Math.min(columns.length, (page + 1) * PAGE)];
    return h("p", { class: "pager" },
      button("←", -1, page === 0),
      ` digits ${groupDigits(from)}–${groupDigits(to)} of ${groupDigits(columns.length)} `,
      button("→", 1, page === pages - 1));
  };
  draw();
  return {
    element,
    show(next) {
      step = next;
      draw();
    },
  };
}

function firstWrongPage(trace, columns) {
  const { symbols } = trace.steps.at(-1);
  const first = columns.findIndex(({ slot }) => symbols[slot] !== trace.truth[slot]);
  return first < 0 ? 0 : Math.floor(first / PAGE);
}

/** The columns that are shown, in words. */
function describeAnswer(trace, shown, step) {
  const text = (symbols) => shown.map(({ slot }) => symbolText(trace, symbols[slot])).join("");
  return `the answer's digits ${text(step.symbols)}; the right ones are ${text(trace.truth)}`;
}

function symbolText(trace, symbol) {
  return symbol === PADDING ? "·" : trace.vocabulary[symbol];
}

/** The operator, left of the last operand. */
function signColumn(trace) {
  if (trace.operands.length !== 2) return "";
  return h("span", { class: "column sign", "aria-hidden": true },
    trace.carries && h("span", { class: "carry" }),
    h("span", { class: "operand" }), h("span", { class: "operand" }, trace.symbol));
}

/** One column: carry, operands' digits, the model's symbol with its confidence, the right one. */
function drawColumn(trace, { slot, power }, step) {
  const [symbol, truth] = [step.symbols[slot], trace.truth[slot]];
  const confidence = step.confidence[slot] / 1000;
  const right = symbol === truth;
  const carry = trace.carries?.[power - 1] ? "1" : "";
  const sure = `${(100 * confidence).toFixed(confidence > 0.995 ? 1 : 0)} % sure`;
  const verdict = right ? "right" : `wrong: it is ${symbolText(trace, truth)}`;
  const placed = power >= 0 ? `10^${power}: ` : "";
  return h("span", { class: "column" },
    trace.carries ? h("span", { class: "carry" }, carry) : null,
    trace.operands.length === 2 && trace.operands.map((text) =>
      h("span", { class: "operand" }, digitAt(text, power))),
    h("span", {
      class: `digit ${right ? "right" : "wrong"}`,
      "--confidence": confidence,
      title: `${placed}${symbolText(trace, symbol)}, ${sure}, ${verdict}`,
    }, symbolText(trace, symbol)),
    h("span", { class: `truth ${right ? "" : "differs"}` }, symbolText(trace, truth)));
}

function digitAt(text, power) {
  return power >= 0 && power < text.length ? text[text.length - 1 - power] : "";
}
