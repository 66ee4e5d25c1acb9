"""At H = 1 `value_radius="mixture"` is a theorem: an exact-binomial test of its optimism at all times, fresh seeds."""

import numpy as np
import pytest
from scipy.stats import binom

from tether import Constraint, Problem, SlucbConfig, SlucbQvi, Transition

FALSE_ALARM = 1e-6
DELTA, RUNS, ROUNDS = 0.1, 300, 150
SIGMA = 0.5


def optimism_fails(seed: int, told: float) -> bool:
    """Whether ⟨w, x⟩ + β_v‖x‖ < ⟨θ*, x⟩ for some x at any time of one run: ‖w − θ*‖_A > β_v.

    ‖θ*‖ = √d, the most that is allowed, and each feature follows the noise seen so far.
    """
    rng, d = np.random.default_rng(seed), 3
    problem = Problem.from_rays(
        phi_0=[[0.1, 0.0, 0.0]],
        endpoints=[np.eye(d)],
        constraints=Constraint(threshold=1.0, noise=0.1, safe_cost=[[0.0]]),
        horizon=1,
        reward_noise=told,
        confidence=DELTA,
    )
    agent, theta = SlucbQvi(problem, SlucbConfig(value_radius="mixture")), np.full(d, 1.0)
    x, last = np.eye(d)[0], 0.0
    for _ in range(ROUNDS):
        last = SIGMA * (2.0 * float(rng.integers(2)) - 1.0)  # ±σ_r, as heavy as sub-Gaussian noise of two values is
        agent.observe(Transition(0, 0, x, float(theta @ x) + last, 0.0))
        agent.plan()
        off = agent.current.weights[0] - theta
        if np.linalg.norm(agent.values.factor[0] @ off) > agent.propose(0, 0).value_radius.value:
            return True
        direction = rng.standard_normal(d) + 2.0 * np.sign(last) * x  # go on where it was lucky
        x = direction / np.linalg.norm(direction)
    return False


@pytest.mark.slow
def test_values_are_optimistic_at_all_times_with_probability_one_minus_delta():
    """n = 300 runs, seeds 7000..7299, δ = 0.1, looked at after each of 150 rewards."""
    failures = sum(optimism_fails(seed, SIGMA) for seed in range(7000, 7000 + RUNS))
    assert failures <= int(binom.isf(FALSE_ALARM, RUNS, DELTA))


@pytest.mark.slow
def test_the_measurement_notices_noise_that_was_declared_too_small():
    """A fifth of the noise declared: more failures than δ explains."""
    failures = sum(optimism_fails(seed, SIGMA / 5.0) for seed in range(7000, 7000 + RUNS))
    assert failures > int(binom.isf(FALSE_ALARM, RUNS, DELTA))
