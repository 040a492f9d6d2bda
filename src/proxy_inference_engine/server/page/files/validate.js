// A small validator of JSON Schema, so that the page proves for itself what the server promised.
// It checks what it knows, and names what it does not.

const ANNOTATIONS = new Set(
  "$schema $id $defs definitions $comment title description default examples deprecated readOnly writeOnly format contentMediaType contentEncoding".split(
    " ",
  ),
);
const MAX_DEPTH = 60;

const kindOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value === "object" ? "object" : typeof value);
const isKind = (value, kind) => (kind === "integer" ? Number.isInteger(value) : kindOf(value) === kind);
const same = (a, b) => canonical(a) === canonical(b);

function canonical(value) {
  if (kindOf(value) === "object")
    return `{${Object.keys(value)
      .sort()
      .map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`)
      .join()}}`;
  return kindOf(value) === "array" ? `[${value.map(canonical).join()}]` : JSON.stringify(value);
}

// { problems: [{ path, message }], unknown: [keyword] }
export function validate(schema, value) {
  const found = { problems: [], unknown: new Set() };
  check({ root: schema, ...found, depth: 0 }, schema, value, "");
  return { problems: found.problems, unknown: [...found.unknown] };
}

const passes = (run, schema, value) => {
  const tried = { ...run, problems: [], depth: run.depth + 1 };
  check(tried, schema, value, "");
  return tried.problems.length === 0;
};

function lookUp(root, reference) {
  let place = root;
  for (const part of reference.slice(1).split("/").filter(Boolean)) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof place !== "object" || place === null || !Object.hasOwn(place, name)) return null;
    place = place[name];
  }
  return place;
}

function check(run, schema, value, path) {
  if (schema === true || run.depth > MAX_DEPTH) return;
  const say = (message) => run.problems.push({ path: path || "/", message });
  if (schema === false) return void say("nothing may be here");
  for (const [keyword, wanted] of Object.entries(schema)) {
    if (ANNOTATIONS.has(keyword)) continue;
    const rule = RULES[keyword];
    if (rule) rule({ run: { ...run, depth: run.depth + 1 }, schema, wanted, value, path, say });
    else run.unknown.add(keyword);
  }
}

const ofKind = (kind, rule) => (each) => isKind(each.value, kind) && rule(each);
const bound = (kind, measure, holds, words) =>
  ofKind(kind, ({ value, wanted, say }) => holds(measure(value), wanted) || say(`${words} ${wanted}`));
const chars = (value) => [...value].length;
const names = (value) => Object.keys(value).length;

const RULES = {
  type: ({ value, wanted, say }) => [wanted].flat().some((kind) => isKind(value, kind)) || say(`it is no ${[wanted].flat().join(" or ")}`),
  enum: ({ value, wanted, say }) => wanted.some((each) => same(each, value)) || say("it is none of the values allowed"),
  const: ({ value, wanted, say }) => same(wanted, value) || say(`it is not ${JSON.stringify(wanted)}`),
  minimum: bound(
    "number",
    (value) => value,
    (a, b) => a >= b,
    "it is less than",
  ),
  maximum: bound(
    "number",
    (value) => value,
    (a, b) => a <= b,
    "it is more than",
  ),
  exclusiveMinimum: bound(
    "number",
    (value) => value,
    (a, b) => a > b,
    "it is not more than",
  ),
  exclusiveMaximum: bound(
    "number",
    (value) => value,
    (a, b) => a < b,
    "it is not less than",
  ),
  multipleOf: ofKind(
    "number",
    ({ value, wanted, say }) => Math.abs(value / wanted - Math.round(value / wanted)) < 1e-9 || say(`it is no multiple of ${wanted}`),
  ),
  minLength: bound("string", chars, (a, b) => a >= b, "it has fewer characters than"),
  maxLength: bound("string", chars, (a, b) => a <= b, "it has more characters than"),
  pattern: ofKind("string", ({ value, wanted, say, run }) => {
    try {
      if (!new RegExp(wanted, "u").test(value)) say(`it does not match ${wanted}`);
    } catch {
      run.unknown.add("pattern");
    }
  }),
  minItems: bound(
    "array",
    (value) => value.length,
    (a, b) => a >= b,
    "it has fewer items than",
  ),
  maxItems: bound(
    "array",
    (value) => value.length,
    (a, b) => a <= b,
    "it has more items than",
  ),
  uniqueItems: ofKind(
    "array",
    ({ value, wanted, say }) => !wanted || new Set(value.map(canonical)).size === value.length || say("an item comes twice"),
  ),
  prefixItems: ofKind("array", ({ run, value, wanted, path }) =>
    wanted.forEach((each, index) => index < value.length && check(run, each, value[index], `${path}/${index}`)),
  ),
  items: ofKind("array", ({ run, schema, value, wanted, path }) =>
    value.forEach((each, index) => index >= (schema.prefixItems?.length ?? 0) && check(run, wanted, each, `${path}/${index}`)),
  ),
  contains: ofKind("array", ({ run, schema, value, wanted, say }) => {
    const count = value.filter((each) => passes(run, wanted, each)).length;
    if (count < (schema.minContains ?? 1) || count > (schema.maxContains ?? Infinity)) say("it has not as many such items as it should");
  }),
  minContains: () => {},
  maxContains: () => {},
  required: ofKind("object", ({ value, wanted, say }) => wanted.forEach((name) => Object.hasOwn(value, name) || say(`${name} is missing`))),
  properties: ofKind("object", ({ run, value, wanted, path }) =>
    Object.entries(wanted).forEach(([name, each]) => Object.hasOwn(value, name) && check(run, each, value[name], `${path}/${name}`)),
  ),
  patternProperties: ofKind("object", ({ run, value, wanted, path }) =>
    Object.entries(wanted).forEach(([pattern, each]) =>
      Object.keys(value).forEach((name) => new RegExp(pattern, "u").test(name) && check(run, each, value[name], `${path}/${name}`)),
    ),
  ),
  additionalProperties: ofKind("object", ({ run, schema, value, wanted, path }) => {
    const patterns = Object.keys(schema.patternProperties ?? {}).map((pattern) => new RegExp(pattern, "u"));
    const others = Object.keys(value).filter(
      (name) => !Object.hasOwn(schema.properties ?? {}, name) && !patterns.some((each) => each.test(name)),
    );
    others.forEach((name) => check(run, wanted, value[name], `${path}/${name}`));
  }),
  propertyNames: ofKind("object", ({ run, value, wanted, path }) =>
    Object.keys(value).forEach((name) => check(run, wanted, name, `${path}/${name}`)),
  ),
  minProperties: bound("object", names, (a, b) => a >= b, "it has fewer properties than"),
  maxProperties: bound("object", names, (a, b) => a <= b, "it has more properties than"),
  dependentRequired: ofKind("object", ({ value, wanted, say }) =>
    Object.entries(wanted).forEach(
      ([name, needed]) =>
        Object.hasOwn(value, name) && needed.forEach((each) => Object.hasOwn(value, each) || say(`${each} is missing beside ${name}`)),
    ),
  ),
  allOf: ({ run, value, wanted, path }) => wanted.forEach((each) => check(run, each, value, path)),
  anyOf: ({ run, value, wanted, say }) => wanted.some((each) => passes(run, each, value)) || say("it is none of the alternatives"),
  oneOf: ({ run, value, wanted, say }) =>
    wanted.filter((each) => passes(run, each, value)).length === 1 || say("it is not exactly one of the alternatives"),
  not: ({ run, value, wanted, say }) => passes(run, wanted, value) && say("it is what it must not be"),
  if: ({ run, schema, value, wanted, path }) => check(run, (passes(run, wanted, value) ? schema.then : schema.else) ?? true, value, path),
  then: () => {},
  else: () => {},
  $ref: ({ run, value, wanted, path, say }) => {
    const found = wanted.startsWith("#") ? lookUp(run.root, wanted) : null;
    if (found === null) say(`${wanted} leads nowhere`);
    else check(run, found, value, path);
  },
};
