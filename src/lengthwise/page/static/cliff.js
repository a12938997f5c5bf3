// The cliff: accuracy by number of digits for chosen runs, the grid over both operands, and how
// each length and digit was learned.

import { request } from "./api.js";
import { heatMap, lineChart } from "./chart.js";
import { copyButtons, h, percentText, quoteShell, readAddress, writeAddress } from "./dom.js";
import { emptyView } from "./empty.js";
import { aboutModel } from "./models.js";

const MOST_RUNS = 6;

export async function cliffView({ runs, root }) {
  const usable = runs.filter((run) => run.status !== "damaged");
  if (!usable.length) return emptyView(root);
  const named = (readAddress().runs ?? "").split(",").filter((name) =>
    usable.some((run) => run.name === name));
  let chosen = named.length ? named : usable.slice(0, 2).map((run) => run.name);
  const charts = h("div", { class: "charts" });
  const known = new Map(); // what was measured here, by run: [length, share, low, high]

  const draw = async () => {
    writeAddress({ view: "cliff", runs: chosen.join(",") });
    try {
      const details = await Promise.all(chosen.map((name) =>
        request(`/api/run?run=${encodeURIComponent(name)}`)));
      charts.replaceChildren(...drawAll(details, known, root, draw));
    } catch (error) {
      charts.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  const toggle = (name) => (event) => {
    chosen = chosen.filter((other) => other !== name);
    if (event.target.checked) chosen = [...chosen, name].slice(-MOST_RUNS);
    list.querySelectorAll("input").forEach((box) => (box.checked = chosen.includes(box.value)));
    draw();
  };
  const list = h("fieldset", { class: "picker" },
    h("legend", {}, `runs (up to ${MOST_RUNS})`),
    usable.map((run) => h("label", { title: aboutModel(run) },
      h("input", { type: "checkbox", value: run.name, checked: chosen.includes(run.name),
        onchange: toggle(run.name) }),
      ` ${run.name}`, h("small", {}, ` ${run.status === "finished" ? "" : run.status}`))));
  draw();
  return h("div", { class: "cliff" }, list, charts);
}

function drawAll(details, known, root, redraw) {
  const accuracy = details.map((run, i) => ({
    name: run.name,
    colour: i,
    points: [...run.accuracy.map((a) => [a.length, a.exact_match, a.low, a.high]),
      ...(known.get(run.name) ?? [])].sort((a, b) => a[0] - b[0]),
  }));
  const trained = Math.min(...details.map((run) => run.train_digits));
  return [
    lineChart({ title: "Exact match by number of digits", series: accuracy, trained,
      xLabel: "digits", yLabel: "exact match (%)", height: 320 }),
    copyButtons(() => evaluateTexts(details.map((run) => run.name), root)),
    measureForm(details, known, redraw),
    ...details.map((run, i) => runCharts(run, i, root)),
  ];
}

function evaluateTexts(names, root) {
  const paths = names.map((name) => `${root}/${name}`);
  return {
    command: paths.map((path) => `lengthwise evaluate ${quoteShell(path)}`).join("\n"),
    python: ["import lengthwise", "", `for path in ${JSON.stringify(paths)}:`,
      "    for a in lengthwise.evaluate(lengthwise.load(path)):",
      "        print(path, a.length, a.exact_match, a.interval)"].join("\n"),
  };
}

/** Measures more lengths on fresh problems. */
function measureForm(details, known, redraw) {
  const length = h("input", { type: "number", min: 1, max: 10000, value: 10, class: "short",
    "aria-label": "digits" });
  const said = h("span", { class: "said", role: "status" });
  const measure = async (event) => {
    event.preventDefault();
    try {
      for (const run of details) {
        said.textContent = `measuring ${run.name} …`;
        const a = await request("/api/measure", { run: run.name, length: +length.value,
          examples: +length.value > 1000 ? 5 : 100 });
        const others = (known.get(run.name) ?? []).filter((point) => point[0] !== a.length);
        known.set(run.name, [...others, [a.length, a.exact_match, a.low, a.high]]);
      }
      redraw();
    } catch (error) {
      said.textContent = error.message;
    }
  };
  return h("form", { class: "inline", onsubmit: measure }, "Measure at ", length,
    " digits, on fresh problems ", h("button", {}, "measure"), said);
}

/** The curves of one run, and its grid over both operands. */
function runCharts(run, colour, root) {
  const lengths = Object.entries(run.curves);
  const byLength = lengths.slice(0, 6).map(([length, points]) =>
    ({ name: `${length} digits`, points }));
  return h("section", { class: `run series-${colour}` },
    h("h2", {}, h("i", { class: "swatch" }), run.name),
    h("p", { class: "about" }, aboutModel(run)),
    h("div", { class: "row" },
      lineChart({ title: "Exact match during training", series: byLength, xLabel: "examples seen",
        yLabel: "exact match (%)", height: 220 }),
      lineChart({ title: "Loss", series: [{ points: run.loss }], xLabel: "examples seen",
        yLabel: "cross-entropy", height: 220, share: false }),
      digitCurves("Each digit, on training examples", run.train),
      run.primed && digitCurves("Each digit, on primed examples", run.primed)),
    gridPanel(run, root));
}

function digitCurves(title, curve) {
  const { examples, digits } = curve ?? { examples: [], digits: [] };
  const count = Math.min(6, digits[0]?.length ?? 0);
  const series = Array.from({ length: count }, (_, i) => ({
    name: `digit ${i + 1}`,
    points: examples.map((seen, at) => [seen, digits[at][i]]),
  }));
  return lineChart({ title, series, xLabel: "examples seen", yLabel: "accuracy (%)", height: 220 });
}

/** The grid over the lengths of both operands, measured row by row on request. */
function gridPanel(run, root) {
  if (run.operands !== 2) return "";
  const place = h("div", {});
  const said = h("span", { class: "said", role: "status" });
  const longest = run.any_length ? Math.max(20, 2 * run.train_digits) : run.test_digits;
  const measure = async () => {
    const cells = [];
    let map = null;
    try {
      for (let row = 0; ; row++) {
        said.textContent = `measuring row ${row + 1} …`;
        const found = await request("/api/grid", { run: run.name, longest, cells: 12, row });
        cells.push(found.shares);
        map ??= heatMap({
          title: `${run.name}: exact match (%) by the digits of both operands, ` +
            `${found.examples} problems a cell; the frame is what training saw`,
          rows: found.rows, columns: found.columns, cells, trained: run.train_digits,
          rowLabel: "digits of the first", columnLabel: "digits of the second",
          describe: (a, b, share) => `${a} and ${b} digits: ${percentText(share)}`,
        });
        if (!place.contains(map.element)) place.replaceChildren(map.element);
        map.draw();
        if (row + 1 >= found.rows.length) break;
      }
      said.textContent = "";
    } catch (error) {
      said.textContent = error.message;
    }
  };
  return h("div", { class: "grid-panel" },
    h("p", {},
      h("button", { type: "button", onclick: measure }, "measure the grid over both operands"),
      said),
    place);
}
