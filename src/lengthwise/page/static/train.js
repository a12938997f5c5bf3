// Train: choose a task, an embedding, a coordinate, digits and primed examples; watch the cliff
// move; stop, resume, compare with the run before.

import { request } from "./api.js";
import { lineChart } from "./chart.js";
import { copyButtons, debounce, h, readAddress, redraw, writeAddress } from "./dom.js";
import { aboutModel } from "./models.js";

const POLL = 1000; // milliseconds
const TASKS = ["addition", "elementwise-addition", "multiplication", "modular-addition"];
const DEFAULTS = { task: "addition", position: "relative-key", coordinate: "index", train_digits: 5,
  test_digits: 10, primed: 0, steps: 1500, size: "small", second_digits: 1, seed: 0 };
const PRODUCTS = { task: "multiplication", test_digits: 10, steps: 2700, size: "medium" };
const PRESETS = {
  "sums, relative-key": {},
  "sums, absolute": { position: "absolute" },
  "products, no priming": PRODUCTS,
  "products, 50 primed": { ...PRODUCTS, primed: 50 },
};
const NUMBERS = ["train_digits", "test_digits", "primed", "steps", "second_digits", "seed"];

export async function trainView({ choices }) {
  const address = readAddress();
  const recipe = { ...DEFAULTS };
  for (const key of Object.keys(recipe)) {
    if (address[key] === undefined) continue;
    recipe[key] = NUMBERS.includes(key) ? +address[key] || 0 : address[key];
  }
  let watched = address.run || null;
  let before = address.before || null; // the run to compare with
  const said = h("p", { class: "said", role: "status" });
  const live = h("div", { class: "live" });

  const update = (key, value) => {
    recipe[key] = NUMBERS.includes(key) ? +value : value;
    const changed = Object.entries(recipe).map(([name, own]) =>
      [name, own === DEFAULTS[name] ? "" : own]);
    writeAddress({ view: "train", ...Object.fromEntries(changed) });
    showHidden();
  };
  const form = recipeForm(recipe, choices, update);
  const presets = h("div", { class: "recipes", role: "group", "aria-label": "recipes" },
    h("span", {}, "Start from"),
    Object.entries(PRESETS).map(([label, fields]) =>
      h("button", { type: "button", onclick: () => openPreset(fields) }, label)));
  const openPreset = (fields) => {
    const query = new URLSearchParams({ ...fields, run: watched ?? "", before: before ?? "" });
    location.hash = `train?${query}`; // opens the view anew
  };
  const showHidden = () => {
    form.querySelector(".of-products").hidden = recipe.task !== "multiplication";
    const over = choices.positions[recipe.position]?.over_coordinate;
    form.querySelector(".over").disabled = !over;
    if (!over) recipe.coordinate = "index";
  };
  const start = async (event) => {
    event.preventDefault();
    try {
      const { run } = await request("/api/train", recipe);
      if (run !== watched) before = watched ?? before;
      watch(run);
      said.textContent = "";
    } catch (error) {
      said.textContent = error.message;
    }
  };
  const watch = (name) => {
    watched = name;
    writeAddress({ view: "train", run: watched, before });
    poll();
  };
  const act = (path, name) => async () => {
    try {
      await request(path, { run: name });
      said.textContent = "";
    } catch (error) {
      said.textContent = error.message;
    }
    poll();
  };
  let timer = 0;
  let last = ""; // what is drawn; drawing it again would take the focus from its buttons
  const poll = async () => {
    clearTimeout(timer);
    try {
      const { training, runs } = await request("/api/runs");
      const name = watched ?? training.active[0] ?? null;
      const shown = name && (await request(`/api/run?run=${encodeURIComponent(name)}`));
      const other = before && before !== name && runs.some((run) => run.name === before) &&
        (await request(`/api/run?run=${encodeURIComponent(before)}`));
      const state = JSON.stringify([training, shown, other]);
      const parts = () => drawLive(training, shown || null, other || null, act, watch);
      if (state !== last) redraw(live, parts());
      last = state;
    } catch (error) {
      last = "";
      live.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
    }
    timer = setTimeout(() => live.isConnected && poll(), POLL);
  };
  form.addEventListener("submit", start);
  form.append(h("button", { class: "primary" }, "train"), said,
    copyButtons(() => request("/api/preview", recipe)));
  showHidden();
  poll();
  return h("div", { class: "train" }, form, h("div", {}, presets, live));
}

