"""Small worlds whose stages, states, rays and costs all differ, so that an index slip cannot hide."""

import numpy as np

from tether.lab.worlds.linear_mdp import LinearMDP
from tether.problem.problem import Problem

THRESHOLD = 0.5
GAP = 0.1


def small_world(
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
    }
    if finite:
        safe = rng.integers(0, rays + 1, size=states)  # a_0 has another index in every state
        features = np.array([np.insert(endpoints[s], safe[s], phi_0[s], axis=0) for s in range(states)])
        problem = Problem.from_table(features=features, baseline_action=safe, **told)
    else:
        problem = Problem.from_rays(phi_0=phi_0, endpoints=endpoints, **told)
    initial = rng.dirichlet(np.full(states, 5.0))
    return LinearMDP(name="small", problem=problem, true_theta=theta, true_gamma=gamma, true_mu=mu, initial=initial)
