// Which model to favor: `favor recommend` on the numbers that the page carries. What decides a question (which setting,
// which metric) was found when the page was made; limits, order and reasons are found here, by the same rules.

const DRAWS = 4000;
const Z = 1.959963984540054; // standard deviations from the middle of a 95 % interval to its end
const USUAL_CLASSES = 1000;
const SMALLEST = 2 ** -52;
const EQUALLY_LONG = 1.1; // as in `favor.analyze.trainings`: training runs whose epochs differ by a larger factor are not compared
const [MOST, LIKELY, MOST_CONTENDERS] = [0.5, 0.05, 5]; // shares of draws, as in `favor.analyze.verdict`; two standard errors are added to the first
// As in `favor.analyze.flags` and `favor.analyze.intervals`: deviations of the logarithm.
const [DISTURBED, UNSTEADY, UNKNOWN] = [Math.log(6), Math.log(1.05), Math.log(1.2)];

const MOST_DOUBTFUL = 5; // names in a note
const DOUBTS = [
  ["busy", "measured on a busy machine, so their numbers may be better"],
  ["contradictory", "contradictory measurements, so their numbers may be better or worse"],
];

const sign = (metric) => (METRICS.get(metric)?.better === "higher" ? -1 : 1);

// question: {accuracy, device, wish, limits: [{option, metric, bound, value}], top}
function decide(question) {
  const deciding = decidingOf(question);
  const columns = new Map();
  const values = (metric) => {
    if (!columns.has(metric)) {
      const column = columnOf(metric, question.accuracy, deciding.setting ?? -1);
      columns.set(metric, numbersOf(column, metric === deciding.objective ? deciding.kept : column?.kept));
    }
    return columns.get(metric);
  };
  const ordered = bestFirst(candidates(deciding, question, values), deciding, values);
  const flags = DATA.accuracies[question.accuracy].flags;
  const eligible = ordered.filter((row) => flags[row] === null);
  const flagged = ordered.filter((row) => flags[row] !== null);
  const undecided = undecidedBy(deciding, question, eligible, values);
  const keeping = (rows, limits) => rows.filter((row) => limits.every((limit) => keeps(limit, values(limit.metric)[row])));
  const pool = undecided.length ? [] : keeping(eligible, question.limits);
  return {
    question,
    deciding,
    values,
    eligible,
    pool,
    keeping,
    undecided,
    choices: pool.slice(0, question.top),
    flagged: undecided.length ? [] : keeping(flagged, question.limits).slice(0, question.top),
    relax: question.limits.length && !pool.length && !undecided.length ? relax(eligible, question.limits, values) : null,
    notes: notes({ question, deciding, values, eligible, pool }, ordered, flagged, undecided),
  };
}

function decidingOf({ accuracy, device, wish, limits }) {
  const { devices, wishes, running, by_view, deciding } = DATA.questions;
  const asked = new Set(limits.map((limit) => limit.option));
  const bits = running.reduce((sum, option, bit) => sum + (asked.has(option) ? 2 ** bit : 0), 0);
  return deciding[by_view[accuracy][devices.indexOf(device)][wishes.indexOf(wish)][bits]];
}

// Who can be ranked: models with an accuracy, on the published front or with a number of what is preferred.
function candidates(deciding, question, values) {
  const trained = MODELS.map((model) => model.index).filter((row) => !Number.isNaN(values("top1")[row]));
  if (deciding.front !== null) return deciding.front;
  if (question.wish === null || deciding.undecided !== null) return trained;
  return trained.filter((row) => !Number.isNaN(values(deciding.objective)[row]));
}

function bestFirst(rows, deciding, values) {
  const objective = deciding.undecided === null ? deciding.objective : "top1";
  const keys = [[objective, sign(objective)], ["top1", -1], ["params", 1]];
  const unknownLast = (a, b) => (Number.isNaN(a) ? (Number.isNaN(b) ? 0 : 1) : Number.isNaN(b) ? -1 : a - b);
  return [...rows].sort((a, b) => {
    for (const [metric, factor] of keys) {
      const order = unknownLast(factor * values(metric)[a], factor * values(metric)[b]);
      if (order) return order;
    }
    return a - b; // models are in the order of their names
  });
}

