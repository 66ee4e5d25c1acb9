"""The 10 × 10 lake of section 5.2: start, goal, danger, how a move slips, and how far the goal is."""

from collections import deque
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tether.assumptions.noise import Bounded
from tether.assumptions.safe_cost import SafeCost
from tether.lab.worlds.linear_mdp import LinearMDP
from tether.problem.constraint import Constraint
from tether.problem.problem import Problem
from tether.records import Array

SIZE = 10
CELLS = SIZE * SIZE
ACTIONS = ("left", "right", "down", "up")
MOVES = ((0, -1), (0, 1), (1, 0), (-1, 0))
"""(row, column) of each action, in the paper's order; row 0 is at the top."""

SIDEWAYS = ((2, 3), (2, 3), (0, 1), (0, 1))
"""The two actions orthogonal to each action."""


def cell(row: int, column: int) -> int:
    """The state of a cell: row by row from the top left."""
    return SIZE * row + column


START = cell(0, 0)
GOAL = cell(9, 3)
DANGER = tuple(
    cell(*place) for place in ((2, 0), (3, 2), (4, 0), (4, 5), (5, 2), (5, 6), (6, 0), (6, 5), (7, 2), (8, 0))
)
ENDS = (GOAL, *DANGER)
"""Where a trajectory ends: in success, or in failure."""


def neighbour(state: int, action: int) -> int:
    """Where a move leads if it does not slip; against a wall one stays."""
    row, column = divmod(state, SIZE)
    to_row, to_column = row + MOVES[action][0], column + MOVES[action][1]
    return cell(to_row, to_column) if 0 <= to_row < SIZE and 0 <= to_column < SIZE else state


def transition_law(intended: float = 0.9) -> Array:
    """P(s'|s, a): `intended`, else one of the two orthogonal moves; goal and danger keep what they have. (S, A, S)."""
    law = np.zeros((CELLS, len(ACTIONS), CELLS))
    for state in range(CELLS):
        for action in range(len(ACTIONS)):
            if state in ENDS:
                law[state, action, state] = 1.0
                continue
            law[state, action, neighbour(state, action)] += intended
            for side in SIDEWAYS[action]:
                law[state, action, neighbour(state, side)] += (1.0 - intended) / 2.0
    return law


def goal_distance() -> NDArray[np.int64]:
    """Moves to the goal around danger, (S,); -1 in danger."""
    distance = np.full(CELLS, -1, dtype=np.int64)
    distance[GOAL] = 0
    frontier = deque([GOAL])
    while frontier:
        here = frontier.popleft()
        for action in range(len(ACTIONS)):
            there = neighbour(here, action)
            if distance[there] < 0 and there not in DANGER:
                distance[there] = distance[here] + 1
                frontier.append(there)
    return distance


# Frozen Lake as a linear MDP (section 5.2): features that are solved for, a cost that is the risk of a step.

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
    costs: Literal["gaussian", "bernoulli", "bounded"] = "gaussian",
    baseline: Literal["least-cost", "goalward"] = "least-cost",
) -> LinearMDP:
    """One lake. `basis` draws M; a Gaussian one breaks the norm bounds of Assumption 4, which are then declared larger.

    reward: "exact" pays Σ P(s'|s,a) ρ(s') with ρ = 1 − dist/maxdist, which is linear in φ; "table" is the paper's 1
    toward the goal and 0.01 otherwise, which is not (misspecified); "least-squares" pays the closest linear reward.
    costs: "gaussian" observes c + N(0, σ²); "bernoulli" observes only whether the step ended in danger, σ = 1/2;
    "bounded" observes the same and says so (`Bounded()`): likelihood ratios instead of σ.
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
        constraints=Constraint(
            threshold=threshold,
            noise=noise if costs == "gaussian" else Bounded("likelihood" if costs == "bounded" else "radius"),
            safe_cost=SafeCost(np.tile(costs_of_safe, (horizon, 1)), error=0.0, if_tight="safe action"),
            gamma_norm=np.sqrt(len(DANGER)) * (1.0 if basis == "orthogonal" else NORM_MARGIN * np.sqrt(CELLS)),
        ),
        horizon=horizon,
        confidence=confidence,
        feature_norm=float(np.linalg.norm(features, axis=2).max()) * (1.0 + 1e-9),
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
        arrival_cost=None if costs == "gaussian" else danger[None],
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
