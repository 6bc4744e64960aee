// The explorer: any two indicators against each other, and the front of those models that the reader leaves in.

const EDGE = { top: 34, right: 18, bottom: 48, left: 62 };
const REACH = 22; // pixels around a point in which the pointer means it
const MOST_LABELS = 24;
const MOST_COVERED = 2; // a name over more points than this hides more than it tells
const MOST_WHISKERS = 120; // beyond, only those of the front are drawn
const CROWD = 400; // points that need smaller markers
const plot = { points: [], shown: [], byX: [], byY: [], places: new Map(), current: null, card: null };

function setUpExplorer() {
  byId("panel").open = matchMedia("(min-width: 861px)").matches;
  const svg = byId("plot");
  plot.layers = Object.fromEntries(
    ["grid", "front", "whiskers", "points", "labels"].map((name) => [name, makeSvg("g", { class: name })]),
  );
  svg.append(...Object.values(plot.layers));
  svg.addEventListener("pointermove", (event) => showCard(nearest(event)));
  // A finger leaves with every tap, and its card is to stay.
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && showCard(document.activeElement?.dataset?.model ?? null));
  svg.addEventListener("click", (event) => {
    const row = nearest(event);
    toggleKept(row);
    showCard(row);
  });
  // Not on the picture itself: browsers let an SVG element that listens for keys take the focus.
  const box = byId("plot-box");
  box.addEventListener("keydown", onPlotKey);
  box.addEventListener("focusin", (event) => showCard(event.target.dataset.model ?? null));
  box.addEventListener("focusout", () => showCard(null));
  byId("x").addEventListener("change", (event) => chooseAxis("x", event.target.value));
  byId("y").addEventListener("change", (event) => chooseAxis("y", event.target.value));
  byId("swap").addEventListener("click", () => change(() => ([state.x, state.y] = [state.y, state.x])));
  byId("accuracy").addEventListener("change", (event) => change(() => (state.accuracy = Number(event.target.value))));
  byId("setting").addEventListener("change", (event) => change(() => (state.setting = Number(event.target.value))));
  byId("from").addEventListener("change", (event) => change(() => (state.from = Number(event.target.value) || null)));
  byId("to").addEventListener("change", (event) => change(() => (state.to = Number(event.target.value) || null)));
  byId("more-limits").addEventListener("change", (event) => addLimit(event.target.value));
  byId("front-box").addEventListener("toggle", drawFrontList);
  byId("reset").addEventListener("click", () => change(resetFilters));
  new ResizeObserver(drawExplorer).observe(box);
}

// A choice of the reader: remember it, and show what follows from it.
function change(choose) {
  const before = [state.accuracy, state.setting].join();
  choose();
  saveState();
  drawControls();
  drawExplorer();
  if ([state.accuracy, state.setting].join() !== before) drawTable();
}

// A metric that has no number in the setting is shown in the first setting that has one.
function chooseAxis(axis, metric) {
  change(() => {
    const other = axis === "x" ? "y" : "x";
    if (state[other] === metric) state[other] = state[axis];
    state[axis] = metric;
    if (columnOf(metric, state.accuracy, state.setting) === null) {
      const setting = DATA.settings.findIndex((view) => Object.hasOwn(view.columns, metric));
      const accuracy = DATA.accuracies.findIndex((view) => Object.hasOwn(view.columns, metric));
      if (setting >= 0) state.setting = setting;
      else if (accuracy >= 0) state.accuracy = accuracy;
    }
  });
}

function resetFilters() {
  Object.values(state.hidden).forEach((values) => values.clear());
  state.from = state.to = null;
  state.limits.clear();
}

const current = (metric) => columnOf(metric, state.accuracy, state.setting);
