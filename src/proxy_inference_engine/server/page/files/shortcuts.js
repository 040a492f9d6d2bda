// What the keyboard does, as a list.

import { dialog, element } from "./dom.js";
import { VIEWS } from "./views.js";

const KEYS = [
  ["Enter", "Send the question"],
  ["Shift+Enter", "A new line in it"],
  ["Escape", "Stop the answer; close what is open"],
  ["Alt+N", "New conversation"],
  ["Alt+R", "Answer again"],
  ["Alt+S", "Settings"],
  ["Alt+C", "The request as code"],
  ["/", "Search conversations"],
  ["← →", "From token to token, where probabilities are shown"],
  ["Alt+T", "Light, dark, or as the system is"],
  ["?", "This list"],
];

export function showShortcuts() {
  const views = VIEWS.map((view) => [`Alt+${view.key}`, view.title]);
  const rows = [...KEYS, ...views].map(([keys, about]) =>
    element("tr", {}, element("td", {}, element("kbd", { textContent: keys })), element("td", { textContent: about })),
  );
  dialog("Keyboard", element("table", { class: "shortcuts" }, element("tbody", {}, rows)));
}
