"""`Problem.check`: every assumption that can be tested, from the problem alone, from logged outcomes, and by looking
ahead at what safe play would certify."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf
from math import log as ln
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.check.estimates import estimates
from tether.check.growth import growth
from tether.check.later import later_effects
from tether.check.logs import Log, as_log
from tether.check.monitor import FIRST_MARK, MESSAGES, SCALES, Monitor, log_mean
from tether.check.report import Finding, Report, judged, unknown
from tether.check.survey import Survey, survey
from tether.errors import InputError, TetherError
from tether.kernels.bound import examine, fit_costs, limit_lengths
from tether.kernels.model import ADAPTIVE, BEST, KNOWN, MEASURED, MOVING, SMALLEST, STATE, VISITED, Rules, new_plan
from tether.kernels.plan import build, scratch_for, tables_of
from tether.kernels.radius import cost_radius, default_cost_ridge
from tether.kernels.ridge import Costs, new_costs, new_values, project_rows, refresh_spectrum, remember
from tether.problem.action_sets import NORM_TOLERANCE, ActionSet, FiniteActions, StarActions
from tether.problem.effects import HOW, idle
from tether.problem.limit_on import ASK, LimitOn, is_average
from tether.problem.problem import KnownState, Problem
from tether.records import Array, State

UNKNOWABLE = (
    unknown(
        "A1: linear dynamics",
        "P(s'|s,a) = ⟨μ*(s'), φ⟩ would need every next state; no bound on a cost rests on it",
        "if it fails, learning may be slow or poor, not unsafe",
    ),
    unknown(
        "A3: sub-Gaussian tails",
        "rare large noise may not have shown yet; the noise test sees it only once it happens",
        "clip or bound the measured cost, so that the tails cannot be heavy",
    ),
)


def check_problem(
    problem: Problem,
    log: Any = None,
    *,
    states: Iterable[State] | None = None,
    steps: int = 10_000,
    level: float | None = None,
    pooled: bool = False,
    limit_on: LimitOn = "single actions",
    rng: np.random.Generator | None = None,
) -> Report:
    """Test the assumptions of a problem; `print` the report.

    Args:
        problem: what the learner knows.
        log: outcomes in the order in which they happened: Transitions, or a mapping of arrays phi (n, d), cost (n, M),
            and if known reward (n,) and step (n,).
        states: what to look at, where the problem does not list its states.
        steps: how many steps of safe play you can afford before something new must be certified.
        level: the probability that tests on the log reject although everything holds; δ unless given. The tests of
            costs share one level, that of declared safe costs and that of rewards have one of their own.
        pooled: γ*_h does not depend on h.
        limit_on: "single actions", or "average over draws" as RSLUCB-QVI keeps it. Single actions may then exceed the
            limit: right for risks, wrong for temperatures.
        rng: draws states, where there are more than 500.
    """
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise InputError(f"steps must be an integer >= 1, but is {steps!r}.")
    level = problem.confidence if level is None else level
    if not 0.0 < level < 1.0:
        raise InputError(f"level must lie in (0, 1), but is {level}: it is the probability of a false alarm.")
    logged = None if log is None else as_log(problem, log)
    if states is None and problem.states is None and logged is not None and logged.states is not None:
        states = list({problem.key_of(state): state for state in logged.states}.values())
    seen = survey(problem, states, rng or np.random.default_rng(0))
    averages = is_average(limit_on)
    play, outlook = from_safe_play(problem, seen, int(steps), Ways(averages, pooled, pace_of(problem, logged)))
    findings = from_problem(problem, seen, averages)
    if seen.sets:
        first_new = -1 if play is None else play.first_new()
        taught = np.zeros((0, problem.dimension)) if logged is None else logged.feature[logged.measured]
        findings.append(growth(problem, seen, averages, first_new, taught))
    findings += pooled_costs(problem, seen, pooled)
    findings += without_log() if logged is None else from_log(problem, logged, level, pooled)
    return Report((*findings, *UNKNOWABLE, *outlook))


# What follows from the problem alone.

MOST_BOXES = 1024
"""Actions whose expected costs are looked at together."""

FIT = 1e-6
"""How far declared safe costs may be from linear, relative to the largest of them."""

DIGITS = 1e-11
"""Costs further from linear than this, relative to the largest of them, were rounded; less may be the solver's."""


def from_problem(problem: Problem, seen: Survey, averages: bool) -> list[Finding]:
    """Every finding that needs no data."""
    if not seen.sets:
        why = "the problem lists no states, and none were given"
        return [unknown("states", why, "pass states=[...], or a log of Transitions")]
    return [
        norms(problem, seen.features, f"A4: ‖φ(s,a)‖ <= {problem.feature_norm:.4g}", seen.where),
        safe_features(problem, seen),
        safe_costs(problem, seen),
        linear_safe_costs(problem, seen),
        *idle_limits(problem),
        *bounded_costs(problem, seen),
        *misfits(problem, seen),
        *drifts(problem, seen),
        limited(problem, seen, averages),
    ]


def norms(problem: Problem, features: Array, name: str, where: str) -> Finding:
    """Assumption 4: ‖φ(s, a)‖ <= the declared limit."""
    limit, worst = problem.feature_norm, float(np.linalg.norm(features, axis=1).max())
    return judged(
        name,
        worst <= limit * (1.0 + NORM_TOLERANCE),
        f"the largest norm is {worst:.4g}, over {len(features)} features of {where}",
        f"divide all features by {worst:.4g}, or declare feature_norm={worst:.4g}; agents refuse longer ones",
    )


