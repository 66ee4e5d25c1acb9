// A decision's certificate, opened beside the page: first what it says, then all that it rests on.

import { action, because, brief, clock, count, fixed, hash, make, margin, number, pairs, percent, placesFor, withUnit } from "./format.js";

const THEOREM = "theorem", KEY = "Bar: the upper bound. Orange mark: the cost of a₀. Red mark: τ.";
const SURE = "With the theorem's radius all bounds of the log hold together with probability at least 1 − δ; the problem states δ.";
const ORIGINS = {
  theorem: "from the theorem",
  default: "a default rule",
  tuned: "tuned by hand",
  exact: "told the true costs",
  none: "no constraint",
};

/** Where a radius comes from, as a badge; everything but the theorem's is a warning. */
export function originBadge(origin) {
  if (!origin || origin === "none") return make("span", { class: "quiet" }, "none used yet");
  const known = origin === THEOREM;
  return make("span", { class: `badge ${known ? "good" : "warn"}` }, known ? "theorem" : `⚠ ${origin}`);
}

/** What kind of action was played, as a badge that does not rely on colour. */
export function kindBadge(isBaseline, text) {
  return make("span", { class: `kind ${isBaseline ? "baseline" : "learned"}` }, text ?? (isBaseline ? "a₀" : "learned"));
}

