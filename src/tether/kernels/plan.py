"""The backward pass: lines 4-7 of Algorithm 1, with two stores of one plan.

Tables keep the candidates of every known state and their quadratic forms, up to date in O(d) per candidate: for states
that come back. A lean plan keeps Σφ by next state, and of candidates no more than KEPT_NUMBERS; it asks the problem for
others again, block by block: for states that hardly ever come back. Both, and a decision in a state that no plan
covers, call the same `choose`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.errors import InputError
from tether.kernels.bound import choose_weight, fit_costs, keep_alarms
from tether.kernels.choice import choose
from tether.kernels.compiled import Matrix, Vector, kernel, replaced, use
from tether.kernels.model import (
    ALARM,
    KNOWN,
    MEASURED,
    STATE,
    TOLD,
    Plan,
    Rules,
    Scratch,
    Tables,
    grown,
    new_plan,
    new_scratch,
)
from tether.kernels.radius import value_radius_at
from tether.kernels.ridge import (
    PENDING,
    SPANNED,
    Costs,
    Values,
    add_bias,
    add_rows,
    into_subspace,
    observe_cost,
    observe_value,
    project_rows,
    refresh_spectrum,
    solve,
    whiten,
    whiten_columns,
)
from tether.problem.action_sets import ActionSet
from tether.problem.problem import KnownState, Problem
from tether.records import Array, State, StateKey

GROWTH_LIMIT = 2.772588722239781
"""log 16: forms are rebuilt once det(A) has grown by this factor, which bounds the rounding error of the updates."""

UPDATE_LIMIT = 64
"""Forms are rebuilt after this many updates in any case."""

BLOCK_NUMBERS = 1 << 16
"""Numbers (candidates × d) that a lean plan works on at once: half a megabyte, which stays in a processor's cache."""

KEPT_NUMBERS = 1 << 23
"""Numbers (candidates × d) that are remembered of visited states, so that the problem is asked for each once: 64 MB.

A pooled plan holds as much again, and six numbers per candidate, while it is made."""


@kernel
def observe(
    costs: Costs,
    values: Values,
    rules: Rules,
    stage: int,
    feature: Vector,
    numbers: Vector,
    next_slot: int,
    work: Matrix,
) -> None:
    """Add one outcome to the sums; `numbers` (1 + M,) are its reward and costs. NaN is a cost that is missing.

    A missing cost never enters the cost regression. `work` (>= 3, d) is scratch.
    """
    reward = numbers[0]
    if rules.penalty != 0.0:
        reward -= rules.penalty * numbers[1]
    if rules.conditioning != TOLD and numbers[1] == numbers[1]:
        observe_cost(costs, stage, feature, numbers[1:], work)
        add_bias(costs, stage, rules.sample_error)
    observe_value(values, stage, feature, reward, next_slot, work)


# Quadratic forms: docs/theory.md section 3


@kernel
def refresh(costs: Costs, values: Values, rules: Rules, tables: Tables, scratch: Scratch, stage: int) -> None:
    """Bring the forms of one stage up to date: by owed rank-one updates if few, else from the factors."""
    owed_cost = costs.owed.count[stage] if rules.conditioning != TOLD else 0
    owed = max(owed_cost, values.owed.count[stage])
    growth = max(costs.owed.growth[stage], values.owed.growth[stage])
    stale = owed > PENDING or growth > GROWTH_LIMIT or tables.age[stage] + owed > UPDATE_LIMIT
    if owed > 0 and tables.joint.shape[2] > 0:
        stale = True  # products of residuals are rebuilt: updated ones lose definiteness
    if stale:
        tables.built[stage] = 0
        tables.age[stage] = 0
        costs.owed.growth[stage] = 0.0
        values.owed.growth[stage] = 0.0
    else:
        rows = tables.start[tables.built[stage]]
        for update in range(owed_cost):
            project_rows(tables.features, rows, costs.owed.direction[stage, update], scratch.projected[0])
            update_cost_forms(costs, rules, tables, scratch, stage, update)
        for update in range(values.owed.count[stage]):
            project_rows(tables.features, rows, values.owed.direction[stage, update], scratch.projected[0])
            update_value_forms(values, tables, scratch, stage, update)
        tables.age[stage] += owed
    costs.owed.count[stage] = 0
    values.owed.count[stage] = 0
    build(costs, values, rules, tables, scratch, stage, stage)


