// The page of an exported file: its models compute in a worker, from weights inside the file.

import { SYMBOLS, operandDigits } from "./arithmetic.js";
import { askView, copyTexts } from "./ask.js";
import { lineChart } from "./chart.js";
import { themeButton } from "./dom.js";
import { describeDepth } from "./models.js";
import { CASES } from "./stress.js";

const descriptions = JSON.parse(document.getElementById("models").textContent);

/** A worker from the text of the forward pass; `send` gives a promise of its answer. */
function startWorker() {
  const code = document.getElementById("forward").textContent;
  const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const worker = new Worker(address);
  const waiting = new Map();
  let count = 0;
  worker.onmessage = ({ data: { id, result, error, progress } }) => {
    const { resolve, reject, report } = waiting.get(id);
    if (progress !== undefined) return report?.(progress);
    waiting.delete(id);
    if (error === undefined) resolve(result);
    else reject(new Error(error));
  };
  worker.onerror = (event) => {
    const failure = new Error(`the worker failed: ${event.message}`);
    for (const { reject } of waiting.values()) reject(failure);
    waiting.clear();
  };
  const send = (message, report) =>
    new Promise((resolve, reject) => {
      waiting.set(++count, { resolve, reject, report });
      worker.postMessage({ id: count, ...message });
    });
  for (const model of descriptions) send({ kind: "load", model });
  return { send, stop: () => worker.terminate() };
}

// One worker for each model. A sum that is no longer wanted is stopped with its worker.
const workers = new Map(descriptions.map(({ name }) => [name, startWorker()]));

function ask(name, problem, signal, report) {
  signal.addEventListener("abort", () => {
    if (!busy.has(signal)) return;
    workers.get(name).stop();
    workers.set(name, startWorker());
  });
  busy.add(signal);
  return workers.get(name).send({ kind: "ask", name, problem }, report)
    .finally(() => busy.delete(signal));
}
const busy = new Set();

/** Whether problems have two operands of one length, as in the length record of products. */
const isSquare = ({ layout }) => layout.kind === "long-multiplication";

function describeModel(model) {
  const { config, task } = model;
  const position = config.position;
  const over = position.coordinate === "significance" ? " over significance" : "";
  const any = model.layout.kind === "fitted" || isSquare(model);
  const sums = task.kind === "addition";
  const trained = operandDigits(task, model.trainDigits).join(` ${SYMBOLS[task.kind]} `);
  return {
    name: model.name,
    label: model.name,
    about: `${position.kind}${over}, ${config.attention.kind} attention · ` +
      `${describeDepth({ ...config, depth: config.depth.kind })} · ` +
      `${model.parameters.toLocaleString("en")} parameters · ` +
      `trained on up to ${trained} digits`,
    symbol: SYMBOLS[task.kind],
    depth: config.depth.kind,
    any_length: any,
    train_digits: model.trainDigits,
    test_digits: model.digits,
    cases: Object.keys(CASES).filter((name) =>
      (sums || !CASES[name][1]) && operandDigits(task, 1).length === 2),
  };
}

function breakModel(name, caseName, length) {
  const model = descriptions.find((other) => other.name === name);
  const { task } = model;
  const digits = isSquare(model) ? [length, length] : operandDigits(task, length);
  const operands = CASES[caseName][2](digits);
  return { problem: operands.join(` ${SYMBOLS[task.kind]} `) };
}

function accuracyChart() {
  const series = descriptions.map((model, i) => ({
    name: model.name,
    colour: i,
    points: model.accuracy.map((a) => [a.length, a.exact_match, a.low, a.high]),
  }));
  if (series.every(({ points }) => points.length < 2)) return "";
  return lineChart({ title: "Exact match by number of digits, measured after training", series,
    trained: Math.min(...descriptions.map((model) => model.trainDigits)), xLabel: "digits",
    yLabel: "exact match (%)" });
}

document.querySelector("header.top").append(themeButton());
document.getElementById("main").append(
  askView({
    models: descriptions.map(describeModel),
    mostDigits: descriptions.some(isSquare) ? 200 : 100_000,
    ask,
    attention: (name, problem, iteration, first, last) =>
      workers.get(name).send({ kind: "attention", name, problem, iteration, first, last }),
    breakModel,
    describeCase: (name) => CASES[name][0],
    copyAsk: copyTexts,
  }),
  accuracyChart(),
);
