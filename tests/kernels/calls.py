"""Calls of the kernels by name, with defaults: one place to follow a change of their signatures.

Three ways in, from the inside out: `affine` and `unconditioned` hand over the forms and numbers of one constraint;
`choose_at` those of one state; `judged` starts from the sums and the action set, as a decision outside a plan does.
"""

import numpy as np

from tether.kernels.bound import bound_at, fit_costs, known_lengths, measured_lengths
from tether.kernels.choice import choose
from tether.kernels.model import (
    COST_0,
    DIRECTIONAL,
    KNOWN,
    MARGIN,
    MEAN_0,
    MEASURED,
    RADIUS,
    SHIFT,
    STATE,
    TUNED,
    Rules,
    Tables,
    new_plan,
    new_scratch,
)
from tether.kernels.plan import choose_alone, scratch_for, tables_of
from tether.kernels.ridge import new_values


def make_rules(**changes):
    """H = 2, one constraint τ = 0.5, d = 2, tuned radii, exact safe costs, no memory: everything overridable."""
    constraints = len(changes.get("threshold", [0.5]))
    defaults = {
        "horizon": 2,
        "explorer": DIRECTIONAL,
        "conditioning": KNOWN,
        "memory": STATE,
        "radius_kind": TUNED,
        "reduces_radius": False,
        "steers": np.zeros(constraints, dtype=np.int64),
        "threshold": np.array([0.5]),
        "noise": np.full(constraints, 0.1),
        "gamma_norm": np.ones(constraints),
        "feature_norm": 1.0,
        "cost_error": np.full(constraints, np.inf if changes.get("conditioning") == MEASURED else 0.0),
        "point_error": np.zeros(constraints),
        "sample_error": np.zeros(constraints),
        "events": 100.0,
        "tuned_radius": 1.0,
        "value_radius": np.array([1.0, 1.0]),
        "value_events": 0.0,
        "reward_noise": 0.0,
        "theta_norm": 1.0,
        "quantile": np.zeros(constraints),
        "kappa": np.nan,
        "gap_floor": 0.0,
        "warms_up": False,
        "penalty": 0.0,
        "known_gamma": np.zeros((0, constraints, 2)),
    }
    return Rules(**{**defaults, **changes})


def vector(values):
    """A fresh contiguous float64 copy: what the kernels are compiled for."""
    return np.array(values, dtype=np.float64, order="C")


def one_state(
    *, width2, cross, g00, vxx=None, v0x=None, v00=1.0, phi_0=(1.0, 0.0), baseline_cost=(0.1,), is_star=True,
    baseline_row=-1,
):  # fmt: skip
    """Tables of one state whose forms are given; its candidates themselves are never looked at."""
    count, dimension = len(width2), len(phi_0)
    return Tables(
        features=np.full((dimension, count), np.nan),
        phi_0=vector(phi_0)[:, None].copy(),
        start=np.array([0, count], dtype=np.int64),
        is_star=np.array([is_star], dtype=np.int64),
        baseline_row=np.array([baseline_row], dtype=np.int64),
        baseline_cost=vector(baseline_cost)[None, None],
        final_reward=np.array([np.nan]),
        slots=np.ones(1, dtype=np.int64),
        built=np.ones(1, dtype=np.int64),
        age=np.zeros(1, dtype=np.int64),
        width2=vector(width2)[None],
        cross=vector(cross)[None],
        g00=vector([[g00]]),
        vxx=vector(np.ones(count) if vxx is None else vxx)[None],
        v0x=vector(np.zeros(count) if v0x is None else v0x)[None],
        v00=vector([[v00]]),
        joint=np.zeros((1, count, 0)),
        proven=np.full((1, count, len(baseline_cost)), np.nan),
    )


def affine(
    *, mean, width2, cross, g00, residual, baseline_cost, threshold, radius, margin=0.0, is_star=True, before=1.0
):
    """Certified lengths, optimistic lengths and widths of every ray under one known safe cost: (N,) each."""
    rules, tables = (
        make_rules(threshold=vector([threshold])),
        one_state(width2=width2, cross=cross, g00=g00, is_star=is_star),
    )
    numbers = {SHIFT: residual, COST_0: baseline_cost, RADIUS: radius, MARGIN: margin}
    return _lengths(known_lengths, rules, tables, mean, numbers, before)


