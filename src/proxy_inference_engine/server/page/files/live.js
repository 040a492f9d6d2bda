// What the server tells again and again, as long as somebody looks: event streams that come back, and polls.

import { call, events } from "./api.js";

const AGAIN_MS = 2000;

// Feeds every event of a stream to `take`, and opens it again when it breaks; a refusal goes to `fail`, once.
export function follow(path, take, fail) {
  const over = new AbortController();
  (async () => {
    while (!over.signal.aborted) {
      try {
        for await (const event of events(await call(path, { signal: over.signal }))) take(event);
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status) return void fail(error);
      }
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  })();
  return () => over.abort();
}

// Calls `look` every so often, one at a time, while the page is seen; a refusal ends it.
export function poll(look, ms, fail) {
  const over = new AbortController();
  let timer = null;
  async function turn() {
    let isOver = over.signal.aborted;
    if (!document.hidden && !isOver) {
      try {
        await look(over.signal);
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status) {
          isOver = true;
          fail(error);
        }
      }
    }
    if (!isOver && !over.signal.aborted) timer = setTimeout(turn, ms);
  }
  turn();
  return () => {
    over.abort();
    clearTimeout(timer);
  };
}

// A view that needs the operator's key says so in its place, instead of an error in passing.
export function refusal(root, context) {
  return (error) => {
    if (error.status === 401) return context.fail(error);
    if (error.status !== 403) return context.say(error.message, true);
    const told = document.createElement("p");
    told.className = "card needs-key";
    told.textContent = "This needs the key of an admin: the key button below the views takes another one.";
    root.replaceChildren(told);
    return undefined;
  };
}