def safe_features(problem: Problem, seen: Survey) -> Finding:
    """Where φ(s, a_0(s)) is 0, a linear cost is 0, and must be declared so."""
    sizes = np.linalg.norm(seen.phi_0, axis=1)
    error = problem.fact_error
    wrong = ~(np.abs(seen.costs) <= error).all(axis=(1, 2)) & ~(sizes > 0.0)
    zero = [seen.states[i] for i in np.flatnonzero(wrong)]
    evidence = f"the smallest norm is {sizes.min():.4g}, in {seen.where}"
    if zero:
        evidence = f"zero in {len(zero)} of {seen.where}, for instance {zero[0]!r}, without a declared cost of 0"
    way_out = "append a constant feature, so that every action has a non-zero one"
    return judged("A2: safe features are not zero", not zero, evidence, way_out)


def safe_costs(problem: Problem, seen: Survey) -> Finding:
    """Assumption 2: τ_h(s) is known and under τ."""
    name = "A2: the safe action costs less than τ"
    if problem.baseline_cost is None:
        return unknown(
            name,
            "no safe costs were declared: you vouch that each is under τ, and nothing is conditioned on them",
            "declare safe_cost where it is known: bounds get tighter, and learning starts sooner",
        )
    gaps = np.asarray(problem.threshold) - seen.costs  # (S, H, M)
    if not np.isfinite(seen.costs).all():
        row, step, _ = np.argwhere(~np.isfinite(seen.costs))[0]
        return judged(name, False, f"τ_h(s) is not finite at step {step}, state {seen.states[row]!r}", "declare it")
    row, step, constraint = np.unravel_index(int(gaps.argmin()), gaps.shape)
    where = f"step {step}, state {seen.states[row]!r}" + (
        f", cost {constraint}" if len(problem.constraints) > 1 else ""
    )
    evidence = f"the smallest gap τ − τ_h(s) is {gaps.min():.4g} (at {where}), the median {np.median(gaps):.4g}"
    if gaps.min() > 0.0:
        return judged(name, True, f"{evidence}, in {seen.where}")
    if any(one.known.if_tight == "safe action" for one in problem.constraints) and (gaps > 0.0).all(axis=(1, 2)).any():
        return judged(name, True, f"{evidence}; where there is no gap a_0 is played, as if_tight asks")
    way_out = (
        "name a safer action, raise τ, or declare SafeCost(…, if_tight='safe action') to play it there without learning"
    )
    share = float((gaps <= 0.0).any(axis=(1, 2)).mean())
    return judged(name, False, f"{evidence}; {share:.0%} of the states have no gap", way_out)


def linear_safe_costs(problem: Problem, seen: Survey) -> Finding:
    """Assumptions 1 and 4 on what was declared: some γ with ‖γ‖ <= B must give every τ_h(s), up to its declared error.

    Where least squares misses by more than the error in the root mean square, every γ does so somewhere.
    """
    name = "A1: declared safe costs are linear in φ"
    if problem.baseline_cost is None or not np.isfinite(seen.costs).all():
        return unknown(name, "the safe costs are not all declared")
    phi_0, flat = seen.phi_0, seen.costs.reshape(len(seen.sets), -1)
    gamma = np.linalg.lstsq(phi_0, flat, rcond=1e-9)[0]  # the shortest γ of each step and constraint (d, H·M)
    missed = np.abs(phi_0 @ gamma - flat)
    error: Array = np.tile(problem.fact_error, problem.horizon)  # e + ε, (H·M,)
    allowed = error + FIT * max(1.0, float(np.abs(flat).max()))
    way_out = "correct safe_cost, or add the feature that the safe costs depend on"
    if not (missed <= allowed).all():
        evidence = f"no γ gives them: the best one misses by up to {missed.max():.3g}, in {seen.where}"
        if error.any() and (np.sqrt((missed**2).mean(axis=0)) <= allowed).all():
            return unknown(name, f"least squares misses by up to {missed.max():.3g}; another γ may be within the error")
        return judged(name, False, evidence, way_out)
    needed = least_norms(phi_0, flat, gamma, error).reshape(problem.horizon, len(problem.constraints)).max(axis=0)
    bound = np.asarray(problem.gamma_norm)
    if error.any() and not (needed > bound * (1.0 + 1e-9)).any():
        return judged(name, True, f"some γ gives them within their declared error, in {seen.where}")
    evidence = f"they need ‖γ‖ >= {_numbers(needed)}; declared B = {_numbers(bound)}"
    if not error.any() and missed.max() > DIGITS * max(1.0, float(np.abs(flat).max())):
        evidence += f"; they fit each other up to {missed.max():.1g} only: if they were rounded, declare "
        evidence += "SafeCost(…, error=…), half a unit of the last decimal"
    way_out = f"declare {HOW}: B is at least {_numbers(needed)}, and more where other features count"
    return judged(name, not (needed > bound * (1.0 + 1e-9)).any(), evidence, way_out)


def least_norms(phi_0: Array, costs: Array, gamma: NDArray[np.floating[Any]], error: Array) -> Array:
    """Return what safe costs (S, n), each up to its error (n,), demand of ‖γ‖, at least: (n,).

    ⟨γ, Σu_s f_s⟩ is at least Σu_s τ_s − eΣ|u_s|, and at most ‖γ‖‖Σu_s f_s‖, whatever u is. Here it is the one for which
    Σu_s f_s is the shortest γ (d, n) that gives the costs without an error: then nothing is lost where e = 0.
    """
    weights = np.linalg.lstsq(phi_0.T, gamma, rcond=1e-9)[0]
    proven = (weights * costs).sum(axis=0) - error * np.abs(weights).sum(axis=0)
    length = np.linalg.norm(phi_0.T @ weights, axis=0)
    least: Array = np.where(length > 0.0, proven / np.where(length > 0.0, length, 1.0), 0.0)
    return np.maximum(least, 0.0)


