// The tools that are offered to the model: a list that a person pasted or an MCP server told, kept in this browser.

import { small } from "./database.js";

const PLACE = "pie.tools";
const MAX_TOOLS = 128;

// Tools of the shapes that people have at hand: Responses, chat completions, Anthropic, MCP.
function flat(given) {
  const tool = given?.function ?? given;
  if (!tool || typeof tool.name !== "string") throw new Error("Each tool needs a name.");
  if (!/^[a-zA-Z0-9_-]{1,64}$/.test(tool.name))
    throw new Error(`A tool's name has letters, digits, _ and - only: ${tool.name.slice(0, 80)}`);
  const parameters = tool.parameters ?? tool.input_schema ?? tool.inputSchema ?? { type: "object", properties: {} };
  if (typeof parameters !== "object" || Array.isArray(parameters)) throw new Error(`The parameters of ${tool.name} are not a JSON Schema.`);
  return { name: tool.name, description: typeof tool.description === "string" ? tool.description : "", parameters };
}

export function parsed(text) {
  const given = JSON.parse(text);
  const list = Array.isArray(given) ? given : Array.isArray(given?.tools) ? given.tools : [given];
  return list.map(flat);
}

export const all = () => small.read(PLACE, []);

const keep = (tools) => small.set(PLACE, JSON.stringify(tools));

// Those of the same name are replaced.
export function add(tools, server = null) {
  const names = new Set(tools.map((tool) => tool.name));
  const kept = [...all().filter((tool) => !names.has(tool.name)), ...tools.map((tool) => ({ ...tool, server, isOn: true }))];
  if (kept.length > MAX_TOOLS) throw new Error(`At most ${MAX_TOOLS} tools can be offered.`);
  keep(kept);
}

export const remove = (name) => keep(all().filter((tool) => tool.name !== name));
export const turn = (name, isOn) => keep(all().map((tool) => (tool.name === name ? { ...tool, isOn } : tool)));
export const find = (name) => all().find((tool) => tool.name === name);

// As a request has them.
export const offered = () =>
  all()
    .filter((tool) => tool.isOn)
    .map(({ name, description, parameters }) => ({ type: "function", name, description, parameters }));
