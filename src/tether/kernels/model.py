"""What kernels share: the rules of an algorithm, the candidates of the known states, and a plan for them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tether.kernels.compiled import Cube, IntegerMatrix, Integers, Matrix, Vector, record, replaced, use
from tether.problem.problem import KnownState

PAPER, CERTIFIED, DIRECTIONAL, ADAPTIVE, PLAIN = 0, 1, 2, 3, 4
"""Explorers of docs/theory.md section 5, and LSVI-UCB's plain bonus β‖x‖."""

SMALLEST, MIXTURE, CLASSICAL, TUNED, MOVING = 0, 1, 2, 3, 4
"""Where the cost radius comes from; MOVING is the smallest one whose target γ* need not stand still (section 13)."""

TOLD, KNOWN, MEASURED = 0, 1, 2
"""What is known of costs: γ* itself; the exact cost of safe actions; at most an error bar around them."""

STATE, VISITED, ALL = 0, 1, 2
"""Which known safe costs are remembered: none but that of the present state, the visited, all listed ones."""

BEST, BASELINE_BEST, ONLY_BASELINE, ALARM, NO_SLACK, WARM_UP, BAD_NUMBERS, ENDED, UNSOLVED = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Why a choice is what it is, in the order of `records.Reason`."""

MEAN_0, RADIUS, GAP, BOUND_0, SHIFT, MARGIN, COST_0, OPEN = 0, 1, 2, 3, 4, 5, 6, 7
"""Rows of `Scratch.state`: ⟨ĝ, f⟩, β_s, the gap, the bound of a_0, what conditioning moves means by, margin, τ_s, and
how far ⟨ĝ, f⟩ may be off where the facts determine it but for a tiny part of f."""

STATE_ROWS = 8
VECTORS = 10


@record
class Rules:
    """The algorithm: what differs between SLUCB-QVI's explorers and the LSVI-UCB baselines."""

    horizon: int
    explorer: int
    conditioning: int  # TOLD, KNOWN or MEASURED
    memory: int  # STATE, VISITED or ALL
    radius_kind: int
    reduces_radius: bool  # use β_s of docs/theory.md sections 4 and 17, and raise their alarm
    steers: Integers  # 1 where costs lie in [0, 1]: the regression ranks actions, and proves nothing (M,)
    threshold: Vector  # τ (M,)
    noise: Vector  # σ (M,)
    gamma_norm: Vector  # B (M,)
    feature_norm: float
    cost_error: Vector  # e: safe costs are known up to this; infinite where they are unknown (M,)
    point_error: Vector  # ε: how far the cost of an action may lie from a linear one (M,)
    sample_error: Vector  # how far the mean of a measured cost may lie from a linear one (M,)
    events: float  # G·M/δ: the union behind β_c
    tuned_radius: float
    value_radius: Vector  # β_v of each step (H,)
    value_events: float  # 1/δ where β_v is the root mixture radius of the reward regression; 0 where it is the above
    reward_noise: float  # σ_r
    theta_norm: float  # a bound on ‖θ*‖
    kappa: float  # factor of β_v in the bonus of `paper`; NaN takes Lemma 1's κ_h(s)
    quantile: Vector  # what the noise may add at the end of a ray, where the realised cost is limited (M,)
    gap_floor: float
    warms_up: bool  # play a_0(s) until its cost has been measured (appendix A.4)
    penalty: float  # λ' of the objective r − λ'c
    known_gamma: Cube  # γ* itself where it is told (H, M, d), else empty


