"""Bridge.check: what is played, what is found, and logs in the environment's own words."""

import warnings

import gymnasium
import numpy as np
import pytest

from gym.driving import DRIVING, Driving
from gym.small_envs import Shop, Valve
from gym.test_learn import SHOP, VALVE
from limits import bridged_with, learned_with
from tether.errors import AssumptionError, InputError
from tether.gym.check import feature_of_action, played

KEEPS = "A2: the safe action keeps to τ when it is played"
NOISE = "A3: noise on costs within σ"
REWARD = "A1: rewards are linear in φ (safety does not need it)"


class Dear(gymnasium.Wrapper):
    """The same environment, but everything costs so much more."""

    def __init__(self, env, more):
        super().__init__(env)
        self.more = more

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, "cost": info["cost"] + self.more}


def unknown_cost(told):
    return {name: value for name, value in told.items() if name != "baseline_cost"}


def test_a_bridge_is_checked_by_playing_its_safe_action():
    report = bridged_with(Shop(), **SHOP).check(plays=200, explore=False)
    assert report[KEEPS].verdict == report[NOISE].verdict == "holds"
    assert "over 200 outcomes of a_0" in report[KEEPS].evidence
    assert report["A2: safe costs as declared"].verdict == "holds"


def test_early_and_late_are_not_told_apart_by_a_handful_of_outcomes():
    """H = 4: in 60 steps each has 15 outcomes, in 100 it has 25; pooled, 60 are enough."""
    bridge, name = bridged_with(Shop(), **SHOP), "A1: the same costs early and late"
    found = [bridge.check(plays=n, explore=False, pooled=p)[name] for n, p in ((60, False), (100, False), (60, True))]
    assert [finding.verdict for finding in found] == ["cannot be known", "holds", "holds"]


def test_a_failure_says_what_was_found_once_and_what_to_do_once():
    found = bridged_with(Shop(noise=0.5), **SHOP).check(plays=200)[NOISE]
    assert found.verdict == "fails" and "Raise noise" not in found.evidence and not found.evidence.endswith(".")
    assert found.way_out == "Raise noise σ, or find what the features leave out"


def test_an_unsafe_safe_action_is_found_by_playing_it_though_its_cost_was_not_declared():
    report = bridged_with(Dear(Shop(), 0.4), **unknown_cost(SHOP)).check(plays=200)
    assert report[KEEPS].verdict == "fails"


def test_only_the_safe_action_is_played_unless_exploring_is_allowed():
    bridge = bridged_with(Valve(), **VALVE)
    safe = bridge.problem.look_up(bridge.start(0)).actions.phi_0
    assert all(np.array_equal(t.feature, safe) for t in played(bridge, 50, False, 0))
    assert any(not np.array_equal(t.feature, safe) for t in played(bridge, 50, True, 0))
    assert [t.step for t in played(bridge, 7, False, 0)] == [0, 1, 2, 0, 1, 2, 0]


def test_a_safe_action_that_fails_where_the_learner_gets_is_found_by_exploring():
    """Braking suffices in all states that braking visits, but not in those that certified throttle leads to."""
    narrow, wide = bridged_with(Driving(), **DRIVING), bridged_with(Driving(room=1000.0), **DRIVING)
    missed = narrow.check(plays=600, explore=False, pooled=True)
    assert missed[KEEPS].verdict == "holds" and "every state that the learner can reach" in missed[KEEPS].evidence
    found = narrow.check(plays=600, pooled=True)
    assert found[KEEPS].verdict == "fails" and "every state that the learner can reach" in found[KEEPS].way_out
    with pytest.raises(AssumptionError, match="the safe action keeps to τ when it is played"):
        learned_with(Driving(), **DRIVING, episodes=2, stationary=True, check=True)
    fine = wide.check(plays=600, pooled=True)
    assert [finding.name for finding in fine.failures] in ([], [REWARD])  # speed, which is paid for, is no feature
    assert "came right after other actions" in fine[KEEPS].evidence


