"""What can be told from the problem alone: norms, safe actions, star-convexity, spans, and what safe costs imply."""

import numpy as np

from tether.check.report import Finding, Verdict
from tether.check.survey import Survey, rank_of
from tether.problem.action_sets import NORM_TOLERANCE
from tether.problem.problem import Problem
from tether.records import Array

FIT = 1e-6
"""How far declared safe costs may be from linear, relative to the largest of them."""


def from_problem(problem: Problem, seen: Survey, randomised: bool) -> list[Finding]:
    """Every finding that needs no data."""
    if not seen.sets:
        text = "the problem lists no states, and none were given"
        return [Finding("states", "cannot be known", text, "pass states=[...], or a log of Transitions")]
    return [
        norms(problem, seen),
        safe_features(seen),
        safe_costs(problem, seen),
        linear_safe_costs(problem, seen),
        star_convex(seen, randomised),
        directions(seen, randomised),
    ]


def norms(problem: Problem, seen: Survey) -> Finding:
    """Assumption 4: ‖φ(s, a)‖ <= the declared limit."""
    features = seen.features
    worst = float(np.linalg.norm(features, axis=1).max())
    fine = worst <= problem.feature_norm * (1.0 + NORM_TOLERANCE)
    return Finding(
        f"A4: ‖φ(s,a)‖ <= {problem.feature_norm:.4g}",
        "holds" if fine else "fails",
        f"the largest norm is {worst:.4g}, over {len(features)} features of {seen.where}",
        "" if fine else f"divide all features by {worst:.4g}, or declare feature_norm={worst:.4g}",
    )


def safe_features(seen: Survey) -> Finding:
    """φ(s, a_0(s)) must not vanish."""
    sizes = np.linalg.norm(seen.phi_0, axis=1)
    zero = [seen.states[i] for i in np.flatnonzero(~(sizes > 0.0))]
    evidence = f"the smallest norm is {sizes.min():.4g}, in {seen.where}"
    if zero:
        evidence = f"zero in {len(zero)} of {seen.where}, for instance {zero[0]!r}"
    way_out = "append a constant feature, so that every action has a non-zero one" if zero else ""
    return Finding("A2: safe features are not zero", "fails" if zero else "holds", evidence, way_out)


def safe_costs(problem: Problem, seen: Survey) -> Finding:
    """Assumption 2: τ_h(s) is known and under τ."""
    name = "A2: the safe action costs less than τ"
    if problem.baseline_cost is None:
        return Finding(
            name,
            "cannot be known",
            "no safe costs were declared: you vouch that each is under τ, and nothing is conditioned on them",
            "declare baseline_cost where it is known: bounds get tighter, and learning starts sooner",
        )
    gaps = np.asarray(problem.threshold) - seen.costs  # (S, H, M)
    if not np.isfinite(seen.costs).all():
        row, step, _ = np.argwhere(~np.isfinite(seen.costs))[0]
        return Finding(name, "fails", f"τ_h(s) is not finite at step {step}, state {seen.states[row]!r}", "declare it")
    row, step, constraint = np.unravel_index(int(gaps.argmin()), gaps.shape)
    where = f"step {step}, state {seen.states[row]!r}" + (f", cost {constraint}" if problem.constraints > 1 else "")
    evidence = f"the smallest gap τ − τ_h(s) is {gaps.min():.4g} (at {where}), the median {np.median(gaps):.4g}"
    if gaps.min() > 0.0:
        return Finding(name, "holds", f"{evidence}, in {seen.where}")
    if problem.tight_baseline == "baseline" and (gaps > 0.0).all(axis=(1, 2)).any():
        return Finding(name, "holds", f"{evidence}; where there is no gap a_0 is played, as tight_baseline asks")
    way_out = "name a safer action, raise τ, or set tight_baseline='baseline' to play a_0 there without learning"
    share = float((gaps <= 0.0).any(axis=(1, 2)).mean())
    return Finding(name, "fails", f"{evidence}; {share:.0%} of the states have no gap", way_out)


def linear_safe_costs(problem: Problem, seen: Survey) -> Finding:
    """Assumptions 1 and 4 on what was declared: some γ with ‖γ‖ <= B must give every τ_h(s)."""
    name = "A1: declared safe costs are linear in φ"
    if problem.baseline_cost is None or not np.isfinite(seen.costs).all():
        return Finding(name, "cannot be known", "the safe costs are not all declared")
    phi_0, flat = seen.phi_0, seen.costs.reshape(len(seen.sets), -1)
    gamma = np.linalg.lstsq(phi_0, flat, rcond=1e-9)[0]  # the shortest γ of each step and constraint (d, H·M)
    misfit = float(np.abs(phi_0 @ gamma - flat).max())
    if not misfit <= FIT * max(1.0, float(np.abs(flat).max())):
        return Finding(
            name,
            "fails",
            f"no γ gives them: the best one misses by up to {misfit:.3g}, in {seen.where}",
            "correct baseline_cost, or add the feature that the safe costs depend on",
        )
    needed = np.linalg.norm(gamma, axis=0).reshape(problem.horizon, problem.constraints).max(axis=0)
    over = needed > np.asarray(problem.gamma_norm) * (1.0 + 1e-9)
    evidence = f"they need ‖γ‖ >= {_numbers(needed)}; declared B = {_numbers(np.asarray(problem.gamma_norm))}"
    verdict: Verdict = "fails" if over.any() else "holds"
    return Finding(name, verdict, evidence, f"raise gamma_norm to {_numbers(needed)} or more" if over.any() else "")


def star_convex(seen: Survey, randomised: bool) -> Finding:
    """Assumption 5 (Definition 1). Mixtures of a_0 and an action stand in for rays, in expectation."""
    if randomised:
        return Finding(
            "A5: star-convex action sets", "holds", "not needed: RSLUCB-QVI mixes, and bounds expected costs"
        )
    stars = sum(actions.is_star or len(actions.endpoints) == 1 for actions in seen.sets)
    fine = stars == len(seen.sets)
    return Finding(
        "A5: star-convex action sets",
        "holds" if fine else "fails",
        f"in {stars} of {seen.where}" + ("" if fine else "; the others are finite: nothing between two actions"),
        ""
        if fine
        else "SLUCB-QVI stays safe but may never leave a_0: use RSLUCB-QVI (which bounds the *expected* cost), or "
        "StarActions if amounts between a_0 and an action can be played",
    )


def directions(seen: Survey, randomised: bool) -> Finding:
    """Which directions play can ever explore: span{φ_0} and, on stars, span{φ − φ_0}."""
    safe, everything = rank_of(seen.phi_0), rank_of(seen.features)
    rays = [actions.endpoints - actions.phi_0 for actions in seen.sets if actions.is_star or randomised]
    reached = rank_of(np.vstack([seen.phi_0, *rays]))
    evidence = (
        f"features span {everything} of d = {seen.phi_0.shape[1]} directions, safe features {safe}, "
        f"what can be played from the first step on {reached}"
    )
    if reached == everything:
        return Finding("span: safe play reaches all features", "holds", evidence)
    return Finding(
        "span: safe play reaches all features",
        "fails",
        f"{evidence}: a_0 alone teaches nothing about the other {everything - reached}",
        "let amounts between a_0 and an action be played (StarActions, RSLUCB-QVI), vary a_0, or use logged costs",
    )


def _numbers(values: Array) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
