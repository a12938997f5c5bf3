// The film of an answer: a row for each iteration, a column for each digit. Blue is right, orange
// is wrong, and stronger is surer; one sees a carry run through 9…9 + 1.

import { columnsOf } from "./board.js";
import { h, onResize } from "./dom.js";

const TALLEST = 260; // pixels

/** A film for a trace; `choose(i)` is called with the step that is clicked. */
export function makeFilm(trace, choose) {
  const columns = columnsOf(trace);
  const { steps } = trace;
  const canvas = h("canvas", {
    class: "film",
    role: "img",
    "aria-label": `the answer after each of ${steps.length - 1} layers, from top to bottom`,
  });
  const mark = h("span", { class: "film-mark" });
  const element = h("div", { class: "film-frame", "--columns": columns.length }, canvas, mark);
  let chosen = steps.length - 1;
  const rowHeight = () => Math.max(1, Math.min(14, TALLEST / steps.length));

  const draw = () => {
    const style = getComputedStyle(element);
    const [blue, orange] = ["--right", "--wrong"].map((name) =>
      style.getPropertyValue(name).trim());
    const scale = devicePixelRatio || 1;
    const [width, height] = [element.clientWidth, rowHeight() * steps.length];
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.setProperty("height", `${height}px`);
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    const bins = Math.min(columns.length, Math.floor(width / 2)) || 1; // thin columns are merged
    steps.forEach((step, row) => {
      for (let bin = 0; bin < bins; bin++) {
        const from = Math.floor((bin * columns.length) / bins);
        const to = Math.max(from + 1, Math.floor(((bin + 1) * columns.length) / bins));
        const { right, sure } = worst(trace, step, columns.slice(from, to));
        paint.globalAlpha = 0.15 + 0.85 * sure;
        paint.fillStyle = right ? blue : orange;
        const gap = width / bins > 6 ? 1 : 0;
        paint.fillRect((bin * width) / bins, row * rowHeight(), width / bins - gap,
          rowHeight() - (rowHeight() > 4 ? 1 : 0));
      }
    });
    place();
  };
  const place = () => {
    mark.style.setProperty("top", `${chosen * rowHeight()}px`);
    mark.style.setProperty("height", `${rowHeight()}px`);
  };
  const pick = (event) => {
    const y = event.clientY - canvas.getBoundingClientRect().top;
    choose(Math.max(0, Math.min(steps.length - 1, Math.floor(y / rowHeight()))));
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

/** Of several columns, a wrong one if there is one, and the least sure. */
function worst(trace, step, columns) {
  const wrong = columns.filter(({ slot }) => step.symbols[slot] !== trace.truth[slot]);
  const seen = wrong.length ? wrong : columns;
  const sure = Math.min(...seen.map(({ slot }) => step.confidence[slot])) / 1000;
  return { right: !wrong.length, sure };
}
