// TeX's names of what formulas are made of.

const table = (text) =>
  Object.fromEntries(
    text
      .trim()
      .split(/\s+/)
      .map((pair) => pair.split(":")),
  );

export const SYMBOLS = table(`
alpha:α beta:β gamma:γ delta:δ epsilon:ϵ varepsilon:ε zeta:ζ eta:η theta:θ vartheta:ϑ iota:ι kappa:κ lambda:λ mu:μ nu:ν
xi:ξ pi:π varpi:ϖ rho:ρ varrho:ϱ sigma:σ varsigma:ς tau:τ upsilon:υ phi:ϕ varphi:φ chi:χ psi:ψ omega:ω Gamma:Γ Delta:Δ
Theta:Θ Lambda:Λ Xi:Ξ Pi:Π Sigma:Σ Upsilon:Υ Phi:Φ Psi:Ψ Omega:Ω infty:∞ partial:∂ nabla:∇ hbar:ℏ ell:ℓ Re:ℜ Im:ℑ
aleph:ℵ emptyset:∅ varnothing:∅ forall:∀ exists:∃ nexists:∄ angle:∠ triangle:△ degree:° prime:′ top:⊤ bot:⊥ dagger:†
ldots:… cdots:⋯ dots:… vdots:⋮ ddots:⋱ dotsc:… dotsb:⋯
imath:ı jmath:ȷ wp:℘ checkmark:✓ square:□ blacksquare:■ qed:∎ %:% $:$ &:& #:# _:_
`);

export const OPERATORS = {
  ...table(`
times:× cdot:⋅ div:÷ pm:± mp:∓ ast:∗ star:⋆ circ:∘ bullet:∙ oplus:⊕ otimes:⊗ odot:⊙ cap:∩ cup:∪ wedge:∧ land:∧ vee:∨
lor:∨ neg:¬ lnot:¬ setminus:∖
leq:≤ le:≤ geq:≥ ge:≥ neq:≠ ne:≠ equiv:≡ approx:≈ sim:∼ simeq:≃ cong:≅ propto:∝ ll:≪ gg:≫ prec:≺ succ:≻ in:∈ notin:∉
ni:∋ subset:⊂ supset:⊃
subseteq:⊆ supseteq:⊇ mid:∣ nmid:∤ parallel:∥ perp:⊥ vdash:⊢ models:⊨ to:→ rightarrow:→ leftarrow:← gets:←
Rightarrow:⇒ Leftarrow:⇐ implies:⟹ iff:⟺ impliedby:⟸
leftrightarrow:↔ Leftrightarrow:⇔ longrightarrow:⟶ longleftarrow:⟵ mapsto:↦ uparrow:↑ downarrow:↓ hookrightarrow:↪
rightharpoonup:⇀ colon:: therefore:∴ because:∵ doteq:≐ triangleq:≜ asymp:≍ lt:< gt:>
`),
  colon: ":",
};

export const LARGE = table(
  "sum:∑ prod:∏ coprod:∐ int:∫ iint:∬ iiint:∭ oint:∮ bigcup:⋃ bigcap:⋂ bigoplus:⨁ bigotimes:⨂ bigvee:⋁ bigwedge:⋀",
);

const NAMES =
  "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp lim max min sup inf det dim ker arg gcd deg Pr " +
  "hom limsup liminf argmax argmin";
export const FUNCTIONS = Object.fromEntries(
  NAMES.split(" ").map((name) => [name, name.replace(/^(lim)(sup|inf)$/, "lim $2").replace(/^arg(max|min)$/, "arg $1")]),
);

export const SPACES = {
  ",": "0.17em",
  ":": "0.22em",
  ";": "0.28em",
  "!": "-0.17em",
  " ": "0.33em",
  quad: "1em",
  qquad: "2em",
  "\\": "0.5em",
  thinspace: "0.17em",
  enspace: "0.5em",
  space: "0.33em",
};

export const ACCENTS = {
  hat: "^",
  widehat: "^",
  bar: "¯",
  overline: "¯",
  vec: "→",
  overrightarrow: "→",
  dot: "˙",
  ddot: "¨",
  tilde: "~",
  widetilde: "~",
  check: "ˇ",
  breve: "˘",
  acute: "´",
  grave: "`",
  underline: "_",
};

// Letters of another alphabet, where Unicode has them.
const shifted =
  (capital, small, digit, exceptions = {}) =>
  (letter) => {
    if (exceptions[letter]) return exceptions[letter];
    const code = letter.codePointAt(0);
    if (letter >= "A" && letter <= "Z" && letter.length === 1) return String.fromCodePoint(capital + code - 65);
    if (letter >= "a" && letter <= "z" && letter.length === 1) return String.fromCodePoint(small + code - 97);
    return digit && /^\d$/.test(letter) ? String.fromCodePoint(digit + code - 48) : letter;
  };
const bold = shifted(0x1d400, 0x1d41a, 0x1d7ce);
const plain = (letter) => letter;
const script = shifted(0x1d49c, 0x1d4b6, 0, { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" });
export const STYLES = {
  mathbb: shifted(0x1d538, 0x1d552, 0x1d7d8, { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" }),
  mathbf: bold,
  boldsymbol: bold,
  bm: bold,
  mathcal: script,
  mathscr: script,
  mathfrak: shifted(0x1d504, 0x1d51e, 0, { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" }),
  mathsf: shifted(0x1d5a0, 0x1d5ba, 0x1d7e2),
  mathtt: shifted(0x1d670, 0x1d68a, 0x1d7f6),
  mathrm: plain,
  mathit: plain,
  mathnormal: plain,
  text: "text",
  textbf: "text",
  textit: "text",
  textrm: "text",
  mbox: "text",
  texttt: "text",
};
