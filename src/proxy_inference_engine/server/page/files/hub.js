// More models: a search on the hub, what a repository has, whether it fits, and pulls with their progress.

import { call, json } from "./api.js";
import { element, icon } from "./dom.js";
import { follow } from "./live.js";
import { bytes, count, percent } from "./measures.js";

const STATES = { done: "good", failed: "bad", cancelled: "", cancelling: "moving", downloading: "moving" };

// What the server says of a model before a byte of its weights is loaded.
export function fitElement(name, context) {
  const made = element("p", { class: "fit-line quiet", role: "status", textContent: "Reading its header…" });
  json(`admin/fit?model=${encodeURIComponent(name)}`)
    .then((fit) => {
      const chip = element("span", { class: `chip ${fit.fits ? "good" : "bad"}`, textContent: fit.fits ? "It fits" : "It does not fit" });
      made.replaceChildren(chip, " ", fit.why, fit.download ? `; ${bytes(fit.download)} to download` : "");
    })
    .catch((error) => {
      made.replaceChildren(element("span", { class: "error", textContent: error.message }));
      if (error.status === 401) context.fail(error);
    });
  return made;
}

export function hubElement(context) {
  const field = element("input", {
    type: "search",
    "aria-label": "Search Hugging Face",
    placeholder: "Search Hugging Face, or give owner/model",
    autocomplete: "off",
    spellcheck: false,
  });
  const found = element("div", { class: "found", role: "status" });
  const pulls = element("ul", { class: "pulls", "aria-label": "Downloads" });
  const rows = new Map();
  let latest = null;

  async function search(event) {
    event.preventDefault();
    const words = field.value.trim();
    if (!words) return;
    const mine = (latest = {}); // an earlier search may answer later
    found.replaceChildren(element("p", { class: "quiet", textContent: "Searching…" }));
    try {
      const isName = /^[\w.-]+\/[\w.-]+(:[\w.-]+)?$/.test(words);
      const data = isName ? [{ model: words.split(":")[0] }] : (await json(`admin/hub/search?q=${encodeURIComponent(words)}`)).data;
      if (mine !== latest) return;
      const list = data.map((each) => resultElement(each, begin, context));
      found.replaceChildren(
        list.length ? element("ul", { class: "results" }, ...list) : element("p", { class: "quiet", textContent: "Nothing was found." }),
      );
      if (isName) list[0].querySelector("summary").click();
    } catch (error) {
      if (mine !== latest) return;
      found.replaceChildren(element("p", { class: "error", textContent: error.message }));
      if (error.status === 401) context.fail(error);
    }
  }

  async function begin(name) {
    try {
      await call("admin/pulls", { body: { model: name } });
      context.say(`${name} is being downloaded.`);
      pulls.scrollIntoView({ block: "nearest" });
    } catch (error) {
      context.fail(error);
    }
  }

  function show(status) {
    for (const each of status.data) {
      if (!rows.has(each.id)) {
        rows.set(each.id, pullRow(each, context));
        pulls.prepend(rows.get(each.id).element);
      }
      rows.get(each.id).update(each);
    }
  }

  const made = element(
    "section",
    { class: "stack hub", "aria-label": "More models" },
    element("h2", { textContent: "Get another model" }),
    element(
      "form",
      { class: "row", role: "search", onsubmit: search },
      element("span", { class: "grow" }, field),
      element("button", { type: "submit", class: "primary" }, icon("search"), "Search"),
    ),
    pulls,
    found,
  );
  const stop = follow("admin/pulls/events", show, () => {});
  // The view that holds it tells it to leave.
  queueMicrotask(() => made.closest(".panel")?.addEventListener("leave", stop));
  return made;
}