const keeps = (limit, value) => (limit.bound === "min" ? value >= limit.value : value <= limit.value);

// A limit that no number is known for is never passed over.
function undecidedBy(deciding, question, eligible, values) {
  const unchecked = question.limits.filter(
    (limit) => eligible.length && eligible.every((row) => Number.isNaN(values(limit.metric)[row])),
  );
  const told = unchecked.map((limit) => `${limit.option} cannot be checked: no numbers for ${limit.metric}`);
  const unequal = accuracyDecides(deciding, question) ? unequalLengths(question.accuracy, eligible) : null;
  if (unequal !== null) told.push(`accuracies cannot be compared: ${unequal}; ${DATA.accuracies[question.accuracy].remedy}`);
  return deciding.undecided === null ? told : [deciding.undecided, ...told];
}

const accuracyDecides = ({ objective }, { limits }) => objective === "top1" || limits.some(({ metric }) => metric === "top1");

// What to say of accuracies whose training runs (limited by time, or unfinished) differ in length; null if they are.
function unequalLengths(accuracy, rows) {
  const lengths = rows.map((row) => DATA.accuracies[accuracy]?.lengths?.[row] ?? null).filter((length) => length !== null);
  const least = lengths.reduce((shortest, [low]) => Math.min(shortest, low), Infinity);
  const most = lengths.reduce((longest, [, high]) => Math.max(longest, high), 0);
  return most > EQUALLY_LONG * least ? `training runs of unequal length: ${general(least, 3)} to ${general(most, 3)} epochs` : null;
}

// Why a model is favored; `chances` are needed where it is not the first of the pool.
function reasons(answer, favored = answer.pool[0], chances = null) {
  const { question, deciding, values, eligible, pool } = answer;
  const others = pool.filter((row) => row !== favored);
  const accuracy = unequalLengths(question.accuracy, eligible) === null ? ["top1"] : [];
  const compared = [...new Set([...accuracy, deciding.objective, ...question.limits.map((limit) => limit.metric)])];
  const ties = others.filter((row) => values(deciding.objective)[row] === values(deciding.objective)[favored]);
  const dominates = dominatedBy(favored, eligible, compared, answer);
  const isKnown = (row) => compared.every((metric) => hasKnownUncertainty(METRICS.get(metric), columnIn(answer, metric), row));
  return {
    summary: summary(answer, favored, ties, chances),
    ties,
    binding: bindingOf(answer, favored, chances !== null),
    dominates,
    withoutIntervals: isKnown(favored) ? dominates.filter((row) => !isKnown(row)) : dominates,
    givesUp: givenUp([favored, ...others], [...new Set([...compared, "params"])].filter((metric) => metric !== deciding.objective), values),
  };
}

// The limits without which another model would be favored, or, where the draws leave that open, may be.
function bindingOf(answer, favored, isDrawn) {
  const { question, eligible, keeping, values } = answer;
  return question.limits.flatMap((limit) => {
    const others = question.limits.filter((other) => other !== limit);
    const pool = keeping(eligible, others);
    if (pool.every((row) => keeps(limit, values(limit.metric)[row]))) return [];
    const verdict = verdictOf({ pool }, isDrawn ? chancesUnder(answer, [others])[0] : null);
    const likely = verdict.favored === null ? verdict.contenders : [verdict.favored];
    const instead = likely.find((row) => MODELS[row].name !== MODELS[favored].name);
    return instead === undefined ? [] : [{ option: limit.option, instead, isCertain: verdict.favored !== null }];
  });
}

// The column of a metric that decides a question.
const columnIn = ({ question, deciding }, metric) => columnOf(metric, question.accuracy, deciding.setting ?? -1);

const firstFew = (names, most) => (names.length > most ? `${names.slice(0, most).join(", ")} and ${names.length - most} more` : names.join(", "));

const countOf = (count) => `${count} model${count === 1 ? "" : "s"}`;

