// Line charts and heat maps in SVG, drawn as wide as their place is.

import { h, onResize, percentText, svg } from "./dom.js";

const MARGIN = { top: 12, right: 20, bottom: 38, left: 46 };
const MARKERS = [
  (x, y) => `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0`,
  (x, y) => `M${x - 3.5} ${y - 3.5}h7v7h-7z`,
  (x, y) => `M${x} ${y - 5}l5 5l-5 5l-5 -5z`,
  (x, y) => `M${x} ${y - 4.5}l4.5 8h-9z`,
  (x, y) => `M${x} ${y + 4.5}l4.5 -8h-9z`,
  (x, y) => `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`,
];

/**
 * A line chart. A series has a name and points [x, y, low, high]; x is scaled by its logarithm
 * where the longest is a hundred times the shortest. `trained` shades x up to that value.
 */
export function lineChart({ title, series, xLabel, yLabel, trained, height = 280, share = true }) {
  const plot = h("div", { class: "plot" });
  const shown = series.filter(({ points }) => points.length);
  const figure = h("figure", { class: "chart" }, h("figcaption", {}, title), plot, legend(series));
  const draw = () => {
    const width = plot.clientWidth;
    if (!width) return;
    const options = { width, height, xLabel, yLabel, trained, share, title };
    plot.replaceChildren(shown.length ? drawLines(shown, options) :
      h("p", { class: "note" }, "nothing measured yet"));
  };
  onResize(plot, draw);
  return figure;
}

function legend(series) {
  if (series.length < 2 && !series[0]?.name) return "";
  return h("ul", { class: "legend-list" }, series.map(({ name, colour }, i) =>
    h("li", { class: `series-${(colour ?? i) % 6}` },
      svg("svg", { width: 26, height: 12, "aria-hidden": true },
        svg("path", { d: "M1 6h24", class: "line" }),
        svg("path", { d: MARKERS[(colour ?? i) % 6](13, 6), class: "marker" })),
      ` ${name}`)));
}

function drawLines(series, { width, height, xLabel, yLabel, trained, share, title }) {
  const points = series.flatMap((one) => one.points);
  const [low, high] = [Math.min(...points.map((p) => p[0])), Math.max(...points.map((p) => p[0]))];
  const logarithmic = low > 0 && high / low >= 100;
  const scale = logarithmic ? Math.log10 : (x) => x;
  const [left, right] = [MARGIN.left, width - MARGIN.right];
  const [top, bottom] = [MARGIN.top, height - MARGIN.bottom];
  const highest = share ? 1 : Math.max(...points.map((p) => p[1])) * 1.05 || 1;
  const span = scale(high) - scale(low) || 1;
  const x = (value) => left + ((scale(value) - scale(low)) / span) * (right - left);
  const y = (value) => bottom - (value / highest) * (bottom - top);
  const parts = [];
  if (trained !== undefined && trained >= low) {
    const edge = Math.min(right, x(logarithmic ? trained * 1.1 : trained + 0.5));
    parts.push(svg("rect", { x: left, y: top, width: Math.max(0, edge - left), height: bottom - top,
      class: "trained" }));
    parts.push(svg("text", { x: left + 5, y: top + 14, class: "trained-label" }, "trained"));
  }
  for (const tick of ticks(0, highest, 5)) {
    parts.push(svg("path", { d: `M${left} ${y(tick)}H${right}`, class: "grid" }));
    const text = share ? `${Math.round(100 * tick)}` : shortNumber(tick);
    parts.push(svg("text", { x: left - 6, y: y(tick) + 4, class: "tick y" }, text));
  }
  const most = Math.max(2, Math.floor((right - left) / 60));
  for (const tick of logarithmic ? powers(low, high) : ticks(low, high, most, true)) {
    parts.push(svg("path", { d: `M${x(tick)} ${bottom}v4`, class: "axis" }));
    parts.push(svg("text", { x: x(tick), y: bottom + 17, class: "tick" }, shortNumber(tick)));
  }
  parts.push(svg("path", { d: `M${left} ${bottom}H${right}`, class: "axis" }));
  parts.push(svg("text", { x: (left + right) / 2, y: height - 4, class: "label" }, xLabel));
  parts.push(svg("text", { x: 12, y: (top + bottom) / 2, class: "label",
    transform: `rotate(-90 12 ${(top + bottom) / 2})` }, yLabel));
  series.forEach((one, i) => parts.push(drawSeries(one, (one.colour ?? i) % 6, x, y, share)));
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": title }, parts);
}

