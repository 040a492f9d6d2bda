// One question to two models, or to one with two settings, side by side.

import { Answer } from "./answer.js";
import { dialog, element, growing, icon } from "./dom.js";
import { modelPicker } from "./picker.js";
import { body } from "./request.js";
import { Settings, settingsForm } from "./settings.js";
import { answerElement } from "./turns.js";

const NAMES = ["left", "right"];
let draft = ""; // what was being asked when another view was opened

class Side {
  constructor(name, context) {
    this.name = name;
    this.context = context;
    this.settings = new Settings(`pie.compare.${name}`);
    this.picker = modelPicker(context, { place: `pie.compare.${name}.model`, first: NAMES.indexOf(name) });
    this.answer = null;
    this.tune = element("button", {
      type: "button",
      class: "small",
      onclick: () => this.showSettings(),
    });
    this.place = element("div", { class: "compared", tabIndex: 0, "aria-label": `The ${name} answer`, role: "region" });
    this.element = element(
      "section",
      { class: "side-of-two", "aria-label": `The ${name} side` },
      element("header", {}, this.picker.element, this.tune),
      this.place,
    );
    this.showTune();
  }

  showTune() {
    const told = Object.entries(this.settings.fields())
      .filter(([name]) => name !== "include")
      .map(([name, value]) => (name === "instructions" ? "system prompt" : `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`));
    this.tune.replaceChildren(icon("settings"), element("span", { textContent: told.join(", ") || "Settings" }));
    this.tune.title = told.join("\n");
    this.tune.setAttribute("aria-label", [`Settings of the ${this.name} side`, ...told].join(", "));
  }

  showSettings() {
    dialog(
      "Settings of this side",
      settingsForm(this.settings, () => this.showTune(), { hasTools: false }),
    );
  }

  async ask(text) {
    this.leave();
    const turn = {
      role: "assistant",
      text: "",
      reasoning: "",
      tokens: [],
      calls: [],
      outputs: {},
      state: "writing",
      response: null,
      seen: -1,
      began: Date.now(),
    };
    const asked = await body([{ role: "user", text }], this.settings, this.picker.value);
    delete asked.tools;
    delete asked.tool_choice;
    const chat = {
      context: this.context,
      showsModel: true,
      siblings: () => [turn],
      after: () => null,
      regenerate: () => this.ask(text),
      hold: () => () => {},
    };
    const shown = answerElement(turn, chat);
    this.place.replaceChildren(shown.element);
    this.answer = new Answer(turn, { onchange: shown.update, say: this.context.say });
    await this.answer.begin(asked);
    if (this.answer.error?.status === 401) this.context.fail(this.answer.error);
    this.picker.refresh(); // it is loaded by now
  }

  get isRunning() {
    return this.answer?.turn.state === "writing";
  }

  async stop() {
    if (this.isRunning) await this.answer.stop();
  }

  // Nobody looks at it any more, and nothing keeps it.
  leave() {
    this.stop().catch(() => {});
  }
}

export function mount(root, context) {
  const sides = NAMES.map((name) => new Side(name, context));
  const box = element("textarea", { id: "question", rows: 1, value: draft, placeholder: "Ask both", "aria-label": "Question to both" });
  const send = element("button", { id: "send", class: "primary" });
  const form = element("form", { id: "ask" }, box, element("div", { class: "composer-bar" }, element("span", { class: "grow" }), send));
  const isRunning = () => sides.some((side) => side.isRunning);
  const showState = () => send.replaceChildren(icon(isRunning() ? "stop" : "send"), isRunning() ? "Stop both" : "Ask both");

  async function submit() {
    if (isRunning()) await Promise.all(sides.map((side) => side.stop()));
    else if (box.value.trim()) {
      const asking = sides.map((side) => side.ask(box.value).finally(showState));
      setTimeout(showState);
      await Promise.all(asking);
    }
    showState();
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit().catch(context.fail);
  });
  growing(box);
  box.addEventListener("input", () => (draft = box.value));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!isRunning()) submit().catch(context.fail);
  });
  root.addEventListener("keydown", (event) => event.key === "Escape" && isRunning() && submit().catch(context.fail));
  root.append(
    element(
      "div",
      { class: "sides" },
      sides.map((side) => side.element),
    ),
    form,
  );
  showState();
  box.focus();
  return () =>
    sides.forEach((side) => {
      side.picker.stop();
      side.leave();
    });
}
