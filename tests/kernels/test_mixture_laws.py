"""Laws of the inner problem of Algorithm 2: what is played is feasible, and what is claimed is true, for any input."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels import mixture_calls as calls
from kernels.generators import law, seeds
from reference.cones import KINDS, draw
from tether.kernels.mixture_solver import CLOSED, SOLVED

kinds = st.sampled_from(KINDS)
sizes = st.integers(1, 7)
broken = st.sampled_from([np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 1e300, -1e300, 1e160, 5e-324])


@st.composite
def instances(draw_from, constraints=1):
    rng = np.random.default_rng(draw_from(seeds))
    return draw(rng, draw_from(kinds), draw_from(sizes), constraints)


@st.composite
def broken_arguments(draw_from):
    """The arguments of one inner problem with up to three numbers that no plan should contain."""
    numbers = {name: np.array(value, dtype=float) for name, value in draw_from(instances()).single.items()}
    for name in draw_from(st.lists(st.sampled_from(sorted(numbers)), min_size=1, max_size=3)):
        where = draw_from(st.integers(0, max(numbers[name].size - 1, 0)))
        value = draw_from(broken)
        if name in ("radius", "slack") or (name == "joint" and where % (len(numbers["gain"]) + 1) == 0):
            value = abs(value)  # a radius, a slack and a sum of squares may be anything else, but not negative
        if name == "rise" and value == -np.inf:
            value = np.inf  # see test_a_mean_cost_of_minus_infinity_certifies_nothing
        numbers[name].flat[where] = value
        if name == "joint":
            numbers[name].T.flat[where] = value
    return {name: value if value.ndim else float(value) for name, value in numbers.items()}


def exact_rise(problem, j, x):
    """g_j(x) from the residuals themselves, with more digits."""
    wide = x.astype(np.longdouble)
    mixed = problem.residuals.astype(np.longdouble) @ wide
    return problem.rise[j].astype(np.longdouble) @ wide + np.longdouble(problem.radius[j]) * np.sqrt(mixed @ mixed)


def assert_sub_distribution(x):
    assert (x >= 0.0).all()
    assert x.sum() <= 1.0
    assert np.cumsum(x[::-1])[-1] <= 1.0


@law
@given(instances(), seeds)
def test_the_computed_rise_is_never_below_the_exact_one(problem, seed):
    """C = RᵀR loses digits; the allowance gives them back. Sums of rounded products may lose an ulp of their size."""
    x = np.random.default_rng(seed).dirichlet(np.ones(problem.size + 1))[1:]
    computed = calls.cost_rise(problem.rise[0], problem.joint, problem.radius[0], x)
    assert computed >= exact_rise(problem, 0, x) - 1e-15 * (np.abs(problem.rise[0]) @ x + abs(computed))


@law
@given(seeds, st.integers(2, 6), st.floats(-12.0, -6.0))
def test_residuals_that_nearly_cancel_keep_the_width_that_is_left(seed, dimension, exponent):
    """R = (v, −v + ε u), half of each: the width is ε‖u‖/2, which RᵀR loses once ε² is below its rounding."""
    rng = np.random.default_rng(seed)
    v, u = rng.normal(size=(2, dimension))
    residuals = np.stack([v, -v + 10.0**exponent * u], axis=1)
    wide = residuals.astype(np.longdouble) @ np.full(2, np.longdouble(0.5))
    assert calls.width_of(residuals.T @ residuals, [0.5, 0.5]) >= np.sqrt(wide @ wide)


@law
@given(instances(), seeds)
def test_whatever_is_scaled_back_is_a_certified_sub_distribution(problem, seed):
    x = np.random.default_rng(seed).normal(0.3, 1.0, problem.size)
    numbers = problem.rise[0], problem.joint, problem.radius[0]
    out, factor = calls.scale_back(*numbers, problem.slack[0], x)
    assert_sub_distribution(out)
    assert calls.cost_rise(*numbers, out) <= problem.slack[0]
    assert 0.0 <= factor <= 1.0
    assert (out[x <= 0.0] == 0.0).all()
    kept = np.maximum(x, 0.0)
    if factor > 0.0 and kept.any():
        np.testing.assert_allclose(out, kept * (out.sum() / kept.sum()), rtol=1e-9)
        # no more is given away than the constraints ask for
        tight = max(out.sum(), calls.cost_rise(*numbers, out) / problem.slack[0])
        assert factor == 1.0 or tight >= 1.0 - 1e-5


@law
@given(instances())
def test_the_best_mixture_is_exactly_feasible_and_its_bound_is_not_below_its_value(problem):
    x, bound = calls.best_mixture(**problem.single)
    assert_sub_distribution(x)
    assert calls.cost_rise(problem.rise[0], problem.joint, problem.radius[0], x) <= problem.slack[0]
    assert exact_rise(problem, 0, x) <= problem.slack[0] * (1.0 + 1e-14) + 1e-15 * (np.abs(problem.rise[0]) @ x)
    assert bound >= problem.gain @ x - 1e-15 * np.abs(problem.gain).max()
    assert bound <= max(problem.gain.max(), 0.0)


@law
@given(instances(), seeds)
def test_no_feasible_mixture_beats_the_bound(problem, seed):
    """Random directions, each cut where it stops being feasible: an attack on the certificate."""
    _, bound = calls.best_mixture(**problem.single)
    rng = np.random.default_rng(seed)
    for _ in range(30):
        x = rng.dirichlet(np.full(problem.size, 0.5))
        rise = exact_rise(problem, 0, x)
        x = x * min(1.0, float(problem.slack[0] / rise)) if rise > 0.0 else x
        assert problem.gain @ x <= bound + 1e-12 * np.abs(problem.gain).max()


@settings(law, max_examples=400)
@given(broken_arguments())
def test_numbers_that_are_not_finite_or_overflow_never_certify_a_mixture(numbers):
    """x > 0 is left only if the definition itself, over the actions that are played, is a number under δ."""
    with np.errstate(all="ignore"):
        x, _ = calls.best_mixture(**numbers)
        assert_sub_distribution(x)
        if x.any() and numbers["slack"] != np.inf:  # an infinite threshold is no constraint
            played = x > 0.0
            square = x[played] @ numbers["joint"][np.ix_(played, played)] @ x[played]
            rise = numbers["rise"][played] @ x[played] + numbers["radius"] * np.sqrt(max(square, 0.0))
            assert np.isfinite(numbers["rise"][played]).all(), "a mixture rests on a mean cost that is not finite"
            assert np.isfinite(rise), (x, rise)
            assert rise <= numbers["slack"] + 1e-9 * (np.abs(numbers["rise"][played]) @ x[played]), (x, rise)
            assert numbers["slack"] > 0.0
        gains = numbers["gain"]
        if np.isnan(gains).any():
            assert not x[np.isnan(gains)].any(), "an action without a score is played"


@law
@given(instances(), st.sampled_from(["slack", "radius", "rise", "joint"]))
def test_a_constraint_that_is_not_a_number_leaves_only_the_safe_action(problem, name):
    numbers = {key: np.array(value) for key, value in problem.several.items()}
    numbers[name][...] = np.nan
    x, value, _ = calls.certified_optimum(**numbers)
    assert not x.any()
    assert value == 0.0


def test_a_mean_cost_of_minus_infinity_certifies_nothing():
    """Minus infinity is an overflow, not a bound: `scale_back` and `is_certified` refuse it, so must the shortcut."""
    x, _ = calls.best_mixture(gain=[1.0], rise=[-np.inf], joint=[[0.25]], radius=1.0, slack=0.5)
    np.testing.assert_array_equal(x, [0.0])


def test_a_width_that_is_not_a_number_does_not_prove_the_safe_action_best():
    """A mean cost of 0 and a NaN width: nothing is known, so the upper bound on what could be earned is not 0."""
    x, bound = calls.best_mixture(gain=[1.0], rise=[0.0], joint=[[np.nan]], radius=1.0, slack=0.5)
    np.testing.assert_array_equal(x, [0.0])
    assert not bound <= 0.0


@law
@given(instances(), st.floats(1.01, 50.0))
def test_a_larger_radius_never_earns_more(problem, factor):
    larger = replace(problem, radius=problem.radius * factor)
    (x, bound), (y, _) = (calls.best_mixture(**p.single) for p in (problem, larger))
    unit = np.abs(problem.gain).max()
    assert problem.gain @ y <= bound + 1e-12 * unit
    if bound - problem.gain @ x <= CLOSED * problem.largest:
        assert problem.gain @ y <= problem.gain @ x + 1.01 * CLOSED * unit


@law
@given(instances(), st.floats(1.01, 50.0))
def test_a_larger_threshold_never_earns_less(problem, factor):
    wider = replace(problem, slack=problem.slack * factor)
    (x, _), (y, bound) = (calls.best_mixture(**p.single) for p in (problem, wider))
    unit = np.abs(problem.gain).max()
    assert problem.gain @ x <= bound + 1e-12 * unit
    if bound - problem.gain @ y <= CLOSED * problem.largest:
        assert problem.gain @ y >= problem.gain @ x - 1.01 * CLOSED * unit


@law
@given(instances())
def test_the_feasible_set_grows_with_the_threshold_and_shrinks_with_the_radius(problem):
    """Not only the optimum: the very mixture that was found stays feasible under a milder rule."""
    x, _ = calls.best_mixture(**problem.single)
    assume(x.any())
    rise, joint, radius, slack = problem.rise[0], problem.joint, problem.radius[0], problem.slack[0]
    assert calls.scale_back(rise, joint, radius, 1.5 * slack, x)[1] >= 1.0 - 1e-13
    assert calls.scale_back(rise, joint, radius / 2.0, slack, x)[1] >= 1.0 - 1e-13


@law
@given(instances(), seeds)
def test_the_order_of_the_actions_does_not_matter(problem, seed):
    order = np.random.default_rng(seed).permutation(problem.size)
    numbers = problem.single
    shuffled = {**numbers, "gain": numbers["gain"][order], "rise": numbers["rise"][order]}
    shuffled["joint"] = numbers["joint"][np.ix_(order, order)]
    (x, bound), (y, other) = calls.best_mixture(**numbers), calls.best_mixture(**shuffled)
    unit = CLOSED * problem.largest
    closed = bound - problem.gain @ x <= unit and other - shuffled["gain"] @ y <= unit
    assume(closed)
    assert abs(problem.gain @ x - shuffled["gain"] @ y) <= 1.01 * unit


@law
@given(instances(), st.sampled_from([2.0**-20, 0.5, 4.0, 2.0**20]))
def test_the_unit_of_the_scores_does_not_matter(problem, unit):
    """Powers of two are exact: the same mixture, bit for bit."""
    (x, bound), (y, scaled) = (
        calls.best_mixture(**p.single) for p in (problem, replace(problem, gain=problem.gain * unit))
    )
    np.testing.assert_array_equal(x, y)
    assert scaled == bound * unit


@law
@given(st.integers(1, 3).flatmap(lambda m: instances(constraints=m)))
def test_with_several_constraints_what_counts_as_solved_satisfies_all(problem):
    x, value, solved = calls.certified_optimum(**problem.several)
    if solved:
        assert_sub_distribution(x)
        for j in range(len(problem.slack)):
            assert calls.cost_rise(problem.rise[j], problem.joint, problem.radius[j], x) <= problem.slack[j]
            assert exact_rise(problem, j, x) <= problem.slack[j] * (1.0 + 1e-14) + 1e-15 * (
                np.abs(problem.rise[j]) @ x
            )  # fmt: skip
        assert abs(value - problem.gain @ x) <= 1e-14 * np.abs(problem.gain).max()


@law
@given(st.integers(1, 3).flatmap(lambda m: instances(constraints=m)))
def test_the_interior_point_method_returns_something_feasible_and_no_bound_below_it(problem):
    x, bound = calls.conic_mixture(**problem.several)
    assert_sub_distribution(x)
    for j in range(len(problem.slack)):
        assert calls.cost_rise(problem.rise[j], problem.joint, problem.radius[j], x) <= problem.slack[j]
    assert bound >= problem.gain @ x - SOLVED * np.abs(problem.gain).max()


@law
@given(st.integers(1, 3).flatmap(lambda m: instances(constraints=m)))
def test_the_optimistic_value_is_at_least_the_certified_one_and_what_is_played_is_certified(problem):
    x, optimistic = calls.optimistic_optimum(**problem.several)
    assert_sub_distribution(x)
    for j in range(len(problem.slack)):
        assert calls.cost_rise(problem.rise[j], problem.joint, problem.radius[j], x) <= problem.slack[j]
    _, value, solved = calls.certified_optimum(**problem.several)
    assert not solved or optimistic >= value - 1e-12 * np.abs(problem.gain).max()
    assert problem.gain @ x <= optimistic + 1e-12 * np.abs(problem.gain).max()


@law
@given(seeds, st.integers(1, 8), st.floats(0.0, 1.0, exclude_max=True))
def test_a_drawn_row_has_positive_probability_and_is_the_one_the_number_falls_on(seed, size, uniform):
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.ones(size)) * (rng.random(size) < 0.7)
    safe = int(rng.integers(-1, size))
    row = calls.draw_row(theta, safe, uniform)
    ends = np.cumsum(theta)
    if row < 0:
        fell_on_safe = safe >= 0 and ends[safe] - theta[safe] <= uniform <= ends[safe]
        assert fell_on_safe or uniform >= ends[-1]
    else:
        assert row != safe
        assert theta[row] > 0.0
        assert ends[row] - theta[row] - 1e-15 <= uniform < ends[row]
