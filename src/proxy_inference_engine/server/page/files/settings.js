// How the model is to answer: the system prompt and sampling, each with what it means. Empty: the model's own value.

import { small } from "./database.js";
import { element } from "./dom.js";

const NUMBERS = [
  {
    name: "temperature",
    title: "Temperature",
    min: 0,
    max: 2,
    step: 0.05,
    about: "How much chance decides. 0: always the likeliest token. 1: as the model was trained. More: wilder.",
  },
  {
    name: "top_p",
    title: "top_p",
    min: 0,
    max: 1,
    step: 0.01,
    about: "Only the likeliest tokens that together have this share of the probability.",
  },
  { name: "top_k", title: "top_k", min: 0, max: 1000, step: 1, about: "Only so many of the likeliest tokens. 0: all." },
  {
    name: "min_p",
    title: "min_p",
    min: 0,
    max: 1,
    step: 0.01,
    about: "Only tokens at least this fraction as likely as the likeliest one.",
  },
  {
    name: "max_output_tokens",
    title: "Most tokens",
    min: 1,
    max: 1_000_000,
    step: 1,
    about: "Of one answer, thoughts included. It ends there, in mid-sentence if need be.",
  },
  {
    name: "seed",
    title: "Seed",
    min: 0,
    max: 2 ** 53,
    step: 1,
    about: "The same seed draws the same random numbers: the same request gets the same answer.",
  },
  {
    name: "presence_penalty",
    title: "Presence penalty",
    min: -2,
    max: 2,
    step: 0.1,
    about: "Makes every token that was said already less likely, once.",
  },
  {
    name: "frequency_penalty",
    title: "Frequency penalty",
    min: -2,
    max: 2,
    step: 0.1,
    about: "Makes a token less likely each time it was said.",
  },
  {
    name: "repetition_penalty",
    title: "Repetition penalty",
    min: 0.1,
    max: 10,
    step: 0.05,
    about: "Divides the score of what was said, prompt included. 1: off; 1.1 is much.",
  },
  {
    name: "dry_multiplier",
    title: "DRY",
    min: 0,
    max: 10,
    step: 0.1,
    about: "Against loops: makes going on with a sequence that was said before less likely the longer it is.",
  },
];
const FIRST = 6; // those that are shown at once
const EFFORTS = [
  ["", "the model's own"],
  ["none", "do not think"],
  ["low", "little"],
  ["medium", "some"],
  ["high", "much"],
];
const CHOICES = [
  ["auto", "when it wants to"],
  ["required", "in any case"],
  ["none", "never"],
];

export class Settings {
  constructor(place = "pie.settings") {
    this.place = place;
    this.values = small.read(place, {});
  }

  get(name) {
    return this.values[name];
  }

  set(name, value) {
    if (value === "" || value === null || value === false) delete this.values[name];
    else this.values[name] = value;
    small.set(this.place, JSON.stringify(this.values));
  }

  // The fields of a request that they mean.
  fields() {
    const made = {};
    if (typeof this.values.system === "string" && this.values.system.trim()) made.instructions = this.values.system;
    for (const { name } of NUMBERS) if (typeof this.values[name] === "number") made[name] = this.values[name];
    if (typeof this.values.stop === "string") made.stop = this.values.stop.split("\n").filter(Boolean).slice(0, 16);
    if (this.values.effort) made.reasoning = { effort: this.values.effort };
    if (this.values.probabilities) Object.assign(made, { include: ["message.output_text.logprobs"], top_logprobs: 5 });
    return made;
  }

  get numChanged() {
    return Object.keys(this.values).filter((name) => !["probabilities", "tool_choice"].includes(name)).length;
  }
}

const labelled = (title, about, control) =>
  element("label", { class: "setting" }, element("span", { textContent: title }), control, element("small", { textContent: about }));

function number(settings, field, onchange) {
  const box = element("input", {
    type: "number",
    min: field.min,
    max: field.max,
    step: field.step,
    value: settings.get(field.name) ?? "",
    placeholder: "the model's own",
    inputMode: "decimal",
    name: field.name,
  });
  box.addEventListener("change", () => {
    const isGood = box.value !== "" && box.checkValidity();
    box.setCustomValidity("");
    if (box.value !== "" && !isGood) box.reportValidity();
    settings.set(field.name, isGood ? Number(box.value) : "");
    onchange();
  });
  return labelled(field.title, field.about, box);
}

function words(settings, name, title, about, rows, onchange) {
  const box = element("textarea", { rows, value: settings.get(name) ?? "", name });
  box.addEventListener("input", () => {
    settings.set(name, box.value);
    onchange();
  });
  const made = labelled(title, about, box);
  made.classList.add("across");
  return made;
}

function choice(settings, name, title, about, options, onchange) {
  const box = element(
    "select",
    { name },
    options.map(([value, text]) => element("option", { value, textContent: text, selected: (settings.get(name) ?? "") === value })),
  );
  box.addEventListener("change", () => {
    settings.set(name, box.value);
    onchange();
  });
  return labelled(title, about, box);
}

// The form. `onchange` is called after each change.
export function settingsForm(settings, onchange = () => {}, { hasTools = true } = {}) {
  const more = element(
    "details",
    {},
    element("summary", { textContent: "More" }),
    element(
      "div",
      { class: "settings-grid" },
      NUMBERS.slice(FIRST).map((field) => number(settings, field, onchange)),
      words(settings, "stop", "Stop at", "The answer ends before any of these texts. One a line.", 2, onchange),
    ),
  );
  const form = element(
    "form",
    { class: "settings-grid" },
    words(settings, "system", "System prompt", "Who the model is and how it is to answer. It stands before the conversation.", 3, onchange),
    NUMBERS.slice(0, FIRST).map((field) => number(settings, field, onchange)),
    choice(settings, "effort", "Thinking", "How much a model that reasons thinks first. Others skip this.", EFFORTS, onchange),
    hasTools && choice(settings, "tool_choice", "Tools are called", "Those that are switched on in the Tools view.", CHOICES, onchange),
    more,
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}
