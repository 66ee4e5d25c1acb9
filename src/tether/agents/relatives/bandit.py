"""What the bandit rows share: rays from a free origin, one ridge regression of rewards and costs, and the books of an
agent. A row adds its radius and its rule.

A rule is written for arrays whose last axis is the N rays, so that the same lines choose for one bandit, (N,), and for
B bandits that are played side by side, (B, N): thirty trials of a published figure take seconds instead of an hour.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import asdict
from math import log, sqrt
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tether.agents.agent import check_decision, check_step, checked_costs, checked_feature, checked_reward
from tether.agents.outcome_order import CostOutcome, OutcomeOrder
from tether.agents.relatives import RelativeConfig, Row
from tether.errors import InputError, StateFileError
from tether.files import written_whole
from tether.problem.problem import Problem
from tether.records import Array, CostBound, Decision, Origin, Radius, State, Transition

DOWN = 1.0 - 1e-15
"""Lengths are cut by so much, that rounding never lifts a bound over τ."""


class Rays(NamedTuple):
    """What a rule sees in one round."""

    ends: Array  # u_i (..., N, d)
    reward: Array  # ⟨θ̂, u_i⟩ (..., N)
    cost: Array  # ⟨ĝ, u_i⟩ (..., N)
    width: Array  # ‖u_i‖ in A^{-1} (..., N)
    threshold: Array  # τ (..., 1)
    log_det: Array  # log det(A/λ) (..., 1)
    round: int  # t = 0, 1, ...
    inverse: Array  # A^{-1} (..., d, d)
    normal: Array  # standard normal numbers of this round, for those who draw (..., d)


class Pick(NamedTuple):
    """A ray, how far along it, what bounds its cost, and the score that won; the origin has length 0. Each (...,)."""

    ray: Any
    length: Any
    bound: Any
    score: Any


class Sums:
    """A = λI + Σxxᵀ by its inverse, Σrx and Σzx; of one bandit, or of those along the leading axes `shape`."""

    def __init__(self, dimension: int, ridge: float, shape: tuple[int, ...] = ()) -> None:
        self.inverse = np.tile(np.eye(dimension) / ridge, (*shape, 1, 1))
        self.moments = np.zeros((*shape, dimension, 2))
        self.log_det = np.zeros((*shape, 1))
        self.rounds = 0

    def add(self, x: Array, outcomes: Array) -> None:
        """One round: what was played (..., d), its reward and its cost (..., 2). Sherman and Morrison's update."""
        along = np.matmul(self.inverse, x[..., None])[..., 0]
        gain = 1.0 + (x * along).sum(axis=-1, keepdims=True)
        self.inverse -= along[..., :, None] * (along / gain)[..., None, :]
        self.moments += x[..., :, None] * outcomes[..., None, :]
        self.log_det += np.log(gain)
        self.rounds += 1

    def rays(self, ends: Array, threshold: Array, normal: Array) -> Rays:
        """Estimates and widths of every ray."""
        whitened = ends @ self.inverse
        estimates = whitened @ self.moments
        width = np.sqrt((whitened * ends).sum(axis=-1))
        reward, cost = estimates[..., 0], estimates[..., 1]
        return Rays(ends, reward, cost, width, threshold, self.log_det, self.rounds, self.inverse, normal)


def length_under(bound: Array, threshold: Array) -> Array:
    """min(1, τ/bound), and 1 where the bound is negative: how far along a ray with this bound at its end τ reaches."""
    room = DOWN * threshold
    length: Array = room / np.maximum(bound, room)
    return length


def at(values: Array, ray: Any) -> Any:
    """The entry of the chosen ray: (..., N) -> (...,)."""
    if values.ndim == 1:
        return values[ray]
    return np.take_along_axis(values, np.asarray(ray)[..., None], axis=-1)[..., 0]


def best_of(lengths: Array, bounds: Array, scores: Array) -> Pick:
    """The ray with the highest score at its length; the origin, worth 0, if all are negative."""
    ray = scores.argmax(axis=-1)
    score, length = at(scores, ray), at(lengths, ray)
    length = np.where(score >= 0.0, length, 0.0)
    return Pick(ray, length, length * at(bounds, ray), np.maximum(score, 0.0))