def unconditioned(*, mean, gxx, cross, g00, mean_0, threshold, radius, declared=np.inf, is_star=True):
    """As `affine`, when the safe cost is at most `declared`: it is known up to an error bar, or not at all."""
    rules = make_rules(threshold=vector([threshold]), conditioning=MEASURED)
    tables = one_state(width2=gxx, cross=cross, g00=g00, is_star=is_star)
    numbers = {MEAN_0: mean_0, RADIUS: radius, MARGIN: 0.0, COST_0: declared}
    return _lengths(measured_lengths, rules, tables, mean, numbers, 1.0)


def _lengths(kernel, rules, tables, mean, numbers, before):
    count = len(mean)
    scratch = new_scratch(2, 1, count, count)
    scratch.projected[1], scratch.work[:2], scratch.state[:] = mean, before, np.nan
    for row, value in numbers.items():
        scratch.state[row, 0] = value
    kernel(rules, tables, scratch, 0, 0, 0)
    return scratch.work[0].copy(), scratch.work[1].copy(), scratch.work[2].copy()


def choose_at(rules, *, weights, gamma_hat, radius, projected, margin=None, step=1, plans=2, **state):
    """`choose` at one state: ((row, length, score, reason), bounds (M,)).

    `projected` (1 + M, N) holds ⟨w, x⟩ and ⟨ĝ_j, x⟩; `plans` counts the plans so far, which `adaptive` looks at.
    """
    tables, constraints = one_state(**state), len(rules.threshold)
    count = len(tables.width2[0])
    plan = new_plan(1, 1, constraints, len(weights))
    plan.weights[0], plan.gamma_hat[0], plan.radius[0], plan.made[0] = weights, gamma_hat, radius, plans
    plan.margin[0] = 0.0 if margin is None else margin
    plan.value_radius[0] = rules.value_radius[step]
    scratch = new_scratch(len(weights), constraints, count, count)
    scratch.projected[: 1 + constraints] = projected
    choose(rules, tables, plan, scratch, step, 0, 0, 0)
    chosen = int(plan.row[0, 0]), float(plan.length[0, 0]), float(plan.score[0, 0]), int(plan.reason[0, 0])
    return chosen, plan.bound[0, 0].copy()


def fit(costs, rules, *, step=0, stage=0):
    """ĝ given the remembered facts (M, d), its radius (M,) and the margin (M,), as planning computes them."""
    constraints, dimension = costs.moment.shape[1:]
    plan, scratch = new_plan(1, 1, constraints, dimension), new_scratch(dimension, constraints, 1, 1)
    fit_costs(costs, rules, plan, scratch, step, 0, stage)
    return plan.gamma_hat[0].copy(), plan.radius[0].copy(), plan.margin[0].copy()


class Judged:
    """A decision in one state from the newest sums, with everything that the kernels left behind."""

    def __init__(self, costs, rules, actions, baseline_cost, *, stage=0, weights=None):
        constraints, dimension = costs.moment.shape[1:]
        self.rules = rules
        self.tables = tables_of([actions], vector(baseline_cost).reshape(1, constraints), np.array([np.nan]))
        self.plan, self.scratch = new_plan(1, 1, constraints, dimension), scratch_for(self.tables)
        self.plan.weights[0] = 0.0 if weights is None else weights
        values = new_values(len(costs.log_det), dimension, 1.0, 1)
        choose_alone(costs, values, rules, self.tables, self.plan, self.scratch, 0, stage)

    @property
    def gamma_hat(self):
        return self.plan.gamma_hat[0]

    @property
    def radius(self):
        return self.plan.radius[0]

    @property
    def reason(self):
        return int(self.plan.reason[0, 0])

    @property
    def lengths(self):
        """Certified lengths of every ray (N,); meaningless where the state is in trouble."""
        return self.scratch.work[0].copy()

    @property
    def optimistic(self):
        return self.scratch.work[1].copy()

    @property
    def widths(self):
        """width(x) of every candidate, with its allowance (N,)."""
        return self.scratch.work[2].copy()

    @property
    def width2(self):
        return self.tables.width2[0].copy()

    def bound(self, ray, at=1.0, constraint=0):
        """The left side of Eq. (9) at α = `at` on a ray."""
        return bound_at(self.rules, self.tables, self.scratch, 0, 0, ray, constraint, at)


def judged(costs, rules, actions, baseline_cost, **more):
    """`choose_alone` at one state."""
    return Judged(costs, rules, actions, baseline_cost, **more)