@kernel
def update_cost_forms(costs: Costs, rules: Rules, tables: Tables, scratch: Scratch, stage: int, update: int) -> None:
    """A ← A + φφᵀ in width2, cross and g00, from g·x in row 0 of `scratch.projected`.

    Conditioned: width2 −= (g·x − share g·f)² / (D − (g·f)²/g00), which subtracts a part of itself and loses no digits,
    where a difference of squares would lose them all. Not conditioned: xᵀGx −= (g·x)²/D. Both: cross −= (g·x)(g·f)/D.
    """
    scale = costs.owed.scale[stage, update]
    for slot in range(tables.built[stage]):
        along = 0.0
        g00 = tables.g00[stage, slot]
        if g00 > 0.0:
            for k in range(tables.phi_0.shape[0]):
                along += tables.phi_0[k, slot] * costs.owed.direction[stage, update, k]
        per_share = along / g00 if g00 > 0.0 and rules.conditioning == KNOWN else 0.0
        per_width = 1.0 / (scale - along * per_share)
        per_scale = along / scale
        for i in range(tables.start[slot], tables.start[slot + 1]):
            product = scratch.projected[0, i]
            residual = product - tables.cross[stage, i] * per_share
            left = tables.width2[stage, i] - residual * residual * per_width
            tables.width2[stage, i] = 0.0 if left < 0.0 else left  # a NaN stays one, and certifies nothing
            tables.cross[stage, i] -= product * per_scale
        tables.g00[stage, slot] = g00 - along * per_scale


@kernel
def update_value_forms(values: Values, tables: Tables, scratch: Scratch, stage: int, update: int) -> None:
    """A ← A + φφᵀ in vxx, v0x and v00: vxx −= (g·x)²/D and v0x −= (g·x)(g·f)/D."""
    per_scale = 1.0 / values.owed.scale[stage, update]
    for slot in range(tables.built[stage]):
        along = 0.0
        for k in range(tables.phi_0.shape[0]):
            along += tables.phi_0[k, slot] * values.owed.direction[stage, update, k]
        shared = along * per_scale
        for i in range(tables.start[slot], tables.start[slot + 1]):
            product = scratch.projected[0, i]
            tables.vxx[stage, i] -= product * product * per_scale
            tables.v0x[stage, i] -= product * shared
        tables.v00[stage, slot] -= along * shared


@kernel
def build(costs: Costs, values: Values, rules: Rules, tables: Tables, scratch: Scratch, at: int, stage: int) -> None:
    """Forms of the slots that have none yet, from the factors of `stage` into row `at`, a tile of states at a time."""
    first, slots, dimension = tables.built[at], tables.slots[0], tables.features.shape[0]
    while first < slots:
        last = first + 1
        while last < slots and tables.start[last + 1] - tables.start[first] <= scratch.tile.shape[1]:
            last += 1
        begin = tables.start[first]
        count = tables.start[last] - begin
        if rules.conditioning != TOLD:
            whiten_cost_tile(costs, tables, scratch, stage, begin, count)
            for slot in range(first, last):
                cost_forms(costs, rules, tables, scratch, at, stage, slot, begin)
        for k in range(dimension):
            for i in range(count):
                scratch.tile[k, i] = tables.features[k, begin + i]
        whiten_columns(values.factor[stage], dimension, scratch.tile, count)
        for slot in range(first, last):
            value_forms(values, tables, scratch, at, stage, slot, begin)
        first = last
    tables.built[at] = slots


