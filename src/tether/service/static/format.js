// Numbers, times and names as text, and elements from plain data. No HTML is ever parsed from what the service says.

const DASH = "–";

/** A number with `digits` significant digits and a true minus sign; a dash when there is none. */
export function number(value, digits = 3) {
  if (typeof value !== "number" || !Number.isFinite(value)) return DASH;
  if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(value) < 1e-4)) {
    return value.toExponential(digits - 1).replace("e+", "e").replaceAll("-", "−");
  }
  const places = value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  const text = value.toLocaleString("en", { maximumFractionDigits: Math.min(places, 10) });
  return text === "-0" ? "0" : text.replace("-", "−");
}

/** A number with its sign always shown. */
export function signed(value, digits = 3) {
  return typeof value === "number" && value > 0 ? `+${number(value, digits)}` : number(value, digits);
}

/** A number with a fixed count of decimals, so that a column of them lines up. */
export function fixed(value, places) {
  if (typeof value !== "number" || !Number.isFinite(value)) return DASH;
  const text = value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  return (Number(text.replaceAll(",", "")) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/** A margin: as `fixed`, but one that rounds to nothing says so instead of posing as zero. */
export function margin(value, threshold) {
  const places = placesFor(Math.abs(threshold)) + 1, least = 10 ** -places;
  if (typeof value === "number" && value > 0 && value < least / 2) return `<\u00a0${fixed(least / 2, places + 1)}`;
  return fixed(value, places);
}

/** How many decimals show three significant digits of a quantity as large as `scale`. */
export function placesFor(scale) {
  if (!(scale > 0) || !Number.isFinite(scale)) return 3;
  return Math.min(8, Math.max(0, 2 - Math.floor(Math.log10(scale))));
}

/** A count with separators. */
export function count(value) {
  return Number.isFinite(value) ? value.toLocaleString("en") : DASH;
}

/** A share as a percentage. */
export function percent(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return DASH;
  const hundred = 100 * value;
  const places = hundred !== 0 && hundred !== 100 && (hundred < 1 || hundred > 99) ? 1 : 0;
  return `${hundred.toFixed(places)}\u00a0%`;
}

/** A value followed by its unit, where it has one. */
export function withUnit(text, unit) {
  return unit && text !== DASH ? `${text}\u00a0${unit}` : text;
}

/** A time span in its largest unit. */
export function age(seconds) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => seconds >= size) ?? [1, "s"];
  return `${count(Math.floor(Math.max(seconds, 0) / size))}\u00a0${unit}`;
}

/** Seconds since 1970 as a clock time, with the date when it is not today. */
export function clock(seconds) {
  if (!Number.isFinite(seconds)) return DASH;
  const when = new Date(seconds * 1000);
  const time = when.toLocaleTimeString("en-GB");
  if (when.toDateString() === new Date().toDateString()) return time;
  const year = when.getFullYear() === new Date().getFullYear() ? undefined : "numeric";
  return `${when.toLocaleDateString("en-GB", { day: "numeric", month: "short", year })}, ${time}`.replaceAll(" ", "\u00a0");
}

let named = [];

/** What the problem calls its actions or rays, from its status. */
export function nameActions(names) {
  named = names ?? [];
}

/** An action as text: a number, a ray with its length, or whatever JSON the problem uses. */
export function action(value) {
  if (value === null || value === undefined) return DASH;
  if (typeof value === "number") return named[value] ?? `action ${value}`;
  if (typeof value === "object" && "ray" in value && "length" in value) {
    return value.ray < 0 ? "a₀" : `${named[value.ray] ?? `ray ${value.ray}`} at ${percent(value.length)}`;
  }
  return brief(value, 40);
}

/** JSON on one line, cut when it is long. */
export function brief(value, longest = 60) {
  if (value === null || value === undefined) return DASH;
  if (typeof value === "object" && !Array.isArray(value) && Object.values(value).every((item) => typeof item !== "object")) {
    const parts = Object.entries(value).map(([key, item]) => `${key} ${typeof item === "number" ? number(item, 4) : item}`);
    return brief(parts.join(", "), longest);
  }
  const round = (_, item) => (typeof item === "number" && !Number.isInteger(item) ? Number(item.toPrecision(4)) : item);
  const text = typeof value === "string" ? value : JSON.stringify(value, round).replaceAll(",", ", ").replaceAll('"', "");
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}

const REASONS = {
  "best": "highest score among the certified actions",
  "baseline-best": "a₀ itself had the highest score",
  "only-baseline": "no other action is certified yet",
  "alarm": "the declared cost of a₀ contradicts the data",
  "no-slack": "a₀ leaves no slack under τ here",
  "warm-up": "the cost of a₀ is still being measured",
  "bad-numbers": "a number was not finite",
  "ended": "the episode has ended",
  "unsolved": "no mixture could be certified as the best",
  "tripped": "an alarm has tripped",
  "stopped": "the kill switch is on",
  "shadow": "shadow mode: a₀ acts",
  "failed": "the learner could not propose anything",
  "stale-input": "the input is too old, or its time cannot be believed",
  "gate-refused": "the independent gate did not confirm the bound",
  "margin": "guarded mode wants a wider margin",
  "canary": "drawn for the comparison: a₀ acts in a stated share of the decisions",
  "rate": "as many learned actions as the rate allows were played",
  "budget": "the cost budget does not allow it",
  "not-logged": "the log could not be written",
  "outdated": "costs drift, and too many others decided meanwhile, or it took too long",
};

/** Why a decision is what it is, in words. */
export function reason(code) {
  return REASONS[code] ?? String(code ?? DASH).replaceAll("-", " ");
}

/** The reason of a decision, with what the service says about it in detail; of shadow mode there is no more to say. */
export function because(row) {
  return row.detail && row.reason !== "shadow" ? `${reason(row.reason)} (${row.detail})` : reason(row.reason);
}

/** An element with attributes, event listeners (on…) and children; strings become text, never HTML. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Terms and descriptions of a <dl>, one <div> per pair. */
export function pairs(rows) {
  return rows.filter(Boolean).map(([term, ...description]) =>
    make("div", {}, make("dt", {}, term), make("dd", {}, ...description)));
}

/** A hash, cut in the middle, whole in its title. */
export function hash(text) {
  if (!text) return DASH;
  return make("code", { title: text }, text.length > 20 ? `${text.slice(0, 10)}…${text.slice(-6)}` : text);
}
