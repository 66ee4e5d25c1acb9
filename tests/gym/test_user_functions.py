"""Environments that reuse their arrays or write into actions, and users' functions that answer one thing today and
another tomorrow, or write into what they are given."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from limits import bridged_with, learned_with
from tether import InputError, SlucbConfig, SlucbQvi
from tether.features import FunctionFeatures
from tether.gym.bridge import unpack


class Reused(gymnasium.Env):
    """Action 1 costs x, 0 costs nothing; the observation x is written into one array, here alone or in a dictionary."""

    action_space = spaces.Discrete(2)

    def __init__(self, inside=False):
        self.x, self.inside, self.asked = np.zeros(1), inside, 0
        box = spaces.Box(0.0, 1.0, (1,), np.float64)
        self.observation_space = spaces.Dict({"x": box}) if inside else box

    def observed(self):
        return {"x": self.x} if self.inside else self.x

    def reset(self, *, seed=None, options=None):
        self.x[0], self.asked = 0.1 if self.asked < 40 else 0.9, self.asked + 1
        return self.observed(), {}

    def step(self, action):
        self.x[0], cost = 1.0 - self.x[0], float(action * self.x[0])
        return self.observed(), float(action), False, False, {"cost": cost}


TOLD = {"safe_action": 0, "threshold": 0.5, "noise": 0.01, "baseline_cost": 0.0, "gamma_norm": 2.0}


def test_an_observation_in_a_reused_array_is_read_anew():
    """x rises from 0.1 to 0.9 in the same array: D(s) of the array's first content would certify action 1 there."""
    env = Reused()
    bridge = bridged_with(env, features=lambda x, a: np.array([0.1, 0.9 * a * x[0]]), horizon=1, **TOLD)
    agent, played = SlucbQvi(bridge.problem), []
    for _ in range(80):
        x, _ = env.reset()
        agent.plan()
        decision = agent.act(0, x)
        played.append(decision.action * x[0])
        agent.observe(decision.outcome(reward=float(decision.action), cost=played[-1]))
    assert 0.0 < max(played) <= 0.5


def test_arrays_within_a_dictionary_are_copied_too():
    """`cost` is asked about the state that was acted in; the environment has overwritten its array by then."""
    seen = []

    def cost(state, action, following, info):
        seen.append((float(state["x"][0]), float(following["x"][0])))
        return action * state["x"][0]

    learned_with(
        Reused(inside=True),
        features=lambda s, a: np.array([0.1, 0.9 * a * s["x"][0]]),
        cost=cost,
        key=lambda s: float(s["x"][0]),
        horizon=3,
        episodes=2,
        compare=0,
        progress=False,
        **TOLD,
    )
    np.testing.assert_allclose(seen, [(0.1, 0.9), (0.9, 0.1), (0.1, 0.9)] * 2)


def test_what_is_played_is_what_was_certified_or_nothing():
    """A list of actions in another order would put action 2 in place of 1; rays to other targets likewise."""
    order = [0, 1, 2]
    bridge = bridged_with(
        gymnasium.make("FrozenLake-v1"),
        features=lambda s, a: np.array([0.1, 0.2 * a]),
        actions=lambda s: order[:],
        horizon=2,
        **TOLD,
    )
    decision = SlucbQvi(bridge.problem).peek(0, 0)
    assert bridge.env_action(decision) == 0
    order.reverse()
    with pytest.raises(InputError, match=r"certified with φ.*the same answer"):
        bridge.env_action(decision)

    ends = [np.array([[2.0]])]
    pendulum = gymnasium.make("Pendulum-v1")
    rays = bridged_with(
        pendulum, features=lambda s, a: np.array([0.5, a[0] / 4.0]), targets=lambda s: ends[0], horizon=2, **TOLD
    )
    state = rays.start(0)
    chosen = SlucbQvi(rays.problem).peek(0, state)
    assert chosen.action.length > 0.0
    assert rays.env_action(chosen)[0] == pytest.approx(2.0 * chosen.action.length, rel=1e-6)
    ends[0] = np.array([[-2.0]])
    with pytest.raises(InputError, match=r"certified with φ.*the same answer"):
        rays.env_action(chosen)


