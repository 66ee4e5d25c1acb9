"""The exact planner: optimal safe policies, and the value and the costs of any policy.

Equations (4)-(6) and (12)-(13). Because everything is linear in φ, a policy is its features (H, S, d).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tether.errors import EmptySafeSet
from tether.lab.worlds.linear_mdp import SAFE_TOLERANCE, LinearMDP
from tether.records import Array


@dataclass(frozen=True, eq=False)
class SafePolicy:
    """A policy by its mean features (H, S, d), with its values V_h (H + 1, S)."""

    features: Array
    values: Array


def true_costs(world: LinearMDP, features: Array) -> Array:
    """c_h(s, a) for features (H, ..., d): (H, ..., M)."""
    costs: Array = np.einsum("h...d,hmd->h...m", features, world.true_gamma)
    return costs


def action_values(world: LinearMDP, step: int, next_values: Array) -> Array:
    """The vector q_h with Q_h(s, a) = ⟨q_h, φ(s, a)⟩: θ*_h + ∫ V_{h+1} dμ*_h, (d,)."""
    q: Array = world.true_theta[step] + world.true_mu[step] @ next_values
    return q


def safe_candidates(world: LinearMDP, step: int) -> tuple[Array, Array]:
    """Extreme points of each state's true safe set: features (S, N + 1, d) and whether they are safe (S, N + 1).

    On a star these are phi_0 and each ray cut where its cost reaches τ; Q is linear, so a maximum is among them. Where
    τ limits what is measured, room for the noise is left.
    """
    problem = world.problem
    threshold, scaled = problem.mean_limit, problem.quantile - problem.reserve  # room at a_0, too, or by the length
    gamma = world.true_gamma[step]
    base = world.phi_0 @ gamma.T  # (S, M)
    cost = world.endpoints @ gamma.T + scaled  # (S, N, M)
    if world.is_star:
        gap = np.maximum(threshold - base, 0.0)[:, None]
        rise = cost - base[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            length = np.where(cost <= threshold, 1.0, gap / rise).min(axis=2)  # (S, N)
        points = world.phi_0[:, None] + length[..., None] * (world.endpoints - world.phi_0[:, None])
        safe = np.ones(length.shape, dtype=bool)
    else:
        # an action that costs exactly τ is safe, whichever way its dot product was rounded
        points, safe = world.endpoints, (cost <= threshold + SAFE_TOLERANCE).all(axis=2)
    features = np.concatenate([world.phi_0[:, None], points], axis=1)
    return features, np.concatenate([np.ones((len(safe), 1), dtype=bool), safe], axis=1)


def optimal_safe_policy(world: LinearMDP) -> SafePolicy:
    """π_* of Eq. (5): the best deterministic policy that never exceeds τ."""
    return _solve(world, _best_candidate)


def optimal_safe_mixture(world: LinearMDP) -> SafePolicy:
    """π̃_* of Eq. (13): the best randomised policy whose *expected* cost never exceeds τ; an LP per state."""
    return _solve(world, _best_mixture)


def _solve(world: LinearMDP, best: Callable[[LinearMDP, int, Array], Array]) -> SafePolicy:
    """Backward induction with the best safe features (S, d) of each step."""
    horizon, count, d = world.problem.horizon, world.state_count, world.problem.dimension
    features, values = np.empty((horizon, count, d)), np.zeros((horizon + 1, count))
    for step in reversed(range(horizon)):
        q = action_values(world, step, values[step + 1])
        features[step] = best(world, step, q)
        values[step] = features[step] @ q
    return SafePolicy(features, values)


def _best_candidate(world: LinearMDP, step: int, q: Array) -> Array:
    points, safe = safe_candidates(world, step)
    safe[world.ended, 1:] = False  # nothing is played where a trajectory has ended
    score = np.where(safe, points @ q, -np.inf)
    chosen: Array = points[np.arange(len(points)), score.argmax(axis=1)]
    return chosen


def _best_mixture(world: LinearMDP, step: int, q: Array) -> Array:
    """max Σ θ_a ⟨q, φ_a⟩ over distributions with Σ θ_a c_a <= τ, at every state where something is played: (S, d).

    The states do not interact, so their linear programs are blocks of one, which HiGHS solves to a tolerance of 1e-7.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    chosen: Array = world.phi_0.copy()
    going_on = np.flatnonzero(~world.ended)
    points = np.concatenate([world.phi_0[:, None], world.endpoints], axis=1)[going_on]  # (S', N + 1, d)
    costs = points @ world.true_gamma[step].T  # (S', N + 1, M)
    limited = np.isfinite(world.problem.threshold)  # an infinite τ is no constraint
    states, actions = costs.shape[:2]
    solution = linprog(
        -(points @ q).ravel(),
        A_ub=sparse.block_diag([block.T[limited] for block in costs], format="csr") if limited.any() else None,
        b_ub=np.tile(np.array(world.problem.threshold)[limited], states) if limited.any() else None,
        A_eq=sparse.kron(sparse.eye(states), np.ones((1, actions)), format="csr"),
        b_eq=np.ones(states),
        bounds=(0.0, None),
        method="highs",
    )
    if solution.status != 0:
        least = costs.min(axis=1)
        worst = going_on[int((least - np.array(world.problem.threshold)).max(axis=1).argmax())]
        raise EmptySafeSet(
            f"no distribution over actions keeps the expected cost under {world.problem.threshold} at step {step}, "
            f"state {worst}: {solution.message}"
        )
    chosen[going_on] = np.einsum("sn,snd->sd", solution.x.reshape(states, actions), points)
    return chosen