@kernel
def whiten_cost_tile(costs: Costs, tables: Tables, scratch: Scratch, stage: int, begin: int, count: int) -> None:
    """U^{-T}Bᵀx of candidates begin, …, begin + count - 1, given the remembered facts, into the tile."""
    facts, dimension = costs.facts, tables.features.shape[0]
    rank = facts.rank[stage]
    if rank == dimension:
        for k in range(dimension):
            for i in range(count):
                scratch.tile[k, i] = tables.features[k, begin + i]
    else:
        direction = scratch.vectors[0]
        for j in range(rank):
            for k in range(dimension):
                direction[k] = facts.basis[stage, k, j]
            for i in range(count):
                scratch.tile[j, i] = 0.0
            add_rows(tables.features, 0, dimension, begin, direction, 1.0, scratch.tile[j, 0:count])
    if facts.count[stage] > 0:
        whiten_columns(facts.inside[stage], rank, scratch.tile, count)
    else:
        whiten_columns(costs.factor[stage], rank, scratch.tile, count)


@kernel
def whitened_safe_feature(costs: Costs, tables: Tables, scratch: Scratch, stage: int, slot: int) -> float:
    """U^{-T}Bᵀf of one state into the first vector; returns the part of ‖f‖ that the remembered facts leave open."""
    facts, dimension = costs.facts, tables.phi_0.shape[0]
    rank, inside, plain = facts.rank[stage], scratch.vectors[0], scratch.vectors[1]
    norm2, rest2 = 0.0, 0.0
    for k in range(dimension):
        plain[k] = tables.phi_0[k, slot]
        inside[k] = plain[k]
        norm2 += plain[k] * plain[k]
    if rank < dimension:
        into_subspace(facts.basis[stage], rank, plain, inside)
    for k in range(rank):
        rest2 += inside[k] * inside[k]
    if facts.count[stage] > 0:
        whiten(facts.inside[stage], inside, rank)
    else:
        whiten(costs.factor[stage], inside, rank)
    return np.sqrt(rest2 / norm2) if norm2 > 0.0 else 0.0  # nothing can be learned from the origin


@kernel
def cost_forms(
    costs: Costs, rules: Rules, tables: Tables, scratch: Scratch, at: int, stage: int, slot: int, begin: int
) -> None:
    """width2, cross and g00 of one state, whose whitened candidates are in the tile from `begin` on."""
    rank, f = costs.facts.rank[stage], scratch.vectors[0]
    first, offset = tables.start[slot], tables.start[slot] - begin
    count = tables.start[slot + 1] - first
    open_part = whitened_safe_feature(costs, tables, scratch, stage, slot)
    g00 = 0.0
    for k in range(rank):
        g00 += f[k] * f[k]
    conditioned = rules.conditioning == KNOWN
    if conditioned and not open_part > SPANNED:
        g00 = 0.0
    tables.g00[at, slot] = g00
    for i in range(count):
        tables.width2[at, first + i] = 0.0
        tables.cross[at, first + i] = 0.0
    if g00 > 0.0:
        for k in range(rank):
            part = f[k]
            for i in range(count):
                tables.cross[at, first + i] += scratch.tile[k, offset + i] * part
    for k in range(rank):
        part = f[k] / g00 if conditioned and g00 > 0.0 else 0.0
        for i in range(count):
            residual = scratch.tile[k, offset + i] - tables.cross[at, first + i] * part
            tables.width2[at, first + i] += residual * residual
            scratch.tile[k, offset + i] = residual
    if tables.joint.shape[2] > 0:
        residual_products(tables, scratch, rank, at, slot, offset)


@kernel
def residual_products(tables: Tables, scratch: Scratch, rank: int, at: int, slot: int, offset: int) -> None:
    """RᵀR of one state's residuals R, which are in the tile from `offset` on: for the widths of mixtures.

    A product of residuals, never a difference of products: only so does it stay positive semi-definite when λ is small.
    """
    first = tables.start[slot]
    count = tables.start[slot + 1] - first
    for i in range(count):
        for j in range(i + 1):
            tables.joint[at, first + i, j] = 0.0
    for k in range(rank):
        for i in range(count):
            for j in range(i + 1):
                tables.joint[at, first + i, j] += scratch.tile[k, offset + i] * scratch.tile[k, offset + j]
    for i in range(count):
        for j in range(i):
            tables.joint[at, first + j, i] = tables.joint[at, first + i, j]


