// The tokens of a problem with their coordinates, and what each attends to in a layer and head.

import { h, redraw, svg } from "./dom.js";

const MOST = 64; // tokens that are shown at once
const STEP = 28; // pixels from one token to the next
const COLOURS = 8; // of heads; see style.css
const COORDINATES = {
  index: "where it stands",
  significance: "its power of ten",
  place: "which digit of its number",
  operand: "whose it is",
};

/** A panel for a trace. `attention(iteration, first, last)` gives weights by head and query. */
export function makeTokens(trace, turn, attention) {
  const { tokens } = trace;
  const count = tokens.symbol.length;
  const element = h("section", { class: "tokens" });
  const where = turn === "round" ? "the first layer of round" : turn;
  const answerAt = new Set(trace.read);
  let [first, chosen, head, iteration] = [0, 0, null, trace.steps.at(-1).iteration];
  let weights = null; // [head][query - first] -> [[key, weight in thousandths], …]

  const last = () => Math.min(count, first + MOST);
  const fetchWeights = async () => {
    weights = null;
    draw();
    if (iteration < 1) return;
    const [forIteration, forFirst] = [iteration, first];
    try {
      const found = await attention(iteration, first, last());
      if (forIteration !== iteration || forFirst !== first) return;
      weights = found;
      draw();
    } catch (error) {
      element.querySelector(".note")?.replaceChildren(error.message);
    }
  };
  const choose = (token) => {
    chosen = Math.max(0, Math.min(count - 1, token));
    if (chosen < first || chosen >= last()) {
      first = Math.max(0, Math.min(count - MOST, chosen - MOST / 2));
      fetchWeights();
    } else {
      draw();
    }
  };
  const keydown = (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -MOST, PageDown: MOST }[event.key];
    if (!by) return;
    event.preventDefault();
    choose(chosen + by);
    element.querySelector(".strip").focus();
  };

  const draw = () => {
    const scrolled = element.querySelector(".strip")?.scrollLeft ?? 0;
    redraw(element, [
      headButtons(),
      h("div", { class: "strip", tabindex: 0, onkeydown: keydown,
        "aria-label": "tokens; the arrow keys choose one" },
        drawArcs(),
        h("div", { class: "chips" },
          Array.from({ length: last() - first }, (_, i) => chip(first + i))),
      ),
      h("p", { class: "note" }, note()),
      count > MOST ? pager() : "",
    ]);
    element.querySelector(".strip").scrollLeft = scrolled;
  };
  const headButtons = () => {
    const button = (label, value) =>
      h("button", {
        type: "button",
        class: `head ${value === null ? "" : `head-${value % COLOURS}`}`,
        "aria-pressed": String(head === value),
        onclick: () => {
          head = value;
          draw();
        },
      }, label);
    const all = Array.from({ length: trace.heads }, (_, i) => button(String(i + 1), i));
    return h("div", { class: "heads", role: "group", "aria-label": "attention heads" },
      h("span", {}, "heads"), button("all", null), all);
  };
  const shownHeads = () => (head === null ? [...Array(trace.heads).keys()] : [head]);
  const strongest = () => {
    const sums = new Map();
    for (const one of shownHeads()) {
      for (const [key, weight] of weights?.[one]?.[chosen - first] ?? []) {
        sums.set(key, Math.max(sums.get(key) ?? 0, weight));
      }
    }
    return sums;
  };
  const chip = (token) => {
    const symbol = trace.vocabulary[tokens.symbol[token]];
    const weight = strongest().get(token) ?? 0;
    const reads = answerAt.has(token);
    return h("div", {
      class: `chip ${token === chosen ? "chosen" : ""} ${reads ? "reads" : ""}`,
      "--weight": weight / 1000,
      // Drawing puts a new chip under the pointer, which must not lead to drawing again.
      onpointerenter: () => token !== chosen && choose(token),
      onclick: () => choose(token),
      title: Object.entries(COORDINATES)
        .map(([name, text]) => `${name} ${tokens[name][token]}: ${text}`).join("\n"),
    },
    h("b", {}, symbol === "<PAD>" ? "·" : symbol),
    Object.keys(COORDINATES).map((name) =>
      h("small", { class: name }, String(tokens[name][token]))));
  };
  const drawArcs = () => {
    const width = (last() - first) * STEP;
    const height = 74;
    const middle = (token) => (token - first + 0.5) * STEP;
    const paths = shownHeads().flatMap((one) =>
      (weights?.[one]?.[chosen - first] ?? [])
        .filter(([key]) => key >= first && key < last())
        .map(([key, weight]) => {
          const [a, b] = [middle(chosen), middle(key)];
          const rise = Math.min(height - 6, 14 + Math.abs(b - a) / 3) + (one % 4);
          const path = a === b
            ? `M${a - 4} ${height}c-8 -24 16 -24 8 0`
            : `M${a} ${height}C${a} ${height - rise} ${b} ${height - rise} ${b} ${height}`;
          return svg("path", {
            d: path,
            class: `arc head-${one % COLOURS}`,
            "stroke-width": 0.6 + weight / 300,
            "stroke-opacity": 0.15 + (0.85 * weight) / 1000,
          });
        }));
    return svg("svg", { class: "arcs", width, height, viewBox: `0 0 ${width} ${height}`,
      "aria-hidden": true }, paths);
  };
  const note = () => {
    if (iteration < 1) return "Before the first layer nothing attends yet. Move the slider.";
    if (!weights) return "…";
    const named = (token) => {
      const symbol = trace.vocabulary[tokens.symbol[token]];
      return `${symbol === "<PAD>" ? "padding" : symbol} at ${token}`;
    };
    const found = [...strongest()].sort((a, b) => b[1] - a[1]).slice(0, 3);
    const list = found.map(([key, weight]) => `${named(key)} (${(weight / 10).toFixed(0)} %)`);
    const which = head === null ? "the strongest of all heads" : `head ${head + 1}`;
    return `In ${where} ${iteration}, ${named(chosen)} attends to ` +
      `${list.join(", ") || "nothing"} (${which}).`;
  };
  const pager = () =>
    h("p", { class: "pager" },
      h("button", { type: "button", class: "quiet", onclick: () => choose(first - 1) }, "←"),
      ` tokens ${first}–${last() - 1} of ${count} `,
      h("button", { type: "button", class: "quiet", onclick: () => choose(last()) }, "→"));

  return {
    element: h("details", { class: "inside", open: true },
      h("summary", {}, "Tokens, coordinates, attention"),
      h("p", { class: "legend" }, "Each token has its ",
        Object.keys(COORDINATES).map((name, i) =>
          [h("span", { class: name }, name), i < 3 ? ", " : ""]),
        ". The answer is read at underlined tokens. Point at a token, or use the arrow keys."),
      element),
    show(step) {
      // Attention of rounds is by position alone, the same in each.
      const isKnown = weights && (turn === "round" || step.iteration === iteration);
      iteration = step.iteration;
      if (isKnown) draw();
      else fetchWeights();
    },
  };
}
