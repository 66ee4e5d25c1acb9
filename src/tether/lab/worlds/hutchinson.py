"""Random bandits in the plane: ten rays from the origin, rewards and costs of either sign. One state, H = 1.

The instances of Hutchinson, Turan and Alizadeh (AISTATS 2024), Figure 2, drawn in the order of their script, so that
their generator gives their instances: θ*, γ* uniform on [−1, 1]², τ ("b") uniform on [¼, 1], or on [1/20, ¼] where it
is tight, and unit directions, drawn again until one of them has a positive reward.
"""

import numpy as np

from tether.lab.worlds.linear_mdp import LinearMDP, free_bandit
from tether.problem.constraint import Constraint


def hutchinson(
    rng: np.random.Generator,
    *,
    tight: bool = False,
    noise: float = 0.1,
    dimension: int = 2,
    rays: int = 10,
    confidence: float = 0.01,
) -> LinearMDP:
    """One instance; rewards and costs have the same noise, and the learner is told ‖γ*‖ <= √d."""
    theta, gamma = rng.uniform(-1.0, 1.0, dimension), rng.uniform(-1.0, 1.0, dimension)
    threshold = float(rng.uniform(0.05, 0.25) if tight else rng.uniform(0.25, 1.0))
    while True:
        drawn = rng.normal(size=(rays, dimension))
        ends = drawn / np.linalg.norm(drawn, axis=1)[:, None]
        if (ends @ theta > 0.0).any():
            break
    return free_bandit(
        "hutchinson",
        ends[None],
        theta,
        gamma,
        Constraint(threshold=threshold, noise=noise, gamma_norm=float(np.sqrt(dimension))),
        reward_noise=noise,
        confidence=confidence,
    )
