"""Live decisions: the safe contextual bandit of own_problem.py behind an Advisor, in shadow first, then acting.

Every decision is logged before it leaves, with the bound that justifies it. At the end a second advisor replays the log
and stands exactly where the first one stood.
"""

import tempfile
from pathlib import Path

import numpy as np

from tether import Advisor, Constraint, Criteria, Guards, Problem, StarActions

BASE = {"new": 0.010, "loyal": 0.004}  # complaint rate when nothing is pushed
SCALE, LEVERS = 0.5, [(0.8, 0.0), (0.0, 0.8), (0.6, 0.6)]


def actions(segment: str) -> StarActions:
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
rng, worst, earned = np.random.default_rng(0), -np.inf, []
with tempfile.TemporaryDirectory() as folder:
    guards, criteria = Guards(reward_range=(0.0, 1.0)), Criteria(outcomes=50)
    advisor = Advisor(problem, Path(folder) / "log.db", guards=guards, criteria=criteria)
    for visit in range(500):
        if visit == 50:
            advisor.promote("guarded", by="the example", why="50 shadow outcomes, nothing unusual")
        if visit == 350:
            print(advisor.status().uplift)
            advisor.promote("live", by="the example", why="300 guarded outcomes, and a gain over a_0")
        decision = advisor.decide(str(rng.choice(["new", "loyal"])))
        x = np.array(decision.feature)
        worst, earned = max(worst, float(true_cost @ x)), [*earned, float(true_reward @ x)]
        advisor.record(decision.id, earned[-1], float(true_cost @ x) + 0.02 * rng.standard_normal())
    limit = decision.certificate.tightest
    print(f"{decision.action}: complaint rate <= {limit.bound:.4f} <= {limit.threshold} (radius: {limit.origin})")
    print(f"reward in shadow {np.mean(earned[:50]):.3f}, live {np.mean(earned[-50:]):.3f}; worst true rate {worst:.4f}")
    assert worst <= problem.threshold[0]
    before = advisor.replica.to_bytes()
    advisor.close()
    with Advisor(problem, Path(folder) / "log.db") as again:
        assert again.replica.to_bytes() == before
        print("after a restart:", again.status().mode, "mode,", again.status().outcomes, "outcomes, equal bit for bit")
