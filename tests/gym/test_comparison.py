"""What was learned against the safe action: paired by seed where that is possible, with an interval, and why not."""

import numpy as np
import pytest

from gym.small_envs import Shop, Valve
from gym.test_learn import SHOP, VALVE
from limits import bridged_with, learned_with
from tether import InputError, Run, SlucbConfig, learn
from tether.features import OneHot
from tether.gym.comparison import Comparison, compare


def test_the_interval_of_pairs_is_students_and_that_of_two_samples_is_welchs():
    """Differences 1, 2, 3: mean 2, s = 1, t(2) = 4.3027, so 2 ± 4.3027/√3. Unpaired: both variances count."""
    learner, safe = np.array([11.0, 22.0, 33.0]), np.array([10.0, 20.0, 30.0])
    paired, apart = (Comparison(learner, safe, paired) for paired in (True, False))
    assert paired.gain == apart.gain == 2.0
    assert paired.interval == pytest.approx((2.0 - 2.4841, 2.0 + 2.4841), abs=1e-3)
    variance, freedom = (121.0 + 100.0) / 3, 2 * 221.0**2 / (121.0**2 + 100.0**2)
    assert 3.9 < freedom < 4.0
    assert apart.interval[1] - 2.0 == pytest.approx(2.78 * variance**0.5, rel=0.01)
    assert Comparison(learner[:1], safe[:1], True).interval == (-np.inf, np.inf)


def test_where_costs_drift_with_each_decision_nothing_is_played_for_a_comparison():
    """Bounds do not age by a peek: what is played without `act` would rest on bounds that have expired."""
    told = {**VALVE, "drift": 1e-6}
    result = learned_with(Valve(), episodes=4, **told, compare=5)
    assert result.comparison is None and result.compare(5) is None
    assert learned_with(Valve(), episodes=4, **VALVE, compare=5).comparison is not None


def test_a_gain_a_loss_and_neither_are_told_apart():
    safe = np.zeros(10)
    noise = np.array([0.1, -0.1] * 5)
    assert "WARNING: worse than the safe action" in Comparison(noise - 1.0, safe, True).describe()
    assert "No gain is shown" in Comparison(noise, safe, True).describe()
    better = Comparison(noise + 1.0, safe, True).describe()
    assert "+1 a return" in better and "WARNING" not in better and "No gain" not in better


def test_learning_is_compared_with_the_safe_action_by_itself_and_changes_nothing():
    """The safe action earns 0.4 an episode, what is learned 1.8; the run is the same as without a comparison.

    The paper's value radius: pay is not linear in these features, and `learn` would take it at its estimate.
    """
    told = {**SHOP, "stationary": True, "config": SlucbConfig(backup="tables", replan="every-episode")}
    with_it, without = (learned_with(Shop(), episodes=80, **told, compare=n) for n in (None, 0))
    np.testing.assert_array_equal(with_it.cost, without.cost)
    assert with_it.agent.data_version == without.agent.data_version
    assert without.comparison is None and "against the safe action" not in without.summary()
    found = with_it.comparison
    assert found.paired and len(found.learner) == len(found.safe) == 8
    assert found.gain == pytest.approx(1.8 - found.safe.mean()) and found.interval[0] > 0.0
    assert "against the safe action: +" in with_it.summary()
    assert len(with_it.compare(3).learner) == 3


def test_a_mixing_learner_goes_on_as_if_nothing_had_been_compared():
    told = {**SHOP, "features": OneHot(2)}
    runs = [learned_with(Shop(), episodes=60, limit_on="average over draws", **told, compare=n) for n in (5, 0)]
    assert runs[0].agent.rng.bit_generator.state == runs[1].agent.rng.bit_generator.state


def test_what_is_compared_has_learned_from_the_last_episode_too():
    told = {**SHOP, "stationary": True, "config": SlucbConfig(backup="tables", replan="every-episode")}
    result = learned_with(Shop(), episodes=1, **told, compare=0)
    assert result.agent.plan_version < result.agent.data_version  # planned before that episode
    result.compare(1)
    assert result.agent.plan_version == result.agent.data_version


def test_starts_that_no_seed_repeats_are_not_called_pairs():
    class Restless(Shop):
        def reset(self, **options):
            observation, info = super().reset(**options)
            self.rounds = getattr(self, "rounds", 0) + 1
            self.state = observation = self.rounds % 2
            return observation, info

    bridge = bridged_with(Restless(), **SHOP)
    result = learn(bridge, episodes=40, stationary=True, run=Run(compare=0))
    found = compare(bridge, result.agent, 3, 0)  # three of one, then three of the other
    assert not found.paired and "not paired" in found.describe()


def test_a_learner_that_only_played_the_safe_action_says_why():
    """One-hot pairs in a finite set teach nothing about each other."""
    result = learned_with(Shop(), episodes=20, **{**SHOP, "features": OneHot(2)})
    assert result.comparison is None
    assert "only the safe action was played: no other action could be certified" in result.summary()
    tripped = learned_with(Shop(noise=0.5), episodes=80, **SHOP)
    assert "ALARM" in tripped.summary()
    unmeasured = learned_with(Shop(), episodes=2, **SHOP, cost=lambda *step: None)
    assert "only the safe action was played: no cost was measured" in unmeasured.summary()


def test_a_learner_that_plays_only_the_safe_action_after_an_alarm_says_why():
    tripped = learned_with(Valve(), episodes=80, **{**VALVE, "noise": 0.005})
    assert not tripped.is_baseline.all() and tripped.is_baseline[-40:].all()
    assert "at the end hardly anything but the safe action was played: a test of" in tripped.summary()
    assert "hardly anything" not in learned_with(Valve(), episodes=80, **VALVE).summary()


def test_costs_observed_over_the_threshold_are_not_excused_after_an_alarm():
    """τ just over the dearer action's mean: half of its readings are over it. With far larger noise, an alarm."""
    told = {**SHOP, "threshold": 0.351, "compare": 5}
    note = "observed over τ, noise included; bounds are on the mean"
    usual, wrong = learned_with(Shop(), episodes=80, **told), learned_with(Shop(noise=0.5), episodes=80, **told)
    assert usual.violations and not usual.alarms and note in usual.summary()
    assert wrong.violations and wrong.alarms and note not in wrong.summary()


def test_one_pair_shows_nothing_and_thousands_are_written_as_people_do():
    one = Comparison(np.array([3.0]), np.array([1.0]), paired=True).describe()
    assert "+2 in one episode each, which shows nothing" in one and "inf" not in one
    many = Comparison(np.array([-13000.0, -13100.0]), np.array([-30000.0, -30200.0]), paired=True).describe()
    assert "+17050 a return" in many and "e+0" not in many


@pytest.mark.parametrize("wrong", [-1, 2.5, "many"])
def test_a_number_of_pairs_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="compare must be an integer >= 0"):
        learned_with(Shop(), episodes=1, **SHOP, compare=wrong)
    with pytest.raises(InputError, match="episodes must be an integer >= 0"):
        learned_with(Shop(), episodes=1, **SHOP).compare(wrong)


def test_an_agent_that_cannot_be_asked_is_not_compared():
    class Mute:
        def __init__(self, problem, rng):
            from tether import SlucbQvi

            inner = SlucbQvi(problem)
            self.plan, self.act, self.observe, self.save = inner.plan, inner.act, inner.observe, inner.save

    result = learned_with(Shop(), episodes=30, **SHOP, agent=Mute)
    assert result.comparison is None and not result.is_baseline.all()
