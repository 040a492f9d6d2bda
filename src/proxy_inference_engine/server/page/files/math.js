// Formulas: a subset of TeX as MathML, made node by node. What it does not know is shown as the text it was.

import { ACCENTS, FUNCTIONS, LARGE, OPERATORS, SPACES, STYLES, SYMBOLS } from "./symbols.js";
import { element } from "./dom.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const MAX_CHARS = 4000;
const MAX_DEPTH = 40;
const TOKEN = /\\[a-zA-Z]+\*?|\\.|[{}^_&~]|\d+(?:\.\d+)?|\s+|./gsu;
const FENCES = {
  "(": "(",
  ")": ")",
  "[": "[",
  "]": "]",
  ".": "",
  "|": "|",
  "/": "/",
  "\\{": "{",
  "\\}": "}",
  "\\|": "‖",
  "\\langle": "⟨",
  "\\rangle": "⟩",
  "\\lfloor": "⌊",
  "\\rfloor": "⌋",
  "\\lceil": "⌈",
  "\\rceil": "⌉",
  "\\lvert": "|",
  "\\rvert": "|",
  "\\lVert": "‖",
  "\\rVert": "‖",
};
const MATRICES = {
  matrix: ["", ""],
  pmatrix: ["(", ")"],
  bmatrix: ["[", "]"],
  Bmatrix: ["{", "}"],
  vmatrix: ["|", "|"],
  Vmatrix: ["‖", "‖"],
  cases: ["{", ""],
  aligned: ["", ""],
  align: ["", ""],
  "align*": ["", ""],
  gathered: ["", ""],
  array: ["", ""],
  smallmatrix: ["", ""],
};
const MADE = Symbol("made");

class TexError extends Error {}

function made(name, attributes, ...children) {
  const node = document.createElementNS(MATHML, name);
  for (const [attribute, value] of Object.entries(attributes)) node.setAttribute(attribute, value);
  node.append(...children);
  return node;
}

const one = (nodes) => (nodes.length === 1 ? nodes[0] : made("mrow", {}, ...nodes));
const operator = (text, attributes = {}) => made("mo", attributes, text);
const fence = (text) => operator(text, { fence: "true", stretchy: "true" });

class Parser {
  constructor(tex, isDisplay) {
    this.tokens = tex.match(TOKEN) ?? [];
    this.at = 0;
    this.depth = 0;
    this.isDisplay = isDisplay;
  }

  get next() {
    return this.tokens[this.at];
  }

  skipSpace() {
    while (this.at < this.tokens.length && /^\s/.test(this.next)) this.at += 1;
  }

  take() {
    this.skipSpace();
    if (this.at >= this.tokens.length) throw new TexError("it ends too early");
    return this.tokens[this.at++];
  }

  expect(token) {
    if (this.take() !== token) throw new TexError(`${token} is missing`);
  }

  // The nodes up to one of `ends`, which is left where it is.
  run(ends) {
    if ((this.depth += 1) > MAX_DEPTH) throw new TexError("it is too deep");
    const nodes = [];
    for (this.skipSpace(); this.at < this.tokens.length && !ends.includes(this.next); this.skipSpace()) nodes.push(this.scripted());
    this.depth -= 1;
    return nodes;
  }

  group() {
    const nodes = this.run(["}"]);
    this.expect("}");
    return one(nodes);
  }

  argument() {
    const token = this.take();
    if (/^\d./.test(token)) this.tokens[(this.at -= 1)] = token.slice(1); // of a number without braces one digit
    return token === "{" ? this.group() : this.atom(/^\d/.test(token) ? token[0] : token);
  }