class Coarse(gymnasium.Env):
    """The cost rises from 0.1 by 0.9 over 16 units, in numbers whose last digit may be one of them."""

    observation_space = spaces.Discrete(1)

    def __init__(self, dtype, low, noise=0.002):
        self.action_space, self.low, self.noise = spaces.Box(low, low + 16, (1,), dtype), low, noise
        self.rng, self.true = np.random.default_rng(0), []

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        amount = (float(action[0]) - self.low) / 16
        self.true.append(0.1 + 0.9 * amount)
        return 0, amount, False, False, {"cost": self.true[-1] + self.noise * self.rng.choice([-1, 1])}


def play_coarse(env, noise, episodes, features=None):
    low = env.low
    told = TOLD | {"safe_action": np.array([low]), "baseline_cost": 0.1, "gamma_norm": 3.0, "noise": noise}
    told |= {"features": features or (lambda s, a: np.array([0.7, 0.7 * (float(a[0]) - low) / 16]))}
    learned_with(env, horizon=1, episodes=episodes, compare=0, progress=False, watch=False, **told)


@pytest.mark.parametrize("features", [None, FunctionFeatures(lambda s: [0.7], dimension=1, bound=0.7)])
@pytest.mark.parametrize("low", [0.0, 64.0, 160.0])
def test_without_noise_the_last_digit_of_an_action_counts(low, features):
    """σ = 1e-8 is less than single precision rounds away: costs of other lengths led over τ, by up to 3e-6."""
    env = Coarse(np.float32, low, noise=0.0)
    play_coarse(env, 1e-8, 40, features)
    assert 0.49 < max(env.true) <= 0.5


@pytest.mark.parametrize(
    ("dtype", "low"), [(np.float16, 1000.0), (np.float32, 2.0**26), (np.float32, 0.0), (float, 2.0**26)]
)
def test_what_is_rounded_counts_as_what_was_played(dtype, low):
    """Actions are rounded toward a_0. Counted as costs of the point that was certified, theirs led to 0.52 and 1.0."""
    env = Coarse(dtype, low)
    play_coarse(env, 0.002, 600)
    assert max(env.true) <= 0.5
    assert max(env.true) > 0.45 or np.spacing(dtype(low)) > 1.0, "of rays of two points nothing can be learned"


