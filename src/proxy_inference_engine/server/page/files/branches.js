// Where a turn has siblings: which of them is shown, and the way to the others.

import { element, iconButton } from "./dom.js";

export function branches(turn, chat) {
  const others = chat.siblings(turn);
  if (others.length < 2) return [];
  const at = others.indexOf(turn);
  const go = (step) => () => chat.choose(others[(at + step + others.length) % others.length]);
  return [
    iconButton("before", "The branch before", go(-1)),
    element("span", { class: "branch", textContent: `${at + 1} of ${others.length}` }),
    iconButton("next", "The next branch", go(1)),
  ];
}
