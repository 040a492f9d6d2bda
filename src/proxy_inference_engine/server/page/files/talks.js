// Conversations, kept in this browser. A conversation is a tree of turns; the path through it is what one sees.
// A turn is a question, an answer, or the results of an answer's calls.

import { call } from "./api.js";
import { database } from "./database.js";

const ROLES = ["user", "assistant", "tool"];
const MAX_TITLE = 60;
let talks = [];
let onlost = () => {};
const tabs = globalThis.BroadcastChannel ? new BroadcastChannel("pie.talks") : null; // who else has this page open

const text = (value) => (typeof value === "string" ? value : "");

const list = (value) => (Array.isArray(value) ? value : []);
const isToken = (given) => typeof given?.text === "string" && Number.isFinite(given.logprob);
const checkedToken = ({ text: said, logprob, bytes, others }) => ({
  text: said,
  logprob,
  bytes: Array.isArray(bytes) ? bytes : null,
  others: list(others).filter(isToken).map(checkedToken),
});

// What is read may have been written by anybody: only what has the right shape is taken over.
function checkedTurn(given) {
  if (!given || typeof given.id !== "string" || !ROLES.includes(given.role)) return null;
  const isBegun = typeof given.response === "string";
  const isLost = given.state === "writing" && !isBegun;
  const calls = list(given.calls).filter((each) => typeof each?.call_id === "string");
  return {
    ...given,
    before: typeof given.before === "string" ? given.before : null,
    text: text(given.text),
    reasoning: text(given.reasoning),
    error: text(given.error) || (isLost ? "It was interrupted before it began." : null),
    pictures: list(given.pictures)
      .filter((each) => typeof each?.id === "string")
      .map((each) => ({ id: each.id, name: text(each.name) })),
    tokens: list(given.tokens).filter(isToken).map(checkedToken),
    calls: calls.map((each) => ({ call_id: each.call_id, name: text(each.name), arguments: text(each.arguments) })),
    outputs:
      given.outputs && typeof given.outputs === "object"
        ? Object.fromEntries(Object.entries(given.outputs).map(([id, value]) => [id, text(value)]))
        : {},
    state: given.state === "writing" && isBegun ? "writing" : "done",
  };
}

function checked(given) {
  if (!given || typeof given.id !== "string" || !Array.isArray(given.turns)) return null;
  const turns = given.turns.map(checkedTurn).filter(Boolean);
  return { id: given.id, at: Number(given.at) || 0, title: text(given.title), turns, last: text(given.last) || turns.at(-1)?.id || null };
}

// Once, at the start. `lost` is told when this browser keeps nothing.
export async function load(lost) {
  onlost = lost;
  const store = await database();
  if (!store.isKept) lost("This browser keeps nothing: conversations end with the page.");
  talks = (await store.all("talks")).map(checked).filter(Boolean);
}

// What another tab has changed is taken over, but for a conversation that is busy here. `changed` is told its id.
export function watch(isBusy, changed) {
  if (!tabs) return;
  tabs.onmessage = async ({ data: id }) => {
    if (isBusy(id)) return;
    const kept = checked(await (await database()).get("talks", id));
    if (isBusy(id)) return;
    talks = talks.filter((talk) => talk.id !== id);
    if (kept) talks.push(kept);
    changed(id);
  };
}

export const all = () => [...talks].sort((a, b) => b.at - a.at);
export const find = (id) => talks.find((talk) => talk.id === id);
export const turn = (talk, id) => talk.turns.find((each) => each.id === id);

export async function save(talk) {
  if (!talks.includes(talk)) return; // it was deleted while its answer was being written
  try {
    await (await database()).put("talks", talk, talk.id);
    tabs?.postMessage(talk.id);
  } catch (error) {
    onlost(
      error.name === "QuotaExceededError" ? "The browser has no more room: export or delete conversations." : `Not kept: ${error.message}`,
    );
  }
}

export function begin() {
  const talk = { id: crypto.randomUUID?.() ?? String(Math.random()).slice(2), at: Date.now(), title: "", turns: [], last: null };
  talks.push(talk);
  return talk;
}

export async function rename(talk, title) {
  talk.title = title.slice(0, 200);
  await save(talk);
}

// Gone here, and what the server stored of it as well.
export async function remove(talk) {
  talks = talks.filter((each) => each !== talk);
  const store = await database();
  await store.remove("talks", talk.id);
  tabs?.postMessage(talk.id);
  for (const each of talk.turns) {
    for (const picture of each.pictures ?? []) await store.remove("pictures", picture.id);
    if (each.response) call(`v1/responses/${encodeURIComponent(each.response)}`, { method: "DELETE" }).catch(() => {});
  }
}

// A turn knows the one before it, so that an edited question begins a branch of its own.
export function add(talk, fields, before) {
  const made = {
    id: crypto.randomUUID?.() ?? String(Math.random()).slice(2),
    before: before ?? null,
    text: "",
    reasoning: "",
    pictures: [],
    tokens: [],
    calls: [],
    outputs: {},
    state: "done",
    ...fields,
  };
  talk.turns.push(made);
  talk.last = made.id;
  talk.at = Date.now();
  save(talk);
  return made;
}

// The turns from the first to `last`.
export function path(talk, last = talk.last) {
  const found = [];
  for (let each = turn(talk, last); each && !found.includes(each); each = turn(talk, each.before)) found.unshift(each);
  return found;
}

export const siblings = (talk, of) => talk.turns.filter((each) => each.before === of.before);

// Shows the newest end of the branch that begins with a turn.
export function choose(talk, id) {
  const seen = new Set();
  let last = id;
  for (let next = turn(talk, id); next && !seen.has(next); next = talk.turns.filter((each) => each.before === last).at(-1)) {
    seen.add(next);
    last = next.id;
  }
  talk.last = last;
  save(talk);
}

export const title = (talk) =>
  talk.title ||
  talk.turns
    .find((each) => each.role === "user")
    ?.text.slice(0, MAX_TITLE)
    .trim() ||
  "New conversation";

export const matching = (words) =>
  all().filter((talk) => {
    const said = `${title(talk)}\n${talk.turns.map((each) => each.text).join("\n")}`.toLowerCase();
    return words
      .toLowerCase()
      .split(/\s+/)
      .every((word) => said.includes(word));
  });

// All of them, with their pictures, as a file.
export async function exported(which = all()) {
  const store = await database();
  const ids = which.flatMap((talk) => talk.turns.flatMap((each) => (each.pictures ?? []).map((picture) => picture.id)));
  const pictures = {};
  for (const id of ids) pictures[id] = await store.get("pictures", id);
  return JSON.stringify({ format: "pie-conversations", version: 1, conversations: which, pictures }, null, 1);
}

// How many were new.
export async function imported(written) {
  const given = JSON.parse(written);
  const found = Array.isArray(given) ? given : given?.conversations;
  if (!Array.isArray(found)) throw new Error("This file has no conversations.");
  const fresh = found.map(checked).filter((talk) => talk && !find(talk.id));
  const store = await database();
  for (const [id, url] of Object.entries(given.pictures ?? {})) {
    if (typeof url === "string" && /^data:image\/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/=]*$/.test(url))
      await store.put("pictures", url, id);
  }
  talks.push(...fresh);
  for (const talk of fresh) await save(talk);
  return fresh.length;
}
