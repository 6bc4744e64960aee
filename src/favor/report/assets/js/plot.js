// The explorer's picture: the models that the reader leaves in, their axes and their front.

// The models with both numbers, and those of them that pass all filters and meet all limits.
function selection() {
  const [xColumn, yColumn] = [current(state.x), current(state.y)];
  const [xs, ys] = [numbersOf(xColumn), numbersOf(yColumn)];
  const limits = [...state.limits].map(([metric, value]) => ({ values: numbersOf(current(metric)), value, bound: sign(metric) < 0 ? "min" : "max" }));
  const flags = flagsShown();
  const { hidden, from, to } = state;
  const drawn = [];
  const kept = [];
  for (const model of MODELS) {
    const { index } = model;
    if (Number.isNaN(xs[index]) || Number.isNaN(ys[index])) continue;
    if (hidden.class.has(model.style.key) || hidden.origin.has(model.origin)) continue;
    if ((from && !(model.year >= from)) || (to && !(model.year <= to))) continue;
    if (hidden.source.has(textOf(xColumn.source, index)) || hidden.source.has(textOf(yColumn.source, index))) continue;
    if (hidden.flag.size && flags[index]) continue;
    drawn.push(index);
    if (limits.every((limit) => keeps(limit, limit.values[index]))) kept.push(index);
  }
  const known = MODELS.filter(({ index }) => !Number.isNaN(xs[index]) && !Number.isNaN(ys[index])).map(({ index }) => index);
  return { xColumn, yColumn, xs, ys, known, drawn, kept, flags };
}

const isQuality = (metric) => metric?.group === "quality";

// Why the qualities of a metric belong to another configuration than ours; nothing for a cost.
const flagsOn = (metric) => (isQuality(METRICS.get(metric)) ? (DATA.accuracies[state.accuracy]?.flags ?? []) : []);

// The same of the two metrics at the axes.
const flagsShown = () => (isQuality(METRICS.get(state.x)) ? flagsOn(state.x) : flagsOn(state.y));

function drawExplorer() {
  const found = selection();
  const [xMetric, yMetric] = [METRICS.get(state.x), METRICS.get(state.y)];
  const width = byId("plot-box").clientWidth;
  const height = Math.round(Math.min(580, Math.max(340, width * 0.62)));
  const svg = byId("plot");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  // Another configuration's accuracy never decides, so it is not on the front either.
  const own = found.kept.filter((row) => !found.flags[row]);
  found.unequal = [xMetric, yMetric].some(isQuality) ? unequalLengths(state.accuracy, own) : null;
  const hasFront = xMetric.better !== "neither" && yMetric.better !== "neither" && state.x !== state.y && found.unequal === null;
  const front = hasFront ? paretoFront(own, found.xs, found.ys, xMetric.better, yMetric.better) : [];
  plot.found = found;
  plot.shown = found.kept;
  plot.front = front;
  plot.places.clear();
  Object.values(plot.layers).forEach((layer) => layer !== plot.layers.points && layer.replaceChildren());
  if (found.known.length) {
    const x = scaleFor(found.known.map((row) => found.xs[row]), xMetric.unit, EDGE.left, width - EDGE.right, 75);
    const y = scaleFor(found.known.map((row) => found.ys[row]), yMetric.unit, height - EDGE.bottom, EDGE.top, 50);
    found.drawn.forEach((row) => plot.places.set(row, [x.place(found.xs[row]), y.place(found.ys[row])]));
    found.beyond = found.drawn.filter((row) => x.isBeyond(found.xs[row]) || y.isBeyond(found.ys[row])).length;
    drawAxes(x, y, xMetric, yMetric, width, height);
    drawFront(front);
    (found.kept.length > MOST_WHISKERS ? front : found.kept).forEach((row) => drawWhiskers(found, row, x, y));
    drawLabels(front, width, height);
  }
  drawPoints(found, new Set(front));
  drawStatus(found, front, hasFront, width, height);
  drawComparison();
  plot.byX = [...plot.shown].sort((a, b) => plot.places.get(a)[0] - plot.places.get(b)[0] || a - b);
  plot.byY = [...plot.shown].sort((a, b) => plot.places.get(b)[1] - plot.places.get(a)[1] || a - b);
  showCard(plot.card);
}

function drawAxes(x, y, xMetric, yMetric, width, height) {
  const line = (x1, y1, x2, y2) => makeSvg("line", { x1, y1, x2, y2 });
  const text = (at, side, anchor, words, name = "tick") => makeSvg("text", { x: at, y: side, "text-anchor": anchor, class: name }, words);
  const bottom = height - EDGE.bottom;
  plot.layers.grid.append(
    ...x.ticks.map((tick) => line(x.place(tick), EDGE.top, x.place(tick), bottom)),
    ...y.ticks.map((tick) => line(EDGE.left, y.place(tick), width - EDGE.right, y.place(tick))),
    ...x.ticks.map((tick) => text(x.place(tick), bottom + 18, "middle", tickText(tick, xMetric.unit))),
    ...y.ticks.map((tick) => text(EDGE.left - 8, y.place(tick) + 4, "end", tickText(tick, yMetric.unit))),
    text(width - EDGE.right, height - 8, "end", axisTitle(xMetric, "→", "←"), "title"),
    text(4, 16, "start", axisTitle(yMetric, "↑", "↓"), "title"),
  );
}