@record
class Tables:
    """Candidates of some states, and their quadratic forms per stage. R columns and S slots are capacity.

    For a candidate x of a state with safe feature f, with G the inverse of the cost Gram matrix given the facts:
    width2 = xᵀGx − (fᵀGx)²/(fᵀGf), cross = fᵀGx, g00 = fᵀGf where the safe cost is known exactly (g00 = 0 where the
    facts already determine it); width2 = xᵀGx where it is not. Of the value Gram matrix: vxx = xᵀGx, v0x = fᵀGx, v00.
    """

    features: Matrix  # one column per candidate (d, R)
    phi_0: Matrix  # one column per state (d, S)
    start: Integers  # columns start[s]:start[s+1] belong to slot s (S + 1,)
    is_star: Integers  # (S,)
    baseline_row: Integers  # row of a_0 within a finite set, -1 in a star (S,)
    baseline_cost: Cube  # τ_h(s), NaN if unknown (H, S, M)
    final_reward: Vector  # of each remaining step where trajectories end, NaN elsewhere (S,)
    slots: Integers  # number of known states (1,)
    built: Integers  # slots whose forms exist, per stage (G,)
    age: Integers  # updates since the forms were rebuilt (G,)
    width2: Matrix  # (G, R)
    cross: Matrix  # (G, R)
    g00: Matrix  # (G, S)
    vxx: Matrix  # (G, R)
    v0x: Matrix  # (G, R)
    v00: Matrix  # (G, S)
    joint: Cube  # products of a state's residuals, row by row (G, R, W); no columns unless mixtures are planned
    proven: Cube  # upper bounds on costs that hold without the regression, NaN where it decides (G, R, M)


@record
class Plan:
    """The policy of the current episode: line 9 of Algorithm 1 for every known state, with its evidence."""

    weights: Matrix  # w_h (H, d)
    gamma_hat: Cube  # ĝ_h, given the facts (H, M, d)
    radius: Matrix  # β_c, given the facts; NaN is an alarm (H, M)
    margin: Matrix  # what the misfit ε, rounding and errors in facts may add to any cost (H, M)
    facts: Integers  # remembered facts that each step rests on (H,)
    value_radius: Vector  # β_v (H,)
    values: Matrix  # V_h(s) (H + 1, S)
    score: Matrix  # unclipped score of the choice (H, S)
    row: IntegerMatrix  # -1 is the safe action (H, S)
    length: Matrix  # (H, S)
    bound: Cube  # (H, S, M)
    reason: IntegerMatrix  # (H, S)
    mixture: Matrix  # θ over the candidates (H, R); no columns unless mixtures are planned
    planned: Integers  # slots covered by the plan (1,)
    made: Integers  # plans made so far, this one included (1,)


@record
class Scratch:
    """Buffers that kernels write to instead of making arrays."""

    projected: Matrix  # ⟨w, x⟩ and ⟨ĝ_j, x⟩ of every candidate (2 + M, R)
    work: Matrix  # per candidate of one state (6, W)
    state: Matrix  # (STATE_ROWS, M)
    vectors: Matrix  # (VECTORS, d)
    square: Matrix  # (d, d)
    tile: Matrix  # candidates that are whitened together (d, T)


TILE = 3200
"""Numbers (d times columns) that are whitened together: 25 kB stay in a first-level cache of 32 kB."""


def new_tables(dimension: int, horizon: int, stages: int, constraints: int, mixes: bool = False) -> Tables:
    """No state is known yet. With `mixes` the tables also hold what mixtures of actions need."""
    rows, slots = 64, 4
    return Tables(
        features=np.zeros((dimension, rows)),
        phi_0=np.zeros((dimension, slots)),
        start=np.zeros(slots + 1, dtype=np.int64),
        is_star=np.zeros(slots, dtype=np.int64),
        baseline_row=np.full(slots, -1, dtype=np.int64),
        baseline_cost=np.full((horizon, slots, constraints), np.nan),
        final_reward=np.full(slots, np.nan),
        slots=np.zeros(1, dtype=np.int64),
        built=np.zeros(stages, dtype=np.int64),
        age=np.zeros(stages, dtype=np.int64),
        width2=np.zeros((stages, rows)),
        cross=np.zeros((stages, rows)),
        g00=np.zeros((stages, slots)),
        vxx=np.zeros((stages, rows)),
        v0x=np.zeros((stages, rows)),
        v00=np.zeros((stages, slots)),
        joint=np.zeros((stages, rows, 1 if mixes else 0)),
        proven=np.full((stages, rows, constraints), np.nan),
    )