@kernel
def value_forms(values: Values, tables: Tables, scratch: Scratch, at: int, stage: int, slot: int, begin: int) -> None:
    """vxx, v0x and v00 of one state, whose whitened candidates are in the tile from `begin` on."""
    dimension, f = tables.features.shape[0], scratch.vectors[0]
    first, offset = tables.start[slot], tables.start[slot] - begin
    count = tables.start[slot + 1] - first
    for k in range(dimension):
        f[k] = tables.phi_0[k, slot]
    whiten(values.factor[stage], f, dimension)
    v00 = 0.0
    for i in range(count):
        tables.vxx[at, first + i] = 0.0
        tables.v0x[at, first + i] = 0.0
    for k in range(dimension):
        part = f[k]
        v00 += part * part
        for i in range(count):
            x = scratch.tile[k, offset + i]
            tables.vxx[at, first + i] += x * x
            tables.v0x[at, first + i] += x * part
    tables.v00[at, slot] = v00


# The plan in tables


def make_plan(costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch) -> None:
    """The first loop of Algorithm 1, backwards in h, for every known state."""
    if rules.conditioning != TOLD:
        refresh_spectrum(costs)
    plan_backwards(costs, values, rules, tables, plan, scratch)


@kernel
def plan_backwards(costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch) -> None:
    """Lines 4-7 of Algorithm 1."""
    plan.made[0] += 1
    weigh_anew(costs, rules, scratch)
    again = True
    while again:  # at most once more per stage and constraint: what is latched is for every state
        again = False
        for step in range(rules.horizon - 1, -1, -1):
            stage = step if values.factor.shape[0] > 1 else 0
            prepare_step(costs, values, rules, tables, plan, scratch, step, stage)
            for slot in range(tables.slots[0]):
                choose(rules, tables, plan, scratch, step, step, stage, slot)
            if keep_alarms(costs, rules, plan, step, stage):
                again = True
    plan.planned[0] = tables.slots[0]


@kernel
def weigh_anew(costs: Costs, rules: Rules, scratch: Scratch) -> None:
    """The weight of facts with an error bar, at every stage that has many new ones."""
    if rules.conditioning == MEASURED and rules.memory != STATE:
        for stage in range(costs.log_det.shape[0]):
            choose_weight(costs, rules, scratch, stage)


@kernel
def prepare_step(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, step: int, stage: int
) -> bool:
    """Everything of one step that all states share: forms, ĝ_h, β_c, w_h, and their products with every candidate.

    Returns whether all but w_h is carried over from the step after.
    """
    slots = tables.slots[0]
    rows = tables.start[slots]
    if costs.owed.count[stage] + values.owed.count[stage] > 0 or tables.built[stage] < slots:
        refresh(costs, values, rules, tables, scratch, stage)
    carried = values.factor.shape[0] == 1 and step < rules.horizon - 1 and carry_costs(rules, plan, step)
    if not carried:
        fit_costs(costs, rules, plan, scratch, step, step, stage)
        for j in range(rules.threshold.shape[0]):
            project_rows(tables.features, rows, plan.gamma_hat[step, j], scratch.projected[1 + j])
    plan.value_radius[step] = value_radius_at(values, rules, step, stage)
    weights = plan.weights[step]
    target_moment(values, plan, stage, step, slots)
    solve(values.factor[stage], weights, weights.shape[0])
    project_rows(tables.features, rows, weights, scratch.projected[0])
    return carried


@kernel
def target_moment(values: Values, plan: Plan, stage: int, step: int, slots: int) -> None:
    """b_h = Σ rφ + Σ_{s'} V_{h+1}(s') Σ_{j : s'_j = s'} φ_j into plan.weights: its cost does not depend on k."""
    moment = plan.weights[step]
    for k in range(moment.shape[0]):
        moment[k] = values.reward_moment[stage, k]
    add_rows(values.transition_moment[stage], 0, slots, 0, plan.values[step + 1], 1.0, moment)


