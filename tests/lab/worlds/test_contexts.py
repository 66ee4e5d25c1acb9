"""The bandit whose measured costs are limited: noise grows with what is played, and the optimum leaves room for it."""

import numpy as np
import pytest

from tether import SlucbQvi, Streams
from tether.lab.simulate import OwnConstraint, simulate, simulate_any
from tether.lab.worlds.contexts import contexts
from tether.lab.worlds.planning import optimal_safe_policy
from tether.records import StarAction

WORLD = contexts(np.random.default_rng(0), count=6, threshold=0.5, exceedance=0.05)


@pytest.mark.parametrize("length", [0.1, 1.0])
def test_the_noise_of_a_cost_grows_with_the_length(length):
    feature, rng = length * WORLD.endpoints[2, 0], np.random.default_rng(1)
    draws = [WORLD.play(0, 2, StarAction(0, length), feature, (rng.standard_normal(1), 0.5))[1] for _ in range(4000)]
    assert np.mean(draws) == pytest.approx(float(WORLD.true_gamma[0, 0] @ feature), abs=0.05 * length)
    assert np.std(draws) == pytest.approx(length, rel=0.05)


def test_the_optimum_leaves_room_for_the_noise():
    best, quantile = optimal_safe_policy(WORLD), np.sqrt(2.0 * np.log(20.0))
    for state, (end,) in enumerate(WORLD.endpoints):
        bound = float(WORLD.true_gamma[0, 0] @ end) + quantile
        length = min(1.0, 0.5 / bound) if float(WORLD.true_theta[0] @ end) > 0.0 else 0.0
        np.testing.assert_allclose(best.features[0, state], length * end, rtol=1e-9, atol=1e-12)


def test_measured_costs_stay_under_the_limit_as_often_as_promised():
    """Also in a study's run, which asks for every state and so sees noise that follows the length."""
    witness = OwnConstraint(WORLD, "realised", 300)
    simulate_any(WORLD, SlucbQvi(WORLD.problem), 300, Streams.from_seed(3), witness=witness)
    assert (witness.columns()["own_excess"] > 0.0).mean() <= 0.05
    books = simulate(WORLD, SlucbQvi(WORLD.problem), 300, Streams.from_seed(3))
    assert (books.regret >= -1e-12).all() and books.violations.sum() == 0
