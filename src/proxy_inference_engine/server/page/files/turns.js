// Turns of a conversation as elements: what was asked, thought, answered and called, and what one can do with it.

import { branches } from "./branches.js";
import { calls } from "./cards.js";
import { copy, element, icon, iconButton } from "./dom.js";
import { paint } from "./markdown.js";
import { thumbnail } from "./pictures.js";
import { tokenView } from "./tokens.js";

const SLOW = 4; // after a paint that took t, the next comes 4 t later at the earliest

const whole = (number) => number.toLocaleString("en");

// What happened, in words.
export function figures(turn) {
  const told = [];
  const { tokens, perSecond, firstMs, input, cached } = turn.figures ?? {};
  if (typeof tokens === "number") told.push(`${whole(tokens)} tokens`);
  if (typeof perSecond === "number") told.push(`${perSecond < 10 ? perSecond.toFixed(1) : whole(Math.round(perSecond))} tokens/s`);
  if (typeof firstMs === "number")
    told.push(`first after ${firstMs < 1000 ? `${Math.round(firstMs)} ms` : `${(firstMs / 1000).toFixed(1)} s`}`);
  if (typeof input === "number" && typeof cached === "number") told.push(`${whole(cached)} of ${whole(input)} prompt tokens cached`);
  if (turn.isCut) told.push("cut at the limit");
  if (turn.isStopped) told.push("stopped");
  return told.join(" · ");
}

function codeTools(block, context) {
  for (const pre of block.matches("pre") ? [block] : block.querySelectorAll("pre")) {
    const language = pre.dataset.language ?? "";
    const bar = element(
      "div",
      { class: "code-bar" },
      element("span", { textContent: language }),
      element(
        "button",
        {
          type: "button",
          class: "plain",
          title: "Copy this code",
          onclick: () => copy(pre.textContent, context.say),
        },
        icon("copy"),
        "Copy",
      ),
    );
    const box = element("div", { class: "code-box" });
    pre.replaceWith(box);
    box.append(bar, pre);
  }
}

// Open while it thinks, folded when it speaks, unless somebody has said otherwise.
function thoughts(turn) {
  let isTheirs = false;
  const summary = element("summary", { onclick: () => (isTheirs = true) });
  const inner = element("div", { class: "prose" });
  const made = element("details", { class: "thoughts" }, summary, inner);
  const update = () => {
    const isThinking = turn.state === "writing" && !turn.text && !turn.calls.length;
    made.hidden = !turn.reasoning;
    if (!isTheirs && made.open !== isThinking) made.open = isThinking;
    summary.textContent = isThinking
      ? "Thinking…"
      : typeof turn.thoughtFor === "number"
        ? `Thought for ${turn.thoughtFor.toFixed(1)} s`
        : "Thought";
    if (made.open) paint(inner, turn.reasoning);
  };
  made.addEventListener("toggle", update);
  return { made, update };
}

// An answer, which may still be growing: { element, update }.
export function answerElement(turn, chat) {
  const text = element("div", { class: "prose text" });
  const spelled = element("div", { hidden: true });
  const thought = thoughts(turn);
  const cards = element("div", { class: "cards" });
  const error = element("p", { class: "error", role: "alert", hidden: true });
  const foot = element("footer", { class: "turn-foot" });
  const made = element("article", { class: "turn assistant", "aria-label": "Answer" }, thought.made, text, spelled, cards, error, foot);
  let timer = null;

  function show() {
    timer = null;
    const began = performance.now();
    const settle = chat.hold();
    const isWriting = turn.state === "writing";
    made.classList.toggle("writing", isWriting);
    made.setAttribute("aria-busy", String(isWriting));
    thought.update();
    text.hidden = Boolean(turn.showsTokens && turn.tokens.length);
    spelled.hidden = !text.hidden;
    if (text.hidden) spelled.replaceChildren(tokenView(turn, chat));
    else paint(text, turn.text, (block) => codeTools(block, chat.context));
    cards.replaceChildren(...(isWriting || !turn.calls.length ? calls.growing(turn) : calls.cards(turn, chat)));
    error.hidden = !turn.error;
    error.textContent = turn.error ?? "";
    if (!isWriting) foot.replaceChildren(...answerTools(turn, chat, again));
    settle();
    return performance.now() - began;
  }

  const again = () => {
    show();
    foot.querySelector("[aria-pressed]")?.focus(); // the button that was pressed is a new one
  };
  let cost = show();
  const update = () => {
    if (turn.state === "done") {
      clearTimeout(timer);
      cost = show();
    } else timer ??= setTimeout(() => (cost = show()), Math.max(30, cost * SLOW));
  };
  return { element: made, update };
}

