// Pointing at models, with the pointer or with keys: the record behind a point, and keeping it.

function nearest(event) {
  const box = byId("plot").getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  let found = null;
  let least = REACH ** 2;
  for (const row of plot.shown) {
    const [atX, atY] = plot.places.get(row);
    const distance = (atX - x) ** 2 + (atY - y) ** 2;
    if (distance < least) [found, least] = [row, distance];
  }
  return found;
}

// Arrows walk along the axes, Enter keeps, Escape closes.
function onPlotKey(event) {
  const row = Number(event.target.dataset.model);
  const walk = { ArrowLeft: [plot.byX, -1], ArrowRight: [plot.byX, 1], ArrowDown: [plot.byY, -1], ArrowUp: [plot.byY, 1] }[event.key];
  if (walk) {
    const [order, step] = walk;
    focusPoint(order[order.indexOf(row) + step]);
  } else if (event.key === "Home") focusPoint(plot.byX[0]);
  else if (event.key === "End") focusPoint(plot.byX.at(-1));
  else if (event.key === "Enter" || event.key === " ") {
    toggleKept(row);
    focusPoint(row);
  } else if (event.key === "Escape") showCard(null);
  else return;
  event.preventDefault();
}

function focusPoint(row) {
  if (row === undefined) return;
  if (plot.current !== null) plot.points[plot.current].setAttribute("tabindex", "-1");
  plot.current = row;
  plot.points[row].setAttribute("tabindex", "0");
  plot.points[row].focus();
}

function toggleKept(row) {
  if (row === null) return;
  change(() => state.kept.delete(row) || state.kept.add(row));
}

// The record behind a point, beside it; on a narrow page below the plot.
function showCard(row) {
  const card = byId("card");
  plot.layers.points.querySelector(".pointed")?.classList.remove("pointed");
  plot.card = row;
  if (row === null || !plot.places.has(Number(row))) {
    card.hidden = true;
    return;
  }
  const model = MODELS[Number(row)];
  plot.points[model.index].classList.add("pointed");
  const flag = DATA.accuracies[state.accuracy]?.flags[model.index] ?? null;
  const facts = [model.title, model.style.title, model.year, model.size && `${model.size} px`].filter(Boolean).join(" · ");
  card.replaceChildren(
    make("strong", {}, marker(model.style), model.label),
    make("p", { class: "facts" }, facts),
    ...(plot.front.includes(model.index) ? [make("p", {}, "On the front")] : []),
    ...[state.y, state.x].map((metric) => cardNumber(metric, readingOf(current(metric), model.index))),
    ...(flag === null ? [] : [make("p", { class: "flag" }, `Flagged: ${flag}`)]),
  );
  card.hidden = false;
  const [x, y] = plot.places.get(model.index);
  const isRight = x > byId("plot-box").clientWidth / 2;
  card.style.left = isRight ? "auto" : `${x + 16}px`;
  card.style.right = isRight ? `${byId("plot-box").clientWidth - x + 16}px` : "auto";
  card.style.top = `${Math.max(0, Math.min(y - 30, byId("plot").clientHeight - card.offsetHeight))}px`;
}

function cardNumber(metric, reading) {
  const { title, unit } = METRICS.get(metric);
  const interval = hasInterval(reading)
    ? make("small", {}, `95 % interval: ${formatQuantity(reading.low, unit)} to ${formatQuantity(reading.high, unit)}`)
    : isUnsure(reading, METRICS.get(metric))
      ? make("small", {}, "no interval is known, so neither is the precision of this number")
      : null;
  return make(
    "p",
    {},
    make("span", { class: "soft" }, `${title} `),
    make("b", {}, formatQuantity(reading.value, unit)),
    interval,
    ...flagTexts(reading.flags).map((text) => make("small", { class: "flag" }, `Flagged: ${text}`)),
    make("small", {}, [reading.source, reading.setting, reading.provenance].filter(Boolean).join(" · ")),
  );
}
