// What is said of a model.

/** What an answer forms over, turn by turn. */
export function turnOf({ depth }) {
  return { "until-stable": "iteration", rewrite: "round" }[depth] ?? "layer";
}

/** How often layers are applied. */
export function describeDepth({ depth, layers, encoder }) {
  if (depth === "until-stable") return "layers until the answer is stable";
  if (depth === "rewrite") return "rewrites its answer until it is stable";
  return `${layers} ${encoder === "transformer" ? "layers" : "shared layers"}`;
}

/** What tells models apart, in a line. */
export function aboutModel(run) {
  const primed = run.priming.map(([digits, count]) =>
    `${count} primed examples of ${digits} digits`);
  const parts = [
    `${run.position}, ${run.attention} attention`,
    describeDepth(run),
    `trained on up to ${run.operand_digits.join(` ${run.symbol} `)} digits`,
    ...primed.slice(0, 2),
    run.start_from ? `fine-tuned from ${run.start_from}` : null,
    run.status === "finished" ? null : run.status,
  ];
  return parts.filter(Boolean).join(" · ");
}
