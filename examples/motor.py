"""An electric motor (gym-electric-motor): follow a wished current, and never let it pass 84 A either way.

    pip install gym-electric-motor

The simulator is other people's. Next current is linear in current and voltage, with coefficients that are to be found
out. The safe action only balances the voltage that the turning motor makes itself, so that the current dies away.
"""

import gym_electric_motor  # noqa: F401 - tells Gymnasium its environments
import gymnasium
import numpy as np

from tether import Bridge, Constraint, Names, Run, Targets, learn

SPEED, CURRENT, WISHED = 0, 2, 5  # in an observation, all as shares of what the motor stands: 400 rad/s, 210 A
GAINS = {"gentle": 0.15, "brisk": 0.3, "hard": 0.6}  # share of full voltage per share of current that is missing


def balance(observation):
    """The safe action: 16.5 V at 100 rad/s, of 60 V, by the motor's data sheet."""
    return np.array([1.1 * observation[SPEED]])


def targets(observation):
    """Where the rays end: three ways to push the current toward the wished one."""
    missing = observation[WISHED] - observation[CURRENT]
    return np.clip([balance(observation) + gain * missing for gain in GAINS.values()], -1.0, 1.0)


def features(observation, action):
    """What costs (the first three) and rewards are linear in: current, push, what is missing, push toward it."""
    missing, push = observation[WISHED] - observation[CURRENT], action[0] - balance(observation)[0]
    return np.array([1.0, observation[CURRENT], push, abs(missing), np.sign(missing) * push]) / np.sqrt(5.0)


def current(before, action, after, info):
    """What is limited, in ampere."""
    return 210.0 * after[CURRENT]


FORWARD = Constraint(threshold=84.0, noise=1.0, gamma_norm=1000.0, cost=current)
BACKWARD = Constraint(threshold=84.0, noise=1.0, gamma_norm=1000.0, cost=lambda *step: -current(*step))
result = learn(
    Bridge(
        gymnasium.wrappers.FlattenObservation(gymnasium.make("Cont-CC-PermExDc-v0")),
        features=features,
        safe_action=balance,
        actions=Targets(targets),
        constraints=[FORWARD, BACKWARD],
        reward_range=(-1.0, 0.0),
        horizon=30,
        names=Names(constraints=["current forward", "current backward"], cost_units=["A", "A"], actions=list(GAINS)),
    ),
    stationary=True,
    episodes=60,
    run=Run(compare=40),
)
print(result.summary())
assert result.violations == 0  # the current that is measured here is the true one
assert result.comparison.interval[0] > 0.0  # paired with the safe action
