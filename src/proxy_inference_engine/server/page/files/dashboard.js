// Dashboard: what the server does right now, drawn as it moves.

import { call, json } from "./api.js";
import { element } from "./dom.js";
import { between } from "./figures.js";
import { poll, refusal } from "./live.js";
import { bytes, count, percent, seconds } from "./measures.js";
import { plot, POINTS } from "./plot.js";
import { treeElement } from "./tree.js";

const LOOK_MS = 1000;
const TREE_MS = 3000;
const seen = []; // what was drawn, for whoever comes back

export function mount(root, context) {
  let now = null;
  const scales = {};
  const plots = makePlots(scales);
  const requests = requestTable(context);
  const tree = treeElement();
  const model = element("select", { "aria-label": "Model of the prefix cache", hidden: true });
  const texts = element("input", { type: "checkbox", id: "tree-texts" });
  const panel = element(
    "div",
    { class: "panel" },
    element(
      "header",
      { class: "row panel-head" },
      element("h2", { textContent: "Dashboard" }),
      element("span", { class: "quiet", textContent: "The last three minutes, as they pass." }),
      element("span", { class: "live", textContent: "live" }),
    ),
    element("div", { class: "plots" }, ...plots.map((each) => each.element)),
    element("section", { class: "card stack", "aria-label": "Requests" }, element("h2", { textContent: "Running now" }), requests.element),
    element(
      "section",
      { class: "card stack", "aria-label": "Prefix cache" },
      element(
        "div",
        { class: "row" },
        element("h2", { textContent: "Prefix cache" }),
        element("span", { class: "grow" }),
        model,
        element("label", { class: "row", for: "tree-texts" }, texts, "how my own texts begin"),
      ),
      tree.element,
    ),
  );
  root.append(panel);
  const fail = refusal(panel, context);

  async function look(signal) {
    const before = now;
    now = await json("admin/stats", { signal });
    const list = await json("admin/requests", { signal });
    requests.update(list.data);
    showModels(Object.keys(now.models));
    if (!before || now.time <= before.time) return;
    const each = between(before, now);
    seen.push(each);
    if (seen.length > POINTS) seen.shift();
    show(each);
  }

  function show(each) {
    scales.kv = each.maxKv;
    scales.cached = each.maxCached;
    for (const drawn of plots) drawn.take(each);
  }

  function showModels(names) {
    if (model.options.length === names.length) return;
    model.replaceChildren(...names.map((name) => element("option", { value: name, textContent: name })));
    model.hidden = names.length < 2;
  }

  async function lookAtTree(signal) {
    const query = new URLSearchParams({ nodes: 300, texts: texts.checked, ...(model.value ? { model: model.value } : {}) });
    try {
      tree.update(await json(`admin/cache?${query}`, { signal }));
    } catch (error) {
      if (error.status !== 404 && error.status !== 503) throw error; // not loaded, or busy: the next look tells
    }
  }

  seen.forEach(show);
  const again = () => lookAtTree().catch(fail);
  texts.addEventListener("change", again);
  model.addEventListener("change", again);
  const stops = [poll(look, LOOK_MS, fail), poll(lookAtTree, TREE_MS, fail)];
  return () => stops.forEach((stop) => stop());
}

function makePlots(scales) {
  const made = (options, pick) => {
    const drawn = plot(options);
    return { element: drawn.element, take: (each) => drawn.add(...pick(each)) };
  };
  return [
    made(
      {
        title: "Throughput",
        about: "Tokens a second, of answers and of prompts",
        lines: [
          { name: "generated /s", kind: "one" },
          { name: "read /s", kind: "two" },
        ],
        format: count,
      },
      (each) => [each.generated, each.read],
    ),
    made(
      {
        title: "First token",
        about: "From handing a request to the engine to its first text",
        lines: [
          { name: "mean", kind: "one" },
          { name: "p95", kind: "three" },
        ],
        format: seconds,
      },
      (each) => [each.firstMean, each.firstHigh],
    ),
    made(
      {
        title: "Between tokens",
        about: "Time between two steps of a request that brought text",
        lines: [
          { name: "mean", kind: "one" },
          { name: "p95", kind: "three" },
        ],
        format: seconds,
      },
      (each) => [each.gapMean, each.gapHigh],
    ),
    made(
      {
        title: "Queue",
        about: "Sequences that are computed, and answers that wait",
        lines: [
          { name: "running", kind: "one" },
          { name: "waiting", kind: "three" },
        ],
        format: count,
      },
      (each) => [each.running, each.waiting],
    ),
    made(
      {
        title: "Batch size",
        about: "Tokens that a step of the engine brings",
        lines: [{ name: "tokens a step", kind: "two" }],
        format: count,
      },
      (each) => [each.batch],
    ),
    made(
      {
        title: "KV in use",
        about: "Tokens in the slots of running sequences",
        lines: [{ name: "tokens", kind: "four" }],
        format: count,
        max: () => scales.kv,
      },
      (each) => [each.kv],
    ),
    made(
      {
        title: "Prefix cache",
        about: "Bytes of prefixes that are kept",
        lines: [{ name: "held", kind: "four" }],
        format: bytes,
        max: () => scales.cached,
      },
      (each) => [each.cached],
    ),
    made(
      {
        title: "Cache hits",
        about: "The share of prompt tokens that were not computed again",
        lines: [{ name: "of prompt tokens", kind: "two" }],
        format: percent,
        max: () => 1,
      },
      (each) => [each.hits],
    ),
  ];
}

const COLUMNS = ["Model", "Key", "Route", "State", "Prompt", "Cached", "Answer", "For", ""];

function requestTable(context) {
  const body = element("tbody");
  const none = element("p", { class: "quiet", textContent: "Nothing runs." });
  const head = element(
    "thead",
    {},
    element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col", textContent: name, "aria-label": name || "Cancel" }))),
  );
  const table = element("table", { class: "requests" }, head, body);
  const rows = new Map();

  function makeRow(first) {
    const cells = COLUMNS.slice(0, -1).map(() => element("td"));
    const cancel = element("button", {
      type: "button",
      class: "plain danger small",
      textContent: "Cancel",
      "aria-label": `Cancel ${first.id}`,
      onclick: () => call(`admin/requests/${encodeURIComponent(first.id)}/cancel`, { method: "POST" }).catch(context.fail),
    });
    const made = element("tr", {}, ...cells, element("td", {}, cancel));
    return {
      element: made,
      update(each) {
        const told = [
          each.model ?? "–",
          each.key ?? "–",
          each.route ?? "–",
          each.state,
          each.prompt_tokens ?? "–",
          each.cached_tokens ?? "–",
          each.completion_tokens ?? "–",
          seconds(each.seconds),
        ];
        told.forEach((text, index) => (cells[index].textContent = text));
      },
    };
  }

  function update(data) {
    const shown = data.filter((each) => !each.route?.startsWith("/admin/"));
    const ids = new Set(shown.map((each) => each.id));
    for (const [id, row] of rows) {
      if (ids.has(id)) continue;
      row.element.remove();
      rows.delete(id);
    }
    for (const each of shown) {
      if (!rows.has(each.id)) {
        rows.set(each.id, makeRow(each));
        body.append(rows.get(each.id).element);
      }
      rows.get(each.id).update(each);
    }
    none.hidden = shown.length > 0;
    table.hidden = !shown.length;
  }

  update([]);
  return { element: element("div", { class: "table-place" }, none, table), update };
}
