// The table of all models: sorted by any column, filtered by words, copied as CSV.

const PAGE_OF_ROWS = 100; // rows that are added whenever the reader comes to the end of the table
const FACTS = [
  { key: "name", title: "Model", of: (model) => model.label },
  { key: "class", title: "Class", of: (model) => model.style.title },
  { key: "year", title: "Year", of: (model) => model.year },
  { key: "size", title: "px", of: (model) => model.size },
];
const listing = { rows: [], metrics: [], drawn: 0 };

function setUpTable() {
  byId("find").addEventListener("input", (event) => {
    state.find = event.target.value;
    saveState();
    drawTable();
  });
  byId("copy").addEventListener("click", copyTable);
  new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && addRows()).observe(byId("table-end"));
}

function drawTable() {
  byId("find").value = state.find;
  listing.metrics = [...METRICS.values()].filter(({ name }) => howMany(current(name)) > 0);
  listing.rows = sortedModels();
  const columns = [...FACTS, ...listing.metrics.map((metric) => ({ key: metric.name, title: metric.title, isNumber: true }))];
  byId("table-head").replaceChildren(...columns.map(columnHead));
  byId("table-body").replaceChildren();
  listing.drawn = 0;
  addRows();
  const names = new Set(listing.rows.map((model) => model.name)).size;
  const all = new Set(MODELS.map((model) => model.name)).size;
  const found = names === all ? countOf(all) : `${names} of ${countOf(all)} found`;
  byId("table-count").textContent = names < listing.rows.length ? `${found}, in ${listing.rows.length} rows: one for each image size` : found;
}

function sortedModels() {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (model) => [model.label, model.title, model.family, model.style.title].join(" ").toLowerCase();
  const fact = FACTS.find(({ key }) => key === state.sort.by);
  const values = fact ? null : numbersOf(current(state.sort.by));
  const key = fact ? fact.of : (model) => (Number.isNaN(values[model.index]) ? null : values[model.index]);
  const direction = state.sort.descending ? -1 : 1;
  const order = (a, b) => (a === b ? 0 : a === null ? 1 : b === null ? -1 : direction * (a < b ? -1 : 1)); // unknown comes last
  return MODELS.filter((model) => words.every((word) => text(model).includes(word))).sort((a, b) => order(key(a), key(b)) || a.index - b.index);
}

function columnHead({ key, title, isNumber }) {
  const isSorted = state.sort.by === key;
  const arrow = isSorted ? (state.sort.descending ? " ↓" : " ↑") : "";
  const sortBy = () => {
    const bestFirst = isNumber ? METRICS.get(key).better === "higher" : false;
    state.sort = { by: key, descending: isSorted ? !state.sort.descending : bestFirst };
    saveState();
    drawTable();
    byId("table-head").querySelector(`[data-key="${key}"] button`).focus();
  };
  const unit = isNumber ? unitInTitle(METRICS.get(key).unit) : "";
  return make(
    "th",
    { scope: "col", "data-key": key, class: isNumber ? "number" : null, "aria-sort": isSorted ? (state.sort.descending ? "descending" : "ascending") : "none" },
    make("button", { type: "button", title: isNumber ? METRICS.get(key).definition : null, onclick: sortBy }, `${title}${unit}${arrow}`),
  );
}

function addRows() {
  const next = listing.rows.slice(listing.drawn, listing.drawn + PAGE_OF_ROWS);
  byId("table-body").append(...next.map(tableRow));
  listing.drawn += next.length;
  byId("table-end").hidden = listing.drawn >= listing.rows.length;
}

function tableRow(model) {
  const numbers = listing.metrics.map((metric) => {
    const reading = readingOf(current(metric.name), model.index);
    if (reading === null) return make("td", { class: "number" });
    return make("td", { class: `number ${reading.source ?? ""}`, title: originOf(reading) }, ...readingNodes(reading, metric));
  });
  return make(
    "tr",
    {},
    make("th", { scope: "row", title: model.label }, marker(model.style), model.label),
    ...FACTS.slice(1).map(({ of }) => make("td", {}, String(of(model) ?? ""))),
    ...numbers,
  );
}

// All rows of the filtered table in the stored units, with the source of every number.
function tableAsCsv() {
  const head = [
    ...["name", "class", "year", "img_size"],
    ...listing.metrics.flatMap(({ name, unit }) => [`${name} [${unit}]`, `${name}_low`, `${name}_high`, `${name}_source`, `${name}_setting`, `${name}_flags`]),
  ];
  const lines = listing.rows.map((model) => [
    ...[model.name, model.style.key, model.year ?? "", model.size ?? ""],
    ...listing.metrics.flatMap(({ name }) => {
      const reading = readingOf(current(name), model.index);
      return reading ? [reading.value, reading.low ?? "", reading.high ?? "", reading.source ?? "", reading.setting ?? "", reading.flags ?? ""] : ["", "", "", "", "", ""];
    }),
  ]);
  return csvOf([head, ...lines]);
}

// Where the browser refuses the clipboard, the text is shown to be copied by hand.
async function copyTable() {
  const text = tableAsCsv();
  const [button, box] = [byId("copy"), byId("csv")];
  const byHand = () => {
    box.hidden = false;
    box.value = text;
    box.select();
    button.textContent = "Press Ctrl+C to copy";
  };
  const done = () => {
    button.textContent = `Copied ${countOf(listing.rows.length)}`;
    setTimeout(() => (button.textContent = "Copy as CSV"), 2500);
  };
  if (navigator.clipboard) await navigator.clipboard.writeText(text).then(done, byHand);
  else byHand();
}
