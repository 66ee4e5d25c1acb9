"""LinearMDP: a Problem together with its truth θ*, γ*, μ* (Assumption 1), and the streams that drive it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import erf, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tether.errors import AssumptionError, InputError
from tether.lab.worlds.dynamics import draw, play
from tether.problem.action_sets import ActionSet
from tether.problem.constraint import Constraint
from tether.problem.problem import Problem
from tether.records import Action, Array, Decision, StarAction, Transition

PROBABILITY_TOLERANCE = 1e-9

SAFE_TOLERANCE = 1e-9
"""Costs this far over τ count as equal to τ in audits: the rounding of a dot product, far below any bound."""


@dataclass(frozen=True, eq=False)
class Streams:
    """Randomness as an argument, one stream per role, so that a new draw in one role does not move another.

    Two algorithms with the same seed meet the same instance, the same start states and the same noise.
    """

    instance: np.random.Generator
    transitions: np.random.Generator
    noise: np.random.Generator
    agent: np.random.Generator

    @classmethod
    def from_seed(cls, seed: int, repeat: int = 0) -> "Streams":
        """Four independent generators from one number; repeats of a seed share its instance and nothing else."""
        own = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(4)]
        if repeat == 0:
            return cls(*own)
        again = [np.random.default_rng(child) for child in np.random.SeedSequence([seed, repeat]).spawn(4)]
        return cls(own[0], *again[1:])


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearMDP:
    """P_h(s'|s,a) = ⟨μ*_h(s'), φ⟩, r_h = ⟨θ*_h, φ⟩, c_h = ⟨γ*_h, φ⟩ over states 0..S-1.

    Attributes:
        name: what results and figures call it.
        problem: what the learner knows; its states are 0..S-1.
        true_theta: θ*_h, (H, d).
        true_gamma: γ*_h, one per constraint, (H, M, d).
        true_mu: μ*_h, (H, d, S); 0 in a bandit (H = 1), where nothing follows.
        initial: distribution of the first state, (S,).
        rewards: what actions pay where that is *not* linear in φ, (S, N): a deliberate misspecification.
        arrival_cost: observed costs as a function of the next state, (M, S), in place of c + Gaussian noise; their
            mean must be c.
        true_reward_noise: σ_r of the rewards that are drawn; that of the problem unless given.
        limits: what τ stands for in this world, and what its best policy is judged by: the cost of every step, or Hτ
            that of an episode. The learner's Problem is about steps in either case.
    """

    name: str
    problem: Problem
    true_theta: Array
    true_gamma: Array
    true_mu: Array
    initial: Array
    rewards: Array | None = None
    arrival_cost: Array | None = None
    true_reward_noise: float | None = None
    limits: Literal["step", "episode"] = "step"

    def __post_init__(self) -> None:
        p, count = self.problem, self.state_count
        shapes = {
            "true_theta": (p.horizon, p.dimension),
            "true_gamma": (p.horizon, len(p.constraints), p.dimension),
            "true_mu": (p.horizon, p.dimension, count),
            "initial": (count,),
        }
        for name, shape in shapes.items():
            array = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            if array.shape != shape or not np.isfinite(array).all():
                raise InputError(f"{name} must be finite with shape {shape}, but has shape {array.shape}.")
            object.__setattr__(self, name, array)
        shapes_of_sets = {(actions.is_star, actions.endpoints.shape) for actions in self._known}
        if len(shapes_of_sets) > 1:
            raise InputError(
                "a LinearMDP needs the same kind and number of actions in every state, but its states have "
                f"{sorted((('star' if star else 'finite'), shape[0]) for star, shape in shapes_of_sets)}."
            )
        _check_probabilities(self.initial, "initial")
        is_bandit = p.horizon == 1 and not self.true_mu.any()  # nothing follows, and no law was given
        for step in range(0 if is_bandit else p.horizon):
            mu = self.true_mu[step]
            _check_probabilities(self.phi_0 @ mu, f"the transition law of the safe actions at step {step}")
            _check_probabilities(self.endpoints @ mu, f"the transition law at step {step}")
        _check_gamma(self.true_gamma, p)
        if p.baseline_cost is not None:
            self._check_declared_costs()

    def _check_declared_costs(self) -> None:
        for state, known in enumerate(self._known):
            if self.ended[state]:
                continue
            true = self.true_gamma @ known.phi_0
            said = self.problem.look_up(state).baseline_cost
            if not (np.abs(true - said) <= self.problem.fact_error + 1e-9).all():
                raise AssumptionError(
                    f"Assumption 2 declares the cost of the safe action, but in state {state} the problem says "
                    f"{said.tolist()} and the world's γ* gives {true.tolist()}."
                )

    @property
    def state_count(self) -> int:
        """S."""
        if self.problem.states is None:
            raise InputError("a LinearMDP needs a problem with listed states 0..S-1.")
        return len(self.problem.states)

    @cached_property
    def _known(self) -> list[ActionSet]:
        return [self.problem.actions(state) for state in range(self.state_count)]

    @cached_property
    def _bounded(self) -> list[int]:
        return [j for j, is_bounded in enumerate(self.problem.bounded) if is_bounded]

    @cached_property
    def phi_0(self) -> Array:
        """φ(s, a_0(s)) of every state, (S, d)."""
        return np.array([actions.phi_0 for actions in self._known])

    @cached_property
    def endpoints(self) -> Array:
        """Candidate features of every state, (S, N, d)."""
        return np.array([actions.endpoints for actions in self._known])

    @cached_property
    def ended(self) -> NDArray[np.bool_]:
        """Where trajectories end, (S,)."""
        return np.array([not np.isnan(self.problem.final_reward_of(state)) for state in range(self.state_count)])

    @cached_property
    def is_star(self) -> bool:
        """Whether lengths between 0 and 1 can be played."""
        return all(actions.is_star for actions in self._known)

    @cached_property
    def noise_scale(self) -> Array:
        """σ, (M,); where rewards are noisy σ_r follows, (M + 1,)."""
        reward = self.problem.reward_noise if self.true_reward_noise is None else self.true_reward_noise
        return np.array([*self.problem.noise, reward] if reward > 0.0 else self.problem.noise)

    def reset(self, streams: Streams) -> int:
        """The first state of an episode."""
        return draw(self.initial, streams.transitions.random())

    def step(self, decision: Decision, streams: Streams) -> Transition:
        """Play a decision: reward and costs z = c + ε with their noise, and the next state."""
        normal = streams.noise.standard_normal(len(self.noise_scale))
        numbers = (normal, streams.transitions.random())
        reward, cost, following = self.play(decision.step, decision.state, decision.action, decision.feature, numbers)
        return decision.outcome(reward=reward, cost=cost, next_state=following)

    def play(
        self, step: int, state: int, action: Action, feature: Array, numbers: tuple[Array, float]
    ) -> tuple[float, float | tuple[float, ...], int]:
        """Reward, observed cost (or costs) and next state of one step, from M or M + 1 normal numbers and a uniform
        one."""
        normal, uniform = numbers
        theta, gamma, mu = self.true_theta[step], self.true_gamma[step], self.true_mu[step]
        out = np.empty(1 + len(self.problem.constraints))
        following = int(play(theta, gamma, mu, self.noise_scale, np.array(feature), normal, uniform, out))
        if self.rewards is not None and not isinstance(action, StarAction):
            out[0] = self.rewards[state, action]
        if self.problem.noise_scales and isinstance(action, StarAction):
            out[1:] = gamma @ feature + action.length * (out[1:] - gamma @ feature)
        if self.arrival_cost is not None:
            out[1:] = self.arrival_cost[:, following]
        else:
            for j in self._bounded:  # yes with probability c: the normal number as a uniform one
                out[1 + j] = float(0.5 + 0.5 * erf(normal[j] / sqrt(2.0)) < gamma[j] @ feature)
        reward, *costs = out.tolist()
        return reward, costs[0] if len(costs) == 1 else tuple(costs), following


def free_bandit(
    name: str,
    endpoints: Array,
    theta: Array,
    gamma: Array,
    limit: Constraint,
    *,
    true_reward_noise: float | None = None,
    **known: Any,
) -> LinearMDP:
    """A bandit, H = 1, where doing nothing, φ = 0, is safe and free: rays to endpoints (S, N, d), θ* and γ* (d,).

    `known` are further arguments of its Problem; all S states are as likely.
    """
    states, _, dimension = endpoints.shape
    problem = Problem.from_rays(
        phi_0=np.zeros((states, dimension)),
        endpoints=endpoints,
        constraints=replace(limit, safe_cost=0.0),
        horizon=1,
        **known,
    )
    return LinearMDP(
        name=name,
        problem=problem,
        true_theta=theta[None],
        true_gamma=gamma[None, None],
        true_mu=np.zeros((1, dimension, states)),
        initial=np.full(states, 1.0 / states),
        true_reward_noise=true_reward_noise,
    )


def _check_probabilities(table: Array, name: str) -> None:
    """Assumption 1: rows (..., S) are distributions."""
    worst = np.abs(table.sum(axis=-1) - 1.0).max()
    lowest = table.min()
    if not (worst <= PROBABILITY_TOLERANCE and lowest >= -PROBABILITY_TOLERANCE):
        raise AssumptionError(
            f"Assumption 1 needs probabilities, but {name} has a row that sums to 1 ± {worst:.3g} and an entry "
            f"{lowest:.3g}. Choose features on the simplex and rows of μ that are distributions."
        )


def _check_gamma(true_gamma: Array, problem: Problem) -> None:
    """Assumption 4: ‖γ*_h‖ <= B, on which the radius rests."""
    norms = np.linalg.norm(true_gamma, axis=2).max(axis=0)  # (M,)
    for norm, bound in zip(norms, problem.gamma_norm, strict=True):
        if not norm <= bound * (1.0 + 1e-9):
            raise AssumptionError(
                f"Assumption 4 declares ‖γ*_h‖ <= {bound:.6g}, but the world has ‖γ*_h‖ = {norm:.6g}: "
                "raise gamma_norm, or no radius computed from it is a guarantee."
            )


# MisspecifiedMDP: a world whose costs are *not* linear in the features that the learner knows. For measuring alarms.

ExtraCost = Callable[[int, int, Array, int], Array]
"""(step, state, feature (d,), episode) -> what the model leaves out of each cost, (M,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MisspecifiedMDP:
    """c_h(s, a) = ⟨γ*_h, φ⟩ + extra: the learner's Problem is `linear.problem`, and it is wrong about `extra`.

    Attributes:
        linear: the world that the learner believes in, and whose rewards and transitions are true.
        extra: what it leaves out; 0 at the safe actions, so that their declared costs stay true.
        story: what is wrong, in the world's own words.
        phases: an episode of each time between which `extra` changes.
    """

    linear: LinearMDP
    extra: ExtraCost
    story: str
    phases: tuple[int, ...] = (0,)

    @property
    def name(self) -> str:
        """What results call it."""
        return f"{self.linear.name}-twin"

    @property
    def problem(self) -> Problem:
        """What the learner knows."""
        return self.linear.problem

    def true_cost(self, step: int, state: int, feature: Array, episode: int) -> Array:
        """What an action truly costs in expectation, (M,)."""
        cost: Array = self.linear.true_gamma[step] @ feature + self.extra(step, state, feature, episode)
        return cost

    def reset(self, streams: Streams) -> int:
        """The first state of an episode."""
        return self.linear.reset(streams)

    def step(self, decision: Decision, streams: Streams, episode: int) -> Transition:
        """Play a decision: the linear world's reward, next state and noise, with the extra cost added."""
        seen = self.linear.step(decision, streams)
        extra = self.extra(decision.step, decision.state, decision.feature, episode)
        costs = tuple((np.atleast_1d(np.asarray(seen.cost, dtype=np.float64)) + extra).tolist())
        cost = costs[0] if len(costs) == 1 else costs
        return decision.outcome(reward=seen.reward, cost=cost, next_state=seen.next_state)
