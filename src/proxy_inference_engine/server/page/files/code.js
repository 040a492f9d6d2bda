// "Show code": the request that this page would send, as somebody would write it elsewhere.

import { key } from "./key.js";
import { copy, dialog, element, icon } from "./dom.js";
import { highlight } from "./highlight.js";
import { samples } from "./samples.js";

export async function showCode(body, context) {
  const made = samples(body, Boolean(await key.get()));
  const code = element("code");
  const pre = element("pre", { tabIndex: 0, class: "sample" }, code);
  let shown = null;
  const tabs = made.map((sample) =>
    element("button", { type: "button", role: "tab", textContent: sample.title, onclick: () => show(sample) }),
  );
  function show(sample) {
    shown = sample;
    code.replaceChildren(...highlight(sample.text, sample.language));
    tabs.forEach((tab, index) => tab.setAttribute("aria-selected", String(made[index] === sample)));
  }
  show(made[0]);
  const bar = element("div", { class: "row tabs", role: "tablist", "aria-label": "Languages" }, tabs);
  dialog(
    "This request as code",
    bar,
    pre,
    element(
      "div",
      { class: "row end" },
      element("button", { type: "button", class: "primary", onclick: () => copy(shown.text, context.say) }, icon("copy"), "Copy"),
    ),
  );
}
