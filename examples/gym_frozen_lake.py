"""Gymnasium's FrozenLake-v1: learn to cross while each step's *expected* risk of a hole stays under 25 %.

Tabular features φ(s, a) = P(· | s, a): how one slips is known, where the holes are is not. A fall is the cost, and it
is seen only as fallen or not, so each bound is a likelihood ratio (`noise=Bounded()`). The cost is exactly linear,
with γ* = 1 at the holes. What leads into unknown cells is untested, so a finite set would stay with a_0; mixtures
(RSLUCB-QVI) try it with a small probability. Each bound is on the expected risk over that coin: falls do happen, but no
step risks more than τ.
"""

import gymnasium
import numpy as np

from tether import Bounded, Bridge, Constraint, Run, learn

env = gymnasium.make("FrozenLake-v1", success_rate=0.8)
law = np.zeros((16, 4, 16))
for state, row in env.unwrapped.P.items():
    for action, outcomes in row.items():
        for probability, landing, *_ in outcomes:
            law[state, action, landing] += probability
HOLES = np.array([5, 7, 11, 12])
risk = law[:, :, HOLES].sum(axis=2)
PREFERENCE = 1e-6 * np.array([1, 3, 2, 0])  # among the least risky moves: up, then left; it never arrives
safe = (risk + PREFERENCE).argmin(axis=1)

lake = Bridge(
    env,
    features=lambda state, action: law[state, action],
    safe_action=lambda state: int(safe[state]),
    constraints=Constraint(
        threshold=0.25,
        noise=Bounded(),
        safe_cost=lambda step, state: risk[state, safe[state]],
        gamma_norm=2.0,
        cost=lambda state, action, landing, info: float(landing in HOLES),
    ),
)  # the environment's own horizon: 100 steps
exact = []
result = learn(
    lake,
    episodes=200,
    limit_on="average over draws",
    stationary=True,
    run=Run(on_step=lambda decision, outcome: exact.append(decision.mean_feature[HOLES].sum())),
)
print(f"{result.summary()}\narrives: {result.returns[-50:].mean():.0%} of the last 50 episodes")
print(f"largest true expected risk of a step: {max(exact):.3f}, threshold {lake.problem.threshold[0]}")
assert max(exact) <= lake.problem.threshold[0]
assert result.comparison.interval[0] > 0.1  # paired with the safe action, which never arrives
