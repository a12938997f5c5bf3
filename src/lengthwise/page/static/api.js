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
