// Key figures, what happened, and what all of it rests on: the parts of the page that only repeat the status.

import { originBadge } from "./certificate.js";
import { clock, count, hash, make, margin, number, pairs, percent, signed, withUnit } from "./format.js";
import { meanGain } from "./panels.js";

const $ = (id) => document.getElementById(id);

/** A unit for the small line under a figure, which has room for a long one. */
const inUnit = (unit, then) => (unit ? `${unit}${then}` : "");

/** low to high, signed. */
const interval = (found) => `${signed(found.low)} to ${signed(found.high)}`;

/** What the proposals gain over a₀, while that is compared by draw: a number with an interval, not an estimate alone. */
function upliftTile({ uplift, units }) {
  if (!uplift?.reward || uplift.ended) return null;
  return ["Reward over a₀", signed(uplift.reward.estimate), `${inUnit(units?.reward, " ")}per decision; ${interval(uplift.reward)}, ${percent(uplift.confidence)} sure`];
}

/** The comparison in a sentence. */
function compared({ uplift, constraints }) {
  if (!uplift) return "–";
  const drawn = `${count(uplift.compared)} decisions drawn between proposal and a₀${uplift.ended ? ", ended" : ""}`;
  const costs = (uplift.costs ?? []).map((found, i) => found && `${constraints?.[i]?.name ?? "cost"} ${interval(found)}`).filter(Boolean);
  return [uplift.compared ? drawn : "", uplift.reward ? `reward ${interval(uplift.reward)}` : uplift.why, ...costs].filter(Boolean).join("; ");
}

function showTiles(status, series) {
  const counts = status.counts ?? {};
  const known = (series?.margin_min ?? []).filter((value) => value !== null), smallest = known.length ? Math.min(...known) : null;
  const share = counts.decisions ? counts.baseline / counts.decisions : null;
  const shown = (series?.count ?? []).reduce((sum, n) => sum + n, 0), span = shown < counts.decisions ? `last ${count(shown)}` : "all so far";
  const perOutcome = series ? meanGain(series) : null;
  const tiles = [
    ["Decisions", count(counts.decisions), counts.decisions ? `${percent(share)} played a₀` : "none yet"],
    ["Outcomes", count(counts.outcomes), counts.waiting ? `${count(counts.waiting)} wait for earlier ones` : status.waiting ? `${count(counts.open)} to come, the first since ${clock(status.waiting.since)}`
      : !counts.outcomes ? "none yet" : counts.outcomes === counts.costs ? "all with a cost" : `${count(counts.costs)} with a cost`],
    ["Certified actions", percent(status.certified_share), "of the action set, last seen"],
    upliftTile(status) ?? ["Reward over a₀", signed(perOutcome), perOutcome === null ? "none yet" : `${inUnit(status.units?.reward, " ")}per decision, ${span}`],
    ["Smallest margin", margin(smallest, series?.threshold ?? 1), smallest === null ? "none yet" : `${inUnit(status.units?.cost?.[0], ", ")}${span}`],
    ["Gate refusals", count(counts.gate_refusals ?? 0), "bounds it did not confirm"],
    ...(status.bounds === "expected cost" ? [["Drawn over the limit", count(counts.over_by_itself ?? 0), "played actions whose own bound is over the limit"]] : []),
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value, note]) =>
    make("div", { class: "card" }, make("dt", {}, name), make("dd", {}, make("b", {}, value), make("small", {}, note)))));
}

const KINDS = {
  "mode": "Mode", "stopped": "Stopped", "resumed": "Resumed", "tripped": "Alarm", "alarm-reset": "Alarm reset",
  "gate-refused": "Gate refused", "withheld": "Withheld", "lost": "Outcome lost", "warm-start": "Warm start", "configured": "Set up",
};
const REPEATED = /^(mode set to|stopped:|resumed:|alarm reset:|warm start:|the gate refused a certificate:|started,) /;

function showHistory(events) {
  $("no-history").hidden = events.length > 0;
  $("history").replaceChildren(...events.map((event) => make("li", { class: `event ${event.kind}` },
    make("time", {}, clock(event.time)),
    make("p", {}, make("b", {}, `${KINDS[event.kind] ?? event.kind} `), (event.text ?? "").replace(REPEATED, ""), event.by ? make("small", {}, ` by ${event.by}`) : null))));
}

function showFacts(status) {
  $("facts").replaceChildren(...pairs([
    ["Outcomes used", count(status.data_version)],
    ["Log head", `entry ${count(status.head?.seq)} `, hash(status.head?.hash)],
    ["Model hash", hash(status.model_hash)],
    ["Threshold τ", (status.constraints ?? []).map(({ name, threshold }, i) =>
      `${name ? `${name}: ` : ""}${withUnit(number(threshold, 4), status.units?.cost?.[i])}`).join(", ")],
    ["Radius β", typeof status.radius?.value === "number" ? `${number(status.radius.value, 4)} ` : "", originBadge(status.radius?.origin)],
    ["What is bounded", { "expected cost": "the expected cost over the agent's own draw", "realised cost": "the measured cost of each action, with its noise" }[status.bounds] ?? "the mean cost of each action; single measurements may be higher, by noise"],
    ["Gain over a₀", compared(status)],
    ["Steps per episode", `H = ${status.horizon ?? "–"}`],
    ["Tether", status.library_version ?? "–"],
  ]));
}

/** Shows the status: tiles, history and facts. series is null before it has been read. */
export function showOverview(status, series) {
  showTiles(status, series);
  showHistory(status.history ?? []);
  showFacts(status);
}
