"""A bandit with contexts and noise that grows with what is played, for limits on measured costs. H = 1.

The shape of Dragazis and Pacchiano's experiments (2026): θ*, γ* and the contexts are Gaussian directions of norm 1; one
ray per context, from doing nothing, which is free and certain, to the context itself. The cost of playing the share α
is α(⟨γ*, X⟩ + ξ), ξ normal with σ. There the contexts are drawn anew in every round, here from a list.
"""

import numpy as np

from tether.assumptions.realised import Realised
from tether.lab.worlds.linear_mdp import LinearMDP, free_bandit
from tether.problem.constraint import Constraint
from tether.records import Array


def contexts(
    rng: np.random.Generator,
    *,
    count: int = 20,
    dimension: int = 5,
    threshold: float = 0.5,
    noise: float = 1.0,
    exceedance: float = 0.01,
    confidence: float = 0.01,
) -> LinearMDP:
    """One instance; τ limits what is measured, but for a share `exceedance` of the rounds."""
    theta, gamma = _unit(rng, dimension), _unit(rng, dimension)
    return free_bandit(
        "contexts",
        _unit(rng, count, 1, dimension),
        theta,
        gamma,
        Constraint(threshold=threshold, noise=noise, gamma_norm=1.0, relax=[Realised(exceedance, noise_scales=True)]),
        confidence=confidence,
    )


def _unit(rng: np.random.Generator, *shape: int) -> Array:
    """Gaussian directions of norm 1, along the last axis."""
    drawn = rng.normal(size=shape)
    directions: Array = drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)
    return directions