function summary({ question, deciding, values, eligible, pool }, favored, ties, chances) {
  const { objective } = deciding;
  const best = sign(objective) < 0 ? "highest" : "lowest";
  let where = deciding.ranked_by === "published front" ? " in families on the paper's A100 front" : "";
  if (question.limits.length) where = ` within the limits (of ${countOf(eligible.length)}${where})`;
  const { name } = MODELS[favored];
  if (pool.length === 1) return `${name} is the only model${where}`;
  const value = formatQuantity(values(objective)[pool[0]], METRICS.get(objective).unit);
  if (favored !== pool[0]) {
    const share = chances.get(favored).isKnown ? `${chanceText(chances.get(favored))} of draws` : "most draws";
    return `${name} is the best of the ${countOf(pool.length)}${where} in ${share}; by the numbers alone it is ${MODELS[pool[0]].name} (${value})`;
  }
  const names = ties.map((row) => MODELS[row].name).join(", ");
  const tied = ties.length ? `, tied with ${names} (then by accuracy, parameters, name)` : "";
  return `${name} has the ${best} ${METRICS.get(objective).title.toLowerCase()} (${value}) of the ${countOf(pool.length)}${where}${tied}`;
}

// A number that was disturbed proves nothing.
function dominatedBy(favored, rows, metrics, answer) {
  const { values } = answer;
  const known = metrics.filter((metric) => !Number.isNaN(values(metric)[favored]));
  const isDoubtful = (row) => known.some((metric) => isDisturbed(flagsIn(columnIn(answer, metric), row)));
  if (known.length < 2 || isDoubtful(favored)) return [];
  const worse = (row, metric) => (values(metric)[row] - values(metric)[favored]) * sign(metric);
  const isWorse = (row) => known.every((metric) => worse(row, metric) >= 0) && known.some((metric) => worse(row, metric) > 0);
  return rows.filter((row) => isWorse(row) && !isDoubtful(row));
}

function givenUp(pool, metrics, values) {
  return metrics.flatMap((metric) => {
    const known = pool.filter((row) => !Number.isNaN(values(metric)[row]));
    if (known[0] !== pool[0]) return [];
    const best = known.reduce((a, b) => (values(metric)[b] * sign(metric) < values(metric)[a] * sign(metric) ? b : a));
    return values(metric)[best] === values(metric)[pool[0]] ? [] : [{ metric, own: pool[0], best }];
  });
}

// How far a value breaks a limit, as the logarithm of a factor, so that limits add up; an accuracy by its error.
function excess(limit, value) {
  if (keeps(limit, value)) return 0;
  const inverse = (number) => 1 / Math.max(number, SMALLEST);
  const [allowed, actual] =
    limit.metric === "top1"
      ? [100 - limit.value, 100 - value]
      : limit.bound === "max"
        ? [limit.value, value]
        : [inverse(limit.value), inverse(value)];
  return Math.max(Math.log(Math.max(actual, SMALLEST) / Math.max(allowed, SMALLEST)), SMALLEST);
}

// The nearest model by moving each limit alone, where that suffices, and by moving limits together.
function relax(rows, limits, values) {
  const known = rows.filter((row) => limits.every((limit) => !Number.isNaN(values(limit.metric)[row])));
  const nearest = (some, distance) => some.reduce((a, b) => (distance(b) < distance(a) ? b : a));
  const broken = (row) => limits.filter((limit) => !keeps(limit, values(limit.metric)[row]));
  const way = (row) => ({ row, limits: broken(row).map((limit) => ({ ...limit, to: values(limit.metric)[row] })) });
  const total = (row) => limits.reduce((sum, limit) => sum + excess(limit, values(limit.metric)[row]), 0);
  const each = limits.flatMap((limit) => {
    const others = known.filter((row) => broken(row).every((one) => one === limit));
    return others.length ? [way(nearest(others, (row) => excess(limit, values(limit.metric)[row])))] : [];
  });
  return { each, together: known.length ? way(nearest(known, total)) : null, unknown: rows.length - known.length };
}