/** A bar from 0 to τ: where a0's cost and the bound lie. Drawn to scale, read aloud by the table below it. */
function gauge(limit) {
  const low = Math.min(0, limit.baseline_cost ?? 0, limit.bound), high = Math.max(limit.threshold, limit.bound);
  const span = (high - low || 1) * 1.08, place = (value) => 100 * (value - low) / span;
  const node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const add = (tag, attributes) => {
    const part = document.createElementNS(node.namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
    node.append(part);
  };
  node.setAttribute("class", "gauge");
  node.setAttribute("aria-hidden", "true");
  add("rect", { class: "track", x: 0, y: 9, width: "100%", height: 10, rx: 3 });
  add("rect", { class: limit.bound <= limit.threshold ? "fill" : "fill over", x: 0, y: 9, width: `${place(limit.bound)}%`, height: 10, rx: 3 });
  if (typeof limit.baseline_cost === "number") {
    add("rect", { class: "safe", x: `${place(limit.baseline_cost)}%`, y: 5, width: 2.5, height: 18 });
  }
  add("rect", { class: "tau", x: `${place(limit.threshold)}%`, y: 1, width: 3, height: 26 });
  return node;
}

/** What a limit bounds: a plain "cost" is the mean that measurements scatter around. */
const bounded = (limit) => ((limit?.bounds ?? "cost") === "cost" ? "mean cost" : limit.bounds);

/** The certificate in one sentence. */
function verdict(row, limits, tightest) {
  const what = bounded(tightest);
  if (row.is_baseline) {
    const cost = typeof tightest?.baseline_cost === "number" ? ` Its cost is declared: ${number(tightest.baseline_cost, 4)}, under τ = ${number(tightest.threshold, 4)}.` : "";
    return make("p", { class: "verdict" }, kindBadge(true), " ", make("b", {}, "The safe action was played: "), `${because(row)}.${cost}`);
  }
  if (!tightest) return make("p", { class: "verdict" }, kindBadge(false), " No bound is stored with this decision.");
  const subject = limits.length > 1 ? `The tightest of ${limits.length} constraints: its ${what}` : `Its ${what}`;
  return make("p", { class: "verdict" }, kindBadge(false, action(row.played)), " ",
    `${subject} is at most ${number(tightest.bound, 4)}, which leaves ${margin(tightest.margin, tightest.threshold).replace("<", "less than")} under τ = ${number(tightest.threshold, 4)}.`);
}

/** What a reader must know before trusting a bound. The declared cost of a0 needs no radius. */
function warnings(certificate) {
  const found = [], limits = certificate.limits ?? [];
  const foreign = certificate.is_baseline ? [] : [...new Set(limits.map((limit) => limit.origin).filter((origin) => origin !== THEOREM))];
  for (const origin of foreign) {
    found.push(make("p", { class: "banner warn" }, make("b", {}, `Radius: ${ORIGINS[origin] ?? origin}. `),
      "The guarantee holds for the theorem's radius only. This bound is a rule of thumb."));
  }
  if (limits.some((limit) => limit.bounds === "expected cost")) {
    const own = limits.filter((limit) => typeof limit.own_bound === "number"), over = own.some((limit) => limit.own_bound > limit.threshold);
    const alone = own.map((limit) => `${number(limit.own_bound, 4)} (limit ${number(limit.threshold, 4)})`).join(", ");
    found.push(make("p", { class: `banner ${over ? "warn" : "info"}` }, make("b", {}, "Expected cost. "),
      "The action was drawn. The bound holds on average over that draw: a single action may cost more than τ. ",
      alone ? `The played action's own bound is ${alone}. ` : "",
      over ? "That is over the limit: right for risks, wrong for temperatures." : ""));
  }
  const realised = limits.find((limit) => limit.bounds === "realised cost");
  if (realised) {
    found.push(make("p", { class: "banner info" }, make("b", {}, "Realised cost. "),
      "The bound holds for the cost that is measured, noise included."));
  }
  const declared = [...new Set(limits.flatMap((limit) => limit.assumptions ?? []))];
  if (declared.length) {
    found.push(make("p", { class: "banner info" }, make("b", {}, "Declared. "),
      `The bound rests on what was declared: ${declared.join("; ")}.`));
  }
  const listed = limits.find((limit) => limit.listed);
  if (listed) {
    found.push(make("p", { class: "banner info" }, make("b", {}, "Listed actions. "),
      `The bound rests on the problem's list: each of its ${count(listed.listed)} actions is taken to cost between 0 and 1 in expectation, played or not.`));
  }
  const drift = limits.find((limit) => limit.drift)?.drift;
  if (drift) {
    const [from, to] = drift.per === "second"
      ? [`since ${clock(drift.since)}`, `until ${clock(drift.until)}`]
      : [`from number ${drift.since} on`, `up to number ${drift.until}`];
    found.push(make("p", { class: "banner info" }, make("b", {}, "Drift. "),
      `Costs were declared to drift by up to ρ = ${number(drift.rate, 4)} per ${drift.per}; the bound rests on decisions ${from} and holds ${to}.`));
  }
  return found;
}

function limitTable(limits, names, units) {
  const cell = (value, unit, places) => make("td", { class: "number" }, withUnit(fixed(value, places), unit));
  const rows = limits.map((limit, i) => {
    const places = placesFor(Math.abs(limit.threshold)) + 1, unit = units?.[i];
    return make("tr", {}, make("th", { scope: "row" }, names[i], gauge(limit)),
      cell(limit.bound, unit, places), cell(limit.threshold, unit, places), make("td", { class: "number" }, withUnit(margin(limit.margin, limit.threshold), unit)),
      cell(limit.baseline_cost, unit, places), cell(limit.gate_bound, unit, places),
      make("td", { class: "number" }, limit.kind === "likelihood" ? "none: likelihood ratio" : make("span", {}, number(limit.radius, 4), " ",  originBadge(limit.origin))));
  });
  const heads = ["Constraint", "Upper bound", "τ", "Margin", "Cost of a₀", "Gate's own bound", "Radius β"];
  const labels = heads.map((text, i) => make("th", { scope: "col", class: i ? "number" : "" }, text));
  rows.forEach((row) => [...row.cells].forEach((box, i) => { if (i) box.dataset.label = heads[i]; }));
  return make("table", { class: "limits" }, make("caption", { class: "unseen" }, "The bound of each constraint"),
    make("thead", {}, make("tr", {}, ...labels)), make("tbody", {}, ...rows));
}

function outcomePart(row, units) {
  const { outcome } = row;
  if (!outcome) return [make("p", { class: "quiet" }, "None has been recorded yet.")];
  const overridden = JSON.stringify(outcome.applied) !== JSON.stringify(row.played);
  const costs = outcome.cost?.map((cost, i) => withUnit(number(cost, 4), units?.cost?.[i])).join(", ");
  const above = outcome.cost?.some((cost, i) => cost > row.certificate?.limits?.[i]?.threshold);
  return [make("dl", { class: "facts" }, ...pairs([
    ["Reward", withUnit(number(outcome.reward, 4), units?.reward)],
    ["Cost seen", costs ?? "not measured: it does not enter the regression",
      above ? make("small", {}, "Above τ in this one observation. Observations are noisy; the bound is on their mean.") : null],
    ["Applied", overridden ? `${action(outcome.applied)}: the decision was overridden` : "as decided"],
    ["Recorded", clock(outcome.time)],
  ]))];
}

function featurePart(feature, title, names) {
  const largest = Math.max(...feature.map(Math.abs), 1e-12);
  const rows = feature.map((value, i) => {
    const bar = make("span", { class: "feature-bar", "aria-hidden": "true" });
    bar.style.setProperty("--size", `${100 * Math.abs(value) / largest}%`);
    bar.classList.toggle("negative", value < 0);
    return make("tr", {}, make("th", { scope: "row" }, names?.[i] ?? `φ${i + 1}`), make("td", { class: "number" }, fixed(value, 4)), make("td", { class: "bars" }, bar));
  });
  return make("details", { open: feature.length <= 8 }, make("summary", {}, `${title} (d = ${feature.length})`),
    make("table", { class: "features" }, make("tbody", {}, ...rows)));
}

function restsOn(row, certificate) {
  const entry = row.entry ?? {}, limit = (certificate.limits ?? []).find((each) => each.lost);
  return make("dl", { class: "facts" }, ...pairs([
    ["Data version", `${count(certificate.data_version)} outcomes`],
    ...(limit ? [["Costs never measured", `${count(limit.lost)}, ${limit.lost_as === "worst-case" ? "counted at their worst" : "taken as lost by chance"}`]] : []),
    ["Rests on log entry", count(certificate.seq), " ", hash(certificate.head)],
    ["Model hash", hash(certificate.model_hash)],
    ["This entry", count(entry.seq ?? row.seq), " ", hash(entry.hash)],
    ["Entry before it", hash(entry.previous)],
    ["Kernel", hash(certificate.kernel)],
    ["Versions", `Tether ${certificate.library ?? "–"}, NumPy ${certificate.numpy ?? "–"}`],
  ]));
}

function whole(value) {
  const text = JSON.stringify(value, null, 2);
  const said = make("span", { class: "quiet", role: "status" });
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = "Copied.";
    } catch {
      said.textContent = "The browser does not allow it: select the text instead.";
    }
  };
  return make("details", {}, make("summary", {}, "Everything, as JSON"),
    make("p", {}, make("button", { type: "button", onclick: copy }, "Copy"), " ", said), make("pre", { tabindex: "0" }, text));
}

