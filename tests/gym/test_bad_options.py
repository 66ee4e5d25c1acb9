"""What learn and Bridge refuse, with an error that names the way out."""

import re
import warnings
from contextlib import suppress
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from gym.small_envs import Quit, Shop, Valve
from gym.test_learn import SHOP, VALVE, run
from limits import bridged_with, learned_with, stated
from tether import (
    AssumptionError,
    Bounded,
    Bridge,
    Constraint,
    Drift,
    InputError,
    Misfit,
    Problem,
    Realised,
    RslucbQvi,
    SafeCost,
    SlucbQvi,
    learn,
)
from tether.arguments import MOVED
from tether.errors import TetherError
from tether.features import Constant, OneHot, PerDirection, Polynomial


class Numbers(gymnasium.Env):
    """Actions and observations in spaces of one's choice; whatever is played costs 0.1."""

    def __init__(self, action_space, observation=0.0):
        self.action_space, self.observation_space = action_space, spaces.Discrete(1)
        self.observation = observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation, {}

    def step(self, action):
        return self.observation, 0.5, False, False, {"cost": 0.1}


def without(told, *names):
    return {name: value for name, value in told.items() if name not in names}


def changed(told, **new):
    return {**told, **new}


@pytest.mark.parametrize(
    ("env", "told", "error", "message"),
    [
        (lambda: "Shop-v0", SHOP, InputError, "must be a Gymnasium environment.*gymnasium.make"),
        (lambda: Shop, SHOP, InputError, r"is <class .*: call it, Shop\(\)"),
        (Shop, changed(SHOP, features="poly"), InputError, "must be a function.*are 'poly'"),
        (Shop, changed(SHOP, features=lambda s: [0.5]), InputError, r"FunctionFeatures.*\(observation, action\)"),
        (Shop, changed(SHOP, safe_action=lambda: 0), InputError, r"safe_action is called with \(observation\)"),
        (Shop, changed(SHOP, cost=lambda s, a: 0.1), InputError, "cost is called with .*next_observation, info"),
        (Shop, changed(SHOP, baseline_cost=lambda s: 0.1), InputError, r"safe_cost is called with \(step, obs"),
        (Shop, changed(SHOP, reward_range=1.0), InputError, "lo < hi, both finite, but is 1.0"),
        (Shop, changed(SHOP, reward_range=(0.0, 1.0, 2.0)), InputError, "lo < hi"),
        (lambda: gymnasium.vector.SyncVectorEnv([Shop]), SHOP, InputError, "environments that step together"),
        (Shop, without(SHOP, "horizon"), InputError, "no max_episode_steps.*horizon="),
        (
            Shop,
            changed(SHOP, safe_action=7),
            InputError,
            r"safe action 7 of state \d is not in the action space Discrete",
        ),
        (Shop, changed(SHOP, features=lambda s, a: 1.0), InputError, r"shape \(d,\)"),
        (Shop, changed(SHOP, features=lambda s, a: {"x": s}), InputError, r"must return d numbers, but returned \{'x'"),
        (Shop, changed(SHOP, features=lambda s, a: [0.5, np.ones(1)]), InputError, "must return d numbers, but ret"),
        (Shop, changed(SHOP, reward_noise="a lot"), InputError, "reward_noise must be a finite number >= 0.*'a lot'"),
        (
            Shop,
            changed(SHOP, reward_noise=-1, reward_range=(0.0, 2000.0)),
            InputError,
            "reward_noise must be a finite number >= 0, but is -1",
        ),
        (Shop, changed(SHOP, key=3), InputError, "key must be a function observation -> .*, but is 3"),
        (Shop, changed(SHOP, key=lambda: 3), InputError, r"key is called with \(observation\)"),
        (Shop, changed(SHOP, actions=lambda: [0]), InputError, r"actions is called with \(observation\)"),
        (Valve, changed(VALVE, targets=lambda: [[1.0, 1.0]]), InputError, r"actions is called with \(observation\)"),
        (
            Shop,
            changed(SHOP, drift=1e-6, drift_per="second", time=lambda s: 0.0),
            InputError,
            r"time is called with \(observation, info\)",
        ),
        (lambda: lambda: Shop(), SHOP, InputError, "must be a Gymnasium environment.*: call it"),
        (Shop, changed(SHOP, features=lambda s, a: np.ones(2 + a) / 9), InputError, r"2 numbers.*shape \(3,\)"),
        (
            Shop,
            changed(SHOP, features=lambda s, a: np.full(3, 1.0 + a)),
            AssumptionError,
            "Assumption 4.*norm 5.19.*feature_norm=",
        ),
        (Shop, changed(SHOP, features=lambda s, a: np.zeros(3)), AssumptionError, "cost up to 0.*append a constant"),
        (
            Shop,
            changed(SHOP, features=lambda s, a: np.zeros(3), baseline_cost=None),
            AssumptionError,
            "a_0 has no declared cost",
        ),
        (Shop, changed(SHOP, features=lambda s, a: [np.nan, 0.0]), InputError, "not finite"),
        (Shop, changed(SHOP, features=PerDirection(Constant(), 2)), InputError, "PerDirection belongs to rays"),
        (Shop, changed(SHOP, features=OneHot(2), actions=lambda s: [0, 1]), InputError, "give PerAction"),
        (Shop, changed(SHOP, targets=[[1.0]]), InputError, "Targets are ends of rays in a Box"),
        (Shop, changed(SHOP, mask="legal"), InputError, r"info has no 'legal'.*action_mask"),
        (Shop, changed(SHOP, reward_range=(1.0, 1.0)), InputError, "lo < hi"),
        (Shop, changed(SHOP, baseline_cost=0.6), AssumptionError, "Assumption 2.*Name a safer action"),
        (Shop, changed(SHOP, confidence=0.9), InputError, "probability of failure"),
        (Valve, changed(VALVE, safe_action=[0.0, 9.0]), InputError, r"safe action \[0.0, 9.0\].*outside the action"),
        (Valve, changed(VALVE, safe_action=[np.nan, 1.0]), InputError, "outside the action"),
        (Valve, changed(VALVE, safe_action=[0.0]), InputError, "is not an action of Box"),
        (Valve, changed(VALVE, targets=[[2.0, 1.0]]), InputError, r"a target \[2.0, 1.0\].*outside the action"),
        (Valve, changed(VALVE, targets=[[1.0, 1.0, 1.0]]), InputError, "targets of shape"),
        (Valve, changed(VALVE, targets=[[1.0, 1.0, 1.0]] * 2), InputError, "targets of shape"),
        (Valve, changed(VALVE, mask="action_mask"), InputError, "Mask is for Discrete"),
        (
            Valve,
            changed(VALVE, features=lambda s, a: [0.5, 0.5 * a[0] ** 2]),
            AssumptionError,
            "Assumption 5.*PerDirection",
        ),
        (Valve, changed(VALVE, features=Polynomial([0, 0], [0.1, 0.1])), InputError, "outside='clip'"),
        (
            lambda: Numbers(spaces.Box(-np.inf, np.inf, (1,))),
            changed(VALVE, safe_action=[0.0]),
            InputError,
            "no walls in some direction.*targets",
        ),
        (
            lambda: Numbers(spaces.Box(0, 9, (1,), np.int64)),
            changed(VALVE, safe_action=[0]),
            InputError,
            "whole numbers.*List actions",
        ),
        (
            lambda: Numbers(spaces.MultiBinary(2)),
            changed(VALVE, safe_action=[0, 0]),
            InputError,
            "neither Discrete nor a Box.*list what may be played",
        ),
        (
            lambda: Numbers(spaces.Discrete(2), observation=[1]),
            changed(SHOP, features=lambda s, a: [0.5], baseline_cost=0.1),
            InputError,
            "not hashable.*key=",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_the_door(env, told, error, message):
    with pytest.raises(error, match=message):
        bridged_with(env(), **told)


def test_dictionaries_of_arrays_are_states_like_any_other(tmp_path):
    """Saved and restored, too: the key leads back to the dictionary."""
    env = Numbers(spaces.Discrete(2), observation={"x": np.array([1.0, 2.0]), "name": "a"})
    told = changed(SHOP, features=lambda s, a: [0.1 * s["x"][1], 0.1 * a], baseline_cost=0.1)
    result = run(env, 3, reward_range=(-1.0, 1.0), **told)
    assert len(result.agent.known_states) == 1
    result.agent.save(tmp_path / "agent")
    again = SlucbQvi.restore(tmp_path / "agent", result.problem)
    assert again.act(0, env.observation).cost_bound == result.agent.act(0, env.observation).cost_bound


def test_a_key_makes_dictionaries_usable():
    env = Numbers(spaces.Discrete(2), observation={"x": 1})
    told = changed(SHOP, features=lambda s, a: [0.5, 0.1 * a], baseline_cost=0.1)
    result = run(env, 3, key=lambda state: state["x"], reward_range=(-1.0, 1.0), **told)
    assert list(result.agent.known_states) == [1]


def test_an_environment_without_costs_is_told_where_costs_may_come_from():
    with pytest.raises(InputError, match=r"info has \['action_mask'\] but no 'cost'.*cost='…'.*function.*6 values"):
        run(Shop(style="nowhere"), **SHOP)
    with pytest.raises(InputError, match="no 'second'"):
        run(
            Shop(), cost=("cost", "second"), **changed(SHOP, threshold=(0.5, 0.5), noise=0.02, baseline_cost=(0.1, 0.1))
        )
    with pytest.raises(InputError, match="must be numbers, but is 'much'"):
        run(Shop(), cost=lambda *step: "much", **SHOP)


def test_a_cost_that_is_not_a_number_stops_the_run_and_a_missing_one_is_not_learned_from():
    with pytest.raises(InputError, match="cost must be 1 finite number"):
        run(Shop(), cost=lambda *step: np.nan, **SHOP)
    for hidden in (np.ma.masked, np.ma.array([0.1], mask=[True]), [np.ma.array([0.1], mask=[True])]):  # would be 0, 0.1
        with pytest.raises(InputError, match=r"masked.*report None"):
            run(Shop(), cost=lambda *step, hidden=hidden: hidden, **SHOP)
    unmeasured = run(Shop(), 5, cost=lambda *step: None, **SHOP)
    assert np.isnan(unmeasured.cost).all()
    assert unmeasured.agent.costs.moment.any() == np.False_
    assert unmeasured.violations == 0


def test_costs_without_a_stated_sigma_must_lie_in_the_unit_interval():
    assert Bridge(
        Quit(),
        features=OneHot(1),
        safe_action=0,
        constraints=Constraint(threshold=0.5, noise=Bounded("radius")),
        horizon=2,
    ).problem.noise == (0.5,)
    with pytest.raises(InputError, match=r"cost 0 is 1\.5.*declare the noise σ"):
        run(Shop(), cost=lambda *step: 1.5, **without(SHOP, "noise"))


def test_a_step_that_returns_something_else_is_refused():
    class Old(Shop):
        def step(self, action):
            return super().step(action)[:4]

    with pytest.raises(InputError, match=r"5 values.*6"):
        run(Old(), **SHOP)


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (
            lambda observation, reward, *rest: (observation, np.nan, *rest),
            "reward of a step.*finite number, but is nan",
        ),
        (lambda observation, reward, *rest: (observation, None, *rest), "reward of a step.*but is None"),
        (lambda *values: (*values[:-1], None), "info of a step must be a dictionary"),
    ],
)
def test_a_step_without_a_reward_or_an_info_is_refused(spoilt, message):
    class Spoilt(Shop):
        def step(self, action):
            return spoilt(*super().step(action))

    with pytest.raises(InputError, match=message), warnings.catch_warnings():
        warnings.simplefilter("error")
        run(Spoilt(), **SHOP)


def test_a_reset_of_the_old_api_is_refused_though_its_observation_has_two_numbers():
    class Old(Valve):
        def reset(self, **options):
            return super().reset(**options)[0]

    class Older(Valve):
        def reset(self):
            return super().reset()[0]

    with pytest.raises(InputError, match=r"must return \(observation, info\).*Gymnasium 1.0"):
        run(Old(), **VALVE)
    with pytest.raises(InputError, match=r"env.reset is called with \(seed=…\)"):
        run(Older(), **VALVE)


def test_a_reset_without_options_is_refused_only_where_there_are_some():
    class Plain(Shop):
        def reset(self, seed=None):
            return super().reset(seed=seed)

    assert run(Plain(), 2, **SHOP).episodes == 2
    with pytest.raises(InputError, match=r"\(seed=…, options=…\).*unexpected keyword argument 'options'"):
        run(Plain(), 2, reset_options={"x": 1}, **SHOP)


def test_features_that_are_an_object_are_called_by_its_class():
    class Openings:
        def __call__(self, state, action):
            return [0.5, 0.1 * action[0]]

    assert (
        "Openings(state, action): 2 features" in bridged_with(Valve(), **changed(VALVE, features=Openings())).describe()
    )


NO_NUMBERS = ("0.1", None, True, np.nan, np.inf, -1.0, np.array([0.1, 0.2]), 1j, [], [None], {}, np.ma.masked)
NUMBERS = ("noise", "baseline_cost_error", "confidence", "gamma_norm", "feature_norm", "gap_floor", "misfit", "drift")
NUMBERS += ("exceedance", "reward_noise", "reward_range", "cost_range", "horizon", "threshold", "targets")
FUNCTIONS = ("cost", "cost_kind", "key", "time", "agent", "on_step", "callbacks", "actions")


@pytest.mark.parametrize("name", [*NUMBERS, *FUNCTIONS])
def test_a_wrong_setting_of_any_type_is_refused_by_its_name_if_at_all(name):
    """Some are right for some settings, such as None for what may be left open; none may end in an error of Python.

    No threshold at all is a missing argument, as everywhere in Python.
    """
    for wrong in NO_NUMBERS[2:] if name == "threshold" else NO_NUMBERS:
        with suppress(TetherError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(Valve(), 1, **changed(VALVE, **{name: wrong}))


@pytest.mark.parametrize("wrong", ["0.1", None, True, np.nan, -0.1, [0.1], 1j])
def test_a_reward_noise_that_is_no_number_is_named_as_it_was_given(wrong):
    with pytest.raises(
        InputError, match=r"reward_noise must be a finite number >= 0, but is " + re.escape(repr(wrong))
    ):
        run(Shop(), reward_range=(0.0, 10.0), reward_noise=wrong, **SHOP)


@pytest.mark.parametrize("name", ["actions", "key", "state_of", "final_reward"])
def test_what_must_be_a_function_is_refused_at_the_door(name):
    told = {"horizon": 1, "threshold": 0.5, "noise": 0.1, "dimension": 1, "actions": lambda s: None}
    with pytest.raises(InputError, match=f"{name} must be a function"):
        Problem(**stated(**told | {"baseline_cost": None, name: "x"}))


def test_a_range_of_rewards_may_be_an_array():
    with pytest.warns(UserWarning, match=r"lies outside \(0.0, 0.45\)"):
        run(Shop(), 20, reward_range=np.array([0.0, 0.45]), **SHOP)


def test_as_many_costs_as_thresholds_are_needed():
    with pytest.raises(InputError, match=r"reported \(0.1, 0.2\) as cost 0, which must be one number"):
        run(Shop(), cost=lambda *step: (0.1, 0.2), **SHOP)


def test_listed_actions_of_a_box_may_be_lists_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = changed(VALVE, features=lambda s, a: [0.5, 0.1 * a[0]], safe_action=[0.0, 1.0])
        bridged_with(Valve(), actions=[[0.0, 1.0], [1.0, 1.0]], **told)


def test_features_that_change_from_call_to_call_are_named_as_such():
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="must not change from one call to the next"):
        bridged_with(Valve(), **changed(VALVE, features=lambda s, a: [0.5, 0.1 * rng.random()]))


def test_a_mask_that_changes_for_the_same_observation_is_refused():
    class Moody(Shop):
        def mask(self):
            return np.array([1, 1, getattr(self, "steps", 0) > 1])

    with pytest.raises(InputError, match="must be in the observation"):
        run(Moody(), mask="action_mask", **SHOP)


def test_rewards_outside_their_range_are_counted_and_warned_about_once():
    """PAY exceeds 0.45 for action 1 in state 0 only."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = run(Shop(), 20, reward_range=(0.0, 0.45), **SHOP)
    odd = int((result.reward > 0.45).sum())
    assert odd > 1
    assert result.bridge.odd_rewards == odd
    assert [str(entry.message)[:11] for entry in caught if "reward" in str(entry.message)] == ["a reward of"]
    assert "Safety is not touched" in str(caught[0].message)
    assert f"{odd} rewards lay outside" in result.summary()


def test_rewards_outside_their_range_by_rounding_do_not_count():
    """0.5 in single precision and a step of 1e-7 beyond: within 1e-6 of the range."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(Shop(), 20, reward_range=(0.1, 0.5 - 1e-7), **SHOP)
    assert result.bridge.odd_rewards == 0 and (result.reward > 0.5 - 1e-7).any()


@pytest.mark.parametrize("agent", [SlucbQvi, partial(RslucbQvi, rng=np.random.default_rng(0))])
def test_an_agent_that_is_given_an_environment_asks_for_a_problem(agent):
    with pytest.raises(InputError, match=r"on a tether\.Problem, but was given <.*Shop.*tether\.learn"):
        agent(Shop())


def test_mixtures_need_the_cost_of_the_safe_action():
    with pytest.raises(InputError, match="they need that action's cost: declare safe_cost"):
        run(Shop(), limit_on="average over draws", **changed(SHOP, baseline_cost=None))


def test_settings_that_are_unknown_or_given_twice_are_refused():
    with pytest.raises(TypeError, match=r"treshold'; did you mean 'threshold'\? Write constraints=Constraint"):
        learn(Shop(), treshold=0.5)
    with pytest.raises(TypeError, match=r"episods.*did you mean 'episodes'"):
        learned_with(Shop(), episods=5, **SHOP)
    for word in ("zzz", "learning_rate"):
        with pytest.raises(TypeError, match=f"'{word}'; there are: env, features, safe_action"):
            learned_with(Shop(), **{word: 0.5}, **SHOP)
    for word, home in MOVED.items():
        with pytest.raises(TypeError, match=re.escape(f"learn() has no {word!r}: write {home}")):
            learn(Shop(), **{word: 1})
    with pytest.raises(TypeError, match=r"agent=tether.SlucbConfig\(value_radius=…\)"):
        learned_with(Shop(), value_radius="paper", **SHOP)
    with pytest.raises(TypeError, match="needs safe_action=…, constraints=…: see help"):
        learn(Shop(), features=OneHot(1))
    with pytest.raises(InputError, match="seed must be an integer >= 0, but is -1"):
        learned_with(Shop(), seed=-1, **SHOP)
    with pytest.raises(InputError, match=r"agent must be a tether.SlucbConfig\(…\) or a function .*, but is {}"):
        learned_with(Shop(), agent={}, **SHOP)
    with pytest.raises(InputError, match=r"callbacks=\[print\]"):
        learned_with(Shop(), callbacks=print, **SHOP)
    with pytest.raises(InputError, match=r"on_step is called with \(decision, transition\)"):
        learned_with(Shop(), on_step=lambda decision: None, **SHOP)
    with pytest.raises(InputError, match=r"call it, Shop\(\)"):
        learned_with([Shop, Shop], **SHOP)
    with pytest.raises(InputError, match="one environment twice"):
        learned_with([shop := Shop(), shop], **SHOP)
    with pytest.raises(InputError, match=r"\['constraints'\] belong to the Bridge"):
        learn(bridged_with(Shop(), **SHOP), constraints=Constraint(threshold=0.4, noise=Bounded("radius")))
    with pytest.raises(InputError, match="brings its own"):
        learned_with(Shop(), agent=lambda problem, rng: None, limit_on="average over draws", **SHOP)
    with pytest.raises(InputError, match="episodes must be an integer"):
        learned_with(Shop(), episodes=1.5, **SHOP)


def test_numpys_integers_are_seeds_too():
    """Gymnasium takes Python's alone."""
    by_numpy, plain = (run(Shop(), 3, **SHOP, seed=seed) for seed in (np.int64(4), 4))
    np.testing.assert_array_equal(by_numpy.cost, plain.cost)


def test_settings_are_looked_at_before_anything_is_played_for_a_check():
    env = Valve()
    with pytest.raises(InputError, match="episodes must be"):
        learned_with(env, **VALVE, episodes=1.5, check=True)
    assert not env.played


@pytest.mark.parametrize("wrong", [True, "0.5", b"1", [True], np.True_, np.array(["0.5"]), {}], ids=repr)
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda wrong: Constraint(threshold=wrong, noise=0.1), "threshold"),
        (lambda wrong: Constraint(threshold=0.5, noise=wrong), "noise"),
        (lambda wrong: Constraint(threshold=0.5, noise=0.1, gamma_norm=wrong), "gamma_norm"),
        (Misfit, "Misfit(error=…)"),
        (Drift, "Drift(rate=…)"),
        (Realised, "Realised(exceedance=…)"),
        (lambda wrong: SafeCost(0.1, error=wrong), "SafeCost(error=…)"),
    ],
)
def test_what_could_be_read_as_a_number_is_not_taken_for_one(make, name, wrong):
    """threshold=True was a τ of 1."""
    with pytest.raises(InputError, match=f"^{re.escape(name)} must be .*, but is {re.escape(repr(wrong))}"):
        make(wrong)