function notes({ question, deciding, values, eligible, pool }, ordered, flagged, undecided) {
  const view = DATA.accuracies[question.accuracy];
  const told = deciding.note === null ? [] : [deciding.note];
  const { limits, wish } = question;
  const unbroken = eligible.filter((row) =>
    limits.every((limit) => keeps(limit, values(limit.metric)[row]) || Number.isNaN(values(limit.metric)[row])),
  );
  if (wish !== null && deciding.ranked_by === "numbers" && deciding.undecided === null) {
    const without = values("top1").reduce((count, value) => count + !Number.isNaN(value), 0) - ordered.length;
    if (without) told.push(`not ranked: ${countOf(without)}, which have no ${deciding.objective} there`);
  }
  if (limits.length && !undecided.length && unbroken.length > pool.length) {
    told.push(`not considered: ${countOf(unbroken.length - pool.length)} without a number for one of the limits`);
  }
  if (wish === null) {
    told.push(`models${limits.length ? " within the limits" : ""} are ranked by accuracy`);
  } else if (!limits.some((limit) => limit.metric === "top1")) {
    told.push("accuracy is not limited");
  }
  told.push(view.note);
  const running = [deciding.objective, ...limits.map((limit) => limit.metric)];
  if (deciding.setting !== null && running.some((metric) => Object.hasOwn(DATA.settings[deciding.setting].columns, metric))) {
    told.push(`costs: ${DATA.settings[deciding.setting].text}`);
  }
  for (const [doubt, why] of DOUBTS) {
    const isSo = (row) =>
      running.some((metric) => !Number.isNaN(values(metric)[row]) && doubtOf(flagsIn(columnIn({ question, deciding }, metric), row)) === doubt);
    const names = [...new Set(eligible.filter(isSo).map((row) => MODELS[row].name))].sort();
    if (names.length) told.push(`${why}: ${firstFew(names, MOST_DOUBTFUL)}`);
  }
  const unequal = accuracyDecides(deciding, question) ? null : unequalLengths(question.accuracy, eligible);
  if (unequal !== null) told.push(`accuracies do not decide here: ${unequal}`);
  if (flagged.length) told.push(`flagged and not favored: ${countOf(flagged.length)} with the accuracy of another configuration`);
  return told;
}

// By row, the share of draws from the intervals in which it is the best that meets all limits, and whether that share
// is a probability: it is none where the uncertainty of one of its numbers is unknown. Null where nothing is drawn.
function chancesOf(answer) {
  const { question, deciding, undecided, pool } = answer;
  if (deciding.ranked_by === "published front" || undecided.length || !pool.length) return null;
  return chancesUnder(answer, [question.limits])[0];
}

// The same under several sets of limits on the same metrics, from the same draws.
function chancesUnder(answer, sets) {
  const { deciding, eligible, values } = answer;
  const [limits] = sets;
  const rows = eligible.filter((row) => limits.every((limit) => !Number.isNaN(values(limit.metric)[row])));
  const involved = [...new Set([deciding.objective, ...limits.map((limit) => limit.metric)])];
  const drawn = involved.map((name) => uncertaintyOf(METRICS.get(name), columnIn(answer, name), values(name), rows));
  const tested = sets.map((set) => set.map((limit) => [limit, involved.indexOf(limit.metric)]));
  const factor = sign(deciding.objective);
  const random = normalNumbers(1);
  const [wins, openWins] = [0, 1].map(() => sets.map(() => new Float64Array(rows.length)));
  // Rows with a number that is in doubt and has no interval: it may be as good as can be.
  const open = [...rows.keys()].filter((at) => drawn.some((metric) => metric.saysNothing[at]));
  const perfect = involved.map((name) => (METRICS.get(name).better === "higher" ? Infinity : 0));
  for (let round = 0; round < DRAWS; round++) {
    const numbers = drawn.map((metric) => metric.draw(random));
    const atBest = (metric, at) => (drawn[metric].saysNothing[at] ? perfect[metric] : numbers[metric][at]);
    tested.forEach((set, which) => {
      let best = -1;
      let least = Infinity;
      for (let at = 0; at < rows.length; at++) {
        const cost = factor * numbers[0][at];
        if (cost < least && set.every(([limit, metric]) => keeps(limit, numbers[metric][at]))) [best, least] = [at, cost];
      }
      if (best >= 0) wins[which][best] += 1;
      for (const at of open) {
        if (factor * atBest(0, at) <= least && set.every(([limit, metric]) => keeps(limit, atBest(metric, at)))) openWins[which][at] += 1;
      }
    });
  }
  const isKnown = rows.map((_, at) => drawn.every((metric) => metric.isKnown[at]));
  return wins.map(
    (won, which) =>
      new Map(rows.map((row, at) => [row, { share: won[at] / DRAWS, isKnown: isKnown[at], openShare: openWins[which][at] / DRAWS }])),
  );
}

