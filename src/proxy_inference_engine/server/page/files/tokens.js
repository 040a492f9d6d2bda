// An answer token by token: how probable each was, what else could have come, and going on from any of these.

import { element } from "./dom.js";

const LEVELS = [0.9, 0.6, 0.3, 0.1]; // a token less probable than these is shaded one step more

const percent = (logprob) => {
  const share = Math.exp(logprob) * 100;
  return share >= 99.95 ? "100 %" : share >= 1 ? `${share.toFixed(1)} %` : share >= 0.01 ? `${share.toFixed(2)} %` : "< 0.01 %";
};
// What cannot be seen is written as a program would.
const escaped = (sign) => `\\x${sign.codePointAt(0).toString(16).padStart(2, "0")}`;
const shown = (text) =>
  text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣").replace(/[\0-\x1f\x7f]/g, escaped) || "(nothing)";
const level = (logprob) => LEVELS.filter((bound) => Math.exp(logprob) < bound).length;

// The text of some tokens; null where they end within a character.
function textOf(tokens) {
  if (!tokens.every((each) => Array.isArray(each.bytes))) return tokens.map((each) => each.text).join("");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(tokens.flatMap((each) => each.bytes)));
  } catch {
    return null;
  }
}

function alternatives(turn, index, chat, close) {
  const chosen = turn.tokens[index];
  const before = turn.tokens.slice(0, index);
  const others = chosen.others.some((each) => each.text === chosen.text) ? chosen.others : [chosen, ...chosen.others];
  const rows = others.map((other) => {
    const prefix = textOf([...before, other]);
    const bar = element("meter", { min: 0, max: 1, value: Math.exp(other.logprob), "aria-label": `Probability of ${shown(other.text)}` });
    const go = element("button", {
      type: "button",
      class: "plain small",
      textContent: "Continue from here",
      "aria-label": `Continue from here with ${shown(other.text)}`,
      disabled: prefix === null,
    });
    go.addEventListener("click", () => {
      close();
      chat.goOn(turn, prefix, [...before, { ...other, others: chosen.others }]);
    });
    return element(
      "li",
      { class: other.text === chosen.text ? "chosen" : null },
      element("code", { textContent: shown(other.text) }),
      bar,
      element("span", { textContent: percent(other.logprob) }),
      go,
    );
  });
  return element("ol", {}, rows);
}

function popover(turn, chat) {
  const box = element("div", { class: "alternatives", role: "group", hidden: true });
  let owner = null;
  let timer = null;
  const close = () => {
    box.hidden = true;
    owner?.setAttribute("aria-expanded", "false");
    owner = null;
  };
  const open = (span, index) => {
    clearTimeout(timer);
    if (owner === span) return;
    owner?.setAttribute("aria-expanded", "false");
    owner = span;
    span.setAttribute("aria-expanded", "true");
    box.setAttribute("aria-label", `What else could have come instead of ${shown(turn.tokens[index].text)}`);
    box.replaceChildren(alternatives(turn, index, chat, close));
    box.hidden = false;
    span.after(box); // next in the order of the Tab key
    const { offsetLeft, offsetTop, offsetHeight, offsetParent } = span;
    const room = offsetParent.clientWidth - box.offsetWidth;
    box.style.left = `${Math.max(0, Math.min(offsetLeft, room))}px`;
    const isLow = span.getBoundingClientRect().bottom + box.offsetHeight > box.closest("#talk, .compared").getBoundingClientRect().bottom;
    box.style.top = `${isLow ? offsetTop - box.offsetHeight - 2 : offsetTop + offsetHeight + 2}px`;
  };
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => !box.matches(":hover, :focus-within") && close(), 250);
  };
  box.addEventListener("mouseleave", later);
  return { open, later, close };
}

export function tokenView(turn, chat) {
  const { open, later, close } = popover(turn, chat);
  const spans = turn.tokens.map((token, index) => {
    const span = element("span", {
      class: `token level-${level(token.logprob)}`,
      tabIndex: index ? -1 : 0,
      role: "button",
      "aria-expanded": "false",
      "aria-label": `${shown(token.text)}, ${percent(token.logprob)}`,
      textContent: token.text,
    });
    span.addEventListener("mouseenter", () => open(span, index));
    span.addEventListener("mouseleave", later);
    span.addEventListener("focus", () => open(span, index));
    span.addEventListener("click", () => open(span, index));
    return span;
  });
  const made = element("div", { class: "tokens" }, spans);
  made.addEventListener("keydown", (event) => {
    const at = spans.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") {
      close();
      event.stopPropagation();
    } else if (step && at >= 0 && spans[at + step]) {
      spans[at].tabIndex = -1;
      spans[at + step].tabIndex = 0;
      spans[at + step].focus();
      event.preventDefault();
    }
  });
  return made;
}
