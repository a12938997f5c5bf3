// The worker of an exported file: computes the answers of its models, one request at a time.

import { Model } from "./encoder.js";
import { attentionOf, solve } from "./solver.js";

const PROGRESS = 150; // milliseconds between reports
const models = new Map();

export function makeModel(description) {
  const text = atob(description.weights);
  const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
  return new Model(description, bytes.buffer);
}

function solveWithProgress(model, problem, report) {
  const solving = solve(model, problem);
  let last = performance.now();
  for (;;) {
    const { done, value } = solving.next();
    if (done) return value;
    if (performance.now() - last > PROGRESS) {
      last = performance.now();
      report(value);
    }
  }
}

globalThis.onmessage = ({ data: { id, kind, name, problem, iteration, first, last, model } }) => {
  const answer = (result) => globalThis.postMessage({ id, ...result });
  try {
    if (kind === "load") {
      models.set(model.name, makeModel(model));
      answer({ result: true });
    } else if (kind === "ask") {
      const report = (step) => answer({ progress: step });
      answer({ result: solveWithProgress(models.get(name), problem, report) });
    } else {
      answer({ result: attentionOf(models.get(name), problem, iteration, first, last) });
    }
  } catch (error) {
    answer({ error: error.message });
  }
};