// For each way to relax the limits: the limits to write, and the model that they give, or those that it is undecided
// between. Limits at the nearest model's numbers often leave the answer open; those at the ends of its intervals follow.
function relaxations(answer) {
  const { question, deciding, eligible, keeping, relax } = answer;
  const ways = [...relax.each, ...(relax.together ? [relax.together] : [])];
  if (!ways.length) return []; // no model has all of the numbers
  const near = ways.map((way) => way.limits.map(written));
  if (deciding.ranked_by === "published front") return ways.map(({ row }, at) => ({ limits: near[at], given: [row], isOpen: false }));
  const far = ways.map((way) => way.limits.map((limit) => written(atIntervalEnd(limit, way.row, answer))));
  const sets = [...near, ...far].map((moved) => question.limits.map((limit) => moved.find(({ option }) => option === limit.option) ?? limit));
  const chances = chancesUnder(answer, sets);
  const verdicts = sets.map((limits, at) => verdictOf({ pool: keeping(eligible, limits) }, chances[at]));
  return ways.map(({ row }, at) => {
    const [atNumbers, atEnds] = [verdicts[at], verdicts[at + ways.length]];
    if (atNumbers.favored !== null) return { limits: near[at], given: [atNumbers.favored], isOpen: false };
    if (atEnds.favored !== null) return { limits: far[at], given: [atEnds.favored], isOpen: false };
    return { limits: near[at], given: atNumbers.contenders.length ? atNumbers.contenders : [row], isOpen: true };
  });
}

// A limit moved to where people would write it.
function written(limit) {
  return { ...limit, from: limit.value, ...roundedOutward(limit.to, METRICS.get(limit.metric).unit, limit.to > limit.value ? 1 : -1) };
}

// A limit that a model meets with 97.5 %, not 50 %.
function atIntervalEnd(limit, row, answer) {
  const metric = METRICS.get(limit.metric);
  const { below, above } = uncertaintyOf(metric, columnIn(answer, limit.metric), answer.values(limit.metric), answer.eligible);
  const at = answer.eligible.indexOf(row);
  const shift = Z * (limit.bound === "max" ? above[at] : -below[at]);
  return { ...limit, to: isLinear(metric) ? limit.to + shift : limit.to * Math.exp(shift) };
}

const isLinear = (metric) => metric.unit === "%" || metric.signed; // of all other quantities ratios matter

