"""Frozen Lake as a linear MDP (section 5.2): features that are solved for, a cost that is the risk of a step.

d = |S| = 100, the rows of M are μ*(s), φ(s, a) = M^{-1} P(·|s, a), and γ* = Σ over danger of μ*(s), so that the cost of
an action is the probability that it leads into danger. What the paper leaves open is resolved by the options.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tether.problem.problem import Problem
from tether.records import Array
from tether.world.lake_map import CELLS, DANGER, ENDS, GOAL, START, goal_distance, transition_law
from tether.world.linear_mdp import LinearMDP

NORM_MARGIN = 1.35
"""‖γ*‖² is 10 χ²(100) for Gaussian μ*: it exceeds (1.35)² times its mean in about one of 1e8 draws."""

TOWARD, ELSEWHERE = 1.0, 0.01
"""The paper's rewards: toward the goal, and for the three other moves."""


def frozen_lake(
    rng: np.random.Generator,
    *,
    horizon: int = 100,
    intended: float = 0.9,
    threshold: float = 0.1,
    noise: float = 0.01,
    confidence: float = 0.01,
    basis: Literal["gaussian", "orthogonal"] = "gaussian",
    reward: Literal["exact", "table", "least-squares"] = "exact",
    costs: Literal["gaussian", "bernoulli"] = "gaussian",
    baseline: Literal["least-cost", "goalward"] = "least-cost",
) -> LinearMDP:
    """One lake. `basis` draws M; a Gaussian one breaks the norm bounds of Assumption 4, which are then declared larger.

    reward: "exact" pays Σ P(s'|s,a) ρ(s') with ρ = 1 − dist/maxdist, which is linear in φ; "table" is the paper's 1
    toward the goal and 0.01 otherwise, which is not (misspecified); "least-squares" pays the closest linear reward.
    costs: "gaussian" observes c + N(0, σ²); "bernoulli" observes only whether the step ended in danger, σ = 1/2.
    baseline: a_0 is an action of least cost, ties at random or toward the goal. Six cells have no action under τ = 0.1;
    there, as the paper's Assumption 2 fails, a_0 is played.
    """
    law = transition_law(intended)
    rows = _basis(rng, basis)
    features = np.linalg.solve(rows, law.reshape(-1, CELLS).T).T.reshape(CELLS, -1, CELLS)
    danger = np.isin(np.arange(CELLS), DANGER).astype(np.float64)
    risk = (law @ danger).round(12)  # (S, A); 0.05 + 0.05 is τ itself at the six tight cells, not a bit less
    table = toward_goal(law)
    rho = closeness()
    if reward != "exact":
        rho = np.asarray(np.linalg.lstsq(law.reshape(-1, CELLS), table.ravel(), rcond=None)[0], dtype=np.float64)
    safe = _safe_actions(rng, risk, baseline)
    final = {GOAL: 1.0, **dict.fromkeys(DANGER, 0.0)}
    costs_of_safe = risk[np.arange(CELLS), safe]
    gamma = rows.T @ danger
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        baseline_cost=np.tile(costs_of_safe, (horizon, 1)),
        horizon=horizon,
        threshold=(threshold,),
        noise=(noise if costs == "gaussian" else 0.5,),
        confidence=confidence,
        gamma_norm=(np.sqrt(len(DANGER)) * (1.0 if basis == "orthogonal" else NORM_MARGIN * np.sqrt(CELLS)),),
        feature_norm=float(np.linalg.norm(features, axis=2).max()) * (1.0 + 1e-9),
        tight_baseline="baseline",
        final_reward=final.get,
    )
    return LinearMDP(
        name="frozen-lake",
        problem=problem,
        true_theta=np.tile(rows.T @ rho, (horizon, 1)),
        true_gamma=np.tile(gamma, (horizon, 1, 1)),
        true_mu=np.tile(rows.T, (horizon, 1, 1)),
        initial=np.eye(CELLS)[START],
        rewards=table if reward == "table" else None,
        arrival_cost=danger[None] if costs == "bernoulli" else None,
    )


def closeness() -> Array:
    """ρ(s) = 1 − dist/maxdist, 1 at the goal and 0 in danger: (S,)."""
    distance = goal_distance()
    rho: Array = np.where(distance < 0, 0.0, 1.0 - distance / distance.max())
    return rho


def toward_goal(law: Array) -> Array:
    """The paper's reward: 1 for a move that leads closest to the goal, 0.01 for the others; (S, A)."""
    distance = goal_distance().astype(np.float64)
    distance[distance < 0] = np.inf
    leads_to = law.argmax(axis=2)
    reached = distance[leads_to]
    table: Array = np.where(reached == reached.min(axis=1, keepdims=True), TOWARD, ELSEWHERE)
    for state in ENDS:
        table[state] = TOWARD if state == GOAL else 0.0
    return table


def _basis(rng: np.random.Generator, kind: str) -> Array:
    """M, one μ*(s) per row: (S, d)."""
    gaussian: Array = rng.standard_normal((CELLS, CELLS))
    return np.linalg.qr(gaussian)[0] if kind == "orthogonal" else gaussian


def _safe_actions(rng: np.random.Generator, risk: Array, rule: str) -> NDArray[np.int64]:
    """a_0(s): an action of least cost, ties broken at random or by the distance to the goal. (S,)"""
    preference = rng.random(risk.shape)
    if rule == "goalward":
        preference -= toward_goal(transition_law())
    least = risk <= risk.min(axis=1, keepdims=True) + 1e-12
    chosen: NDArray[np.int64] = np.where(least, preference, np.inf).argmin(axis=1)
    return chosen
