"""The circulant bandit: d rays from the origin, rewards and costs as noisy as they are large. One state, H = 1.

An instance of Pacchiano's experiments on safe linear bandits, from its description: θ* = (0, 1, …, d−1)/n and γ* the
same backwards, with n the norm; ray k ends at v_k(i) = ((k − i) mod d)/n. Doing nothing (the origin) is safe and costs
0. For d = 5 and τ = ½ the two best rays are worth 25/30 and cost exactly τ; the next ones, cut at τ, are worth ½.
"""

import numpy as np

from tether.lab.worlds.linear_mdp import LinearMDP, free_bandit
from tether.problem.constraint import Constraint


def circulant(
    *,
    dimension: int = 5,
    threshold: float = 0.5,
    noise: float = 1.0,
    reward_noise: float = 1.0,
    told_reward_noise: float | None = None,
    confidence: float = 0.01,
) -> LinearMDP:
    """The bandit; `told_reward_noise` is the σ_r that the learner is told, if that is another than the true one."""
    ramp = np.arange(dimension, dtype=np.float64)
    theta = ramp / np.linalg.norm(ramp)
    shifts = (np.arange(dimension)[:, None] - np.arange(dimension)) % dimension  # (N, d)
    return free_bandit(
        "circulant",
        (shifts / np.linalg.norm(ramp))[None],
        theta,
        theta[::-1],
        Constraint(threshold=threshold, noise=noise, gamma_norm=1.0),
        true_reward_noise=reward_noise,
        reward_noise=reward_noise if told_reward_noise is None else told_reward_noise,
        confidence=confidence,
    )
