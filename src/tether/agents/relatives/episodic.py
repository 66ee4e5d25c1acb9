"""What the methods with a budget per episode share: a policy as a table of probabilities, its budget, its regressions.

Their constraint is E Σ_h c_h <= Hτ: the sum over an episode, in expectation, where Tether's is one on every step. A
policy π (H, S, A) gives each step and state a distribution over A actions: the candidates of D(s), and a_0 last where
D(s) is a star, so that mixing with a_0 reaches every length of a ray. States must be listed, and costs lie in [0, 1].
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tether.agents.agent import Fact, LeastSquaresConfig, plain_rules
from tether.agents.outcome_order import CostOutcome
from tether.agents.relatives import RelativeConfig, Row
from tether.agents.rslucb import MixingAgent
from tether.errors import InputError
from tether.kernels.model import BEST, MEASURED, Plan
from tether.kernels.radius import paper_value_term
from tether.problem.problem import KnownState, Problem
from tether.records import Array, State, Transition


@dataclass(frozen=True, kw_only=True)
class EpisodicConfig(RelativeConfig, LeastSquaresConfig):
    """What all of them are told beside the Problem.

    Attributes:
        margin: ξ, how far the safe policy stays under the budget; None takes Σ_h min_s (τ − τ_h(s)), which is a lower
            bound on it whatever the dynamics are.
    """

    margin: float | None = None


class Regression(NamedTuple):
    """What was learned about one step."""

    reward: Array  # of every action (S, A): a ridge estimate, or the truth where it was told
    cost: Array  # likewise (S, A)
    width: Array  # ‖φ‖ in A_h^{-1} (S, A)
    law: Array  # ⟨φ, A_h^{-1} Σφ by next state⟩, so that its product with V is P̂V; 0 at the last step (S·A, S)


class EpisodicAgent(MixingAgent, ABC):
    """An agent that plays a table of probabilities; a subclass says which, from the sums of both regressions.

    `safe_policy` (H, S, A) is π_sf where that is not "a_0 everywhere". `told` is (θ*, γ*), each (H, d), where rewards
    and costs are known as in most of these papers; else they are estimated. Both are seen in the signature, and are
    not saved: `restore` takes them again.
    """

    row: ClassVar[Row]
    config_type = EpisodicConfig
    config: EpisodicConfig
    needs_margin: ClassVar[bool] = True
    plans_itself = True

    def __init__(
        self,
        problem: Problem,
        config: EpisodicConfig | None = None,
        *,
        seed: int = 0,
        safe_policy: ArrayLike | None = None,
        told: tuple[ArrayLike, ArrayLike] | None = None,
    ) -> None:
        settings: EpisodicConfig = (config or self.config_type()).settled(problem, mixes=self.mixes)
        self._check_fit(problem)
        rules = plain_rules(
            problem, settings, conditioning=MEASURED, cost_error=np.full(len(problem.constraints), np.inf)
        )
        rules.threshold[:] = np.inf  # no step is certified, and evidence says so
        super().__init__(problem, settings, rules, origins=("none", "theorem" if settings.scale == 1.0 else "tuned"))
        self.rng = np.random.default_rng(seed)
        self.register(problem.states or ())
        self.told = None if told is None else [np.reshape(one, (-1, problem.dimension)) for one in told]
        shape = (problem.horizon, len(self.known), self.features.shape[1])
        default = np.eye(shape[2])[[known.actions.baseline for known in self.known]]  # in a star a_0 is the last
        self.safe_policy = np.broadcast_to(default if safe_policy is None else np.asarray(safe_policy), shape).copy()
        self.starts = np.zeros(shape[1])  # episodes that were seen to start in each state
        self.margin = self._margin() if settings.margin is None else settings.margin
        if self.needs_margin and not self.margin > 0.0:
            raise InputError(
                f"{type(self).__name__} needs a safe policy that stays under the budget Hτ by a known margin ξ > 0 "
                f"(Slater's condition), but ξ = {self.margin}: declare safe_cost, or set margin."
            )

    def _check_fit(self, problem: Problem) -> None:
        if len(problem.constraints) != 1 or problem.realised is not None:
            raise InputError(f"{type(self).__name__} needs one constraint on an expected cost.")
        self._check_actions(problem)

    def _check_actions(self, problem: Problem) -> None:
        name = type(self).__name__
        if problem.states is None:
            raise InputError(f"{name} needs listed states.")
        sets = [problem.actions(state) for state in problem.states]
        if len({(each.is_star, len(each.endpoints)) for each in sets}) > 1:
            raise InputError(f"{name} needs the same kind and number of actions in every state.")
        if problem.final_reward is not None:
            raise InputError(f"{name} plans episodes of H steps: states where trajectories end are not supported.")

    def _margin(self) -> float:
        """Σ_h min_s (τ − τ_h(s)); NaN where safe costs are unknown."""
        costs = np.array([known.baseline_cost[:, 0] for known in self.known])  # (S, H)
        return float((self.problem.threshold[0] - costs.max(axis=0)).sum())

    @cached_property
    def features(self) -> Array:
        """φ of every action, (S, A, d)."""
        sets = [known.actions for known in self.known]
        ends = np.array([each.endpoints for each in sets])
        return np.concatenate([ends, [[each.phi_0] for each in sets]], axis=1) if sets[0].is_star else ends

    @property
    def budget(self) -> float:
        """Hτ."""
        return self.problem.horizon * self.problem.threshold[0]

    @property
    def initial(self) -> Array:
        """Where episodes start, as far as was seen, (S,)."""
        seen = self.starts if self.starts.any() else np.ones_like(self.starts)
        share: Array = seen / seen.sum()
        return share

    def worst_start(self, values: Array) -> Array:
        """The least value (L,) over the start states seen so far, of (S, L): a budget binds from each of them."""
        least: Array = values[self.initial > 0.0].min(axis=0)
        return least

    def theorem_bonus(self) -> float:
        """dH√log(dT/δ), T = KH: the order that these theorems give their bonuses, with their constant taken as 1."""
        p, episodes = self.problem, self.config.episodes
        if not episodes:
            raise InputError("the theorem's bonus uses log T with T = KH: set episodes=K in the configuration.")
        return paper_value_term(p.dimension, p.horizon, episodes * p.horizon, p.confidence, 1.0)

    def regressions(self) -> list[Regression]:
        """What was learned about each step."""
        return [self._regression(step) for step in range(self.problem.horizon)]

    def _regression(self, step: int) -> Regression:
        (states, actions, d), stage = self.features.shape, self.stage_of(step)
        factor = self.values.factor[stage]
        if self.told is None:
            cost = solved(self.costs.factor[stage], self.costs.moment[stage, 0])
            vectors = [solved(factor, self.values.reward_moment[stage]), cost]
        else:
            vectors = [one[step % len(one)] for one in self.told]
        whitening = np.linalg.inv(factor)
        rows = self.features.reshape(-1, d) @ whitening  # (S·A, d)
        width = np.linalg.norm(rows, axis=1).reshape(states, actions)
        law = np.zeros((states * actions, states))
        if step < self.problem.horizon - 1:
            law = rows @ (self.values.transition_moment[stage, :states] @ whitening).T
        return Regression(self.features @ vectors[0], self.features @ vectors[1], width, law)

    # Plans and decisions

    @abstractmethod
    def policy(self) -> Array:
        """π_h(a|s) of the next episode, (H, S, A)."""

    def make_plan(self) -> None:
        """The policy of the next episode into the plan, from which `act` draws."""
        policy, plan = self.policy(), self.current
        policy = np.where(np.isfinite(policy).all(axis=2, keepdims=True), policy, self.safe_policy)
        horizon, states, _ = policy.shape
        rows = int(self.tables.start[states])
        plan.mixture[:, :rows] = policy[:, :, : rows // states].reshape(horizon, rows)
        plan.reason[:, :states] = BEST
        plan.made[0] += 1
        plan.planned[0] = states

    def choose_alone(self, step: int, known: KnownState) -> Plan:
        """Refuse: a policy for the whole episode says nothing of a state that it did not plan."""
        raise InputError(f"{type(self).__name__} plans the listed states only, and {known.key!r} is none of them.")

    def planned_features(self, states: Iterable[State]) -> Array:
        """Mean features of the current plan, (H, S, d)."""
        if self.plan_version < 0:
            self.plan()
        count, rows = len(self.known), int(self.tables.start[len(self.known)])
        mixture = self.current.mixture[:, :rows].reshape(-1, count, rows // count)
        mean = np.einsum("hsa,sad->hsd", mixture, self.features[:, : rows // count])
        if self.known[0].actions.is_star:
            mean += (1.0 - mixture.sum(axis=2))[:, :, None] * self.features[:, -1]
        asked: Array = mean[:, [self.slot_of(state) for state in states]]
        return asked

    def learn(self, transition: Transition, fact: Fact | None) -> list[CostOutcome]:
        """Also count where episodes start."""
        effective = super().learn(transition, fact)
        if transition.step == 0:
            self.starts[self.slot_of(transition.state)] += 1.0
        return effective

    def extras(self) -> dict[str, Any]:
        """Also where episodes started."""
        return {**super().extras(), "starts": self.starts.tolist()}

    def take_extras(self, extras: dict[str, Any]) -> None:
        """The reverse of `extras`."""
        super().take_extras(extras)
        self.starts = np.array(extras["starts"], dtype=np.float64)


def solved(factor: Array, right: Array) -> Array:
    """A^{-1}x for A = UᵀU: (d, d), (d,) or (d, n)."""
    x: Array = np.linalg.solve(factor, np.linalg.solve(factor.T, right))
    return x


class Backup(NamedTuple):
    """Q = outside + clip(inside + P̂V, 0, limit) at one step, for n value functions at once."""

    outside: Array  # (n, S, A)
    inside: Array  # (n, S, A)
    limit: Array  # (n,)


def softmax_policies(
    model: list[Regression], backups: list[Backup], prices: Array, temperature: float, entropy: float = 0.0
) -> tuple[Array, Array]:
    """Backwards in h: π = softmax(Σ_n price_n Q_n / κ) and V_n = E_π[Q_n], with entropy·H(π) added to the first.

    For L prices at once: prices (n, L) -> V at the first step (n, S, L) and π (H, S, A, L).
    """
    count, states, actions = backups[0].outside.shape
    values = np.zeros((count, states, prices.shape[1]))
    policy = np.empty((len(model), states, actions, prices.shape[1]))
    for step in reversed(range(len(model))):
        outside, inside, limit = backups[step]
        ahead = (model[step].law @ values).reshape(count, states, actions, -1)
        q = outside[..., None] + np.clip(inside[..., None] + ahead, 0.0, limit[:, None, None, None])
        scores = (prices[:, None, None] * q).sum(axis=0)
        raised = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
        pi = policy[step] = raised / raised.sum(axis=1, keepdims=True)
        values = (pi * q).sum(axis=2)
        if entropy > 0.0:
            values[0] -= entropy * (pi * np.log(np.maximum(pi, 1e-300))).sum(axis=1)
    return values, policy


def smallest_multiplier(utility: Callable[[Array], Array], wanted: float, largest: float) -> float | None:
    """The smallest λ in [0, C_λ] with V_u(λ) >= b, to C_λ/16⁵; None if even C_λ fails.

    `utility` maps some λ (L,) to their values (L,). Sections into sixteen, five times, are as fine as the twenty
    halvings of the authors' code, and find the same λ where V_u grows with it.
    """
    low, high = 0.0, largest
    at_none, at_largest = utility(np.array([low, high]))
    if not at_largest >= wanted:
        return None
    if at_none >= wanted:  # as optimists find for long
        return low
    for _ in range(5):
        grid = np.linspace(low, high, 17)
        passing = np.flatnonzero(utility(grid[1:-1]) >= wanted)
        first = int(passing[0]) + 1 if passing.size else 16
        low, high = float(grid[first - 1]), float(grid[first])
    return high
