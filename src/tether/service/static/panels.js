// What the four charts show, computed from the columns of /v1/series.

import { Chart } from "./charts.js";
import { clock, count, margin, number, percent, signed, withUnit } from "./format.js";

/** The mean of the last `width` outcomes at each place, from sums and counts per bucket; null before half of them are there. */
export function rolling(sums, weights, width) {
  const result = [];
  let sum = 0, weight = 0, from = 0;
  for (let i = 0; i < sums.length; i += 1) {
    sum += sums[i];
    weight += weights[i];
    while (weight - weights[from] >= width) { sum -= sums[from]; weight -= weights[from]; from += 1; }
    result.push(weight >= width / 2 && weight > 0 ? sum / weight : null);
  }
  return result;
}

/** Reward beyond a0's, summed from the start of the log; the level is held where an outcome is missing. */
export function gained(series) {
  let total = (series.before?.reward_sum ?? 0) - (series.before?.baseline_reward_sum ?? 0);
  return series.reward_sum.map((reward, i) => {
    const baseline = series.baseline_reward_sum[i];
    if (series.outcomes[i] > 0 && baseline !== null) total += reward - baseline;
    return total;
  });
}

/** Mean reward beyond a0's per outcome within the window; null before the first. */
export function meanGain(series) {
  let sum = 0, outcomes = 0;
  series.outcomes.forEach((n, i) => {
    if (n > 0 && series.baseline_reward_sum[i] !== null) { sum += series.reward_sum[i] - series.baseline_reward_sum[i]; outcomes += n; }
  });
  return outcomes ? sum / outcomes : null;
}

const EMPTY = { index: [], time: [], count: [], id: [], baseline: [], margin_min: [], margin_mean: [], certified_share: [], outcomes: [], reward_sum: [], baseline_reward_sum: [] };

export class Panels {
  /** openDecision(id): opens a certificate. */
  constructor(openDecision) {
    const at = (id, options) => new Chart(document.getElementById(id), options);
    const open = (i) => { if (this.series.id[i]) openDecision(this.series.id[i]); };
    this.series = EMPTY;
    this.margin = at("chart-margin", { name: "Margin to tau of each decision", format: (value) => number(value), open });
    this.gain = at("chart-gain", { name: "Reward gained over a0, cumulative", format: (value) => number(value) });
    this.reward = at("chart-reward", { name: "Reward per decision, rolling mean", format: (value) => number(value) });
    this.share = at("chart-share", { name: "Share of the action set that is certified", format: percent });
  }

  /** Draws all four. */
  show(series, status) {
    this.series = { ...EMPTY, ...series };
    this.units = status.units ?? {};
    this.shadow = status.mode === "shadow";
    this.showMargin();
    this.showGain();
    this.showReward();
    this.showShare();
  }

  label(i) {
    const { index, time, count: counts } = this.series;
    const which = counts[i] > 1 ? `Decisions ${count(index[i] - counts[i] + 1)} to ${count(index[i])}` : `Decision ${count(index[i])}`;
    return `${which} · ${clock(time[i])}`;
  }

  showMargin() {
    const s = this.series, unit = this.units.cost?.[0];
    const mostly = (i) => 2 * s.baseline[i] > s.count[i];
    const values = s.margin_min, known = values.filter((value) => value !== null);
    const smallest = known.length ? Math.min(...known) : null, tau = Math.abs(s.threshold) || 1;
    const room = Math.max(...known, Number.isFinite(tau) ? tau / 4 : 0);  // so that rounding is not drawn as if it meant something
    const bucketed = s.count.some((n) => n > 1);
    const layers = [
      { kind: "ticks", values, only: mostly, style: "baseline" },
      { kind: "dots", values, only: (i) => !mostly(i), style: "learned" },
    ];
    if (bucketed) layers.unshift({ kind: "whiskers", values, to: s.margin_mean, style: "spread" });
    this.margin.show({
      x: s.index, layers, include: [room, -0.09 * (room || 1)], lines: [{ at: 0, style: "tau", label: "τ" }],
      shade: [{ from: -Infinity, to: 0, style: "over" }], empty: "No decision yet.",
      summary: `${count(s.index.length)} points; the smallest margin is ${number(smallest)}. Arrow keys move, Enter opens the certificate.`,
      tell: (i) => [
        this.label(i),
        `${s.count[i] > 1 ? "smallest margin" : "margin"} ${withUnit(margin(values[i], s.threshold), unit)}`,
        s.count[i] > 1 ? `a₀ in ${count(s.baseline[i])} of ${count(s.count[i])}` : mostly(i) ? "a₀" : "learned action",
      ],
    });
    const parts = known.length ? ["Margin: τ minus the certified upper bound on the cost, of the tightest constraint. No point may lie under the line."] : [];
    if (this.shadow && known.length) parts.push("Shadow mode: the points are proposals; a₀ acts.");
    if (known.filter((value) => Math.abs(value) < 1e-6 * tau).length > known.length / 10) {
      parts.push("A point on the line is no near miss: the learner goes exactly as far as its bound allows, and the bound lies above the true cost.");
    }
    if (bucketed) parts.push("Each point is the smallest margin of a run of decisions, the stroke reaches to its mean.");
    document.getElementById("margin-note").textContent = parts.join(" ");
  }

