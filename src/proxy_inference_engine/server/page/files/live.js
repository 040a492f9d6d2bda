// What the server tells again and again, as long as somebody looks: event streams that come back, and polls.

import { call, events } from "./api.js";

const AGAIN_MS = 2000;

// Feeds every event of a stream to `take`, and opens it again when it breaks. What goes wrong is told to `fail`: a refusal,
// which ends it, and that the server cannot be reached, until `fail.back`. While nobody sees the page it is closed: a
// browser has six connections to a server, and tabs behind others would keep them all.
export function follow(path, take, fail) {
  const over = new AbortController();
  (async () => {
    while (!over.signal.aborted) {
      const hidden = await untilSeen(over.signal);
      try {
        for await (const event of events(await call(path, { signal: hidden }))) {
          fail.back?.();
          take(event);
        }
      } catch (error) {
        if (error.status !== undefined) fail(error);
        if (error.status) return;
      }
      if (!hidden.aborted) await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  })();
  return () => over.abort();
}

// Waits until the page is seen; gives a signal of when it is hidden again, or `over`.
async function untilSeen(over) {
  while (document.hidden && !over.aborted)
    await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  const hidden = new AbortController();
  const hide = () => document.hidden && hidden.abort();
  document.addEventListener("visibilitychange", hide, { signal: AbortSignal.any([over, hidden.signal]) });
  return AbortSignal.any([over, hidden.signal]);
}

// Calls `look` every so often, one at a time, while the page is seen; `fail` as above.
export function poll(look, ms, fail) {
  const over = new AbortController();
  let timer = null;
  async function turn() {
    let isOver = over.signal.aborted;
    if (!document.hidden && !isOver) {
      try {
        await look(over.signal);
        fail.back?.();
      } catch (error) {
        if (error.name === "AbortError") return;
        if (error.status !== undefined) fail(error);
        isOver = Boolean(error.status);
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

// How a view tells what goes wrong: one that needs the operator's key says so in its place, instead of an error in
// passing; one whose server is gone shows nothing as if it were live.
export function refusal(root, context) {
  const fail = (error) => {
    if (error.status === 401) return context.fail(error);
    root.classList.toggle("lost", !error.status);
    if (error.status !== 403) return context.say(error.message, true);
    const told = document.createElement("p");
    told.className = "card needs-key";
    told.textContent = "This needs the key of an admin: the key button below the views takes another one.";
    root.replaceChildren(told);
    return undefined;
  };
  fail.back = () => {
    if (root.classList.contains("lost")) context.say("");
    root.classList.remove("lost");
  };
  return fail;
}
