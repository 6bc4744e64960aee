// The explorer's controls: what stands at the axes, who is let in, and which limits hold.

function drawControls() {
  const metrics = [...METRICS.values()].map(({ name, title }) => [name, `${title} (${countOf(howMany(current(name)))})`]);
  fillSelect(byId("x"), metrics, state.x);
  fillSelect(byId("y"), metrics, state.y);
  fillSelect(
    byId("accuracy"),
    DATA.accuracies.map((view, index) => [index, view.basis]),
    state.accuracy,
  );
  fillSelect(
    byId("setting"),
    DATA.settings.map((view, index) => [index, view.text]),
    state.setting,
  );
  const years = [...new Set(MODELS.map((model) => model.year).filter(Boolean))].sort();
  const yearOptions = [["", "any"], ...years.map((year) => [year, String(year)])];
  fillSelect(byId("from"), yearOptions, state.from ?? "");
  fillSelect(byId("to"), yearOptions, state.to ?? "");
  drawChips();
  drawLimits();
}

function drawChips() {
  const used = new Set(MODELS.map((model) => model.style));
  const classes = DATA.classes.filter((style) => used.has(style));
  byId("classes").replaceChildren(...classes.map((style) => chip("class", style.key, style.title, marker(style))));
  const origins = [...new Set(MODELS.map((model) => model.origin))].sort();
  byId("origins").replaceChildren(...origins.map((origin) => chip("origin", origin, origin)));
  const sources = [...new Set([state.x, state.y].flatMap((metric) => sourcesIn(current(metric))))].sort();
  byId("sources").replaceChildren(...sources.map((source) => chip("source", source, source)));
  const hasFlags = DATA.accuracies[state.accuracy]?.flags.some((flag) => flag !== null);
  byId("flags").replaceChildren(...(hasFlags ? [chip("flag", "flagged", "flagged accuracies")] : []));
}

function sourcesIn(column) {
  const numbers = Array.isArray(column?.source) ? column.source : [column?.source ?? null];
  return [...new Set(numbers)].filter((number) => number !== null).map((number) => DATA.texts[number]);
}

// A switch that takes models out and lets them in again.
function chip(kind, value, text, icon = null) {
  const hidden = state.hidden[kind];
  const toggle = (event) => {
    const { kind: of, value: which } = event.currentTarget.dataset;
    change(() => hidden.delete(value) || hidden.add(value));
    document.querySelector(`.chip[data-kind="${of}"][data-value="${CSS.escape(which)}"]`)?.focus();
  };
  return make(
    "button",
    { type: "button", class: "chip", "aria-pressed": String(!hidden.has(value)), "data-kind": kind, "data-value": value, onclick: toggle },
    icon,
    text,
  );
}

function addLimit(metric) {
  const values = [...numbersOf(current(metric))].filter((value) => !Number.isNaN(value));
  if (!values.length) return;
  const loosest = sign(metric) < 0 ? Math.min : Math.max;
  change(() => state.limits.set(metric, values.reduce((a, b) => loosest(a, b))));
}

// One slider for each axis and each limit that is set; its steps are the values that models have.
function drawLimits() {
  const limited = [...new Set([state.y, state.x, ...state.limits.keys()])].filter((metric) => METRICS.get(metric).better !== "neither");
  const box = byId("limits");
  const there = [...box.children].map((row) => row.dataset.metric);
  // While a slider is dragged the rows stay, because a new slider would lose the pointer.
  if (there.join() !== limited.join() || limited.some((metric) => box.querySelector(`[data-metric="${metric}"]`).values !== numbersOf(current(metric)))) {
    box.replaceChildren(...limited.map(limitRow));
  }
  limited.forEach((metric) => updateLimit(box.querySelector(`[data-metric="${metric}"]`), metric));
  const others = [...METRICS.values()].filter(
    ({ name, better }) => better !== "neither" && !limited.includes(name) && howMany(current(name)) > 0,
  );
  fillSelect(byId("more-limits"), [["", "Add a limit…"], ...others.map(({ name, title }) => [name, title])], "");
}

function limitRow(metric) {
  const { title } = METRICS.get(metric);
  const id = `limit-${metric}`;
  const slide = (event) => {
    const steps = event.target.steps;
    const at = Number(event.target.value);
    const isOff = at === (sign(metric) < 0 ? 0 : steps.length - 1);
    change(() => (isOff ? state.limits.delete(metric) : state.limits.set(metric, steps[at])));
  };
  const row = make(
    "div",
    { class: "limit", "data-metric": metric },
    make("label", { for: id }, title),
    make("output", { for: id }),
    make("input", { type: "range", id, min: 0, step: 1, oninput: slide }),
  );
  row.values = numbersOf(current(metric));
  row.querySelector("input").steps = [...new Set(row.values)].filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  return row;
}

function updateLimit(row, metric) {
  const input = row.querySelector("input");
  const { steps } = input;
  const limit = state.limits.get(metric);
  const isHigher = sign(metric) < 0;
  input.max = Math.max(0, steps.length - 1);
  input.disabled = steps.length < 2;
  const within = isHigher ? steps.findIndex((step) => step >= limit) : steps.findLastIndex((step) => step <= limit);
  input.value = limit === undefined ? (isHigher ? 0 : steps.length - 1) : within;
  const text = limit === undefined ? "any" : `${isHigher ? "≥" : "≤"} ${formatQuantity(limit, METRICS.get(metric).unit)}`;
  row.querySelector("output").textContent = text;
  input.setAttribute("aria-valuetext", text);
}
