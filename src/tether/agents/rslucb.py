"""RSLUCB-QVI: Algorithm 2. Mixtures of actions whose *expected* cost is certified; the action is drawn from them."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from tether.agents.agent import LeastSquaresAgent, check_problem
from tether.agents.slucb import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.kernels.mixture_plan import choose_mixture_alone, draw_row, make_mixture_plan
from tether.kernels.model import Plan, Tables, new_plan
from tether.kernels.plan import scratch_for, tables_of
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Bounded, Mixture, State


class MixingAgent(LeastSquaresAgent):
    """An agent whose plan holds a mixture for every step and state, from which it draws.

    `rng` draws the actions and nothing else, one number per decision; it is saved and restored with the agent.
    """

    bounds: Bounded = "expected cost"
    mixes = True
    rng: np.random.Generator

    def played(
        self, actions: ActionSet, plan: Plan, at: int, slot: int, coin: float | None
    ) -> tuple[int, float, Mixture | None]:
        """A draw from the mixture: one number, from the agent's own stream unless given, whatever the mixture."""
        if not plan.mixture.shape[1]:
            return super().played(actions, plan, at, slot, coin)
        first = int(self.tables.start[slot]) if plan is self.current else 0
        mixture = mixture_of(actions, plan.mixture[at, first : first + len(actions.endpoints)].copy())
        uniform = float(self.rng.random()) if coin is None else coin
        row = int(draw_row(mixture.probabilities, actions.baseline, uniform))
        return row, 0.0 if row < 0 else 1.0, mixture

    def planned_features(self, states: Iterable[State]) -> Array:
        """φ^θ of the current plan's mixtures, (H, S, d), for states that it covers."""
        self.register(states)
        if self.plan_version < 0 or len(self.slots) > self.current.planned[0]:
            self.make_plan()
        features = np.empty((self.problem.horizon, len(self.slots), self.problem.dimension))
        for slot, known in enumerate(self.known):
            rows = self.current.mixture[:, self.tables.start[slot] : self.tables.start[slot + 1]]
            features[:, slot] = [mixture_of(known.actions, row).mean_feature for row in rows]
        return features[:, [self.slot_of(state) for state in states]]

    def extras(self) -> dict[str, Any]:
        """The state of the stream too."""
        coin = self.rng.bit_generator.state
        if coin["bit_generator"] != "PCG64":
            raise InputError(f"only PCG64 generators can be saved, not {coin['bit_generator']}: use default_rng(seed).")
        return {**super().extras(), "coin": coin}

    def take_extras(self, extras: dict[str, Any]) -> None:
        """The reverse of `extras`."""
        super().take_extras(extras)
        self.rng.bit_generator.state = extras["coin"]


class RslucbQvi(MixingAgent, SlucbQvi):
    """Randomised SLUCB-QVI. Needs no star-convex action sets; each bound is on the expected cost over its own coin."""

    kind = "rslucb-qvi"

    def __init__(self, problem: Problem, config: SlucbConfig | None = None, *, rng: np.random.Generator) -> None:
        check_problem(problem)
        if problem.baseline_cost is None:
            raise InputError(
                "mixtures (RSLUCB-QVI) are scaled back toward the safe action, so they need that action's cost: "
                "declare safe_cost, or do without mixtures (SLUCB-QVI)."
            )
        if problem.realised is not None:
            raise InputError(
                "Realised() bounds the cost of what is played, but RSLUCB-QVI bounds an average over its draw, "
                "and a mixture under τ may hold single actions far over it. Do without mixtures (SLUCB-QVI), or "
                "without Realised()."
            )
        if not isinstance(rng, np.random.Generator):
            raise InputError(f"rng must be a numpy Generator, e.g. np.random.default_rng(7), but is {rng!r}.")
        super().__init__(problem, config)
        self.rng = rng

    def make_plan(self) -> None:
        """The first loop of Algorithm 2; what the closed forms leave open goes to an interior-point method."""
        for stage in range(self.stages):
            for slot, known in enumerate(self.known):
                for j in self._prove(self.tables, slot, stage, known, known.baseline_cost[stage], stage):
                    self.costs.facts.alarm[stage, j] = 1
        self._steer()
        make_mixture_plan(self.costs, self.values, self.rules, self.tables, self.current, self.scratch)

    def _prove(self, tables: Tables, slot: int, at: int, known: KnownState, costs: Array, stage: int) -> list[int]:
        """Let row `at` of some tables say what is proven of the bounded costs of a finite set, so that mixtures of its
        actions are planned within that. Returns the constraints whose data and facts nothing explains."""
        contradicted = []
        if self.likelihoods is not None and not known.actions.is_star and np.isnan(known.final_reward):
            rows = slice(int(tables.start[slot]), int(tables.start[slot + 1]))
            for j in self.likelihoods.bounded:
                tables.proven[at, rows, j] = self.likelihoods.caps(stage, j, known, float(costs[j]))
                if np.isinf(tables.proven[at, rows, j]).any():
                    contradicted.append(j)
        return contradicted

    def choose_alone(self, step: int, known: KnownState) -> Plan:
        """A plan for this state alone, from the newest cost data and the last plan's weights."""
        rows = len(known.actions.endpoints)
        plan = new_plan(1, 1, len(self.problem.constraints), self.problem.dimension, rows)
        plan.weights[0], plan.made[0] = self.current.weights[step], self.current.made[0]
        final = np.array([known.final_reward])
        tables = tables_of([known.actions], known.baseline_cost[None, step], final, mixes=True)
        contradicted = self._prove(tables, 0, 0, known, known.baseline_cost[step], self.stage_of(step))
        choose_mixture_alone(self.costs, self.values, self.rules, tables, plan, scratch_for(tables), step)
        plan.radius[0, contradicted] = np.nan
        return plan

    @classmethod
    def from_saved(cls, problem: Problem, config: dict[str, Any], **options: Any) -> Self:
        """A fresh agent; its stream is restored from the file."""
        return super().from_saved(problem, config, **{"rng": np.random.default_rng(0), **options})


def mixture_of(actions: ActionSet, probabilities: Array) -> Mixture:
    """The record of a mixture over the candidates (N,) of one state."""
    rest = 1.0 - float(probabilities.sum())
    safe = float(probabilities[actions.baseline]) if actions.baseline >= 0 else rest
    mean = probabilities @ actions.endpoints + (rest * actions.phi_0 if actions.is_star else 0.0)
    return Mixture(probabilities, safe, mean)
