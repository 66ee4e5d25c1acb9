"""THEORY sections 2 and 7: how far along a ray the bound holds, in closed form, against bisection and grids."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from laws.generators import bisect, law, literal_conditioned, radii, regressions, seeds, unit_ball
from reference.kernels import affine, unconditioned
from tether.learning.safe_sets import affine_lengths, bound_along, largest_unconditioned_step

RADIUS = st.floats(0.01, 4.0)


def forms(regression, f, ends):
    """width2, cross and g00 by their definitions: (n,), (n,), scalar."""
    g = regression.inverse
    g00, cross = f @ g @ f, ends @ g @ f
    gxx = np.einsum("ni,ij,nj->n", ends, g, ends)
    return np.maximum(gxx - cross**2 / g00, 0.0), cross, g00


def lengths_of(regression, f, ends, tau_s, tau, radius, *, is_star=True):
    """Certified and optimistic lengths of the fast code, and its widths."""
    width2, cross, g00 = forms(regression, f, ends)
    estimate = regression.estimate
    return affine(
        mean=ends @ estimate,
        width2=width2,
        cross=cross,
        g00=g00,
        residual=estimate @ f - tau_s,
        baseline_cost=tau_s,
        threshold=tau,
        radius=radius,
        is_star=is_star,
    )


def step_of(mean_0, mean, g00, g0x, gxx, radius, tau):
    return largest_unconditioned_step(*map(np.float64, (mean_0, mean, g00, g0x, gxx, radius, tau)))


@st.composite
def rays(draw):
    """A ray in mean and norm: (mean_0, mean, g00, g0x, gxx), from two vectors, so that |g0x|² <= g00 gxx."""
    rng = np.random.default_rng(draw(seeds))
    f, x = unit_ball(rng, 2, draw(st.integers(1, 4))) * draw(st.floats(0.05, 2.0))
    mean_0, mean = draw(st.floats(-1.0, 1.0)), draw(st.floats(-1.0, 2.0))
    return mean_0, mean, f @ f, f @ x, x @ x


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_closed_form_length_is_what_a_line_search_finds(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    for i, end in enumerate(ends):

        def holds(alpha, end=end):
            mean, norm = literal_conditioned(regression, f, tau_s, f + alpha * (end - f))
            return mean + radius * norm <= 0.5

        assert length[i] == pytest.approx(bisect(holds), abs=1e-6)


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_optimistic_length_is_what_a_line_search_on_the_lower_bound_finds(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    _, optimistic, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    for i, end in enumerate(ends):

        def holds(alpha, end=end):
            mean, norm = literal_conditioned(regression, f, tau_s, f + alpha * (end - f))
            return mean - radius * norm <= 0.5

        assert optimistic[i] == pytest.approx(bisect(holds), abs=1e-6)


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_cost_bound_at_the_certified_length_is_never_over_the_threshold(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 8, regression.dimension)
    length, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    for alpha, end in zip(length, ends, strict=True):
        mean, norm = literal_conditioned(regression, f, tau_s, f + alpha * (end - f))
        assert mean + radius * norm <= 0.5 + 1e-9


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_every_ray_has_some_certified_length_so_the_safe_action_is_never_the_only_one(regression, seed, tau_s, radius):
    """Assumption 2 leaves a gap τ − τ_s > 0, and a finite bound always fits a short step into it."""
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    assert (length > 0.0).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii, radii, st.booleans())
def test_lengths_shrink_as_the_radius_grows(regression, seed, tau_s, radius, more, is_star):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    small, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius, is_star=is_star)
    large, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius + more, is_star=is_star)
    assert (large <= small * (1.0 + 1e-14)).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii, st.floats(0.0, 2.0), st.booleans())
def test_lengths_grow_with_the_threshold(regression, seed, tau_s, radius, more, is_star):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    small, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius, is_star=is_star)
    large, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5 + more, radius, is_star=is_star)
    assert (small <= large * (1.0 + 1e-14)).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_certified_length_is_never_longer_than_the_optimistic_one(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, optimistic, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    assert (length <= optimistic).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_the_price_of_directional_optimism_is_bounded_as_the_theory_says(regression, seed, tau_s, radius):
    """1 − α_i/α_opt <= 2 β width(played)/(τ − τ_s): THEORY section 5."""
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, optimistic, width = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius)
    lost = 1.0 - length / optimistic
    assert (lost <= 2.0 * radius * length * width / (0.5 - tau_s) + 1e-9).all()


@law
@given(regressions(), seeds, st.floats(-0.5, 0.4), radii)
def test_a_discrete_action_is_certified_exactly_when_its_bound_is_under_the_threshold(regression, seed, tau_s, radius):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    length, _, _ = lengths_of(regression, f, np.array(ends), tau_s, 0.5, radius, is_star=False)
    for i, end in enumerate(ends):
        mean, norm = literal_conditioned(regression, f, tau_s, end)
        bound = mean + radius * norm
        assume(abs(bound - 0.5) > 1e-6)
        assert length[i] == (1.0 if bound <= 0.5 else 0.0)


@law
@given(regressions(), seeds, st.floats(-0.5, 0.3), st.floats(-0.5, 0.3), radii, radii)
def test_two_constraints_leave_the_shorter_of_their_lengths(regression, seed, first_tau, second_tau, first, second):
    f, *ends = unit_ball(np.random.default_rng(seed), 6, regression.dimension)
    ends = np.array(ends)
    width2, cross, g00 = forms(regression, f, ends)
    estimate = regression.estimate
    width, length, optimistic = np.empty(5), np.ones(5), np.ones(5)
    for tau_s, tau, radius in ((first_tau, 0.5, first), (second_tau, 0.4, second)):
        numbers = map(np.float64, (estimate @ f - tau_s, tau_s, tau, radius))
        affine_lengths(ends @ estimate, width2, cross, g00, *numbers, True, width, length, optimistic)
    alone = [
        lengths_of(regression, f, ends, first_tau, 0.5, first),
        lengths_of(regression, f, ends, second_tau, 0.4, second),
    ]
    np.testing.assert_array_equal(length, np.minimum(alone[0][0], alone[1][0]))
    np.testing.assert_array_equal(optimistic, np.minimum(alone[0][1], alone[1][1]))


@law
@given(rays(), RADIUS, st.floats(-0.5, 1.5), st.sampled_from([1.0, -1.0]))
def test_the_unconditioned_step_satisfies_its_own_bound(ray, radius, tau, sign):
    step = step_of(*ray, sign * radius, tau)
    assert 0.0 <= step <= 1.0
    if step > 0.0:
        assert bound_along(*map(np.float64, ray), np.float64(sign * radius), np.float64(step)) <= tau


@law
@given(rays(), RADIUS, st.floats(-0.5, 1.5), st.sampled_from([1.0, -1.0]))
def test_no_point_of_a_grid_beyond_the_unconditioned_step_satisfies_the_bound(ray, radius, tau, sign):
    """The quadratic's root is the *largest* step: a negative radius gives the optimistic one."""
    mean_0, mean, g00, g0x, gxx = ray
    step = step_of(*ray, sign * radius, tau)
    grid = np.linspace(0.0, 1.0, 2001)
    norm = np.sqrt(np.maximum((1 - grid) ** 2 * g00 + 2 * grid * (1 - grid) * g0x + grid**2 * gxx, 0.0))
    bound = (1 - grid) * mean_0 + grid * mean + sign * radius * norm
    clear = grid[bound <= tau - 1e-6]
    assert clear.size == 0 or step >= clear.max() - 1e-5