// `show`: shows the answer anew, where one of them changes how it looks.
function answerTools(turn, chat, show) {
  const tools = [
    ...branches(turn, chat),
    iconButton("copy", "Copy the answer", () => copy(turn.text, chat.context.say)),
    iconButton("again", "Answer again", () => chat.regenerate(turn)),
  ];
  if (turn.tokens.length) {
    tools.push(
      element("button", {
        type: "button",
        class: "plain small",
        "aria-pressed": String(Boolean(turn.showsTokens)),
        textContent: "Tokens",
        title: "Each token with its probability",
        onclick: () => {
          turn.showsTokens = !turn.showsTokens;
          show();
        },
      }),
    );
  }
  if ((turn.isCut || turn.isStopped) && turn.text.trim() && !turn.calls.length && chat.goOn) {
    tools.push(
      element("button", {
        type: "button",
        class: "plain small",
        textContent: "Continue",
        title: "Go on where it was cut",
        onclick: () => chat.goOn(turn, turn.text, turn.tokens),
      }),
    );
  }
  const told = [chat.showsModel && typeof turn.model === "string" ? turn.model : "", figures(turn)].filter(Boolean).join(" · ");
  return [...tools, element("span", { class: "figures", textContent: told })];
}

// What somebody pasted does not push the answer out of sight: more than that is folded until it is wanted.
const [FOLDED_CHARACTERS, FOLDED_LINES] = [800, 12];

function asked(text) {
  const whole = element("div", { class: "text", textContent: text });
  if (text.length <= FOLDED_CHARACTERS && text.split("\n").length <= FOLDED_LINES) return whole;
  const button = element("button", { type: "button", class: "plain small unfold" });
  const turn = (isFolded) => {
    whole.classList.toggle("folded", isFolded);
    button.setAttribute("aria-expanded", String(!isFolded));
    button.textContent = isFolded ? "Show all of it" : "Show less";
  };
  button.addEventListener("click", () => turn(!whole.classList.contains("folded")));
  turn(true);
  return [whole, button];
}

export function questionElement(turn, chat) {
  const said = element(
    "div",
    { class: "bubble" },
    (turn.pictures ?? []).map(thumbnail),
    asked(turn.text),
  );
  const foot = element(
    "footer",
    { class: "turn-foot" },
    branches(turn, chat),
    iconButton("copy", "Copy the question", () => copy(turn.text, chat.context.say)),
    iconButton("edit", "Edit and ask again", () => edit(turn, chat, made)),
  );
  const made = element("article", { class: "turn user", "aria-label": "Question" }, said, foot);
  return made;
}

function edit(turn, chat, place) {
  const box = element("textarea", {
    value: turn.text,
    rows: Math.min(12, turn.text.split("\n").length + 1),
    "aria-label": "The question, edited",
  });
  const form = element(
    "form",
    { class: "stack" },
    box,
    element(
      "div",
      { class: "row end" },
      element("button", { type: "button", textContent: "Cancel", onclick: () => cancel() }),
      element("button", { class: "primary", textContent: "Ask in a new branch" }),
    ),
  );
  const shown = [...place.childNodes];
  const cancel = () => {
    place.replaceChildren(...shown);
    place.querySelector("[title='Edit and ask again']").focus();
  };
  const send = () => chat.ask(box.value, turn.pictures, turn.before);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation(); // what is being written goes on
      cancel();
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
  });
  place.replaceChildren(form);
  box.focus();
}
