// Markdown as nodes of the page. What a model writes is only ever text here: no HTML is parsed, no address is opened,
// and a picture is a link. A text that grows is painted block by block: what has not changed stays.

import { element } from "./dom.js";
import { highlight } from "./highlight.js";
import { inline } from "./inline.js";
import { formula } from "./math.js";

const MAX_BLOCK = 20_000; // characters; a longer paragraph is shown as it is
const MAX_DEPTH = 6;
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`\s]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const QUOTE = /^ {0,3}> ?/;
const MATH = /^ {0,3}(\$\$|\\\[)/;
const UNDER = /^ *\|? *:?-+:? *(\| *:?-+:? *)*\|? *$/;

const isTable = (lines, at) =>
  lines[at].includes("|") && lines[at].length < MAX_BLOCK && (lines[at + 1] ?? "").includes("-") && UNDER.test(lines[at + 1]);
const begins = (lines, at) => {
  const line = lines[at];
  return (
    FENCE.test(line) ||
    HEADING.test(line) ||
    RULE.test(line) ||
    ITEM.test(line) ||
    QUOTE.test(line) ||
    MATH.test(line) ||
    isTable(lines, at)
  );
};

// Each: { end, build }, the line after it and how its element is made.

function fence(lines, at) {
  const [, indent, mark, language] = lines[at].match(FENCE);
  let end = at + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(mark) && lines[end].trim().replaceAll(mark[0], "") === "")) end += 1;
  const code = lines
    .slice(at + 1, end)
    .map((line) => (indent && line.startsWith(indent) ? line.slice(indent.length) : line))
    .join("\n");
  return {
    end: end + 1,
    build: () => element("pre", { tabIndex: 0, "data-language": language || null }, element("code", {}, highlight(code, language))),
  };
}

function math(lines, at) {
  const close = lines[at].trim().startsWith("$$") ? "$$" : "\\]";
  const first = lines[at].trim().slice(2);
  let end = at;
  let text = first;
  while (!text.includes(close) && end + 1 < lines.length && end - at < 100) text += `\n${lines[(end += 1)]}`;
  const [tex, rest] = [text.split(close)[0], text.slice(text.indexOf(close) + 2)];
  if (!text.includes(close) || rest.trim()) return paragraph(lines, at);
  return { end: end + 1, build: () => element("p", { class: "formula" }, formula(tex, true)) };
}

function heading(lines, at) {
  const [, marks, text] = lines[at].match(HEADING);
  return { end: at + 1, build: () => element(`h${Math.min(6, marks.length + 2)}`, {}, inline(text)) };
}

// The lines of a list's item, without its mark and indent.
function item(lines, at) {
  const [whole, indent, , gap] = lines[at].match(ITEM);
  const width = gap.length > 4 ? whole.length - gap.length + 1 : Math.max(whole.length, indent.length + 2);
  const own = [lines[at].slice(gap.length > 4 ? width : whole.length)];
  let end = at + 1;
  for (; end < lines.length; end += 1) {
    const line = lines[end];
    const depth = line.search(/\S/);
    if (depth < 0) {
      if (!(lines[end + 1] ?? "").startsWith(" ".repeat(Math.min(width, indent.length + 2)))) break;
      own.push("");
    } else if (depth >= Math.min(width, indent.length + 2)) own.push(line.slice(Math.min(depth, width)));
    else if (own.at(-1) !== "" && !begins(lines, end)) own.push(line.trim());
    else break;
  }
  return { own, end };
}

function list(lines, at, depth) {
  const [, indent, mark] = lines[at].match(ITEM);
  const isOrdered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = lines[end].match(ITEM);
    const isBlank = !lines[end].trim() && ITEM.test(lines[end + 1] ?? "") && lines[end + 1].match(ITEM)[1].length === indent.length;
    if (isBlank) end += 1;
    else if (found && found[1].length === indent.length && /\d/.test(found[2]) === isOrdered && !RULE.test(lines[end])) {
      const { own, end: next } = item(lines, end);
      items.push(own);
      end = next;
    } else break;
  }
  const start = isOrdered && parseInt(mark, 10) !== 1 ? parseInt(mark, 10) : null;
  const filled = (own) =>
    own.some((line, index) => index && (!line.trim() || begins(own, index))) ? nodes(own, depth + 1) : inline(own.join("\n"));
  return {
    end,
    build: () =>
      element(
        isOrdered ? "ol" : "ul",
        { start },
        items.map((own) => element("li", {}, filled(own))),
      ),
  };
}

const cells = (line) =>
  line
    .trim()
    .replace(/^\||(?<!\\)\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));

function table(lines, at) {
  const sides = cells(lines[at + 1]).map((cell) => (/^:-+:$/.test(cell) ? "center" : /-:$/.test(cell) ? "right" : null));
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && lines[end].trim()) end += 1;
  const row = (line, name) =>
    element(
      "tr",
      {},
      cells(line).map((cell, index) => element(name, { class: sides[index] }, inline(cell))),
    );
  const build = () =>
    element(
      "div",
      { class: "wide", tabIndex: 0 },
      element(
        "table",
        {},
        element("thead", {}, row(lines[at], "th")),
        element(
          "tbody",
          {},
          lines.slice(at + 2, end).map((line) => row(line, "td")),
        ),
      ),
    );
  return { end, build };
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return {
    end,
    build: () =>
      element(
        "blockquote",
        {},
        nodes(
          lines.slice(at, end).map((line) => line.replace(QUOTE, "")),
          depth + 1,
        ),
      ),
  };
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !begins(lines, end)) end += 1;
  const text = lines.slice(at, end).join("\n").trim();
  return { end, build: () => element("p", {}, text.length > MAX_BLOCK ? text : inline(text)) };
}

function block(lines, at, depth) {
  const line = lines[at];
  if (depth > MAX_DEPTH) return { end: lines.length, build: () => element("p", { textContent: lines.slice(at).join("\n") }) };
  if (FENCE.test(line)) return fence(lines, at);
  if (MATH.test(line)) return math(lines, at);
  if (HEADING.test(line)) return heading(lines, at);
  if (RULE.test(line)) return { end: at + 1, build: () => element("hr") };
  if (ITEM.test(line)) return list(lines, at, depth);
  if (QUOTE.test(line)) return quote(lines, at, depth);
  return isTable(lines, at) ? table(lines, at) : paragraph(lines, at);
}

// Every block with its source.
function blocks(lines, depth = 0) {
  const found = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) at += 1;
    else {
      const { end, build } = block(lines, at, depth);
      found.push({ source: lines.slice(at, end).join("\n"), build });
      at = end;
    }
  }
  return found;
}

const nodes = (lines, depth) => blocks(lines, depth).map((each) => each.build());

const painted = new WeakMap(); // container → the sources of its children

// Makes the container show the text, touching only the blocks that are new. `onblock` sees each that was made.
export function paint(container, text, onblock = () => {}) {
  const before = painted.get(container) ?? [];
  const wanted = blocks(text.split("\n"));
  let same = 0;
  while (same < before.length && same < wanted.length && before[same] === wanted[same].source) same += 1;
  while (container.children.length > same) container.lastChild.remove();
  for (const each of wanted.slice(same)) {
    const made = each.build();
    container.append(made);
    onblock(made);
  }
  painted.set(
    container,
    wanted.map((each) => each.source),
  );
}
