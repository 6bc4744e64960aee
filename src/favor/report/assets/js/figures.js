// The papers' figures: Vega is unpacked and a chart is drawn when the reader comes to it.

const PLOT_WIDTH = 360; // pixels for one of several plots beside each other
const WIDE = 480; // pixels of a figure
const drawnCharts = new Map();
const firstDrawings = new Map(); // promises

function setUpFigures() {
  byId("print").addEventListener("click", printAll);
  document.addEventListener("keydown", onPrintKey);
  const boxes = [...document.querySelectorAll(".chart[data-spec]")];
  if (!boxes.length) return;
  const seen = new IntersectionObserver(
    (entries) =>
      entries
        .filter((entry) => entry.isIntersecting)
        .forEach(({ target }) => {
          seen.unobserve(target);
          drawOnce(target);
        }),
    { rootMargin: "300px" },
  );
  boxes.forEach((box) => seen.observe(box));
}

// A print has all figures: those that were not drawn yet are drawn first.
async function printAll() {
  const waiting = [...document.querySelectorAll(".chart[data-spec]")].filter((box) => !drawnCharts.has(box));
  for (const box of waiting) await drawOnce(box);
  window.print();
}

function onPrintKey(event) {
  if (!(event.ctrlKey || event.metaKey) || event.key !== "p") return;
  event.preventDefault();
  printAll();
}

// Draws a chart unless that was begun: two drawings at once would clear each other's box.
function drawOnce(box) {
  if (!firstDrawings.has(box)) firstDrawings.set(box, drawChart(box));
  return firstDrawings.get(box);
}

async function drawChart(box) {
  const embed = await vega();
  const spec = JSON.parse(await unpacked(box.dataset.spec));
  if (spec.concat) spreadPlots(spec, box.clientWidth);
  if (box.clientWidth >= WIDE) widenLegends(spec);
  const config = JSON.parse(byId("chart-themes").textContent)[isDark() ? "dark" : "light"];
  // The page's policy forbids making code from text, so expressions are interpreted.
  const options = { config, actions: false, ast: true, defaultStyle: false, renderer: "svg", tooltip: { disableDefaultStyle: true } };
  drawnCharts.get(box)?.finalize();
  drawnCharts.set(box, await embed(box, spec, options));
  box.removeAttribute("aria-busy");
}

// Legends are made for a phone; with more room they take another column.
function widenLegends(part) {
  if (part === null || typeof part !== "object") return;
  if (part.legend?.columns) part.legend = { ...part.legend, columns: part.legend.columns + 1 };
  Object.entries(part).forEach(([key, inner]) => key !== "legend" && key !== "data" && widenLegends(inner));
}

// Several plots side by side as far as there is room, each as wide as its share of it.
function spreadPlots(spec, room) {
  spec.columns = columnsFor(spec.concat.length, Math.max(1, Math.floor(room / PLOT_WIDTH)));
  const width = Math.floor(room / spec.columns) - spec.usermeta.beside;
  spec.concat = spec.concat.map((plot) => ({ ...plot, width: Math.max(width, plot.width) }));
}

// Rows of equal length: four plots, where three have room, are two rows of two.
const columnsFor = (plots, room) => Math.ceil(plots / Math.ceil(plots / room));

const redrawCharts = () => drawnCharts.forEach((_, box) => drawChart(box));

let loading = null;

// The charts' library as a script of its own: the page's policy knows its hash.
function vega() {
  loading ??= unpacked("vega").then((source) => {
    const script = make("script");
    script.textContent = source;
    document.head.append(script);
    return window.vegaEmbed;
  });
  return loading;
}

// The text that stands in an element as compressed data.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