def idle_limits(problem: Problem) -> list[Finding]:
    """Assumption 4: where B is too small for any action to reach τ, either B is wrong or there is nothing to limit."""
    why = idle(problem.threshold, problem.gamma_norm, problem.feature_norm, problem.bounded)
    return [judged("A4: some action may cost more than τ", False, why, f"declare {HOW}")] if why else []


def bounded_costs(problem: Problem, seen: Survey) -> list[Finding]:
    """Section 14: some γ must give every action an expected cost in [0, 1], and the safe ones what was declared."""
    if not any(problem.bounded):
        return []
    rows = np.unique(seen.features, axis=0)[:MOST_BOXES]
    outside = 0.0
    for j in np.flatnonzero(problem.bounded).tolist():
        for costs in np.unique(seen.costs[:, :, j], axis=1).T:  # (S,), of each step that differs
            outside = max(outside, _outside(rows, seen.phi_0, costs, problem.baseline_cost_error[j]))
    text = f"some γ gives all {len(rows)} that were looked at one, beside the declared safe costs, in {seen.where}"
    if outside > FIT:
        text = f"no γ does: with the declared safe costs, some cost is at least {outside:.3g} outside, in {seen.where}"
    way_out = "correct safe_cost, leave actions that cannot be played out of the list, or declare a σ instead"
    return [judged("A1: expected costs lie in [0, 1]", outside <= FIT, text, way_out)]


def _outside(rows: Array, phi_0: Array, costs: Array, error: float) -> float:
    """The least t such that some γ has ⟨γ, x⟩ within t of [0, 1] for every row x (n, d), and ⟨γ, f⟩ within t of the
    declared cost of each safe feature f (S, d), up to its error."""
    from scipy.optimize import linprog  # slow to import, and few problems need it

    declared = np.isfinite(costs)
    facts, safe_costs = phi_0[declared], costs[declared]
    sides = np.vstack([rows, -rows, facts, -facts])
    limits = np.concatenate([np.ones(len(rows)), np.zeros(len(rows)), safe_costs + error, error - safe_costs])
    found = linprog(
        np.append(np.zeros(rows.shape[1]), 1.0),
        A_ub=np.hstack([sides, -np.ones((len(sides), 1))]),
        b_ub=limits,
        bounds=[*[(None, None)] * rows.shape[1], (0.0, None)],
    )
    return float(found.fun) if found.success else float("inf")


def misfits(problem: Problem, seen: Survey) -> list[Finding]:
    """Section 12: from its declared cost a ray starts at τ_h(s) + e + 2ε, which must leave something under τ."""
    if not problem.point_error.any():
        return []
    name = "A1: the misfit ε leaves room under τ"
    if problem.baseline_cost is None or not np.isfinite(seen.costs).all():
        return [unknown(name, "the safe costs are not all declared: only data can certify something")]
    starts = problem.fact_error + problem.point_error
    room = (np.asarray(problem.threshold) - seen.costs - starts).min(axis=(1, 2))  # (S,)
    tight = float((room <= 0.0).mean())
    evidence = f"τ − τ_h(s) − e − 2ε is at least {room.min():.4g}, in {seen.where}; ε is your upper bound"
    if tight:
        evidence += (
            f"; in {tight:.0%} of them it is not over 0, and nothing but a_0 is certified from what was declared"
        )
    return [judged(name, not tight, evidence, "better features (a smaller ε), a larger τ, or a cheaper safe action")]


def drifts(problem: Problem, seen: Survey) -> list[Finding]:
    """Section 13: while the shortest of its blocks fills, a cost must not move by all that there is under τ."""
    if not any(problem.drift):
        return []
    windows, rho = problem.windows(problem.horizon), np.asarray(problem.drift)
    name, moved = "A1: the drift ρ leaves room under τ", windows[0] * problem.feature_norm * rho  # (M,)
    evidence = (
        f"γ* may move by ρ = {_numbers(rho)} per {problem.drift_per}: your word, no log shows how fast costs will "
        f"drift. Bounds rest on the last {windows[0]:g} to {2.0 * windows[-1]:g} {problem.drift_per}s; within "
        f"{windows[0]:g} a cost may move by {_numbers(moved)}"
    )
    if problem.baseline_cost is None or not np.isfinite(seen.costs).all():
        return [unknown(name, evidence)]
    room = float((np.asarray(problem.threshold) - seen.costs - moved).min())
    return [judged(name, room > 0.0, evidence, "a feature for what changes (a smaller ρ), less noise, or a larger τ")]


def limited(problem: Problem, seen: Survey, averages: bool) -> Finding:
    """What τ limits, and whether a_0 keeps to it: section 15."""
    if problem.realised is None:
        name, over = "limit: on the expected cost", "also over the agent's own draw" if averages else ""
        text = "τ limits the mean; single measurements may be over it, by noise"
        return judged(name, True, f"{text}; {over}" if over else text)
    name = f"limit: on the realised cost, kept with probability {1.0 - problem.realised.exceedance:.4g}"
    way_out = (
        "a safer action, a larger τ or exceedance η; noise_scales=True if a_0 has no noise; a limit on single actions"
    )
    if averages:
        return judged(name, False, "RSLUCB-QVI bounds an average over its own draw", way_out)
    reach, gaps = problem.quantile, np.asarray(problem.threshold) - problem.reserve - seen.costs
    text = f"noise may add {_numbers(reach)}" + (" at the end of a ray" if problem.noise_scales else "")
    if problem.baseline_cost is None or not np.isfinite(seen.costs).all():
        return unknown(name, f"{text}; you vouch that a_0 keeps to it")
    return judged(name, bool(gaps.min() > 0.0), f"{text}; a_0 then keeps {gaps.min():.4g} under τ at least", way_out)


