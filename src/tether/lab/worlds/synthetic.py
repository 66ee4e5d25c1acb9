"""Random instances on the simplex: section 5.1 of the paper, with its gaps resolved as in docs/theory.md section 8."""

from dataclasses import replace
from typing import Any

import numpy as np

from tether.assumptions.drift import Drift
from tether.assumptions.misfit import Misfit
from tether.assumptions.safe_cost import SafeCost
from tether.errors import InputError
from tether.lab.worlds.linear_mdp import LinearMDP, MisspecifiedMDP
from tether.problem.action_sets import ActionSet, FiniteActions, StarActions
from tether.problem.constraint import Constraint
from tether.problem.problem import Problem
from tether.records import Array


def synthetic(
    rng: np.random.Generator,
    *,
    states: int = 10,
    rays: int = 100,
    dimension: int = 5,
    horizon: int = 3,
    threshold: float = 0.5,
    noise: float = 0.01,
    confidence: float = 0.01,
    gap: float = 0.1,
    literal: bool = False,
    known_costs: bool = True,
    cost_error: float = 0.0,
    finite: bool = False,
    one_safe_feature: bool = False,
) -> LinearMDP:
    """One realisation: Dirichlet features, rays from a safe feature, θ*, γ* ~ N(0, I), Dirichlet rows of μ*.

    Each θ*_h and γ*_h is rescaled affinely so that rewards and costs fill [0, 1]; on the simplex this adds
    a constant to all actions. `literal` keeps the raw normal draws, whose costs and rewards leave [0, 1] and for
    which the learner must be told a larger ‖γ*‖. The safe feature has cost <= τ − gap at every step. With `cost_error`
    the learner is told safe costs that are off by up to so much, and that they may be. With `finite` the ends of the
    rays and the safe feature are all there is: no lengths between. With `one_safe_feature` all states have the first
    one's safe feature, so that their safe costs are one equation.
    """
    theta = rng.standard_normal((horizon, dimension))
    for _ in range(1000):
        gamma = rng.standard_normal((horizon, dimension))
        if not literal:
            gamma = _to_unit_interval(gamma)
        phi_0 = _safe_features(rng, gamma, threshold - gap, states)
        if phi_0 is not None:
            break
    else:
        raise InputError(
            f"no feature on the simplex costs at most τ − gap = {threshold - gap:.4g} at all {horizon} steps in "
            "1000 draws of γ*: lower the gap or the horizon, or raise the threshold."
        )
    if one_safe_feature:
        phi_0 = np.repeat(phi_0[:1], states, axis=0)
    norm = float(np.linalg.norm(gamma, axis=1).max()) if literal else float(np.sqrt(dimension))
    endpoints = rng.dirichlet(np.ones(dimension), size=(states, rays))
    mu = rng.dirichlet(np.ones(states), size=(horizon, dimension))
    declared = gamma @ phi_0.T
    if cost_error > 0.0:
        declared = declared + rng.uniform(-cost_error, cost_error, declared.shape)
    told: dict[str, Any] = {
        "horizon": horizon,
        "confidence": confidence,
        "constraints": Constraint(
            threshold=threshold,
            noise=noise,
            safe_cost=SafeCost(declared if known_costs else None, error=cost_error),
            gamma_norm=norm,
        ),
    }
    if finite:
        features = np.concatenate([endpoints, phi_0[:, None]], axis=1)
        problem = Problem.from_table(features=features, baseline_action=np.full(states, rays), **told)
    else:
        problem = Problem.from_rays(phi_0=phi_0, endpoints=endpoints, **told)
    return LinearMDP(
        name="synthetic",
        problem=problem,
        true_theta=theta if literal else _to_unit_interval(theta),
        true_gamma=gamma[:, None],
        true_mu=mu,
        initial=np.full(states, 1.0 / states),
    )


