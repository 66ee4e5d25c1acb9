"""Gymnasium's Pendulum-v1, a Box of torques: keep it upright while the motor's expected heat per step stays under 0.6.

A direction and an amount: two rays from "no torque", left and right, and how far to go. `learn` multiplies the state
features with the directions, so a heat that grows at its own rate in each direction is in their span. Heat does
not depend on the angle here: the large weight of the constant says so, and keeps ‖γ*‖ and the radius small. Values do
depend on the angle and the speed, which the small block carries. The safe action lets it fall.
"""

import gymnasium
import numpy as np

from tether import Bridge, Constraint, Run, learn
from tether.features import Constant, Polynomial, Reading, concatenate

rng = np.random.default_rng(1)


def heat(torque: float) -> float:
    """What the learner must find out: 0.2 at rest, and more in one direction than in the other."""
    return 0.2 + 0.30 * max(torque, 0.0) + 0.45 * max(-torque, 0.0)


def angle_and_speed(observation):
    return np.arctan2(observation[1], observation[0]), observation[2]


near_upright = Polynomial(low=[-0.8, -3.0], high=[0.8, 3.0], degree=2, outside="clip")
pendulum = Bridge(
    gymnasium.make("Pendulum-v1"),
    features=concatenate(Constant(), Reading(angle_and_speed, near_upright), weights=(1.0, 0.3)),
    safe_action=[0.0],
    constraints=Constraint(
        threshold=0.6,
        noise=0.05,
        safe_cost=0.2,
        gamma_norm=2.0,
        cost=lambda observation, torque, following, info: heat(torque[0]) + rng.normal(0.0, 0.05),
    ),
    reward_range=(-2.0, 0.0),
    reset_options={"x_init": 0.2, "y_init": 0.2},
    horizon=10,
)
exact = []
result = learn(
    pendulum,
    episodes=60,
    stationary=True,
    run=Run(compare=40, on_step=lambda decision, outcome: exact.append(heat(float(pendulum.env_action(decision)[0])))),
)
print(f"{result.summary()}\nlast 20 episodes: {result.returns[-20:].mean():.2f}")
print(f"largest true heat of a step: {max(exact):.3f}, threshold {pendulum.problem.threshold[0]}")
assert max(exact) <= pendulum.problem.threshold[0]
assert result.comparison.interval[0] > 0.3  # paired with the safe action
