"""Calls of the kernels by name, with defaults: one place to follow a change of their signatures."""

import numpy as np

from tether.learning import mixture_choice, mixture_search, mixture_supports, mixtures, randomised
from tether.learning.safe_sets import STATE, affine_lengths, unconditioned_lengths
from tether.learning.scores import assess
from tether.learning.statistics import DIRECTIONAL, TUNED, Rules

number = np.float64


def affine(*, mean, width2, cross, g00, residual, baseline_cost, threshold, radius, is_star=True, before=1.0):
    """Certified lengths, optimistic lengths and widths of every ray under one known safe cost: (N,) each."""
    count = len(mean)
    width, length, optimistic = np.empty(count), np.full(count, before), np.full(count, before)
    affine_lengths(
        mean, width2, cross, number(g00), number(residual), number(baseline_cost), number(threshold), number(radius),
        is_star, width, length, optimistic,
    )  # fmt: skip
    return length, optimistic, width


def unconditioned(*, mean, width2, cross, g00, mean_0, threshold, radius, is_star=True):
    """As `affine`, when the safe cost is unknown."""
    count = len(mean)
    width, length, optimistic = np.empty(count), np.ones(count), np.ones(count)
    unconditioned_lengths(
        mean, width2, cross, number(g00), number(mean_0), number(threshold), number(radius), is_star, width, length,
        optimistic,
    )  # fmt: skip
    return length, optimistic, width


def make_rules(**changes):
    """H = 2, one constraint τ = 0.5, d = 2, tuned radii: everything overridable."""
    defaults = {
        "horizon": 2,
        "explorer": DIRECTIONAL,
        "conditioning": STATE,
        "radius_kind": TUNED,
        "reduces_radius": False,
        "threshold": np.array([0.5]),
        "noise": np.array([0.1]),
        "gamma_norm": np.array([1.0]),
        "events": 100.0,
        "tuned_radius": 1.0,
        "value_radius": np.array([1.0, 1.0]),
        "kappa": np.nan,
        "gap_floor": 0.0,
        "warms_up": False,
        "penalty": 0.0,
        "known_gamma": np.zeros((2, 1, 2)),
    }
    return Rules(**{name: defaults[name] for name in Rules._fields})._replace(**changes)


def hope_of(explorer):
    """1 for `directional`, 0 for the rest."""
    return 1.0 if explorer == DIRECTIONAL else 0.0


def choose(
    rules, *, weights, gamma_hat, radius, phi_0, baseline_cost, width2, cross, g00, vxx, v0x, v00, projected,
    step=1, is_star=True, baseline_row=-1, hope=None,
):  # fmt: skip
    """`assess` at one state: ((row, length, score, reason), bounds (M,))."""
    count, constraints = len(width2), len(rules.threshold)
    bound = np.full(constraints, np.nan)
    choice = assess(
        rules, step, hope_of(rules.explorer) if hope is None else hope, weights, gamma_hat, radius, phi_0, is_star,
        baseline_row, baseline_cost, width2, cross, number(g00), vxx, v0x, number(v00), projected, 0,
        np.empty((5, count)), np.empty((4, constraints)), bound,
    )  # fmt: skip
    return choice, bound


def vector(values):
    """A fresh contiguous float64 copy: what the kernels are compiled for."""
    return np.array(values, dtype=np.float64, order="C")


def width_of(joint, x):
    """√(xᵀCx), rounded up."""
    return mixtures.width_of(vector(joint), vector(x))


def cost_rise(rise, joint, radius, x):
    """g(x) = ⟨b, x⟩ + β√(xᵀCx), rounded up."""
    return mixtures.cost_rise(vector(rise), vector(joint), number(radius), vector(x))


def scale_back(rise, joint, radius, slack, x):
    """x scaled back toward a_0 (n,), and the factor."""
    x = vector(x)
    factor = mixtures.scale_back(vector(rise), vector(joint), number(radius), number(slack), x)
    return x, factor


def linear_optimum(gain, slope, slack):
    """The value of the linear program, and the vertex x (n,) that attains it."""
    gain, slope, x = vector(gain), vector(slope), np.full(len(gain), np.nan)
    value = mixtures.linear_optimum(gain, slope, number(slack))[0]
    mixtures.best_pair(gain, slope, number(slack), x)
    return value, x


def slope_at(rise, joint, radius, x):
    """A subgradient of g at x (n,)."""
    slope = np.full(len(rise), np.nan)
    mixtures.slope_at(vector(rise), vector(joint), number(radius), vector(x), slope)
    return slope


def on_support(gain, rise, joint, radius, slack, support):
    """The stationary point on a support (n,), or None."""
    size, x = len(gain), np.full(len(gain), np.nan)
    found = mixture_supports.on_support(
        vector(gain), vector(rise), vector(joint), number(radius), number(slack),
        np.array([*support, *[0] * (size - len(support))], dtype=np.int64), len(support), np.full((size, size), np.nan),
        np.full((mixture_search.SCRATCH_ROWS, size), np.nan), x,
    )  # fmt: skip
    return x if found else None


def _scratch(size):
    """Work space full of NaN: what is read before it is written shows."""
    return (
        np.full((size, size), np.nan),
        np.full((mixture_search.SCRATCH_ROWS, size), np.nan),
        np.full(size, -1, dtype=np.int64),
        np.full(size, np.nan),
    )


def best_mixture(*, gain, rise, joint, radius, slack):
    """The best x (n,) under one constraint, and the upper bound on its optimum."""
    factor, work, support, x = _scratch(len(gain))
    bound = mixture_search.best_mixture(
        vector(gain), vector(rise), vector(joint), number(radius), number(slack), factor, work, support, x
    )
    return x, bound


def certified_optimum(*, gain, rise, joint, radius, slack):
    """The best x (n,) under M constraints, its value, and whether a certificate shows that it is best."""
    factor, work, support, x = _scratch(len(gain))
    facts = np.array([np.zeros(len(slack)), radius, slack, np.zeros(len(slack))])
    value, solved = mixture_choice.certified_optimum(
        vector(gain), vector(rise), vector(joint), facts, factor, work, support, x
    )
    return x, value, solved


def hoped_optimum(*, gain, rise, joint, radius, slack):
    """`directional`: the mixture to play (n,), and the value it hopes for."""
    _, work, _, x = _scratch(len(gain))
    facts = np.array([np.zeros(len(slack)), radius, slack, np.zeros(len(slack))])
    value = mixture_choice.hoped_optimum(
        vector(gain), vector(rise), vector(np.sqrt(np.diag(joint))), vector(joint), facts, work, x
    )
    return x, value


def draw_row(probabilities, baseline_row, uniform):
    """The candidate that a uniform number falls on, -1 for a_0."""
    return randomised.draw_row(vector(probabilities), int(baseline_row), number(uniform))
