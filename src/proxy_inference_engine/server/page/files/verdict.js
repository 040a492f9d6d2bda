// What the server says of a format, in words: enforced or not, why, where, what to write instead, what it costs.

import { element, icon } from "./dom.js";

const line = (kind, ...parts) => element("p", { class: `verdict-line ${kind}` }, ...parts);
const code = (text) => element("code", { textContent: text });

// Where in a JSON text the value at a pointer stands: [start, end], or null. Keys are looked up one inside the other.
export function placeOf(text, path) {
  let start = 0;
  let end = 0;
  for (const part of path.split("/").filter(Boolean)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    const at = text.indexOf(`${JSON.stringify(name)}`, end);
    if (at < 0) {
      if (/^\d+$/.test(name)) continue; // a place in a list has no name
      return end ? [start, end] : null;
    }
    start = at;
    end = at + JSON.stringify(name).length;
  }
  return end ? [start, end] : null;
}

function place(problem, editor) {
  if (!problem.path) return null;
  const found = placeOf(editor.value, problem.path);
  const words = [code(problem.path)];
  if (!found) return element("span", {}, ...words);
  return element("button", { type: "button", class: "plain place", title: "Show where", onclick: () => editor.select(...found) }, ...words);
}

function costs(found) {
  const compiled = found.compile_ms < 0.5 ? "compiled before" : `compiled in ${found.compile_ms.toFixed(1)} ms`;
  return element("span", {
    class: "quiet",
    textContent: `${compiled}, a grammar of ${found.grammar_chars.toLocaleString("en")} characters`,
  });
}

function relaxed(found) {
  if (!found.relaxed.length) return [];
  const words = found.is_enforceable ? "Not enforced:" : "With strict off it is taken, without:";
  const places = found.relaxed.slice(0, 6).map((each) => each.replace(/:(?=[^:]*$)/, "/")); // "path:keyword", as a pointer
  return [line("quiet", words, " ", ...places.flatMap((each) => [code(each), " "]))];
}

export const verdict = {
  of(found, editor) {
    if (found.is_enforceable)
      return [line("good", icon("check"), element("strong", { textContent: "It can be enforced." }), costs(found)), ...relaxed(found)];
    const { problem } = found;
    const where = place(problem, editor);
    return [
      line("bad", icon("close"), element("strong", { textContent: where ? "It cannot be enforced at" : "It cannot be enforced." }), where),
      line("", problem.reason),
      ...(problem.advice ? [line("advice", icon("edit"), problem.advice)] : []),
      ...relaxed(found),
    ];
  },
  noJson(reason, show) {
    const button = show && element("button", { type: "button", class: "plain place", textContent: "Show where", onclick: show });
    return [line("bad", icon("close"), element("strong", { textContent: "This is no JSON yet." }), button), line("quiet", reason)];
  },
  refused: (reason) => [line("bad", icon("close"), reason)],
};
