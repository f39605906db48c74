// The gateway's HTTP API, as this page uses it.

/** A request that the gateway refused or could not finish. */
export class ApiError extends Error {
  constructor(message, { status = 0, code = "", param = "", retryAfter = 0 } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.param = param;
    /** Seconds after which trying again is worth it; 0 when the gateway did not say. */
    this.retryAfter = retryAfter;
  }
}

export class Api {
  /** `key()` gives the API key, or an empty text for none. */
  constructor(key) {
    this.key = key;
  }

  /** The pipeline: its stages, and the instances that run them. */
  async pipeline() {
    return (await this.#fetch("v1/pipeline")).json();
  }

  /** When each stage worked on a request. */
  async timeline(requestId) {
    return (await this.#fetch(`v1/requests/${encodeURIComponent(requestId)}`)).json();
  }

  /** Begin a streamed chat completion; its chunks are those of OpenAI's API. */
  async chat(body, signal) {
    const response = await this.#fetch("v1/chat/completions", {
      method: "POST",
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    return { requestId: response.headers.get("x-request-id") ?? "", chunks: chunksOf(response) };
  }

  async #fetch(path, options = {}) {
    const headers = { "content-type": "application/json" };
    if (this.key()) headers.authorization = `Bearer ${this.key()}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The gateway cannot be reached.");
    }
    if (response.ok) return response;
    throw await refusal(response);
  }
}

async function* chunksOf(response) {
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw errorOf(chunk.error, {});
    yield chunk;
  }
  throw new ApiError("The connection ended before the answer was complete.");
}

async function refusal(response) {
  const facts = {
    status: response.status,
    retryAfter: Number(response.headers.get("retry-after")) || 0,
  };
  const text = await response.text();
  try {
    return errorOf(JSON.parse(text).error, facts);
  } catch {
    // A proxy in front of the gateway answers in words of its own.
    return new ApiError(`The server answered ${response.status}.`, facts);
  }
}

function errorOf(error, facts) {
  const { message, code, type, param } = error;
  return new ApiError(message, { ...facts, code: code ?? type ?? "", param: param ?? "" });
}

/** Yield the data of each server-sent event of a byte stream. */
export async function* eventData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffered += value;
      const events = buffered.split(/\r?\n\r?\n/);
      buffered = events.pop();
      for (const event of events) {
        const lines = event.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
      }
    }
  } finally {
    await reader.cancel();
  }
}
