// The models that the reader keeps, side by side.

function drawComparison() {
  const kept = [...state.kept].map((index) => MODELS[index]);
  byId("comparison").hidden = !kept.length;
  byId("comparison-hint").hidden = kept.length > 0;
  const metrics = [...METRICS.values()].filter(({ name }) => kept.some(({ index }) => readingOf(current(name), index)));
  const facts = [
    ["Class", (model) => model.style.title],
    ["Year", (model) => model.year ?? ""],
    ["Image size", (model) => (model.size === null ? "" : `${model.size} px`)],
  ];
  byId("comparison-head").replaceChildren(make("th", { scope: "col" }, "Kept"), ...kept.map(comparisonHead));
  byId("comparison-body").replaceChildren(
    ...facts.map(([title, of]) => make("tr", {}, make("th", { scope: "row" }, title), ...kept.map((model) => make("td", {}, String(of(model)))))),
    ...metrics.map((metric) => comparisonRow(metric, kept)),
  );
}

function comparisonHead(model) {
  const drop = () => {
    toggleKept(model.index);
    (document.querySelector("#comparison-head button") ?? byId("x")).focus();
  };
  const button = make("button", { type: "button", class: "plain", "aria-label": `Drop ${model.label}`, onclick: drop }, "×");
  return make("th", { scope: "col" }, marker(model.style), model.label, button);
}

function comparisonRow({ name, title, unit, better }, kept) {
  const readings = kept.map(({ index }) => readingOf(current(name), index));
  const values = readings.filter(Boolean).map((reading) => reading.value);
  const best = better === "neither" || values.length < 2 ? null : values.reduce((a, b) => (b * sign(name) < a * sign(name) ? b : a));
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, title),
    ...readings.map((reading) =>
      reading === null
        ? make("td", { class: "soft" }, "–")
        : make(
            "td",
            { class: reading.value === best ? "best" : null, title: originOf(reading) },
            formatReading(reading, unit),
            make("small", {}, reading.source ?? ""),
          ),
    ),
  );
}