def test_exploring_begins_with_safe_plays_and_ends_each_episode_with_them():
    """Half of the plays are safe ones; then certified actions come first in an episode, and the safe one after them."""
    bridge = bridged_with(Driving(room=1000.0), **DRIVING)
    phi_0 = bridge.problem.look_up(bridge.start(0)).actions.phi_0
    log = played(bridge, 400, True, 0)
    safe = np.array([np.array_equal(t.feature, phi_0) for t in log])
    assert safe[:200].all() and not safe[200:].all()
    lengths = [t.feature[1] / 0.7 for t in log]
    assert max(lengths) > 0.5  # as far as the learner goes by then
    steps = np.array([t.step for t in log])
    after = [row for row in range(201, 400) if safe[row] and not safe[row - 1] and steps[row] > 0]
    assert len(after) > 5
    for row in after:
        rest = np.flatnonzero(steps[row + 1 :] == 0)
        end = row + 1 + (rest[0] if len(rest) else len(steps))
        assert safe[row:end].all()


class Loud(gymnasium.Wrapper):
    """The same environment with five times the noise."""

    def step(self, action):
        *answer, info = self.env.step(action)
        return *answer, {**info, "cost": info["cost"] + 0.1 * self.env.np_random.standard_normal()}


@pytest.mark.parametrize("wrong", [lambda env: Dear(env, 0.6), Loud], ids=["dear", "loud"])
def test_nothing_but_the_safe_action_is_tried_once_the_declarations_were_contradicted(wrong):
    """The first half of the plays contradicts them, so that no other action is certified in the second."""
    bridge = bridged_with(wrong(Driving(room=1000.0)), **unknown_cost(DRIVING))
    phi_0 = bridge.problem.look_up(bridge.start(0)).actions.phi_0
    assert all(np.array_equal(t.feature, phi_0) for t in played(bridge, 200, True, 0, pooled=True))


def test_learning_starts_only_after_a_check_that_was_asked_for_holds():
    assert learned_with(Valve(), **VALVE, episodes=2, check=True).episodes == 2
    with pytest.raises(AssumptionError, match="the safe action keeps to τ when it is played"):
        learned_with(Dear(Valve(), 0.5), **unknown_cost(VALVE), episodes=2, check=True)


def test_rewards_that_are_not_linear_are_a_warning_where_learning_was_asked_for():
    """Safety does not need them, and learning may do without: it is no reason to refuse."""
    with pytest.warns(UserWarning, match="A1: rewards are linear"):
        learned_with(Driving(room=1000.0), **DRIVING, episodes=2, stationary=True, check=True)


def test_a_log_may_name_observations_and_the_environments_own_actions():
    bridge = bridged_with(Shop(), **SHOP)
    transitions = played(bridge, 40, False, 0)
    table = {
        "state": [t.state for t in transitions],
        "action": [0] * 40,
        "cost": [t.cost for t in transitions],
        "step": [t.step for t in transitions],
    }
    assert bridge.check(table)[KEEPS] == bridge.check(transitions)[KEEPS]
    with pytest.raises(InputError, match="row 0 of the log, state 0 and action 7, does not fit the problem"):
        bridge.check({"state": [0], "action": [7], "cost": [0.1]})


def test_a_point_of_a_box_is_found_on_its_ray():
    bridge = bridged_with(Valve(), **VALVE)
    state = bridge.start(0)
    safe, ends = bridge.action_sets.points(state)
    star = bridge.problem.actions(state)
    half = feature_of_action(bridge, state, safe + 0.5 * (ends[1] - safe))
    np.testing.assert_allclose(half, 0.5 * (star.phi_0 + star.endpoints[1]), atol=1e-12)
    assert np.array_equal(feature_of_action(bridge, state, safe), star.phi_0)
    off_ray = 0.5 * (ends[0] + ends[-1])
    with pytest.raises(InputError, match="on no ray"):
        feature_of_action(bridge, state, off_ray)


def test_a_safe_action_at_a_wall_of_the_box_has_a_ray_without_length():
    bridge = bridged_with(Valve(), **{**VALVE, "safe_action": [0.0, 0.0]})
    state = bridge.start(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match="on no ray"):
            feature_of_action(bridge, state, [0.5, 0.5])


def test_an_absurd_number_of_plays_is_refused():
    with pytest.raises(InputError, match="plays must be an integer >= 1"):
        bridged_with(Valve(), **VALVE).check(plays=0)
