// Pictures that a person adds to a question: read, checked, and kept beside the conversation.

import { database } from "./database.js";
import { element } from "./dom.js";

const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const MAX_BYTES = 10 * 1024 * 1024; // what the server takes

const read = (file) =>
  new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(new Error(`${file.name} could not be read.`));
    reader.readAsDataURL(file);
  });

// { id, name }; what it shows is kept under the id.
export async function keep(file) {
  if (!TYPES.includes(file.type)) throw new Error(`${file.name || "This"} is not a PNG, JPEG, WebP or GIF picture.`);
  if (file.size > MAX_BYTES) throw new Error(`${file.name} has more than 10 MiB.`);
  const id = crypto.randomUUID?.() ?? String(Math.random()).slice(2);
  await (await database()).put("pictures", await read(file), id);
  return { id, name: file.name || "picture" };
}

export const forget = async (picture) => (await database()).remove("pictures", picture.id);

export const address = async (id) => (await database()).get("pictures", id);

export function thumbnail(picture) {
  const shown = element("img", { alt: picture.name ?? "picture", class: "picture", loading: "lazy" });
  address(picture.id).then((url) => {
    if (url) shown.src = url;
    else shown.replaceWith(element("span", { class: "chip", textContent: `${picture.name ?? "picture"} (no longer here)` }));
  });
  return shown;
}
