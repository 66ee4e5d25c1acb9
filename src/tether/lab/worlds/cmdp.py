"""Constrained MDPs of the literature, whose budget is one per episode: streaming, inventory, random linear ones.

Their constraint is E Σ_h c_h <= C. As a per-step problem of Tether they have τ = C/H, so that the budget is Hτ. Where
states and actions are few, φ is one-hot: coordinate k stands for one pair (s, a), and actions that do the same share
it.
"""

import numpy as np
from numpy.typing import NDArray

from tether.assumptions.safe_cost import SafeCost
from tether.lab.worlds.linear_mdp import LinearMDP
from tether.problem.constraint import Constraint
from tether.problem.problem import Problem
from tether.records import Array


def streaming(*, fast: float = 0.7, leave: float = 0.25, horizon: int = 4, share: float = 0.6) -> LinearMDP:
    """A media server: sending fast (action 0) fills the buffer and costs 1, sending slowly (a_0) costs nothing.

    A packet comes with probability `fast` or 1 − `fast`, and one is played with probability `leave`; the buffer holds
    five, and a step in which it is not empty is worth 1. `share` of all steps must be slow. Kitamura et al. (arXiv
    2502.10138) draw fast ~ U(.5, .9) and leave ~ U(.1, .4).
    """
    states = 6
    law = np.zeros((states, 2, states))
    for action, come in enumerate((fast, 1.0 - fast)):
        for s in range(states):
            law[s, action, min(s + 1, states - 1)] += (1.0 - leave) * come
            law[s, action, max(s - 1, 0)] += leave * (1.0 - come)
            law[s, action, s] += leave * come + (1.0 - leave) * (1.0 - come)
    reward, cost = np.ones((states, 2)), np.tile([1.0, 0.0], (states, 1))
    reward[0] = 0.0
    pairs = np.arange(2 * states).reshape(states, 2)
    return _tabular("streaming", pairs, (reward, cost, law), horizon, threshold=1.0 - share, safe=1)


def inventory(*, horizon: int = 7, budget: float = 3.5) -> LinearMDP:
    """A shop that orders 0, …, 5 a day, of which what fits is delivered, and sells what is asked for.

    Ordering nothing is a_0. Demand is 0, …, 5 with probability .3 .2 .2 .2 .05 .05; an order of a > 0 costs 4 + 2a,
    keeping x costs x, both in units of the largest such sum. A demand d that is met is worth 8d, in units of the
    largest expectation. Bura et al. (NeurIPS 2022), as in their code, which weighs a sale by the probability of the
    next stock, not of the demand.
    """
    demand, states = np.array([0.3, 0.2, 0.2, 0.2, 0.05, 0.05]), 6
    law, reward, cost = np.zeros((states, states, states)), np.zeros((states, states)), np.zeros((states, states))
    pairs = np.zeros((states, states), dtype=int)
    for s in range(states):
        for order in range(states):
            stock = min(s + order, states - 1)
            a = stock - s
            pairs[s, order] = s * states - s * (s - 1) // 2 + a
            cost[s, order] = (4.0 + 2.0 * a if a > 0 else 0.0) + stock
            for sold, share in enumerate(demand):
                law[s, order, max(stock - sold, 0)] += share
            reward[s, order] = sum(law[s, order, stock - sold] * 8.0 * sold for sold in range(stock + 1))
    model = (reward / reward.max(), cost / cost.max(), law)
    return _tabular("inventory", pairs, model, horizon, threshold=budget / horizon, safe=0)


def _tabular(
    name: str,
    pairs: NDArray[np.int64],
    model: tuple[Array, Array, Array],
    horizon: int,
    *,
    threshold: float,
    safe: int,
) -> LinearMDP:
    """A world with one-hot features from (r (S, A), c (S, A), P (S, A, S)); episodes start in state 0.

    `pairs` (S, A) is the coordinate of each action, `safe` the safe action of every state.
    """
    reward, cost, law = model
    states, d = len(pairs), int(pairs.max()) + 1
    theta, gamma, mu = np.zeros(d), np.zeros(d), np.zeros((d, states))
    theta[pairs], gamma[pairs], mu[pairs] = reward, cost, law
    problem = Problem.from_table(
        features=np.eye(d)[pairs],
        baseline_action=np.full(states, safe),
        constraints=Constraint(threshold=threshold, noise=0.01, safe_cost=np.tile(cost[:, safe], (horizon, 1))),
        horizon=horizon,
    )
    return LinearMDP(
        name=name,
        problem=problem,
        true_theta=np.tile(theta, (horizon, 1)),
        true_gamma=np.tile(gamma, (horizon, 1, 1)),
        true_mu=np.tile(mu, (horizon, 1, 1)),
        initial=np.eye(states)[0],
        limits="episode",
    )


def random_cmdp(
    rng: np.random.Generator,
    *,
    states: int = 100,
    actions: int = 3,
    dimension: int = 5,
    horizon: int = 4,
    share: float = 0.68,
) -> LinearMDP:
    """Features and rows of μ* ~ Dirichlet(.1), θ* and the utility's vector uniform, scaled to a largest value of 1.

    The cost is 1 − utility, and the budget leaves `share` of the largest utility that any policy earns: the linear
    instances of Kitamura et al. (arXiv 2502.10138). a_0 is the action with the most utility on average over the steps,
    which need not be under τ at each of them; their safe policy is `planning.least_costly_policy`.
    """
    features = rng.dirichlet(np.full(dimension, 0.1), size=(states, actions))
    mu = rng.dirichlet(np.full(states, 0.1), size=(horizon, dimension))
    theta, worth = rng.random((2, horizon, dimension))
    theta, worth = theta / (features @ theta.T).max(), worth / (features @ worth.T).max()
    best = np.zeros(states)
    for step in reversed(range(horizon)):
        best = (features @ (worth[step] + mu[step] @ best)).max(axis=1)
    start = int(rng.integers(states))
    gamma = 1.0 - worth  # features sum to 1, so that ⟨γ, φ⟩ = 1 − utility
    safe = (features @ worth.mean(axis=0)).argmax(axis=1)
    problem = Problem.from_table(
        features=features,
        baseline_action=safe,
        constraints=Constraint(
            threshold=1.0 - share * float(best[start]) / horizon,
            noise=0.01,
            safe_cost=SafeCost(gamma @ features[np.arange(states), safe].T, if_tight="safe action"),
            gamma_norm=float(np.linalg.norm(gamma, axis=1).max()),
        ),
        horizon=horizon,
    )
    return LinearMDP(
        name="random-cmdp",
        problem=problem,
        true_theta=theta,
        true_gamma=gamma[:, None],
        true_mu=mu,
        initial=np.eye(states)[start],
        limits="episode",
    )
