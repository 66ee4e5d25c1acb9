"""Every world of the package, and a few of our own, by name: what the contract suites run over."""

from functools import cache

import numpy as np

from tether import LinearMDP, Problem, ad_load, dosing, heating, not_star_convex, synthetic
from tether.lab.worlds.linear_mdp import Streams


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
        "horizon": horizon,
        "threshold": (0.55, 0.5),
        "noise": (0.02, 0.05),
        "gamma_norm": 1.8,
    }
    if finite:
        features = np.concatenate([ends[:, :2], phi_0[:, None], ends[:, 2:]], axis=1)
        problem = Problem.from_table(features=features, baseline_action=np.full(states, 2), **told)
    else:
        problem = Problem.from_rays(phi_0=phi_0, endpoints=ends, **told)
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
        baseline_cost=np.einsum("hmd,sd->hsm", gamma, features[np.arange(states), safe]),
        horizon=horizon,
        threshold=0.5,
        noise=0.1,
        gamma_norm=2.0,
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
