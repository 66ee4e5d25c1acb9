"""Does every world keep its promises? One suite over all of them."""

import numpy as np
import pytest
from scipy.stats import binomtest, chi2

from tether import Decision, Radius
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.planning import optimal_safe_policy
from tether.problem.action_sets import feature_of
from tether.records import StarAction
from worlds import WORLDS, world_named

ALARM = 1e-8
"""Each statistical check below fires on a correct world with at most this probability: 36 checks, below 1e-6 in all."""

pytestmark = pytest.mark.parametrize("name", WORLDS)


def played(world, rng):
    """Features that can be played, (S, n, d): every endpoint, phi_0, and on stars random points of the rays."""
    points = [world.phi_0[:, None], world.endpoints]
    if world.is_star:
        length = rng.random((*world.endpoints.shape[:2], 1))
        points.append(world.phi_0[:, None] + length * (world.endpoints - world.phi_0[:, None]))
    return np.concatenate(points, axis=1)


def decision(step, state, feature, identity=7):
    return Decision(identity, step, state, 0, feature, False, "best", (), Radius(0.0, "none"), 0.0, 0)


def test_every_playable_feature_gives_a_distribution_over_next_states(name):
    world = world_named(name)
    points = played(world, np.random.default_rng(0))
    for h in range(world.problem.horizon):
        rows = points @ world.true_mu[h]
        assert rows.min() >= -1e-12
        np.testing.assert_allclose(rows.sum(axis=-1), 1.0, atol=1e-12)
    assert world.initial.min() >= 0.0
    assert world.initial.sum() == pytest.approx(1.0, abs=1e-12)


def test_rewards_and_costs_stay_in_their_range(name):
    """[0, 1], except where the literal normal draws are asked for: there ‖γ*‖ is declared and is their limit."""
    world = world_named(name)
    points = played(world, np.random.default_rng(1))
    assert np.linalg.norm(points, axis=-1).max() <= world.problem.feature_norm * (1 + 1e-9)
    costs = np.einsum("snd,hmd->hmsn", points, world.true_gamma)
    rewards = np.einsum("snd,hd->hsn", points, world.true_theta)
    norms = np.linalg.norm(world.true_gamma, axis=2).max(axis=0)
    assert (norms <= np.array(world.problem.gamma_norm) * (1 + 1e-9)).all()
    if name == "synthetic-literal":
        assert costs.max() > 1.0 or costs.min() < 0.0  # that is what literal means
        assert np.abs(costs).max() <= norms.max()
    else:
        assert costs.min() >= 0.0
        assert costs.max() <= 1.0
        assert rewards.min() >= 0.0
        assert rewards.max() <= 1.0


def test_declared_safe_costs_are_true_and_leave_a_gap(name):
    world = world_named(name)
    true = np.einsum("sd,hmd->hsm", world.phi_0, world.true_gamma)
    gap = np.array(world.problem.threshold) - true
    assert gap.min() > (0.1 - 1e-9 if name.startswith("synthetic") else 0.0)
    for state in range(world.state_count):
        told = world.problem.look_up(state).baseline_cost
        if world.problem.baseline_cost is None:
            assert np.isnan(told).all()
        else:
            np.testing.assert_allclose(told, true[:, state], atol=1e-12)


def test_some_action_is_unsafe_unless_the_example_says_otherwise(name):
    """A world without unsafe actions would make every safety test vacuous. In the two-action example all are safe."""
    world = world_named(name)
    costs = np.einsum("snd,hmd->hmsn", world.endpoints, world.true_gamma)
    over = (costs > np.array(world.problem.threshold)[None, :, None, None]).any()
    assert over == (name not in ("not-star-convex", "star-convex-completion"))


def test_the_same_seed_gives_the_same_world_and_the_same_trajectory(name):
    first, second = WORLDS[name](), WORLDS[name]()
    for field in ("true_theta", "true_gamma", "true_mu", "initial", "phi_0", "endpoints"):
        assert getattr(first, field).tobytes() == getattr(second, field).tobytes(), field
    np.testing.assert_array_equal(optimal_safe_policy(first).values, optimal_safe_policy(second).values)
    assert _trajectory(first, 4) == _trajectory(second, 4)
    if len(first.initial) > 1:
        assert _trajectory(first, 4) != _trajectory(first, 5)


def _trajectory(world, seed, *, disturb=()):
    streams = Streams.from_seed(seed)
    seen = []
    for _ in range(20):
        state = world.reset(streams)
        for step in range(world.problem.horizon):
            for role in disturb:
                getattr(streams, role).random(3)
            transition = world.step(decision(step, state, world.endpoints[state, 0]), streams)
            seen.append((step, state, transition.reward, transition.cost, transition.next_state))
            state = transition.next_state
    return seen


