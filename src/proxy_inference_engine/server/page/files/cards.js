// Calls of tools, each a card: what is called with what, and its result, which a person writes or lets an MCP server
// give. Nothing runs without a click.

import { branches } from "./branches.js";
import { element, icon } from "./dom.js";
import { highlight } from "./highlight.js";
import * as mcp from "./mcp.js";
import * as toolbox from "./toolbox.js";

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

const head = (call) => element("header", {}, icon("tools"), element("strong", { class: "mono", textContent: call.name }));
const given = (call) =>
  element(
    "pre",
    { tabIndex: 0, "aria-label": `Arguments of ${call.name}` },
    element("code", {}, highlight(pretty(call.arguments), "json")),
  );

async function run(call, box, button, context) {
  const { server } = toolbox.find(call.name);
  button.disabled = true;
  try {
    box.value = await mcp.run(server, call.name, JSON.parse(call.arguments || "{}"));
  } catch (error) {
    box.value = `Error: ${error.message}`;
    context.say(error.message, true);
  }
  button.disabled = false;
  box.focus();
}

function card(call, results, context) {
  const box = element("textarea", {
    rows: 3,
    value: results[call.call_id] ?? "",
    "aria-label": `Result of ${call.name}`,
    placeholder: "What the tool gives back",
  });
  box.dataset.call = call.call_id;
  const runner = element(
    "button",
    { type: "button", class: "run", onclick: () => run(call, box, runner, context) },
    icon("play"),
    "Run on the MCP server",
  );
  const hasServer = Boolean(toolbox.find(call.name)?.server);
  return element(
    "section",
    { class: "card call", "aria-label": `Call of ${call.name}` },
    head(call),
    given(call),
    element("label", { class: "stack" }, element("small", { textContent: "Result" }), box),
    hasServer ? runner : null,
  );
}

export const calls = {
  // While they are being written.
  growing: (turn) => turn.calls.map((call) => element("section", { class: "card call" }, head(call), given(call))),

  cards(turn, chat) {
    const later = chat.after(turn);
    const results = later?.role === "tool" ? later.outputs : {};
    const made = turn.calls.map((call) => card(call, results, chat.context));
    const send = element("button", {
      type: "button",
      class: later ? null : "primary",
      textContent: later ? "Send other results in a new branch" : "Send the results and go on",
    });
    send.addEventListener("click", () => {
      const written = made.map((each) => each.querySelector("textarea"));
      chat.answerCalls(turn, Object.fromEntries(written.map((box) => [box.dataset.call, box.value])));
    });
    return [...made, element("div", { class: "row end" }, later?.role === "tool" ? branches(later, chat) : null, send)];
  },
};
