// What the reader has chosen. It lives in the address's fragment, so that a view can be sent to somebody.

const OPENING = DATA.opening;

const openingState = () => ({
  x: OPENING.x,
  y: OPENING.y,
  accuracy: OPENING.accuracy,
  setting: OPENING.setting,
  hidden: { class: new Set(), origin: new Set(), source: new Set(), flag: new Set() },
  from: null,
  to: null,
  limits: new Map(), // by metric, in its own unit
  kept: new Set(), // positions of models
  sort: { by: "top1", descending: true },
  find: "",
  dataset: OPENING.dataset,
  wish: null,
  device: null,
  asked: new Map(), // limits of the recommendation by option, in the unit that the page asks for
  theme: null,
});

const state = openingState();

const accuracyKey = ({ dataset, any, pipeline }) => (any ? `${dataset} any` : pipeline === null ? dataset : `${dataset} ${pipeline}`);

function encodeState() {
  const found = new URLSearchParams();
  const put = (key, value, usual) => value !== usual && value !== null && found.set(key, value);
  put("x", state.x, OPENING.x);
  put("y", state.y, OPENING.y);
  put("accuracy", DATA.accuracies[state.accuracy] ? accuracyKey(DATA.accuracies[state.accuracy]) : null, openingKey(OPENING.accuracy));
  put("on", DATA.settings[state.setting]?.text ?? null, DATA.settings[OPENING.setting]?.text ?? null);
  for (const [kind, values] of Object.entries(state.hidden)) values.forEach((value) => found.append(`no-${kind}`, value));
  put("from", state.from);
  put("to", state.to);
  state.limits.forEach((value, metric) => found.append("limit", `${metric}:${value}`));
  state.kept.forEach((index) => found.append("keep", MODELS[index].label));
  put("sort", `${state.sort.descending ? "-" : ""}${state.sort.by}`, "-top1");
  put("find", state.find, "");
  put("dataset", DATA.accuracies[state.dataset] ? accuracyKey(DATA.accuracies[state.dataset]) : null, openingKey(OPENING.dataset));
  put("prefer", state.wish);
  put("device", state.device);
  state.asked.forEach((value, option) => found.set(option, withUnit(option, value)));
  put("theme", state.theme);
  return found.toString();
}

const openingKey = (position) => (DATA.accuracies[position] ? accuracyKey(DATA.accuracies[position]) : null);

const limitOf = (option) => DATA.limits.find((limit) => limit.option === option);

function withUnit(option, value) {
  const { unit } = limitOf(option);
  return unit === "%" ? String(value) : `${value}${unit}`;
}

// Apply a fragment; returns what it names and this page does not have.
function decodeState(fragment) {
  Object.assign(state, openingState());
  const given = new URLSearchParams(fragment);
  const strange = [];
  const take = (key, find, put) => {
    for (const text of given.getAll(key)) {
      const found = find(text);
      if (found === undefined || found === -1 || Number.isNaN(found)) strange.push(`${key}=${text}`);
      else put(found);
    }
  };
  const metric = (text) => (METRICS.has(text) ? text : undefined);
  const among = (values) => (text) => (values.includes(text) ? text : undefined);
  take("x", metric, (found) => (state.x = found));
  take("y", metric, (found) => (state.y = found));
  take("accuracy", (text) => DATA.accuracies.findIndex((view) => accuracyKey(view) === text), (found) => (state.accuracy = found));
  take("on", (text) => DATA.settings.findIndex((view) => view.text === text), (found) => (state.setting = found));
  for (const [kind, values] of Object.entries(state.hidden)) take(`no-${kind}`, (text) => text, (found) => values.add(found));
  take("from", Number, (found) => (state.from = found));
  take("to", Number, (found) => (state.to = found));
  take("limit", limitFrom, ([name, value]) => state.limits.set(name, value));
  take("keep", (text) => BY_LABEL.get(text)?.index, (found) => state.kept.add(found));
  take("sort", sortFrom, (found) => (state.sort = found));
  take("find", (text) => text, (found) => (state.find = found));
  take(
    "dataset",
    (text) => DATA.accuracies.findIndex((view) => accuracyKey(view) === text && !view.any),
    (found) => (state.dataset = found),
  );
  take("prefer", among(DATA.questions.wishes), (found) => (state.wish = found));
  take("device", among(DATA.questions.devices), (found) => (state.device = found));
  for (const { option, unit } of DATA.limits) {
    take(option, (text) => Number(text.replace(unit, "") || NaN), (found) => state.asked.set(option, found));
  }
  take("theme", among(["light", "dark"]), (found) => (state.theme = found));
  return strange;
}

function limitFrom(text) {
  const [name, value] = text.split(":");
  return METRICS.has(name) && value && Number.isFinite(Number(value)) ? [name, Number(value)] : undefined;
}

function sortFrom(text) {
  const by = text.replace(/^-/, "");
  return METRICS.has(by) || FACTS.some((fact) => fact.key === by) ? { by, descending: text.startsWith("-") } : undefined;
}

let saving = 0;

// Written a moment later: a slider moves faster than browsers let an address change.
function saveState() {
  clearTimeout(saving);
  saving = setTimeout(() => history.replaceState(null, "", `#${encodeState()}`), 150);
}
