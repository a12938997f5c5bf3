// The film of an answer: a row for each iteration, a column for each digit. Blue is right, orange
// is wrong, and stronger is surer; one sees a carry run through 9…9 + 1. Of very many iterations,
// those that there is room for are drawn.

import { columnsOf } from "./board.js";
import { h, onResize } from "./dom.js";

const TALLEST = 260; // pixels
const TALLEST_ROW = 14;

/** A film for a trace by a model's turns; `choose(i)` is called with the step that is clicked. */
export function makeFilm(trace, turn, choose) {
  const columns = columnsOf(trace);
  const { steps } = trace;
  const last = steps[steps.length - 1].iteration;
  const canvas = h("canvas", {
    class: "film",
    role: "img",
    "aria-label": `the answer after each of ${last} ${turn}s, from top to bottom`,
  });
  const mark = h("span", { class: "film-mark" });
  const element = h("div", { class: "film-frame", "--columns": columns.length }, canvas, mark);
  let chosen = steps.length - 1;
  const rows = Math.min(steps.length, TALLEST);
  const rowHeight = Math.min(TALLEST_ROW, Math.floor(TALLEST / rows));
  const stepOf = (row) => Math.round((row * (steps.length - 1)) / Math.max(1, rows - 1));

  const draw = () => {
    const style = getComputedStyle(element);
    const [blue, orange] = ["--right", "--wrong"].map((name) =>
      style.getPropertyValue(name).trim());
    const scale = devicePixelRatio || 1;
    const [width, height] = [element.clientWidth, rowHeight * rows];
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.setProperty("height", `${height}px`);
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const bins = Math.min(columns.length, Math.floor(width / 2)) || 1; // thin columns are merged
    for (let row = 0; row < rows; row++) {
      const step = steps[stepOf(row)];
      for (let bin = 0; bin < bins; bin++) {
        const from = Math.floor((bin * columns.length) / bins);
        const to = Math.max(from + 1, Math.floor(((bin + 1) * columns.length) / bins));
        const { right, sure } = worst(trace, step, columns, from, to);
        paint.globalAlpha = 0.15 + 0.85 * sure;
        paint.fillStyle = right ? blue : orange;
        paint.fillRect((bin * width) / bins, row * rowHeight,
          width / bins - (width / bins > 6 ? 1 : 0), rowHeight - (rowHeight > 4 ? 1 : 0));
      }
    }
    place();
  };
  const place = () => {
    const row = Math.round((chosen * (rows - 1)) / Math.max(1, steps.length - 1));
    mark.style.setProperty("top", `${row * rowHeight}px`);
    mark.style.setProperty("height", `${rowHeight}px`);
  };
  const pick = (event) => {
    const y = event.clientY - canvas.getBoundingClientRect().top;
    choose(stepOf(Math.max(0, Math.min(rows - 1, Math.floor(y / rowHeight)))));
  };
  canvas.addEventListener("click", pick);
  canvas.addEventListener("pointermove", (event) => event.buttons && pick(event));
  onResize(element, draw);
  return {
    element,
    show(step) {
      chosen = step;
      place();
    },
  };
}

/** Of some columns, whether all are right, and the least confidence of those or of wrong ones. */
function worst(trace, step, columns, from, to) {
  let [right, sure] = [true, 1000];
  for (let i = from; i < to; i++) {
    const { slot } = columns[i];
    const isRight = step.symbols[slot] === trace.truth[slot];
    if (isRight && !right) continue;
    sure = Math.min(isRight === right ? sure : 1000, step.confidence[slot]);
    right = isRight;
  }
  return { right, sure: sure / 1000 };
}
