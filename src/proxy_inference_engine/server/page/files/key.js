// The API key: asked for once, in a dialog, and kept in this browser. Never in an address, and not readable on the
// disk where the browser can encrypt: the key of that cipher never leaves the browser's own store.

import { database, small } from "./database.js";
import { dialog, element } from "./dom.js";

const PLACE = "pie.key";
let known = null;
let asking = null;

async function cipher() {
  const store = await database();
  let made = await store.get("secrets", "cipher");
  if (!made) {
    made = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);
    await store.put("secrets", made, "cipher");
  }
  return made;
}

const canEncrypt = () => Boolean(globalThis.crypto?.subtle && globalThis.indexedDB);

async function read() {
  if (!canEncrypt()) return small.get(PLACE) ?? "";
  const kept = await (await database()).get("secrets", "key");
  if (!kept) return "";
  const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv: kept.iv }, await cipher(), kept.data);
  return new TextDecoder().decode(plain);
}

async function write(value) {
  if (!canEncrypt()) return small.set(PLACE, value);
  const store = await database();
  if (!value) return store.remove("secrets", "key");
  const iv = crypto.getRandomValues(new Uint8Array(12));
  const data = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, await cipher(), new TextEncoder().encode(value));
  return store.put("secrets", { iv, data }, "key");
}

export const key = {
  get() {
    known ??= read().catch(() => "");
    return known;
  },
  async set(value) {
    known = Promise.resolve(value);
    await write(value).catch(() => {}); // a browser that keeps nothing forgets it with the page
  },
};

// Whether one was given. Whoever asks while somebody is being asked gets the same answer.
export function askForKey(reason) {
  asking ??= ask(reason).finally(() => (asking = null));
  return asking;
}

async function ask(reason) {
  const box = element("input", { id: "key", type: "password", autocomplete: "off", value: await key.get() });
  const form = element(
    "form",
    { class: "stack" },
    element("p", { textContent: reason }),
    element("label", { for: "key" }, "API key ", element("small", { textContent: "kept in this browser; empty: none" })),
    box,
    element("div", { class: "row end" }, element("button", { class: "primary", textContent: "Use it" })),
  );
  const made = dialog("API key", form);
  box.focus();
  return new Promise((done) => {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      await key.set(box.value.trim());
      done(true);
      made.close();
    });
    made.addEventListener("close", () => done(false));
  });
}
