"""Calls of the kernels by name, with defaults: one place to follow a change of their signatures."""

import numpy as np

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