@law
@given(rays(), RADIUS, st.floats(-0.5, 1.5), st.sampled_from([1.0, -1.0]))
def test_the_unconditioned_step_is_what_a_line_search_finds(ray, radius, tau, sign):
    mean_0, mean, g00, g0x, gxx = ray

    def bound(alpha):
        norm2 = (1 - alpha) ** 2 * g00 + 2 * alpha * (1 - alpha) * g0x + alpha**2 * gxx
        return (1 - alpha) * mean_0 + alpha * mean + sign * radius * np.sqrt(max(norm2, 0.0))

    assume(bound(0.0) < tau - 1e-3)  # then the bound crosses τ once
    expected = bisect(lambda alpha: bound(alpha) <= tau)
    assert step_of(*ray, sign * radius, tau) == pytest.approx(expected, abs=1e-5)


@law
@given(rays(), RADIUS, RADIUS, st.floats(-0.5, 1.5))
def test_unconditioned_steps_shrink_as_the_radius_grows(ray, radius, more, tau):
    assert step_of(*ray, radius + more, tau) <= step_of(*ray, radius, tau) + 1e-5


@law
@given(rays(), RADIUS, st.floats(0.0, 1.0), st.floats(-0.5, 1.5))
def test_unconditioned_steps_grow_with_the_threshold(ray, radius, more, tau):
    assert step_of(*ray, radius, tau) <= step_of(*ray, radius, tau + more) + 1e-5


@law
@given(regressions(), seeds, st.floats(0.0, 0.8), RADIUS)
def test_unconditioned_lengths_follow_from_the_forms_of_the_tables(regression, seed, tau, radius):
    """gxx = width2 + cross²/g00, so one table serves both kinds of bound."""
    f, *ends = unit_ball(np.random.default_rng(seed), 5, regression.dimension)
    ends = np.array(ends)
    width2, cross, g00 = forms(regression, f, ends)
    estimate = regression.estimate
    length, optimistic, width = unconditioned(
        mean=ends @ estimate,
        width2=width2,
        cross=cross,
        g00=g00,
        mean_0=estimate @ f,
        threshold=tau,
        radius=radius,
    )
    np.testing.assert_allclose(width, np.sqrt(np.einsum("ni,ij,nj->n", ends, regression.inverse, ends)), rtol=1e-6)
    for i, end in enumerate(ends):

        def bound(alpha, end=end):
            x = f + alpha * (end - f)
            return estimate @ x + radius * np.sqrt(x @ regression.inverse @ x)

        if bound(0.0) < tau - 1e-3:
            assert length[i] == pytest.approx(bisect(lambda alpha, b=bound: b(alpha) <= tau), abs=1e-5)
        assert length[i] <= optimistic[i]
