// A conversation with a model: asked, answered, branched, gone on with.

import { Answer } from "./answer.js";
import { showCode } from "./code.js";
import { composer } from "./composer.js";
import { small } from "./database.js";
import { dialog, element, icon } from "./dom.js";
import { talkList } from "./list.js";
import { modelPicker } from "./picker.js";
import { body } from "./request.js";
import { Settings, settingsForm } from "./settings.js";
import * as talks from "./talks.js";
import { answerElement, questionElement } from "./turns.js";

const TRY = [
  "What is the capital of France? Answer briefly.",
  "Write a haiku about the sea.",
  "Explain recursion to a child, with a small Python example.",
];
const PLACE = "pie.open";
const NEAR = 80; // pixels from the end that still count as the end
let isLoaded = false;

class Chat {
  constructor(root, context) {
    this.context = context;
    this.talk = null;
    this.running = null;
    this.settings = new Settings();
    this.picker = modelPicker(context);
    this.log = element("section", { id: "talk", "aria-label": "Conversation", tabIndex: 0 });
    this.composer = composer(this);
    this.list = talkList(this);
    this.tune = element("button", { id: "tune", type: "button", onclick: () => this.showSettings() }, icon("settings"), "Settings");
    const code = element(
      "button",
      { id: "code", type: "button", title: "The next request as code", onclick: () => this.showCode() },
      icon("code"),
      "Code",
    );
    root.append(
      element("header", { class: "bar" }, this.picker.element, element("span", { class: "grow" }), code, this.tune),
      this.log,
      this.composer.element,
    );
    this.listen(root);
  }

  listen(root) {
    const aborted = new AbortController();
    const options = { signal: aborted.signal };
    document.addEventListener("keydown", (event) => this.key(event), options);
    this.log.addEventListener(
      "scroll",
      () => (this.isAtEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR),
      options,
    );
    this.log.addEventListener("load", () => this.isAtEnd && this.toEnd(), { ...options, capture: true }); // a picture has come
    root.addEventListener("dragover", (event) => event.preventDefault(), options);
    root.addEventListener(
      "drop",
      (event) => {
        event.preventDefault();
        this.composer.add([...event.dataTransfer.files]);
      },
      options,
    );
    talks.watch(
      (id) => Boolean(this.running) && this.talk?.id === id,
      (id) => this.changedElsewhere(id),
    );
    this.unmount = () => {
      aborted.abort();
      this.picker.stop();
      this.leave();
    };
  }

