// Models: what is served, loaded or not, what each takes and where it lies; and more of them from the hub.

import { call, json } from "./api.js";
import { element, icon } from "./dom.js";
import { fitElement, hubElement } from "./hub.js";
import { follow, refusal } from "./live.js";
import { ago, bytes, count } from "./measures.js";

const KINDS = { ready: "good", failed: "bad", unavailable: "bad" };
const MOVING = new Set(["waiting", "loading", "unloading"]);

export function mount(root, context) {
  const memory = element("div", { class: "memory" });
  const list = element("ul", { class: "models", "aria-label": "Models" });
  const cards = new Map();
  let closer = new Map();
  let latest = null;
  let listed = "";
  let known = "";

  const panel = element(
    "div",
    { class: "panel" },
    element(
      "header",
      { class: "row panel-head" },
      element("h2", { textContent: "Models" }),
      element("span", { class: "quiet", textContent: "What is served, what it takes, and where it lies." }),
      memory,
    ),
    list,
    hubElement(context),
  );
  root.append(panel);
  const fail = refusal(panel, context);

  async function act(id, verb, told) {
    try {
      await call(`admin/models/${encodeURIComponent(id)}/${verb}`, { method: "POST" });
      context.say(told);
    } catch (error) {
      context.fail(error);
    }
  }

  // Where they lie and what their memory is for is not in the stream: it is asked for when a model comes, goes or changes its state.
  async function lookCloser() {
    const mine = (latest = {}); // an earlier look may come back later
    try {
      const { data } = await json("admin/models");
      if (mine !== latest) return;
      closer = new Map(data.map((each) => [each.id, each]));
      for (const card of cards.values()) card.update();
    } catch (error) {
      fail(error);
    }
  }

  function show(status) {
    memory.replaceChildren(...memoryBar(status));
    const ids = status.data.map((each) => each.id);
    for (const each of status.data) {
      if (!cards.has(each.id)) cards.set(each.id, makeCard(each, { act, closer: (id) => closer.get(id), context }));
      cards.get(each.id).update(each, status.max_memory_bytes);
    }
    for (const id of [...cards.keys()].filter((id) => !ids.includes(id))) cards.delete(id);
    if (listed !== ids.join("\n")) list.replaceChildren(...ids.map((id) => cards.get(id).element));
    listed = ids.join("\n");
    const states = status.data.map((each) => `${each.id} ${each.state}`).join("\n");
    if (known !== states) lookCloser();
    known = states;
  }

  const stop = follow("admin/models/events", show, fail);
  return () => {
    stop();
    panel.dispatchEvent(new Event("leave"));
  };
}

function memoryBar(status) {
  if (!status.max_memory_bytes) return [element("span", { class: "chip", textContent: "one model, without a budget" })];
  const bar = element("meter", { min: 0, max: status.max_memory_bytes, value: status.memory_bytes, "aria-label": "Memory of all models" });
  return [element("span", { class: "quiet", textContent: `${bytes(status.memory_bytes)} of ${bytes(status.max_memory_bytes)}` }), bar];
}

// KV and prefixes have theirs for as much as they may become; the rest is for computing.
function held(total, parts) {
  if (!total) return total === undefined ? "…" : "not counted";
  const names = { weights: "weights", kv: "KV", cache: "prefixes" };
  const told = Object.entries(names).filter(([part]) => parts?.[part]);
  return bytes(total) + (told.length ? `: ${told.map(([part, name]) => `${bytes(parts[part])} ${name}`).join(", ")}` : "");
}

function makeCard(first, { act, closer, context }) {
  let model = first;
  let room = null; // of all models together; null: it is not counted
  const state = element("span", { class: "chip" });
  const progress = element("progress", { max: 1, hidden: true });
  const facts = element("dl", { class: "facts" });
  const trouble = element("p", { class: "error", hidden: true });
  const fit = element("div", { class: "fit" });
  const load = element(
    "button",
    { type: "button", onclick: () => act(model.id, "load", `${model.id} is being loaded.`) },
    icon("play"),
    "Load",
  );
  const unload = element(
    "button",
    { type: "button", onclick: () => act(model.id, "unload", `${model.id} is unloaded.`) },
    icon("stop"),
    "Unload",
  );
  const pin = element("button", {
    type: "button",
    onclick: () => act(model.id, model.is_pinned ? "unpin" : "pin", model.is_pinned ? `${model.id} may go.` : `${model.id} stays.`),
  });
  const look = element("button", {
    type: "button",
    textContent: "Does it fit?",
    onclick: () => fit.replaceChildren(fitElement(model.id, context)),
  });
  const made = element(
    "li",
    { class: "card model" },
    element(
      "header",
      { class: "row" },
      element("h3", { textContent: model.id }),
      state,
      element("span", { class: "grow" }),
      look,
      load,
      unload,
      pin,
    ),
    progress,
    trouble,
    facts,
    fit,
  );

  function update(next = model, budget = room) {
    model = next;
    room = budget;
    state.textContent = model.state;
    state.className = `chip ${KINDS[model.state] ?? (MOVING.has(model.state) ? "moving" : "")}`;
    progress.hidden = model.state !== "loading" || !model.progress;
    progress.value = model.progress?.share ?? 0;
    progress.setAttribute("aria-label", `${model.id}: ${model.progress?.step ?? ""}`);
    trouble.hidden = !model.error;
    trouble.textContent = model.error?.message ?? "";
    load.hidden = model.state === "ready" || MOVING.has(model.state);
    unload.hidden = model.state !== "ready";
    unload.disabled = model.running > 0;
    look.hidden = model.state !== "unloaded" && model.state !== "failed";
    pin.replaceChildren(icon("pin"), model.is_pinned ? "Pinned" : "Pin");
    pin.setAttribute("aria-pressed", String(model.is_pinned));
    pin.title = model.is_pinned ? "It is never unloaded to make room. Press to let it go." : "Never unload it to make room.";
    facts.replaceChildren(
      ...rows().map(([name, value]) =>
        element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value })),
      ),
    );
  }

  function rows() {
    const looked = closer(model.id);
    const needed = looked && (looked.needs_bytes ?? null);
    const told = [];
    if (model.state === "ready" || model.memory_bytes) told.push(["memory", held(model.memory_bytes || needed, looked?.parts)]);
    else if (needed) told.push(["needs", room && needed > room ? `${bytes(needed)}, more than all may have` : bytes(needed)]);
    if (model.context_length) told.push(["context", `${count(model.context_length)} tokens`]);
    told.push(["answering", `${model.running}${model.waiting ? `, ${model.waiting} wait` : ""}`], ["last used", ago(model.last_used_at)]);
    if (model.progress?.step && model.state === "loading") told.push(["busy with", model.progress.step]);
    if (looked?.path) told.push(["lies in", looked.path]);
    return told;
  }

  update();
  return { element: made, update };
}
