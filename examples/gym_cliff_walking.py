"""Gymnasium's CliffWalking-v1: find the way to the goal while the expected wind of every step stays under 0.3.

Tabular features: φ(s, a) is the one-hot of the cell that a move leads to, which is known; how windy cells are is not.
Cost, reward and dynamics are linear in them, and moves into the same cell share what is learned. The shortest way is
along the edge and too windy; the best safe one is a row higher, 15 moves. The safe action, "up", never arrives.
"""

import gymnasium
import numpy as np
from gymnasium.wrappers import TransformReward

from tether import Bridge, Constraint, Run, learn

UP, MOVES = 0, ((-1, 0), (0, 1), (1, 0), (0, -1))
WIND = np.repeat([0.05, 0.15, 0.45, 1.0], 12)  # by row; the last row is the cliff
WIND[[24, 35, 36, 47]] = 0.1  # sheltered: above start and goal, start and goal themselves
rng = np.random.default_rng(1)


def leads_to(cell: int, move: int) -> int:
    row, column = cell // 12 + MOVES[move][0], cell % 12 + MOVES[move][1]
    return 12 * min(max(row, 0), 3) + min(max(column, 0), 11)


cliff = Bridge(
    TransformReward(gymnasium.make("CliffWalking-v1"), lambda reward: max(reward, -1.0)),
    features=lambda cell, move: np.eye(48)[leads_to(cell, move)],
    safe_action=UP,
    constraints=Constraint(
        threshold=0.3,
        noise=0.05,
        safe_cost=lambda step, cell: WIND[leads_to(cell, UP)],
        gamma_norm=4.0,
        cost=lambda cell, move, landing, info: WIND[leads_to(cell, move)] + rng.normal(0.0, 0.05),
    ),
    reward_range=(-1.0, 0.0),
    horizon=30,
)
exact = []
result = learn(
    cliff,
    episodes=400,
    limit_on="average over draws",
    stationary=True,
    run=Run(on_step=lambda decision, outcome: exact.append(decision.mean_feature @ WIND)),
)
print(f"{result.summary()}\nreturn of the last 20 episodes: {result.returns[-20:].mean():.1f}")
print(f"largest true expected wind of a step: {max(exact):.3f}, threshold {cliff.problem.threshold[0]}")
assert max(exact) <= cliff.problem.threshold[0]
assert result.comparison.interval[0] > 5.0  # paired with the safe action
