// The models that the reader keeps, side by side.

function drawComparison() {
  drawWhyHere();
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

// For each kept model: why it is on the front, or which models keep it off, in words.
function drawWhyHere() {
  const box = byId("why-here");
  const told = [...state.kept].filter((row) => plot.places.has(row)).map((row) => whyHere(row));
  box.hidden = !told.length;
  box.replaceChildren(...told.map((text) => make("li", {}, text)));
}

function whyHere(row) {
  const { xs, ys, flags, unequal } = plot.found;
  const [x, y] = [METRICS.get(state.x), METRICS.get(state.y)];
  const sound = plot.shown.filter((index) => !isDoubtful(index));
  const doubtful = plot.shown.length - sound.length;
  const { label, style } = MODELS[row];
  const said = (index) => `${formatQuantity(ys[index], y.unit)} and ${formatQuantity(xs[index], x.unit)}`;
  const who = `${label} (${style.title}) has ${y.title.toLowerCase()} ${formatQuantity(ys[row], y.unit)} and ${x.title.toLowerCase()} ${formatQuantity(xs[row], x.unit)}`;
  const isRanked = (metric) => metric.better !== "neither" && !(unequal && isQuality(metric)) && !isDoubtful(row);
  const ranks = [[y, ys], [x, xs]].filter(([metric]) => isRanked(metric)).map(([metric, values]) => placeBy(row, metric, values, sound));
  const left = doubtful ? ` (${doubtful} busy or contradictory left out)` : "";
  const start = ranks.length ? `${who}: ${ranks.join(" and ")} of ${countOf(sound.length)} shown${left}.` : `${who}.`;
  if (x.better === "neither" || y.better === "neither") return start;
  if (flags[row]) return `${start} It is never on the front, because its accuracy belongs to another configuration: ${flags[row]}.`;
  if (!plot.shown.includes(row)) return `${start} It is outside the limits.`;
  if (unequal) return `${start} There is no front, because the accuracies cannot be compared: ${unequal}.`;
  if (isDoubtful(row)) return `${start} Its place is open: one of the numbers was measured on a busy machine or contradicts others.`;
  const worse = (index, metric, values) => (values[index] - values[row]) * sign(metric.name);
  const beating = sound.filter(
    (other) => !flags[other] && worse(other, x, xs) <= 0 && worse(other, y, ys) <= 0 && (worse(other, x, xs) < 0 || worse(other, y, ys) < 0),
  );
  if (beating.length) {
    const best = beating.reduce((a, b) => (worse(b, y, ys) < worse(a, y, ys) ? b : a));
    const others = beating.length > 1 ? `, and ${countOf(beating.length - 1)} more` : "";
    return `${start} It is not on the front: ${MODELS[best].label} is at least as good on both axes (${said(best)})${others}. ${apartText(row, best)}`.trim();
  }
  if (doubtful && !plot.front.includes(row)) return `${start} Its place is open: only models with a busy or contradictory number are at least as good on both axes.`;
  const better = (metric, values) => sound.filter((other) => !flags[other] && worse(other, metric, values) < 0).length;
  return `${start} It is on the front: ${countOf(better(y, ys))} beat it in ${y.title.toLowerCase()} and ${countOf(better(x, xs))} in ${x.title.toLowerCase()}, but none does so in one without being worse in the other.`;
}

// A number that was disturbed proves nothing.
const isDoubtful = (row) => [state.x, state.y].some((metric) => isDisturbed(flagsIn(current(metric), row)));

const placeBy = (row, metric, values, among) => {
  const place = 1 + among.filter((other) => (values[other] - values[row]) * sign(metric.name) < 0).length;
  return `${ordinal(place)} by ${metric.title.toLowerCase()}`;
};

// Whether the difference is larger than what the intervals leave open.
function apartText(row, other) {
  const apart = [state.x, state.y].map((name) => {
    const [a, b] = [row, other].map((index) => readingOf(current(name), index));
    if (METRICS.get(name).exact) return a.value !== b.value;
    return hasInterval(a) && hasInterval(b) && (a.high < b.low || b.high < a.low);
  });
  return apart.some(Boolean) ? "" : "The intervals of the two overlap or are unknown, so this may be chance.";
}

function comparisonHead(model) {
  const drop = () => {
    toggleKept(model.index);
    (document.querySelector("#comparison-head button") ?? byId("x")).focus();
  };
  const button = make("button", { type: "button", class: "plain", "aria-label": `Drop ${model.label}`, onclick: drop }, "×");
  return make("th", { scope: "col" }, marker(model.style), model.label, button);
}

function comparisonRow(metric, kept) {
  const { name, title, better } = metric;
  const flags = flagsOn(name);
  const readings = kept.map(({ index }) => readingOf(current(name), index));
  const isRanked = (reading, at) => reading !== null && !flags[kept[at].index];
  const values = readings.filter(isRanked).map((reading) => reading.value);
  const unequal = isQuality(metric) ? unequalLengths(state.accuracy, kept.map(({ index }) => index)) : null;
  const least = better === "neither" || values.length < 2 || unequal ? null : values.reduce((a, b) => (b * sign(name) < a * sign(name) ? b : a));
  // Where the best number was disturbed, nobody knows which is the best.
  const best = readings.some((reading) => reading?.value === least && isDisturbed(reading.flags)) ? null : least;
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, title),
    ...readings.map((reading, at) =>
      reading === null
        ? make("td", { class: "soft" }, "–")
        : make(
            "td",
            { class: reading.value === best && isRanked(reading, at) ? "best" : null, title: originOf(reading) },
            ...readingNodes(reading, metric),
            make("small", {}, reading.source ?? ""),
          ),
    ),
  );
}
