// The prefix cache, drawn: every text runs from left to right, and what several share is drawn once, as high as they are
// many. The longer a piece, the wider; the more often it was found, the stronger its colour.

import { element, svg } from "./dom.js";
import { bytes, count } from "./measures.js";

const ROW = 22;
const WIDTH = 900;
const MAX_HEIGHT = 900;
const COLOURS = 6;

// Long prompts would leave nothing of short ones: places grow with the root of the tokens.
const scale = (tokens) => Math.sqrt(tokens);

function place(nodes) {
  const children = new Map(nodes.map((node) => [node.id, []]));
  const roots = [];
  for (const node of nodes) (node.parent === null ? roots : children.get(node.parent)).push(node);
  const end = Math.max(1, ...nodes.map((node) => scale(node.start + node.tokens)));
  const placed = [];
  let next = 0;
  const put = (node) => {
    const top = next;
    for (const child of children.get(node.id)) put(child);
    if (next === top) next += 1;
    const left = (scale(node.start) / end) * WIDTH;
    placed.push({ node, left, width: (scale(node.start + node.tokens) / end) * WIDTH - left, top, rows: next - top });
  };
  roots.sort((a, b) => a.key.localeCompare(b.key)).forEach(put);
  return { placed, num: next };
}

const words = (node) =>
  [
    `${count(node.tokens)} tokens from place ${count(node.start)}, ${bytes(node.bytes)}`,
    node.hits ? `found ${count(node.hits)} times: ${count(node.hits * node.tokens)} tokens not computed again` : "not found again yet",
    node.texts > 1 ? `shared by ${node.texts} texts` : "of one text",
    `key ${node.key}`,
  ].join(" · ");

// What its text begins with, or how much it is, in as many words as have room.
function labelOf(node, chars) {
  if (node.text) return node.text.replace(/\s+/g, " ").slice(0, chars);
  const tokens = `${count(node.tokens)} tokens`;
  const all = node.texts > 1 ? `${tokens} · ${node.texts} texts` : tokens;
  return [all, tokens].find((each) => each.length <= chars) ?? count(node.tokens);
}

function block({ node, left, width, top, rows }, height, colour, show) {
  const strength = node.hits ? Math.min(0.45, 0.2 + Math.log10(1 + node.hits) / 8) : 0.1; // its words stay readable
  const rect = svg("rect", {
    x: left + 1,
    y: top * height + 1,
    width: Math.max(2, width - 2),
    height: Math.max(2, rows * height - 2),
    rx: 3,
    class: `block key-${colour}`,
    "fill-opacity": strength.toFixed(2),
    tabindex: 0,
    role: "listitem",
    "aria-label": words(node),
  });
  const made = svg("g", {}, rect);
  if (width > 60 && rows * height >= 16) {
    const chars = Math.floor((width - 12) / 6.5);
    const label = svg("text", { x: left + 8, y: top * height + Math.min(rows * height, 22) / 2 + 4 });
    label.textContent = labelOf(node, chars);
    made.append(label);
  }
  rect.addEventListener("pointerenter", () => show(node));
  rect.addEventListener("focus", () => show(node));
  return made;
}

export function treeElement() {
  const told = element("p", { class: "quiet tree-told", role: "status" });
  const place_ = element("div", { class: "tree-place" });
  const head = element("p", { class: "quiet" });
  let shownId = null;

  const show = (node) => {
    shownId = node.id;
    told.textContent = (node.text ? `“${node.text.replace(/\s+/g, " ")}…” · ` : "") + words(node);
  };

  function update(cache) {
    const shared = cache.nodes.filter((node) => node.texts > 1).reduce((total, node) => total + node.tokens, 0);
    const saved = cache.nodes.reduce((total, node) => total + node.hits * node.tokens, 0);
    head.textContent = `${count(cache.tokens)} tokens in ${bytes(cache.bytes)} of ${bytes(cache.max_bytes)}; ${count(shared)} of them shared, ${count(saved)} not computed again${cache.num_nodes > cache.nodes.length ? `; the ${cache.nodes.length} newest of ${count(cache.num_nodes)} pieces` : ""}`;
    if (!cache.nodes.length) {
      place_.replaceChildren(
        element("p", { class: "quiet empty-tree", textContent: "The prefix cache is empty. Ask something, and ask it again." }),
      );
      return;
    }
    const { placed, num } = place(cache.nodes);
    const height = Math.max(4, Math.min(ROW, MAX_HEIGHT / num));
    const keys = [...new Set(cache.nodes.map((node) => node.key))].sort();
    const had = document.activeElement?.closest?.(".tree-place") ? shownId : null;
    const blocks = placed.map((each) => block(each, height, keys.indexOf(each.node.key) % COLOURS, show));
    const picture = svg(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${num * height}`,
        role: "list",
        "aria-label": "Pieces of the prefix cache",
        preserveAspectRatio: "xMinYMin meet",
      },
      ...blocks,
    );
    place_.replaceChildren(picture);
    if (had !== null) placed.forEach((each, index) => each.node.id === had && blocks[index].firstChild.focus());
  }

  return { element: element("div", { class: "tree" }, head, place_, told), update };
}
