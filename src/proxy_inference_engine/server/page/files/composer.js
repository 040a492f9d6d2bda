// Where a question is written: text, and pictures by choice, drop or paste.

import { element, growing, icon, iconButton } from "./dom.js";
import { forget, keep, thumbnail } from "./pictures.js";

let draft = ""; // what was being written when another view was opened

export function composer(chat) {
  const { context } = chat;
  let pictures = [];
  let reading = Promise.resolve(); // of the pictures that were added last
  const box = element("textarea", { id: "question", rows: 1, value: draft, placeholder: "Ask something", "aria-label": "Question" });
  const shown = element("div", { class: "row attached", hidden: true });
  const file = element("input", {
    type: "file",
    accept: "image/png,image/jpeg,image/webp,image/gif",
    multiple: true,
    "aria-label": "Add a picture",
    id: "picture",
  });
  const send = element("button", { id: "send", class: "primary" });
  const probabilities = element("button", {
    type: "button",
    class: "plain small",
    title: "Ask for each token's probability and what else could have come",
    textContent: "Probabilities",
  });
  const bar = element(
    "div",
    { class: "composer-bar" },
    element("label", { class: "button icon-button", title: "Add a picture" }, icon("picture"), file),
    probabilities,
    element("span", { class: "grow" }),
    send,
  );
  const form = element("form", { id: "ask" }, shown, box, bar);

  function showPictures() {
    shown.hidden = !pictures.length;
    shown.replaceChildren(
      ...pictures.map((picture) =>
        element(
          "figure",
          {},
          thumbnail(picture),
          iconButton("close", `Remove ${picture.name}`, () => {
            pictures = pictures.filter((each) => each !== picture);
            forget(picture);
            showPictures();
          }),
        ),
      ),
    );
  }

  const add = (files) => (reading = reading.then(() => read(files)));

  async function read(files) {
    for (const each of files) {
      try {
        pictures.push(await keep(each));
      } catch (error) {
        context.say(error.message, true);
      }
    }
    showPictures();
  }

  function showState() {
    const isRunning = Boolean(chat.running);
    send.replaceChildren(icon(isRunning ? "stop" : "send"), isRunning ? "Stop" : "Send");
    probabilities.setAttribute("aria-pressed", String(Boolean(chat.settings.get("probabilities"))));
  }

  async function submit() {
    if (chat.running) return chat.stop();
    await reading; // so that a picture goes with the question it was added to
    const [text, with_] = [box.value, pictures];
    if (!text.trim() && !with_.length) return box.focus();
    box.value = draft = "";
    pictures = [];
    showPictures();
    grow();
    return chat.ask(text, with_);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  const grow = growing(box);
  box.addEventListener("input", () => (draft = box.value));
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!chat.isBusy()) submit();
  });
  box.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    add(files);
  });
  form.addEventListener("dragover", (event) => event.preventDefault());
  file.addEventListener("change", async () => {
    await add([...file.files]);
    file.value = "";
  });
  probabilities.addEventListener("click", () => {
    chat.settings.set("probabilities", !chat.settings.get("probabilities"));
    showState();
  });
  return {
    element: form,
    add,
    showState,
    focus: () => matchMedia("(pointer: coarse)").matches || box.focus(), // a touch screen would show its keyboard
    get text() {
      return box.value;
    },
  };
}
