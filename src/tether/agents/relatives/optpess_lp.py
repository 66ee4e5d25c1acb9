"""OptPess-LP: optimistic rewards, pessimistic costs, one linear programme under the empirical law."""

from typing import ClassVar

import numpy as np

from tether.agents.relatives import Row
from tether.agents.relatives.tabular import TabularAgent
from tether.records import Array


class OptPessLp(TabularAgent):
    """The best policy of the empirical MDP whose costs, raised by their uncertainty, stay under the budget.

    Setting: tabular, E Σ_h c_h <= C in every episode, C = Hτ. Known: r, c, a safe policy π_b and its cost c_b.

    Rule: β(s, a) = √(L/n), r̃ = r + (SH + 4H·SH/(C − c_b))β, c̃ = c + SHβ. Play π_b while its c̃-value under p̂ is at
    least (C + c_b)/2, else the policy of max E_q[r̃] subject to E_q[c̃] <= C over the occupancies q of p̂; π_b if there is
    none. L = log(S³HK/δ).

    Citation: T. Liu, R. Zhou, D. Kalathil, P. R. Kumar, C. Tian, "Learning Policies with Zero or Bounded Constraint
    Violation for Constrained MDPs", NeurIPS 2021, arXiv 2106.02684. Rule as coded for comparison by Bura et al.
    (OptPessLP_In.py in archanabura/DOPE-DoublyOptimisticPessimisticExploration).

    Deviations: r and c are means (costs with their own error) unless `told`; plans on doubling; where q never comes the
    safe policy is played, not a uniform one.
    """

    kind = "optpess-lp"
    row: ClassVar[Row] = Row(
        title="OptPess-LP",
        citation="Liu et al., NeurIPS 2021, arXiv 2106.02684",
        track="episode",
        constraint="E Σ_h c_h <= Hτ in every episode",
        told="the cost c_b of the safe policy (margin = C − c_b), the number of episodes K; in the paper also r and c; "
        "one-hot features",
        source="code",
        anchor="no figure: the curves on inventory are not stored with the code that made them",
        deviations=(
            "rewards and costs are estimated, not known",
            "plans are made when det(A) has doubled, not every episode",
            "the safe policy is played where the programme never comes",
        ),
    )

    def policy(self) -> Array:
        """The programme's policy, or the safe one."""
        from scipy.optimize import linprog  # loads for long

        horizon, states = self.problem.horizon, len(self.known)
        log_term, size = self.log_term(states**3), states * horizon
        per_width = size + 4.0 * horizon * size / self.margin
        seen = [self.counts(step, log_term) for step in range(horizon)]
        visits = np.array([one.visits for one in seen])  # (H, d)
        width = self.config.scale * np.sqrt(log_term / np.maximum(visits, 1.0))
        self.current.value_radius[:] = self.config.scale
        reward = np.array([one.reward for one in seen]) + per_width * width
        cost = np.array([one.cost for one in seen]) + size * width
        if self._safe_cost([one.law for one in seen], cost) >= self.budget - self.margin / 2.0:
            return self.safe_policy
        flow = np.zeros((horizon, states, horizon, self.problem.dimension))
        for step in range(horizon):
            flow[step, :, step] = self.leaves
            if step > 0:
                flow[step, :, step - 1] = -seen[step - 1].law.T
        start = np.zeros((horizon, states))
        start[0] = self.initial
        solution = linprog(
            -reward.ravel(), cost.ravel()[None], [self.budget], flow.reshape(horizon * states, -1), start.ravel()
        )
        return self.policy_of(solution.x.reshape(horizon, -1)) if solution.status == 0 else self.safe_policy

    def _safe_cost(self, laws: list[Array], cost: Array) -> float:
        """The c̃-value of π_b under p̂."""
        following = np.zeros(len(self.known))
        for step in reversed(range(self.problem.horizon)):
            later = cost[step] + laws[step] @ following  # (d,)
            following = (self.safe_policy[step] * later[self.pairs]).sum(axis=1)
        return float(self.initial @ following)


METHODS = (OptPessLp,)
