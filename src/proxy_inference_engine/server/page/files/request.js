// A conversation as the body of a request to /v1/responses.

import { address } from "./pictures.js";
import * as toolbox from "./toolbox.js";

async function question(turn) {
  if (!turn.pictures?.length) return { role: "user", content: turn.text };
  const shown = await Promise.all(turn.pictures.map((picture) => address(picture.id)));
  const parts = shown.filter(Boolean).map((url) => ({ type: "input_image", image_url: url }));
  return { role: "user", content: turn.text ? [...parts, { type: "input_text", text: turn.text }] : parts };
}

// Calls that nobody answered are left out: a model that sees one waits for its result.
function answer(turn, results) {
  const items = [];
  const calls = turn.calls.filter((each) => Object.hasOwn(results, each.call_id));
  if (turn.reasoning && calls.length)
    items.push({ type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: turn.reasoning }] });
  if (turn.text) items.push({ role: "assistant", content: turn.text });
  for (const { call_id, name, arguments: given } of calls) items.push({ type: "function_call", call_id, name, arguments: given });
  return items;
}

const outputs = (turn) => Object.entries(turn.outputs).map(([call_id, output]) => ({ type: "function_call_output", call_id, output }));

const cameToNothing = (turn) => turn?.role === "assistant" && turn.error && !turn.text && !turn.calls.length;

// A question that was refused is not asked again with the next one.
const heard = (path) => path.filter((turn, index) => !cameToNothing(turn) && !(turn.role === "user" && cameToNothing(path[index + 1])));

export async function input(path) {
  const items = [];
  const said = heard(path);
  for (const [index, turn] of said.entries()) {
    const results = said[index + 1]?.outputs ?? {};
    if (turn.role === "user") items.push(await question(turn));
    else if (turn.role === "assistant") items.push(...answer(turn, results));
    else items.push(...outputs(turn));
  }
  return items;
}

// `prefix`: what the answer begins with, where it goes on from some place of an earlier one.
export async function body(path, settings, model, prefix = "") {
  const made = { model, input: await input(path), ...settings.fields() };
  const tools = toolbox.offered();
  if (tools.length) Object.assign(made, { tools, tool_choice: settings.get("tool_choice") ?? "auto" });
  if (prefix) {
    made.input.push({ role: "assistant", content: prefix });
    made.continue_final_message = true;
  }
  return made;
}