def certified(pick: Pick, threshold: Array) -> Pick:
    """The pick where its bound is a number under τ; else the origin, which costs 0. NaN and overflow bound nothing."""
    holds = (np.asarray(pick.length) > 0.0) & (pick.bound <= threshold[..., 0])
    return pick._replace(length=np.where(holds, pick.length, 0.0), bound=np.where(holds, pick.bound, 0.0))


class RayBandit(ABC):
    """A bandit agent: `radius` and `choose` are its method's, the rest is here. H = 1, one constraint, origin safe."""

    kind: ClassVar[str]
    row: ClassVar[Row]
    config_type: ClassVar[type[RelativeConfig]] = RelativeConfig
    limit: ClassVar[str] = "expected"
    draws: ClassVar[bool] = False
    buffers: ClassVar[tuple[str, ...]] = ("_last",)

    def __init__(self, problem: Problem, config: Any = None, *, seed: int = 0) -> None:
        self.problem, self.seed = problem, int(seed)
        self.config: Any = config or self.config_type()
        if (
            problem.horizon != 1
            or len(problem.constraints) != 1
            or (problem.realised is not None) != (self.limit == "realised")
        ):
            raise InputError(
                f"{self.row.title} is a bandit rule for one constraint on the {self.limit} cost, but this problem has "
                f"H = {problem.horizon}, {len(problem.constraints)} constraint(s)"
                f"{'' if problem.realised is None else ' and a limit on the realised cost'}."
            )
        self.noise = max(problem.noise[0], problem.reward_noise)  # σ of rewards and costs alike
        self.norm = problem.gamma_norm[0]  # S, a bound on ‖θ*‖ and ‖γ*‖
        self.dimension, self.confidence = problem.dimension, problem.confidence
        self.sums = Sums(problem.dimension, self.ridge)
        self.threshold = np.array([problem.threshold[0]])
        self.order = OutcomeOrder(1)
        self.decisions = 0
        self._last: tuple[int, State, Pick, float] | None = None

    # The method's own

    @property
    def ridge(self) -> float:
        """λ."""
        return 1.0

    def radius(self, rays: Rays) -> Any:
        """β_t of the safe set, (..., 1) or a number: the classical one, half of δ being for rewards."""
        return self.classical(rays.round, self.confidence / 2.0)

    @abstractmethod
    def choose(self, rays: Rays) -> Pick:
        """The rule."""

    def classical(self, round: int, confidence: float, noise: float | None = None) -> float:
        """The closed form of Abbasi-Yadkori et al. (2011): σ √(d log((1 + tL²/λ)/δ)) + √λ S, times the scale."""
        grown = 1.0 + round * self.problem.feature_norm**2 / self.ridge
        root = (self.noise if noise is None else noise) * sqrt(self.dimension * log(grown / confidence))
        return float(self.config.scale * (root + sqrt(self.ridge) * self.norm))

    @property
    def origin(self) -> Origin:
        """Whose radius it is."""
        return "theorem" if self.config.scale == 1.0 else "tuned"

    # The agent

    def plan(self) -> None:
        """Nothing is prepared: a bandit decides when it is asked."""
        return

    def _pick(self, state: State) -> tuple[Pick, float]:
        """The rule's answer on everything observed so far, and its radius; asking again is free."""
        if self._last is None or self._last[0] != self.sums.rounds or self._last[1] != state:
            actions = self.problem.actions(state)
            if not actions.is_star or actions.phi_0.any():
                raise InputError(
                    f"{self.row.title} plays rays from a safe origin, but in state {state!r} the safe action is "
                    f"{'not the centre of a star' if not actions.is_star else 'not at φ = 0'}."
                )
            rays = self._rays(actions.endpoints)
            self._last = self.sums.rounds, state, self._chosen(rays), float(np.squeeze(self.radius(rays)))
        return self._last[2:]

    def planned_features(self, states: Iterable[State]) -> Array:
        """What is played in each state, (1, S, d): the rule on all of them at once."""
        listed = list(states)
        if len(listed) == 1:
            return self._feature(listed[0])[None, None]
        ends = np.array([self.problem.actions(state).endpoints for state in listed])  # (S, N, d)
        pick = self._chosen(self._rays(ends))
        played: Array = pick.length[:, None] * ends[np.arange(len(listed)), pick.ray]
        return played[None]

    def _chosen(self, rays: Rays) -> Pick:
        """The rule's answer where a number under τ bounds it, else the origin."""
        try:
            pick = self.choose(rays)
        except np.linalg.LinAlgError:  # A is no Gram matrix any more: there is nothing to draw from
            nothing = np.zeros(rays.cost.shape[:-1])
            pick = Pick(nothing.astype(np.int64), nothing, nothing, nothing)
        return certified(pick, self.threshold)

    def _rays(self, ends: Array) -> Rays:
        """What the rule sees of rays (..., N, d) now; all states share the draw of a round."""
        draw = np.random.default_rng([self.seed, self.sums.rounds]) if self.draws else None
        return self.sums.rays(
            ends, self.threshold, np.zeros(0) if draw is None else draw.standard_normal(self.dimension)
        )

    def _feature(self, state: State) -> Array:
        pick, _ = self._pick(state)
        feature: Array = float(pick.length) * self.problem.actions(state).endpoints[int(pick.ray)]
        return feature

    def peek(self, step: int, state: State) -> Decision:
        """What `act` would answer. Nothing is expected to come of it."""
        check_step(step, 1)
        (pick, beta), actions = self._pick(state), self.problem.actions(state)
        length = float(pick.length)
        ray = int(pick.ray) if length > 0.0 else -1
        radius = Radius(beta, self.origin)
        return Decision(
            id=self.decisions,
            step=step,
            state=state,
            action=actions.action(ray, length),
            feature=actions.phi_0 if ray < 0 else self._feature(state),
            is_baseline=ray < 0,
            reason="best" if ray >= 0 else "baseline-best",
            evidence=(
                CostBound(
                    bound=float(pick.bound),
                    threshold=self.problem.threshold[0],
                    radius=radius,
                    baseline_cost=0.0,
                    bounds="realised cost" if self.limit == "realised" else "cost",
                    assumptions=() if self.problem.realised is None else (self.problem.realised.sentence(),),
                ),
            ),
            value_radius=radius,
            score=float(pick.score),
            data_version=self.sums.rounds,
        )

    def act(self, step: int, state: State) -> Decision:
        """The rule's choice; its outcome is expected."""
        decision = self.peek(step, state)
        self.order.expect(decision.id, 0, decision.feature)
        self.decisions += 1
        return decision

    def observe(self, transition: Transition) -> None:
        """Learn from one outcome, once all decisions before it have theirs. Everything is checked first."""
        check_step(transition.step, 1)
        check_decision(transition, self.order)
        reward = checked_reward(transition.reward)
        costs = checked_costs(transition.cost, self.problem, needed=False)
        if costs is None:
            raise InputError(f"{self.row.title} needs a cost with every outcome, but got None.")
        feature = checked_feature(transition.feature, self.problem)
        outcome = CostOutcome(0, feature, costs, reward)
        id = transition.decision_id
        for due in [outcome] if id is None else self.order.settle(id, outcome):
            if due.cost is not None:
                self.learn(due.feature, np.array([due.reward, due.cost[0]]))

    def learn(self, feature: Array, outcomes: Array) -> None:
        """Add what was played (d,), its reward and its cost (2,), to the sums."""
        self.sums.add(feature, outcomes)

    def save(self, path: Path) -> None:
        """The sums as JSON, whose numbers are exact."""
        sums = {name: value if isinstance(value, int) else value.tolist() for name, value in vars(self.sums).items()}
        state = {"kind": self.kind, "config": asdict(self.config), "seed": self.seed, "decisions": self.decisions}
        with written_whole(Path(path)) as file:
            file.write(json.dumps({**state, "sums": sums, "order": self.order.to_json()}).encode())

    @classmethod
    def restore(cls, path: Path, problem: Problem) -> Self:
        """The agent as it was saved, for the same problem."""
        try:
            saved = json.loads(Path(path).read_bytes())
            if saved["kind"] != cls.kind:
                raise InputError(f"it is a {saved['kind']}, not a {cls.kind}")
            agent = cls(problem, cls.config_type(**saved["config"]), seed=saved["seed"])
            for name, value in saved["sums"].items():
                setattr(agent.sums, name, value if isinstance(value, int) else np.array(value))
            agent.order.take_json(saved["order"], problem.dimension, len(problem.constraints))
            agent.decisions = saved["decisions"]
        except (OSError, LookupError, TypeError, ValueError, InputError) as error:
            raise StateFileError(f"{path} does not fit this agent: {error}.") from error
        return agent