@kernel
def carry_costs(rules: Rules, plan: Plan, step: int) -> bool:
    """Pooled steps share one regression: ĝ and β_c of the step after, unless γ* is told and differs (False)."""
    if rules.conditioning == TOLD:
        for j in range(plan.radius.shape[1]):
            for k in range(plan.gamma_hat.shape[2]):
                if rules.known_gamma[step, j, k] != rules.known_gamma[step + 1, j, k]:
                    return False
    plan.facts[step] = plan.facts[step + 1]
    for j in range(plan.radius.shape[1]):
        plan.radius[step, j] = plan.radius[step + 1, j]
        plan.margin[step, j] = plan.margin[step + 1, j]
        for k in range(plan.gamma_hat.shape[2]):
            plan.gamma_hat[step, j, k] = plan.gamma_hat[step + 1, j, k]
    return True


# A decision in a state that no plan covers


@kernel
def choose_alone(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, step: int, stage: int
) -> None:
    """Forms and choices of all the states in `tables`, from the newest cost data; the one row of `plan` has w_h."""
    fit_costs(costs, rules, plan, scratch, step, 0, stage)
    plan.value_radius[0] = value_radius_at(values, rules, step, stage)
    choose_block(costs, values, rules, tables, plan, scratch, step, stage)


@kernel
def choose_block(
    costs: Costs, values: Values, rules: Rules, tables: Tables, plan: Plan, scratch: Scratch, step: int, stage: int
) -> None:
    """`choose_alone` where the one row of `plan` has ĝ_h and β_c too."""
    rows = tables.start[tables.slots[0]]
    build(costs, values, rules, tables, scratch, 0, stage)
    project_rows(tables.features, rows, plan.weights[0], scratch.projected[0])
    for j in range(rules.threshold.shape[0]):
        project_rows(tables.features, rows, plan.gamma_hat[0, j], scratch.projected[1 + j])
    for slot in range(tables.slots[0]):
        choose(rules, tables, plan, scratch, step, 0, 0, slot)


def tables_of(sets: Sequence[ActionSet], baseline_cost: Array, final_reward: Array, *, mixes: bool = False) -> Tables:
    """Some states at one step: baseline_cost (B, M), final_reward (B,). Nothing is built yet."""
    states, counts = len(sets), [len(actions.endpoints) for actions in sets]
    rows = sum(counts)
    return Tables(
        features=np.ascontiguousarray(np.concatenate([actions.endpoints for actions in sets]).T),
        phi_0=np.ascontiguousarray(np.array([actions.phi_0 for actions in sets]).T),
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        is_star=np.array([actions.is_star for actions in sets], dtype=np.int64),
        baseline_row=np.array([actions.baseline for actions in sets], dtype=np.int64),
        baseline_cost=np.ascontiguousarray(baseline_cost[None], dtype=np.float64),
        final_reward=np.array(final_reward, dtype=np.float64),
        slots=np.array([states], dtype=np.int64),
        built=np.zeros(1, dtype=np.int64),
        age=np.zeros(1, dtype=np.int64),
        width2=np.zeros((1, rows)),
        cross=np.zeros((1, rows)),
        g00=np.zeros((1, states)),
        vxx=np.empty((1, rows)),
        v0x=np.empty((1, rows)),
        v00=np.empty((1, states)),
        joint=np.empty((1, rows, max(counts) if mixes else 0)),
        proven=np.full((1, rows, baseline_cost.shape[1]), np.nan),
    )


# The lean plan


