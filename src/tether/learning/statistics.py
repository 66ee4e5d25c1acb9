"""What was learned, as sums: additive, mergeable, and free of the number of episodes. And which rules read them."""

from typing import NamedTuple

import numpy as np

from tether.compiled import compiled
from tether.learning.confidence import classical_radius, grid_radius, mixture_radius
from tether.learning.forms import add_rows
from tether.learning.ridge import GRID, Ridge, add_observation, lift, project, relative_error, rounding_of_sum, solve
from tether.learning.safe_sets import EXACT
from tether.records import Array

PAPER, CERTIFIED, DIRECTIONAL, ADAPTIVE, PLAIN = 0, 1, 2, 3, 4
"""Explorers of THEORY section 5, ours between play and hope, and LSVI-UCB's plain bonus β‖x‖."""

SMALLEST, MIXTURE, CLASSICAL, TUNED = 0, 1, 2, 3
"""Where the cost radius comes from."""

BEST, BASELINE_BEST, ONLY_BASELINE, ALARM, NO_SLACK, WARM_UP, BAD_NUMBERS, ENDED, UNSOLVED = range(9)
"""Why a choice is what it is, in the order of `records.Reason`."""


class Rules(NamedTuple):
    """The algorithm: what differs between SLUCB-QVI's explorers and the LSVI-UCB baselines."""

    horizon: int
    explorer: int
    conditioning: int
    radius_kind: int
    reduces_radius: bool  # use β_s of THEORY section 4, and raise its alarm
    threshold: Array  # τ (M,)
    noise: Array  # σ (M,)
    gamma_norm: Array  # B, of the unknown part (M,)
    events: float  # G·M/δ: the union behind β_c
    tuned_radius: float
    value_radius: Array  # β_v of each step (H,)
    kappa: float  # factor of β_v in the bonus of `paper`; NaN takes Lemma 1's κ_h(s)
    gap_floor: float
    warms_up: bool  # play a_0(s) until its cost has been measured (appendix A.4)
    penalty: float  # λ' of the objective r − λ'c
    known_gamma: Array  # the part of γ*_h that known facts determine, or γ* itself (H, M, d)


class Memory(NamedTuple):
    """What was learned: sums only, so that it can be merged, saved, replayed and checked."""

    cost: Ridge
    value: Ridge
    cost_moment: Array  # Σ (z − known part) φ (G, M, p)
    reward_moment: Array  # Σ r φ (G, d)
    transition_moment: Array  # Σ φ, by the slot of the next state (G, S, d)


@compiled
def observe(
    memory: Memory,
    rules: Rules,
    stage: int,
    step: int,
    feature: Array,
    reward: float,
    cost: Array,
    cost_is_known: bool,
    next_slot: int,
) -> None:
    """Add one transition to the sums. A missing cost never enters the cost regression."""
    shaped = reward
    if rules.penalty != 0.0:
        shaped -= rules.penalty * cost[0]
    if cost_is_known and rules.conditioning != EXACT:
        inside = project(memory.cost.basis, feature)
        for j in range(cost.shape[0]):
            known = 0.0
            for k in range(feature.shape[0]):
                known += rules.known_gamma[step, j, k] * feature[k]
            for k in range(inside.shape[0]):
                memory.cost_moment[stage, j, k] += (cost[j] - known) * inside[k]
        add_observation(memory.cost, stage, feature)
    for k in range(feature.shape[0]):
        memory.reward_moment[stage, k] += shaped * feature[k]
        if next_slot >= 0:
            memory.transition_moment[stage, next_slot, k] += feature[k]
    add_observation(memory.value, stage, feature)


@compiled
def cost_radius(memory: Memory, rules: Rules, stage: int, constraint: int) -> float:
    """β_c of one stage and constraint, from the log-determinant of its Gram matrix."""
    if rules.conditioning == EXACT:
        return 0.0
    if rules.radius_kind == TUNED:
        return rules.tuned_radius
    log_det = memory.cost.log_det[stage]
    noise, norm = rules.noise[constraint], rules.gamma_norm[constraint]
    ridge = memory.cost.ridge
    if rules.radius_kind == CLASSICAL:
        return classical_radius(log_det, noise, rules.events, ridge, norm)
    if rules.radius_kind == MIXTURE:
        return mixture_radius(log_det, noise, rules.events, ridge, norm)
    events = rules.events * (1 + len(GRID))  # all the sets hold at once: any of them may be used at any time
    best = mixture_radius(log_det, noise, events, ridge, norm)
    lag = log_det - memory.cost.grid_at[stage]
    for j in range(len(GRID)):
        grown = memory.cost.grid_log_det[stage, j] + lag
        best = min(best, grid_radius(grown, memory.cost.least[stage], GRID[j], noise, events, ridge, norm))
    return best


@compiled
def fit_cost(memory: Memory, rules: Rules, step: int, stage: int, gamma_hat: Array, radius: Array) -> None:
    """ĝ_h, lifted to R^d and added to the known part, into gamma_hat (M, d); β_c into radius (M,)."""
    for j in range(rules.threshold.shape[0]):
        radius[j] = cost_radius(memory, rules, stage, j)
        for k in range(gamma_hat.shape[1]):
            gamma_hat[j, k] = rules.known_gamma[step, j, k]
        if rules.conditioning != EXACT:
            inside = solve(memory.cost.factor[stage], memory.cost_moment[stage, j])
            energy = 0.0  # ‖ĝ‖²_A
            size = 0.0  # ‖Σzφ‖²
            for k in range(inside.shape[0]):
                energy += inside[k] * memory.cost_moment[stage, j, k]
                size += memory.cost_moment[stage, j, k] * memory.cost_moment[stage, j, k]
            # With ‖·‖_G off by a relative ρ, ĝ is off by ρ‖ĝ‖_A in the A-norm, and by what Σzφ lost: round outward.
            error = relative_error(memory.cost, stage)
            lost = rounding_of_sum(memory.cost, stage) * np.sqrt(size)
            radius[j] += error * (radius[j] + np.sqrt(0.0 if energy < 0.0 else energy)) + lost
            estimate = lift(memory.cost.basis, inside)
            for k in range(gamma_hat.shape[1]):
                gamma_hat[j, k] += estimate[k]


@compiled
def target_moment(memory: Memory, stage: int, next_values: Array, slots: int) -> Array:
    """b_h = Σ rφ + Σ_{s'} V_{h+1}(s') Σ_{j : s'_j = s'} φ_j: (d,). Its cost does not depend on k."""
    moment: Array = memory.reward_moment[stage].copy()
    add_rows(memory.transition_moment[stage], 0, slots, 0, next_values, 1.0, moment)
    return moment
