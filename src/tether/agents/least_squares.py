"""The engine behind SLUCB-QVI and LSVI-UCB: sums, tables and a plan, with different rules plugged in."""

from collections.abc import Iterable
from math import isfinite, log
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from tether.agents import state_file
from tether.errors import InputError, StateFileError
from tether.learning.backup import Plan, assess_unplanned, make_plan
from tether.learning.ridge import Ridge, new_ridge
from tether.learning.statistics import Memory, Rules, observe
from tether.learning.tables import Tables, add_state, grown, new_tables
from tether.problem.action_sets import ActionSet, check_norms
from tether.problem.problem import KnownState, Problem
from tether.records import (
    Array,
    CostBound,
    Decision,
    Origin,
    Radius,
    Reason,
    State,
    StateKey,
    Transition,
)

REASONS: tuple[Reason, ...] = get_args(Reason)


class LeastSquaresAgent:
    """Optimistic least-squares value iteration with a certified safe set. Subclasses choose the rules."""

    kind = "least-squares"

    def __init__(
        self,
        problem: Problem,
        rules: Rules,
        *,
        stages: int,
        cost_basis: Array,
        cost_ridge: float,
        value_ridge: float,
        cost_origin: Origin,
        value_origin: Origin,
        replans_rarely: bool,
        config: dict[str, Any],
    ) -> None:
        for name, ridge in (("cost_ridge", cost_ridge), ("value_ridge", value_ridge)):
            if not 0.0 < ridge < np.inf:
                raise InputError(f"{name} λ must be positive and finite, but is {ridge}: A = λI must be invertible.")
        self.problem = problem
        self.rules = rules
        self._config = config
        self._origins: tuple[Origin, Origin] = (cost_origin, value_origin)
        self.replans_rarely = replans_rarely
        self._stages = stages
        d, m = problem.dimension, problem.constraints
        self.tables: Tables = new_tables(d, problem.horizon, stages, m)
        capacity = self.tables.phi_0.shape[1]
        self.memory = Memory(
            cost=new_ridge(stages, cost_ridge, cost_basis),
            value=new_ridge(stages, value_ridge, np.eye(d)),
            cost_moment=np.zeros((stages, m, cost_basis.shape[1])),
            reward_moment=np.zeros((stages, d)),
            transition_moment=np.zeros((stages, capacity, d)),
        )
        self.current: Plan = _new_plan(problem.horizon, capacity, m, d)
        self.scratch = np.zeros((2 + m, self.tables.features.shape[1]))
        self._action_sets: list[ActionSet] = []
        self._slot_of: dict[StateKey, int] = {}
        self._open: set[int] = set()
        self._decisions = 0
        self._outcomes = 0
        self._plan_version = -1
        self.planned_log_det = np.full((2, stages), -np.inf)

    @property
    def data_version(self) -> int:
        """Number of outcomes learned from."""
        return self._outcomes

    @property
    def plans_are_due(self) -> bool:
        """Whether `plan` would do something: always, or (rare switching) once some det(A_h) has doubled."""
        if not self.replans_rarely or self._plan_version < 0:
            return True
        return bool((self._log_dets() - self.planned_log_det > log(2.0)).any())

    @property
    def alarms(self) -> list[tuple[int, StateKey]]:
        """(step, state key) wherever the declared safe cost contradicts the data, as of the current plan."""
        alarm = REASONS.index("alarm")
        keys = list(self._slot_of)
        return [(int(h), keys[s]) for h, s in np.argwhere(self.current.reason[:, : len(keys)] == alarm)]

    def plan(self) -> None:
        """The first loop of Algorithm 1: safe sets, scores and values, backwards in h, for every known state."""
        if not self.plans_are_due:
            return
        make_plan(self.memory, self.rules, self.tables, self.current, self.scratch)
        self._plan_version = self._outcomes
        self.planned_log_det[:] = self._log_dets()

    def act(self, step: int, state: State) -> Decision:
        """Line 9 of Algorithm 1, with the bound that justifies the action."""
        self._check_step(step)
        if self._plan_version < 0:
            self.plan()
        key = self.problem.key_of(state)
        slot = self._slot_of.get(key)
        plan = self.current
        if slot is not None and slot < plan.planned[0]:
            actions = self._action_sets[slot]
            row, length = int(plan.row[step, slot]), float(plan.length[step, slot])
            score, reason, bounds = plan.score[step, slot], plan.reason[step, slot], plan.bound[step, slot]
            baseline_cost = self.tables.baseline_cost[step, slot]
            radii, version = plan.radius[step], self._plan_version
        else:
            known = self._told(state)
            actions, baseline_cost, version = known.actions, known.baseline_cost[step], self._outcomes
            row, length, score, reason, bounds, radii = self._assess(step, known)
        evidence = tuple(
            CostBound(float(bounds[j]), self.rules.threshold[j], Radius(float(radii[j]), self._origins[0]), float(tau))
            for j, tau in enumerate(baseline_cost)
        )
        feature = actions.phi_0 if row < 0 else actions.phi_0 + length * (actions.endpoints[row] - actions.phi_0)
        if row >= 0 and length == 1.0:
            feature = actions.endpoints[row]
        decision = Decision(
            id=self._decisions,
            step=step,
            state=state,
            action=actions.action(row, length),
            feature=feature,
            is_baseline=row < 0,
            reason=REASONS[reason],
            evidence=evidence,
            value_radius=Radius(float(self.rules.value_radius[step]), self._origins[1]),
            score=float(score),
            data_version=version,
        )
        self._open.add(decision.id)
        self._decisions += 1
        return decision

    def observe(self, transition: Transition) -> None:
        """Add one outcome to the sums. Everything is checked before anything changes."""
        t = transition
        self._check_step(t.step)
        if t.decision_id is not None and t.decision_id not in self._open:
            raise InputError(
                f"decision {t.decision_id} has no outstanding outcome: either its outcome was recorded before, or "
                "this agent never made it. An outcome is counted exactly once."
            )
        if not isfinite(t.reward):
            raise InputError(f"reward must be finite, but is {t.reward}.")
        costs = self._checked_costs(t.cost)
        feature = np.asarray(t.feature, dtype=np.float64)
        if feature.shape != (self.problem.dimension,) or not np.isfinite(feature).all():
            raise InputError(f"feature must be {self.problem.dimension} finite numbers, but is {t.feature!r}.")
        if t.decision_id is None:
            check_norms(feature, self.problem.feature_norm, "this transition")
        last = t.step == self.problem.horizon - 1 and self._stages > 1
        next_slot = -1 if last or t.next_state is None else self._slot(t.next_state)
        stage = t.step if self._stages > 1 else 0
        self._before_learning(t, feature, costs)
        known = costs is not None
        vector = costs if costs is not None else np.zeros(self.problem.constraints)
        observe(self.memory, self.rules, stage, t.step, feature, t.reward, vector, known, next_slot)
        self._open.discard(-1 if t.decision_id is None else t.decision_id)
        self._outcomes += 1

    def note_block(self, episodes: int, plans: int) -> None:
        """Keep count after a compiled block of whole episodes changed the memory and the plan in place."""
        self._decisions += episodes * self.problem.horizon
        self._outcomes += episodes * self.problem.horizon
        if plans:
            self._plan_version = self._outcomes

    def register(self, states: Iterable[State]) -> None:
        """Include these states in every plan from now on, visited or not: for exact regret and for figures."""
        for state in states:
            self._slot(state)

    def save(self, path: Path) -> None:
        """Write everything that the future depends on, in one file without pickle; atomic on a crash."""
        manifest = {
            "kind": self.kind,
            "config": self._config,
            "problem": state_file.fingerprint(self.problem),
            "keys": [state_file.encode_key(key) for key in self._slot_of],
            "open": sorted(self._open),
            **self._extra_manifest(),
            "decisions": self._decisions,
            "outcomes": self._outcomes,
            "plan_version": self._plan_version,
        }
        state_file.write(Path(path), manifest, self._arrays())

    @classmethod
    def restore(cls, path: Path, problem: Problem, **told: Any) -> Self:
        """The agent as it was saved, for the same problem; a bad file gives a StateFileError and nothing else."""
        manifest, arrays = state_file.read(Path(path))
        if manifest.get("kind") != cls.kind:
            raise StateFileError(f"{path} holds a {manifest.get('kind')!r} agent, not a {cls.kind!r} one.")
        state_file.check_problem(Path(path), manifest["problem"], problem)
        agent = cls._from_config(problem, manifest["config"], **told)
        keys = [state_file.decode_key(key) for key in manifest["keys"]]
        agent._slot_of = {key: slot for slot, key in enumerate(keys)}
        try:
            agent._take_arrays(arrays)
        except (KeyError, ValueError, IndexError) as error:
            raise StateFileError(f"{path} does not fit this agent: {error}.") from error
        state_file.check_states(Path(path), problem, keys, agent.tables)
        agent._open = set(manifest["open"])
        agent._decisions, agent._outcomes = manifest["decisions"], manifest["outcomes"]
        agent._plan_version = manifest["plan_version"]
        agent._take_extra(manifest)
        return agent

    @classmethod
    def _from_config(cls, problem: Problem, config: dict[str, Any], **told: Any) -> Self:
        raise TypeError(f"{cls.__name__} cannot be restored")

    def _extra_manifest(self) -> dict[str, Any]:
        """What a subclass must remember beyond the arrays, as JSON."""
        return {}

    def _take_extra(self, manifest: dict[str, Any]) -> None:
        """The reverse of `_extra_manifest`."""

    def _before_learning(self, transition: Transition, feature: Array, costs: Array | None) -> None:
        """A hook for rules that watch outcomes (the appendix's warm-up)."""

    def _told(self, state: State) -> KnownState:
        """What this agent is told about a state."""
        return self.problem.look_up(state)

    def _assess(self, step: int, known: KnownState) -> tuple[int, float, float, int, Array, Array]:
        """The choice at a state that no plan covers, from the newest data, with its bounds and radii (M,)."""
        problem = self.problem
        alone = add_state(new_tables(problem.dimension, problem.horizon, 1, problem.constraints), known)
        bounds, radii = np.empty(problem.constraints), np.empty(problem.constraints)
        stage = step if self._stages > 1 else 0
        weights, plans = self.current.weights[step], int(self.current.count[0])
        choice = assess_unplanned(self.memory, self.rules, alone, step, stage, plans, weights, radii, bounds)
        return (*choice, bounds, radii)

    def _slot(self, state: State) -> int:
        """The slot of a state, made on first sight."""
        key = self.problem.key_of(state)
        slot = self._slot_of.get(key)
        if slot is None:
            known = self._told(state)
            self.tables = add_state(self.tables, known)
            self._make_room()
            slot = self._slot_of[key] = len(self._action_sets)
            self._action_sets.append(known.actions)
        return slot

    def _make_room(self) -> None:
        """Let the sums, the plan and the scratch space follow the tables' capacity."""
        slots, rows = self.tables.phi_0.shape[1], self.tables.features.shape[1]
        if rows > self.scratch.shape[1]:
            self.scratch = np.zeros((len(self.scratch), rows))
        if slots > self.memory.transition_moment.shape[1]:
            moment = grown(self.memory.transition_moment, 1, slots, 0.0)
            self.memory = self.memory._replace(transition_moment=moment)
            wide = ("values", "score", "row", "length", "bound", "reason")
            self.current = self.current._replace(
                **{name: grown(getattr(self.current, name), 1, slots, 0) for name in wide}
            )

    def _log_dets(self) -> Array:
        return np.array([self.memory.cost.log_det, self.memory.value.log_det])

    def _check_step(self, step: int) -> None:
        if not 0 <= step < self.problem.horizon:
            raise InputError(
                f"step must lie in 0..{self.problem.horizon - 1} (H = {self.problem.horizon}), but is {step}."
            )

    def _checked_costs(self, cost: float | tuple[float, ...] | None) -> Array | None:
        if cost is None:
            if self.rules.penalty:
                raise InputError("the penalised objective r − λ'c needs a cost with every outcome, but got None.")
            return None
        costs = np.atleast_1d(np.asarray(cost, dtype=np.float64))
        if costs.shape != (self.problem.constraints,) or not np.isfinite(costs).all():
            raise InputError(
                f"cost must be {self.problem.constraints} finite number(s), but is {cost!r}. "
                "If it was not measured, pass None: a missing cost never enters the regression."
            )
        return costs

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        parts: dict[str, Any] = {
            "tables": self.tables,
            "plan": self.current,
            "cost": self.memory.cost,
            "value": self.memory.value,
        }
        arrays = {
            f"{part}.{name}": array
            for part, group in parts.items()
            for name, array in group._asdict().items()
            if isinstance(array, np.ndarray)
        }
        for name in ("cost_moment", "reward_moment", "transition_moment"):
            arrays[f"memory.{name}"] = getattr(self.memory, name)
        arrays["planned_log_det"] = self.planned_log_det
        return arrays

    def _take_arrays(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """The reverse of `_arrays`, on a fresh agent."""

        def filled(group: Any, part: str) -> Any:
            names = [name for name, old in group._asdict().items() if isinstance(old, np.ndarray)]
            return group._replace(**{name: arrays[f"{part}.{name}"] for name in names})

        self.tables = filled(self.tables, "tables")
        self.current = filled(self.current, "plan")
        sums: dict[str, Any] = {n: arrays[f"memory.{n}"] for n in ("cost_moment", "reward_moment", "transition_moment")}
        cost: Ridge = filled(self.memory.cost, "cost")
        value: Ridge = filled(self.memory.value, "value")
        self.memory = Memory(cost=cost, value=value, **sums)
        self.planned_log_det = arrays["planned_log_det"]
        self.scratch = np.zeros((len(self.scratch), self.tables.features.shape[1]))
        self._action_sets = [state_file.action_set(self.tables, slot) for slot in range(len(self._slot_of))]


def _new_plan(horizon: int, slots: int, constraints: int, dimension: int) -> Plan:
    return Plan(
        weights=np.zeros((horizon, dimension)),
        gamma_hat=np.zeros((horizon, constraints, dimension)),
        radius=np.zeros((horizon, constraints)),
        values=np.zeros((horizon + 1, slots)),
        score=np.zeros((horizon, slots)),
        row=np.full((horizon, slots), -1, dtype=np.int64),
        length=np.zeros((horizon, slots)),
        bound=np.zeros((horizon, slots, constraints)),
        reason=np.zeros((horizon, slots), dtype=np.int64),
        planned=np.zeros(1, dtype=np.int64),
        count=np.zeros(1, dtype=np.int64),
    )