class Scaling(gymnasium.Env):
    """Costs 0.1 + 0.9 x u at the amount u, x being drawn for every step; `writes` is done to each action afterwards."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float64)

    def __init__(self, writes=lambda action: None, dtype=np.float64):
        self.action_space = spaces.Box(0.0, 1.0, (1,), dtype)
        self.writes, self.true, self.rng = writes, [], np.random.default_rng(1)

    def drawn(self):
        self.x = self.rng.uniform(0.1, 1.0)
        return np.array([self.x])

    def reset(self, *, seed=None, options=None):
        return self.drawn(), {}

    def step(self, action):
        amount = float(action[0])
        self.true.append(0.1 + 0.9 * self.x * amount)
        cost = self.true[-1] + 0.05 * self.rng.choice([-1, 1])
        self.writes(action)
        return self.drawn(), amount, False, False, {"cost": cost}


SCALED = {
    "features": lambda x, a: np.array([1.0, x[0] * a[0]]),
    "feature_norm": 1.5,
    "safe_action": [0.0],
    "targets": [[1.0]],
    "threshold": 0.4,
    "noise": 0.05,
    "baseline_cost": 0.1,
    "gamma_norm": 2.0,
    "horizon": 3,
    "episodes": 150,
    "stationary": True,
    "compare": 2,
    "watch": False,
    "progress": False,
}


def larger(action):
    action *= 1.4
    np.clip(action, 0.0, 1.0, out=action)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_counts_is_what_was_played_whatever_the_environment_makes_of_the_action(dtype):
    """It scales and clips the array that it was given. Costs counted at that length led to 0.53."""
    env = Scaling(larger, dtype)
    learned_with(env, **SCALED)
    assert 0.35 < max(env.true) <= 0.4 + 1e-12


def test_in_a_loop_of_ones_own_an_action_that_is_written_into_is_an_error():
    told = {name: SCALED[name] for name in SCALED if name not in {"episodes", "stationary", "compare", "watch"}}
    env = Scaling(larger)
    bridge = bridged_with(env, **{name: told[name] for name in told if name != "progress"})
    decision = SlucbQvi(bridge.problem).act(0, bridge.start(0))
    action = bridge.env_action(decision)
    with pytest.raises(ValueError, match="read-only"):
        env.step(action)
    np.testing.assert_array_equal(
        bridge.transition(decision, unpack(env.step(action.copy())), action).feature, decision.feature
    )


def writes_into_what_follows(state, action, following, info):
    following *= 0.1
    state[:] = action[:] = 0.0
    return info["cost"]


def writes_into_the_outcome(decision, outcome):
    outcome.next_state[:] *= 0.1


@pytest.mark.parametrize("option", [{"cost": writes_into_what_follows}, {"on_step": writes_into_the_outcome}])
def test_who_is_shown_a_state_may_write_into_it(option):
    """The next state, divided by ten, is one in which ten times as much would be safe: played so, up to 0.8."""
    env = Scaling()
    learned_with(env, **SCALED | option)
    assert 0.35 < max(env.true) <= 0.4 + 1e-12


@dataclass
class Plain:
    x: float


class Pair(NamedTuple):
    x: np.ndarray


class Falling(Scaling):
    """x falls in each episode, and is written into the one observation that there is."""

    def __init__(self, observation):
        super().__init__()
        self.observation = observation

    def reset(self, *, seed=None, options=None):
        self.falls = iter([1.0, 0.4, 0.1, 0.05])
        return super().reset()

    def drawn(self):
        self.x = next(self.falls)
        if isinstance(self.observation, Pair):
            self.observation.x[0] = self.x
        else:
            self.observation.x = self.x
        return self.observation


@pytest.mark.parametrize("observation", [Plain(0.0), Pair(np.zeros(1)), SimpleNamespace(x=0.0)])
def test_what_an_environment_writes_into_its_last_observation_is_not_what_was_observed(observation):
    """The cost of a step, by a function of the observation, was that of the next one: 755 of 1200 steps were over τ."""
    noise, env = np.random.default_rng(2), Falling(observation)

    def cost(state, action, following, info):
        return 0.1 + 0.9 * float(np.ravel(state.x)[0]) * action[0] + 0.05 * noise.choice([-1, 1])

    told = SCALED | {"features": lambda s, a: np.array([1.0, np.ravel(s.x)[0] * a[0]]), "baseline_cost": None}
    learned_with(env, cost=cost, key=lambda s: float(np.ravel(s.x)[0]), **told)
    assert 0.3 < max(env.true) <= 0.4 + 1e-12


def test_an_observation_that_cannot_be_copied_is_refused():
    class Once:
        def __deepcopy__(self, memo):
            raise TypeError("no second one")

    with pytest.raises(InputError, match=r"cannot be copied \(no second one\)"):
        bridged_with(
            Falling(Once()), **{name: SCALED[name] for name in ("features", "safe_action", "threshold", "horizon")}
        )


def test_features_that_write_into_the_state_are_refused():
    """Asked twice about a state they answer for two: 25 of 600 steps were over the limit, by up to 0.08."""

    def halved(x):
        x *= 0.5
        return [1.0, 2.0 * x[0]]

    features = FunctionFeatures(halved, dimension=2, bound=2.0)
    with pytest.raises(InputError, match="writes into what it is given"):
        learned_with(Scaling(), **SCALED | {"features": features, "config": SlucbConfig(backup="tables")})
