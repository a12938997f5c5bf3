// Ask: type a problem, watch the answer form, look inside, compare two models, break them.

import { countWrong, makeBoard } from "./board.js";
import {
  copyButtons, debounce, groupDigits, h, quoteShell, readAddress, writeAddress,
} from "./dom.js";
import { makeFilm } from "./film.js";
import { turnOf } from "./models.js";
import { makeTokens } from "./tokens.js";

const PLAY_SECONDS = 3; // for a whole film
const NINES = { "9…9 + 0": (n) => `${"9".repeat(n)} + 0` }; // where no carry must be noticed
const FIRST = { "+": "99999 + 1", "×": "12345 × 7", "%": "12345 % 678", "*": "12345 * 7" };

/**
 * The view. `lab` gives models (name, label, symbol, cases, …), `mostDigits` of those that take
 * any length, `ask(name, problem, signal)`, `attention(…)`, `breakModel(name, case, length)`, and
 * the texts of the copy buttons.
 */
export function askView(lab) {
  const { models } = lab;
  if (!models.length) return lab.emptyView();
  const address = readAddress();
  const find = (name) => models.find((model) => model.name === name);
  let chosen = [find(address.run) ?? models[0], find(address.with)].filter(Boolean);
  let seed = 0;
  let asked = null; // the problem whose answers are shown

  const problem = h("textarea", {
    class: "problem",
    rows: 1,
    spellcheck: "false",
    autocomplete: "off",
    "aria-label": "problem",
    placeholder: "99999 + 1",
  });
  problem.value = address.problem ?? FIRST[chosen[0].symbol] ?? "";
  const answers = h("div", { class: "answers" });
  const longest = () => Math.min(...chosen.map((model) =>
    (model.any_length ? lab.mostDigits : model.test_digits)));
  const length = h("input", { type: "number", min: 1, max: lab.mostDigits, class: "short",
    value: Math.min(startLength(chosen[0]), longest()),
    "aria-label": "digits of the problems that break it" });

  const fitHeight = () => {
    problem.style.setProperty("height", "auto");
    problem.style.setProperty("height", `${Math.min(problem.scrollHeight + 2, 220)}px`);
  };
  const askAll = () => {
    asked = problem.value;
    fitHeight();
    const [first, second] = chosen.map((model) => model.name);
    writeAddress({ view: "ask", run: first, with: second, problem: problem.value });
    answers.classList.toggle("two", chosen.length > 1);
    answers.replaceChildren(...chosen.map((model) => answerPanel(lab, model, problem.value)));
  };
  const askFor = (text) => {
    problem.value = text;
    askAll();
  };
  const breakWith = (name) => async () => {
    try {
      const found = await lab.breakModel(chosen[0].name, name, +length.value || 5, seed++);
      askFor(found.problem);
    } catch (error) {
      answers.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
    }
  };
  const choose = (slot) => (event) => {
    const model = find(event.target.value);
    if (slot === 1) chosen = model ? [chosen[0], model] : [chosen[0]];
    else chosen[0] = model;
    if (slot === 0 && !problem.value.includes(model.symbol)) {
      problem.value = FIRST[model.symbol] ?? problem.value;
    }
    length.value = Math.min(length.value, longest());
    breaks.replaceWith((breaks = breakButtons()));
    askAll();
  };
  const select = (slot, label) =>
    h("label", {}, label,
      h("select", { onchange: choose(slot) },
        slot === 1 ? h("option", { value: "" }, "no other") : null,
        models.map((model) =>
          h("option", { value: model.name, selected: chosen[slot] === model }, model.label))));
  const breakButtons = () =>
    h("div", { class: "breaks", role: "group", "aria-label": "problems that break models" },
      h("span", {}, "Break it with "), length, h("span", {}, " digits: "),
      chosen[0].cases.map((name) =>
        h("button", { type: "button", onclick: breakWith(name), title: lab.describeCase(name) },
          name)),
      chosen[0].symbol === "+" && Object.entries(NINES).map(([name, make]) =>
        h("button", { type: "button", onclick: () => askFor(make(+length.value || 5)),
          title: "nines that no carry changes" }, name)));

  // After Enter, the answer stands there already.
  problem.addEventListener("input", debounce(250, () => problem.value !== asked && askAll()));
  problem.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      askAll();
    }
  });
  let breaks = breakButtons();
  requestAnimationFrame(askAll);
  return h("div", { class: "ask" },
    h("div", { class: "asking" },
      h("div", { class: "equation" }, problem, h("span", { class: "equals" }, "=")),
      models.length > 1 && h("div", { class: "models" }, select(0, "model"), select(1, "beside"))),
    breaks,
    answers);
}

