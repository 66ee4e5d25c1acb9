"""Small worlds behind an advisor: problems whose truth only the tests know, and somebody who plays what is advised."""

import numpy as np

from limits import kept
from tether.live.advisor import Advisor
from tether.live.policy import Criteria
from tether.records import StarAction


def live_advisor(problem, store=None, **more):
    """An advisor that acts from the first decision on, and that looks at the log only when told or when it writes."""
    settings = {"mode": "live", "criteria": Criteria.none(), "refresh": None, **more}
    return Advisor(problem, store, **kept(**settings))


class Plant:
    """A running system: plays what is advised, and measures the cost with noise."""

    def __init__(self, gamma, *, noise=0.05, states=4, seed=1):
        self.gamma = np.asarray(gamma)  # (H, M, d)
        self.noise, self.states, self.rng = noise, states, np.random.default_rng(seed)
        self.worst = -np.inf  # largest true cost above its bound, over everything played

    def state(self):
        return int(self.rng.integers(self.states))

    def true_cost(self, step, feature):
        return self.gamma[step] @ np.asarray(feature)

    def measure(self, step, feature):
        costs = self.true_cost(step, feature)
        return tuple((costs + self.noise * self.rng.standard_normal(len(costs))).tolist())

    def reward(self, feature):
        return float(np.sum(feature) * 0.3 + feature[0])

    def play(self, advisor, steps, *, horizon=1, episode="e"):
        """`steps` decisions, each followed by its outcome; returns the decisions."""
        decisions, state = [], self.state()
        for count in range(steps):
            step = count % horizon
            decision = advisor.decide(state, step, f"{episode}{count // horizon}")
            bounds = [limit.bound for limit in decision.certificate.limits]
            self.worst = max(self.worst, float((self.true_cost(step, decision.feature) - bounds).max()))
            after = self.state()
            advisor.record(decision.id, self.reward(decision.feature), self.measure(step, decision.feature), after)
            decisions.append(decision)
            state = after
        return decisions


def another_action(problem, state, decision):
    """An action of D(s) that is not the decision's."""
    actions = problem.look_up(state).actions
    if actions.is_star:
        return StarAction((getattr(decision.action, "ray", 0) + 1) % len(actions.endpoints), 0.5)
    return (int(decision.action) + 1) % len(actions.endpoints)