function axisTitle({ title, unit, better }, more, less) {
  const name = `${title}${unitInTitle(unit)}`;
  if (better === "neither") return name;
  return `${name} · ${better === "higher" ? more : less} ${DIRECTIONS[better]}`;
}

// Steps, because a point on the straight line between two models is nobody's.
function drawFront(front) {
  if (front.length < 2) return;
  const places = front.map((row) => plot.places.get(row)).sort((a, b) => a[0] - b[0]);
  const xIsHigher = METRICS.get(state.x).better === "higher";
  const steps = places.slice(1).map(([x, y], at) => (xIsHigher ? `V${y}H${x}` : `H${x}V${y}`));
  plot.layers.front.append(makeSvg("path", { d: `M${places[0].join()}${steps.join("")}` }));
}

function drawWhiskers({ xColumn, yColumn }, row, x, y) {
  const [atX, atY] = plot.places.get(row);
  const ends = (column) => [column.low?.[row], column.high?.[row]];
  const [[left, right], [low, high]] = [ends(xColumn), ends(yColumn)];
  const isKnown = (end) => end !== null && end !== undefined;
  if (isKnown(left) && isKnown(right)) plot.layers.whiskers.append(makeSvg("line", { x1: x.place(left), x2: x.place(right), y1: atY, y2: atY }));
  if (isKnown(low) && isKnown(high)) plot.layers.whiskers.append(makeSvg("line", { x1: atX, x2: atX, y1: y.place(low), y2: y.place(high) }));
}

// Names beside the front, each where it covers no other name and the fewest points, or not at all.
function drawLabels(front, width, height) {
  const taken = [];
  const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
  for (const row of [...new Set([...state.kept, ...front])].filter((one) => plot.places.has(one)).slice(0, MOST_LABELS)) {
    const [x, y] = plot.places.get(row);
    const text = shortened(MODELS[row].label);
    const wide = 7.2 * text.length;
    const others = plot.shown.filter((other) => other !== row).map((other) => plot.places.get(other));
    const spots = [[9, -7, "start"], [-9, -7, "end"], [9, 15, "start"], [-9, 15, "end"], [0, -12, "middle"], [0, 21, "middle"]];
    const free = spots.flatMap(([dx, dy, anchor]) => {
      const left = x + dx - { start: 0, middle: wide / 2, end: wide }[anchor];
      const box = [left, y + dy - 11, left + wide, y + dy + 3];
      const isInside = box[0] > EDGE.left && box[2] < width - 2 && box[1] > EDGE.top - 8 && box[3] < height - EDGE.bottom;
      if (!isInside || taken.some((other) => meets(box, other))) return [];
      return [{ box, dx, dy, anchor, covered: others.filter(([atX, atY]) => meets(box, [atX - 5, atY - 5, atX + 5, atY + 5])).length }];
    });
    if (!free.length) continue;
    const { box, dx, dy, anchor, covered } = free.reduce((a, b) => (b.covered < a.covered ? b : a));
    if (covered > MOST_COVERED && !state.kept.has(row)) continue;
    taken.push(box);
    plot.layers.labels.append(makeSvg("text", { x: x + dx, y: y + dy, "text-anchor": anchor }, text));
  }
}

const shortened = (text) => (text.length > 28 ? `${text.slice(0, 27)}…` : text);

function drawPoints({ xColumn, yColumn, drawn, kept, flags }, front) {
  if (!plot.points.length) {
    plot.points = MODELS.map(({ index, style }) => makeSvg("path", { d: style.path, "data-model": index, role: "button" }));
    plot.layers.points.append(...plot.points);
  }
  const isKept = new Set(kept);
  const axes = [[xColumn, METRICS.get(state.x)], [yColumn, METRICS.get(state.y)]];
  const readings = (index) => axes.map(([column, metric]) => [readingOf(column, index), metric]);
  plot.points.forEach((point, index) => {
    const place = plot.places.get(index);
    if (place === undefined) {
      point.setAttribute("class", "out");
      return;
    }
    const isSimulated = [xColumn, yColumn].some((column) => textOf(column.source, index) === "simulated");
    const names = [
      `how-${MODELS[index].style.key}`,
      isSimulated && "hollow",
      !isKept.has(index) && "faded",
      front.has(index) && "on-front",
      state.kept.has(index) && "kept",
      flags[index] && "flagged",
      readings(index).some(([reading, metric]) => isUnsure(reading, metric)) && "unsure",
      readings(index).some(([reading]) => isDisturbed(reading.flags)) && "doubtful",
    ];
    point.setAttribute("class", names.filter(Boolean).join(" "));
    const spot = `translate(${place[0].toFixed(1)},${place[1].toFixed(1)}) scale(${radiusOf(MODELS[index].size, drawn.length)})`;
    if (point.spot !== spot) point.setAttribute("transform", (point.spot = spot));
    // A filter changes no number, and describing all models anew would take longer than the rest.
    if (point.xColumn !== xColumn || point.yColumn !== yColumn) {
      point.setAttribute("aria-label", describe(index, xColumn, yColumn));
      Object.assign(point, { xColumn, yColumn });
    }
    point.setAttribute("aria-pressed", String(state.kept.has(index)));
    point.setAttribute("tabindex", "-1");
  });
  const entry = plot.shown.includes(plot.current) ? plot.current : ([...front][0] ?? plot.shown[0]);
  if (entry !== undefined) plot.points[entry].setAttribute("tabindex", "0");
}

