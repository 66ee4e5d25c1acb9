"""Policies as tables, softmax backups and the search for a multiplier: by hand."""

import numpy as np

from tether.agents.relatives.episodic import Backup, Regression, smallest_multiplier, softmax_policies
from tether.agents.relatives.opse import Opse, OpseConfig
from tether.lab.worlds.cmdp import streaming
from tether.lab.worlds.linear_mdp import Streams
from tether.lab.worlds.synthetic import synthetic


def test_the_smallest_multiplier_is_where_a_growing_utility_reaches_what_is_wanted():
    assert abs(smallest_multiplier(lambda lam: lam / (1.0 + lam), 0.75, 300.0) - 3.0) < 300.0 / 16**5
    assert smallest_multiplier(lambda lam: lam + 1.0, 0.5, 300.0) == 0.0
    assert smallest_multiplier(lambda lam: 0.0 * lam, 0.5, 300.0) is None
    assert smallest_multiplier(lambda lam: np.full_like(lam, np.nan), 0.5, 300.0) is None


def test_a_backup_by_hand():
    """H = 2, one state, two actions: π of the last step is softmax((0, log 3)) = (¼, ¾), worth ¾ log 3, entropy h.

    P̂ = ½ for the first action and 0 for the second, inside = 1, limit = 1.2: Q_1 = (0, log 3) + clip(1 + ½V, 0, 1.2).
    """
    rewards = np.array([[[0.0, np.log(3.0)]]])  # (n, S, A)
    last = Regression(rewards[0], rewards[0], rewards[0], np.zeros((2, 1)))
    first = last._replace(law=np.array([[0.5], [0.0]]))
    backups = [Backup(rewards, np.ones_like(rewards), np.array([1.2])), Backup(rewards, 0.0 * rewards, np.array([9.0]))]
    values, policy = softmax_policies([first, last], backups, np.ones((1, 1)), 1.0, entropy=1.0)
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    value = 0.75 * np.log(3.0) + entropy
    scores = np.array([min(1.0 + 0.5 * value, 1.2), np.log(3.0) + 1.0])
    share = np.exp(scores) / np.exp(scores).sum()
    assert np.allclose(policy[1, 0, :, 0], [0.25, 0.75])
    assert np.allclose(policy[0, 0, :, 0], share)
    assert np.isclose(values[0, 0, 0], share @ scores - share @ np.log(share))


def test_a_policy_is_drawn_as_it_says_in_stars_and_in_finite_sets():
    for world in (streaming(), synthetic(np.random.default_rng(0), states=2, rays=4, dimension=3, horizon=2)):
        agent = Opse(world.problem, OpseConfig(bonus=0.05, multiplier=9.0, exploration=0.1), seed=1)
        streams = Streams.from_seed(0)
        for _ in range(20):
            state = world.reset(streams)
            agent.plan()
            for step in range(world.problem.horizon):
                seen = world.step(agent.act(step, state), streams)
                agent.observe(seen)
                state = seen.next_state
        agent.plan()
        states = range(world.state_count)
        means = agent.planned_features(states)
        asked = [[agent.peek(h, s).mean_feature for s in states] for h in range(world.problem.horizon)]
        assert np.allclose(means, asked, atol=1e-12)
        drawn = np.mean([agent.peek(0, 0).feature for _ in range(4000)], axis=0)
        assert np.abs(drawn - means[0, 0]).max() < 0.04
        assert np.isclose(agent.starts.sum(), 20) and np.allclose(agent.initial, agent.starts / 20)


def test_a_safe_policy_may_be_told_and_is_a_0_otherwise():
    world = streaming()
    assert (Opse(world.problem).safe_policy == np.eye(2)[1]).all()
    told = np.full((4, 6, 2), 0.5)
    agent = Opse(world.problem, OpseConfig(episodes=10), safe_policy=told)
    agent.plan()
    assert (agent.policy() == told).all()  # nothing is known yet, and the theorem's bonus leaves no room


def test_a_policy_that_is_no_number_is_the_safe_one(monkeypatch):
    world = streaming()
    agent = Opse(world.problem, OpseConfig(bonus=0.05, multiplier=9.0, exploration=0.1), seed=1)
    broken = agent.safe_policy.copy()
    broken[0, 1] = np.nan
    broken[1, 2] = [0.5, 0.5]
    monkeypatch.setattr(agent, "policy", lambda: broken)
    agent.plan()
    assert agent.act(0, 1).is_baseline
    mixture = agent.current.mixture[:, : agent.safe_policy[0].size].reshape(agent.safe_policy.shape)
    assert (mixture[0, 1] == agent.safe_policy[0, 1]).all() and (mixture[1, 2] == 0.5).all()