def pooled_costs(problem: Problem, seen: Survey, pooled: bool) -> list[Finding]:
    """One regression for all steps needs safe costs that do not depend on the step."""
    if not pooled or problem.horizon == 1 or not len(seen.costs) or not np.isfinite(seen.costs).all():
        return []
    spread = float((np.ptp(seen.costs, axis=1) - 2.0 * np.asarray(problem.baseline_cost_error)).max())
    return [
        judged(
            "pooled: safe costs are the same at every step",
            spread <= FIT * max(1.0, float(np.abs(problem.threshold).max())),
            f"they differ by up to {max(spread, 0.0):.3g} between steps, beyond their declared error, in {seen.where}",
            "use pooled=False, or correct safe_cost; agents refuse to pool them",
        )
    ]


def rank_of(rows: Array) -> int:
    """How many directions the rows span, up to a relative 1e-9."""
    if not rows.size:
        return 0
    singular = np.linalg.svd(rows, compute_uv=False)
    return int((singular > 1e-9 * max(float(singular[0]), 1e-300)).sum())


def _numbers(values: Array) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


# What logged outcomes say: noise, linearity, drift, norms, declared safe costs, conditioning.

PASS = "pass a log (log=…, or --log FILE)"
TESTS = {
    "shape": (
        "A1: costs are linear in φ",
        "no log was given",
        f"{PASS}; a cost that bends with the features would break every bound",
    ),
    "drift": (
        "A1: the same costs early and late",
        "no log was given",
        f"{PASS}, and let agent.watch look on: old data certify new costs wrongly",
    ),
    "noise": (
        "A3: noise on costs within σ",
        "σ is your upper bound",
        f"{PASS}; a σ too small makes every bound too small",
    ),
    "loss": (
        "A3: costs get lost by chance",
        "no log was given",
        f"{PASS} with the rows that lost their cost (NaN); or declare Lost('worst-case'), which assumes nothing",
    ),
    "safe": (
        "A2: the safe action keeps to τ when it is played",
        "no log was given",
        f"{PASS} with states, and outcomes of a_0; else you vouch for it",
    ),
    "norm": (
        "A4: ‖γ*‖ <= B",
        "B is your upper bound",
        f"declare {HOW}; {PASS}: data can only show that a B is too small",
    ),
}
"""The monitor's tests: what each finding is called, and what is said of it without a log."""

REWARD = "A1: rewards are linear in φ (safety does not need it)"


def without_log() -> list[Finding]:
    """What stays open when there are no data."""
    return [*(unknown(*test) for test in TESTS.values()), unknown(REWARD, "no log was given", f"{PASS} with rewards")]


def from_log(problem: Problem, log: Log, level: float, pooled: bool) -> list[Finding]:
    """Every finding that logged outcomes allow."""
    usable = log.measured
    if not usable.any():
        way_out = "log the costs that were measured: without them nothing can be tested"
        return [
            judged("log", False, f"all {len(usable)} outcomes lack a cost (NaN, not measured)", way_out),
            *(unknown(name, "the log has no cost") for name, _, _ in TESTS.values()),
        ]
    sigma = _reward_noise(problem, log)
    if needs_time(problem) and log.time is None:
        why, way_out = "drift is per second, and the log does not say when its rows were decided", "log a column `time`"
        timeless = [unknown(name, why, way_out) for name, _, _ in TESTS.values()]
        limit = norms(problem, log.feature, "A4: logged ‖φ‖ within its limit", "the log")
        return [*timeless, limit, *estimates(problem, log, level, pooled)]
    monitor = Monitor(problem, level=level, pooled=pooled, reward_noise=sigma)
    safe = safe_plays(problem, log)
    for row, measured in enumerate(usable):
        key = None if log.states is None else problem.key_of(log.states[row])
        reward, cost = 0.0 if sigma is None else float(log.reward[row]), log.cost[row] if measured else None
        at = float(log.time[row]) if needs_time(problem) and log.time is not None else float(row)
        monitor.observe(int(log.step[row]), log.feature[row], cost, reward, key, row in safe, at)
    monitor.look()
    found = [_tested(test, monitor, log) for test in TESTS if test != "safe"] + [_safe_action(monitor, log, safe)]
    if len(safe) == usable.sum():  # what was never played was not looked at
        found = [_of_safe_action_only(finding) if finding.name == TESTS["shape"][0] else finding for finding in found]
    return [
        *sorted(found, key=lambda finding: finding.name),
        unknown(REWARD, "no rewards, or not all in [0, 1]") if sigma is None else _reward(monitor, sigma),
        norms(problem, log.feature, "A4: logged ‖φ‖ within its limit", "the log"),
        *_declared_costs(problem, log, safe, level),
        later_effects(problem, log, level, pooled),
        _conditioning(problem, log, pooled),
        *estimates(problem, log, level, pooled),
    ]


def needs_time(problem: Problem) -> bool:
    """Whether ages are measured by time stamps."""
    return any(problem.drift) and problem.drift_per == "second"


def pace_of(problem: Problem, log: Log | None) -> float | None:
    """Seconds between two decisions, on average; None if unknown. A decision has the length 1 where drift is per
    decision."""
    if not needs_time(problem):
        return 1.0
    if log is None or log.time is None or len(log.time) < 2:
        return None
    return float(np.ptp(log.time)) / (len(log.time) - 1) or None


