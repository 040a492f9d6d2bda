// Tools that are offered to the model in the chat: pasted as JSON, or listed by an MCP server. The model only asks for
// a call; what runs, runs from this page on a person's click.

import { json } from "./api.js";
import { element, iconButton } from "./dom.js";
import { highlight } from "./highlight.js";
import * as mcp from "./mcp.js";
import * as toolbox from "./toolbox.js";

const EXAMPLE = JSON.stringify(
  [
    {
      name: "get_weather",
      description: "The weather in a city today.",
      parameters: {
        type: "object",
        properties: { city: { type: "string" }, unit: { type: "string", enum: ["celsius", "fahrenheit"] } },
        required: ["city"],
        additionalProperties: false,
      },
    },
  ],
  null,
  2,
);

const count = (tools) => (tools.length === 1 ? "1 tool" : `${tools.length} tools`);

function row(tool, again) {
  const isOn = element("input", { type: "checkbox", checked: tool.isOn, "aria-label": `Offer ${tool.name}` });
  isOn.addEventListener("change", () => toolbox.turn(tool.name, isOn.checked));
  const about = element(
    "details",
    {},
    element(
      "summary",
      {},
      element("strong", { class: "mono", textContent: tool.name }),
      " ",
      element("span", { class: "quiet", textContent: tool.description }),
    ),
    element("pre", { tabIndex: 0 }, element("code", {}, highlight(JSON.stringify(tool.parameters, null, 2), "json"))),
  );
  const from = tool.server ? element("span", { class: "chip", textContent: tool.server }) : null;
  return element(
    "li",
    { class: "card row" },
    isOn,
    element("div", { class: "grow" }, about, from),
    iconButton("trash", `Remove ${tool.name}`, () => {
      toolbox.remove(tool.name);
      again();
    }),
  );
}

function listed(again) {
  const tools = toolbox.all();
  if (!tools.length) return element("p", { class: "quiet", textContent: "No tools yet. The model answers in words only." });
  return element(
    "ul",
    { class: "tool-list" },
    tools.map((tool) => row(tool, again)),
  );
}

function pasting(context, again) {
  const box = element("textarea", {
    id: "tool-json",
    rows: 8,
    class: "mono",
    spellcheck: false,
    placeholder: "Tools as JSON: one or a list, as OpenAI, Anthropic or MCP write them",
    "aria-label": "Tools as JSON",
  });
  const told = element("p", { class: "error", role: "alert", hidden: true });
  const form = element(
    "form",
    { class: "card stack" },
    element("h3", { textContent: "Paste tools" }),
    box,
    told,
    element(
      "div",
      { class: "row end" },
      element("button", { type: "button", class: "plain", textContent: "An example", onclick: () => (box.value = EXAMPLE) }),
      element("button", { class: "primary", textContent: "Add" }),
    ),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    told.hidden = true;
    try {
      const tools = toolbox.parsed(box.value);
      toolbox.add(tools);
      box.value = "";
      context.say(`${count(tools)} added.`);
      again();
    } catch (error) {
      told.textContent = error instanceof SyntaxError ? `This is no JSON: ${error.message}` : error.message;
      told.hidden = false;
    }
  });
  return form;
}

// Said before the browser says it less plainly.
const blocked = (address) =>
  `This page may not call ${new URL(address).origin}: the server's policy lets it speak to this server alone. ` +
  `Whoever runs it can allow the address with mcp_servers = ["${address}"] in pie.toml.`;

function serving(context, allowed, again) {
  const box = element("input", {
    id: "mcp",
    type: "url",
    required: true,
    placeholder: "http://localhost:3000/mcp",
    list: "mcp-known",
    "aria-label": "Address of an MCP server",
  });
  const told = element("p", { class: "error", role: "alert", hidden: true });
  const form = element(
    "form",
    { class: "card stack" },
    element("h3", { textContent: "Connect an MCP server" }),
    element("p", {
      class: "quiet",
      textContent: allowed.length
        ? `Allowed by the operator: ${allowed.join(", ")}`
        : "The operator has allowed none yet (mcp_servers in pie.toml).",
    }),
    element(
      "div",
      { class: "row" },
      element("span", { class: "grow" }, box),
      element("button", { class: "primary", textContent: "List its tools" }),
    ),
    element(
      "datalist",
      { id: "mcp-known" },
      allowed.map((address) => element("option", { value: address })),
    ),
    told,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    told.hidden = true;
    try {
      if (!allowed.includes(box.value)) throw new Error(blocked(box.value));
      const tools = (await mcp.tools(box.value)).map((tool) => toolbox.parsed(JSON.stringify(tool))[0]);
      toolbox.add(tools, box.value);
      context.say(`${count(tools)} of the server added.`);
      again();
    } catch (error) {
      told.textContent = error.message;
      told.hidden = false;
    }
  });
  if (allowed.length === 1) box.value = allowed[0];
  return form;
}

export async function mount(root, context) {
  const settings = await json("page/settings.json").catch(context.fail); // the tools are there without it
  const place = element("div");
  const show = () => place.replaceChildren(listed(show));
  root.append(
    element(
      "div",
      { class: "panel stack" },
      element(
        "header",
        { class: "row panel-head" },
        element("h2", { textContent: "Tools" }),
        element("span", { class: "quiet", textContent: "What the model may ask for in the chat." }),
      ),
      element("p", {
        class: "quiet",
        textContent: "Nothing runs by itself: each call becomes a card, and you write its result, or run it on its MCP server with a click.",
      }),
      place,
      element("div", { class: "columns" }, pasting(context, show), settings && serving(context, settings.mcp_servers, show)),
    ),
  );
  show();
}