def add_state(tables: Tables, known: KnownState, baseline_cost: NDArray[np.float64] | None = None) -> Tables:
    """Append the candidates of one state; returns the tables, reallocated if they were full.

    `baseline_cost` (rows of the tables, M) replaces the state's τ_h(s) of every step.
    """
    slot = int(tables.slots[0])
    first = int(tables.start[slot])
    last = first + len(known.actions.endpoints)
    tables = with_room(tables, slot + 1, last)
    if 0 < tables.joint.shape[2] < last - first:
        tables = replaced(tables, joint=grown(tables.joint, 2, last - first, 0.0))
    tables.features[:, first:last] = known.actions.endpoints.T
    tables.phi_0[:, slot] = known.actions.phi_0
    tables.start[slot + 1] = last
    tables.is_star[slot] = known.actions.is_star
    tables.baseline_row[slot] = known.actions.baseline
    tables.baseline_cost[:, slot] = known.baseline_cost if baseline_cost is None else baseline_cost
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
        changes["proven"] = grown(tables.proven, 1, room, np.nan)
    if slots > tables.phi_0.shape[1]:
        room = max(slots, 2 * tables.phi_0.shape[1])
        changes["start"] = grown(tables.start, 0, room + 1, 0)
        changes["is_star"] = grown(tables.is_star, 0, room, 0)
        changes["baseline_row"] = grown(tables.baseline_row, 0, room, -1)
        changes["baseline_cost"] = grown(tables.baseline_cost, 1, room, np.nan)
        changes["final_reward"] = grown(tables.final_reward, 0, room, np.nan)
        changes["phi_0"] = grown(tables.phi_0, 1, room, 0.0)
        changes["g00"] = grown(tables.g00, 1, room, 0.0)
        changes["v00"] = grown(tables.v00, 1, room, 0.0)
    return replaced(tables, **changes) if changes else tables


def grown(array: NDArray[Any], axis: int, size: int, fill: float) -> Any:
    """A copy with room for `size` entries along `axis`, the new ones set to `fill`."""
    shape = list(array.shape)
    shape[axis] = size
    larger = np.full(shape, fill, dtype=array.dtype)
    larger[tuple(slice(0, n) for n in array.shape)] = array
    return larger


def new_plan(horizon: int, slots: int, constraints: int, dimension: int, rows: int = 0) -> Plan:
    """The safe action everywhere. `rows` is the number of candidates that mixtures are kept for."""
    return Plan(
        weights=np.zeros((horizon, dimension)),
        gamma_hat=np.zeros((horizon, constraints, dimension)),
        radius=np.zeros((horizon, constraints)),
        margin=np.zeros((horizon, constraints)),
        facts=np.zeros(horizon, dtype=np.int64),
        value_radius=np.zeros(horizon),
        values=np.zeros((horizon + 1, slots)),
        score=np.zeros((horizon, slots)),
        row=np.full((horizon, slots), -1, dtype=np.int64),
        length=np.zeros((horizon, slots)),
        bound=np.zeros((horizon, slots, constraints)),
        reason=np.zeros((horizon, slots), dtype=np.int64),
        mixture=np.zeros((horizon, rows)),
        planned=np.zeros(1, dtype=np.int64),
        made=np.zeros(1, dtype=np.int64),
    )


def new_scratch(dimension: int, constraints: int, rows: int, widest: int) -> Scratch:
    """Room for `rows` candidates in all and `widest` in one state."""
    return Scratch(
        projected=np.zeros((2 + constraints, rows)),
        work=np.zeros((6, widest)),
        state=np.zeros((STATE_ROWS, constraints)),
        vectors=np.zeros((VECTORS, dimension)),
        square=np.zeros((dimension, dimension)),
        tile=np.zeros((dimension, max(TILE // dimension, widest))),
    )


use(globals())