def _tested(test: str, monitor: Monitor, log: Log) -> Finding:
    """The verdict of one of the monitor's tests on the costs."""
    name, alarm, limit = TESTS[test][0], monitor.alarm, monitor.limit
    if alarm is not None and alarm.test in (test, "numbers"):
        what, _, way_out = alarm.message.partition(". ")
        return judged(name, False, str(replace(alarm, message=what)).rstrip("."), way_out)
    if test == "loss" and monitor.problem.lost == "worst-case":
        return judged(name, True, "not needed: a lost cost counts as the worst within cost_range")
    worst = max(entry[test] for entry in monitor.evidence()[: len(monitor.problem.constraints)])
    numbers = f"log evidence {worst:.1f}, limit {limit:.1f}, level {monitor.level:g} at any time"
    if worst == -inf:  # only drift: its test compares later outcomes of a step with the first ones
        way_out = (
            "log or play more; pooled=True (--pooled) takes all steps together, if costs do not depend on the step"
        )
        return unknown(name, f"no step has more than {FIRST_MARK} outcomes, too few to tell early from late", way_out)
    words = {"extra": monitor.left_out(), "since": "an earlier observation", "lost": "most", "far": ""}
    what, way_out = MESSAGES[test].format(**words).split(". ")
    evidence = f"not contradicted by {int(log.measured.sum())} costs ({numbers})"
    if test == "loss":
        evidence = f"{int((~log.measured).sum())} of {len(log.measured)} costs are missing ({numbers})"
    if test in ("noise", "shape"):
        evidence += _held_out(monitor, log)
    return judged(name, worst < limit, evidence if worst < limit else f"{what} ({numbers})", way_out)


def _held_out(monitor: Monitor, log: Log) -> str:
    """Root mean square of later residuals under a fit of the earlier half, in units of σ, for the worst constraint."""
    problem, rows = monitor.problem, np.flatnonzero(log.measured)
    least = 1e-6 * problem.feature_norm**2
    early, late = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    squares: list[Array] = []
    for step in range(1 if monitor.pooled else problem.horizon):
        a, b = (half if monitor.pooled else half[log.step[half] == step] for half in (early, late))
        if len(a) >= 2 * problem.dimension and len(b):
            x = log.feature[a]
            gamma = np.linalg.solve(x.T @ x + least * np.eye(problem.dimension), x.T @ log.cost[a])
            squares.append(((log.cost[b] - log.feature[b] @ gamma) / np.asarray(problem.noise)) ** 2)
    if not squares:
        return ""
    return f"; held-out residuals are {np.sqrt(np.concatenate(squares).mean(axis=0)).max():.2f} σ"


def _reward_noise(problem: Problem, log: Log) -> float | None:
    """σ_r as declared; else ½, which holds for rewards in [0, 1], whatever their law; None if nothing can be said."""
    if np.isnan(log.reward).any():
        return None
    in_unit = log.reward.min() >= 0.0 and log.reward.max() <= 1.0
    return problem.reward_noise or (0.5 if in_unit else None)


def _reward(monitor: Monitor, sigma: float) -> Finding:
    """Whether rewards are linear, and their noise within σ_r."""
    if monitor.warning is not None:
        way_out = "learning may be slow or poor, bounds on costs are not touched: add a feature, or raise reward_noise"
        return judged(REWARD, False, str(monitor.warning), way_out)
    worst = max(monitor.evidence()[-1].values())
    how = "as declared" if monitor.problem.reward_noise else "as for any reward in [0, 1]"
    text = f"not contradicted (log evidence {worst:.1f}, noise up to {sigma:.4g} allowed, {how})"
    return judged(REWARD, True, text)


def _of_safe_action_only(finding: Finding) -> Finding:
    """What a log of a_0 alone says about linearity: nothing about other actions."""
    if finding.verdict == "fails":
        return finding
    way_out = "log other actions, too; the check of a Bridge plays those that are certified, unless explore=False"
    return unknown(
        finding.name, f"only a_0 was played, so other actions were not looked at; a_0: {finding.evidence}", way_out
    )


def safe_plays(problem: Problem, log: Log) -> dict[int, KnownState]:
    """The rows of the log in which a_0(s) was played and its cost measured, with what is known of their states."""
    found: dict[int, KnownState] = {}
    for row in np.flatnonzero(log.measured) if log.states is not None else ():
        try:
            known = problem.look_up(log.states[row])  # type: ignore[index]
        except TetherError:
            continue  # a state that the problem refuses is reported with the assumption it breaks
        if np.array_equal(log.feature[row], known.actions.phi_0):
            found[int(row)] = known
    return found


REACHED = "every state that the learner can reach"


