// "Which to favor": the reader's limits and preference, and the answer that `favor recommend` gives to them.

const TOP = 5;
const MOST_AT_ONCE = 500; // with more models the draws take so long that the page says so first
const MOST_NAMES = 10;
const CERTAIN = 0.95; // a model that is best less often is shown with its probability
const WISH_TITLES = new Map([
  [null, "the most accurate"],
  ["throughput", "the highest throughput"],
  ["latency", "the shortest latency"],
  ["memory", "the least memory"],
  ["params", "the fewest parameters"],
  ["energy", "the least energy"],
  ["training-time", "the shortest training"],
]);

function setUpFavor() {
  byId("wish").addEventListener("change", (event) => ask(() => (state.wish = event.target.value || null)));
  byId("dataset").addEventListener("change", (event) => ask(() => (state.dataset = Number(event.target.value))));
  byId("device").addEventListener("change", (event) => ask(() => (state.device = event.target.value || null)));
}

function drawFavor() {
  const { wishes, devices } = DATA.questions;
  const askable = DATA.accuracies.map((view, index) => ({ ...view, index })).filter(({ any }) => !any);
  const isOne = ({ dataset }) => askable.filter((view) => view.dataset === dataset).length === 1;
  const views = askable.map((view) => [view.index, isOne(view) ? view.dataset : view.basis]);
  fillSelect(byId("wish"), wishes.map((wish) => [wish ?? "", WISH_TITLES.get(wish) ?? wish]), state.wish ?? "");
  fillSelect(byId("dataset"), views, state.dataset);
  fillSelect(byId("device"), devices.map((device) => [device ?? "", device ?? "the device with most measurements"]), state.device ?? "");
  byId("device-box").hidden = devices.length < 2;
  byId("asked").replaceChildren(...DATA.limits.map(askedField));
  drawAnswer();
}

function ask(choose) {
  choose();
  saveState();
  drawAnswer();
}

function askedField({ option, title, unit, bound }) {
  const id = `ask-${option}`;
  const read = (event) => {
    const { value, validity } = event.target;
    ask(() => (value === "" && !validity.badInput ? state.asked.delete(option) : state.asked.set(option, validity.valid ? Number(value) : NaN)));
  };
  return make(
    "div",
    { class: "field" },
    make("label", { for: id }, `${title}, at ${bound === "min" ? "least" : "most"}`),
    make(
      "span",
      { class: "with-unit" },
      make("input", { type: "number", id, min: 0, max: unit === "%" ? 100 : null, step: "any", inputmode: "decimal", placeholder: "any", value: state.asked.get(option) ?? "", oninput: read }),
      make("span", { "aria-hidden": "true" }, unit),
    ),
  );
}

function questionNow() {
  const limits = DATA.limits
    .filter(({ option }) => state.asked.has(option))
    .map((limit) => ({ ...limit, value: state.asked.get(limit.option) * limit.factor }));
  return { accuracy: state.dataset, device: state.device, wish: state.wish, limits, top: TOP };
}

let counting = 0;

function drawAnswer() {
  const box = byId("answer");
  clearTimeout(counting);
  if (state.dataset < 0) {
    box.replaceChildren(make("p", {}, "No accuracy is known, so no model can be favored."));
    return;
  }
  const wrong = [...state.asked].filter(([, value]) => !(value >= 0)).map(([option]) => option);
  if (wrong.length) {
    box.replaceChildren(make("p", { class: "flag" }, `${wrong.join(", ")}: write a number of at least 0 (accuracy: at most 100).`));
    return;
  }
  const answer = decide(questionNow());
  if (answer.eligible.length > MOST_AT_ONCE) {
    box.replaceChildren(make("p", { class: "soft" }, "Drawing from the intervals…"));
    counting = setTimeout(() => showAnswer(box, answer, chancesOf(answer)), 30);
  } else showAnswer(box, answer, chancesOf(answer));
}

