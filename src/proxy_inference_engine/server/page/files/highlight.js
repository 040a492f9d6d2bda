// Code in colour: comments, strings, numbers, keywords, names that are called. Not a parser of any language.

import { element } from "./dom.js";

const MAX_CHARS = 100_000;
const words = (text) => new Set(text.trim().split(/\s+/));

const C_LIKE =
  `break case catch class const continue default do else enum extends finally for if import in instanceof interface new
  null return static super switch this throw throws try typeof var void while true false public private protected
  final abstract package`;
const LANGUAGES = {
  javascript: {
    line: "//",
    block: true,
    quotes: "`\"'",
    keywords: words(`${C_LIKE} let const function async await of yield export from as type undefined delete get set`),
  },
  python: {
    line: "#",
    quotes: "\"'",
    triple: true,
    keywords: words(
      `and as assert async await break case class continue def del elif else except False finally for from global if import
      in is lambda match None nonlocal not or pass raise return self True try type while with yield`,
    ),
  },
  c: {
    line: "//",
    block: true,
    quotes: "\"'",
    keywords: words(
      `${C_LIKE} auto bool char double float int long short signed unsigned struct union typedef sizeof template typename
      namespace using virtual override operator nullptr inline extern include define constexpr delete string byte var
      func`,
    ),
  },
  rust: {
    line: "//",
    block: true,
    quotes: '"',
    keywords: words(
      `as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub
      ref return self Self static struct super trait true type unsafe use where while i32 i64 u8 u32 u64 usize f32 f64
      bool str String Option Result Some None Ok Err Vec`,
    ),
  },
  go: {
    line: "//",
    block: true,
    quotes: "`\"'",
    keywords: words(
      `break case chan const continue default defer else fallthrough for func go goto if import interface map package range
      return select struct switch type var nil true false string int int64 float64 bool byte error`,
    ),
  },
  shell: {
    line: "#",
    quotes: "\"'",
    keywords: words(
      "if then else elif fi for in do done while until case esac function return export local echo cd exit set source alias sudo",
    ),
  },
  sql: {
    line: "--",
    block: true,
    quotes: "'\"",
    ignoresCase: true,
    keywords: words(
      `select from where and or not in is null insert into values update set delete create table index view drop alter add
      primary key foreign references join left right inner outer on group by order having limit offset as distinct
      union all case when then else end with exists between like asc desc count sum avg min max`,
    ),
  },
  json: { quotes: '"', keywords: words("true false null") },
  yaml: { line: "#", quotes: "\"'", keywords: words("true false null yes no on off") },
  css: { block: true, quotes: "\"'", keywords: words("important media supports keyframes import from to") },
  markup: { quotes: "\"'", keywords: new Set(), isMarkup: true },
  diff: { isDiff: true },
  text: null,
};
const ALIASES = {
  js: "javascript",
  jsx: "javascript",
  ts: "javascript",
  tsx: "javascript",
  typescript: "javascript",
  mjs: "javascript",
  py: "python",
  python3: "python",
  cpp: "c",
  "c++": "c",
  h: "c",
  java: "c",
  csharp: "c",
  cs: "c",
  kotlin: "c",
  swift: "c",
  php: "c",
  scala: "c",
  dart: "c",
  rs: "rust",
  golang: "go",
  sh: "shell",
  bash: "shell",
  zsh: "shell",
  console: "shell",
  yml: "yaml",
  toml: "yaml",
  ini: "yaml",
  html: "markup",
  xml: "markup",
  svg: "markup",
  vue: "markup",
  scss: "css",
  less: "css",
  jsonc: "json",
  json5: "json",
  rb: "python",
  ruby: "python",
  patch: "diff",
  postgresql: "sql",
  sqlite: "sql",
  mysql: "sql",
};

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
const patterns = new Map();

const END = "(?![^])"; // of the text, where `$` would be that of a line

// One pattern a language: comment, string, number, word, in this order.
function pattern(name, language) {
  if (patterns.has(name)) return patterns.get(name);
  const comments = [];
  if (language.line) comments.push(`${escaped(language.line)}[^\\n]*`);
  if (language.block) comments.push(`/\\*[^]*?(?:\\*/|${END})`);
  if (language.isMarkup) comments.push(`<!--[^]*?(?:-->|${END})`);
  const strings = language.triple ? [`"""[^]*?(?:"""|${END})`, `'''[^]*?(?:'''|${END})`] : [];
  for (const quote of language.quotes) strings.push(`${quote}(?:\\\\.|[^${quote}\\\\${quote === "`" ? "" : "\\n"}])*${quote}?`);
  const groups = [
    comments.join("|") || "(?!)",
    strings.join("|"),
    "\\b0[xX][\\da-fA-F_]+\\b|\\b\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?\\b",
    "[A-Za-z_$][\\w$]*",
  ];
  const made = new RegExp(groups.map((group) => `(${group})`).join("|"), "g");
  patterns.set(name, made);
  return made;
}

const span = (kind, text) => element("span", { class: `code-${kind}`, textContent: text });

function kindOfWord(word, code, end, language) {
  if (language.isMarkup) return /[</]/.test(code[end - word.length - 1] ?? "") ? "keyword" : code[end] === "=" ? "name" : null;
  if (language.keywords.has(language.ignoresCase ? word.toLowerCase() : word)) return "keyword";
  return code[end] === "(" ? "name" : null;
}

const diff = (code) =>
  code.split(/(?<=\n)/).map((line) => (/^[+-]/.test(line) ? span(line[0] === "+" ? "string" : "comment", line) : line));

// The parts of some code as nodes and strings.
export function highlight(code, told) {
  const name = ALIASES[(told ?? "").toLowerCase()] ?? (told ?? "").toLowerCase();
  const language = Object.hasOwn(LANGUAGES, name) ? LANGUAGES[name] : null;
  if (!language || code.length > MAX_CHARS) return [code];
  if (language.isDiff) return diff(code);
  const made = [];
  let end = 0;
  for (const match of code.matchAll(pattern(name, language))) {
    const [text, comment, string, number, word] = match;
    const next = match.index + text.length;
    const isField = name === "json" && string && /^\s*:/.test(code.slice(next, next + 20));
    const kind = comment ? "comment" : isField ? "name" : string ? "string" : number ? "number" : kindOfWord(word, code, next, language);
    if (!kind) continue;
    if (match.index > end) made.push(code.slice(end, match.index));
    made.push(span(kind, text));
    end = next;
  }
  made.push(code.slice(end));
  return made;
}
