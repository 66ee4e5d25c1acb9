"""Gymnasium's Taxi-v4: the same fare every day, while the expected noise complaints of each move stay under 0.3.

Allowed moves come from info["action_mask"], so action sets differ between states. Tabular features: the one-hot of the
block and phase (empty, passenger inside, delivered) that an action leads to. Which blocks complain is learned; one on
the direct way does. The safe action drives up and down in the quiet rows, and earns nothing.
"""

import gymnasium
import numpy as np

from tether import Bridge, Constraint, Mask, Run, learn

FARE = 415  # reset seed: the taxi at (3, 4), passenger at R, destination B
COMPLAINTS = np.full(51, 0.1)
COMPLAINTS[[13, 38]], COMPLAINTS[[11, 36]] = 0.6, 0.25  # blocks (2, 3) and (2, 1), empty or not
rng = np.random.default_rng(1)


class SameFare(gymnasium.Wrapper):
    """Every episode begins alike."""

    def reset(self, *, seed=None, options=None):  # noqa: D102
        return self.env.reset(seed=FARE, options=options)


taxi = (env := SameFare(gymnasium.make("Taxi-v4"))).unwrapped


def leads_to(state: int, action: int) -> int:
    ((_, following, _, delivered),) = taxi.P[state][action]
    row, column, passenger, _ = taxi.decode(following)
    return 50 if delivered else 25 * (passenger == 4) + 5 * row + column


def up_and_down(state: int) -> int:
    return (0, 1, 1, 0, 1)[taxi.decode(state)[0]]  # 0 is south, 1 is north: row 2 is only ever left


fare = Bridge(
    env,
    features=lambda state, action: np.eye(51)[leads_to(state, action)],
    safe_action=up_and_down,
    actions=Mask("action_mask"),
    constraints=Constraint(
        threshold=0.3,
        noise=0.05,
        safe_cost=lambda step, state: COMPLAINTS[leads_to(state, up_and_down(state))],
        gamma_norm=3.0,
        cost=lambda state, action, following, info: COMPLAINTS[leads_to(state, action)] + rng.normal(0.0, 0.05),
    ),
    reward_range=(-1.0, 20.0),
    horizon=40,
)
exact = []
look = lambda decision, outcome: exact.append(decision.mean_feature @ COMPLAINTS)  # noqa: E731
result = learn(fare, episodes=200, limit_on="average over draws", stationary=True, run=Run(on_step=look))
print(f"{result.summary()}\nlast 50 episodes: {result.returns[-50:].mean():.1f}")
print(f"largest true expected complaints of a move: {max(exact):.3f}, threshold {fare.problem.threshold[0]}")
assert max(exact) <= fare.problem.threshold[0]
assert result.comparison.interval[0] > 20.0  # paired with the safe action