def test_draws_in_one_role_do_not_move_another(name):
    world = world_named(name)
    plain = _trajectory(world, 9)
    assert _trajectory(world, 9, disturb=("agent", "instance")) == plain
    noisier = _trajectory(world, 9, disturb=("noise",))
    assert [(h, s, n) for h, s, *_, n in noisier] == [(h, s, n) for h, s, *_, n in plain]
    exact = world.problem.reward_noise == 0.0
    assert ([r for _, _, r, *_ in noisier] == [r for _, _, r, *_ in plain]) == exact
    assert [z for *_, z, _ in noisier] != [z for *_, z, _ in plain]


def test_transition_frequencies_match_the_law(name):
    """n = 6000 draws from one feature, seed 21; Pearson's chi-square with cells of at least 8 expected draws."""
    world, n, streams = world_named(name), 6000, Streams.from_seed(21)
    step, state = world.problem.horizon - 1, world.state_count - 1
    feature = world.endpoints[state, 0]
    fixed = decision(step, state, feature)
    seen = np.bincount([world.step(fixed, streams).next_state for _ in range(n)], minlength=world.state_count)
    assert _chi_square_passes(seen, n * (feature @ world.true_mu[step]))


def test_first_states_match_the_initial_distribution(name):
    """n = 6000 resets, seed 22; Pearson's chi-square."""
    world, n, streams = world_named(name), 6000, Streams.from_seed(22)
    seen = np.bincount([world.reset(streams) for _ in range(n)], minlength=world.state_count)
    assert _chi_square_passes(seen, n * world.initial)


def _chi_square_passes(seen, expected):
    assert seen[expected <= 0.0].sum() == 0
    rare = expected < 8.0
    if rare.any():  # merge thin cells, so that the asymptotic law is accurate far in its tail
        seen = np.append(seen[~rare], seen[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        seen, expected = seen[expected > 0.0], expected[expected > 0.0]
    statistic = ((seen - expected) ** 2 / expected).sum()
    return statistic <= chi2.isf(ALARM, max(len(seen) - 1, 1))


def test_observed_costs_are_the_true_cost_plus_noise_of_the_declared_scale(name):
    """n = 3000 steps, seed 23: the mean of (z − c)/σ is N(0, 1/n) and the sum of squares chi-square with n degrees."""
    world, n, streams = world_named(name), 3000, Streams.from_seed(23)
    feature = world.endpoints[0, -1]
    fixed = decision(0, 0, feature)
    seen = [world.step(fixed, streams) for _ in range(n)]
    off = np.array([t.reward for t in seen]) - world.true_theta[0] @ feature
    if world.problem.reward_noise == 0.0:
        assert len(set(off)) == 1
        assert off[0] == pytest.approx(0.0, abs=1e-15)
    else:
        scaled = off / world.problem.reward_noise
        assert abs(scaled.mean()) * np.sqrt(n) <= 6.0
        assert chi2.isf(1 - ALARM / 2, n) <= (scaled**2).sum() <= chi2.isf(ALARM / 2, n)
    errors = np.array([np.atleast_1d(t.cost) for t in seen]) - world.true_gamma[0] @ feature
    for j, sigma in enumerate(world.problem.noise):
        if world.problem.bounded[j]:  # yes or no: what is declared is the mean alone
            p = float(world.true_gamma[0, j] @ feature)
            assert set(np.round(errors[:, j] + p, 12)) == {0.0, 1.0}
            assert binomtest(int((errors[:, j] > 0.0).sum()), n, p).pvalue >= ALARM
            continue
        scaled = errors[:, j] / sigma
        assert abs(scaled.mean()) * np.sqrt(n) <= 6.0
        assert chi2.isf(1 - ALARM / 2, n) <= (scaled**2).sum() <= chi2.isf(ALARM / 2, n)
    if errors.shape[1] == 2:
        assert abs(np.corrcoef(errors.T)[0, 1]) < 6.0 / np.sqrt(n)


def test_a_step_answers_the_decision_it_was_given(name):
    world = world_named(name)
    chosen = decision(0, 0, world.endpoints[0, 0], identity=41)
    seen = world.step(chosen, Streams.from_seed(1))
    assert (seen.decision_id, seen.step, seen.state) == (41, 0, 0)
    np.testing.assert_array_equal(seen.feature, chosen.feature)
    assert 0 <= seen.next_state < world.state_count


def test_actions_name_their_features(name):
    world = world_named(name)
    actions = world.problem.actions(0)
    if actions.is_star:
        np.testing.assert_array_equal(feature_of(actions, StarAction(-1, 0.0)), world.phi_0[0])
        halfway = feature_of(actions, StarAction(0, 0.5))
        np.testing.assert_allclose(halfway, 0.5 * (world.phi_0[0] + world.endpoints[0, 0]), atol=1e-15)
    else:
        np.testing.assert_array_equal(feature_of(actions, actions.baseline), world.phi_0[0])
