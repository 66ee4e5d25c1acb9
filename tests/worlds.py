"""Worlds and problems of the tests: stages, states and costs differ, so that an index slip cannot hide."""

from functools import cache
from itertools import product

import numpy as np

from limits import stated
from tether import (
    Constraint,
    FiniteActions,
    LinearMDP,
    Problem,
    StarActions,
    Streams,
    ad_load,
    bottling,
    dosing,
    heating,
    not_star_convex,
    synthetic,
)

# By hand

SAFE, OTHER = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def two_arm_problem(*, horizon=2, threshold=0.5, baseline_cost=0.1, finite=False, **more):
    """d = 2, every state has the safe feature (1, 0) and one other, (0, 1): σ = 0.1, δ = 0.01."""
    actions = FiniteActions(np.array([SAFE, OTHER]), 0) if finite else StarActions(SAFE, OTHER[None])
    count = np.atleast_1d(threshold).size
    told = None if baseline_cost is None else lambda step, state: np.full(count, baseline_cost)
    settings = {"noise": 0.1, "confidence": 0.01, "states": range(3), "baseline_cost_error": 0.0}
    return Problem(
        horizon=horizon,
        dimension=2,
        actions=lambda state: actions,
        **stated(threshold=threshold, baseline_cost=told, **{**settings, **more}),
    )


def simplex_problem(d=4, *, horizon=1, noise=0.1, constraints=1, confidence=0.01, **told):
    """Rays from the middle of the simplex to its corners; the cost of a_0 is declared as 0.4."""
    middle = np.full((1, d), 1.0 / d)
    settings = {
        "baseline_cost": np.full((horizon, 1, constraints), 0.4),
        "baseline_cost_error": 0.0,
        "horizon": horizon,
        "threshold": [0.6] * constraints,
        "noise": noise,
        "confidence": confidence,
        **told,
    }
    return Problem.from_rays(phi_0=middle, endpoints=np.eye(d)[None], **stated(**settings))


# Random, with every index different

THRESHOLD = 0.5


GAP = 0.1


def uneven_world(
    seed,
    *,
    states=4,
    rays=6,
    dimension=3,
    horizon=3,
    constraints=1,
    finite=False,
    same_stages=False,
    threshold=THRESHOLD,
    noise=0.05,
    known_costs=True,
    cost_kind="gaussian",
    cost_error=0.0,
    drift=0.0,
):
    """Simplex features, γ*_h and θ*_h in [0, 1]^d, Dirichlet rows of μ*_h; every safe feature costs <= 0.4."""
    rng = np.random.default_rng(seed)
    theta = rng.uniform(0.0, 1.0, (horizon, dimension))
    gamma = rng.uniform(0.0, 1.0, (horizon, constraints, dimension))
    gamma[:, :, 0] = rng.uniform(0.0, 0.2, (horizon, constraints))  # one cheap direction: safe features exist
    mu = rng.dirichlet(np.ones(states), size=(horizon, dimension))
    if same_stages:
        theta[:], gamma[:], mu[:] = theta[0], gamma[0], mu[0]
    phi_0 = np.empty((states, dimension))
    for state in range(states):
        while True:
            phi_0[state] = rng.dirichlet(np.ones(dimension))
            if (gamma @ phi_0[state] <= THRESHOLD - GAP).all():
                break
    endpoints = rng.dirichlet(np.full(dimension, 0.7), size=(states, rays))
    costs = np.einsum("hmd,sd->hsm", gamma, phi_0) if known_costs else None
    told = {
        "horizon": horizon,
        "threshold": (threshold,) * constraints,
        "noise": tuple(noise * (1 + j) for j in range(constraints)),
        "baseline_cost": costs,
        "cost_kind": cost_kind,
        "baseline_cost_error": cost_error,
        "drift": drift,
    }
    if finite:
        safe = rng.integers(0, rays + 1, size=states)  # a_0 has another index in every state
        features = np.array([np.insert(endpoints[s], safe[s], phi_0[s], axis=0) for s in range(states)])
        problem = Problem.from_table(features=features, baseline_action=safe, **stated(**told))
    else:
        problem = Problem.from_rays(phi_0=phi_0, endpoints=endpoints, **stated(**told))
    initial = rng.dirichlet(np.full(states, 5.0))
    return LinearMDP(name="small", problem=problem, true_theta=theta, true_gamma=gamma, true_mu=mu, initial=initial)


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
        horizon=horizon,
        **stated(
            baseline_cost=np.einsum("sd,hmd->hsm", features[:, baseline], truth["true_gamma"]),
            baseline_cost_error=0.0,
            threshold=threshold,
            noise=0.1,
            gamma_norm=3.0,
        ),
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
        horizon=horizon,
        **stated(
            baseline_cost=np.einsum("sd,hmd->hsm", phi_0, truth["true_gamma"]),
            baseline_cost_error=0.0,
            threshold=threshold,
            noise=0.1,
            gamma_norm=3.0,
        ),
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


