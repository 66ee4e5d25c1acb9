"""Two constraints at once: each has its τ, its σ and its safe cost, and the certified step is the minimum over both.

Ad levers that annoy (complaints, under 3 %) and that drive people away (churn, under 1.5 %).
"""

import numpy as np

from tether import Constraint, Problem, SlucbConfig, SlucbQvi, StarActions, Transition, certified_set

LEVERS = {"video": (0.8, 0.0), "notifications": (0.0, 0.8), "both": (0.6, 0.6)}
SAFE = np.array([0.5, 0.0, 0.0])  # an intercept, then how far each lever is pulled
COMPLAINTS, CHURN = np.array([0.010, 0.06, 0.02]), np.array([0.004, 0.006, 0.026])  # what the learner must find out
REVENUE = np.array([0.4, 0.7, 0.6])
STAR = StarActions(SAFE, np.array([[0.5, *pulled] for pulled in LEVERS.values()]))


def problem(*which: int) -> Problem:
    """The problem with both constraints, or with one of them at its share of δ."""
    limits = [
        Constraint(threshold=0.03, noise=0.01, safe_cost=SAFE @ COMPLAINTS, gamma_norm=0.1),
        Constraint(threshold=0.015, noise=0.006, safe_cost=SAFE @ CHURN, gamma_norm=0.1),
    ]
    return Problem(
        horizon=1,
        dimension=3,
        actions=lambda state: STAR,
        constraints=[limits[number] for number in which],
        confidence=0.01 * len(which) / 2,
    )


rng = np.random.default_rng(0)
ridge = SlucbConfig(cost_ridge=0.01)  # the same for all three, so that they can be compared
both = SlucbQvi(problem(0, 1), ridge)
alone = [SlucbQvi(problem(0), ridge), SlucbQvi(problem(1), ridge)]  # they see the same data, each one cost of it
for _ in range(1500):
    both.plan()
    decision = both.act(0, "today")
    x = decision.feature
    z = np.array([COMPLAINTS @ x, CHURN @ x]) + rng.normal(0.0, (0.01, 0.006))
    both.observe(decision.outcome(reward=float(REVENUE @ x), cost=tuple(z)))
    for agent, cost in zip(alone, z, strict=True):
        agent.plan()
        agent.observe(Transition(0, "today", x, 0.0, float(cost)))

lengths = certified_set(both, 0, "today").lengths
each = np.array([certified_set(agent, 0, "today").lengths for agent in alone])
print("certified length        complaints  churn  both")
for name, ours, (complaints, churn) in zip(LEVERS, lengths, each.T, strict=True):
    print(f"{name:<24}{complaints:9.3f}{churn:8.3f}{ours:7.3f}")
    assert abs(ours - min(complaints, churn)) < 1e-9
for name, bound in zip(("complaints", "churn"), decision.evidence, strict=True):
    print(f"{name}: bound {bound.bound:.4f} <= τ = {bound.threshold}, safe cost {bound.baseline_cost:.4f}")
    assert bound.bound <= bound.threshold