function drawSeries({ name, points, faint }, colour, x, y, share) {
  const line = points.map((p, i) => `${i ? "L" : "M"}${x(p[0])} ${y(p[1])}`).join("");
  const bounded = points.filter((p) => p[2] !== undefined);
  const band = [...bounded.map((p) => `${x(p[0])} ${y(p[3])}`),
    ...bounded.map((p) => `${x(p[0])} ${y(p[2])}`).reverse()].join("L");
  const text = (p) => {
    const value = share ? percentText(p[1]) : shortNumber(p[1]);
    const interval = p[2] === undefined ? "" :
      ` (${(100 * p[2]).toFixed(1)}–${(100 * p[3]).toFixed(1)} %)`;
    return `${name ? `${name}: ` : ""}${shortNumber(p[0])} → ${value}${interval}`;
  };
  return svg("g", { class: `series-${colour} ${faint ? "faint" : ""}` },
    band && svg("path", { d: `M${band}Z`, class: "band" }),
    svg("path", { d: line, class: "line" }),
    points.length <= 32 && points.map((p) =>
      svg("path", { d: MARKERS[colour](x(p[0]), y(p[1])), class: "marker" },
        svg("title", {}, text(p)))));
}

/** Round numbers from low to high. */
export function ticks(low, high, most, whole = false) {
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + 1e-9; i++) found.push(i * step);
  return found;
}

/** Powers of ten from low to high, and both ends where these are not close to one. */
function powers(low, high) {
  const found = [];
  for (let p = Math.ceil(Math.log10(low)); 10 ** p <= high; p++) found.push(10 ** p);
  const isFar = (end) => found.every((power) => Math.abs(Math.log10(end / power)) > 0.2);
  return [low, high].filter(isFar).concat(found);
}

export function shortNumber(value) {
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (value >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return String(+value.toPrecision(4));
}

/** A heat map of shares: cells[row][column], null where there is none yet. */
export function heatMap({ title, rows, columns, cells, rowLabel, columnLabel, trained, describe }) {
  const plot = h("div", { class: "plot" });
  const draw = () => {
    const width = plot.clientWidth;
    if (!width) return;
    const size = Math.min(34, (width - MARGIN.left - 8) / columns.length);
    const height = size * rows.length + 34;
    const left = MARGIN.left;
    const parts = [];
    rows.forEach((row, i) => {
      const y = (rows.length - 1 - i) * size;
      parts.push(svg("text", { x: left - 6, y: y + size / 2 + 4, class: "tick y" }, String(row)));
      columns.forEach((column, j) => {
        const share = cells[i]?.[j];
        const cell = svg("rect", { x: left + j * size, y, width: size - 1, height: size - 1,
          class: share == null ? "cell none" : "cell", "--share": share ?? 0 },
          svg("title", {}, share == null ? "not measured" : describe(row, column, share)));
        parts.push(cell);
        if (share != null && size >= 24) {
          parts.push(svg("text", { x: left + (j + 0.5) * size - 0.5, y: y + size / 2 + 4,
            class: `cell-text ${share > 0.5 ? "on" : ""}` }, String(Math.round(100 * share))));
        }
      });
    });
    columns.forEach((column, j) => {
      if (size < 18 && j % 2) return;
      parts.push(svg("text", { x: left + (j + 0.5) * size, y: rows.length * size + 14,
        class: "tick" }, String(column)));
    });
    const inside = (values) => values.filter((n) => n <= trained).length * size;
    if (trained) {
      parts.push(svg("rect", { x: left - 0.5, y: rows.length * size - inside(rows) - 0.5,
        width: inside(columns), height: inside(rows), class: "trained-frame" }));
    }
    parts.push(svg("text", { x: left + (columns.length * size) / 2, y: height - 4, class: "label" },
      columnLabel));
    parts.push(svg("text", { x: 12, y: (rows.length * size) / 2, class: "label",
      transform: `rotate(-90 12 ${(rows.length * size) / 2})` }, rowLabel));
    plot.replaceChildren(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": title }, parts));
  };
  onResize(plot, draw);
  const element = h("figure", { class: "chart heat" }, h("figcaption", {}, title), plot);
  return { element, draw };
}