def random_problem(rng, *, error=0.0, known=True, kind=None):
    """(problem, γ* (H, M, d), pooled, states): stars or single actions, M to 2, d to 6, σ from .01 to .3."""
    d, states, actions = int(rng.integers(2, 7)), int(rng.integers(2, 7)), int(rng.integers(3, 8))
    horizon, constraints, pooled = int(rng.integers(1, 4)), int(rng.integers(1, 3)), bool(rng.integers(2))
    gamma = rng.uniform(0.0, 0.9, size=(1 if pooled else horizon, constraints, d))
    gamma *= rng.choice([-1.0, 1.0, 1.0, 1.0], size=gamma.shape)
    gamma = np.broadcast_to(gamma, (horizon, constraints, d)).copy()
    rows = rng.dirichlet(np.full(d, 0.7), size=(states, actions))
    if rng.integers(2):
        rows = rng.standard_normal((states, actions, d)) / (1.5 * np.sqrt(d))
        rows /= np.maximum(1.0, np.linalg.norm(rows, axis=2))[..., None]
    safe = np.einsum("hmd,snd->sn", gamma, rows).argmin(axis=1)
    is_star = kind == "star" if kind else bool(rng.integers(2))
    phi_0 = 0.9 * rng.dirichlet(np.ones(d), size=states) if is_star else rows[np.arange(states), safe]
    if is_star and not rng.integers(4):
        phi_0[:] = phi_0[:1] * (1.0 + 1e-3 * rng.standard_normal((states, d)))  # nearly the same everywhere
    costs = np.einsum("hmd,sd->hsm", gamma, phi_0)
    declared = costs + error * rng.uniform(-1.0, 1.0, size=costs.shape)
    told = {
        "horizon": horizon,
        "threshold": tuple(costs.max(axis=(0, 1)) + error + rng.uniform(0.05, 0.6, size=constraints)),
        "noise": (float(10.0 ** rng.uniform(-2.0, np.log10(0.3))),) * constraints,
        "gamma_norm": float(np.linalg.norm(gamma, axis=2).max() * rng.uniform(1.0, 2.0)),
        "baseline_cost": declared if known else None,
        "baseline_cost_error": (error,) * constraints,
    }
    if is_star:
        return Problem.from_rays(phi_0=phi_0, endpoints=rows, **stated(**told)), gamma, pooled, states
    return Problem.from_table(features=rows, baseline_action=safe, **stated(**told)), gamma, pooled, states


def finite_problem(seed=0, *, horizon=1, states=3, actions=6, dimension=3, constraints=1, known=True):
    """Single actions, `constraints` costs: (problem, γ* (H, M, d)). a_0 is the cheapest action everywhere."""
    rng = np.random.default_rng(seed)
    gamma = rng.uniform(0.1, 0.6, size=(horizon, constraints, dimension))
    features = rng.dirichlet(np.ones(dimension), size=(states, actions))
    worst = np.einsum("hmd,snd->sn", gamma, features)
    safe = worst.argmin(axis=1)
    phi_0 = features[np.arange(states), safe]
    costs = np.einsum("hmd,sd->hsm", gamma, phi_0)
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        horizon=horizon,
        **stated(
            baseline_cost=(costs if constraints > 1 else costs[..., 0]) if known else None,
            baseline_cost_error=0.0,
            threshold=tuple(costs.max(axis=(0, 1)) + 0.1),
            noise=(0.02,) * constraints,
        ),
    )
    return problem, gamma


# Synthetic, and every world of the package by name


def _synthetic(seed=3, **options):
    return synthetic(Streams.from_seed(seed).instance, **options)


