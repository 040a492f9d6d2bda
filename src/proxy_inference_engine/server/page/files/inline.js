// What stands inside a paragraph: emphasis, code, links, formulas. Rules are tried where a mark stands; each looks only
// so far ahead, so that no text takes long.

import { element } from "./dom.js";
import { formula } from "./math.js";

const MARK = /[\\`*_~[!<$]|https?:\/\//g;
const MAX_DEPTH = 8;
const SAFE = /^(https?:\/\/|mailto:)/i;

// A link leads away only when it is clicked, and says where to. Any other scheme is text.
function link(label, address) {
  if (!SAFE.test(address)) return [...label, ` (${address})`];
  return [element("a", { href: address, rel: "noopener noreferrer", target: "_blank", title: address }, label)];
}

const bare = (address) => {
  const trimmed = address.replace(/[.,;:!?'")\]]+$/, (tail) => (tail.startsWith(")") && address.includes("(") ? ")" : ""));
  return { nodes: link([trimmed], trimmed), length: trimmed.length };
};

// Each: a pattern that begins where the mark stands, and what is made of its groups.
const RULES = [
  [/\\\((.{1,1000}?)\\\)/sy, ([, tex]) => [formula(tex, false)]],
  [/\\\[(.{1,2000}?)\\\]/sy, ([, tex]) => [formula(tex, true)]],
  [/\\([!-/:-@[-`{-~])/y, ([, character]) => [character]],
  [/(`+)(?!`)(.{1,2000}?)(?<!`)\1(?!`)/sy, ([, , code]) => [element("code", { textContent: code.replace(/^ (.*) $/s, "$1") })]],
  [/\$\$([^$]{1,2000}?)\$\$/y, ([, tex]) => [formula(tex, true)]],
  [/\$(?=[^\s$])([^$\n]{0,1000}?[^\s$\\])\$(?!\d)/y, ([, tex]) => [formula(tex, false)]],
  [/\*\*(?=\S)(.{1,2000}?)(?<=\S)\*\*(?!\*)/sy, ([, text], depth) => [element("strong", {}, inline(text, depth + 1))]],
  [/(?<!\w)__(?=\S)(.{1,2000}?)(?<=\S)__(?!\w)/sy, ([, text], depth) => [element("strong", {}, inline(text, depth + 1))]],
  [/\*(?=[^\s*])([^*]{1,2000}?)(?<=\S)\*/sy, ([, text], depth) => [element("em", {}, inline(text, depth + 1))]],
  [/(?<!\w)_(?=[^\s_])([^_]{1,2000}?)(?<=\S)_(?!\w)/sy, ([, text], depth) => [element("em", {}, inline(text, depth + 1))]],
  [/~~(?=\S)(.{1,2000}?)(?<=\S)~~/sy, ([, text], depth) => [element("del", {}, inline(text, depth + 1))]],
  [
    /!\[([^\]\n]{0,500})\]\(\s*<?([^\s)<>]{1,2000})>?(?:\s+"[^"\n]{0,500}")?\s*\)/y,
    ([, alt, address]) => link([`picture: ${alt || "untitled"}`], address),
  ],
  [
    /\[([^\]\n]{1,500})\]\(\s*<?((?:[^\s()<>]|\([^\s()]*\)){1,2000})>?(?:\s+"[^"\n]{0,500}")?\s*\)/y,
    ([, label, address], depth) => link(inline(label, depth + 1), address),
  ],
  [/<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/y, ([, address]) => link([address], address)],
];

function matched(text, at, depth) {
  if (text.startsWith("http", at)) {
    const found = /https?:\/\/[^\s<>"`*]{1,2000}/y;
    found.lastIndex = at;
    const address = found.exec(text);
    return address && bare(address[0]);
  }
  for (const [pattern, make] of RULES) {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (found) return { nodes: make(found, depth), length: found[0].length };
  }
  return null;
}

export function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const made = [];
  let end = 0;
  MARK.lastIndex = 0;
  for (;;) {
    const from = Math.max(MARK.lastIndex, end);
    MARK.lastIndex = from;
    const mark = MARK.exec(text);
    if (!mark) break;
    const next = MARK.lastIndex;
    const found = matched(text, mark.index, depth); // it uses MARK itself
    MARK.lastIndex = next;
    if (!found) continue;
    if (mark.index > end) made.push(text.slice(end, mark.index));
    made.push(...found.nodes);
    end = mark.index + found.length;
    MARK.lastIndex = end;
  }
  if (end < text.length) made.push(text.slice(end));
  return made;
}
