"""RSLUCB-QVI: Algorithm 2. Mixtures of actions whose *expected* cost is certified; the action is drawn from them."""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Self

import numpy as np

from tether.agents.least_squares import Choice
from tether.agents.slucb_qvi import SlucbConfig, SlucbQvi
from tether.errors import InputError
from tether.learning.backup import Plan, new_plan
from tether.learning.conic import SOLVED, conic_mixture
from tether.learning.mixture_choice import Desk, Sheet, new_desk, new_sheet, put_on_desk
from tether.learning.randomised import draw_row, plan_alone, plan_mixtures, settle
from tether.learning.statistics import BEST, ENDED, ONLY_BASELINE
from tether.learning.tables import Tables, add_state, new_tables
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array, Mixture, State


class RslucbQvi(SlucbQvi):
    """Randomised SLUCB-QVI. Needs no star-convex action sets; each bound is on the expected cost over its own coin.

    `rng` draws the actions and nothing else, one number per decision; it is saved and restored with the agent.
    """

    kind = "rslucb-qvi"
    bounds: ClassVar[Literal["cost", "expected cost"]] = "expected cost"
    mixes = True

    def __init__(self, problem: Problem, config: SlucbConfig | None = None, *, rng: np.random.Generator) -> None:
        if problem.baseline_cost is None:
            raise InputError(
                "RSLUCB-QVI scales mixtures back toward the safe action, so it needs that action's cost: give Problem "
                "its baseline_cost, or use SLUCB-QVI, which can do without."
            )
        if not isinstance(rng, np.random.Generator):
            raise InputError(f"rng must be a numpy Generator, e.g. np.random.default_rng(7), but is {rng!r}.")
        super().__init__(problem, config)
        self.rng = rng

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        return cls(problem, SlucbConfig(**config), rng=np.random.default_rng(0), **told)

    def _extra_manifest(self) -> dict[str, Any]:
        state = self.rng.bit_generator.state
        if state["bit_generator"] != "PCG64":
            raise InputError(
                f"only PCG64 generators can be saved, not {state['bit_generator']}: use default_rng(seed)."
            )
        coin = {name: str(value) for name, value in state["state"].items()}
        return {
            **super()._extra_manifest(),
            "coin": {**coin, "uinteger": state["uinteger"], "half": state["has_uint32"]},
        }

    def _take_extra(self, manifest: dict[str, Any]) -> None:
        super()._take_extra(manifest)
        coin = manifest["coin"]
        self.rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": int(coin["state"]), "inc": int(coin["inc"])},
            "has_uint32": int(coin["half"]),
            "uinteger": int(coin["uinteger"]),
        }

    def _make_plan(self) -> None:
        """The first loop of Algorithm 2; what the closed forms leave open goes to an interior-point method."""
        self.current.made[0] += 1
        self._plan_in(self.tables, self.current, self.scratch, self.problem.horizon - 1)
        self.current.planned[0] = self.tables.slots[0]

    def _plan_in(self, tables: Tables, plan: Plan, scratch: Array, step: int) -> None:
        """Plan from `step` down to the first one."""
        sheet, desk = self._stationery(tables)
        while step >= 0:
            step, count = plan_mixtures(self.memory, self.rules, tables, plan, scratch, sheet, desk, step)
            for slot in sheet.left[:count]:
                self._solve_open(tables, plan, sheet, step, step if self._stages > 1 else 0, int(slot))
            step -= 1

    def _stationery(self, tables: Tables) -> tuple[Sheet, Desk]:
        constraints, (slots, rows) = self.problem.constraints, (tables.phi_0.shape[1], tables.features.shape[1])
        return new_sheet(constraints, slots, rows), new_desk(constraints, tables.joint.shape[2])

    def _solve_open(self, tables: Tables, plan: Plan, sheet: Sheet, step: int, stage: int, slot: int) -> None:
        """One inner problem whose certificate stayed open; a_0 stays if this leaves it open too."""
        desk = new_desk(self.problem.constraints, tables.joint.shape[2])
        n = put_on_desk(tables, sheet, stage, slot, desk)
        gain, facts = desk.gain[:n], desk.facts
        desk.x[:n], bound = conic_mixture(gain, desk.rise[:, :n], desk.joint[:n, :n], facts[1], facts[2])
        value = float(gain @ desk.x[:n])
        if bound - value <= SOLVED * float(gain.max()):
            reason, score = BEST if desk.x.any() else ONLY_BASELINE, float(sheet.score_0[slot]) + value
            settle(self.rules, tables, plan, step, slot, score, reason, n, desk)

    def planned_features(self, states: Iterable[State]) -> Array:
        """φ^θ of the current plan's mixtures, (H, S, d), for states that it covers."""
        self.register(states)
        if self._plan_version < 0 or len(self._slot_of) > self.current.planned[0]:
            self._make_plan()
        features = np.empty((self.problem.horizon, len(self._slot_of), self.problem.dimension))
        for slot, actions in enumerate(self._action_sets):
            rows = self.current.mixture[:, self.tables.start[slot] : self.tables.start[slot + 1]]
            features[:, slot] = [mixture_of(actions, row).mean_feature for row in rows]
        return features[:, [self.slot_of(state) for state in states]]

    def _planned(self, step: int, slot: int) -> Choice:
        first, last = self.tables.start[slot], self.tables.start[slot + 1]
        return self._drawn(super()._planned(step, slot), self.current.mixture[step, first:last])

    def _unplanned(self, step: int, known: KnownState) -> Choice:
        """A plan for this state alone, from the newest cost data and the last plan's weights."""
        p = self.problem
        alone = add_state(new_tables(p.dimension, p.horizon, 1, p.constraints, mixes=True), known)
        rows = len(known.actions.endpoints)
        plan = new_plan(p.horizon, alone.phi_0.shape[1], p.constraints, p.dimension, alone.features.shape[1])
        plan.weights[step], plan.made[0] = self.current.weights[step], self.current.made[0]
        scratch = np.empty((1 + p.constraints, alone.features.shape[1]))
        sheet, desk = self._stationery(alone)
        if plan_alone(self.memory, self.rules, alone, plan, scratch, sheet, desk, step):
            self._solve_open(alone, plan, sheet, step, 0, 0)
        choice = Choice(
            known.actions,
            -1,
            0.0,
            float(plan.score[step, 0]),
            int(plan.reason[step, 0]),
            plan.bound[step, 0],
            plan.radius[step],
            known.baseline_cost[step],
            self._outcomes,
        )
        return self._drawn(choice, plan.mixture[step, :rows])

    def _toss(self) -> float:
        """A number in [0, 1) for the next draw."""
        return float(self.rng.random())

    def _drawn(self, choice: Choice, probabilities: Array) -> Choice:
        """Draw the action: one number from the agent's own stream, whatever the mixture."""
        if choice.reason == ENDED:
            return choice  # nothing is played here: a refused question leaves the coin alone
        actions = choice.actions
        row = int(draw_row(probabilities, actions.baseline, self._toss()))
        mixture = mixture_of(actions, probabilities.copy())
        return choice._replace(row=row, length=0.0 if row < 0 else 1.0, mixture=mixture)


def mixture_of(actions: ActionSet, probabilities: Array) -> Mixture:
    """The record of a mixture over the candidates (N,) of one state."""
    rest = 1.0 - float(probabilities.sum())
    safe = float(probabilities[actions.baseline]) if actions.baseline >= 0 else rest
    mean = probabilities @ actions.endpoints + (rest * actions.phi_0 if actions.is_star else 0.0)
    return Mixture(probabilities, safe, mean)
