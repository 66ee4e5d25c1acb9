"""Tiny random worlds with stages, states and costs that all differ, and a slow, literal way to evaluate policies."""

from itertools import product

import numpy as np

from tether import LinearMDP, Problem


def _truth(rng, horizon, constraints, dimension, states):
    return {
        "true_theta": rng.random((horizon, dimension)),
        "true_gamma": rng.random((horizon, constraints, dimension)),
        "true_mu": rng.dirichlet(np.full(states, 0.7), size=(horizon, dimension)),
        "initial": rng.dirichlet(np.ones(states)),
    }


def _cheap_features(rng, gamma, states, dimension, limit):
    """One simplex point per state whose cost stays under its `limit` (M,) at every step."""
    points = rng.dirichlet(np.full(dimension, 0.5), size=20000)
    passing = points[(np.einsum("nd,hmd->nhm", points, gamma) < 0.999 * np.array(limit)).all(axis=(1, 2))]
    assert len(passing) >= states, "choose a larger limit"
    return passing[:states]


def _threshold(rng, true_gamma, constraints):
    """A τ per constraint above the cheapest achievable cost, low enough that most endpoints exceed it somewhere."""
    points = rng.dirichlet(np.full(true_gamma.shape[2], 0.5), size=4000)
    worst = np.einsum("nd,hmd->nhm", points, true_gamma).max(axis=1)  # (n, M)
    return tuple(float(np.quantile(worst[:, j], 0.35 + 0.2 * j)) for j in range(constraints))


def finite_world(seed, *, states=2, actions=3, dimension=4, horizon=2, constraints=1, slack=False):
    """A LinearMDP with finitely many actions; action `seed % actions` is the safe one."""
    rng = np.random.default_rng([seed, 1])
    truth = _truth(rng, horizon, constraints, dimension, states)
    threshold = (10.0,) * constraints if slack else _threshold(rng, truth["true_gamma"], constraints)
    baseline = seed % actions
    features = rng.dirichlet(np.ones(dimension), size=(states, actions))
    features[:, baseline] = _cheap_features(rng, truth["true_gamma"], states, dimension, threshold)
    problem = Problem.from_table(
        features=features,
        baseline_action=np.full(states, baseline),
        baseline_cost=np.einsum("sd,hmd->hsm", features[:, baseline], truth["true_gamma"]),
        horizon=horizon,
        threshold=threshold,
        noise=0.1,
        gamma_norm=3.0,
    )
    return LinearMDP(name="finite", problem=problem, **truth)


def star_world(seed, *, states=3, rays=4, dimension=4, horizon=3, constraints=1, slack=False):
    """A LinearMDP with star-convex action sets."""
    rng = np.random.default_rng([seed, 2])
    truth = _truth(rng, horizon, constraints, dimension, states)
    threshold = (10.0,) * constraints if slack else _threshold(rng, truth["true_gamma"], constraints)
    phi_0 = _cheap_features(rng, truth["true_gamma"], states, dimension, threshold)
    problem = Problem.from_rays(
        phi_0=phi_0,
        endpoints=rng.dirichlet(np.full(dimension, 0.5), size=(states, rays)),
        baseline_cost=np.einsum("sd,hmd->hsm", phi_0, truth["true_gamma"]),
        horizon=horizon,
        threshold=threshold,
        noise=0.1,
        gamma_norm=3.0,
    )
    return LinearMDP(name="star", problem=problem, **truth)


def literal_values(world, features):
    """V_h^π by its definition: transition matrices written out, one expectation at a time. (H, S, d) -> (H + 1, S)."""
    horizon, states = features.shape[:2]
    values = np.zeros((horizon + 1, states))
    for h in range(horizon - 1, -1, -1):
        for s in range(states):
            x = features[h, s]
            law = [sum(world.true_mu[h, k, nxt] * x[k] for k in range(len(x))) for nxt in range(states)]
            reward = sum(world.true_theta[h, k] * x[k] for k in range(len(x)))
            values[h, s] = reward + sum(law[nxt] * values[h + 1, nxt] for nxt in range(states))
    return values


def all_deterministic_policies(world):
    """Every map (h, s) -> action of a finite world, as features (H, S, d)."""
    horizon, (states, actions, dimension) = world.problem.horizon, world.endpoints.shape
    for choice in product(range(actions), repeat=horizon * states):
        table = np.array(choice).reshape(horizon, states)
        features = np.empty((horizon, states, dimension))
        for h, s in product(range(horizon), range(states)):
            features[h, s] = world.endpoints[s, table[h, s]]
        yield features


def is_safe(world, features):
    """Eq. (1) at every step and state, for every constraint, written out."""
    return all(
        features[h, s] @ world.true_gamma[h, j] <= tau
        for h in range(features.shape[0])
        for s in range(features.shape[1])
        for j, tau in enumerate(world.problem.threshold)
    )