def _safe_action(monitor: Monitor, log: Log, safe: dict[int, KnownState]) -> Finding:
    """Whether a_0, where it was played, costs at most τ: tested whether or not its cost was declared."""
    name, why, way_out = TESTS["safe"]
    if not safe:
        why = "the log does not say in which states it was" if log.states is None else "the log has no outcome of a_0"
        return unknown(name, why, way_out)
    evidence, limit = max(entry["safe"] for entry in monitor.evidence()), monitor.safe_limit
    worst = (log.cost[list(safe)].mean(axis=0) - monitor.problem.threshold).max()
    others = log.measured.copy()
    others[list(safe)] = False
    later = int(sum(log.step[row] > 0 and others[row - 1] for row in safe if row > 0))
    text = f"over {len(safe)} outcomes of a_0 the mean cost is {abs(worst):.3g} {'over' if worst > 0.0 else 'under'} τ"
    alarm = monitor.alarm
    if alarm is not None and alarm.test == "safe":  # later outcomes under τ do not take it back
        evidence = alarm.evidence
        text += f"; after {alarm.observations} of them: {alarm.message.partition('. ')[0]}"
    if others.any():
        text += f"; {later} of them came right after other actions"
    else:
        text += "; only states that safe play visits were seen, but a_0 must stay safe in "
        text += f"{REACHED}: the check of a Bridge looks there, unless explore=False or nothing else is certified"
    numbers = f"log evidence {evidence:.1f}, limit {limit:.1f}, level {monitor.level:g} at any time"
    way_out = f"name a safer action, safe in {REACHED}, limit what leads to the others, or raise τ; "
    way_out += "effects that come steps later: docs/later-effects.md"
    return judged(name, evidence < limit, f"{text} ({numbers})", way_out)


def _declared_costs(problem: Problem, log: Log, safe: dict[int, KnownState], level: float) -> list[Finding]:
    """z − τ_h(s) where a_0(s) was played is noise alone, up to the declared error e: its sums must stay within σ.

    Mixing exp(λΣε − ½nλ²) over λ ~ N(0, 1/ρ) gives ½S²/(n+ρ) − ½log(1+n/ρ), an e-process for each (h, s); an error
    of up to e may be in every term, so ne comes off |S| first. The k-th (h, s) that the log meets has weight
    1/(k(k+1)): fixed beforehand, whichever pair it turns out to be, so that their sum is an e-process too, however
    play chose where to go next. (A mean over the pairs that were met would not be one.)
    """
    if problem.baseline_cost is None or log.states is None:
        return []
    sigma, error = np.asarray(problem.noise), np.asarray(problem.baseline_cost_error)
    sums: dict[tuple[int, object], list[Array]] = {}  # in the order in which the log meets them
    for row, known in safe.items():
        step = int(log.step[row])
        if not np.isnan(known.baseline_cost[step]).any():
            sums.setdefault((step, known.key), []).append((log.cost[row] - known.baseline_cost[step]) / sigma)
    name = "A2: safe costs as declared"
    if not sums:
        return [unknown(name, "the log has no outcome of a safe action")]
    counts = np.array([len(noise) for noise in sums.values()])[:, None]  # (K, 1)
    totals = np.array([np.sum(noise, axis=0) for noise in sums.values()])  # (K, M)
    beyond = np.maximum(np.abs(totals) - counts * error / sigma, 0.0)
    each = log_mean(0.5 * (beyond[..., None] ** 2 / (counts[..., None] + SCALES) - np.log1p(counts / SCALES)[:, None]))
    place = np.arange(1, len(sums) + 1)[:, None]
    unmet = -ln(len(sums) + 1)  # every pair that was not met has evidence 1, and together they have weight 1/(K + 1)
    evidence = float(np.logaddexp(np.logaddexp.reduce(each - np.log(place * (place + 1)), axis=0), unmet).max())
    limit = ln(len(problem.constraints) / level)
    plays = f"{int(counts.sum())} outcomes of safe actions"
    numbers = f"log evidence {evidence:.1f}, limit {limit:.1f}, level {level:g}"
    worst = int(each.max(axis=1).argmax())
    (step, key), mean = list(sums)[worst], totals[worst] * sigma / counts[worst]
    row = next(row for row, known in safe.items() if (int(log.step[row]), known.key) == (step, key))
    called = problem.names.place(log.states[row])
    where = f"at step {step}, {called} costs are off by {mean.round(4).tolist()} on average"
    text = f"not contradicted by {plays}" if evidence < limit else f"{where}, over {plays}"
    way_out = "correct safe_cost, declare its error, or declare it unknown"
    return [judged(name, evidence < limit, f"{text} ({numbers})", way_out)]


def _conditioning(problem: Problem, log: Log, pooled: bool) -> Finding:
    """How uneven A = λI + Σφφᵀ is, and what its rounding does to bounds."""
    ridge = default_cost_ridge(problem.noise, problem.gamma_norm, problem.dimension)
    worst, ranks = 1.0, []
    for step in range(1 if pooled else problem.horizon):
        rows = log.feature[log.measured & (pooled | (log.step == step))]
        values = np.linalg.eigvalsh(rows.T @ rows) if len(rows) else np.zeros(problem.dimension)
        worst = max(worst, (values[-1] + ridge) / (max(values[0], 0.0) + ridge))
        ranks.append(rank_of(rows))
    error = 4.0 * 2.0**-52 * float(np.sqrt((1 + len(log.feature)) * worst * problem.dimension))
    text = (
        f"condition {worst:.2g} with λ = {ridge:.2g}; bounds are widened by {error:.1g} of themselves for rounding; "
        f"logged features span {min(ranks)} of {problem.dimension} directions"
    )
    return judged("conditioning of the Gram matrix", error < 1e-3, text, "rescale features, or raise cost_ridge λ")


# How far safe play alone gets: certified lengths after n steps of a_0. No data are needed, only the declared costs.

MOST_SETS = 100
"""Of more states, this many evenly chosen ones are looked at."""

SHARE = 0.1
"""On a ray, this part of its length counts as a new action."""

USABLE = 0.01
"""A certified length under this part of a ray teaches next to nothing."""

FOREVER = 2**40


class Reach(NamedTuple):
    """Certified lengths: the smallest over steps and constraints, per state (N,); and the largest radius."""

    lengths: list[Array]
    radius: float


