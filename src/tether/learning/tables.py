"""Quadratic forms of every candidate feature of every known state, kept up in O(d) per candidate.

THEORY section 3. For a candidate x of a state with safe feature f, and G = A^{-1} of the cost Gram matrix:
    width2 = xᵀGx − (fᵀGx)²/(fᵀGf), cross = fᵀGx, g00 = fᵀGf        and of the value Gram matrix:
    vxx = xᵀGx, v0x = fᵀGx, v00 = fᵀGf.
After A ← A + φφᵀ with g = Gφ and D = 1 + φᵀg, one product g·x per candidate updates them all. width2 follows
the conditioned form  width2 −= (g·x − share g·f)² / (D − (g·f)²/g00),  share = cross/g00,  which subtracts a
part of itself and so loses no digits, where a difference of squares would lose them all.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tether.compiled import compiled, lean
from tether.learning.forms import (
    TILE,
    conditioned_forms,
    inner,
    plain_forms,
    project_columns,
    project_rows,
    residual_products,
    turned,
    whiten_columns,
)
from tether.learning.ridge import PENDING, Ridge
from tether.problem.problem import KnownState
from tether.records import Array

GROWTH_LIMIT = float(np.log(16.0))
"""Rebuild once det(A) has grown by this much: bounds the rounding error of the updates (see ROUNDING)."""

UPDATE_LIMIT = 64
"""Rebuild after this many updates in any case."""


class Tables(NamedTuple):
    """Candidates of the known states, and their quadratic forms per stage. R rows and S slots are capacity."""

    features: Array  # one column per candidate (d, R)
    phi_0: Array  # one column per state (d, S)
    start: NDArray[np.int64]  # rows start[s]:start[s+1] belong to slot s (S + 1,)
    is_star: NDArray[np.bool_]  # (S,)
    baseline_row: NDArray[np.int64]  # row of a_0 within a finite set, -1 in a star (S,)
    baseline_cost: Array  # τ_h(s), NaN if unknown (H, S, M)
    final_reward: Array  # of each remaining step where trajectories end, NaN elsewhere (S,)
    slots: NDArray[np.int64]  # number of known states (1,)
    built: NDArray[np.int64]  # slots whose tables exist, per stage (G,)
    age: NDArray[np.int64]  # updates since the tables were rebuilt (G,)
    width2: Array  # (G, R)
    cross: Array  # (G, R)
    g00: Array  # (G, S)
    vxx: Array  # (G, R)
    v0x: Array  # (G, R)
    v00: Array  # (G, S)
    joint: Array  # products of a state's residuals, row by row (G, R, W); no columns unless mixtures are planned


def new_tables(dimension: int, horizon: int, stages: int, constraints: int, mixes: bool = False) -> Tables:
    """No state is known yet. With `mixes` the tables also hold what mixtures of actions need."""
    rows, slots = 64, 4
    return Tables(
        features=np.zeros((dimension, rows)),
        phi_0=np.zeros((dimension, slots)),
        start=np.zeros(slots + 1, dtype=np.int64),
        is_star=np.zeros(slots, dtype=np.bool_),
        baseline_row=np.full(slots, -1, dtype=np.int64),
        baseline_cost=np.full((horizon, slots, constraints), np.nan),
        final_reward=np.full(slots, np.nan),
        slots=np.zeros(1, dtype=np.int64),
        built=np.zeros(stages, dtype=np.int64),
        age=np.zeros(stages, dtype=np.int64),
        width2=np.zeros((stages, rows)),
        cross=np.zeros((stages, rows)),
        g00=np.ones((stages, slots)),
        vxx=np.zeros((stages, rows)),
        v0x=np.zeros((stages, rows)),
        v00=np.zeros((stages, slots)),
        joint=np.zeros((stages, rows, 1 if mixes else 0)),
    )


def add_state(tables: Tables, known: KnownState) -> Tables:
    """Append the candidates of one state; returns the tables, reallocated if they were full."""
    slot = int(tables.slots[0])
    first = int(tables.start[slot])
    last = first + len(known.actions.endpoints)
    tables = with_room(tables, slot + 1, last)
    if 0 < tables.joint.shape[2] < last - first:
        tables = tables._replace(joint=grown(tables.joint, 2, last - first, 0.0))
    tables.features[:, first:last] = known.actions.endpoints.T
    tables.phi_0[:, slot] = known.actions.phi_0
    tables.start[slot + 1] = last
    tables.is_star[slot] = known.actions.is_star
    tables.baseline_row[slot] = known.actions.baseline
    tables.baseline_cost[:, slot] = known.baseline_cost
    tables.final_reward[slot] = known.final_reward
    tables.slots[0] = slot + 1
    return tables


def with_room(tables: Tables, slots: int, rows: int) -> Tables:
    """Double the capacity of rows or slots when needed, so that n states cost O(n) copies in all."""
    changes: dict[str, Any] = {}
    if rows > tables.features.shape[1]:
        room = max(rows, 2 * tables.features.shape[1])
        for name in ("features", "width2", "cross", "vxx", "v0x", "joint"):
            changes[name] = grown(getattr(tables, name), 1, room, 0.0)
    if slots > tables.phi_0.shape[1]:
        room = max(slots, 2 * tables.phi_0.shape[1])
        changes["start"] = grown(tables.start, 0, room + 1, 0)
        changes["is_star"] = grown(tables.is_star, 0, room, False)
        changes["baseline_row"] = grown(tables.baseline_row, 0, room, -1)
        changes["baseline_cost"] = grown(tables.baseline_cost, 1, room, np.nan)
        changes["final_reward"] = grown(tables.final_reward, 0, room, np.nan)
        changes["phi_0"] = grown(tables.phi_0, 1, room, 0.0)
        changes["g00"] = grown(tables.g00, 1, room, 1.0)
        changes["v00"] = grown(tables.v00, 1, room, 0.0)
    return tables._replace(**changes) if changes else tables


def grown(array: NDArray[Any], axis: int, size: int, fill: float) -> Any:
    """A copy with room for `size` entries along `axis`, the new ones set to `fill`."""
    shape = list(array.shape)
    shape[axis] = size
    larger = np.full(shape, fill, dtype=array.dtype)
    larger[tuple(slice(0, n) for n in array.shape)] = array
    return larger


@compiled
def refresh(tables: Tables, cost: Ridge, value: Ridge, stage: int, learns_cost: bool, out: Array) -> None:
    """Bring the tables of one stage up to date: by owed rank-one updates if few, else from the factors.

    `out` (>= 2, R) is scratch. Afterwards nothing is pending at this stage.
    """
    owed = max(cost.pending_count[stage] if learns_cost else 0, value.pending_count[stage])
    growth = max(cost.growth[stage] if learns_cost else 0.0, value.growth[stage])
    stale = owed > PENDING or growth > GROWTH_LIMIT or tables.age[stage] + owed > UPDATE_LIMIT
    stale = stale or (owed > 0 and tables.joint.shape[2] > 0)  # products are rebuilt: updated ones lose definiteness
    if stale:
        tables.built[stage] = 0
        tables.age[stage] = 0
        cost.growth[stage] = 0.0
        value.growth[stage] = 0.0
    elif owed > 0:
        slots = tables.built[stage]
        rows = tables.start[slots]
        if learns_cost:
            known = cost.basis.shape[1] < cost.basis.shape[0]
            for update in range(cost.pending_count[stage]):
                direction = cost.pending[stage, update]
                project_rows(tables.features, rows, direction, out[0])
                update_cost_tables(tables, stage, direction, cost.pending_scale[stage, update], out[0], known)
        for update in range(value.pending_count[stage]):
            direction = value.pending[stage, update]
            project_rows(tables.features, rows, direction, out[1])
            update_value_tables(tables, stage, direction, value.pending_scale[stage, update], out[1])
        tables.age[stage] += owed
    cost.pending_count[stage] = 0
    value.pending_count[stage] = 0
    build(tables, stage, cost, value, stage, learns_cost)


@lean
def update_cost_tables(tables: Tables, stage: int, direction: Array, scale: float, product: Array, known: bool) -> None:
    """One rank-one update of width2, cross and g00; product[i] = ⟨direction, x_i⟩.

    With `known` the regression lives where known facts leave γ* open, and nothing further is conditioned on.
    """
    for slot in range(tables.built[stage]):
        first, last = tables.start[slot], tables.start[slot + 1]
        g00 = tables.g00[stage, slot]
        along = 0.0 if known else inner(tables.phi_0, slot, direction)
        per_share = along / g00
        per_scale = along / scale
        shrink_widths(
            tables.width2[stage, first:last],
            tables.cross[stage, first:last],
            product[first:last],
            per_share,
            1.0 / (scale - along * per_share),
            per_scale,
        )
        tables.g00[stage, slot] = g00 - along * per_scale


@lean
def shrink_widths(
    width2: Array, cross: Array, product: Array, per_share: float, per_conditioned: float, per_scale: float
) -> None:
    """width2 −= (g·x − share g·f)² / (D − (g·f)²/g00) and cross −= (g·x)(g·f)/D, per candidate of one state."""
    for i in range(product.shape[0]):
        residual = product[i] - cross[i] * per_share
        left = width2[i] - residual * residual * per_conditioned
        width2[i] = 0.0 if left < 0.0 else left  # a NaN stays one, and certifies nothing
        cross[i] -= product[i] * per_scale


@lean
def update_value_tables(tables: Tables, stage: int, direction: Array, scale: float, product: Array) -> None:
    """One rank-one update of vxx, v0x and v00; product[i] = ⟨direction, x_i⟩."""
    for slot in range(tables.built[stage]):
        first, last = tables.start[slot], tables.start[slot + 1]
        along = inner(tables.phi_0, slot, direction)
        shared = along / scale
        shrink_norms(
            tables.vxx[stage, first:last], tables.v0x[stage, first:last], product[first:last], 1.0 / scale, shared
        )
        tables.v00[stage, slot] -= along * shared


@lean
def shrink_norms(vxx: Array, v0x: Array, product: Array, per_scale: float, shared: float) -> None:
    """vxx −= (g·x)²/D and v0x −= (g·x)(g·f)/D, per candidate of one state."""
    for i in range(product.shape[0]):
        vxx[i] -= product[i] * product[i] * per_scale
        v0x[i] -= product[i] * shared


@compiled
def build(tables: Tables, at: int, cost: Ridge, value: Ridge, stage: int, learns_cost: bool) -> None:
    """Tables of the slots that have none yet at row `at`, from the factors of `stage`: about TILE numbers at a go."""
    begun = first = tables.built[at]
    if first == tables.slots[0]:
        return
    cost_factor, value_factor = turned(cost.factor[stage]), turned(value.factor[stage])
    f = tables.phi_0[:, first : tables.slots[0]].copy()
    inside_f = project_columns(cost.basis, f)
    if learns_cost:
        whiten_columns(cost_factor, inside_f)
    whiten_columns(value_factor, f)
    wide = TILE // tables.features.shape[0]
    while first < tables.slots[0]:
        last = first + 1
        while last < tables.slots[0] and tables.start[last + 1] - tables.start[first] <= wide:
            last += 1
        rows = slice(tables.start[first], tables.start[last])
        x = tables.features[:, rows].copy()
        if learns_cost:
            inside_x = project_columns(cost.basis, x)
            whiten_columns(cost_factor, inside_x)
            known = cost.basis.shape[1] < cost.basis.shape[0]
            for slot in range(first, last):
                begin, end = tables.start[slot] - rows.start, tables.start[slot + 1] - rows.start
                tables.g00[at, slot] = conditioned_forms(
                    inside_x[:, begin:end],
                    inside_f[:, slot - begun],
                    known,
                    tables.width2[at, tables.start[slot] : tables.start[slot + 1]],
                    tables.cross[at, tables.start[slot] : tables.start[slot + 1]],
                )
                if tables.joint.shape[2] > 0:
                    residual_products(
                        inside_x[:, begin:end],
                        inside_f[:, slot - begun],
                        known,
                        tables.cross[at, tables.start[slot] : tables.start[slot + 1]],
                        tables.g00[at, slot],
                        tables.joint[at, tables.start[slot] : tables.start[slot + 1]],
                    )
        whiten_columns(value_factor, x)
        for slot in range(first, last):
            begin, end = tables.start[slot] - rows.start, tables.start[slot + 1] - rows.start
            tables.v00[at, slot] = plain_forms(
                x[:, begin:end],
                f[:, slot - begun],
                tables.vxx[at, tables.start[slot] : tables.start[slot + 1]],
                tables.v0x[at, tables.start[slot] : tables.start[slot + 1]],
            )
        first = last
    tables.built[at] = tables.slots[0]
