"""Calls of the mixture kernels by name: one place to follow a change of their signatures.

An inner problem is given by its gain p (n,), rise b (n,) or (M, n), joint C (n, n), and by its radius β and slack δ,
each a number or (M,).
"""

import numpy as np

from tether.kernels import mixture_plan, mixture_solver


def vector(values):
    """A fresh contiguous float64 copy: what the kernels are compiled for."""
    return np.array(values, dtype=np.float64, order="C")


def inner_problem(*, joint, gain=None, rise=None, radius=0.0, slack=0.0):
    """The record, its buffers full of NaN: what is read before it is written shows."""
    joint = vector(joint)
    size = len(joint)
    rise = np.atleast_2d(np.zeros(size) if rise is None else vector(rise))
    problem = mixture_solver.new_inner_problem(len(rise), size)
    for buffer in problem.fields.values():
        buffer[...] = np.nan if buffer.dtype == np.float64 else -1
    problem.size[0] = size
    problem.gain[:] = 0.0 if gain is None else gain
    problem.rise[:], problem.joint[:], problem.radius[:], problem.slack[:] = rise, joint, radius, slack
    with np.errstate(invalid="ignore"):
        problem.width[:] = np.sqrt(np.diag(joint))
    return problem


def width_of(joint, x):
    """√(xᵀCx), rounded up."""
    return mixture_solver.width_of(inner_problem(joint=joint), vector(x))


def cost_rise(rise, joint, radius, x):
    """g(x) = ⟨b, x⟩ + β√(xᵀCx), rounded up."""
    return mixture_solver.cost_rise(inner_problem(rise=rise, joint=joint, radius=radius), 0, vector(x))


def scale_back(rise, joint, radius, slack, x):
    """x scaled back toward a_0 (n,), and the factor."""
    x = vector(x)
    problem = inner_problem(rise=rise, joint=joint, radius=radius, slack=slack)
    return x, mixture_solver.scale_back(problem, 0, x)


def linear_optimum(gain, slope, slack):
    """The value of the linear program, and the vertex x (n,) that attains it."""
    gain, slope, x = vector(gain), vector(slope), np.full(len(gain), np.nan)
    value = mixture_solver.best_pair(gain, slope, len(gain), slack, x)
    assert value == mixture_solver.linear_optimum(gain, slope, len(gain), slack)[0]
    return value, x


def slope_at(rise, joint, radius, x):
    """A subgradient of g at x (n,)."""
    slope = np.full(len(rise), np.nan)
    mixture_solver.slope_at(inner_problem(rise=rise, joint=joint, radius=radius), 0, vector(x), slope)
    return slope


def on_support(*, support, **numbers):
    """The stationary point on a support (n,), or None."""
    problem = inner_problem(**numbers)
    problem.support[: len(support)] = support
    return problem.trial if mixture_solver.on_support(problem, 0, len(support)) else None


def best_mixture(**numbers):
    """The best x (n,) under one constraint, and the upper bound on its optimum."""
    problem = inner_problem(**numbers)
    bound = mixture_solver.best_mixture(problem, 0)
    return problem.x, bound


def certified_optimum(**numbers):
    """The best x (n,) under M constraints, its value, and whether a certificate shows that it is best."""
    problem = inner_problem(**numbers)
    value, solved = mixture_solver.certified_optimum(problem)
    return problem.x, value, solved


def optimistic_optimum(**numbers):
    """`directional`: the mixture to play (n,), and its optimistic value."""
    problem = inner_problem(**numbers)
    value = mixture_solver.optimistic_optimum(problem, problem.x)
    return problem.x, value


def conic_mixture(**numbers):
    """The best x (n,) under M constraints by the interior-point method, and the upper bound on its optimum."""
    problem = inner_problem(**numbers)
    bound = mixture_solver.conic_mixture(problem)
    return problem.x, bound


def draw_row(probabilities, baseline_row, uniform):
    """The candidate that a uniform number falls on, -1 for a_0."""
    return mixture_plan.draw_row(vector(probabilities), baseline_row, uniform)