// A marker's area goes with the side of the image.
function radiusOf(size, points) {
  const radius = (points > CROWD ? 4.2 : 6) * Math.sqrt((size ?? USUAL_SIZE) / USUAL_SIZE);
  return Math.min(10, Math.max(2.6, radius)).toFixed(2);
}

// What the size of a marker means: the smallest, the usual and the largest image that is drawn.
function drawSizeKey(drawn) {
  const sizes = [...new Set(drawn.map((row) => MODELS[row].size).filter((size) => size !== null))].sort((a, b) => a - b);
  byId("size-key").hidden = sizes.length < 2;
  const shown = [...new Set([sizes[0], sizes.includes(USUAL_SIZE) ? USUAL_SIZE : sizes[0], sizes.at(-1)])];
  const circle = (size) => {
    const radius = radiusOf(size, drawn.length);
    return makeSvg("svg", { class: "size", width: 22, height: 20, viewBox: "-11 -10 22 20", "aria-hidden": "true" }, makeSvg("circle", { r: radius }));
  };
  byId("size-key").replaceChildren("image size:", ...shown.flatMap((size) => [circle(size), `${size} px`]));
}

function describe(index, xColumn, yColumn) {
  const model = MODELS[index];
  const number = (metric, column) => `${METRICS.get(metric).title} ${formatQuantity(column.value[index], METRICS.get(metric).unit)}`;
  return `${model.label}, ${model.style.title}, ${number(state.y, yColumn)}, ${number(state.x, xColumn)}`;
}

function drawStatus({ known, drawn, kept, flags, beyond, unequal }, front, hasFront, width, height) {
  const both = `${METRICS.get(state.y).title.toLowerCase()} and ${METRICS.get(state.x).title.toLowerCase()}`;
  const told = [kept.length === known.length ? `${countOf(known.length)} with ${both}, all shown` : `${kept.length} shown of ${countOf(known.length)} with ${both}`];
  if (hasFront) told.push(`${front.length} on the front`);
  if (unequal) told.push(`no front, because the accuracies cannot be compared: ${unequal}`);
  if (drawn.length > kept.length) told.push(`${drawn.length - kept.length} outside the limits (faded)`);
  if (known.length > drawn.length) told.push(`${known.length - drawn.length} filtered out`);
  if (beyond) told.push(`${beyond} beyond the axes, drawn at the edge`);
  const lacking = MODELS.length - known.length;
  if (lacking) told.push(`${lacking} not drawn: one of the two numbers is unknown here`);
  byId("status").textContent = told.join(" · ");
  drawFrontList();
  byId("front-box").hidden = !hasFront || !front.length;
  if (!known.length) {
    const words = `No model has both ${METRICS.get(state.x).title} and ${METRICS.get(state.y).title} here.`;
    plot.layers.grid.append(makeSvg("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "title" }, words));
  }
  drawSizeKey(drawn);
  byId("flagged-key").hidden = !drawn.some((row) => flags[row]);
  byId("unsure-key").hidden = !plot.layers.points.querySelector(".unsure");
  byId("doubtful-key").hidden = !plot.layers.points.querySelector(".doubtful");
  byId("simulated-key").hidden = !["x", "y"].some((axis) => sourcesIn(current(state[axis])).includes("simulated"));
}

// Who is on the front, with the probability where it is not certain; drawn only where the reader sees it.
function drawFrontList() {
  if (!byId("front-box").open) return;
  const chances = chancesOnFront(plot.front);
  const doubt = (chance) => (chance.isKnown && chance.share >= CERTAIN ? "" : ` (${chanceText(chance)})`);
  const told = plot.front.map((row) => `${MODELS[row].label}${doubt(chances.get(row))}`);
  byId("front").textContent = `${told.join(", ")}. In parentheses: the probability of being on the front, given the intervals, where it is below 95 %.`;
}
