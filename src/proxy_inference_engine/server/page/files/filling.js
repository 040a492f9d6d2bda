// An answer under a schema, field by field, while it comes.

import { element } from "./dom.js";
import { partial } from "./partial.js";

const MAX_DEPTH = 6;
const MAX_ROWS = 200;

// Bytes of tokens to text: a character may be cut in two by tokens.
export function tokenText() {
  const decoder = new TextDecoder();
  return (entry) => decoder.decode(new Uint8Array(entry.bytes ?? new TextEncoder().encode(entry.token)), { stream: true });
}

function resolve(root, schema, depth = 0) {
  const reference = schema && typeof schema === "object" ? schema.$ref : null;
  if (typeof reference !== "string" || !reference.startsWith("#/") || depth > 8) return schema;
  let found = root;
  for (const part of reference.slice(2).split("/")) found = found?.[part];
  return resolve(root, found, depth + 1);
}

const kindOf = (schema) => {
  if (!schema || typeof schema !== "object") return "";
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  return [schema.type ?? ""].flat().join(" | ");
};

// Rows of { name, depth, kind, value, state }; states: waiting, filling, done.
function* walk(root, told, name, node, depth) {
  const schema = resolve(root, told);
  const state = !node || node.isEmpty ? "waiting" : node.isOpen ? "filling" : "done";
  const isList = Array.isArray(node?.value);
  const isObject = node?.value instanceof Map;
  yield { name, depth, kind: kindOf(schema), state, value: isList || isObject || !node || node.isEmpty ? null : node.value };
  if (depth >= MAX_DEPTH) return;
  if (isList) {
    for (const [index, each] of node.value.entries())
      yield* walk(root, schema?.prefixItems?.[index] ?? schema?.items, String(index), each, depth + 1);
    return;
  }
  yield* inside(root, schema, isObject ? node.value : new Map(), depth + 1, state !== "waiting" || depth < 2);
}

function* inside(root, schema, values, depth, showsAll) {
  const known = Object.keys(schema?.properties ?? {});
  const names = [...new Set([...(showsAll ? known : []), ...values.keys()])];
  for (const name of names)
    yield* walk(root, schema?.properties?.[name] ?? schema?.additionalProperties, name, values.get(name) ?? null, depth);
}

function row({ name, depth, kind, state, value }) {
  const shown = value === null ? "" : typeof value === "string" ? value : JSON.stringify(value);
  const made = element(
    "div",
    { class: `field ${state}` },
    element("span", { class: "field-name", textContent: name }),
    element("span", { class: "field-kind quiet", textContent: kind, title: kind }),
    element("span", { class: "field-value", textContent: shown }),
    element("span", { class: "field-state", title: state, role: "img", "aria-label": state }),
  );
  made.style.setProperty("--depth", depth);
  return made;
}

// The rows of an answer as far as it has come.
export function fields(schema, text) {
  const come = partial(text);
  const top = resolve(schema, schema);
  const isObject = come?.value instanceof Map || top?.properties;
  const made = [];
  for (const each of isObject
    ? inside(schema, top, come?.value instanceof Map ? come.value : new Map(), 0, true)
    : walk(schema, schema, "answer", come, 0)) {
    if (made.length >= MAX_ROWS) break;
    made.push(row(each));
  }
  return made;
}