function startLength(model) {
  if (model.any_length) return model.symbol === "+" ? 40 : 10; // work grows with the square
  return Math.min(model.test_digits, model.train_digits + 3);
}

/** One model's answer: the board, the slider over layers, the film, and what is inside. */
function answerPanel(lab, model, problem) {
  const head = h("header", {},
    h("h2", {}, model.label), h("p", { class: "about" }, model.about));
  const body = h("div", { class: "answer-body", "aria-live": "polite" });
  const panel = h("article", { class: "answer" }, head, body);
  if (!problem.trim()) {
    const example = FIRST[model.symbol] ?? "1 + 2";
    body.append(h("p", { class: "note" }, `Type a problem such as ${example}.`));
    return panel;
  }
  const wait = h("p", { class: "note wait" }, "computing …");
  body.append(wait);
  const withdrawn = new AbortController();
  const started = performance.now();
  const tick = setInterval(() => {
    if (!panel.isConnected) {
      withdrawn.abort(); // another problem was typed
      clearInterval(tick);
    } else {
      wait.textContent = `computing … ${((performance.now() - started) / 1000).toFixed(0)} s`;
    }
  }, 300);
  const progress = (step) => (wait.textContent = `computing … ${turnOf(model)} ${step}`);
  lab.ask(model.name, problem, withdrawn.signal, progress).then(
    (trace) => {
      const seconds = (performance.now() - started) / 1000;
      if (panel.isConnected) body.replaceChildren(...showTrace(lab, model, trace, seconds));
    },
    (error) => {
      if (error.name === "AbortError") return;
      body.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
    },
  ).finally(() => clearInterval(tick));
  return panel;
}

function showTrace(lab, model, trace, seconds) {
  const { steps } = trace;
  const end = steps.length - 1;
  const turn = turnOf(model);
  const board = makeBoard(trace);
  const tokens = makeTokens(trace, turn, (iteration, first, last) =>
    lab.attention(model.name, trace.problem, iteration, first, last));
  const label = h("output", {});
  const slider = h("input", { type: "range", min: 0, max: end, value: end,
    "aria-label": `${turn} after which the answer is read` });
  const show = (i) => {
    slider.value = i;
    const wrong = countWrong(trace, steps[i]);
    const { iteration } = steps[i];
    label.textContent = iteration === 0 ? "embeddings alone" :
      `${turn} ${groupDigits(iteration)} of ${groupDigits(steps[end].iteration)}`;
    label.textContent += wrong ? ` · ${groupDigits(wrong)} wrong` : " · all right";
    board.show(steps[i]);
    film.show(i);
    tokens.show(steps[i]);
  };
  const film = makeFilm(trace, turn, show);
  slider.addEventListener("input", () => show(+slider.value));
  queueMicrotask(() => show(end));
  return [
    verdict(trace, seconds),
    board.element,
    h("div", { class: "timeline" }, playButton(end, show), slider, label),
    film.element,
    copyButtons(() => lab.copyAsk(model.name, trace.problem)),
    tokens.element,
  ];
}

function verdict(trace, seconds) {
  const wrong = countWrong(trace, trace.steps.at(-1));
  const time = `${seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`}`;
  const digits = groupDigits(trace.correct.length);
  let text = trace.right ? `right: all ${digits} digits` :
    `wrong: ${groupDigits(wrong)} of ${groupDigits(trace.truth.length)} symbols`;
  if (trace.answer === null) text += "; the output is not a number";
  return h("p", { class: `verdict ${trace.right ? "is-right" : "is-wrong"}` },
    h("b", {}, trace.right ? "✓ " : "✗ "), text, h("small", {}, ` · ${time}`));
}

/** A button that plays the film from the start. */
function playButton(end, show) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let timer = 0;
  const title = "watch the answer form";
  const button = h("button", { type: "button", class: "quiet", title, "aria-label": title }, "▶");
  button.addEventListener("click", () => {
    clearInterval(timer);
    if (calm) return show(end);
    const frames = Math.min(end + 1, 60);
    let frame = 0;
    timer = setInterval(() => {
      if (!button.isConnected) return clearInterval(timer);
      show(Math.round((frame * end) / Math.max(1, frames - 1)));
      if (++frame >= frames) clearInterval(timer);
    }, (1000 * PLAY_SECONDS) / Math.max(6, frames));
  });
  return button;
}

/** The command and the Python that ask a model, by its path, the same. */
export function copyTexts(path, problem) {
  return {
    command: `lengthwise solve ${quoteShell(path)} ${quoteShell(problem)}`,
    python: ["import lengthwise", "", `model = lengthwise.load(${JSON.stringify(path)})`,
      `print(model.explain(${JSON.stringify(problem)}))`].join("\n"),
  };
}
