// Axes: where a number stands, and which numbers are written.

const LOG_FROM = 12; // a wider range than this cannot be read on a linear axis
const MARGIN = 0.05;
const [MANY, TAIL, FAR] = [200, 0.01, 0.35];

// `spacing` is how many pixels a tick wants for its text. What lies beyond the axis stands at its edge.
function scaleFor(values, unit, start, end, spacing) {
  const [least, greatest] = rangeOf(values);
  const isLog = least > 0 && greatest / least > LOG_FROM;
  const [inner, outer] = isLog ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  const width = inner(greatest) - inner(least) || Math.abs(inner(greatest)) || 1;
  const [low, high] = [inner(least) - MARGIN * width, inner(greatest) + MARGIN * width];
  const share = (value) => (inner(value) - low) / (high - low);
  const place = (value) => start + Math.min(1, Math.max(0, share(value))) * (end - start);
  const isBeyond = (value) => !(share(value) >= 0 && share(value) <= 1);
  const room = Math.max(3, Math.floor(Math.abs(end - start) / spacing));
  const [first, last] = [outer(low), outer(high)];
  const ticks = isLog ? logTicks(first, last, room, unit) : linearTicks(first, last, room, unit);
  return { place, isBeyond, isLog, ticks: ticks.filter((tick) => tick >= first && tick <= last) };
}

// The range to draw. Of many values those are left out that lie far from the middle 98 hundredths of them.
function rangeOf(values) {
  const sorted = Float64Array.from(values).sort();
  if (sorted.length < MANY) return [sorted[0], sorted.at(-1)];
  const isLog = sorted[0] > 0 && sorted.at(-1) / sorted[0] > LOG_FROM;
  const at = (place) => (isLog ? Math.log(sorted[place]) : sorted[place]);
  const [low, high] = [at(Math.floor(TAIL * sorted.length)), at(Math.ceil((1 - TAIL) * sorted.length) - 1)];
  const places = [...sorted.keys()].filter((place) => at(place) >= low - FAR * (high - low) && at(place) <= high + FAR * (high - low));
  return [sorted[places[0]], sorted[places.at(-1)]];
}

// Multiples of a round step, round in the unit that is written.
function linearTicks(low, high, room, unit) {
  const factor = factorFor(high, unit);
  const rough = (high - low) / factor / room;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((one) => one >= rough) * factor;
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, at) => (first + at) * step);
}

// Powers, or 1, 2 and 5 times them where there is room; bytes go by powers of two.
function logTicks(low, high, room, unit) {
  const base = unit === "B" ? 2 : 10;
  const powers = [];
  for (let power = Math.floor(Math.log(low) / Math.log(base)); base ** power <= high; power++) powers.push(base ** power);
  const within = (digits) => powers.flatMap((power) => digits.map((digit) => digit * power)).filter((tick) => tick >= low && tick <= high);
  const choices = (base === 2 ? [[1]] : [[1, 2, 5], [1, 3], [1]]).map(within);
  const shown = choices.find((ticks) => ticks.length <= room + 2) ?? choices.at(-1);
  const every = Math.ceil(shown.length / (room + 2));
  return shown.filter((_, at) => at % every === 0);
}

function factorFor(value, unit) {
  const scales = { 1: COUNT_SCALES, B: BYTE_SCALES, s: TIME_SCALES }[unit] ?? [];
  return scales.find(([factor]) => value >= factor)?.[0] ?? 1;
}

// A tick has no more digits than it needs, and the unit stands in the title where it is the same for all ticks.
const tickText = (value, unit) => formatQuantity(value, unit).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "").replace(` ${unit}`, unit === "B" || unit === "s" ? ` ${unit}` : "");

const unitInTitle = (unit) => (["1", "B", "s"].includes(unit) ? "" : ` [${unit}]`);
const DIRECTIONS = { higher: "higher is better", lower: "lower is better", neither: "" };
