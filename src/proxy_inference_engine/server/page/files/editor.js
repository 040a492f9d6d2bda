// A field for code: a plain text area, so that every key and every screen reader does what it always does, over the
// same text in colour.

import { element } from "./dom.js";
import { highlight } from "./highlight.js";

export function editor({ label, language, oninput }) {
  const shown = element("pre", { "aria-hidden": "true" });
  const field = element("textarea", { "aria-label": label, spellcheck: false, autocapitalize: "off", autocomplete: "off", wrap: "off" });
  const box = element("div", { class: "editor" }, shown, field);
  let told = language;

  const paint = () => shown.replaceChildren(...highlight(field.value, told), "\n");
  const follow = () => {
    shown.scrollTop = field.scrollTop;
    shown.scrollLeft = field.scrollLeft;
  };
  field.addEventListener("scroll", follow);
  field.addEventListener("input", () => {
    paint();
    follow();
    oninput();
  });
  return {
    element: box,
    field,
    get value() {
      return field.value;
    },
    set(text, name) {
      field.value = text;
      told = name;
      paint();
      field.scrollTop = 0;
      follow();
    },
    // Puts the caret to a piece of the text, and marks it.
    select(start, end) {
      field.focus();
      field.setSelectionRange(start, end);
      const line = field.value.slice(0, start).split("\n").length;
      field.scrollTop = Math.max(0, (line - 4) * parseFloat(getComputedStyle(field).lineHeight));
    },
  };
}
