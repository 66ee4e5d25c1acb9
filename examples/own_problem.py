"""Bring your own problem: price discounts with a complaint rate that must stay under 3 %.

A state is a customer segment (a string), a feature is an intercept and how far each of two levers is pulled, and the
safe action is to push neither; its cost is known per segment. H = 1 makes this the safe contextual bandit.
"""

import numpy as np

from tether import Constraint, Problem, SlucbQvi, StarActions

BASE = {"new": 0.010, "loyal": 0.004}  # complaint rate when nothing is pushed
SCALE = 0.5  # keeps every feature inside the unit ball
LEVERS = [(0.8, 0.0), (0.0, 0.8), (0.6, 0.6)]


def actions(segment: str) -> StarActions:
    """Rays from "push nothing" toward three ways of pushing; the length is how hard."""
    kind = np.array([segment == "new", segment == "loyal"], dtype=float)
    safe = SCALE * np.array([*kind, 0.0, 0.0])
    return StarActions(safe, np.array([SCALE * np.array([*kind, *lever]) for lever in LEVERS]))


problem = Problem(
    horizon=1,
    constraints=Constraint(threshold=0.03, noise=0.02, safe_cost=lambda step, segment: BASE[segment], gamma_norm=0.1),
    dimension=4,
    actions=actions,
)
true_cost = np.array([0.010, 0.004, 0.015, 0.030]) / SCALE
true_reward = np.array([0.2, 0.3, 0.3, 0.5]) / SCALE
rng = np.random.default_rng(0)
agent = SlucbQvi(problem)
earned, worst = [], -np.inf
for _ in range(3000):
    segment = str(rng.choice(["new", "loyal"]))
    agent.plan()
    decision = agent.act(0, segment)
    worst = max(worst, float(true_cost @ decision.feature))
    earned.append(float(true_reward @ decision.feature))
    agent.observe(decision.outcome(reward=earned[-1], cost=float(true_cost @ decision.feature + rng.normal(0, 0.02))))

print(f"reward, first 100: {np.mean(earned[:100]):.3f}; last 100: {np.mean(earned[-100:]):.3f}")
print(f"largest true complaint rate ever: {worst:.4f}, threshold {problem.threshold[0]}")
assert worst <= problem.threshold[0]