// As `favor.analyze.intervals`: how far each number may be off, below and above, and what models share of it.
function uncertaintyOf(metric, column, values, rows) {
  const linear = isLinear(metric);
  const number = Float64Array.from(rows, (row) => values[row]);
  const hasBoth = rows.map((row) => hasBothEnds(column, row));
  const side = (ends, isAbove) =>
    rows.map((row, at) => {
      if (!hasBoth[at]) return NaN;
      const [value, end] = [values[row], ends[row]];
      const half = linear ? (isAbove ? end - value : value - end) : isAbove ? Math.log(end / value) : Math.log(value / Math.max(end, 1e-3 * value));
      return Math.max(0, half || 0) / Z;
    });
  const anyKnown = hasBoth.some(Boolean);
  const sides = anyKnown ? [side(column.low, false), side(column.high, true)] : [rows.map(() => NaN), rows.map(() => NaN)];
  const widest = sides.flat().reduce((a, b) => (b > a ? b : a), linear ? 0 : UNKNOWN / Z);
  const flags = rows.map((row) => flagsIn(column, row));
  const better = metric.better === "higher" ? 1 : 0; // other load only ever slows a call down
  const [below, above] = sides.map((one, which) =>
    one.map((known, at) => {
      const unsteady = isUnsteady(flags[at]) ? UNSTEADY : 0;
      const isOff = which === better ? isDisturbed(flags[at]) : isContradictory(flags[at]);
      const disturbed = isOff ? DISTURBED / Z : 0;
      return Math.hypot(Number.isNaN(known) ? (metric.exact ? 0 : widest) : known, unsteady, disturbed);
    }),
  );
  const isSimulated = rows.map((row) => textOf(column?.source ?? null, row) === "simulated");
  const shared = rows.map((row) => column?.shared?.[row] ?? 0);
  // Models that took turns share the drift of their stretch; all others share one cause.
  const cause = rows.map((row) => textNumber(column?.stretch ?? null, row));
  const causes = [...new Set(cause)];
  // Equal simulations are of the same network, so they are drawn alike.
  const first = new Map();
  const network = rows.map((row, at) => {
    const key = isSimulated[at] ? [number[at], column.low?.[row], column.high?.[row]].join() : at;
    if (!first.has(key)) first.set(key, at);
    return first.get(key);
  });
  const isUncertain = below.some(Boolean) || above.some(Boolean);
  const hasShared = shared.some(Boolean);
  const own = new Float64Array(rows.length);
  const draw = (random) => {
    if (!isUncertain) return number;
    const common = new Map(hasShared ? causes.map((one) => [one, random()]) : []);
    return number.map((value, at) => {
      own[at] = network[at] === at ? random() : own[network[at]];
      const z = Math.sqrt(1 - shared[at]) * own[at] + Math.sqrt(shared[at]) * (common.get(cause[at]) ?? 0);
      const moved = z * (z > 0 ? above[at] : below[at]);
      return linear ? value + moved : value * Math.exp(moved);
    });
  };
  const isKnown = rows.map((row) => hasKnownUncertainty(metric, column, row));
  return { draw, below, above, isKnown, saysNothing: isKnown.map((known, at) => !known && isDisturbed(flags[at])) };
}

const isEnd = (end) => end !== null && end !== undefined;
const hasBothEnds = (column, row) => isEnd(column?.low?.[row]) && isEnd(column?.high?.[row]);
const flagsIn = (column, row) => textOf(column?.flags ?? null, row);
// Of a number that is there: it has an interval, or the metric is exact and it is not in doubt.
const hasKnownUncertainty = (metric, column, row) => hasBothEnds(column, row) || (metric.exact && !isDisturbed(flagsIn(column, row)));

// As `favor.analyze.verdict`: who is favored, or the models that it is undecided between.
function verdictOf({ pool }, chances) {
  if (chances === null || !pool.length) return { favored: pool[0] ?? null, contenders: [] };
  const likely = [...chances.keys()].sort((a, b) => chances.get(b).share - chances.get(a).share);
  const [surest] = likely;
  const tooBrief = [...chances.keys()].filter((row) => row !== surest && chances.get(row).openShare >= LIKELY).slice(0, MOST_CONTENDERS - 1);
  if (chances.get(surest).share >= MOST + 1 / Math.sqrt(DRAWS) && pool.includes(surest)) {
    if (tooBrief.length) return { favored: null, contenders: [surest, ...tooBrief], tooBrief };
    return { favored: surest, contenders: [] };
  }
  const contenders = new Set([...likely.filter((row) => chances.get(row).share >= LIKELY), ...tooBrief]);
  return { favored: null, contenders: [...contenders].slice(0, MOST_CONTENDERS), tooBrief: [] };
}

// A probability in words.
const chanceText = (chance) => (chance?.isKnown ? `${fixed(100 * chance.share, 0)} %` : "unknown");

// Normal random numbers that are the same on every visit.
function normalNumbers(seed) {
  let state = seed;
  const uniform = () => {
    state = (state + 0x9e3779b9) | 0;
    let bits = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97);
    return ((bits ^ (bits >>> 15)) >>> 0) / 2 ** 32;
  };
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

// The Python that creates a model, as `favor.analyze.creation` writes it; null for a model that favor does not have.
function pythonFor(model, classes) {
  if (model.defaultSize === null) return null;
  const parts = [JSON.stringify(model.name)];
  if (classes !== USUAL_CLASSES) parts.push(`num_classes=${classes}`);
  if (model.size !== null && model.size !== model.defaultSize) parts.push(`img_size=${model.size}`);
  return `favor.create_model(${parts.join(", ")})`;
}
