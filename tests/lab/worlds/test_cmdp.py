"""Worlds with a budget per episode: their numbers by hand, and the exact planner of such budgets."""

from dataclasses import replace

import numpy as np
import pytest

from limits import restated
from tether.errors import EmptySafeSet
from tether.lab.worlds.cmdp import inventory, random_cmdp, streaming
from tether.lab.worlds.planning import (
    least_costly_policy,
    optimal_episode_policy,
    optimal_safe_mixture,
    policy_costs,
    policy_values,
    true_costs,
)
from tether.lab.worlds.synthetic import synthetic


def test_streaming_by_hand():
    """fast = .8, leave = .25: from an empty buffer a fast send fills one place with .75·.8; from 3, slow, one leaves
    with .25·.8. Slow sends cost 0, fast ones 1, and 60 % must be slow: the budget of four steps is 1.6."""
    world = streaming(fast=0.8, leave=0.25)
    law = world.endpoints @ world.true_mu[0]  # (S, A, S)
    assert np.allclose(law[0, 0], [0.4, 0.6, 0, 0, 0, 0])
    assert np.allclose(law[3, 1], [0, 0, 0.2, 0.25 * 0.2 + 0.75 * 0.8, 0.75 * 0.2, 0])
    assert np.allclose(law[5, 0], [0, 0, 0, 0, 0.05, 0.95])
    assert (world.endpoints @ world.true_gamma[0, 0] == [1.0, 0.0]).all()
    assert (world.endpoints @ world.true_theta[0]).tolist() == [[0.0, 0.0]] + [[1.0, 1.0]] * 5
    assert np.isclose(4 * world.problem.threshold[0], 1.6) and (world.phi_0 == world.endpoints[:, 1]).all()


def test_inventory_by_hand():
    """21 pairs. From 2 on stock, ordering 2 gives 4: it costs (4 + 4 + 4)/19 and leaves 4, 3, 2, 1, 0 with
    .3 .2 .2 .2 .1. By the next stock's probabilities sales are worth 8·(1·.2 + 2·.2 + 3·.2 + 4·.1); the most is
    8·(1·.2 + 2·.2 + 3·.2 + 4·.05 + 5·.05), from 5 on stock."""
    world = inventory()
    assert world.problem.dimension == 21
    theta, gamma = world.endpoints @ world.true_theta[0], world.endpoints @ world.true_gamma[0, 0]
    assert np.isclose(gamma[2, 2], 12.0 / 19.0) and np.isclose(gamma[0, 5], 1.0) and gamma[0, 0] == 0.0
    assert np.allclose((world.endpoints @ world.true_mu[0])[2, 2], [0.1, 0.2, 0.2, 0.2, 0.3, 0.0])
    assert np.isclose(theta[2, 2] / theta[0, 5], 1.6 / 1.65)
    assert (world.endpoints[4, 1] == world.endpoints[4, 5]).all()  # only one fits


def test_a_random_instance_is_what_its_authors_describe():
    world = random_cmdp(np.random.default_rng(0))
    utility = 1.0 - np.einsum("hd,sad->hsa", world.true_gamma[:, 0], world.endpoints)
    assert np.isclose(utility.max(), 1.0) and np.isclose((world.endpoints @ world.true_theta.T).max(), 1.0)
    least = np.einsum("hsa,sad->hsd", least_costly_policy(world), world.endpoints)
    most = 4.0 - world.initial @ policy_costs(world, least)[0, :, 0]  # the largest utility of an episode
    assert np.isclose(4.0 * (1.0 - world.problem.threshold[0]), 0.68 * most)


WORLDS = {
    "streaming": streaming(),
    "inventory": inventory(),
    "star": synthetic(np.random.default_rng(4), states=3, rays=4, dimension=3, horizon=2),
    "random": random_cmdp(np.random.default_rng(1), states=8),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_best_policy_of_a_budget_keeps_it_and_is_beaten_by_no_other(name):
    """It is worth at least the best policy with a limit on every step, and no random policy under the budget."""
    world = WORLDS[name]
    best, start, budget = (
        optimal_episode_policy(world),
        world.initial,
        world.problem.horizon * world.problem.threshold[0],
    )
    assert start @ policy_costs(world, best.features)[0, :, 0] <= budget + 1e-6
    if name != "random":  # there a_0 need not be under τ
        assert start @ best.values[0] >= start @ optimal_safe_mixture(world).values[0] - 1e-6
    rng, points = np.random.default_rng(0), np.concatenate([world.endpoints, world.phi_0[:, None]], axis=1)
    under = 0
    for _ in range(200):
        shares = rng.dirichlet(np.full(points.shape[1], 0.2), size=(world.problem.horizon, len(points)))
        features = np.einsum("hsa,sad->hsd", shares, points)
        if start @ policy_costs(world, features)[0, :, 0] <= budget:
            under += 1
            assert start @ policy_values(world, features)[0] <= start @ best.values[0] + 1e-6
    assert under > 0


def test_the_cost_of_an_episode_is_the_sum_of_its_steps():
    """Against forward propagation of the state's distribution."""
    world = WORLDS["star"]
    features = world.endpoints[:, [0, 2]].transpose(1, 0, 2)  # ray 0 at the first step, 2 at the second
    occupied, total = world.initial, 0.0
    for step in range(2):
        total += occupied @ true_costs(world, features)[step, :, 0]
        occupied = np.einsum("s,st->t", occupied, features[step] @ world.true_mu[step])
    assert np.isclose(world.initial @ policy_costs(world, features)[0, :, 0], total)


def test_a_budget_that_nothing_keeps_is_refused():
    world = streaming()
    tight = restated(world.problem, threshold=(-0.1,), tight_baseline="baseline")
    with pytest.raises(EmptySafeSet, match="expected cost of an episode"):
        optimal_episode_policy(replace(world, problem=tight))
