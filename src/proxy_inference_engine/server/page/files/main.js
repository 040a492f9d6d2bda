// The shell: the side bar, the routes, the keyboard, the key. What is shown in the middle belongs to a view.

import { ApiError } from "./api.js";
import { small } from "./database.js";
import { element, icon, iconButton } from "./dom.js";
import { askForKey, key } from "./key.js";
import { showShortcuts } from "./shortcuts.js";
import { VIEWS } from "./views.js";

const THEMES = ["", "light", "dark"]; // empty: as the system wants it
const $ = (id) => document.getElementById(id);
let unmount = () => {};
let wanted = null;

function say(text, isBad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", isBad);
}

function fail(error) {
  if (error.name === "AbortError") return;
  if (error instanceof ApiError && error.status === 401) refused();
  else say(error.message, true);
}

// In words for a person: the server's own are for whoever writes a program.
async function refused() {
  const reason = (await key.get()) ? "The server does not know this key." : "This server wants an API key.";
  say(reason, true);
  useKey(reason);
}

async function useKey(reason) {
  if (await askForKey(reason)) show();
}

function openSide(isOpen) {
  $("side").classList.toggle("open", isOpen);
  $("menu").setAttribute("aria-expanded", String(isOpen));
}

// By whoever has opened it: what has the focus now is hidden.
function shutSide() {
  openSide(false);
  $("menu").focus();
}

const go = (name) => {
  if (location.hash === `#/${name}`) show();
  else location.hash = `#/${name}`;
};

// What a view is given beside its place in the side bar: ways to tell something, and to go elsewhere.
const context = { say, fail, go, closeSide: () => openSide(false) };

function mark(view) {
  document.title = `${view.title} · Proxy Inference Engine`;
  for (const link of $("views").querySelectorAll("a")) {
    if (link.hash === `#/${view.name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function show() {
  const name = location.hash.slice(2).split("/")[0];
  const view = VIEWS.find((each) => each.name === name) ?? VIEWS[0];
  const mine = (wanted = {});
  mark(view);
  try {
    const module = await view.load();
    if (mine !== wanted) return; // somebody went on meanwhile
    unmount();
    unmount = () => {};
    say("");
    openSide(false);
    // Both are its own: one that was left before it had come writes where nobody looks.
    const root = element("div", { class: `view view-${view.name}` });
    const side = element("div", { class: "side-part" });
    $("view").replaceChildren(root);
    $("side-view").replaceChildren(side);
    const undo = (await module.mount(root, { ...context, side })) ?? (() => {});
    if (mine === wanted) unmount = undo;
    else undo();
  } catch (error) {
    console.error(error);
    const isMissing = error instanceof TypeError && /import/i.test(error.message);
    const advice = isMissing ? "The server has ended, or has another page by now: reload this one." : error.message;
    say(`${view.title} could not be shown. ${advice}`, true);
  }
}

function turnTheme() {
  const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "") + 1) % THEMES.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  small.set("pie.theme", next);
  say(next ? `The page is ${next}.` : "The page is light or dark as the system is.");
}

document.addEventListener("keydown", (event) => {
  const view = event.altKey && VIEWS.find((each) => `Digit${each.key}` === event.code);
  const isTyping = event.target.matches?.("input, textarea, select");
  if (view) go(view.name);
  else if (event.altKey && event.code === "KeyT") turnTheme();
  else if (event.key === "Escape" && $("side").classList.contains("open")) shutSide();
  else if (event.key === "?" && !isTyping && !document.querySelector("dialog[open]")) showShortcuts();
  else return;
  event.preventDefault();
});
$("views").append(...VIEWS.map((view) => element("li", {}, element("a", { href: `#/${view.name}`, title: `${view.title} (Alt+${view.key})` }, icon(view.name), view.title))));
$("side-foot").append(
  iconButton("theme", "Light or dark (Alt+T)", turnTheme),
  iconButton("key", "API key", async () => useKey((await key.get()) ? "A key is kept in this browser." : "No key is kept in this browser.")),
  iconButton("help", "Keyboard shortcuts (?)", showShortcuts),
  element("a", { class: "button icon-button", href: "docs", title: "The API, route by route", "aria-label": "The API, route by route" }, icon("code")),
);
$("menu").addEventListener("click", () => openSide(!$("side").classList.contains("open")));
$("scrim").addEventListener("click", shutSide);
window.addEventListener("hashchange", show);
await show();
// The other views too, before they are wanted: also when the server has ended they open, and say so.
await Promise.allSettled(VIEWS.map((view) => view.load()));