  key(event) {
    const isTyping = event.target.matches?.("input, textarea, select");
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "Escape" && this.running) this.stop();
    else if (event.altKey && event.code === "KeyN") this.open(null);
    else if (event.altKey && event.code === "KeyS") this.showSettings();
    else if (event.altKey && event.code === "KeyC") this.showCode();
    else if (event.altKey && event.code === "KeyR" && this.talk)
      this.regenerate(talks.path(this.talk).findLast((turn) => turn.role === "assistant"));
    else if (event.key === "/" && !isTyping) this.list.focus();
    else return;
    event.preventDefault();
  }

  // What is shown

  showList() {
    this.list.show();
  }

  show() {
    this.showList();
    this.composer.showState();
    const count = this.settings.numChanged;
    this.tune.replaceChildren(icon("settings"), count ? `Settings (${count})` : "Settings");
    const path = this.talk ? talks.path(this.talk) : [];
    if (!path.length) return this.log.replaceChildren(this.welcome());
    const shown = path.map((turn) => this.element(turn)).filter(Boolean);
    const { scrollTop } = this.log;
    const focusAgain = this.holdFocus();
    this.log.replaceChildren(...shown);
    if (this.isAtEnd) this.toEnd();
    else this.log.scrollTop = scrollTop;
    focusAgain();
  }

  // What has the focus is about to be made anew: whoever was at a button is at it again, or where questions are written.
  holdFocus() {
    const held = document.activeElement;
    if (held === this.log || !this.log.contains(held)) return () => {};
    const place = [...this.log.children].findIndex((each) => each.contains(held));
    return () => {
      const buttons = [...(this.log.children[place]?.querySelectorAll("button") ?? [])];
      const same = buttons.find((each) => each.title && each.title === held.title);
      if (same) same.focus();
      else this.composer.focus();
    };
  }

  element(turn) {
    if (turn.role === "user") return questionElement(turn, this);
    if (turn.role === "tool") return null; // its results are in the cards of the answer before it
    const made = answerElement(turn, this);
    if (this.running?.turn === turn) this.running.onchange = made.update;
    return made.element;
  }

  // Called before something grows, and what it gives afterwards: who reads at the end stays at the end, who has
  // scrolled up is left alone.
  hold() {
    const isBelow = this.isAtEnd;
    return () => isBelow && this.toEnd();
  }

  toEnd() {
    this.log.scrollTop = this.log.scrollHeight;
  }

  welcome() {
    return element(
      "div",
      { class: "welcome" },
      element("h2", { textContent: "What would you like to know?" }),
      element("p", { class: "quiet", textContent: "The model answers on this server; the conversation is kept in this browser." }),
      element(
        "div",
        { class: "tries" },
        TRY.map((text) => element("button", { type: "button", textContent: text, onclick: () => this.ask(text) })),
      ),
    );
  }

  showSettings() {
    dialog("Settings", settingsForm(this.settings)).addEventListener("close", () => this.show());
  }

  async showCode() {
    const path = this.talk ? talks.path(this.talk) : [];
    while (path.at(-1)?.role === "assistant") path.pop();
    const typed = this.composer.text.trim();
    if (typed) path.push({ role: "user", text: typed });
    if (!path.length) path.push({ role: "user", text: TRY[0] });
    showCode(await body(path, this.settings, this.picker.value), this.context);
  }

  // Conversations

  open(id) {
    this.leave();
    this.talk = talks.find(id) ?? null;
    small.set(PLACE, this.talk?.id ?? "");
    this.isAtEnd = true;
    this.showTalk();
    this.context.closeSide();
    this.composer.focus();
  }

  // Where its answer is still being written, as that goes on.
  showTalk() {
    const last = this.talk && talks.turn(this.talk, this.talk.last);
    if (last?.state === "writing") this.resume(last);
    else this.show();
  }

  async remove(talk) {
    if (talk === this.talk && this.running) await this.running.stop().catch(() => {});
    await talks.remove(talk);
    this.open(talk === this.talk ? null : this.talk?.id);
  }

  changedElsewhere(id) {
    if (this.talk?.id !== id) return this.showList();
    this.talk = talks.find(id) ?? null;
    return this.show();
  }

  siblings(turn) {
    return talks.siblings(this.talk, turn);
  }

  after(turn) {
    const path = talks.path(this.talk);
    return path[path.indexOf(turn) + 1];
  }

  choose(turn) {
    this.leave();
    talks.choose(this.talk, turn.id);
    this.showTalk();
  }

  // Asking

  // Whether one answer is being written, as somebody who wants another is told.
  isBusy() {
    if (this.running) this.context.say("An answer is being written: stop it, or wait for it.");
    return Boolean(this.running);
  }

  async ask(text, pictures = [], before = this.talk?.last ?? null) {
    if (this.isBusy() || !(text.trim() || pictures.length)) return;
    this.talk ??= talks.begin();
    small.set(PLACE, this.talk.id);
    const question = talks.add(this.talk, { role: "user", text, pictures }, before);
    await this.answer(question.id);
  }

  async regenerate(turn) {
    if (turn) await this.answer(turn.before);
  }

  // The results of an answer's calls, and on.
  async answerCalls(turn, outputs) {
    if (this.isBusy()) return;
    const results = talks.add(this.talk, { role: "tool", outputs }, turn.id);
    await this.answer(results.id);
  }

  // Another answer that begins as this one did up to some token.
  async goOn(turn, prefix, tokens) {
    await this.answer(turn.before, { text: prefix, tokens: [...tokens], showsTokens: Boolean(turn.showsTokens) });
  }

  async answer(before, begun = {}) {
    if (this.isBusy()) return;
    const asked = body(talks.path(this.talk, before), this.settings, this.picker.value, begun.text);
    const turn = talks.add(
      this.talk,
      { role: "assistant", state: "writing", response: null, seen: -1, began: Date.now(), ...begun },
      before,
    );
    await this.write(turn, (answer) => answer.begin(asked));
  }

  async resume(turn) {
    turn.isResumed = true;
    await this.write(turn, (answer) => answer.resume());
  }

  async write(turn, start) {
    const { talk } = this;
    const answer = new Answer(turn, { onchange: () => {}, onsave: () => talks.save(talk), say: this.context.say });
    this.running = answer;
    this.isAtEnd = true;
    this.show();
    const isOver = await start(answer);
    if (!isOver && !answer.isStopped) return; // somebody looks at something else
    if (turn.state === "writing") answer.end("It was stopped before it began.");
    if (this.running !== answer) return;
    this.running = null;
    if (answer.error?.status === 401) this.context.fail(answer.error);
    else this.context.say(turn.error ? "" : turn.isStopped ? "The answer was stopped." : "The answer is complete.");
    this.showList();
    this.composer.showState();
    this.picker.refresh();
  }

  leave() {
    this.running?.leave();
    this.running = null;
  }

  async stop() {
    this.context.say("Stopping…");
    await this.running.stop().catch((error) => this.context.fail(error));
  }
}

export async function mount(root, context) {
  if (!isLoaded) await talks.load((text) => context.say(text, true));
  isLoaded = true;
  const chat = new Chat(root, context);
  chat.open(small.get(PLACE));
  return () => chat.unmount();
}
