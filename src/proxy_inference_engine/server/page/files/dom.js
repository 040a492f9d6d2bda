// Elements made one by one. There is no other way in this page from a string to a node, so no text is ever markup.

const SVG = "http://www.w3.org/2000/svg";

const ATTRIBUTES = new Set(["class", "for", "role", "list"]); // and whatever has a dash

// Properties are set as they are, `onclick` and the like listen, attributes are attributes; null and false are left out.
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [property, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (property.startsWith("on")) made.addEventListener(property.slice(2), value);
    else if (ATTRIBUTES.has(property) || property.includes("-")) made.setAttribute(property, value);
    else made[property] = value;
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...children);
  return made;
}

const PATHS = {
  chat: "M4 5h16v11H9l-5 4z",
  compare: "M4 5h7v14H4zM13 5h7v14h-7z",
  tools: "M14 6a4 4 0 0 0 5 5l-8.5 8.5a2.1 2.1 0 0 1-3-3L16 8M14 6l2-2a4 4 0 0 1 4 4l-1 1",
  structure: "M9 4c-3 0-3 2-3 4s0 4-3 4c3 0 3 2 3 4s0 4 3 4M15 4c3 0 3 2 3 4s0 4 3 4c-3 0-3 2-3 4s0 4-3 4",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  dashboard: "M4 20V4M4 20h16M8 16v-5M12 16V7M16 16v-3",
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  again: "M20 11a8 8 0 1 0-2 6M20 5v6h-6",
  before: "M15 5l-7 7 7 7",
  next: "M9 5l7 7-7 7",
  picture: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9.5a.5.5 0 1 1 1 0 .5.5 0 1 1-1 0",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  code: "M9 7l-5 5 5 5M15 7l5 5-5 5",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  key: "M12 15.5a4 4 0 1 1-8 0 4 4 0 0 1 8 0M10.8 12.7L20 3.5M16.5 7l3 3M13.5 10l2 2",
  help: "M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 17.5v.5",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  upload: "M12 20V9M7 13l5-5 5 5M5 4h14",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  play: "M8 5l11 7-11 7z",
  check: "M5 12.5l5 5L19 7",
  pin: "M9 4h6l-1 6 3 3H7l3-3zM12 13v7",
  search: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13M15.5 15.5L20 20",
};

export function icon(name) {
  const drawn = svg("path", { d: PATHS[name] });
  return svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, drawn);
}

// A button that shows an icon and is called `label`.
export function iconButton(name, label, onclick, properties = {}) {
  return element("button", { type: "button", class: "icon-button", title: label, "aria-label": label, onclick, ...properties }, icon(name));
}

export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

// Over plain http from another machine there is no clipboard to write to; what is selected can still be copied.
function copySelected(text) {
  const box = element("textarea", { value: text, class: "skip" });
  (document.querySelector("dialog[open]") ?? document.body).append(box);
  box.select();
  const isCopied = document.execCommand("copy");
  box.remove();
  return isCopied;
}

export async function copy(text, say) {
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  if (isCopied || copySelected(text)) say("Copied.");
  else say("This browser does not let the page copy.", true);
}

export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// A dialog that is gone when it is closed.
export function dialog(title, ...content) {
  const close = iconButton("close", "Close", () => made.close());
  const made = element("dialog", { "aria-label": title }, element("header", {}, element("h2", { textContent: title }), close), ...content);
  made.addEventListener("close", () => made.remove());
  made.addEventListener("click", (event) => event.target === made && made.close());
  document.body.append(made);
  made.showModal();
  made.querySelector("textarea, input:not([type=file]), select")?.focus(); // before the button that closes it
  return made;
}

// As high as what is written in it, up to two fifths of the window: also once it is shown, and when it gets narrower.
export function growing(box) {
  const grow = () => {
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight + 2, innerHeight * 0.4)}px`;
  };
  let width = 0;
  const watch = new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width === width) return;
    width = contentRect.width;
    grow();
  });
  watch.observe(box);
  box.addEventListener("input", grow);
  return grow;
}