class Visited:
    """Distinct next states in the order of their first visit, and for each stage which of them it led to.

    Only states that stage g led to enter b_g = Σ rφ + Σ_{s'} V(s') Σ_{j : s'_j = s'} φ_j. So each stage keeps its own
    next states with Σφ of each, O(visited × d), and asks for the value of no other. `kept` has D(s) of the first of
    them, KEPT_NUMBERS numbers at most: it saves time, and nothing depends on it.

    `baseline_cost` (S, H, M) and `final_reward` (S,) are what was told of each state. `alarms` (A, 2) holds the
    (step, state) pairs where the last plan found the declared safe cost to contradict the data.
    """

    def __init__(self, stages: int, horizon: int, constraints: int, dimension: int) -> None:
        room = 16
        self.stages, self.dimension = stages, dimension
        self.index: dict[StateKey, int] = {}
        self.states: list[State] = []
        self.kept: dict[int, ActionSet] = {}
        self._kept_numbers = 0
        self.alarms: NDArray[np.int64] = np.zeros((0, 2), dtype=np.int64)
        self._baseline_cost = np.full((room, horizon, constraints), np.nan)
        self._final_reward = np.full(room, np.nan)
        self._row_of = np.full((stages, room), -1, dtype=np.int64)  # row in a stage, -1 if not reached
        self._count = [0] * stages
        self._member = [np.zeros(room, dtype=np.int64) for _ in range(stages)]
        self._moment = [np.zeros((room, dimension)) for _ in range(stages)]

    @property
    def baseline_cost(self) -> Array:
        """τ_h(s) of each state, (S, H, M); NaN if unknown."""
        return self._baseline_cost[: len(self.states)]

    @property
    def final_reward(self) -> Array:
        """Reward of each remaining step where trajectories end, (S,); NaN elsewhere."""
        return self._final_reward[: len(self.states)]

    def members(self, stage: int) -> NDArray[np.int64]:
        """Numbers of the states that a stage led to, in the order of its moments."""
        return self._member[stage][: self._count[stage]]

    def moment(self, stage: int) -> Array:
        """Σφ by next state, (members, d)."""
        return self._moment[stage][: self._count[stage]]

    def add(self, stage: int, key: StateKey, feature: Array, look: Callable[[], tuple[State, KnownState]]) -> None:
        """One transition with feature φ (d,) from `stage` to the state of `key`; `look` at it on first sight only."""
        state = self.index.get(key)
        if state is None:
            state = self._enter(key, *look())
        row = int(self._row_of[stage, state])
        if row < 0:
            row = self._reach(stage, state)
        self._moment[stage][row] += feature

    def _enter(self, key: StateKey, state: State, known: KnownState) -> int:
        """A new number for a new state. Capacities double, so that n states cost O(n) copies in all."""
        number = len(self.states)
        if number == len(self._final_reward):
            self._baseline_cost = grown(self._baseline_cost, 0, 2 * number, np.nan)
            self._final_reward = grown(self._final_reward, 0, 2 * number, np.nan)
            self._row_of = grown(self._row_of, 1, 2 * number, -1)
        self._baseline_cost[number] = known.baseline_cost
        self._final_reward[number] = known.final_reward
        self.states.append(state)
        self.index[key] = number
        self._keep(number, known.actions)
        return number

    def known(self, key: StateKey) -> KnownState | None:
        """What was said of a visited state, if its D(s) is kept."""
        number = self.index.get(key, -1)
        actions = self.kept.get(number)
        if actions is None:
            return None
        return KnownState(key, actions, self._baseline_cost[number], float(self._final_reward[number]))

    def actions(self, problem: Problem, number: int) -> ActionSet:
        """D(s) of a visited state: as it was kept, or asked for."""
        actions = self.kept.get(number)
        if actions is None:
            try:
                actions = problem.actions(self.states[number])
            except np.linalg.LinAlgError as error:  # of the caller's function, and not of the plan's own numbers
                raise RuntimeError(f"`actions` failed: {error}") from error
            if actions.endpoints.shape[1] != problem.dimension:
                raise InputError(
                    f"state {self.states[number]!r} now has features of dimension {actions.endpoints.shape[1]}, "
                    f"but d = {problem.dimension}: `actions` must answer alike whenever it is asked."
                )
            self._keep(number, actions)
        return actions

    def keep(self, problem: Problem, members: NDArray[np.int64]) -> int:
        """Keep D(s) of as many of these states, in their order, as there is room for: returns how many."""
        for place, number in enumerate(members.tolist()):
            self.actions(problem, number)
            if number not in self.kept:
                return place
        return len(members)

    def _keep(self, number: int, actions: ActionSet) -> None:
        size = actions.endpoints.size + actions.phi_0.size
        if self._kept_numbers + size <= KEPT_NUMBERS:
            self.kept[number] = actions
            self._kept_numbers += size

    def _reach(self, stage: int, state: int) -> int:
        """A new row of a stage for a state that it had not led to yet."""
        row = self._count[stage]
        if row == len(self._member[stage]):
            self._member[stage] = grown(self._member[stage], 0, 2 * row, 0)
            self._moment[stage] = grown(self._moment[stage], 0, 2 * row, 0.0)
        self._member[stage][row] = state
        self._row_of[stage, state] = row
        self._count[stage] = row + 1
        return row

    def take(
        self,
        index: dict[StateKey, int],
        states: list[State],
        told: tuple[Array, Array],
        alarms: NDArray[np.int64],
        stages: list[tuple[NDArray[np.int64], Array]],
    ) -> None:
        """Everything at once, from a saved agent: keys, states, (baseline_cost, final_reward), members and moments."""
        self.index, self.states, self.alarms = index, states, alarms
        room = max(len(states), len(self._final_reward))
        self._baseline_cost = grown(told[0], 0, room, np.nan)
        self._final_reward = grown(told[1], 0, room, np.nan)
        self._row_of = np.full((len(stages), room), -1, dtype=np.int64)
        for stage, (member, moment) in enumerate(stages):
            self._count[stage] = len(member)
            self._row_of[stage, member] = np.arange(len(member))
            size = max(len(member), len(self._member[stage]))
            self._member[stage] = grown(member, 0, size, 0)
            self._moment[stage] = grown(moment, 0, size, 0.0)


