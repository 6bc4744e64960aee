// The models that the reader keeps, side by side.

const FRONT_DRAWS = 1000; // as in `favor pareto`; fewer with many models
const MOST_DRAWN = 1e6; // numbers of a metric, in all draws

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
  const kept = [...state.kept].filter((row) => plot.places.has(row));
  const chances = chancesOnFront(kept);
  box.hidden = !kept.length;
  box.replaceChildren(...kept.map((row) => make("li", {}, whyHere(row, chances.get(row)))));
}

function whyHere(row, chance) {
  const { xs, ys, flags, unequal } = plot.found;
  const [x, y] = [METRICS.get(state.x), METRICS.get(state.y)];
  const doubtful = plot.shown.filter(isDoubtful).length;
  const flagged = plot.shown.filter((index) => flags[index] && !isDoubtful(index)).length;
  const sound = plot.shown.filter((index) => !flags[index] && !isDoubtful(index));
  const { label, style } = MODELS[row];
  const said = (index) => `${formatQuantity(ys[index], y.unit)} and ${formatQuantity(xs[index], x.unit)}`;
  const who = `${label} (${style.title}) has ${y.title.toLowerCase()} ${formatQuantity(ys[row], y.unit)} and ${x.title.toLowerCase()} ${formatQuantity(xs[row], x.unit)}`;
  const isRanked = (metric) => metric.better !== "neither" && !(unequal && isQuality(metric)) && !isDoubtful(row) && !flags[row];
  const ranks = [[y, ys], [x, xs]].filter(([metric]) => isRanked(metric)).map(([metric, values]) => placeBy(row, metric, values, sound));
  const without = [...(flagged ? [`${flagged} flagged`] : []), ...(doubtful ? [`${doubtful} busy or contradictory`] : [])];
  const left = without.length ? ` (${without.join(", ")} left out)` : "";
  const start = ranks.length ? `${who}: ${ranks.join(" and ")} of ${countOf(sound.length)} shown${left}.` : `${who}.`;
  if (x.better === "neither" || y.better === "neither") return start;
  if (flags[row]) return `${start} It is never on the front, because its accuracy belongs to another configuration: ${flags[row]}.`;
  if (!plot.shown.includes(row)) return `${start} It is outside the limits.`;
  if (unequal) return `${start} There is no front, because the accuracies cannot be compared: ${unequal}.`;
  if (isDoubtful(row)) return `${start} Its place is open: one of the numbers was measured on a busy machine or contradicts others.`;
  const worse = (index, metric, values) => (values[index] - values[row]) * sign(metric.name);
  const beating = sound.filter(
    (other) => worse(other, x, xs) <= 0 && worse(other, y, ys) <= 0 && (worse(other, x, xs) < 0 || worse(other, y, ys) < 0),
  );
  if (beating.length) {
    const best = beating.reduce((a, b) => (worse(b, y, ys) < worse(a, y, ys) ? b : a));
    const others = beating.length > 1 ? `, and ${countOf(beating.length - 1)} more` : "";
    return `${start} It is not on the front: ${MODELS[best].label} is at least as good on both axes (${said(best)})${others}.${certaintyText(chance, false)}`;
  }
  if (doubtful && !plot.front.includes(row)) return `${start} Its place is open: only models with a busy or contradictory number are at least as good on both axes.`;
  const better = (metric, values) => sound.filter((other) => worse(other, metric, values) < 0).length;
  return `${start} It is on the front: ${countOf(better(y, ys))} beat it in ${y.title.toLowerCase()} and ${countOf(better(x, xs))} in ${x.title.toLowerCase()}, but none does so in one without being worse in the other.${certaintyText(chance, true)}`;
}

// For each row, the share of draws from the intervals in which it is on the front, and whether that share is a probability.
function chancesOnFront(rows) {
  const { xs, ys, flags, unequal } = plot.found;
  const [x, y] = [METRICS.get(state.x), METRICS.get(state.y)];
  const among = plot.shown.filter((row) => !flags[row]);
  const places = new Map(rows.filter((row) => among.includes(row)).map((row) => [row, among.indexOf(row)]));
  if (!places.size || unequal || x.better === "neither" || y.better === "neither") return new Map();
  const drawn = [[x, xs], [y, ys]].map(([metric, values]) => uncertaintyOf(metric, current(metric.name), values, among));
  const [xSign, ySign] = [sign(x.name), sign(y.name)];
  const draws = Math.max(100, Math.min(FRONT_DRAWS, Math.round(MOST_DRAWN / among.length)));
  const random = normalNumbers(1);
  const hits = new Map(rows.map((row) => [row, 0]));
  for (let round = 0; round < draws; round++) {
    const [left, low] = drawn.map((metric) => metric.draw(random));
    for (const [row, at] of places) {
      const isBeaten = among.some((_, other) => {
        const [byX, byY] = [(left[other] - left[at]) * xSign, (low[other] - low[at]) * ySign];
        return byX <= 0 && byY <= 0 && (byX < 0 || byY < 0);
      });
      if (!isBeaten) hits.set(row, hits.get(row) + 1);
    }
  }
  return new Map([...places].map(([row, at]) => [row, { share: hits.get(row) / draws, isKnown: drawn.every(({ isKnown }) => isKnown[at]) }]));
}

// What the intervals say of a place on or off the front; nothing where they leave no doubt.
function certaintyText(chance, isOnFront) {
  if (!chance.isKnown) return " The certainty of this is unknown, because one of its numbers has no interval.";
  const share = isOnFront ? chance.share : 1 - chance.share;
  return share >= CERTAIN ? "" : ` Given the intervals, it is on the front with a probability of ${chanceText(chance)}.`;
}

const isApart = (a, b, { exact }) => exact || (hasInterval(a) && hasInterval(b) && (a.high < b.low || b.high < a.low));

// A number that was disturbed proves nothing.
const isDoubtful = (row) => [state.x, state.y].some((metric) => isDisturbed(flagsIn(current(metric), row)));

const placeBy = (row, metric, values, among) => {
  const place = 1 + among.filter((other) => (values[other] - values[row]) * sign(metric.name) < 0).length;
  return `${ordinal(place)} by ${metric.title.toLowerCase()}`;
};

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
  const ranked = readings.filter(isRanked);
  const unequal = isQuality(metric) ? unequalLengths(state.accuracy, kept.map(({ index }) => index)) : null;
  const first = better === "neither" || ranked.length < 2 || unequal ? null : ranked.reduce((a, b) => (b.value * sign(name) < a.value * sign(name) ? b : a));
  // The best number is better beyond the intervals; a disturbed one proves nothing.
  const isSure = (other) => !isDisturbed(other.flags) && (other.value === first.value || isApart(first, other, metric));
  const best = first !== null && ranked.every(isSure) ? first.value : null;
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