  source() {
    const said = this.series.baseline_reward_source ?? "";
    if (said.startsWith("estimated")) return "Where another action acted, a₀'s reward is an estimate by the newest model.";
    return said && `a₀'s reward: ${said}.`;
  }

  showGain() {
    const s = this.series, unit = this.units.reward, known = s.baseline_reward_sum.some((value) => value !== null);
    const values = known ? gained(s) : s.index.map(() => null), now = values.at(-1) ?? null;
    this.gain.show({
      x: known ? s.index : [], include: [0], lines: [{ at: 0, style: "zero" }], empty: "No outcome with a reward yet.",
      layers: [{ kind: "area", values, style: "reward" }, { kind: "line", values, style: "reward" }],
      summary: `Now ${signed(now)}.`,
      tell: (i) => [this.label(i), `${withUnit(signed(values[i]), unit)} over a₀ so far`],
    });
    document.getElementById("gain-now").textContent = known ? withUnit(signed(now), unit) : "";
    document.getElementById("gain-note").textContent = known ? `Sum of reward minus a₀'s reward ${s.before === null ? "over the decisions shown" : "since the log began"}. ${this.source()}` : "";
  }

  showReward() {
    const s = this.series, unit = this.units.reward;
    const total = s.outcomes.reduce((sum, n) => sum + n, 0), width = Math.max(1, Math.min(total, 5000, Math.max(100, Math.round(total / 20))));
    const both = s.outcomes.map((n, i) => (s.baseline_reward_sum[i] === null ? 0 : n));
    const observed = rolling(s.reward_sum, s.outcomes, width);
    const baseline = rolling(s.baseline_reward_sum.map((value) => value ?? 0), both, width);
    const layers = [{ kind: "line", values: baseline, style: "estimate" }, { kind: "line", values: observed, style: "reward" }];
    this.reward.show({
      x: total ? s.index : [], layers, empty: "No outcome with a reward yet.",
      summary: `Mean of the last ${count(width)} outcomes: observed ${number(observed.at(-1))}, a0 ${number(baseline.at(-1))}.`,
      tell: (i) => [this.label(i), `observed ${withUnit(number(observed[i]), unit)}`, `a₀ ${withUnit(number(baseline[i]), unit)}`],
    });
    const note = total ? `Mean over the last ${count(width)} outcome${width === 1 ? "" : "s"}. ${this.source()}` : "";
    document.getElementById("reward-note").textContent = note;
  }

  showShare() {
    const s = this.series, raw = s.certified_share, known = raw.some((value) => value !== null);
    const looks = raw.filter((value) => value !== null).length, width = Math.max(1, Math.round(looks / 10)), values = rolling(raw.map((value) => value ?? 0), raw.map((value) => (value === null ? 0 : 1)), width);
    this.share.show({
      x: known ? s.index : [], floor: 0, ceiling: 1, empty: "No decision yet.",
      layers: [{ kind: "area", values, style: "learned" }, { kind: "dots", values: raw, style: "learned faint" }, { kind: "line", values, style: "learned" }],
      summary: `Newest: ${percent(values.at(-1))}.`,
      tell: (i) => [this.label(i), raw[i] === null ? "not looked at here" : `${percent(raw[i])} of the actions certified`, `${percent(values[i])} on average`],
    });
    document.getElementById("share-note").textContent =
      known ? `Share of the action set whose cost bound is under τ, looked at in the first 256 decisions, then in about one of 128.${width > 1 ? ` Line: mean of the last ${count(width)} ${s.count.some((n) => n > 1) ? "points" : "looks"}.` : ""}` : "";
    document.getElementById("share-now").textContent = known ? percent(values.at(-1)) : "";
  }
}
