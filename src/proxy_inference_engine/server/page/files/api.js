// The server as this page sees it: plain fetch with the key, errors as sentences, event streams as iterators.

import { key } from "./key.js";

export class ApiError extends Error {
  constructor(status, message, { code = null, param = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.param = param;
  }
}

// The response of `path` (relative to the page, so that it works under a prefix); anything but success is an ApiError.
export async function call(path, { body, signal, method = body ? "POST" : "GET" } = {}) {
  const secret = await key.get();
  const headers = secret ? { authorization: `Bearer ${secret}` } : {};
  if (body) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.");
  }
  if (!response.ok) {
    const told = (await response.json().catch(() => null))?.error;
    throw new ApiError(response.status, told?.message ?? `${response.status} ${response.statusText}`, told ?? {});
  }
  return response;
}

export const json = async (path, options) => (await call(path, options)).json();

// What a browser says of it ("network error") is no sentence.
const broken = (error) => {
  throw error.name === "AbortError" ? error : new ApiError(0, "The connection broke off.");
};

// The data of every event; `onComment` hears what is said meanwhile ("coder is being loaded 43%").
export async function* events(response, onComment = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(broken);
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line.startsWith(":")) onComment(line.slice(1).trim());
        else if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