  // What stands between braces, as it was written.
  raw() {
    this.expect("{");
    let text = "";
    for (let depth = 1; ;) {
      if (this.at >= this.tokens.length) throw new TexError("} is missing");
      const token = this.tokens[this.at++];
      if (token === "{") depth += 1;
      else if (token === "}" && (depth -= 1) === 0) return text;
      text += token.replace(/^\\([{}%$&#_ ])$/, "$1");
    }
  }

  scripted() {
    const base = this.next === "^" || this.next === "_" ? made("mrow", {}) : this.atom(this.take());
    let [below, above, primes] = [null, null, ""];
    for (this.skipSpace(); ["^", "_", "'", "\\limits", "\\nolimits"].includes(this.next); this.skipSpace()) {
      const mark = this.take();
      if (mark === "'") primes += "′";
      else if (mark === "^" && !above) above = this.argument();
      else if (mark === "_" && !below) below = this.argument();
      else if (mark === "^" || mark === "_") throw new TexError("two scripts of a kind");
    }
    if (primes) above = above ? made("mrow", {}, operator(primes), above) : operator(primes);
    if (!below && !above) return base;
    const hasLimits = this.isDisplay && base[MADE] === "large";
    const names = hasLimits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    if (below && above) return made(names[2], {}, base, below, above);
    return below ? made(names[0], {}, base, below) : made(names[1], {}, base, above);
  }

  atom(token) {
    if (token === "{") return this.group();
    if (/^\d/.test(token)) return made("mn", {}, token);
    if (/^\p{L}$/u.test(token)) return made("mi", {}, token);
    if (token === "~") return made("mspace", { width: "0.33em" });
    if ("}&^_".includes(token)) throw new TexError(`${token} has no place here`);
    if (token[0] === "\\") return this.command(token.slice(1));
    return "()[]|".includes(token) ? operator(token, { stretchy: "false" }) : operator(token === "-" ? "−" : token === "*" ? "∗" : token);
  }

  command(name) {
    if (Object.hasOwn(SYMBOLS, name)) return made("mi", /^[Α-Ω]/.test(SYMBOLS[name]) ? { mathvariant: "normal" } : {}, SYMBOLS[name]);
    if (Object.hasOwn(OPERATORS, name)) return operator(OPERATORS[name]);
    if (Object.hasOwn(LARGE, name))
      return Object.assign(operator(LARGE[name], { largeop: "true", movablelimits: "false" }), {
        [MADE]: name.includes("int") ? "integral" : "large",
      });
    if (Object.hasOwn(FUNCTIONS, name))
      return Object.assign(made("mi", {}, FUNCTIONS[name] ?? name), {
        [MADE]: /^(lim|max|min|sup|inf|arg)/.test(name) ? "large" : "function",
      });
    if (Object.hasOwn(SPACES, name)) return made("mspace", { width: SPACES[name] });
    if (Object.hasOwn(ACCENTS, name))
      return made(
        name.startsWith("under") ? "munder" : "mover",
        { accent: "true" },
        this.argument(),
        operator(ACCENTS[name], { stretchy: String(/^(over|under|wide)/.test(name)) }),
      );
    if (Object.hasOwn(STYLES, name)) return this.styled(name);
    if (Object.hasOwn(FENCES, `\\${name}`)) return operator(FENCES[`\\${name}`], { stretchy: "false" });
    return this.structure(name);
  }

  structure(name) {
    switch (name) {
      case "frac":
      case "dfrac":
      case "tfrac":
      case "cfrac":
        return made("mfrac", {}, this.argument(), this.argument());
      case "binom":
      case "dbinom":
      case "tbinom":
        return made("mrow", {}, fence("("), made("mfrac", { linethickness: "0" }, this.argument(), this.argument()), fence(")"));
      case "sqrt":
        return this.root();
      case "left":
        return this.pair();
      case "begin":
        return this.environment(this.raw());
      case "overset":
      case "stackrel":
      case "underset": {
        const [mark, base] = [this.argument(), this.argument()];
        return made(name === "underset" ? "munder" : "mover", {}, base, mark);
      }
      case "underbrace":
      case "overbrace":
        return Object.assign(
          made(name === "overbrace" ? "mover" : "munder", {}, this.argument(), operator(name === "overbrace" ? "⏞" : "⏟")),
          { [MADE]: "large" },
        );
      case "operatorname":
      case "operatorname*":
        return made("mi", {}, this.raw());
      case "not":
        return operator(`${this.take().replace("\\in", "∈").replace("\\subset", "⊂").replace("\\equiv", "≡")}\u0338`);
      case "pmod":
      case "bmod":
        return name === "bmod"
          ? operator("mod")
          : made("mrow", {}, operator("("), made("mi", {}, "mod"), made("mspace", { width: "0.3em" }), this.argument(), operator(")"));
      case "big":
      case "Big":
      case "bigg":
      case "Bigg":
      case "bigl":
      case "bigr":
      case "Bigl":
      case "Bigr":
      case "biggl":
      case "biggr":
      case "middle":
        return operator(FENCES[this.take()] ?? "", { stretchy: "false" });
      case "displaystyle":
      case "textstyle":
      case "nonumber":
      case "notag":
      case "limits":
        return made("mrow", {});
      case "boxed":
      case "fbox":
        return made("menclose", { notation: "box" }, this.argument());
      case "label":
      case "tag":
        return made("mtext", {}, `(${this.raw()})`);
    }
    throw new TexError(`\\${name} is not known here`);
  }

  styled(name) {
    const variant = STYLES[name];
    if (variant === "text") return made("mtext", {}, this.raw().replaceAll(" ", "\u00a0"));
    const inner = this.argument();
    const letters = inner.localName === "mi" || inner.localName === "mn" ? [inner] : inner.querySelectorAll("mi, mn");
    for (const each of letters) {
      each.textContent = [...each.textContent].map((letter) => variant(letter)).join("");
      if (name === "mathrm") each.setAttribute("mathvariant", "normal");
    }
    return inner;
  }

  root() {
    this.skipSpace();
    if (this.next !== "[") return made("msqrt", {}, this.argument());
    this.at += 1;
    const degree = one(this.run(["]"]));
    this.expect("]");
    return made("mroot", {}, this.argument(), degree);
  }

  pair() {
    const open = FENCES[this.take()];
    const inner = this.run(["\\right"]);
    this.expect("\\right");
    const close = FENCES[this.take()];
    if (open === undefined || close === undefined) throw new TexError("a fence that is not known here");
    return made("mrow", {}, ...(open ? [fence(open)] : []), ...inner, ...(close ? [fence(close)] : []));
  }

  environment(name) {
    const fences = MATRICES[name];
    if (!fences) throw new TexError(`${name} is not known here`);
    if (name === "array") this.raw();
    const rows = [[]];
    for (;;) {
      rows.at(-1).push(made("mtd", {}, ...this.run(["&", "\\\\", "\\end"])));
      const mark = this.take();
      if (mark === "\\end") break;
      if (mark === "\\\\") rows.push([]);
    }
    if (this.raw() !== name) throw new TexError(`\\end{${name}} is missing`);
    const isAligned = name.startsWith("align");
    const table = made(
      "mtable",
      isAligned ? { columnalign: "right left", displaystyle: "true" } : name === "cases" ? { columnalign: "left" } : {},
      ...rows.map((row) => made("mtr", {}, ...row)),
    );
    return made("mrow", {}, ...(fences[0] ? [fence(fences[0])] : []), table, ...(fences[1] ? [fence(fences[1])] : []));
  }
}

// A formula; broken TeX is shown as it was written.
export function formula(tex, isDisplay) {
  try {
    if (tex.length > MAX_CHARS) throw new TexError("it is too long");
    const parser = new Parser(tex.trim(), isDisplay);
    const nodes = parser.run([]);
    return made("math", { display: isDisplay ? "block" : "inline", "aria-label": tex.trim() }, one(nodes));
  } catch (error) {
    if (!(error instanceof TexError)) throw error;
    return element("code", {
      class: "tex",
      title: `Not a formula that this page can draw: ${error.message}`,
      textContent: isDisplay ? `$$${tex}$$` : `$${tex}$`,
    });
  }
}