function recipeForm(recipe, choices, update) {
  const select = (key, label, options) =>
    h("label", {}, label, h("select", { class: key === "coordinate" ? "over" : "",
      onchange: (event) => update(key, event.target.value) },
      options.map((value) => h("option", { value, selected: recipe[key] === value }, value))));
  const slider = (key, label, min, max, step = 1) => {
    const value = h("output", {}, String(recipe[key]));
    const updateLater = debounce(60, (text) => update(key, text));
    const move = (event) => {
      value.textContent = event.target.value;
      updateLater(event.target.value);
    };
    return h("label", { class: `slider ${key}` }, h("span", {}, label, " ", value),
      h("input", { type: "range", min, max, step, value: recipe[key], oninput: move }));
  };
  return h("form", { class: "recipe" },
    select("task", "task", TASKS),
    h("div", { class: "of-products" },
      slider("second_digits", "digits of the second operand", 1, 3)),
    select("position", "position embedding", Object.keys(choices.positions)),
    select("coordinate", "over the coordinate", ["index", "significance"]),
    slider("train_digits", "trained on up to this many digits", 1, 15),
    slider("test_digits", "tested on up to", 2, 40),
    slider("primed", "primed examples, of the longest length", 0, 500, 5),
    select("size", "size", ["tiny", "small", "medium"]),
    slider("steps", "steps", 100, 10000, 100),
    slider("seed", "seed", 0, 9));
}

function drawLive(training, run, before, act, watch) {
  const waiting = training.queue.map((name) => {
    const active = training.active.includes(name);
    const stopping = training.stopping.includes(name);
    const progress = training.progress[name];
    const state = stopping ? "stopping" : active ? describeProgress(progress) : "waiting";
    return h("li", {},
      h("button", { type: "button", class: "quiet", onclick: () => watch(name) }, name),
      h("span", {}, ` ${state} `),
      h("progress", { max: progress?.steps ?? 1, value: progress?.step ?? 0,
        "aria-label": `progress of ${name}` }),
      h("button", { type: "button", disabled: stopping, onclick: act("/api/stop", name) }, "stop"));
  });
  const queue = h("section", { class: "queue" },
    h("h2", {}, "Queue"),
    waiting.length ? h("ol", {}, waiting) :
      h("p", { class: "note" }, "Nothing is being trained. Press train, and loss, accuracy and " +
        `cliff follow here. Runs train one at a time; the queue holds ${training.most}.`),
    Object.entries(training.failures).map(([name, reason]) =>
      h("p", { class: "error" }, `${name} failed: ${reason}`)));
  return run ? [queue, ...drawRun(run, before, training, act)] : [queue];
}

function describeProgress(progress) {
  if (!progress) return "starting";
  const left = Math.round(progress.seconds_left);
  const time = left >= 60 ? `${Math.floor(left / 60)} min ${left % 60} s` : `${left} s`;
  return `step ${progress.step} of ${progress.steps}, ${time} left`;
}

function drawRun(run, before, training, act) {
  const shown = [run, before].filter(Boolean);
  const cliff = shown.map((one, i) => ({
    name: one.name + (i ? " (before)" : ""),
    colour: i,
    faint: i > 0,
    points: one.accuracy.map((a) => [a.length, a.exact_match, a.low, a.high]),
  }));
  const lengths = Object.entries(run.curves).slice(0, 6);
  const resumable = ["interrupted", "failed"].includes(run.status) &&
    !training.queue.includes(run.name);
  return [
    h("section", { class: "watched" },
      h("h2", {}, run.name),
      h("p", { class: "about" }, `${aboutModel(run)} · step ${run.step} of ${run.steps}`),
      resumable && h("button", { type: "button", onclick: act("/api/resume", run.name) }, "resume"),
      run.usable && h("a", { href: `#ask?run=${encodeURIComponent(run.name)}` }, "ask it"),
      " ",
      h("a", { href: `#cliff?runs=${encodeURIComponent(shown.map((one) => one.name).join(","))}` },
        "compare")),
    lineChart({ title: "The cliff: exact match by number of digits", series: cliff,
      trained: run.train_digits, xLabel: "digits", yLabel: "exact match (%)" }),
    h("div", { class: "row" },
      lineChart({ title: "Loss", series: shown.map((one, i) =>
        ({ name: i ? "before" : "this run", points: one.loss, faint: i > 0 })),
      xLabel: "examples seen", yLabel: "cross-entropy", height: 220, share: false }),
      lineChart({ title: "Exact match by length", series: lengths.map(([length, points]) =>
        ({ name: `${length} digits`, points })), xLabel: "examples seen", yLabel: "exact match (%)",
      height: 220 })),
  ];
}
