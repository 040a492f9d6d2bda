// Structure: a format that is checked while one types it, and an answer that fills in under it. What the grammar forced
// is shaded apart from what the model chose.

import { call, events, json } from "./api.js";
import { small } from "./database.js";
import { element, icon } from "./dom.js";
import { editor } from "./editor.js";
import { fields, tokenText } from "./filling.js";
import { FORMATS } from "./formats.js";
import { modelPicker } from "./picker.js";
import { verdict } from "./verdict.js";
import { validate } from "./validate.js";

const KINDS = { schema: ["JSON Schema", "json"], regex: ["Regex", "text"], lark: ["Lark grammar", "yaml"] };
const PLACE = "pie.structure";
const PAUSE_MS = 250;
const MAX_TOKENS = 600;

export function mount(root, context) {
  const kept = small.read(PLACE, {});
  const drafts = { ...Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, FORMATS[kind][0].text])), ...kept.drafts };
  let kind = KINDS[kept.kind] ? kept.kind : "schema";
  let timer = null;
  let checking = null;
  let answering = null;
  let found = null; // what the server said of the format as it stands
  let shown = null;

  const picker = modelPicker(context, { onchange: () => soon(0) });
  const tabs = element("div", { class: "kinds", role: "tablist", "aria-label": "Kind of format" });
  const examples = element("select", { "aria-label": "Examples" });
  const code = editor({ label: "The format", language: "json", oninput: () => soon() });
  const told = element("div", { class: "verdict", role: "status", "aria-live": "polite" });
  const strict = element("input", { type: "checkbox", id: "strict", checked: kept.strict !== false, onchange: () => soon(0) });
  const strictLabel = element("label", { for: "strict", class: "row" }, strict, "strict");
  const question = element("textarea", {
    id: "structure-question",
    rows: 2,
    "aria-label": "The question",
    value: kept.question ?? FORMATS.schema[0].question,
  });
  const go = element("button", { type: "button", class: "primary", onclick: () => (answering ? stop() : ask()) });
  const tokens = element("div", { class: "tokens mono", role: "group", "aria-label": "The answer, token by token" });
  const counts = element("p", { class: "quiet counts", role: "status" });
  const rows = element("div", { class: "fields" });
  const proof = element("p", { class: "proof" });
  const legend = element(
    "p",
    { class: "legend quiet" },
    element("span", { class: "forced", textContent: "forced by the grammar" }),
    element("span", { class: "chosen", textContent: "chosen by the model" }),
  );
  const answer = element(
    "section",
    { class: "answer card stack", "aria-label": "The answer" },
    element("header", { class: "row" }, element("h2", { textContent: "Answer" }), element("span", { class: "grow" }), legend),
    tokens,
    counts,
    rows,
    proof,
  );

  root.append(
    element(
      "div",
      { class: "panel structure" },
      element(
        "header",
        { class: "row panel-head" },
        element("h2", { textContent: "Structure" }),
        element("span", { class: "quiet", textContent: "An answer that fits its format by construction." }),
        picker.element,
      ),
      element(
        "div",
        { class: "halves" },
        element(
          "section",
          { class: "stack", "aria-label": "The format" },
          tabs,
          element("div", { class: "row" }, examples, element("span", { class: "grow" }), strictLabel),
          code.element,
          told,
          element("div", { class: "ask" }, question, go),
        ),
        answer,
      ),
    ),
  );

  function keep() {
    drafts[kind] = code.value;
    small.set(PLACE, JSON.stringify({ kind, drafts, question: question.value, strict: strict.checked }));
  }

  function format() {
    if (kind !== "schema") return { type: "grammar", syntax: kind, definition: code.value };
    return { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(code.value), strict: strict.checked } };
  }

  // The format as it stands, or null where it is no JSON yet, which is said.
  function readFormat() {
    try {
      return format();
    } catch (error) {
      found = null;
      const at = Number(/position (\d+)/.exec(error.message)?.[1] ?? NaN);
      told.replaceChildren(...verdict.noJson(error.message, Number.isNaN(at) ? null : () => code.select(at, at + 1)));
      return null;
    }
  }

  function soon(ms = PAUSE_MS) {
    keep();
    clearTimeout(timer);
    timer = setTimeout(look, ms);
  }

  async function look() {
    checking?.abort();
    const mine = (checking = new AbortController());
    const wanted = readFormat();
    if (!wanted) return;
    told.setAttribute("aria-busy", "true");
    try {
      found = await json("v1/schemas/check", { body: { model: picker.value, response_format: wanted }, signal: mine.signal });
      told.replaceChildren(...verdict.of(found, code));
    } catch (error) {
      if (error.name === "AbortError") return;
      found = null;
      if (error.status === 401) return void context.fail(error);
      told.replaceChildren(...verdict.refused(error.message));
    } finally {
      if (checking === mine) told.removeAttribute("aria-busy");
    }
  }

  function clear() {
    for (const place of [tokens, rows, proof, counts]) place.replaceChildren();
  }

  function show(next, example = null) {
    if ((next !== kind || example) && !answering) clear(); // it was under another format
    kind = next;
    for (const tab of tabs.children) {
      const isMine = tab.dataset.kind === kind;
      tab.setAttribute("aria-selected", String(isMine));
      tab.tabIndex = isMine ? 0 : -1;
    }
    strictLabel.hidden = kind !== "schema";
    const list = FORMATS[kind].map((each, index) => element("option", { value: index, textContent: each.title }));
    examples.replaceChildren(element("option", { value: "", textContent: "Examples…" }), ...list);
    code.set(example ? example.text : drafts[kind], KINDS[kind][1]);
    if (example) question.value = example.question;
    soon(0);
  }

  function showGo() {
    go.replaceChildren(icon(answering ? "stop" : "play"), answering ? "Stop" : "Answer");
    go.title = answering ? "Stop (Escape)" : "Answer (Ctrl+Enter)";
    answer.classList.toggle("writing", Boolean(answering));
  }

  function stop() {
    answering?.abort();
  }

  async function ask() {
    const wanted = readFormat();
    if (!wanted || answering) return;
    const mine = (answering = new AbortController());
    shown = {
      text: "",
      total: 0,
      forced: 0,
      schema: kind === "schema" ? wanted.json_schema.schema : null,
      wanted,
      began: performance.now(),
    };
    clear();
    showGo();
    if (answer.getBoundingClientRect().top > innerHeight / 2) answer.scrollIntoView(); // on a phone it is below
    const body = {
      model: picker.value,
      messages: [{ role: "user", content: question.value }],
      response_format: wanted,
      max_tokens: MAX_TOKENS,
      stream: true,
      logprobs: true,
      top_logprobs: 3,
      forced_tokens: true,
    };
    try {
      const speller = tokenText();
      for await (const event of events(await call("v1/chat/completions", { body, signal: mine.signal }), (comment) =>
        context.say(comment),
      )) {
        if (event.error) throw new Error(event.error.message);
        take(event.choices?.[0], speller);
      }
      await prove();
    } catch (error) {
      if (error.name === "AbortError") proof.textContent = "Stopped.";
      else context.fail(error);
    } finally {
      answering = null;
      showGo();
      picker.refresh(); // it is loaded by now
    }
  }

  function take(choice, speller) {
    for (const entry of choice?.logprobs?.content ?? []) {
      const text = speller(entry);
      shown.text += text;
      shown.total += 1;
      shown.forced += entry.forced ? 1 : 0;
      const sure = Math.round(Math.exp(entry.logprob) * 100);
      const others = entry.top_logprobs
        .map((each) => `${JSON.stringify(each.token)} ${Math.round(Math.exp(each.logprob) * 100)} %`)
        .join(", ");
      const title = entry.forced ? "The grammar left no choice here." : `Chosen at ${sure} %. Likeliest: ${others}`;
      tokens.append(element("span", { class: entry.forced ? "forced" : "chosen", textContent: text, title }));
    }
    if (choice?.finish_reason) shown.reason = choice.finish_reason;
    const share = shown.total ? Math.round((100 * shown.forced) / shown.total) : 0;
    counts.textContent = shown.total
      ? `${shown.total} tokens, ${shown.forced} of them forced (${share} %): the model had no say in those. ${((performance.now() - shown.began) / 1000).toFixed(1)} s`
      : "";
    if (shown.schema) rows.replaceChildren(...fields(shown.schema, shown.text));
  }

  async function prove() {
    if (!shown.reason) throw new Error("The answer broke off.");
    if (shown.reason === "length") return proof.replaceChildren(icon("more"), "The limit of tokens came before the end of the answer.");
    if (shown.schema) return proveSchema();
    const asked = await json("v1/schemas/check", { body: { model: picker.value, response_format: shown.wanted, instances: [shown.text] } });
    const isRight = asked.instances[0]?.is_accepted;
    return proof.replaceChildren(
      element("span", { class: isRight ? "chip good" : "chip bad", textContent: isRight ? "It matches." : "It does not match." }),
    );
  }

  function proveSchema() {
    const { problems, unknown } = validate(shown.schema, JSON.parse(shown.text));
    const chips = problems.length
      ? problems.slice(0, 5).map((each) => element("span", { class: "chip bad", textContent: `${each.path}: ${each.message}` }))
      : [element("span", { class: "chip good", textContent: "Valid, checked in this page." })];
    if (unknown.length) chips.push(element("span", { class: "quiet", textContent: `Not checked here: ${unknown.join(", ")}` }));
    proof.replaceChildren(...chips);
  }

  tabs.append(
    ...Object.entries(KINDS).map(([name, [title]]) => {
      const tab = element("button", { type: "button", role: "tab", textContent: title, onclick: () => (keep(), show(name)) });
      tab.dataset.kind = name;
      return tab;
    }),
  );
  tabs.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = Object.keys(KINDS);
    keep();
    show(names[(names.indexOf(kind) + step + names.length) % names.length]);
    tabs.querySelector("[aria-selected=true]").focus();
  });
  examples.addEventListener("change", () => examples.value !== "" && show(kind, FORMATS[kind][Number(examples.value)]));
  question.addEventListener("input", keep);
  root.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
    else if (event.key === "Escape" && answering) stop();
    else return;
    event.preventDefault();
  });
  showGo();
  picker.ready.then(() => show(kind));
  return () => {
    clearTimeout(timer);
    checking?.abort();
    stop();
    picker.stop();
  };
}