def policy_values(world: LinearMDP, features: Array) -> Array:
    """V_h^π of a policy given by its features (H, S, d): (H + 1, S)."""
    values = np.zeros((world.problem.horizon + 1, world.state_count))
    for step in reversed(range(world.problem.horizon)):
        values[step] = features[step] @ action_values(world, step, values[step + 1])
    return values


def policy_costs(world: LinearMDP, features: Array) -> Array:
    """Expected cost from each step to the end of the episode, of a policy given by its features: (H + 1, S, M)."""
    costs = np.zeros((world.problem.horizon + 1, world.state_count, len(world.problem.constraints)))
    for step in reversed(range(world.problem.horizon)):
        costs[step] = features[step] @ (world.true_gamma[step].T + world.true_mu[step] @ costs[step + 1])
    return costs


# A budget per episode


def least_costly_policy(world: LinearMDP) -> Array:
    """The policy with the least expected cost per episode (the first constraint's), as probabilities (H, S, A)."""
    points, following = all_actions(world), np.zeros(world.state_count)
    chosen = np.empty((world.problem.horizon, *points.shape[:2]))
    for step in reversed(range(world.problem.horizon)):
        costs = points @ (world.true_gamma[step, 0] + world.true_mu[step] @ following)
        chosen[step] = np.eye(points.shape[1])[costs.argmin(axis=1)]
        following = costs.min(axis=1)
    return chosen


def optimal_episode_policy(world: LinearMDP) -> SafePolicy:
    """The best policy whose expected cost over an *episode* is at most Hτ: one LP over occupancies q_h(s, a).

    Its value is that of an episode from the world's own start, `initial @ values[0]`: start states share the budget.
    """
    from scipy import sparse
    from scipy.optimize import linprog

    points, horizon = all_actions(world), world.problem.horizon
    states, actions, d = points.shape
    earned = np.einsum("hd,sad->hsa", world.true_theta, points)
    costs = np.einsum("hmd,sad->mhsa", world.true_gamma, points).reshape(len(world.problem.constraints), -1)
    leave = sparse.kron(sparse.eye(states), np.ones((1, actions)))
    flow: list[list[object]] = [[None] * horizon for _ in range(horizon)]
    for step in range(horizon):
        flow[step][step] = leave
        if step > 0:  # what leaves a state is what has come to it
            flow[step][step - 1] = sparse.csr_array(-(points.reshape(-1, d) @ world.true_mu[step - 1]).T)
    solution = linprog(
        -earned.ravel(),
        A_ub=costs,
        b_ub=horizon * np.array(world.problem.threshold),
        A_eq=sparse.block_array(flow, format="csr"),
        b_eq=np.concatenate([world.initial, np.zeros((horizon - 1) * states)]),
        bounds=(0.0, None),
        method="highs",
    )
    if solution.status != 0:
        raise EmptySafeSet(
            f"no policy keeps the expected cost of an episode under {horizon} × {world.problem.threshold}: "
            f"{solution.message}"
        )
    visits = np.maximum(solution.x, 0.0).reshape(horizon, states, actions)
    total = visits.sum(axis=2, keepdims=True)
    safe = np.broadcast_to(world.phi_0, (horizon, states, d))  # where it never comes
    mean = np.einsum("hsa,sad->hsd", visits, points) / np.where(total > 0.0, total, 1.0)
    features = np.where(total > 0.0, mean, safe)
    return SafePolicy(features, policy_values(world, features))


def all_actions(world: LinearMDP) -> Array:
    """φ of every action, a_0 last where sets are stars: (S, A, d)."""
    if not world.is_star:
        return world.endpoints
    return np.concatenate([world.endpoints, world.phi_0[:, None]], axis=1)