function showAnswer(box, answer, chances) {
  const { undecided, flagged } = answer;
  const verdict = verdictOf(answer, chances);
  const favored = verdict.favored === null ? null : MODELS[verdict.favored];
  const why = favored ? reasons(answer, verdict.favored, chances) : null;
  const chosen = favored ? [verdict.favored] : verdict.contenders;
  const choices = [...chosen, ...answer.pool.filter((row) => !chosen.includes(row))].slice(0, Math.max(TOP, chosen.length));
  box.replaceChildren(
    favored ? favoredHead(favored, answer, chances) : make("h3", { class: "favored none" }, noneTitle(answer, verdict)),
    ...undecided.map((reason) => make("p", { class: "flag" }, reason)),
    ...(verdict.contenders.length ? [make("p", {}, undecidedText(verdict, answer, chances))] : []),
    ...(why ? [reasonList(why, answer)] : []),
    ...(choices.length ? [choiceTable({ ...answer, choices }, chances)] : []),
    ...(answer.relax ? [relaxList(answer)] : []),
    ...(flagged.length ? [flaggedList(flagged, answer)] : []),
    make("ul", { class: "notes" }, ...[...testedTexts(answer.question), ...answer.notes].map((note) => make("li", {}, note))),
    make("pre", { class: "command", tabindex: "0", "aria-label": "The same question as a command" }, commandFor(answer.question)),
  );
  box.dataset.favored = favored?.name ?? "";
}

function favoredHead(model, answer, chances) {
  const chance = chances?.get(model.index);
  const certainty = !chance?.isKnown ? ", certainty unknown" : chance.share < CERTAIN ? `, probability ${chanceText(chance)}` : "";
  const how = answer.deciding.ranked_by === "published front" ? " by the paper's A100 front" : certainty;
  const python = pythonFor(model, DATA.accuracies[answer.question.accuracy].classes);
  return make(
    "div",
    { class: "favored" },
    make("p", { class: "soft" }, `Favored${how}`),
    make("h3", {}, marker(model.style), model.label),
    make("p", { class: "soft" }, [model.title, model.style.title, model.year].filter(Boolean).join(" · ")),
    python === null ? null : make("code", {}, python),
  );
}

// Which number each limit is tested against, where its name alone does not tell.
function testedTexts({ limits }) {
  return limits
    .filter(({ tested }) => tested)
    .map(({ option, unit, title, tested }) => `Tested: ${option} ${state.asked.get(option)} ${unit} against ${title.toLowerCase()}: ${tested}`);
}

// Who may be the best, and where to read what to measure.
function undecidedText({ contenders, tooBrief }, { pool }, chances) {
  const said = contenders.map((row) => `${MODELS[row].label} (${chanceText(chances.get(row))}${pool.includes(row) ? "" : ", just beyond a limit"})`);
  const nobody = 1 - [...chances.values()].reduce((sum, { share }) => sum + share, 0);
  if (nobody >= LIKELY) said.push(`no model that meets the limits (${fixed(100 * nobody, 0)} %)`);
  const brief = tooBrief.map((row) => MODELS[row].label).join(" and ");
  const why = brief
    ? `${brief} may be the best (measured on a busy machine or contradictory, and without an interval)`
    : "None is the best in most draws from the intervals";
  return `${why}: ${said.join(", ")}. The command below also says what to measure to decide.`;
}

function noneTitle({ undecided, question }, { contenders }) {
  if (contenders.length) return `Undecided between ${contenders.map((row) => MODELS[row].label).join(", ")}`;
  if (undecided.length) return "No model can be favored:";
  return question.limits.length ? "No model is known to meet the limits." : "No model can be favored.";
}

// Which models one dominates; those apart for which a number has no interval.
function dominatesTexts({ dominates, withoutIntervals }) {
  const names = (rows) => firstFew(rows.map((row) => MODELS[row].name), MOST_NAMES);
  const sure = dominates.filter((row) => !withoutIntervals.includes(row));
  return [
    ...(sure.length ? [`dominates ${names(sure)}`] : []),
    ...(withoutIntervals.length ? [`dominates ${names(withoutIntervals)} in numbers without intervals`] : []),
  ];
}

const quantity = (metric, value) => formatQuantity(value, METRICS.get(metric).unit);

// As `favor.analyze.recommendation.Binding` says it.
function bindingText({ option, instead, isCertain }) {
  const [decides, would] = isCertain ? ["decides", "would"] : ["may decide", "may"];
  return `${option} ${decides}: without it ${MODELS[instead].name} ${would} be favored`;
}