def plan_lean(problem: Problem, costs: Costs, values: Values, rules: Rules, visited: Visited, plan: Plan) -> Plan:
    """The first loop of Algorithm 1, backwards in h, over the states that matter: those that step h - 1 led to.

    Returns the plan: w_h, ĝ_h and β_c. An error in the problem's own functions leaves everything as it was.
    """
    facts = costs.facts
    kept = [costs.least, costs.grid_log_det, costs.grid_at, costs.owed.count, facts.weight, facts.count, facts.inside]
    kept += [facts.used_gram, facts.used_moment, facts.used_square, facts.used_visits, facts.alarm]
    before = [array.copy() for array in kept]
    try:
        return _backward_pass(problem, costs, values, rules, visited, plan)
    except BaseException:
        for array, old in zip(kept, before, strict=True):
            array[...] = old
        raise


def _backward_pass(problem: Problem, costs: Costs, values: Values, rules: Rules, visited: Visited, plan: Plan) -> Plan:
    """w_h, ĝ_h, β_c and the values behind them, from the last step to the first."""
    scratch = new_scratch(problem.dimension, len(problem.constraints), 0, 1)
    if rules.conditioning != TOLD:
        refresh_spectrum(costs)
    weigh_anew(costs, rules, scratch)
    horizon, stages = rules.horizon, len(values.log_det)
    fresh = new_plan(horizon, 0, len(problem.constraints), problem.dimension)
    made, alarms, held = plan.made + 1, [], list[Block]()
    if stages == 1 and horizon > 1:  # the same states at every step: all but w_h is computed once
        reached = visited.members(0)
        held = list(blocks_of(problem, visited, reached[: visited.keep(problem, reached)]))
    in_held = sum(len(block.states) for block in held)
    following = np.zeros(len(visited.members(stages - 1)))
    for step in range(horizon - 1, -1, -1):
        stage, before = (step, step - 1) if stages > 1 else (0, 0)
        with np.errstate(all="ignore"):
            fresh.weights[step] = values.reward_moment[stage] + following @ visited.moment(stage)
        solve(values.factor[stage], fresh.weights[step], problem.dimension)
        fit_costs(costs, rules, fresh, scratch, step, step, stage)
        fresh.value_radius[step] = value_radius_at(values, rules, step, stage)
        if step > 0:
            members = visited.members(before)
            blocks = chain(held, blocks_of(problem, visited, members[in_held:]))
            following, reasons = values_at((costs, values, rules), visited, blocks, fresh, step, made)
            alarms += [(step, int(state)) for state in members[reasons == ALARM]]
    if sum(keep_alarms(costs, rules, fresh, step, step if stages > 1 else 0) for step in range(horizon)) > 0:
        return _backward_pass(problem, costs, values, rules, visited, plan)  # what is latched is for every state
    visited.alarms = np.array(sorted(alarms), dtype=np.int64).reshape(-1, 2)
    changed = {
        name: getattr(fresh, name) for name in ("weights", "gamma_hat", "radius", "margin", "facts", "value_radius")
    }
    return replaced(plan, made=made, **changed)