/** What the independent gate said of a bound; nothing where a0's declared cost needed no gate. */
function gatePart(certificate, limits) {
  if (certificate.is_baseline || !limits.some((limit) => typeof limit.gate_bound === "number")) return [];
  if (certificate.reason === "gate-refused") return [make("p", {}, make("span", { class: "badge warn" }, "⚠ The gate disagrees"), ` ${certificate.detail}`)];
  return [make("p", {}, make("span", { class: "badge good" }, "✓ The gate agrees"), " It computed the bound again, from its own sums over the log.")];
}

/** A mixture in words: each candidate's share, and a₀'s, which is the rest. */
function drawnFrom(mixture) {
  const rest = 1 - mixture.reduce((sum, [, share]) => sum + share, 0);
  return [...mixture.map(([row, share]) => `candidate ${row} (${percent(share)})`), `a₀ (${percent(Math.max(rest, 0))})`].join(", ");
}

/** The bounds of one certificate: warnings, then a row per constraint. */
function boundPart(certificate, title, status) {
  const limits = certificate.limits ?? [], what = bounded(limits[0]);
  const names = limits.map((_, i) => status.constraints?.[i]?.name ?? (limits.length > 1 ? `Constraint ${i + 1}` : "Cost"));
  return [make("h3", {}, `${title}: bound on the ${what}`), ...warnings(certificate),
    ...(limits.length ? [limitTable(limits, names, status.units?.cost), ...gatePart(certificate, limits),
      make("p", { class: "note quiet" }, certificate.is_baseline ? KEY : `${KEY} ${SURE}`)]
      : [make("p", { class: "quiet" }, "No bound is stored.")])];
}

/** The body of the dialog for one answer of /v1/decisions/{id}. */
export function certificateParts(row, status) {
  const certificate = row.certificate ?? {}, limits = certificate.limits ?? [], units = status.units;
  const known = limits.filter((limit) => typeof limit.margin === "number");
  const tightest = known.toSorted((a, b) => a.margin - b.margin)[0];
  return [
    verdict(row, limits, tightest),
    ...boundPart(certificate, row.is_baseline ? "Played, a₀" : `Played, ${action(row.played)}`, status),
    ...(row.proposal ? boundPart(row.proposal, `Proposed but not played, ${action(row.proposed)}`, status) : []),
    make("h3", {}, "Decision"),
    make("dl", { class: "facts" }, ...pairs([
      ["Played", row.is_baseline ? "a₀, the safe action" : action(row.played)],
      JSON.stringify(row.proposed) === JSON.stringify(row.played) ? null : ["Proposed", action(row.proposed)],
      certificate.mixture ? ["Drawn from", drawnFrom(certificate.mixture)] : null,
      ["Why", because(row)],
      ["State", row.place ?? brief(row.state, 400)],
      ["Step, episode", `${row.step} in ${brief(row.episode)}`],
      ["Mode", row.mode],
      row.certified_share === null ? null : ["Certified actions", percent(row.certified_share)],
      ["Decided", clock(row.time)],
    ])),
    make("h3", {}, "Outcome"), ...outcomePart(row, units),
    make("h3", {}, "What the bound rests on"), restsOn(row, certificate),
    certificate.feature?.length ? featurePart(certificate.feature, certificate.mixture ? "Mean features φ of the mixture" : "Features φ of what was played", status.features) : null,
    row.proposal?.feature?.length ? featurePart(row.proposal.feature, "Features φ of what was proposed", status.features) : null,
    whole(row),
  ].filter(Boolean);
}
