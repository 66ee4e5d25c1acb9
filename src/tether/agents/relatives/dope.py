"""DOPE: doubly optimistic and pessimistic. The LP may also choose the law, within what the counts leave open."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tether.agents.relatives import Row
from tether.agents.relatives.tabular import TabularAgent, TabularConfig
from tether.records import Array


@dataclass(frozen=True, kw_only=True)
class DopeConfig(TabularConfig):
    """Factors of β̄ in rewards and costs, and the first episodes of the safe policy: the theorem's, or numbers.

    The released inventory script has reward_bonus 0 and first_phase S³H³/(C − c_b)²; Kitamura et al. compare with
    reward_bonus = cost_bonus = log_term = 1, first_phase 0.
    """

    reward_bonus: float | Literal["theorem"] = "theorem"
    cost_bonus: float | Literal["theorem"] = "theorem"
    first_phase: float | Literal["theorem"] = "theorem"


class Dope(TabularAgent):
    """The best policy under the most favourable plausible law, with rewards raised and costs raised by uncertainty.

    Setting: tabular, E Σ_h c_h <= C in every episode, C = Hτ. Known: r, c, a safe policy π_b and its cost c_b.

    Rule: β(s, a, s') = min(√(L p̂(1 − p̂)/n) + L/n, L/√n, 1), β̄ = Σ_{s'} β, L = log(6S²HK/δ). After K_0 episodes of π_b,
    maximise Σ z (r + H²/(C − c_b) β̄) subject to Σ z (c + Hβ̄) <= C over z(h, s, a, s') >= 0 with the flow of an
    occupancy and |z − p̂ Σ_y z| <= β Σ_y z; π_b where that has no solution. K_0 = S²AH³/(C − c_b)².

    Citation: A. Bura, A. HasanzadeZonuzy, D. Kalathil, S. Shakkottai, J.-F. Chamberland, "DOPE: Doubly Optimistic and
    Pessimistic Exploration for Safe Reinforcement Learning", NeurIPS 2022. Rule read in the authors' code
    (archanabura/DOPE-DoublyOptimisticPessimisticExploration), whose inventory script leaves the reward's β̄ out.

    Deviations: r and c are means (costs with their own error) unless `told`; plans on doubling; the authors' programme
    is given the true support of P, this one is not; where z never comes the safe policy is played, not a uniform one.
    """

    kind = "dope"
    config_type = DopeConfig
    config: DopeConfig
    row: ClassVar[Row] = Row(
        title="DOPE",
        citation="Bura et al., NeurIPS 2022",
        track="episode",
        constraint="E Σ_h c_h <= Hτ in every episode",
        told="the cost c_b of the safe policy (margin = C − c_b), the number of episodes K; in the paper also r and c; "
        "one-hot features",
        source="code",
        anchor="Kitamura et al.'s streaming, 10 × 10⁴ episodes: regret 1968 ± 701 (figure: 2159 ± 745), violations "
        "0 (0.09): within 10 %, but their copy of it has no caps on β",
        deviations=(
            "rewards and costs are estimated, not known",
            "plans are made when det(A) has doubled, not every episode",
            "the programme does not know the support of P, as the authors' does",
            "the safe policy is played where the programme never comes",
        ),
    )

    def policy(self) -> Array:
        """The programme's policy, or the safe one."""
        from scipy import sparse  # loads for long
        from scipy.optimize import linprog

        p, c, states, d = self.problem, self.config, len(self.known), self.problem.dimension
        horizon, log_term = p.horizon, self.log_term(6.0 * states**2)
        first = states**2 * self.features.shape[1] * horizon**3 / self.margin**2
        if self.starts.sum() < (first if c.first_phase == "theorem" else c.first_phase):
            return self.safe_policy
        seen = [self.counts(step, log_term) for step in range(horizon)]
        widths = np.array([c.scale * self.widths(one.law, one.visits, log_term) for one in seen])  # β (H, d, S)
        total = widths.sum(axis=2)  # β̄ (H, d)
        self.current.value_radius[:] = c.scale
        reward = np.array([one.reward for one in seen])
        reward += (horizon**2 / self.margin if c.reward_bonus == "theorem" else c.reward_bonus) * total
        cost = np.array([one.cost for one in seen])
        cost += (horizon if c.cost_bonus == "theorem" else c.cost_bonus) * total
        # z(h, k, s') of all steps but the last, then z(H, k), which goes nowhere
        spread = sparse.kron(sparse.eye(d), np.ones((1, states)))  # Σ_{s'} z: (d, d·S)
        arrive = sparse.kron(np.ones((1, d)), sparse.eye(states))  # Σ_k z: (S, d·S)
        flow: list[list[object]] = [[None] * horizon for _ in range(horizon)]
        for step in range(horizon):
            flow[step][step] = self.leaves @ spread if step < horizon - 1 else sparse.csr_array(self.leaves)
            if step > 0:
                flow[step][step - 1] = -arrive
        blocks: list[object] = []
        for one, width in zip(seen[:-1], widths[:-1], strict=True):  # z_{s'} <= (p̂ + β) Σ_y z and >= (p̂ − β) Σ_y z
            above = np.eye(states) - (one.law + width)[:, :, None]
            below = (one.law - width)[:, :, None] - np.eye(states)
            blocks.append(sparse.vstack([sparse.block_diag(above), sparse.block_diag(below)]))
        blocks.append(sparse.csr_array((0, d)))
        budget = np.concatenate([np.repeat(cost[:-1].ravel(), states), cost[-1]])
        limits = sparse.vstack([sparse.csr_array(budget[None]), sparse.block_diag(blocks)], format="csr")
        upper = np.zeros(limits.shape[0])
        upper[0] = self.budget
        solution = linprog(
            -np.concatenate([np.repeat(reward[:-1].ravel(), states), reward[-1]]),
            A_ub=limits,
            b_ub=upper,
            A_eq=sparse.block_array(flow, format="csr"),
            b_eq=np.concatenate([self.initial, np.zeros((horizon - 1) * states)]),
            method="highs",
        )
        if solution.status != 0:
            return self.safe_policy
        before = solution.x[:-d].reshape(horizon - 1, d, states).sum(axis=2)
        return self.policy_of(np.concatenate([before, solution.x[None, -d:]]))

    def widths(self, law: Array, visits: Array, log_term: float) -> Array:
        """β(s, a, s') = min(√(L p̂(1 − p̂)/n) + L/n, L/√n, 1), (d, S)."""
        n = np.maximum(visits, 1.0)[:, None]
        bernstein = np.sqrt(log_term * law * (1.0 - law) / n) + log_term / n
        beta: Array = np.where(
            visits[:, None] > 0.0, np.minimum(np.minimum(bernstein, log_term / np.sqrt(n)), 1.0), 1.0
        )
        return beta


METHODS = (Dope,)
