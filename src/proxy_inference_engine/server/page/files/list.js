// The conversations, in the side bar: search, open, rename, delete, export, import.

import { dialog, download, element, icon, iconButton } from "./dom.js";
import * as talks from "./talks.js";

function rename(talk, chat) {
  const box = element("input", { value: talks.title(talk), maxLength: 200, "aria-label": "Name of the conversation" });
  const form = element(
    "form",
    { class: "stack" },
    box,
    element(
      "div",
      { class: "row end" },
      element("button", { type: "button", class: "danger", textContent: "Delete", onclick: () => (made.close(), chat.remove(talk)) }),
      element("button", {
        type: "button",
        textContent: "Export",
        onclick: async () => download("conversation.json", await talks.exported([talk])),
      }),
      element("button", { class: "primary", textContent: "Rename" }),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    await talks.rename(talk, box.value.trim());
    made.close();
    chat.showList();
  });
  const made = dialog("Conversation", form);
  box.select();
}

export function talkList(chat) {
  const { context } = chat;
  const search = element("input", { id: "search", type: "search", placeholder: "Search conversations", "aria-label": "Search conversations" });
  const rows = element("ul", { id: "talks" });
  const none = element("p", { class: "quiet", role: "status" });
  const file = element("input", { id: "import", type: "file", accept: "application/json,.json", "aria-label": "Import conversations" });

  function show() {
    rows.replaceChildren(
      ...talks.matching(search.value.trim()).map((talk) =>
        element(
          "li",
          { "aria-current": talk === chat.talk ? "true" : null },
          element("button", { type: "button", class: "title", textContent: talks.title(talk), onclick: () => chat.open(talk.id) }),
          iconButton("more", `Rename, export or delete ${talks.title(talk)}`, () => rename(talk, chat)),
        ),
      ),
    );
    none.textContent = search.value.trim() ? "Nothing was found." : "";
  }

  search.addEventListener("input", show);
  file.addEventListener("change", async () => {
    try {
      const count = await talks.imported(await file.files[0].text());
      context.say(count === 1 ? "1 conversation imported." : `${count} conversations imported.`);
    } catch (error) {
      context.say(`This file cannot be read: ${error.message}`, true);
    }
    file.value = "";
    show();
  });
  context.side.replaceChildren(
    element(
      "div",
      { class: "row tight" },
      element(
        "button",
        { id: "new", type: "button", class: "grow", title: "New conversation (Alt+N)", onclick: () => chat.open(null) },
        icon("plus"),
        "New conversation",
      ),
    ),
    search,
    element("nav", { "aria-label": "Conversations" }, rows, none),
    element(
      "div",
      { class: "row tight" },
      element(
        "button",
        { id: "export", type: "button", class: "plain small", onclick: async () => download("conversations.json", await talks.exported()) },
        icon("download"),
        "Export",
      ),
      element("label", { class: "button plain small" }, icon("upload"), "Import", file),
    ),
  );
  return { show, focus: () => search.focus() };
}
