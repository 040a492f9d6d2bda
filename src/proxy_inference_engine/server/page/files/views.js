// The views of the page, in the order of the side bar. Each is a module of its own, loaded when it is opened, or once the first one is.
// It exports `mount(root, context)`, which fills `root` and returns a function that undoes what outlives its nodes.

export const VIEWS = [
  { name: "chat", title: "Chat", key: "1", load: () => import("./chat.js") },
  { name: "compare", title: "Compare", key: "2", load: () => import("./compare.js") },
  { name: "tools", title: "Tools", key: "3", load: () => import("./tools.js") },
  { name: "structure", title: "Structure", key: "4", load: () => import("./structure.js") },
  { name: "models", title: "Models", key: "5", load: () => import("./models.js") },
  { name: "dashboard", title: "Dashboard", key: "6", load: () => import("./dashboard.js") },
];
