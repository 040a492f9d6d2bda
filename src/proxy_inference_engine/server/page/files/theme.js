// Runs before the first paint: whoever chose light or dark never sees the other one flash.
try {
  const chosen = localStorage.getItem("pie.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing shows what the system wants.
}
