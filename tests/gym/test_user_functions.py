"""Environments that reuse their arrays, and users' functions that answer one thing today and another tomorrow."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tether import Bridge, InputError, SlucbQvi, learn


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
    bridge = Bridge(env, features=lambda x, a: np.array([0.1, 0.9 * a * x[0]]), horizon=1, **TOLD)
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

    learn(
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
    bridge = Bridge(
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
    rays = Bridge(
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

    def __init__(self, dtype, low):
        self.action_space, self.low = spaces.Box(low, low + 16, (1,), dtype), low
        self.rng, self.true = np.random.default_rng(0), []

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        amount = (float(action[0]) - self.low) / 16
        self.true.append(0.1 + 0.9 * amount)
        return 0, amount, False, False, {"cost": self.true[-1] + 0.002 * self.rng.choice([-1, 1])}


@pytest.mark.parametrize(
    ("dtype", "low"), [(np.float16, 1000.0), (np.float32, 2.0**26), (np.float32, 0.0), (float, 2.0**26)]
)
def test_what_is_rounded_counts_as_what_was_played(dtype, low):
    """Actions are rounded toward a_0. Counted as costs of the point that was certified, theirs led to 0.52 and 1.0."""
    env, told = Coarse(dtype, low), TOLD | {"safe_action": np.array([low]), "baseline_cost": 0.1, "gamma_norm": 3.0}
    told |= {"features": lambda s, a: np.array([0.7, 0.7 * (float(a[0]) - low) / 16]), "noise": 0.002}

    learn(env, horizon=1, episodes=600, compare=0, progress=False, watch=False, **told)
    assert max(env.true) <= 0.5
    assert max(env.true) > 0.45 or np.spacing(dtype(low)) > 1.0, "of rays of two points nothing can be learned"