class Ways(NamedTuple):
    """How the learner is going to play.

    `averages`: mixtures of a_0 and an action count as rays (Eq. 14). `pooled`: one regression for all steps. `pace` is
    how much time a decision takes, in units of the drift; None if it is unknown.
    """

    averages: bool = False
    pooled: bool = False
    pace: float | None = 1.0


class SafePlay:
    """a_0 played over the states in turn, without noise, and what the default learner would certify then.

    `rows` are the candidates besides a_0.
    """

    def __init__(self, problem: Problem, seen: Survey, ways: Ways) -> None:
        self.problem, self.seen, self.pace = problem, seen, 1.0 if ways.pace is None else ways.pace
        self.stages = 1 if ways.pooled else problem.horizon
        self._first: list[int | None] = []
        self.ridge = default_cost_ridge(problem.noise, problem.gamma_norm, problem.dimension)
        self.gram = seen.phi_0.T @ seen.phi_0 / len(seen.phi_0)  # mean φ_0φ_0ᵀ
        self.moment = np.einsum("shm,sd->hmd", seen.costs, seen.phi_0) / len(seen.phi_0)
        chosen = np.unique(np.linspace(0, len(seen.sets) - 1, min(len(seen.sets), MOST_SETS)).round().astype(int))
        self.states, self.costs = [seen.states[i] for i in chosen], seen.costs[chosen]
        self.stars = [ways.averages or seen.sets[i].is_star for i in chosen]
        self.rows: list[Array] = []
        self.sets: list[ActionSet] = []
        for i, star in zip(chosen, self.stars, strict=True):
            endpoints, phi_0 = seen.sets[i].endpoints, seen.sets[i].phi_0
            others = endpoints[np.abs(endpoints - phi_0).max(axis=1) > 0.0]
            every = np.vstack([others, phi_0])
            self.rows.append(others)
            self.sets.append(StarActions(phi_0, every) if star else FiniteActions(every, len(others)))

    def learner_after(self, steps: int) -> tuple[Rules, Costs]:
        """The default learner's rules and cost data after so many steps. Only exact safe costs are remembered here."""
        problem, seen = self.problem, self.seen
        horizon, constraints, dimension = problem.horizon, len(problem.constraints), problem.dimension
        exact, windows = problem.is_exact, problem.windows(horizon)
        rules = Rules(
            horizon=horizon,
            explorer=ADAPTIVE,
            conditioning=KNOWN if exact else MEASURED,
            memory=STATE if windows else VISITED,
            radius_kind=MOVING if windows else SMALLEST,
            reduces_radius=True,
            steers=np.zeros(constraints, dtype=np.int64),
            threshold=problem.mean_limit,
            noise=np.array(problem.noise),
            gamma_norm=np.array(problem.gamma_norm),
            feature_norm=problem.feature_norm,
            cost_error=np.array(problem.baseline_cost_error),
            point_error=problem.point_error,
            sample_error=problem.sample_error,
            events=self.stages * constraints / problem.confidence,
            tuned_radius=0.0,
            value_radius=np.zeros(horizon),
            value_events=0.0,
            reward_noise=problem.reward_noise,
            theta_norm=1.0,
            quantile=problem.end_reserve,
            kappa=np.nan,
            gap_floor=0.0,
            warms_up=False,
            penalty=0.0,
            known_gamma=np.zeros((0, constraints, dimension)),
        )
        costs = new_costs(horizon, dimension, constraints, self.ridge)
        costs.grid[:] *= float(np.trace(self.gram)) or 1.0  # ‖φ‖² of a safe action, on average
        last = float(steps)  # decisions that bounds rest on: section 13
        if windows:
            wanted = windows[2 if problem.drift_per == "second" else 1] * np.cbrt(self.pace)
            window = min(windows, key=lambda each: abs(float(np.log(each / wanted))))
            last = min(last, window / self.pace)
        count = last / self.stages  # observations of each regression
        costs.gram[:] += count * self.gram
        costs.moment[:] = count * self.moment
        costs.factor[:] = np.linalg.cholesky(costs.gram[0]).T
        costs.log_det[:] = 2.0 * np.log(np.diagonal(costs.factor[0])).sum() - dimension * np.log(self.ridge)
        costs.updates[:] = int(count)
        costs.bias[:] = count * rules.sample_error**2
        if windows:
            age = last * self.pace * np.sqrt(count / 3.0 * float(np.trace(self.gram)))  # √(Σa²‖φ‖²)
            costs.bias[:] = (np.sqrt(costs.bias) + age * np.array(problem.drift)) ** 2
            costs.split[:] = len(windows) * np.pi**2 / 6.0 * (steps * self.pace // window + 1.0) ** 2
        refresh_spectrum(costs)
        work, phi_0 = np.zeros((3, dimension)), seen.phi_0
        for step in range(horizon):
            for state in range(min(len(phi_0), int(np.ceil(count))) if exact and not windows else 0):
                remember(costs, step, phi_0[state], seen.costs[state, step].copy(), rules.gamma_norm, work)
        return rules, costs

    def reach_after(self, steps: int) -> Reach:
        """Certified lengths (Eq. 9) at every step and state after so many steps, by the learner's own kernels."""
        problem, (rules, costs) = self.problem, self.learner_after(steps)
        constraints = range(len(problem.constraints))
        values = new_values(problem.horizon, problem.dimension, 1.0, 0)
        lengths = [np.ones(len(rows)) for rows in self.rows]
        for step in range(problem.horizon):
            tables = tables_of(self.sets, self.costs[:, step], np.full(len(self.sets), np.nan))
            scratch = scratch_for(tables)
            plan = new_plan(1, len(self.sets), len(problem.constraints), problem.dimension)
            fit_costs(costs, rules, plan, scratch, step, 0, step)
            build(costs, values, rules, tables, scratch, 0, step)
            for j in constraints:
                project_rows(tables.features, int(tables.start[-1]), plan.gamma_hat[0, j], scratch.projected[1 + j])
            for slot, best in enumerate(lengths):
                scratch.work[:2] = 1.0
                if examine(rules, tables, plan, scratch, 0, 0, slot) != BEST:
                    best[:] = 0.0
                    continue
                for j in constraints:
                    limit_lengths(rules, tables, scratch, 0, slot, j)
                np.minimum(best, scratch.work[0, : len(best)], out=best)
        radii = [cost_radius(costs, rules, step, j) for step in range(problem.horizon) for j in constraints]
        return Reach(lengths, float(max(radii)))

    def first_new(self) -> int | None:
        """The fewest steps after which some action (a tenth of some ray) is certified; None if never."""
        if not self._first:
            self._first.append(self._find_first_new())
        return self._first[0]

    def _find_first_new(self) -> int | None:
        def there(steps: int) -> bool:
            found = zip(self.reach_after(steps).lengths, self.stars, strict=True)
            return any(len(lengths) and lengths.max() >= (SHARE if star else 1.0) for lengths, star in found)

        if there(0):
            return 0
        high = 1
        while not there(high):
            if high >= FOREVER:
                return None
            high *= 2
        low = high // 2
        while high - low > max(1, high // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if there(middle) else (middle, high)
        return high

    def hardest(self) -> tuple[State, float]:
        """The state, and the part of x − share·φ_0 in the null space of mean(φ_0φ_0ᵀ) for its nearest action."""
        values, axes = np.linalg.eigh(self.gram)
        dark = values <= 1e-12 * values.max()
        best = (self.states[0], 0.0, np.inf)
        for state, actions, others in zip(self.states, self.sets, self.rows, strict=True):
            f, rows = actions.phi_0 @ axes, others @ axes
            rest = rows - np.outer(rows @ f / max(float(f @ f), 1e-300), f)
            hidden = np.linalg.norm(rest[:, dark], axis=1)
            for part, size in zip(hidden, np.linalg.norm(rest, axis=1), strict=True):
                if part < best[2]:
                    best = (state, float(part / size) if size > 0.0 else 0.0, float(part))
        return best[0], best[1]


def from_safe_play(problem: Problem, seen: Survey, steps: int, ways: Ways) -> tuple[SafePlay | None, list[Finding]]:
    """The findings about the radius and about how soon something new is certified, and the play they come from."""
    names = ("radius: H, d and δ leave a usable one", "outlook: steps of safe play to something new")
    if not seen.sets or problem.baseline_cost is None or not np.isfinite(seen.costs).all():
        why = "it needs states, and what their safe actions cost"
        return None, [unknown(name, why, "declare states and safe_cost") for name in names]
    if ways.pace is None:
        why = "drift is per second, and nobody said how many seconds lie between two decisions"
        return None, [unknown(name, why, "pass a log with a column `time`") for name in names]
    play = SafePlay(problem, seen, ways)
    if not any(map(len, play.rows)):
        return None, [judged(name, False, "a_0 is the only action", "declare other actions") for name in names]
    first, later = play.reach_after(0), play.reach_after(steps)
    gap = float((np.asarray(problem.threshold) - play.costs).min())
    evidence = f"β = {first.radius:.3g} at first, {later.radius:.3g} after {steps} steps of a_0; least gap {gap:.3g}. "
    evidence += "; then ".join(_spread(reach) for reach in (first, later))
    longest = max(float(lengths.max(initial=0.0)) for reach in (first, later) for lengths in reach.lengths)
    way_out = "a smaller σ, d or B, a larger gap, safe costs of all states (condition_on='all'), logs"
    return play, [judged(names[0], longest >= USABLE, evidence, way_out), _outlook(play, first, steps, names[1])]


def _spread(reach: Reach) -> str:
    low, middle, high = np.quantile(np.concatenate(reach.lengths), [0.0, 0.5, 1.0])
    return f"certified lengths {low:.2g} to {high:.2g}, median {middle:.2g}"


def _outlook(play: SafePlay, first: Reach, steps: int, name: str) -> Finding:
    """How soon a_0 alone certifies something new, and whether small lengths do it at once."""
    kinds = {f"{SHARE:.0%} of some ray is": any(play.stars), "another action is": not all(play.stars)}
    needed, what = play.first_new(), " or ".join(kind for kind, there in kinds.items() if there)
    if needed is not None and needed <= steps:
        when = "from the first step on" if needed == 0 else f"after {needed} steps of a_0"
        return judged(name, True, f"{what} certified {when}; every further outcome also helps other states")
    state, share = play.hardest()
    when = f"only after {needed} steps of a_0, more than {steps}" if needed is not None else "never by a_0 alone"
    why = f"{what} certified {when}"
    if needed is None and share > 0.0:
        why += (
            f": in state {state!r} {share:.0%} of the way to the nearest action lies outside the span of safe "
            "features, where a_0 teaches nothing"
        )
    rays = [lengths.max(initial=0.0) for lengths, star in zip(first.lengths, play.stars, strict=True) if star]
    longest = max(rays, default=0.0)
    if longest >= USABLE:
        return judged(name, True, f"lengths up to {longest:.2g} of a ray are certified at once, and teach; {why}")
    way_out = f"shared features, rays (small lengths teach), a varied a_0, logged costs; or, on average only, {ASK}"
    return judged(name, False, why, way_out)
