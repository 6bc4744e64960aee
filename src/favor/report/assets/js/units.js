// Numbers for people, digit for digit as `favor.units.format_quantity` writes them.

const COUNT_SCALES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const BYTE_SCALES = [[2 ** 40, " TiB"], [2 ** 30, " GiB"], [2 ** 20, " MiB"], [2 ** 10, " KiB"]];
const TIME_SCALES = [[1, " s"], [1e-3, " ms"], [1e-6, " µs"]];

function formatQuantity(value, unit) {
  if (unit === "1") return scaled(value, COUNT_SCALES) ?? general(value, 6);
  if (unit === "B") return scaled(value, BYTE_SCALES) ?? `${general(value, 6)} B`;
  if (unit === "s") return scaled(value, TIME_SCALES) ?? `${general(value, 6)} s`;
  if (unit === "%") return `${fixed(value, 2)} %`;
  if (unit === "pp") return `${value < 0 ? "" : "+"}${fixed(value, 2)} pp`;
  return `${Math.abs(value) >= 999.5 ? grouped(fixed(value, 0)) : general(value, 3)} ${unit}`;
}

// As `favor.units.format_difference`.
const formatDifference = (size, unit) => (unit === "%" ? `${fixed(size, 2)} points` : formatQuantity(size, unit));

// As `favor.units.format_outward`: rounded upwards (1) or downwards (-1) only, so that a limit there holds the value.
const formatOutward = (value, unit, outward) => roundedOutward(value, unit, outward).text;

// The text, and the value if it is written so.
function roundedOutward(value, unit, outward) {
  const text = formatQuantity(value, unit);
  const [digits] = /^[\d,.]+/.exec(text);
  const suffix = text.slice(digits.length);
  const factor = [...COUNT_SCALES, ...BYTE_SCALES, ...TIME_SCALES].find(([, of]) => of === suffix)?.[0] ?? 1;
  const number = Number(digits.replaceAll(",", ""));
  if ((value - number * factor) * outward <= 0) return { text, value: number * factor };
  const places = digits.split(".")[1]?.length ?? 0;
  const moved = fixed(number + outward * 10 ** -places, places);
  return { text: grouped(moved) + suffix, value: Number(moved) * factor };
}

// 1st, 2nd, 3rd, 4th, 11th, 21st.
function ordinal(place) {
  const teens = place % 100 > 10 && place % 100 < 14;
  return `${place}${teens ? "th" : (["th", "st", "nd", "rd"][place % 10] ?? "th")}`;
}

function scaled(value, scales) {
  for (const [factor, suffix] of scales) {
    const size = Math.abs(value / factor);
    if (size >= 1) return grouped(fixed(value / factor, size < 10 ? 2 : size < 100 ? 1 : 0)) + suffix;
  }
  return null;
}

// Python rounds a number that is exactly between two to the even one; JavaScript rounds it up.
function fixed(value, digits) {
  const doubled = Math.abs(value) * 2 ** (digits + 1);
  const isBetween = Number.isInteger(doubled) && doubled % 2 === 1;
  if (!isBetween) return value.toFixed(digits);
  const below = Math.floor(Math.abs(value) * 10 ** digits);
  return (((below % 2 ? below + 1 : below) * Math.sign(value)) / 10 ** digits).toFixed(digits);
}

// Python's format "g": so many digits, no trailing zeros, an exponent for the very large and very small.
function general(value, digits) {
  if (value === 0) return "0";
  const exponent = Number(value.toExponential(digits - 1).split("e")[1]);
  if (exponent >= -4 && exponent < digits) return withoutZeros(fixed(value, digits - 1 - exponent));
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const size = String(Math.abs(Number(power))).padStart(2, "0");
  return `${withoutZeros(mantissa)}e${power.startsWith("-") ? "-" : "+"}${size}`;
}

const withoutZeros = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

const grouped = (text) => text.replace(/\B(?=(\d{3})+(?!\d))/g, (match, group, at) => (text.slice(0, at).includes(".") ? "" : ","));

// The interval behind a value: in points for a percentage, else as a share.
function formatSpread(value, low, high, unit) {
  if (low === null || high === null || !value) return "";
  const half = (high - low) / 2;
  return unit === "%" ? ` ± ${fixed(half, 2)}` : ` ± ${fixed((100 * half) / Math.abs(value), 1)}%`;
}
