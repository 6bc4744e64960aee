// The page's data: models, and their numbers by what they hold for.

const DATA = JSON.parse(byId("data").textContent);
const METRICS = new Map(Object.entries(DATA.metrics));
const CLASSES = new Map(DATA.classes.map((style) => [style.key, style]));
const USUAL_SIZE = 224;

const MODELS = DATA.models.name.map((name, index) => {
  const size = DATA.models.img_size[index];
  return {
    index,
    name,
    label: size === null || size === USUAL_SIZE ? name : `${name}@${size}`,
    title: DATA.models.title[index],
    family: DATA.models.family[index],
    style: CLASSES.get(DATA.models.how[index]) ?? CLASSES.get("unknown"),
    year: DATA.models.year[index],
    origin: DATA.models.origin[index] ?? "unknown",
    size,
    defaultSize: DATA.models.default_size[index],
  };
});
const BY_LABEL = new Map(MODELS.map((model) => [model.label, model]));
const NOTHING = new Float64Array(MODELS.length).fill(NaN);

// The column of a metric: a count, an accuracy of a view, or a cost in a setting; null where there is none. Accuracies
// are those of float models, so there is none in a setting with quantized ones.
function columnOf(metric, accuracy, setting) {
  const view = DATA.settings[setting];
  const groups = [DATA.counted, view?.quantized ? null : DATA.accuracies[accuracy]?.columns, view?.columns];
  return groups.find((columns) => columns && Object.hasOwn(columns, metric))?.[metric] ?? null;
}

const numbersByColumn = new WeakMap();

// A column as numbers, NaN where unknown or where the setting is not the one that is kept.
function numbersOf(column, kept = column?.kept ?? null) {
  if (column === null) return NOTHING;
  const found = numbersByColumn.get(column) ?? new Map();
  numbersByColumn.set(column, found);
  if (!found.has(kept)) {
    const compares = (index) => kept === null || textNumber(column.setting, index) === kept;
    found.set(kept, Float64Array.from(column.value, (value, index) => (value !== null && compares(index) ? value : NaN)));
  }
  return found.get(kept);
}

// One number with everything it needs; null where it is unknown.
function readingOf(column, index) {
  if (column === null || Number.isNaN(numbersOf(column)[index])) return null;
  return {
    value: column.value[index],
    low: column.low?.[index] ?? null,
    high: column.high?.[index] ?? null,
    source: textOf(column.source, index),
    setting: textOf(column.setting, index),
    provenance: textOf(column.provenance, index),
    flags: textOf(column.flags, index),
  };
}

const textNumber = (numbers, index) => (Array.isArray(numbers) ? numbers[index] : numbers);

function textOf(numbers, index) {
  const number = textNumber(numbers, index);
  return number === null ? null : DATA.texts[number];
}

// An exact number is the same in every run; any other without an interval may be anywhere near its value.
const hasInterval = ({ low, high }) => low !== null && high !== null;
const isUnsure = (reading, { exact }) => !exact && !hasInterval(reading);

// As `favor.analyze.flags`: a wide interval is drawn as such, other load and contradictions put a number in doubt.
const DISTURBED_FLAGS = ["busy", "contradictory"];
const reasonsIn = (flags) => (flags ?? "").split(" ").map((flag) => flag.split(":").at(-1));
const isContradictory = (flags) => reasonsIn(flags).includes("contradictory"); // it may be too good, too
const isDisturbed = (flags) => reasonsIn(flags).some((reason) => DISTURBED_FLAGS.includes(reason));
const UNSTEADY_FLAGS = ["drift", "unsettled"];
const isUnsteady = (flags) => reasonsIn(flags).some((reason) => UNSTEADY_FLAGS.includes(reason));
// What puts a number in doubt, in a word; null for a sound one.
const doubtOf = (flags) => DISTURBED_FLAGS.find((doubt) => reasonsIn(flags).includes(doubt)) ?? (isUnsteady(flags) ? "unsteady" : null);

const FLAG_TEXTS = new Map([
  ["busy", "other programs were running"],
  ["contradictory", "it contradicts other measurements"],
  ["wide", "the interval is still wide"],
  ["unsettled", "the times had not settled"],
  ["drift", "the times drifted"],
]);

// Flags in words: "latency:wide" is "latency: the interval is still wide".
const flagTexts = (flags) =>
  (flags ?? "").split(" ").filter(Boolean).map((flag) => {
    const [step, kind] = flag.includes(":") ? flag.split(":") : [null, flag];
    const words = FLAG_TEXTS.get(kind) ?? kind.replaceAll("_", " ");
    return step === null ? words : `${step}: ${words}`;
  });

// A number with what is known of its uncertainty: its interval, "± ?" without one, and a mark where it is flagged.
function readingNodes(reading, metric) {
  const spread = isUnsure(reading, metric) ? " ± ?" : formatSpread(reading.value, reading.low, reading.high, metric.unit);
  return [
    formatQuantity(reading.value, metric.unit),
    ...(reading.flags === null ? [] : [make("span", { class: "flag", role: "img", "aria-label": "flagged" }, " ⚑")]),
    ...(spread ? [make("span", { class: "spread" }, spread)] : []),
  ];
}

const howMany = (column) => (column === null ? 0 : numbersOf(column).reduce((count, value) => count + !Number.isNaN(value), 0));

// Where a number is from and why to distrust it, in one line.
const originOf = (reading) =>
  [reading.source, reading.setting, reading.provenance, ...flagTexts(reading.flags).map((text) => `flagged: ${text}`)].filter(Boolean).join(" · ");