def two_constraints(*, finite=False, known_costs=True, same_stages=False):
    """Two constraints with different τ, σ and γ*; stages, states and costs all differ unless `same_stages`."""
    rng = np.random.default_rng(17)
    horizon, states, rays, d = 3, 4, 5, 3
    gamma = rng.uniform(0.2, 1.0, (horizon, 2, d))
    gamma[:, :, 0] = rng.uniform(0.0, 0.2, (horizon, 2))
    theta, mu = rng.random((horizon, d)), rng.dirichlet(np.ones(states), size=(horizon, d))
    if same_stages:
        theta[:], gamma[:], mu[:] = theta[0], gamma[0], mu[0]
    phi_0 = 0.7 * np.eye(d)[0] + 0.3 * rng.dirichlet(np.ones(d), size=states)
    ends = rng.dirichlet(np.ones(d), size=(states, rays))
    told = {
        "baseline_cost": np.einsum("hmd,sd->hsm", gamma, phi_0) if known_costs else None,
        "baseline_cost_error": 0.0,
        "horizon": horizon,
        "threshold": (0.55, 0.5),
        "noise": (0.02, 0.05),
        "gamma_norm": 1.8,
    }
    if finite:
        features = np.concatenate([ends[:, :2], phi_0[:, None], ends[:, 2:]], axis=1)
        problem = Problem.from_table(features=features, baseline_action=np.full(states, 2), **stated(**told))
    else:
        problem = Problem.from_rays(phi_0=phi_0, endpoints=ends, **stated(**told))
    return LinearMDP(
        name="two constraints",
        problem=problem,
        true_theta=theta,
        true_gamma=gamma,
        true_mu=mu,
        initial=rng.dirichlet(np.ones(states)),
    )


@cache
def many_actions():
    """Seven actions per state, a_0 at another place in each; so noisy that mixtures stay between a_0 and the rest."""
    rng = np.random.default_rng(23)
    horizon, states, count, d = 3, 4, 7, 4
    gamma = rng.uniform(0.3, 1.0, (horizon, 1, d))
    gamma[:, :, 0] = rng.uniform(0.0, 0.2, (horizon, 1))
    features = rng.dirichlet(np.full(d, 0.7), size=(states, count))
    safe = np.array([0, 3, 6, 2])
    features[np.arange(states), safe] = 0.8 * np.eye(d)[0] + 0.2 * rng.dirichlet(np.ones(d), size=states)
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        constraints=Constraint(
            threshold=0.5,
            noise=0.1,
            safe_cost=gamma[:, 0] @ features[np.arange(states), safe].T,
            gamma_norm=2.0,
        ),
        horizon=horizon,
    )
    return LinearMDP(
        name="many actions",
        problem=problem,
        true_theta=rng.random((horizon, d)),
        true_gamma=gamma,
        true_mu=rng.dirichlet(np.ones(states), size=(horizon, d)),
        initial=rng.dirichlet(np.ones(states)),
    )


WORLDS = {
    "synthetic": lambda: _synthetic(),
    "synthetic-literal": lambda: _synthetic(literal=True),
    "synthetic-50-states": lambda: _synthetic(states=50, rays=20),
    "synthetic-8-steps": lambda: _synthetic(horizon=8, rays=20),
    "synthetic-unknown-costs": lambda: _synthetic(known_costs=False, rays=20),
    "not-star-convex": lambda: not_star_convex(),
    "star-convex-completion": lambda: not_star_convex(completed=True),
    "dosing": lambda: dosing(Streams.from_seed(3).instance),
    "heating": lambda: heating(Streams.from_seed(3).instance),
    "ad-load": lambda: ad_load(Streams.from_seed(3).instance),
    "bottling": lambda: bottling(Streams.from_seed(3).instance),
    "two-constraints": lambda: two_constraints(),
    "two-constraints-finite": lambda: two_constraints(finite=True),
}


@cache
def world_named(name):
    """A world is immutable: one of each is enough."""
    return WORLDS[name]()


@cache
def small_world(*, seed=5, known_costs=True, horizon=3, noise=0.02):
    """A synthetic world small enough for hundreds of runs."""
    return _synthetic(seed, states=4, rays=6, dimension=3, horizon=horizon, noise=noise, known_costs=known_costs)


@cache
def stationary_world():
    """Stages that do not differ: what `pooled` is for."""
    return two_constraints(same_stages=True)


def world_and_streams(seed=0, *, horizon=1, states=4, rays=5, dimension=3, noise=0.05, **more):
    """A synthetic linear MDP with different stages and states, (world, streams)."""
    streams = Streams.from_seed(seed)
    return synthetic(
        streams.instance, horizon=horizon, states=states, rays=rays, dimension=dimension, noise=noise, **more
    ), streams
