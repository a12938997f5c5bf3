// Requests to the server; an error has the server's sentence.

export async function request(path, body, signal) {
  const options = body === undefined ? { signal } : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server does not answer; is `lengthwise page` still running?");
  }
  const unreadable = () => ({ error: `the server says ${response.status}` });
  const found = await response.json().catch(unreadable);
  if (!response.ok) throw new Error(found.error);
  return found;
}

/** What tells models apart, in a line. */
export function aboutModel(run) {
  const depth = run.until_stable ? "layers until the answer is stable" :
    `${run.layers} ${run.encoder === "transformer" ? "layers" : "shared layers"}`;
  const primed = run.priming.map(([digits, count]) =>
    `${count} primed examples of ${digits} digits`);
  const parts = [
    `${run.position}, ${run.attention} attention`,
    depth,
    `trained on up to ${run.operand_digits.join(` ${run.symbol} `)} digits`,
    ...primed.slice(0, 2),
    run.start_from ? `fine-tuned from ${run.start_from}` : null,
    run.status === "finished" ? null : run.status,
  ];
  return parts.filter(Boolean).join(" · ");
}
