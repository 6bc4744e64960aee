// Figures and data as files, made in the browser.

const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap", "opacity", "display", "font-size", "font-weight", "font-family", "paint-order", "color"];
const PNG_SCALE = 2;

function setUpDownloads() {
  byId("plot-svg").addEventListener("click", () => download("explore.svg", svgBlob(byId("plot"))));
  byId("plot-png").addEventListener("click", async () => download("explore.png", await pngOf(byId("plot"))));
  byId("download").addEventListener("click", () => download("models.csv", new Blob([tableAsCsv()], { type: "text/csv" })));
  document.querySelectorAll("[data-figure]").forEach((button) => button.addEventListener("click", () => downloadFigure(button.dataset)));
}

async function downloadFigure({ figure, format }) {
  const box = document.querySelector(`.chart[data-spec="spec-${figure}"]`);
  if (format === "csv") {
    const rows = dataIn(JSON.parse(await unpacked(box.dataset.spec)));
    return download(`${figure}.csv`, new Blob([rowsAsCsv(rows)], { type: "text/csv" }));
  }
  await drawOnce(box);
  const svg = box.querySelector("svg");
  download(`${figure}.${format}`, format === "svg" ? svgBlob(svg) : await pngOf(svg));
}

function download(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// A picture as a file of its own: the page's style sheet is written into its elements, and the page's color behind it.
function svgBlob(svg) {
  const copy = svg.cloneNode(true);
  const { width, height } = svg.getBoundingClientRect();
  const [from, to] = [svg, copy].map((one) => [one, ...one.querySelectorAll("*")]);
  from.forEach((element, at) => {
    const style = getComputedStyle(element);
    LOOKS.forEach((name) => to[at].setAttribute(name, style.getPropertyValue(name)));
    to[at].removeAttribute("class");
  });
  to.forEach((element) => element.getAttribute("display") === "none" && element.remove());
  Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height }).forEach(([name, value]) => copy.setAttribute(name, value));
  copy.prepend(makeSvg("rect", { width: "100%", height: "100%", fill: getComputedStyle(document.body).backgroundColor }));
  return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
}

async function pngOf(svg) {
  const { width, height } = svg.getBoundingClientRect();
  const url = URL.createObjectURL(svgBlob(svg));
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = make("canvas", { width: width * PNG_SCALE, height: height * PNG_SCALE });
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(url);
  return new Promise((resolve) => canvas.toBlob(resolve));
}

// The rows of all data in a chart.
function dataIn(part) {
  if (part === null || typeof part !== "object") return [];
  const own = [...(part.data?.values ?? []), ...Object.values(part.datasets ?? {}).flat()];
  return [...own, ...Object.entries(part).flatMap(([key, inner]) => (["data", "datasets", "from"].includes(key) ? [] : dataIn(inner)))];
}

function rowsAsCsv(rows) {
  const head = [...new Set(rows.flatMap(Object.keys))];
  return csvOf([head, ...rows.map((row) => head.map((name) => row[name] ?? ""))]);
}

function csvOf(lines) {
  // As `favor table` does: a text that a spreadsheet would run as a formula gets an apostrophe.
  const safe = (value) => (typeof value === "string" && /^'*[=+\-@\t\r\n]/.test(value) ? `'${value}` : String(value));
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return lines.map((line) => line.map((value) => cell(safe(value))).join(",")).join("\n") + "\n";
}