function reasonList(why, { values }) {
  const told = [
    why.summary,
    ...why.binding.map(bindingText),
    ...dominatesTexts(why),
    ...why.givesUp.map(
      ({ metric, own, best }) =>
        `trades off ${METRICS.get(metric).title.toLowerCase()}: ${quantity(metric, values(metric)[own])}, against ${quantity(metric, values(metric)[best])} for ${MODELS[best].name}`,
    ),
  ];
  return make("ul", { class: "why" }, ...told.map((text) => make("li", {}, text)));
}

function choiceTable({ choices, question, deciding, values }, drawn) {
  const chances = choices.some((row) => drawn?.get(row)?.isKnown) ? drawn : null;
  const wanted = [...new Set(["top1", deciding.objective, ...question.limits.map((limit) => limit.metric), "params"])];
  const metrics = wanted.filter((metric) => 2 * choices.filter((row) => !Number.isNaN(values(metric)[row])).length >= choices.length);
  const titles = ["Model", ...metrics.map((metric) => METRICS.get(metric).title), ...(chances ? ["P(best)"] : [])];
  const cell = (metric, row) => {
    const reading = readingOf(columnOf(metric, question.accuracy, deciding.setting ?? -1), row);
    if (reading === null) return make("td", {}, "unknown");
    const doubt = doubtOf(reading.flags);
    const said = doubt ? make("span", { class: "spread" }, ` (${doubt})`) : null;
    return make("td", { title: originOf(reading) }, ...readingNodes(reading, METRICS.get(metric)), said);
  };
  const rows = choices.map((row) =>
    make(
      "tr",
      { "data-name": MODELS[row].name },
      make("th", { scope: "row" }, marker(MODELS[row].style), MODELS[row].label),
      ...metrics.map((metric) => cell(metric, row)),
      ...(chances ? [make("td", {}, chanceText(chances.get(row)))] : []),
    ),
  );
  const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
  const hint = "the favored model first; P(best): the probability that a model is best, given the intervals";
  return make("div", { class: "scroll" }, make("table", { class: "choices", "aria-label": hint }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function relaxList(answer) {
  const { each, together, unknown } = answer.relax;
  const ways = relaxations(answer).map(({ limits, given, isOpen }) => {
    const moved = limits.map(({ option, metric, from, value, text }) => {
      const by = formatDifference(Math.abs(value - from), METRICS.get(metric).unit);
      return `${option} from ${quantity(metric, from)} to ${text} (by ${by})`;
    });
    const names = [...new Set(given.map((row) => MODELS[row].name))].join(" or ");
    return `${moved.join(", ")} ${isOpen ? `may give ${names} (undecided)` : `gives ${MODELS[given[0]].label}`}`;
  });
  const alone = ways.slice(0, each.length);
  const told = [
    ...alone.map((way) => `Relax one limit: ${way}`),
    ...(together && !alone.includes(ways.at(-1)) ? [`Smallest change overall: ${ways.at(-1)}`] : []),
    ...(unknown ? [`Not considered: ${countOf(unknown)} without a number for one of the limits`] : []),
  ];
  return make("ul", { class: "why" }, ...told.map((text) => make("li", {}, text)));
}

function flaggedList(flagged, { question, values }) {
  const { flags } = DATA.accuracies[question.accuracy];
  const told = flagged.map((row) => `${MODELS[row].label} (${quantity("top1", values("top1")[row])}): ${flags[row]}`);
  return make("details", {}, make("summary", {}, `Flagged and not favored: ${flagged.length}`), make("ul", {}, ...told.map((text) => make("li", {}, text))));
}

function commandFor({ accuracy, device, wish, limits }) {
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
  const words = limits.map(({ option }) => `--${option.replaceAll("_", "-")} ${withUnit(option, state.asked.get(option))}`);
  if (wish !== null) words.push(`--prefer ${wish}`);
  if (DATA.accuracies[accuracy].dataset !== "imagenet-1k") words.push(`--dataset ${quoted(DATA.accuracies[accuracy].dataset)}`);
  if (DATA.accuracies[accuracy].pipeline !== null) words.push(`--pipeline ${quoted(DATA.accuracies[accuracy].pipeline)}`);
  words.push(...DATA.questions.options[DATA.questions.devices.indexOf(device)].map(quoted));
  return [DATA.command, ...words].join(" ");
}