class Block(NamedTuple):
    """Some states of a lean plan: their numbers, their candidates, and the buffers that fit them."""

    states: NDArray[np.int64]
    tables: Tables
    scratch: Scratch


def values_at(
    model: tuple[Costs, Values, Rules],
    visited: Visited,
    blocks: Iterable[Block],
    plan: Plan,
    step: int,
    made: NDArray[np.int64],
) -> tuple[Array, NDArray[np.int64]]:
    """V_h of Eq. (10) at the states of some blocks, and the reason of each choice: (n,), (n,).

    Forms that a block has already, from another step of the same stage, are used as they are.
    """
    values, reasons = [np.empty(0)], [np.empty(0, dtype=np.int64)]
    stage = step if len(model[1].log_det) > 1 else 0
    for states, tables, scratch in blocks:
        tables.baseline_cost[0] = visited.baseline_cost[states, step]
        chosen = one_row(plan, step, len(states), made)
        choose_block(*model, tables, chosen, scratch, step, stage)
        plan.radius[step][np.isnan(chosen.radius[0])] = np.nan
        values.append(chosen.values[0])
        reasons.append(chosen.reason[0])
        del tables, scratch  # before the next block is made: memory stays that of one
    return np.concatenate(values), np.concatenate(reasons)


def one_row(plan: Plan, step: int, states: int, made: NDArray[np.int64]) -> Plan:
    """A plan of one row for so many states, with the w_h, ĝ_h, β_c and β_v of one step of another."""
    alone = new_plan(1, states, plan.radius.shape[1], plan.weights.shape[1])
    alone.weights[0], alone.gamma_hat[0] = plan.weights[step], plan.gamma_hat[step]
    alone.radius[0], alone.margin[0], alone.facts[0], alone.made[0] = (
        plan.radius[step], plan.margin[step], plan.facts[step], made[0],
    )  # fmt: skip
    alone.value_radius[0] = plan.value_radius[step]
    return alone


def scratch_for(tables: Tables) -> Scratch:
    """Buffers that fit some tables."""
    dimension, rows = tables.features.shape
    widest = int(np.diff(tables.start[: int(tables.slots[0]) + 1]).max(initial=1))
    return new_scratch(dimension, tables.baseline_cost.shape[2], rows, widest)


def blocks_of(problem: Problem, visited: Visited, members: NDArray[np.int64]) -> Iterator[Block]:
    """Some visited states in blocks of about BLOCK_NUMBERS numbers, without forms; one is made at a time."""
    first, numbers, sets = 0, 0, list[ActionSet]()
    for place, state in enumerate(members.tolist(), start=1):
        sets.append(visited.actions(problem, state))
        numbers += sets[-1].endpoints.size
        if numbers >= BLOCK_NUMBERS or place == len(members):
            yield _block(visited, members[first:place], sets)
            first, numbers, sets = place, 0, []


def _block(visited: Visited, states: NDArray[np.int64], sets: list[ActionSet]) -> Block:
    tables = tables_of(sets, visited.baseline_cost[states, 0], visited.final_reward[states])
    return Block(states, tables, scratch_for(tables))


use(globals())