function resultElement(each, begin, context) {
  const inside = element("div", { class: "variants" });
  const kinds = [each.has_gguf && "GGUF", each.has_safetensors && "safetensors", each.is_gated && "gated"].filter(Boolean);
  const details = element(
    "details",
    {},
    element(
      "summary",
      {},
      icon("next"), // it opens, and the browser's own mark is gone where several things stand in a line
      element("strong", { textContent: each.model }),
      ...kinds.map((kind) => element("span", { class: "chip", textContent: kind })),
      element("span", { class: "quiet", textContent: each.downloads === undefined ? "" : `${count(each.downloads)} downloads` }),
    ),
    inside,
  );
  details.addEventListener("toggle", async () => {
    if (!details.open || inside.childNodes.length) return;
    inside.replaceChildren(element("p", { class: "quiet", textContent: "Looking what it has…" }));
    try {
      const { data } = await json(`admin/hub/files?model=${encodeURIComponent(each.model)}`);
      inside.replaceChildren(
        ...(data.length
          ? data.map((variant) => variantRow(variant, begin, context))
          : [element("p", { class: "quiet", textContent: "There is nothing in it that could run here." })]),
      );
    } catch (error) {
      inside.replaceChildren(element("p", { class: "error", textContent: error.message }));
    }
  });
  return element("li", { class: "card result" }, details);
}

function variantRow(variant, begin, context) {
  const fit = element("div", { class: "fit" });
  const name = variant.model.split(":")[1] ?? variant.kind;
  return element(
    "div",
    { class: "variant" },
    element(
      "div",
      { class: "row" },
      element("span", { class: "mono grow", textContent: name }),
      element("span", { class: "quiet", textContent: bytes(variant.bytes) }),
      element("button", {
        type: "button",
        class: "plain",
        textContent: "Does it fit?",
        "aria-label": `Does it fit? ${variant.model}`,
        onclick: () => fit.replaceChildren(fitElement(variant.model, context)),
      }),
      element(
        "button",
        { type: "button", "aria-label": `Pull ${variant.model}`, onclick: () => begin(variant.model) },
        icon("download"),
        "Pull",
      ),
    ),
    fit,
  );
}

function pullRow(first, context) {
  const state = element("span", { class: "chip" });
  const bar = element("progress", { max: 1, value: 0 });
  const told = element("span", { class: "quiet" });
  const trouble = element("p", { class: "error", hidden: true });
  const cancel = element("button", {
    type: "button",
    class: "plain danger",
    textContent: "Cancel",
    onclick: () => call(`admin/pulls/${first.id}/cancel`, { method: "POST" }).catch(context.fail),
  });
  const seen = []; // moments and bytes, for the speed
  const made = element(
    "li",
    { class: "card pull" },
    element("div", { class: "row" }, element("strong", { class: "grow", textContent: first.model }), state, cancel),
    bar,
    told,
    trouble,
  );

  function speed(pull) {
    const now = performance.now() / 1000;
    seen.push([now, pull.bytes]);
    while (seen.length > 2 && now - seen[0][0] > 8) seen.shift();
    const [[began, before]] = seen;
    return now - began > 0.5 && pull.bytes > before ? (pull.bytes - before) / (now - began) : 0;
  }

  function update(pull) {
    state.textContent = pull.state;
    state.className = `chip ${STATES[pull.state] ?? ""}`;
    const share = pull.total_bytes ? pull.bytes / pull.total_bytes : 0;
    if (pull.total_bytes) bar.value = share;
    else bar.removeAttribute("value");
    bar.hidden = !STATES[pull.state] || pull.state === "failed";
    bar.setAttribute("aria-label", `${pull.model}: ${percent(share)}`);
    cancel.hidden = pull.state !== "downloading";
    const rate = pull.state === "downloading" ? speed(pull) : 0;
    const size = pull.total_bytes ? `${percent(share)}, ${bytes(pull.bytes)} of ${bytes(pull.total_bytes)}` : pull.step;
    told.textContent =
      pull.state === "done"
        ? pull.is_served
          ? "It is here, and can be loaded above."
          : "It is here. This server cannot load further models."
        : `${size}${rate ? `, ${bytes(rate)}/s` : ""}`;
    trouble.hidden = !pull.error;
    trouble.textContent = pull.error ?? "";
  }

  return { element: made, update };
}
