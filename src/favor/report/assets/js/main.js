// Opening the page: take over the address, draw everything, and listen.

const isDark = () => (state.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";

function applyTheme() {
  if (state.theme === null) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = state.theme;
  const other = isDark() ? "light" : "dark";
  byId("theme").textContent = isDark() ? "☀" : "☾";
  byId("theme").setAttribute("aria-label", `Change to the ${other} theme`);
}

function toggleTheme() {
  state.theme = isDark() ? "light" : "dark";
  saveState();
  applyTheme();
  redrawCharts();
}

// Take over a view. A fragment without "=" names a section and no view.
function openView(fragment) {
  const strange = fragment.includes("=") ? decodeState(fragment) : [];
  byId("strange").hidden = !strange.length;
  byId("strange").textContent = `This page does not have what the link asks for: ${strange.join(", ")}`;
  applyTheme();
  drawControls();
  drawExplorer();
  drawFavor();
  drawTable();
}

// Jumping to a section must not overwrite the view in the address.
function jump(event) {
  const target = byId(event.currentTarget.getAttribute("href").slice(1));
  event.preventDefault();
  target.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  target.focus({ preventScroll: true });
}

setUpExplorer();
setUpFavor();
setUpTable();
setUpFigures();
setUpDownloads();
openView(location.hash.slice(1));
byId("theme").addEventListener("click", toggleTheme);
document.querySelectorAll("a.jump").forEach((link) => link.addEventListener("click", jump));
window.addEventListener("hashchange", () => location.hash.includes("=") && openView(location.hash.slice(1)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  applyTheme();
  redrawCharts();
});
document.documentElement.dataset.ready = "";
performance.mark("ready");
// For the browser's console, and for tests.
window.favor = {
  openView,
  decide,
  chancesOf,
  chancesOnFront,
  verdictOf,
  reasons,
  paretoFront,
  csvOf,
  formatOutward,
  formatQuantity,
  questionNow,
  valuesOf: (metric) => [...numbersOf(current(metric))],
  models: MODELS,
  plot,
};