def synthetic_twin(
    rng: np.random.Generator,
    *,
    misfit: float = 0.0,
    drift: float = 0.0,
    episodes: int = 1000,
    states: int = 3,
) -> MisspecifiedMDP:
    """A synthetic world whose costs are not quite ⟨γ*, φ⟩; the learner is told by how much at most.

    `misfit` ε bends them: ε‖φ − φ_0‖²/2 is added, which is at most ε on the simplex. `drift` ρ moves γ* by ρ with every
    decision, along a direction in which no safe feature lies, so that declared safe costs stay true.
    """
    world = synthetic(rng, states=states)
    safe, p = world.phi_0, world.problem
    away = np.linalg.svd(safe)[2][states:]  # what is orthogonal to every safe feature, (d − S, d)
    direction: Array = away.sum(axis=0) / np.linalg.norm(away.sum(axis=0))
    last = world.true_gamma + drift * episodes * p.horizon * direction
    if np.linalg.norm(last, axis=2).max() > p.gamma_norm[0]:
        raise InputError(f"a drift of {drift} over {episodes * p.horizon} decisions takes γ* out of its norm bound B.")

    def extra(step: int, state: int, feature: Array, episode: int) -> Array:
        bent = 0.5 * misfit * float(((feature - safe[state]) ** 2).sum())
        return np.array([bent + drift * (episode * p.horizon + step) * float(direction @ feature)])

    relaxed = replace(p.constraints[0], relax=[Misfit(misfit), Drift(drift)])
    told = replace(world, problem=replace(p, constraints=relaxed))
    return MisspecifiedMDP(linear=told, extra=extra, story=f"misfit {misfit}, drift {drift} a decision")


def _to_unit_interval(vectors: Array) -> Array:
    """Affine map of each row onto [0, 1]: (H, d) -> (H, d)."""
    low, high = vectors.min(axis=1, keepdims=True), vectors.max(axis=1, keepdims=True)
    scaled: Array = (vectors - low) / (high - low)
    return scaled


def _safe_features(rng: np.random.Generator, gamma: Array, limit: float, count: int) -> Array | None:
    """`count` Dirichlet points with γ_h·f <= limit at every h, or None if the simplex has too few.

    Rejection first; where fewer than one in a thousand passes, points are pulled toward the least costly one.
    """
    points = rng.dirichlet(np.ones(gamma.shape[1]), size=1000 * count)
    passing = points[(points @ gamma.T <= limit).all(axis=1)]
    if len(passing) >= count:
        return passing[:count]
    center = _least_cost_point(gamma)
    base = gamma @ center
    if not (base < limit).all():
        return None
    rise = points[:count] @ gamma.T - base  # (count, H)
    with np.errstate(divide="ignore"):
        reach = np.where(rise > 0.0, (limit - base) / rise, 1.0).min(axis=1)
    pulled: Array = center + np.minimum(reach, 1.0)[:, None] * (1.0 - 1e-12) * (points[:count] - center)
    return pulled


def _least_cost_point(gamma: Array) -> Array:
    """The point of the simplex that minimises max_h γ_h·f: an LP, (H, d) -> (d,)."""
    from scipy.optimize import linprog

    horizon, d = gamma.shape
    solution = linprog(
        np.append(np.zeros(d), 1.0),
        A_ub=np.hstack([gamma, -np.ones((horizon, 1))]),
        b_ub=np.zeros(horizon),
        A_eq=np.append(np.ones(d), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * d + [(None, None)],
        method="highs",
    )
    point = np.maximum(solution.x[:d], 0.0)
    inside: Array = point / point.sum()
    return inside


# The two-action example after Assumption 5: why star-convexity is needed, and its star-convex completion.


def not_star_convex(
    *, completed: bool = False, threshold: float = 1.2, noise: float = 0.01, confidence: float = 0.01
) -> LinearMDP:
    """S = {s_1}, φ(a_1) = (0, 1), φ(a_2) = (1, 0), a_0 = a_2, θ* = γ* = (0, 1), μ* = (1, 1), H = 1.

    Both actions are safe and a_1 is better, but playing a_2 teaches nothing about a_1. With `completed` the
    segment between them can be played, and a safe learner finds a_1. The paper has τ = 2; since ‖γ*‖ <= √2
    already proves every cost under 1.42, a learner that knows the norm bound is not stuck there. The default
    τ = 1.2 lies below that bound, so that *every* safe learner must stay at a_2.
    """
    first, second = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    actions: ActionSet = StarActions(second, first[None]) if completed else FiniteActions(np.array([first, second]), 1)
    problem = Problem(
        horizon=1,
        dimension=2,
        actions=lambda state: actions,
        constraints=Constraint(threshold=threshold, noise=noise, safe_cost=0.0),
        confidence=confidence,
        states=range(1),
    )
    return LinearMDP(
        name="star_convex" if completed else "not_star_convex",
        problem=problem,
        true_theta=np.array([[0.0, 1.0]]),
        true_gamma=np.array([[[0.0, 1.0]]]),
        true_mu=np.ones((1, 2, 1)),
        initial=np.ones(1),
    )
