// A small plot that moves: lines over the last minutes, a scale that fits, the values under the pointer.

import { element, svg } from "./dom.js";

const WIDTH = 320;
const HEIGHT = 96;
export const POINTS = 180;
const STEPS = [1, 2, 2.5, 5, 10];

// The next round number: what a scale ends with.
export function rounded(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return STEPS.map((step) => step * power).find((each) => each >= value - 1e-12) ?? 10 * power;
}

// `lines`: [{ name, kind }]; kinds are colours of the style sheet. `format` writes a value; `max` is a scale's own end.
export function plot({ title, about, lines, format, max = null }) {
  const data = lines.map(() => []);
  const paths = lines.map((line, index) => [
    svg("path", { class: `area ${line.kind}` }),
    svg("path", { class: `line ${line.kind}`, "data-line": index }),
  ]);
  const cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, x1: -9, x2: -9 });
  const top = element("span", { class: "scale", "aria-hidden": "true" });
  const grid = [0.5, 1].map((share) =>
    svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: HEIGHT * share - 0.5, y2: HEIGHT * share - 0.5 }),
  );
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title },
    ...grid,
    ...paths.flat(),
    cursor,
  );
  const values = lines.map((line) =>
    element("span", { class: `value ${line.kind}` }, element("b", { textContent: "–" }), element("small", { textContent: line.name })),
  );
  const made = element(
    "figure",
    { class: "plot card" },
    element("figcaption", { title: about }, element("h3", { textContent: title }), element("span", { class: "values" }, ...values)),
    element("div", { class: "drawing" }, picture, top),
  );
  let pointed = null;

  const last = (points) => points.findLast((each) => each !== null) ?? null;
  const x = (index, length) => WIDTH - (length - 1 - index) * (WIDTH / (POINTS - 1));

  // Moments at which nothing was measured are passed over.
  function trace(points, end) {
    const places = points.flatMap((value, index) =>
      value === null ? [] : [[x(index, points.length).toFixed(1), (HEIGHT - 2 - (Math.min(value, end) / end) * (HEIGHT - 8)).toFixed(1)]],
    );
    if (!places.length) return { line: "", area: "" };
    const line = `M${places.map((place) => place.join(" ")).join("L")}${places.length === 1 ? "h.1" : ""}`;
    return { line, area: `${line}L${places.at(-1)[0]} ${HEIGHT}L${places[0][0]} ${HEIGHT}Z` };
  }

  function draw() {
    const end = max?.() || rounded(Math.max(0, ...data.flat().filter((each) => each !== null)));
    data.forEach((points, index) => {
      const { line, area } = trace(points, end);
      paths[index][0].setAttribute("d", area);
      paths[index][1].setAttribute("d", line);
    });
    top.textContent = format(end);
    const at = pointed === null ? null : Math.round((pointed * WIDTH - x(0, data[0].length)) / (WIDTH / (POINTS - 1)));
    const isInside = at !== null && at >= 0 && at < data[0].length;
    cursor.setAttribute("x1", isInside ? x(at, data[0].length) : -9);
    cursor.setAttribute("x2", isInside ? x(at, data[0].length) : -9);
    values.forEach((value, index) => {
      const shown = isInside ? data[index][at] : last(data[index].slice(-30));
      value.firstChild.textContent = shown === null || shown === undefined ? "–" : format(shown);
    });
    picture.setAttribute(
      "aria-label",
      `${title}: ${lines.map((line, index) => `${line.name} ${values[index].firstChild.textContent}`).join(", ")}`,
    );
  }

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    pointed = (event.clientX - box.left) / box.width;
    draw();
  });
  picture.addEventListener("pointerleave", () => {
    pointed = null;
    draw();
  });
  return {
    element: made,
    add(...next) {
      next.forEach((value, index) => {
        data[index].push(Number.isFinite(value) ? value : null);
        if (data[index].length > POINTS) data[index].shift();
      });
      draw();
    },
  };
}
