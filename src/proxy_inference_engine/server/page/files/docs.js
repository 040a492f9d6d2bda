// /openapi.json, read to a person: every route, every field with its meaning and what of it is refused.

import { element } from "./dom.js";

const MAX_DEPTH = 8;
const IDLE = /^(Accepted and without effect|Of the format)/; // what comes last
const METHODS = ["post", "get", "delete", "head"];
const $ = (id) => document.getElementById(id);

// A path may be broken after each slash.
const breakable = (path) => path.split(/(?<=\/)/).flatMap((part) => [part, document.createElement("wbr")]);
const idOf = (method, path) => `${method}-${path}`.replace(/[^a-z0-9]+/gi, "-").replace(/-+$/, "");
const named = (schema) => schema?.$ref?.split("/").pop() ?? null;

// The names of the objects that a field may hold.
function inside(schema) {
  if (!schema || typeof schema !== "object") return [];
  if (named(schema)) return [named(schema)];
  return [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), schema.items].flatMap(inside);
}

function kindOf(schema) {
  if (named(schema)) return named(schema);
  const parts = (schema.anyOf ?? schema.oneOf ?? []).filter((each) => each.type !== "null");
  if (parts.length) return [...new Set(parts.map(kindOf))].join(" | ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  return schema.type === "array" ? `list of ${kindOf(schema.items ?? {}) || "anything"}` : [schema.type ?? ""].flat().join(" | ");
}

class Page {
  constructor(document_) {
    this.document = document_;
    this.wanted = [];
    this.operations = Object.entries(document_.paths).flatMap(([path, methods]) =>
      METHODS.filter((method) => methods[method]).map((method) => ({ path, method, ...methods[method] })),
    );
  }

  schema(name) {
    return this.document.components.schemas[name];
  }

  // Names of all fields below a schema, for the search.
  words(name, seen = new Set()) {
    if (seen.has(name) || !this.schema(name)) return [];
    seen.add(name);
    return Object.entries(this.schema(name).properties ?? {}).flatMap(([field, schema]) => [
      field,
      ...inside(schema).flatMap((each) => this.words(each, seen)),
    ]);
  }

  table(name, depth, above) {
    const schema = this.schema(name);
    const needed = new Set(schema.required ?? []);
    const rank = ([field, each]) => (this.isWanted(field) ? -1 : needed.has(field) ? 0 : IDLE.test(each.description ?? "") ? 2 : 1);
    const sorted = Object.entries(schema.properties ?? {}).toSorted((a, b) => rank(a) - rank(b));
    const rows = sorted.map(([field, each]) => this.row(field, each, needed.has(field), depth, above));
    if (!rows.length) return element("p", { class: "quiet", textContent: "Anything." });
    return element(
      "table",
      { class: "properties" },
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "col", textContent: "field" }),
          element("th", { scope: "col", textContent: "meaning, and what is refused" }),
        ),
      ),
      element("tbody", {}, ...rows),
    );
  }

  row(field, schema, isNeeded, depth, above) {
    const marks = [];
    if (isNeeded) marks.push(element("span", { class: "needed", textContent: "needed" }));
    else if (schema.default !== undefined && !(typeof schema.default === "object"))
      marks.push(element("span", { class: "default", textContent: `default ${JSON.stringify(schema.default)}` }));
    const below = depth < MAX_DEPTH ? [...new Set(inside(schema))].filter((each) => this.schema(each) && !above.has(each)) : [];
    const refused =
      schema["x-refused"] && schema["x-refused"] !== "Nothing."
        ? element("div", { class: "refused" }, element("b", { textContent: "400 " }), schema["x-refused"])
        : null;
    return element(
      "tr",
      { class: this.isWanted(field) ? "wanted" : null },
      element("td", {}, field, ...marks),
      element("td", {}, schema.description ?? "", refused, ...below.map((each) => this.more(each, depth + 1, new Set([...above, each])))),
    );
  }

  // A field that is searched for comes first, and is marked.
  isWanted(field) {
    return this.wanted.some((word) => field.toLowerCase().includes(word));
  }

  // Objects inside objects are drawn when somebody opens them.
  more(name, depth, above) {
    const made = element("details", { class: "more" }, element("summary", { textContent: name }));
    made.addEventListener("toggle", () => made.open && made.childNodes.length === 1 && made.append(this.table(name, depth, above)));
    return made;
  }

  section(operation) {
    const body = named(operation.requestBody?.content["application/json"].schema);
    const parameters = operation.parameters.map((each) =>
      this.row(each.name, { description: each.description }, each.required, MAX_DEPTH, new Set()),
    );
    const answers = Object.entries(operation.responses)
      .filter(([code]) => code !== "200")
      .map(([code]) => code);
    const streams = operation.responses["200"].content["text/event-stream"];
    const chips = [
      operation["x-key"] === "public" ? "no key needed" : `${operation["x-key"]} key`,
      streams && "streams",
      answers.length && `errors ${answers.join(", ")}`,
    ].filter(Boolean);
    return element(
      "section",
      { class: "operation card", id: idOf(operation.method, operation.path) },
      element(
        "header",
        {},
        element(
          "h3",
          {},
          element("span", { class: `method ${operation.method.toUpperCase()}`, textContent: operation.method.toUpperCase() }),
          operation.path,
        ),
        ...chips.map((each) => element("span", { class: "chip", textContent: each })),
      ),
      element("p", { textContent: operation.summary }),
      parameters.length ? element("table", { class: "properties" }, element("tbody", {}, ...parameters)) : null,
      body ? this.body(body) : null,
    );
  }

  body(name) {
    const made = element("details", { class: "more" }, element("summary", { textContent: `The body: ${name}` }));
    made.addEventListener("toggle", () => made.open && made.childNodes.length === 1 && made.append(this.table(name, 0, new Set([name]))));
    return made;
  }

  // What is asked for: routes whose path, summary or fields have the words.
  found(words) {
    this.wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
    return this.operations.filter((each) => {
      const body = named(each.requestBody?.content["application/json"].schema);
      each.words ??= [each.path, each.summary, each.tags[0], ...(body ? this.words(body) : [])].join(" ").toLowerCase();
      return this.wanted.every((word) => each.words.includes(word));
    });
  }

  // The meaning of a field that is searched for is in sight at once; every other route has it a click away.
  openFirst(found) {
    const bodyOf = (each) => this.schema(named(each.requestBody?.content["application/json"].schema));
    const has = (each) => Object.keys(bodyOf(each)?.properties ?? {}).some((field) => this.isWanted(field));
    const first = found.find(has);
    if (first) document.getElementById(idOf(first.method, first.path)).querySelector(":scope > details").open = true;
  }

  show(words = "") {
    const found = this.found(words);
    const tags = this.document.tags.map((tag) => tag.name).filter((tag) => found.some((each) => each.tags[0] === tag));
    const link = (each) =>
      element(
        "a",
        { href: `#${idOf(each.method, each.path)}` },
        element("span", { class: `method ${each.method.toUpperCase()}`, textContent: each.method.toUpperCase() }),
        element("span", {}, ...breakable(each.path)),
      );
    $("routes").replaceChildren(
      ...tags.flatMap((tag) => [element("h2", { textContent: tag }), ...found.filter((each) => each.tags[0] === tag).map(link)]),
    );
    const head = [
      element("h2", { textContent: `${this.document.info.title} ${this.document.info.version}` }),
      element("p", { class: "quiet", textContent: this.document.info.description }),
    ];
    const sections = tags.flatMap((tag) => [
      element("h2", { textContent: tag }),
      ...found.filter((each) => each.tags[0] === tag).map((each) => this.section(each)),
    ]);
    $("view").replaceChildren(
      element(
        "div",
        { class: "docs" },
        ...(words ? [] : head),
        ...sections,
        found.length ? null : element("p", { class: "quiet", textContent: "Nothing has these words." }),
      ),
    );
    if (words) this.openFirst(found);
    $("status").textContent = words ? `${found.length} route${found.length === 1 ? "" : "s"}` : "";
  }
}

function openSide(isOpen) {
  $("side").classList.toggle("open", isOpen);
  $("menu").setAttribute("aria-expanded", String(isOpen));
}

// By whoever has opened it: what has the focus now is hidden.
function shutSide() {
  openSide(false);
  $("menu").focus();
}

function jump() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target?.classList.contains("operation")) return;
  target.scrollIntoView();
  const body = target.querySelector(":scope > details");
  if (body) body.open = true;
  for (const link of $("routes").querySelectorAll("a")) {
    if (link.hash === location.hash) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  openSide(false);
}

try {
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
  const page = new Page(await response.json());
  page.show();
  $("filter").addEventListener("input", () => page.show($("filter").value));
  $("menu").addEventListener("click", () => openSide(true));
  $("scrim").addEventListener("click", shutSide);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && $("side").classList.contains("open")) shutSide();
    if (event.key !== "/" || event.target.matches("input")) return;
    event.preventDefault();
    $("filter").focus();
  });
  window.addEventListener("hashchange", jump);
  jump();
} catch (error) {
  $("status").textContent = `The description could not be read: ${error.message}`;
  $("status").classList.add("error");
}
